//! Python code on the threads that the core keeps for shared work: those of `bt.parallel`.
//!
//! Promises: the caller waits without the interpreter lock, and is one of the threads; what is raised first is raised once
//! all calls have returned. The threads go on to the core's own work without sleeping in between.

use std::sync::{Mutex, PoisonError};

use burtorch_core::sync;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Call ``work`` without arguments ``threads`` times, on up to so many threads at once, of which the caller is one.
///
/// While another call has the threads, or where the system refuses any, the caller makes the calls one after another:
/// ``work`` takes what is left to do and must not wait for the other calls.
///
/// Raises:
///     ValueError: ``threads`` is below 1.
///     Exception: what a call raised first.
///
/// Cost: some microseconds for a thread that has worked within the last millisecond, and what waking one up takes otherwise.
///
/// Example:
///     >>> from burtorch._core import call_on_threads
///     >>> left = list(range(100))
///     >>> taken = []
///     >>> def work():
///     ...     while left:
///     ...         taken.append(left.pop())
///     >>> call_on_threads(work, 2)
///     >>> sorted(taken) == list(range(100))
///     True
#[pyfunction]
#[pyo3(signature = (work, threads, /))]
fn call_on_threads(py: Python<'_>, work: Py<PyAny>, threads: usize) -> PyResult<()> {
    if threads == 0 {
        return Err(PyValueError::new_err("threads must be at least 1, found 0"));
    }
    let raised = Mutex::new(None);
    py.detach(|| {
        sync::run(threads, threads, &|_| {
            if let Err(error) = Python::attach(|py| work.call0(py)) {
                raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
    });
    raised.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Adds the function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(call_on_threads, m)?)
}
