//! Whether a body that was written for Values may be traced with Arrays: a trial counts its operations on single numbers.
//!
//! Promises: outside a trial the check costs one load. Knows no functions.

use std::cell::Cell;

use pyo3::prelude::*;

use super::array::PyArray;
use crate::convert::errors::derived;
use crate::convert::numbers::{is_ndarray, number_of};

/// The most operations with a single number as their result.
const MOST_SINGLE: usize = 256;

/// The state of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// There is none.
    Off,
    /// The body may have this many more operations with a single number as their result.
    Left(usize),
    /// It needs Values.
    NeedsValues,
    /// Its trace failed.
    Failed,
}

thread_local! {
    static TRIAL: Cell<Trial> = const { Cell::new(Trial::Off) };
}

/// Runs a trial; returns how it ended as well.
pub fn tried<T>(run: impl FnOnce() -> PyResult<T>) -> (PyResult<T>, Trial) {
    let before = TRIAL.replace(Trial::Left(MOST_SINGLE));
    let ran = run();
    (ran, TRIAL.replace(before))
}

/// Whether there is one.
pub fn is_on() -> bool {
    TRIAL.get() != Trial::Off
}

/// Runs `run` in a trial, if one is wanted.
pub fn within<T>(is_wanted: bool, run: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    if is_wanted { tried(run).0 } else { run() }
}

/// Counts results of an operation that are single numbers; refuses too many.
pub fn count_single(py: Python<'_>, n: usize) -> PyResult<()> {
    match TRIAL.get() {
        Trial::Off | Trial::Failed => Ok(()),
        Trial::Left(left) if n <= left => {
            TRIAL.set(Trial::Left(left - n));
            Ok(())
        }
        _ => Err(needs_values(py)),
    }
}

/// Refuses what Arrays and Values treat differently, such as primitives, which are traced with Arrays.
pub fn refuse(py: Python<'_>) -> PyResult<()> {
    if TRIAL.get() == Trial::Off { Ok(()) } else { Err(needs_values(py)) }
}

/// A constant in a result, as it is with Values: numbers are floats.
pub fn constant<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if TRIAL.get() == Trial::Off || x.is_instance_of::<PyArray>() {
        return Ok(x.clone());
    }
    match number_of(x)? {
        Some(x) => Ok(x.into_pyobject(py)?.into_any()),
        None if is_ndarray(x) => x.call_method1(pyo3::intern!(py, "astype"), ("float64",)),
        None => Ok(x.clone()),
    }
}

/// The error that ends the trace; it is not shown, because the body is then traced with Values.
#[cold]
fn needs_values(py: Python<'_>) -> PyErr {
    TRIAL.set(Trial::NeedsValues);
    derived(py, "TraceError", "the body computes with single numbers".into())
}

/// Notes how a trace ended; a body may have caught the error of `needs_values`.
pub fn ended<T>(py: Python<'_>, traced: PyResult<T>) -> PyResult<T> {
    match TRIAL.get() {
        Trial::NeedsValues => Err(traced.err().unwrap_or_else(|| needs_values(py))),
        Trial::Left(_) if traced.is_err() => {
            TRIAL.set(Trial::Failed);
            traced
        }
        _ => traced,
    }
}
