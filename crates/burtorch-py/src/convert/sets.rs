//! Selections of numbers in a flat array: a range, ascending indices, or a mask.
//!
//! Promises: ranges ascend and do not touch. Does not know the numbers.

use crate::convert::errors::numpy;
use crate::convert::signals::repr_of;
use std::ops::Range;

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PyRange};

use super::arrays::{Array, Kind};
use super::buffer::holds_bools;
use super::numbers::has_dtype;

/// The selected ones of `n` numbers, if the argument is ascending indices or a mask. `whose` is for messages.
pub fn listed(n: usize, whose: &str, what: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Range<u32>>>> {
    if let Ok(items) = what.cast::<PyList>() {
        if items.is_empty() {
            return Ok(None);
        }
        if !items.iter().all(|item| item.is_instance_of::<PyInt>()) {
            for item in items {
                if !item.is_instance_of::<PyInt>() && !has_dtype(&item)? {
                    return Ok(None);
                }
            }
            // NumPy's scalars, which `list(array)` consists of.
            return listed(n, whose, &numpy(what.py())?.call_method1("asarray", (items,))?);
        }
        return match items.iter().all(|item| item.is_instance_of::<PyBool>()) {
            true => of_mask(n, whose, &items.extract::<Vec<bool>>()?).map(Some),
            false => of_indices(n, whose, items.extract::<Vec<i64>>().or_else(|error| beyond(what, n, whose, error))?)
                .map(Some),
        };
    }
    let Some(array) = Array::of(what).filter(|array| array.shape().len() == 1) else {
        return Ok(None);
    };
    match array.kind {
        Kind::Unsigned(1) if holds_bools(what)? => {
            let flags: Vec<bool> = array.integers()?.into_iter().map(|flag| flag != 0).collect();
            of_mask(n, whose, &flags).map(Some)
        }
        Kind::Signed(_) | Kind::Unsigned(_) => {
            of_indices(n, whose, array.integers().or_else(|error| beyond(what, n, whose, error))?).map(Some)
        }
        _ => Ok(None),
    }
}

/// The selected ones of `n` numbers, if the argument is a `range`.
pub fn range_in(n: usize, what: &Bound<'_, PyAny>) -> PyResult<Option<Range<u32>>> {
    let Ok(range) = what.cast::<PyRange>() else { return Ok(None) };
    // A bound beyond 64 bits is outside in any case.
    let part = |name: &str| match range.getattr(name)?.extract::<i64>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(what.py()) => Ok(i64::MAX),
        found => found,
    };
    let (start, stop, step) = (part("start")?, part("stop")?, part("step")?);
    if step != 1 || start < 0 || stop < start || stop > n as i64 {
        let found = repr_of(range)?;
        return Err(PyValueError::new_err(format!(
            "a range of numbers must be range(start, stop) with 0 <= start <= stop <= {n}, found {found}"
        )));
    }
    Ok(Some(start as u32..stop as u32))
}

/// The error for an index beyond 64 bits; other errors as they are.
fn beyond<T>(what: &Bound<'_, PyAny>, n: usize, whose: &str, error: PyErr) -> PyResult<T> {
    if !error.is_instance_of::<PyOverflowError>(what.py()) {
        return Err(error);
    }
    let most = n.saturating_sub(1);
    Err(PyIndexError::new_err(format!("an index of {whose} is beyond 64 bits, expected 0 to {most}")))
}

fn of_mask(n: usize, whose: &str, mask: &[bool]) -> PyResult<Vec<Range<u32>>> {
    if mask.len() != n {
        return Err(PyValueError::new_err(format!(
            "a mask must have one bool for each of {n} {whose}, found {}",
            mask.len()
        )));
    }
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for k in (0..n as u32).filter(|&k| mask[k as usize]) {
        extend(&mut ranges, k);
    }
    Ok(ranges)
}

fn of_indices(n: usize, whose: &str, indices: Vec<i64>) -> PyResult<Vec<Range<u32>>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    let mut next = 0;
    for index in indices {
        if !(0..n as i64).contains(&index) {
            return Err(PyIndexError::new_err(format!(
                "index {index} is outside the {n} {whose}, expected 0 to {}",
                n.saturating_sub(1)
            )));
        }
        if index < next {
            return Err(PyValueError::new_err(format!(
                "indices of {whose} must ascend without repetition, found {index} after {}; sort them",
                next - 1
            )));
        }
        next = index + 1;
        extend(&mut ranges, index as u32);
    }
    Ok(ranges)
}

/// Adds a number above all others.
fn extend(ranges: &mut Vec<Range<u32>>, k: u32) {
    match ranges.last_mut().filter(|last| last.end == k) {
        Some(last) => last.end += 1,
        None => ranges.push(k..k + 1),
    }
}
