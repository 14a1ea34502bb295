//! Nodes: operands and numbers of operations.
//!
//! Promises: a node lives as long as a handle or a node that reads it; numbers that no node needs are freed with the last handle;
//! long chains are freed without recursion. Does not know programs.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::super::instr::{Data, Element, Type};
use super::kernel::{Kernel, lock};

/// Something of the caller's.
pub type Keep = Box<dyn Any + Send + Sync>;

/// In the place of numbers that are gone, which no program takes.
pub(super) static GONE: Data = Data::Int(Vec::new());

/// Adjoints of a result, and whether elements may be unreached.
pub(super) struct Adjoint {
    pub(super) data: Data,
    pub(super) may_be_unreached: bool,
}

/// What a node reads.
pub(super) enum Operand {
    /// A result of a node.
    Node(Arc<Node>, usize),
    /// Numbers that nothing is differentiated by.
    Data(Data),
}

/// What changes.
#[derive(Default)]
pub(super) struct State {
    /// The results; empty when nobody can ask for them.
    pub(super) values: Vec<Arc<Data>>,
    pub(super) adjoints: Vec<Option<Adjoint>>,
    /// The sweep that adjoints are of.
    pub(super) sweep: u64,
    /// Of a leaf: the gradient that sweeps have added up.
    pub(super) grad: Option<Data>,
}

/// An operation that was evaluated, or numbers that were given.
pub(super) struct Node {
    /// Nodes are numbered in the order in which they were made.
    pub(super) order: u64,
    /// Which tape it is of.
    pub(super) tape: usize,
    /// What its reverse pass is; nothing of leaves and constants.
    pub(super) kernel: Option<Arc<Kernel>>,
    pub(super) operands: Vec<Operand>,
    /// What is to live as long as it, such as parameters that it reads.
    pub(super) keeps: Vec<Keep>,
    /// What its reverse pass reads besides operands and results.
    pub(super) saved: Vec<Data>,
    pub(super) types: Vec<Type>,
    /// Whether its floats have gradients.
    pub(super) moves: bool,
    /// Of given numbers: the caller's object that gets their gradient.
    pub(super) source: Option<Keep>,
    handles: AtomicUsize,
    /// How many reverse passes read its results.
    pub(super) readers: AtomicUsize,
    state: Mutex<State>,
}

impl Node {
    pub(super) fn new(tape: usize, order: u64, types: Vec<Type>, values: Vec<Data>, moves: bool) -> Self {
        let values = values.into_iter().map(Arc::new).collect();
        Node {
            order,
            tape,
            kernel: None,
            operands: Vec::new(),
            keeps: Vec::new(),
            saved: Vec::new(),
            types,
            moves,
            source: None,
            handles: AtomicUsize::new(0),
            readers: AtomicUsize::new(0),
            state: Mutex::new(State { values, ..State::default() }),
        }
    }

    /// No Python code runs while the guard lives.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether somebody can ask for its numbers.
    pub(super) fn is_held(&self) -> bool {
        self.handles.load(Ordering::Relaxed) > 0
    }

    /// Whether result `k` has a gradient.
    pub(super) fn moves(&self, k: usize) -> bool {
        self.moves && self.types[k].element == Element::Float
    }

    /// Whether sweeps add to its gradient.
    pub(super) fn is_leaf(&self) -> bool {
        self.moves && self.kernel.is_none() && self.source.is_none()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.operands);
        while let Some(operand) = left.pop() {
            if let Operand::Node(node, _) = operand
                && let Some(mut node) = Arc::into_inner(node)
            {
                if left.is_empty() {
                    left = std::mem::take(&mut node.operands);
                } else if left.try_reserve(node.operands.len()).is_ok() {
                    left.append(&mut node.operands);
                }
            }
        }
    }
}

/// An array: a result of a node.
pub struct Handle {
    pub(super) node: Arc<Node>,
    pub(super) result: usize,
}

impl Handle {
    pub(super) fn new(node: &Arc<Node>, result: usize) -> Self {
        node.handles.fetch_add(1, Ordering::Relaxed);
        Handle { node: node.clone(), result }
    }

    /// Shape and element.
    pub fn type_of(&self) -> Type {
        self.node.types[self.result]
    }

    /// Its numbers.
    pub fn data(&self) -> Arc<Data> {
        let state = self.node.state();
        state.values.get(self.result).cloned().unwrap_or_else(|| Arc::new(Data::Int(Vec::new())))
    }

    /// Whether it has a gradient.
    pub fn moves(&self) -> bool {
        self.node.moves(self.result)
    }

    /// Whether it was given, and sweeps add to its gradient.
    pub fn is_leaf(&self) -> bool {
        self.node.is_leaf()
    }

    /// Whether both are the same array.
    pub fn is_same(&self, other: &Handle) -> bool {
        self.result == other.result && Arc::ptr_eq(&self.node, &other.node)
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Handle::new(&self.node, self.result)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let is_last = self.node.handles.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last && self.node.readers.load(Ordering::Relaxed) == 0 {
            let mut state = self.node.state();
            let gone = (std::mem::take(&mut state.values), std::mem::take(&mut state.adjoints));
            drop(state);
            drop(gone);
        }
    }
}
