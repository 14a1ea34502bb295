//! `with no_grad():` for Python. While a thread is in such a block, no thread uses the free list of Values.
#![allow(unsafe_code)]

use pyo3::prelude::*;

use super::value::free_list;
use crate::convert::gc::collected;
use crate::graph::PyGraph;
use crate::graph::no_grad::{begin_block, end_block, step_in, step_out};

/// The `with no_grad():` blocks of this thread around a call that builds on a temporary graph: left until this is dropped.
pub struct OutsideNoGrad {
    blocks: u32,
}

impl OutsideNoGrad {
    /// Leaves the blocks that this thread is in.
    pub fn enter() -> Self {
        OutsideNoGrad { blocks: step_out() }
    }
}

impl Drop for OutsideNoGrad {
    fn drop(&mut self) {
        open_if(step_in(self.blocks));
    }
}

/// Opens the free list of Values if no thread is in a block any more.
fn open_if(is_last: bool) {
    if is_last {
        // SAFETY: under the GIL.
        unsafe { free_list::open() };
    }
}

/// `with no_grad():` builds only constants, in this thread: on every graph, or on the given one.
///
/// New nodes receive no gradient and cost no gradient memory or work. Blocks may be nested. Costs nothing per
/// operation.
///
/// Args:
///     graph: a Graph on which only constants are built, whatever the thread; None for all graphs of this thread.
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
            begin_block();
            // Disables the fast path, which does not check threads.
            // SAFETY: under the GIL.
            unsafe { free_list::close() };
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
            open_if(end_block());
            return Ok(());
        };
        let before = self.before.lock().ok().and_then(|mut all| all.pop());
        if let Some(before) = before {
            graph.get().set_no_grad(py, before)?;
        }
        Ok(())
    }
}
