//! Scalar types beyond float64 and float32: how Python names them, gives numbers to them and gets numbers back.
//!
//! Promises: half numbers are Python floats; lanes are one float per lane, as a tuple; float128 is a `Decimal` that reads
//! back to the same number. What Python gives is read before a graph is touched, as reading may run Python code.
#![allow(unsafe_code)]

use burtorch_core::erased::{AnyNumber, ScalarType};
use burtorch_core::scalar::{f128_from_decimal, f128_to_decimal};
use burtorch_core::{DType, NodeId, Result};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyString, PyTuple};

use crate::convert::errors::IntoPython;
use crate::graph::PyGraph;
use crate::graph::cell::AnyGraph;
use crate::node::value::{self, Number};
use crate::node::vector::{Symbol, wrap};

/// The scalar type called `name`.
pub fn type_named(name: &str) -> PyResult<ScalarType> {
    ScalarType::named(name).ok_or_else(|| {
        PyValueError::new_err(format!(
            "dtype must be \"float64\", \"float32\", \"float16\", \"bfloat16\", \"float128\", \"float32x4\", \
             \"float32x8\", \"float32x16\", \"float64x2\", \"float64x4\" or \"float64x8\", found {name:?}"
        ))
    })
}

/// Reads a number for a graph of this type; `None` if it is nothing of the kind.
pub fn read(object: &Bound<'_, PyAny>, into: ScalarType) -> PyResult<Option<AnyNumber>> {
    if into.elem == DType::Float128
        && let Some(x) = wide_number(object)?
    {
        return Ok(Some(AnyNumber::Wide(x)));
    }
    // SAFETY: a living object under the interpreter lock.
    match unsafe { value::number(object.as_ptr()) } {
        Number::Is(x) => return Ok(Some(AnyNumber::One(x))),
        Number::Failed => return Err(PyErr::fetch(object.py())),
        Number::IsNot if into.lanes == 1 || is_text(object) || object.try_iter().is_err() => return Ok(None),
        Number::IsNot => {}
    }
    let numbers = crate::node::vector::numbers(object)?;
    if numbers.len() == into.lanes {
        return Ok(Some(AnyNumber::Lanes(numbers)));
    }
    let (n, name, found) = (into.lanes, into.name(), numbers.len());
    Err(PyValueError::new_err(format!("a {name} node takes one number, or {n}, one per lane; found {found}")))
}

/// The same, or a TypeError that says what was expected.
pub fn expect(object: &Bound<'_, PyAny>, into: ScalarType) -> PyResult<AnyNumber> {
    match read(object, into)? {
        Some(number) => Ok(number),
        None => {
            let found = object.get_type().name()?;
            Err(PyTypeError::new_err(format!("expected a number for a {} node, found {found}", into.name())))
        }
    }
}

/// The numbers for the nodes of a vector: an iterable with one entry per node.
pub fn read_many(object: &Bound<'_, PyAny>, into: ScalarType) -> PyResult<Vec<AnyNumber>> {
    if is_text(object) {
        return Err(PyTypeError::new_err("expected a sequence of numbers, found text"));
    }
    object.try_iter()?.map(|item| expect(&item?, into)).collect()
}

fn is_text(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>()
}

/// What a float128 can take with more digits than a float has: text, a Decimal, an int.
fn wide_number(object: &Bound<'_, PyAny>) -> PyResult<Option<f128>> {
    let is_decimal = || object.is_instance(&object.py().import("decimal")?.getattr("Decimal")?);
    if object.is_instance_of::<PyFloat>() {
        return Ok(None);
    }
    let is_given_as_text = object.is_instance_of::<PyString>();
    if !is_given_as_text && !object.is_instance_of::<PyInt>() && !is_decimal()? {
        return Ok(None);
    }
    // Python limits the digits of an int that it turns into text; hexadecimal has no such limit, but these are rare.
    let text = object.str()?.to_string();
    let text = if object.is_instance_of::<pyo3::types::PyBool>() {
        if object.is_truthy()? { "1".into() } else { "0".into() }
    } else {
        text
    };
    match f128_from_decimal(&text) {
        Some(x) => Ok(Some(x)),
        None => Err(PyValueError::new_err(format!("cannot read {text:?} as a decimal number"))),
    }
}

