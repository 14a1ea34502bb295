//! The current graph of each thread, and whether a thread wants gradients at all.
//!
//! Promises: `with graph:` and `with no_grad():` are per thread, nest, and cost an operation nothing where nobody uses
//! them. Knows nothing of nodes.
#![allow(unsafe_code)]

use std::cell::{Cell as StdCell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};

use burtorch_core::Graph;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::PyGraph;
use crate::convert::gc::collected;
use crate::graph::cell::AnyGraph;
use crate::node::value;

thread_local! {
    /// The current graph of this thread, a borrowed pointer into `OWNED`; null until one is needed.
    static CURRENT: StdCell<*mut ffi::PyObject> = const { StdCell::new(std::ptr::null_mut()) };
    /// The default graph, then one per `with` that this thread is in.
    static OWNED: RefCell<Vec<Py<PyGraph>>> = const { RefCell::new(Vec::new()) };
}

/// How many `with no_grad():` blocks all threads are in: while there is none, building asks no thread.
static NO_GRAD_BLOCKS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// How many of them this thread is in.
    static NO_GRAD: StdCell<u32> = const { StdCell::new(0) };
}

/// Whether any thread is in a `with no_grad():` block. Relaxed, as a thread only needs to see its own entries.
#[inline]
fn no_grad_somewhere() -> bool {
    NO_GRAD_BLOCKS.load(Ordering::Relaxed) != 0
}

/// Whether this thread is in a `with no_grad():` block.
#[inline(always)]
pub fn wants_no_grad() -> bool {
    no_grad_somewhere() && NO_GRAD.with(StdCell::get) > 0
}

/// The `with no_grad():` blocks of this thread around a call that builds on a graph of its own: outside it until this goes.
pub struct OutsideNoGrad {
    blocks: u32,
}

impl OutsideNoGrad {
    /// Leaves the blocks that this thread is in.
    pub fn enter() -> Self {
        OutsideNoGrad { blocks: NO_GRAD.with(|blocks| blocks.replace(0)) }
    }
}

impl Drop for OutsideNoGrad {
    fn drop(&mut self) {
        // Blocks that were entered meanwhile and never left end here.
        for _ in 0..NO_GRAD.with(|blocks| blocks.replace(self.blocks)) {
            forget_block();
        }
    }
}

/// One block fewer, of any thread.
fn forget_block() {
    if NO_GRAD_BLOCKS.fetch_sub(1, Ordering::Relaxed) == 1 {
        // SAFETY: under the interpreter lock.
        unsafe { value::free_list::open() };
    }
}

/// The current graph of this thread, borrowed; null with an error set if none could be made.
#[inline(always)]
pub fn current(py: Python<'_>) -> *mut ffi::PyObject {
    let current = CURRENT.with(StdCell::get);
    if current.is_null() { make_default(py) } else { current }
}

#[cold]
#[inline(never)]
fn make_default(py: Python<'_>) -> *mut ffi::PyObject {
    match Py::new(py, PyGraph::around(AnyGraph::F64(Graph::new()), true)) {
        Ok(graph) => {
            let pointer = graph.as_ptr();
            OWNED.with_borrow_mut(|owned| owned.push(graph));
            CURRENT.with(|current| current.set(pointer));
            pointer
        }
        Err(error) => value::raise_python(error),
    }
}

/// Makes a graph the current one of this thread.
pub fn enter(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    if current(graph.py()).is_null() {
        return Err(PyErr::fetch(graph.py()));
    }
    OWNED.with_borrow_mut(|owned| owned.push(graph.clone().unbind()));
    CURRENT.with(|current| current.set(graph.as_ptr()));
    Ok(())
}

/// Goes back to the graph that was current before; only from the innermost one.
pub fn leave(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    let left = OWNED.with_borrow_mut(|owned| {
        let innermost = owned.len() > 1 && owned.last().is_some_and(|last| last.as_ptr() == graph.as_ptr());
        if !innermost {
            return None;
        }
        let left = owned.pop();
        CURRENT.with(|current| current.set(owned.last().map_or(std::ptr::null_mut(), Py::as_ptr)));
        left
    });
    match left {
        Some(_) => Ok(()),
        None => Err(PyValueError::new_err("this graph is not the innermost `with graph:` of this thread")),
    }
}

/// Goes back to the graph that was current before this one, also from blocks that were entered since and not left.
pub fn leave_all_above(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    let is_entered = || OWNED.with_borrow(|owned| owned.iter().any(|one| one.as_ptr() == graph.as_ptr()));
    while is_entered() {
        let innermost = OWNED.with_borrow(|owned| owned.last().map(|last| last.clone_ref(graph.py())));
        let Some(innermost) = innermost.map(|last| last.into_bound(graph.py())).filter(|last| !last.is(graph)) else {
            return leave(graph);
        };
        super::leave_block(&innermost, true)?;
    }
    leave(graph)
}

/// The graph that new leaves of this thread are appended to.
#[pyfunction]
pub fn current_graph(py: Python<'_>) -> PyResult<Py<PyAny>> {
    // SAFETY: a borrowed pointer to a living graph, or null with an error set.
    unsafe { Bound::from_borrowed_ptr_or_err(py, current(py)).map(Bound::unbind) }
}

/// `with no_grad():` builds constants only, in this thread: on every graph, or on the one given.
///
/// What is built receives no gradient and costs no gradient memory or work. Blocks may be nested. Costs nothing per
/// operation.
///
/// Args:
///     graph: the only Graph to build constants on, whatever the thread; None for all graphs of this thread.
///
/// Example:
///     >>> import burtorch as bt
///     >>> x = bt.Value(2.0)
///     >>> with bt.no_grad():
///     ...     y = x * x
///     >>> y.op
///     'constant'
#[pyclass(frozen, name = "no_grad", module = "burtorch")]
pub struct PyNoGrad {
    graph: Option<Py<PyGraph>>,
    /// The settings before the blocks on `graph`.
    before: std::sync::Mutex<Vec<bool>>,
}
collected!(PyNoGrad: graph);

#[pymethods]
impl PyNoGrad {
    #[new]
    #[pyo3(signature = (graph=None))]
    fn new(graph: Option<Py<PyGraph>>) -> Self {
        PyNoGrad { graph, before: std::sync::Mutex::new(Vec::new()) }
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let Some(graph) = &self.graph else {
            NO_GRAD.with(|blocks| blocks.set(blocks.get() + 1));
            NO_GRAD_BLOCKS.fetch_add(1, Ordering::Relaxed);
            // So that building at once, which asks no thread, does not happen.
            // SAFETY: under the interpreter lock.
            unsafe { value::free_list::close() };
            return Ok(());
        };
        let before = graph.get().set_no_grad(py, true)?;
        if let Ok(mut all) = self.before.lock() {
            all.push(before);
        }
        Ok(())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(graph) = &self.graph else {
            let blocks = NO_GRAD.with(StdCell::get);
            if blocks > 0 {
                NO_GRAD.with(|cell| cell.set(blocks - 1));
                forget_block();
            }
            return Ok(());
        };
        let before = self.before.lock().ok().and_then(|mut all| all.pop());
        if let Some(before) = before {
            graph.get().set_no_grad(py, before)?;
        }
        Ok(())
    }
}
