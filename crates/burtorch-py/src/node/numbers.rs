//! Numbers of nodes whose scalar type is neither float64 nor float32: reading and returning them.
//!
//! Promises: Python's numbers are read before a graph is touched, because reading may run Python code.
#![allow(unsafe_code)]

use burtorch_core::erased::{AnyNumber, ScalarType};
use burtorch_core::{DType, NodeId, Result};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::value;
use super::vector::{self, Symbol, wrap};
use crate::convert::errors::{IntoPython, if_any};
use crate::convert::numbers::{self, is_text, wide_number};
use crate::convert::signals::read_at_length;
use crate::graph::PyGraph;
use crate::graph::cell::AnyGraph;

/// Reads a number for a graph of this type; `None` if the object is not a number.
pub fn read(object: &Bound<'_, PyAny>, into: ScalarType) -> PyResult<Option<AnyNumber>> {
    if let Some(number) = numbers::read_one(object, into.elem)? {
        return Ok(Some(number));
    }
    if into.lanes == 1 || is_text(object) || if_any(object.py(), object.try_iter())?.is_none() {
        return Ok(None);
    }
    let numbers = vector::numbers(object)?;
    if numbers.len() == into.lanes {
        return Ok(Some(AnyNumber::Lanes(numbers)));
    }
    let (n, name, found) = (into.lanes, into.name(), numbers.len());
    Err(PyValueError::new_err(format!("a {name} node takes one number, or {n}, one per lane; found {found}")))
}

/// The same, or a TypeError with the expected type.
pub fn expect(object: &Bound<'_, PyAny>, into: ScalarType) -> PyResult<AnyNumber> {
    match read(object, into)? {
        Some(number) => Ok(number),
        None => Err(numbers::not_a_number(object, into.name())),
    }
}

/// The numbers for the nodes of a vector: an iterable with one entry per node.
pub fn read_many(object: &Bound<'_, PyAny>, into: ScalarType) -> PyResult<Vec<AnyNumber>> {
    read_at_length(numbers::items(object)?, |item| expect(&item, into))
}

/// The data (or the gradient) of a node as a float; `None` if a float is too narrow.
#[inline(always)]
pub fn plain(graph: &AnyGraph, node: NodeId, of_grad: bool) -> Result<Option<f64>> {
    match graph {
        AnyGraph::F64(g) => if of_grad { g.grad(node) } else { g.value(node) }.map(Some),
        AnyGraph::F32(g) => if of_grad { g.grad(node) } else { g.value(node) }.map(|x| Some(x.into())),
        AnyGraph::Other(g) if g.scalar_type().fits_float() => g.float(node, of_grad).map(Some),
        AnyGraph::Other(_) => Ok(None),
    }
}

/// The scalar type of a Value's graph.
///
/// # Safety
/// `value` is a living Value; the GIL is held; no reference into its cell is in use.
pub unsafe fn type_of(value: *mut ffi::PyObject) -> ScalarType {
    // SAFETY: by the contract of this function.
    unsafe { value::cell_of((*value.cast::<value::ValueObject>()).owner).graph.scalar_type() }
}

/// An operator between a float128 Value and a Decimal: `None` for other operands.
pub fn with_decimal<'py>(
    symbol: Symbol,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = a.py();
    for (x, c, constant_first) in [(a, b, false), (b, a, true)] {
        // SAFETY: living objects under the GIL.
        let is_wide = unsafe { value::is_value(x.as_ptr()) && type_of(x.as_ptr()).elem == DType::Float128 };
        if !is_wide || is_text(c) {
            continue;
        }
        let Some(c) = wide_number(c)? else { continue };
        // SAFETY: a living Value.
        let owner: Bound<'py, PyGraph> = unsafe { value::graph_of(py, x.as_ptr().cast()) };
        let operand = vector::Operand::Value(x.clone().unbind());
        let node = vector::atomically(&owner, |cell| {
            let (x, c) = (operand.runs(py, cell)?[0].first(), AnyNumber::Wide(c));
            match constant_first {
                true => cell.graph.operator_left(symbol.op(), &c, x),
                false => cell.graph.operator_right(symbol.op(), x, &c),
            }
            .or_raise(py)
        })?;
        return node.made(|node| wrap(&owner, node).map(Some));
    }
    Ok(None)
}