/// The number, or numbers, of a node: a float, a tuple of floats, or a Decimal. What a graph holds is taken out of it before,
/// as making objects may run Python code.
pub fn into_python(py: Python<'_>, number: AnyNumber) -> PyResult<Bound<'_, PyAny>> {
    Ok(match number {
        AnyNumber::One(x) => PyFloat::new(py, x).into_any(),
        AnyNumber::Lanes(all) => PyTuple::new(py, all)?.into_any(),
        AnyNumber::Wide(x) => decimal(py, x)?,
    })
}

/// A Decimal that reads back as `x`.
pub fn decimal(py: Python<'_>, x: f128) -> PyResult<Bound<'_, PyAny>> {
    py.import("decimal")?.getattr("Decimal")?.call1((f128_to_decimal(x),))
}

/// The data (or the gradient) of a node as a float; `None` where a float is too narrow for it.
#[inline(always)]
pub fn plain(graph: &AnyGraph, node: NodeId, of_grad: bool) -> Result<Option<f64>> {
    match graph {
        AnyGraph::F64(g) => if of_grad { g.grad(node) } else { g.value(node) }.map(Some),
        AnyGraph::F32(g) => if of_grad { g.grad(node) } else { g.value(node) }.map(|x| Some(x.into())),
        AnyGraph::Other(g) if g.scalar_type().fits_float() => g.float(node, of_grad).map(Some),
        AnyGraph::Other(_) => Ok(None),
    }
}

/// The error of asking lanes for one number.
pub fn refuse_lanes(scalar_type: ScalarType) -> PyErr {
    let (n, name) = (scalar_type.lanes, scalar_type.name());
    PyValueError::new_err(format!("a {name} Value holds {n} numbers, not one; use its .data, a tuple"))
}

/// The scalar type of a Value's graph.
///
/// # Safety
/// `value` is a living Value; the interpreter lock is held; no reference into its cell is in use.
pub unsafe fn type_of(value: *mut ffi::PyObject) -> ScalarType {
    // SAFETY: by the contract of this function.
    unsafe { value::cell_of((*value.cast::<value::ValueObject>()).owner).graph.scalar_type() }
}

/// An operator between a float128 Value and a Decimal: `None` if it is something else.
pub fn with_decimal<'py>(
    symbol: Symbol,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = a.py();
    for (x, c, constant_first) in [(a, b, false), (b, a, true)] {
        // SAFETY: living objects under the interpreter lock.
        let is_wide = unsafe { value::is_value(x.as_ptr()) && type_of(x.as_ptr()).elem == DType::Float128 };
        if !is_wide || is_text(c) {
            continue;
        }
        let Some(c) = wide_number(c)? else { continue };
        // SAFETY: a living Value owns its graph, which is a PyGraph.
        let owner: Bound<'py, PyGraph> = unsafe {
            Bound::from_borrowed_ptr(py, (*x.as_ptr().cast::<value::ValueObject>()).owner).cast_into_unchecked()
        };
        let operand = crate::node::vector::Operand::Value(x.clone().unbind());
        let node = crate::node::vector::atomically(&owner, |cell| {
            let (x, c) = (operand.runs(py, cell)?[0].first(), AnyNumber::Wide(c));
            match constant_first {
                true => cell.graph.operator_left(symbol.op(), &c, x),
                false => cell.graph.operator_right(symbol.op(), x, &c),
            }
            .or_raise(py)
        })?;
        return wrap(&owner, node).map(Some);
    }
    Ok(None)
}
