//! Which Python object stands for a node, so that whoever asks for a node twice gets one object.
//!
//! Promises: what is in here keeps no object alive and follows nodes that are renumbered; it is as large as the Values that
//! were alive when `operands` was last read, at most twice. Does not know where an object is from: `node/value/operands` fills it.

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::convert::gc::{HoldsObjects, Visitor};
use crate::graph::by_node::ByNode;

/// While there are fewer, dead ones are not looked for.
const FEW: usize = 64;

/// Weak references to Values, by node.
#[derive(Default)]
pub struct Objects {
    of: ByNode<Py<PyWeakrefReference>>,
    /// How many there were when dead ones were last taken out.
    n_alive: usize,
}

impl HoldsObjects for Objects {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.of.values().for_each(|reference| reference.visit(visit));
    }
}

impl Objects {
    /// The object of a node, if it is alive; whether it still stands for the node is to be asked.
    pub fn get<'py>(&self, py: Python<'py>, node: u32) -> Option<Bound<'py, PyAny>> {
        self.of.get(node)?.bind(py).upgrade()
    }

    /// Says which object stands for a node.
    pub fn set(&mut self, py: Python<'_>, node: u32, reference: Py<PyWeakrefReference>) {
        self.of.insert(node, reference);
        if self.of.len() > FEW.max(2 * self.n_alive) {
            self.of.retain(|reference| reference.bind(py).upgrade().is_some());
            self.n_alive = self.of.len();
        }
    }

    /// Forgets nodes from `len` on.
    pub fn cut(&mut self, len: u32) {
        self.of.truncate(len);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Objects::default();
    }

    /// All of them, to be renumbered.
    pub fn by_node(&mut self) -> &mut ByNode<Py<PyWeakrefReference>> {
        &mut self.of
    }
}
