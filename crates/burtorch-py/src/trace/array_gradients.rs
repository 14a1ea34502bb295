//! `wanted=` of gradients by arrays: some of the concatenated numbers of the arguments.
//!
//! Promises: computations for arguments without a wanted number are skipped; each number has the bits of the full gradient. Knows
//! nothing of programs.

use std::ops::Range;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::containers::Nest;
use super::into_arrays::{Out, filled as written};
use super::object::Call;
use super::transform::Argnums;
use super::transforms::call_derived;
use crate::array::append::innermost_of;
use crate::array::trace::current;
use crate::convert::arrays::{Array, Kind, filled};
use crate::convert::buffer::type_name;
use crate::convert::errors::if_any;
use crate::convert::numbers::{as_numpy, has_dtype};

/// `f.grad(x, ..., wanted=S)`, or the pair of value and gradient, if arguments are arrays; `ranges` maps the number of
/// numbers to the ranges of S.
pub fn by_some<'py>(
    call: &Call<'py>,
    method: &'static str,
    ranges: impl FnOnce(usize) -> PyResult<Vec<Range<u32>>>,
    (out, is_pair): (Option<Out<'py>>, bool),
) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    if current(py).is_some() || innermost_of(py, &call.positional).is_some() {
        return Err(PyTypeError::new_err("wanted= is for calls with numbers; for Arrays use argnums"));
    }
    let mut lens = Vec::with_capacity(call.positional.len());
    for argument in &call.positional {
        let mut leaves = Vec::new();
        Nest::of(argument, &mut leaves)?;
        lens.push(leaves.iter().map(|leaf| n_numbers(leaf, method)).sum::<PyResult<usize>>()?);
    }
    let ranges = ranges(lens.iter().sum())?;
    // Positions of the wanted numbers among those of the arguments with wanted numbers.
    let (mut chosen, mut places) = (Vec::new(), Vec::new());
    let (mut first, mut n) = (0, 0);
    for (k, len) in lens.into_iter().enumerate() {
        let of_it = |range: &Range<u32>| (range.start as usize).max(first)..(range.end as usize).min(first + len);
        let before = places.len();
        places.extend(ranges.iter().flat_map(of_it).map(|place| place - first + n));
        if places.len() > before {
            chosen.push(k as isize);
            n += len;
        }
        first += len;
    }
    let by = if chosen.is_empty() { Argnums::All } else { Argnums::Many(chosen) };
    let found = call_derived(call, method, by)?;
    let gradient = if is_pair { found.get_item(1)? } else { found.clone() };
    let some = picked(&gradient, &places, n)?;
    let some = written(some, out)?;
    match is_pair {
        true => Ok(PyTuple::new(py, [found.get_item(0)?, some])?.into_any()),
        false => Ok(some),
    }
}

/// The number of numbers in an argument, or in a part of one.
fn n_numbers(leaf: &Bound<'_, PyAny>, method: &str) -> PyResult<usize> {
    if let Some(array) = Array::of(leaf) {
        return Ok(array.len());
    }
    if if_any(leaf.py(), leaf.extract::<f64>())?.is_some() {
        return Ok(1);
    }
    if has_dtype(leaf)?
        && let Some(array) = Array::of(&as_numpy(leaf)?)
    {
        return Ok(array.len());
    }
    let found = type_name(leaf);
    Err(PyTypeError::new_err(format!("wanted of {method}() is for numbers and arrays; select {found} by argnums")))
}

/// The numbers at these positions of a gradient of `n` numbers.
fn picked<'py>(gradient: &Bound<'py, PyAny>, places: &[usize], n: usize) -> PyResult<Bound<'py, PyAny>> {
    let mut leaves = Vec::new();
    Nest::of(gradient, &mut leaves)?;
    let (mut numbers, mut is_single) = (Vec::with_capacity(n), !leaves.is_empty());
    for leaf in &leaves {
        match Array::of(leaf) {
            Some(array) => {
                is_single &= array.kind == Kind::F32;
                array.read_into(&mut numbers);
            }
            None => {
                is_single = false;
                numbers.push(leaf.extract()?);
            }
        }
    }
    if !places.is_empty() && numbers.len() != n {
        return Err(PyTypeError::new_err("some numbers of these arguments have no gradient; use argnums"));
    }
    let some: Vec<f64> = places.iter().map(|&place| numbers[place]).collect();
    filled(gradient.py(), &[some.len()], if is_single { Kind::F32 } else { Kind::F64 }, &some)
}
