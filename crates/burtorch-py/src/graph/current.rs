//! The current graph of each thread, and whether gradients are on in a thread.
//!
//! Promises: `with graph:` and `with no_grad():` are per thread, nest, and cost an operation nothing if they are not
//! used. Knows nothing of nodes.
#![allow(unsafe_code)]

use std::cell::{Cell as StdCell, RefCell};

use burtorch_core::Graph;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::PyGraph;
use crate::convert::entry::raise_python;
use crate::graph::cell::AnyGraph;

thread_local! {
    /// The current graph of this thread, a borrowed pointer into `OWNED`; null until one is needed.
    static CURRENT: StdCell<*mut ffi::PyObject> = const { StdCell::new(std::ptr::null_mut()) };
    /// The default graph, then one per active `with` of this thread.
    static OWNED: RefCell<Vec<Py<PyGraph>>> = const { RefCell::new(Vec::new()) };
}

/// The current graph of this thread, borrowed; null with an error set if none could be made.
#[inline(always)]
pub fn current(py: Python<'_>) -> *mut ffi::PyObject {
    let current = CURRENT.with(StdCell::get);
    if current.is_null() { make_default(py) } else { current }
}

/// As `current`, but null if none has been needed.
#[cfg(Py_GIL_DISABLED)]
pub fn current_if_any() -> *mut ffi::PyObject {
    CURRENT.with(StdCell::get)
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
        Err(error) => raise_python(error),
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

/// Returns to the previous current graph; only from the innermost block.
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

/// Returns to the current graph before this one, also from inner blocks that were entered and not left.
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
