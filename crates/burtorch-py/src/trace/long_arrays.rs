//! Long arrays of one dimension as arguments: a body that computes with them as a whole is traced with Arrays, so that recording
//! takes time by operations and not by numbers.
//!
//! Promises: a body that computes with many single numbers, or does something that only Values support, is traced with Values,
//! in this and later calls; so are arguments that Arrays and Values treat differently. Knows no programs.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyTuple};

use super::calls::is_of_a_wrong_type;
use super::object::Call;
use crate::array::array_trial::{self, Trial};
use crate::convert::arrays::{Array, Kind};
use crate::convert::errors::{BurtorchError, is_final};
use crate::convert::numbers::is_ndarray;
use crate::convert::refusals::is_tracing;
use crate::convert::signals::failed_twice;

/// The fewest numbers of a long array: below, replays of single numbers are faster.
pub const LONG: usize = 256;
/// The same for sparse derivatives, whose entries are operations of their own on single numbers.
pub const LONG_FOR_ENTRIES: usize = 4096;
/// The most other arguments.
const MOST_OTHERS: usize = 16;

/// Whether a call is tried with Arrays: there are arrays of at least so many floats among its arguments, and besides them only short ones
/// and few floats.
pub fn are_meant(call: &Call<'_>, least: usize) -> bool {
    let (mut n_seen, mut n_others) = (0, 0);
    call.positional.iter().any(|x| has_long(x, least, &mut n_seen))
        && !is_tracing()
        && !call.named.iter().any(|(name, _)| name == "wanted")
        && call.with(|state| state.takes_long_arrays()).unwrap_or(false)
        && call.positional.iter().all(|x| is_suited(x, &mut n_others))
}

/// Runs a method of such a call with Arrays, and, if the body cannot be traced with them, with Values.
pub fn run<'py, T>(
    call: Call<'py>,
    run: impl Fn(Call<'py>) -> PyResult<T>,
    again: impl Fn() -> Call<'py>,
) -> PyResult<T> {
    let py = call.py();
    call.with(|state| state.is_of_arrays = true)?;
    let (done, how) = array_trial::tried(|| run(Call { with_arrays: true, ..call }));
    let needs_values = match (how, &done) {
        (Trial::NeedsValues, Err(error)) => !is_final(py, error),
        (Trial::Failed, Err(error)) => is_of_a_wrong_type(py, error) || error.is_instance_of::<BurtorchError>(py),
        _ => false,
    };
    if !needs_values {
        return done;
    }
    let done = run(again()).map_err(|later| match &done {
        Err(earlier) if how == Trial::Failed => failed_twice(py, earlier, later),
        _ => later,
    })?;
    again().with(|state| state.needs_values = true)?;
    Ok(done)
}

/// The items of a container that is not too long.
fn items<'py>(x: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = x.cast_exact::<PyList>() {
        (list.len() <= MOST_OTHERS).then(|| list.iter().collect())
    } else if let Ok(tuple) = x.cast_exact::<PyTuple>() {
        (tuple.len() <= MOST_OTHERS).then(|| tuple.iter().collect())
    } else if let Ok(dict) = x.cast_exact::<PyDict>() {
        (dict.len() <= MOST_OTHERS).then(|| dict.values().iter().collect())
    } else {
        None
    }
}

/// Whether an argument is or contains a long array, after `n` other ones.
fn has_long(x: &Bound<'_, PyAny>, least: usize, n: &mut usize) -> bool {
    if is_ndarray(x) {
        return x.len().is_ok_and(|n| n >= least);
    }
    *n += 1;
    *n <= MOST_OTHERS && items(x).is_some_and(|items| items.iter().any(|x| has_long(x, least, n)))
}

/// Whether Arrays and Values treat it in the same way.
fn is_suited(x: &Bound<'_, PyAny>, n_others: &mut usize) -> bool {
    if is_ndarray(x) {
        return Array::of(x)
            .is_some_and(|array| matches!(array.kind, Kind::F32 | Kind::F64) && array.shape().len() == 1);
    }
    *n_others += 1;
    *n_others <= MOST_OTHERS
        && match items(x) {
            Some(items) => items.iter().all(|x| is_suited(x, n_others)),
            None => x.is_instance_of::<PyFloat>() || x.is_exact_instance_of::<PyInt>(),
        }
}
