//! `x[index]`: reading Python's index of an Array.
//!
//! Promises NumPy's rules and, for indices out of range, its messages. Known arrays of integers are checked now,
//! those of a trace when the program runs.

use burtorch_core::array::{Element, Index, Slice};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PySlice, PyTuple};

use super::append::append;
use super::array::PyArray;
use super::guard::known_once;
use super::of_graph::numbers_of;
use super::operands::is_integer;
use crate::convert::buffer::type_name;
use crate::convert::errors::{if_any, numpy};
use crate::convert::numbers::has_dtype;
use crate::convert::refusals::error_here;
use crate::convert::signals::text_of;

/// One part of an index; arrays are operands by number.
enum Part {
    Known(Index),
    Operand(usize),
}

/// `x[index]`.
pub fn item<'py>(x: &Bound<'py, PyArray>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let given: Vec<_> = match index.cast::<PyTuple>() {
        Ok(parts) => parts.iter().collect(),
        Err(_) => vec![index.clone()],
    };
    let given = given.into_iter().map(|part| with_masks_as_integers(&part)).collect::<PyResult<Vec<_>>>()?;
    let (mut given, mut extents): (Vec<_>, Vec<_>) = given.into_iter().flatten().unzip();
    let dims = x.get().type_of().dims;
    let n_rest = given.iter().filter(|part| is_rest(part)).count();
    let named = given.iter().filter(|part| !part.is_none() && !is_rest(part)).count();
    if n_rest > 1 {
        return Err(PyIndexError::new_err("an index can only have a single ellipsis ('...')"));
    }
    if named > dims.rank() {
        let rank = dims.rank();
        let message = format!("too many indices for array: array is {rank}-dimensional, but {named} were indexed");
        return Err(PyIndexError::new_err(message));
    }
    if n_rest == 0 {
        given.push(py.Ellipsis().into_bound(py));
        extents.push(None);
    }
    let mut operands = vec![x.clone().into_any()];
    let mut parts = Vec::with_capacity(given.len());
    let mut axis = 0;
    for (part, extent) in given.iter().zip(extents) {
        let n = dims.get(axis).copied().unwrap_or(0);
        if let Some(extent) = extent.filter(|&extent| extent != n) {
            return Err(PyIndexError::new_err(format!(
                "boolean index did not match indexed array along axis {axis}; size of axis is {n} but size of corresponding \
                 boolean axis is {extent}"
            )));
        }
        parts.push(if part.is_none() {
            Part::Known(Index::New)
        } else if is_rest(part) {
            axis += dims.rank() - named;
            Part::Known(Index::Rest)
        } else {
            axis += 1;
            match one(part, axis - 1, n)? {
                Some(index) => Part::Known(index),
                None => {
                    operands.push(part.clone());
                    Part::Operand(operands.len() - 1)
                }
            }
        });
    }
    let made = append(py, &operands, |b, of| {
        let parts: Option<Vec<_>> = parts
            .iter()
            .map(|part| match part {
                Part::Known(index) => Some(*index),
                Part::Operand(k) => of.get(*k).copied().map(Index::Array),
            })
            .collect();
        match (of, parts) {
            ([x, ..], Some(parts)) => b.indexed(*x, &parts),
            _ => Err(burtorch_core::Error::IndexExhausted { limit: 0 }), // as many values as operands
        }
    })?;
    made.map(Bound::into_any).ok_or_else(|| wrong(index))
}

fn is_rest(part: &Bound<'_, PyAny>) -> bool {
    part.is_instance_of::<PyEllipsis>()
}

fn wrong(part: &Bound<'_, PyAny>) -> PyErr {
    let found = type_name(part);
    PyIndexError::new_err(format!(
        "only integers, slices (`:`), ellipsis (`...`), None and integer arrays are valid indices of an Array, found {found}"
    ))
}

