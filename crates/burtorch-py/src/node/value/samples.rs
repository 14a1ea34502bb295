//! A `Value` of an oracle, whose lanes hold one sample each: as a number, in comparisons, as a key.
//!
//! Promises: Python code runs once for all samples of a group, so its answer is that of every sample, or a ValueError that tells
//! what to do. Values of other graphs are treated in `convert`.
#![allow(unsafe_code)]

use burtorch_core::Op;
use burtorch_core::erased::AnyNumber;
use pyo3::basic::CompareOp;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyFloat;

use super::attributes::read;
use super::object::{ValueObject, cell_of};
use crate::convert::numbers::agreed;

/// Whether the lanes of a Value hold one sample each.
///
/// # Safety
/// `value` is a living Value; the GIL is held; no reference into its cell is in use.
pub unsafe fn holds_samples(value: *mut ffi::PyObject) -> bool {
    // SAFETY: by the contract of this function.
    let cell = unsafe { cell_of((*value.cast::<ValueObject>()).owner) };
    cell.holds_samples && cell.graph.scalar_type().lanes > 1
}

/// The numbers of a Value, one per lane.
unsafe fn lanes(value: *mut ffi::PyObject, of_grad: bool) -> PyResult<Vec<f64>> {
    // SAFETY: callers hold the GIL and a living Value.
    match unsafe { read(value, |cell, node| cell.graph.number(node, of_grad)) } {
        Some(AnyNumber::Lanes(all)) => Ok(all.to_vec()),
        Some(AnyNumber::One(x)) => Ok(vec![x]),
        Some(AnyNumber::Wide(_)) => Ok(Vec::new()), // lanes are not wide
        None => Python::attach(|py| Err(PyErr::fetch(py))),
    }
}

/// The number that all samples have in common.
pub fn common(lanes: &[f64], what: &str) -> PyResult<f64> {
    agreed(lanes.iter().map(|x| Ok(x.to_bits())), what).map(f64::from_bits)
}

/// The number that all samples have in common.
///
/// # Safety
/// As for [`holds_samples`].
pub unsafe fn number(value: *mut ffi::PyObject, of_grad: bool, what: &str) -> PyResult<f64> {
    // SAFETY: by the contract of this function.
    common(&unsafe { lanes(value, of_grad) }?, what)
}

/// Whether the number of every sample differs from 0.
///
/// # Safety
/// As for [`holds_samples`].
pub unsafe fn truth(value: *mut ffi::PyObject) -> PyResult<bool> {
    // SAFETY: by the contract of this function.
    let lanes = unsafe { lanes(value, false) }?;
    agreed(lanes.into_iter().map(|x| Ok(x != 0.0)), "bool() of a Value")
}

/// The outcome of a comparison, sample by sample, with another Value of the graph, or with a number.
///
/// # Safety
/// `a`, and `b` if there is no `number`, are as for [`holds_samples`].
pub unsafe fn compared(
    a: *mut ffi::PyObject,
    b: *mut ffi::PyObject,
    number: Option<&Bound<'_, PyAny>>,
    how: CompareOp,
) -> PyResult<bool> {
    // SAFETY: by the contract of this function.
    let (x, y) = unsafe { (lanes(a, false)?, if number.is_some() { Vec::new() } else { lanes(b, false)? }) };
    // A Value without lanes has one number for all.
    let of_lane = |all: &[f64], lane: usize| all.get(lane).or(all.first()).copied().unwrap_or(f64::NAN);
    Python::attach(|py| {
        let outcomes = (0..x.len().max(y.len())).map(|lane| {
            let x = PyFloat::new(py, of_lane(&x, lane));
            match number {
                Some(number) => x.rich_compare(number, how)?.is_truthy(),
                None => x.rich_compare(of_lane(&y, lane), how)?.is_truthy(),
            }
        });
        agreed(outcomes, "a comparison of Values")
    })
}

/// The hash of a number of the data, which is that of the number in every sample, as in a look-up with the number alone; `None` for
/// computed Values, which are told apart by their nodes.
///
/// # Safety
/// As for [`holds_samples`], for Values with one lane as well.
pub unsafe fn hash_of_data(value: *mut ffi::PyObject) -> PyResult<Option<ffi::Py_hash_t>> {
    // SAFETY: by the contract of this function.
    unsafe {
        if !cell_of((*value.cast::<ValueObject>()).owner).holds_samples {
            return Ok(None);
        }
        let is_data = read(value, |cell, node| Ok(matches!(cell.graph.op(node), Ok(Op::Constant))));
        match is_data {
            Some(true) => {}
            Some(false) => return Ok(None),
            None => return Python::attach(|py| Err(PyErr::fetch(py))),
        }
        let x = number(value, false, "hash() of a Value")?;
        Python::attach(|py| PyFloat::new(py, x).hash()).map(|hash| Some(hash as ffi::Py_hash_t))
    }
}
