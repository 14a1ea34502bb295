//! Tokens that end calls early, for Python.

use std::time::Duration;

use burtorch_core::sync::Stop;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::convert::buffer::type_name;
use crate::convert::errors::derived;
use crate::convert::numbers::optional_number;

/// A token that ends the calls that watch it: `oracle(x, y, stop=token)`, `v.backward(stop=token)`, `f.map(x, stop=token)`,
/// `optimiser.step(stop=token)`, `method.run(stop=token)`. Any thread may set it.
///
/// Example:
///     >>> import burtorch as bt
///     >>> stop = bt.Stop()
///     >>> stop.set()
///     >>> oracle = bt.Oracle(bt.nn.Linear(bt.Parameters(), 1, 1))
///     >>> oracle([[1.0]], [[1.0]], stop=stop, on_stop="discard") is None
///     True
#[pyclass(frozen, name = "Stop", module = "burtorch")]
#[derive(Default)]
pub struct PyStop {
    stop: Stop,
}

#[pymethods]
impl PyStop {
    #[new]
    fn new() -> Self {
        PyStop::default()
    }

    /// End the calls that watch it, now and later.
    fn set(&self) {
        self.stop.set();
    }

    /// Clear it for the next use.
    fn clear(&self) {
        self.stop.clear();
    }

    /// Whether it is set.
    fn is_set(&self) -> bool {
        self.stop.is_set()
    }

    fn __repr__(&self) -> &'static str {
        if self.stop.is_set() { "<Stop, set>" } else { "<Stop>" }
    }
}

/// The token and deadline of a call with `stop=` or `deadline=`.
pub fn watched(stop: Option<&Bound<'_, PyStop>>, deadline: Option<f64>) -> PyResult<Option<Stop>> {
    let token = || stop.map_or_else(Stop::new, |stop| stop.get().stop.clone());
    match deadline {
        None => Ok(stop.map(|_| token())),
        Some(seconds) if seconds >= 0.0 => {
            // Delays beyond the range of the clock count as infinite.
            Ok(Some(Duration::try_from_secs_f64(seconds).map_or_else(|_| token(), |time| token().after(time))))
        }
        Some(found) => {
            Err(PyValueError::new_err(format!("deadline must be at least 0 seconds from now, found {found}")))
        }
    }
}

/// The same from Python arguments: a Stop or None, and seconds or None.
pub fn watched_by(stop: Option<&Bound<'_, PyAny>>, deadline: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Stop>> {
    let stop = stop.filter(|stop| !stop.is_none()).map(|stop| {
        let found = || PyTypeError::new_err(format!("stop must be a Stop, found {}", type_name(stop)));
        stop.cast::<PyStop>().map_err(|_| found())
    });
    watched(stop.transpose()?, deadline.map_or(Ok(None), optional_number)?)
}

/// The error of a call that ended early.
pub fn stopped(py: Python<'_>) -> PyErr {
    let message = "the token was set, or the deadline passed, before the call was finished";
    derived(py, "StoppedError", message.into())
}

/// Refuses to start a call that runs to its end once it has started, if its token is set.
pub fn begin_unless(py: Python<'_>, stop: Option<&Bound<'_, PyStop>>) -> PyResult<()> {
    if stop.is_some_and(|stop| stop.get().stop.is_set()) { Err(stopped(py)) } else { Ok(()) }
}

/// Runs a call with `stop=` and `deadline=`, unless it is stopped before it starts.
pub fn until<T>(py: Python<'_>, stop: Option<Stop>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    if stop.as_ref().is_some_and(Stop::is_set) { Err(stopped(py)) } else { within(py, stop, work) }
}

/// The same, but it always starts: a call that clears what it would have overwritten does so itself when it is stopped.
pub fn within<T>(py: Python<'_>, stop: Option<Stop>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    match stop {
        None => work(),
        Some(stop) => stop.watched(work).unwrap_or_else(|_| Err(stopped(py))),
    }
}

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyStop>()
}