/// A part of an index for one axis; `None` for an array of integers.
fn one(part: &Bound<'_, PyAny>, axis: usize, n: usize) -> PyResult<Option<Index>> {
    let outside = |k: &dyn std::fmt::Display| {
        PyIndexError::new_err(format!("index {k} is out of bounds for axis {axis} with size {n}"))
    };
    if let Ok(slice) = part.cast::<PySlice>() {
        let indices = slice.indices(n as isize)?;
        let start = if indices.slicelength == 0 { 0 } else { indices.start.max(0) as usize };
        return Ok(Some(Index::Slice(Slice { start, step: indices.step, count: indices.slicelength })));
    }
    if let Ok(array) = part.cast::<PyArray>() {
        return match array.get().type_of().element {
            Element::Int => Ok(None),
            Element::Mask => Err(error_here(
                part.py(),
                "the shape of x[mask] depends on the data of a traced mask; use bt.where(mask, x, 0)",
            )),
            Element::Float | Element::Sparse => {
                Err(PyIndexError::new_err("arrays used as indices must be of integer (or boolean) type, found floats"))
            }
        };
    }
    if part.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("an Array cannot be indexed by True or False; use bt.where"));
    }
    if has_dtype(part)? && part.getattr("ndim")?.extract::<usize>()? > 0 {
        let (low, high): (i64, i64) = if part.getattr("size")?.extract::<usize>()? == 0 {
            (0, -1)
        } else {
            (part.call_method0("min")?.extract()?, part.call_method0("max")?.extract()?)
        };
        if low < -(n as i64) {
            return Err(outside(&low));
        }
        return if high >= n as i64 { Err(outside(&high)) } else { Ok(None) };
    }
    let k = match if_any(part.py(), part.extract::<isize>())? {
        Some(k) => k,
        None if part.is_instance_of::<PyInt>() || has_dtype(part)? && is_integer(part)? => {
            return Err(outside(&text_of(part)));
        }
        None => return Err(wrong(part)),
    };
    if k >= n as isize || k < -(n as isize) {
        return Err(outside(&k));
    }
    Ok(Some(Index::At(k)))
}

/// The part itself; lists as arrays; a known mask as the positions where it is true, one array per axis, each with the extent of
/// the mask along that axis.
fn with_masks_as_integers<'py>(part: &Bound<'py, PyAny>) -> PyResult<Vec<(Bound<'py, PyAny>, Option<usize>)>> {
    let py = part.py();
    // A mask with numbers is known, and so is that of a body that runs at every call.
    if let Ok(array) = part.cast::<PyArray>()
        && array.get().type_of().element == Element::Mask
        && array.get().type_of().dims.rank() > 0
    {
        let known = if array.get().handle().is_some() { Some(numbers_of(array)?) } else { known_once(array)? };
        if let Some(known) = known {
            return with_masks_as_integers(&known);
        }
    }
    let is_list = part.is_instance_of::<pyo3::types::PyList>();
    if !is_list && (part.is_instance_of::<PyArray>() || !has_dtype(part)?) {
        return Ok(vec![(part.clone(), None)]);
    }
    let numpy = numpy(py)?;
    let array = if is_list { numpy.call_method1("asarray", (part,))? } else { part.clone() };
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    let n_dims: usize = array.getattr("ndim")?.extract()?;
    let integers = || array.call_method1("astype", ("int64",));
    match kind.as_str() {
        "b" if n_dims > 0 => {
            let extents: Vec<usize> = array.getattr("shape")?.extract()?;
            let places = numpy.call_method1("nonzero", (array,))?;
            places.try_iter()?.zip(extents).map(|(places, extent)| Ok((places?, Some(extent)))).collect()
        }
        "i" | "u" if n_dims > 0 => Ok(vec![(integers()?, None)]),
        "i" | "u" => Ok(vec![(array.call_method0("item")?, None)]),
        _ if is_list && array.getattr("size")?.extract::<usize>()? == 0 => Ok(vec![(integers()?, None)]),
        _ => Err(PyIndexError::new_err("arrays used as indices must be of integer (or boolean) type")),
    }
}
