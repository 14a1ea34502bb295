//! The Python object of each node, so that a node always has the same object.
//!
//! Promises: entries keep no object alive and follow renumbered nodes; there are at most twice as many as Values that
//! were alive when `operands` was last read. `node/value/operands` fills it.

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::convert::gc::{HoldsObjects, Visitor};
use crate::graph::by_node::ByNode;

/// Below this size, dead entries are not removed.
const FEW: usize = 64;

/// Weak references to Values, by node.
#[derive(Default)]
pub struct Objects {
    of: ByNode<Py<PyWeakrefReference>>,
    /// The number of entries after the last removal of dead ones.
    n_alive: usize,
}

impl HoldsObjects for Objects {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.of.values().for_each(|reference| reference.visit(visit));
    }
}

impl Objects {
    /// The object of a node, if it is alive; the caller checks whether it still belongs to the node.
    pub fn get<'py>(&self, py: Python<'py>, node: u32) -> Option<Bound<'py, PyAny>> {
        self.of.get(node)?.bind(py).upgrade()
    }

    /// Sets the object of a node.
    pub fn set(&mut self, py: Python<'_>, node: u32, reference: Py<PyWeakrefReference>) {
        self.of.insert(node, reference);
        if self.of.len() > FEW.max(2 * self.n_alive) {
            self.of.retain(|reference| reference.bind(py).upgrade().is_some());
            self.n_alive = self.of.len();
        }
    }

    /// Removes nodes from `len` on.
    pub fn cut(&mut self, len: u32) {
        self.of.truncate(len);
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Objects::default();
    }

    /// All entries, for renumbering.
    pub fn by_node(&mut self) -> &mut ByNode<Py<PyWeakrefReference>> {
        &mut self.of
    }
}
