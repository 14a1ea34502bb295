//! `bt.parallel`: a function called by several threads, each on a branch.
//!
//! Promises: the first exception is raised after all calls have returned.

use std::sync::{Mutex, PoisonError};

use burtorch_core::sync::GuidedChunks;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{PyGraph, enter_block, leave_block};
use crate::convert::arguments::Count;
use crate::convert::threads::on_threads;

/// State shared by threads that call a function in branches.
struct Calls {
    call: Py<PyAny>,
    branches: Vec<Py<PyGraph>>,
    items: Py<PyList>,
    results: Py<PyList>,
    numbers: GuidedChunks,
    /// Errors with the number of their call.
    errors: Mutex<Vec<(usize, PyErr)>>,
}

impl Calls {
    /// Takes items in order until none is left, or a call has failed.
    fn take_items(&self, py: Python<'_>) {
        while let Some(k) = self.numbers.take().map(|portion| portion.start) {
            if let Err(error) = self.call(py, k) {
                self.numbers.stop();
                self.errors.lock().unwrap_or_else(PoisonError::into_inner).push((k, error));
                return;
            }
        }
    }

    /// `with branches[k]: results[k] = call(items[k])`
    fn call(&self, py: Python<'_>, k: usize) -> PyResult<()> {
        crate::convert::entry::check_signals(py)?;
        let branch = self.branches[k].bind(py);
        let item = self.items.bind(py).get_item(k)?;
        enter_block(branch)?;
        let result = self.call.bind(py).call1((item,));
        let left = leave_block(branch, result.is_err());
        self.results.bind(py).set_item(k, result?)?;
        left
    }
}

/// Call ``fn`` with each item, in a ``with`` block of the branch of the same number, on up to ``threads`` threads.
///
/// After a failed call no other begins. Items are taken in order, so all before the first failed one have been called.
///
/// Returns:
///     The results of the calls, by item.
///
/// Raises:
///     ValueError: ``threads`` is below 1, or the numbers of branches and items differ.
///     Exception: a KeyboardInterrupt if there was one, else the exception of the first call by item order.
///
/// While another call has the threads, or if the system refuses to start any, the caller makes all calls.
///
/// Cost: that of the calls, and some microseconds for a thread that has worked within the last millisecond, or the cost of
/// waking it up otherwise.
///
/// Example:
///     >>> import burtorch as bt
///     >>> from burtorch._core import call_in_branches
///     >>> graph = bt.Graph()
///     >>> x, y = call_in_branches(bt.Value, graph.branches(2), [1.0, 2.0], 2)
///     >>> graph.join()
///     >>> (x + y).data
///     3.0
#[pyfunction]
#[pyo3(signature = (call, branches, items, threads, /))]
fn call_in_branches<'py>(
    py: Python<'py>,
    call: Py<PyAny>,
    branches: Vec<Py<PyGraph>>,
    items: &Bound<'py, PyList>,
    threads: Count,
) -> PyResult<Bound<'py, PyList>> {
    let (n, threads) = (items.len(), threads.positive("threads")?);
    if branches.len() != n {
        let message = format!("the numbers of branches and items must be equal, found {} and {n}", branches.len());
        return Err(PyValueError::new_err(message));
    }
    let results = PyList::new(py, (0..n).map(|_| py.None()))?;
    let calls = Calls {
        call,
        branches,
        items: items.clone().unbind(),
        results: results.clone().unbind(),
        numbers: GuidedChunks::new(n, threads, 1, 1),
        errors: Mutex::default(),
    };
    on_threads(py, threads, &|py| calls.take_items(py));
    let mut errors = calls.errors.into_inner().unwrap_or_else(PoisonError::into_inner);
    errors.sort_by_key(|(k, error)| (!error.is_instance_of::<PyKeyboardInterrupt>(py), *k));
    match errors.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(results),
    }
}

/// Adds the function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(call_in_branches, m)?)
}
