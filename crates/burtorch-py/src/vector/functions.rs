//! Functions of many operands: reductions, inner products, concatenation, block ops.
#![allow(unsafe_code)]

use burtorch_core::{Op, Operands, Range, View};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::arguments::{Operand, all_nodes, all_views, atomically, common_owner, n_scalars};
use super::{PyVector, finish, numpy, wrap};
use crate::cell::with_graph;
use crate::errors::IntoPython;
use crate::parameters::with_values;

/// A reduction over a Vector or a sequence of Values, Vectors and numbers.
pub fn reduce<'py>(op: Op, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let operands = read_many(op, x)?;
    reduce_operands(op, &operands, x.py())
}

fn reduce_operands<'py>(op: Op, operands: &[Operand], py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    let owner = common_owner(py, operands)?;
    let node = atomically(&owner, |cell| {
        let views = all_views(py, cell, operands)?;
        let parameters = &cell.parameters;
        with_graph!(&mut cell.graph, g => {
            with_values(py, parameters, |given| g.reduce(op, as_operands(&views), given))?.or_raise(py)
        })
    })?;
    wrap(&owner, node)
}

/// The operands of a reduction: at least one scalar, in a Vector or a sequence.
fn read_many(op: Op, x: &Bound<'_, PyAny>) -> PyResult<Vec<Operand>> {
    let operands = Operand::read_all(x)?;
    // SAFETY: a living object under the interpreter lock.
    if unsafe { crate::value::is_value(x.as_ptr()) } || super::arguments::number_of(x)?.is_some() {
        let (name, found) = (op.name(), x.get_type().name()?);
        return Err(PyTypeError::new_err(format!("{name}() expects a Vector or a sequence of Values, found {found}")));
    }
    if n_scalars(&operands) == 0 {
        return Err(PyValueError::new_err(format!("{} of no values is undefined; give at least one", op.name())));
    }
    Ok(operands)
}

/// A single run is named by its ends, more by a list of views.
fn as_operands(views: &[View]) -> Operands<'_> {
    match views {
        [View::Nodes(range)] => Operands::Run(*range),
        _ => Operands::Views(views),
    }
}

/// `sum x_i w_i`, plus a bias.
pub fn inner_product<'py>(
    x: &Bound<'py, PyAny>,
    w: &Bound<'py, PyAny>,
    bias: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    for array in [x, w] {
        let n_dims = numpy::n_dims(array);
        if n_dims > 1 {
            let message = format!("an inner product takes arrays of one dimension, found {n_dims}");
            return Err(PyValueError::new_err(message));
        }
    }
    let (xs, ws) = (Operand::read_all(x)?, Operand::read_all(w)?);
    let bias = bias.map(Operand::read_all).transpose()?.unwrap_or_default();
    if !matches!(bias[..], [] | [_]) || n_scalars(&bias) > 1 {
        return Err(PyValueError::new_err("the bias of an inner product is one Value or number"));
    }
    let owner = common_owner(py, xs.iter().chain(&ws).chain(&bias))?;
    let node = atomically(&owner, |cell| {
        let (xs, ws) = (all_views(py, cell, &xs)?, all_views(py, cell, &ws)?);
        let bias = all_nodes(py, cell, &bias)?.first().copied();
        let parameters = &cell.parameters;
        with_graph!(&mut cell.graph, g => {
            with_values(py, parameters, |given| g.inner_product(as_operands(&xs), as_operands(&ws), bias, given))?
                .or_raise(py)
        })
    })?;
    wrap(&owner, node)
}

/// mean, max or min of one sequence.
pub fn fold<'py>(op: Op, sequence: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match op {
        Op::Mean => reduce(Op::ReduceMean, sequence),
        Op::NegativeMean => reduce(Op::ReduceNegativeMean, sequence),
        Op::Max | Op::Min => {
            let py = sequence.py();
            let operands = read_many(op, sequence)?;
            let owner = common_owner(py, &operands)?;
            let node = atomically(&owner, |cell| {
                let nodes = all_nodes(py, cell, &operands)?;
                with_graph!(&mut cell.graph, g => {
                    let mut so_far = nodes[0];
                    for &node in &nodes[1..] {
                        so_far = g.binary_op(op, so_far, node).or_raise(py)?;
                    }
                    Ok(so_far)
                })
            })?;
            wrap(&owner, node)
        }
        _ => Err(PyTypeError::new_err(format!("{}() takes two operands, found 1", op.name()))),
    }
}

/// The function of a reduction.
///
/// # Safety
/// `x` is a living object; the interpreter lock is held.
pub unsafe fn reduction_function(op: Op, x: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    let x = unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), x) };
    finish(reduce(op, &x))
}

/// sum of x_i w_i; dx_i = w_i, dw_i = x_i.
///
/// Args:
///     x: a Vector, or a sequence of Values, Vectors and real numbers.
///     w: likewise, as many scalars. At least one operand is a Value or a Vector.
///
/// Raises:
///     ValueError: lengths differ or are 0, or an array has more than one dimension.
///     GraphMismatchError: operands belong to different graphs.
///
/// One node; linear in the number of operands; a Vector is not copied.
///
/// Example:
///     >>> import burtorch as bt
///     >>> x = bt.current_graph().vector([1.0, 2.0])
///     >>> y = bt.inner_product(x, [3.0, 4.0])
///     >>> y.backward()
///     >>> y.data, list(x.grad)
///     (11.0, [3.0, 4.0])
#[pyfunction(name = "inner_product")]
#[pyo3(signature = (x, w, /))]
fn inner_product_function<'py>(x: &Bound<'py, PyAny>, w: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    inner_product(x, w, None)
}

/// sum of x_i w_i, plus a bias; dx_i = w_i, dw_i = x_i, dbias = 1.
///
/// As inner_product(); the bias is a Value or a real number.
///
/// Example:
///     >>> import burtorch as bt
///     >>> x, b = bt.current_graph().vector([1.0, 2.0]), bt.Value(0.5)
///     >>> y = bt.inner_product_with_bias(x, [3.0, 4.0], b)
///     >>> y.backward()
///     >>> y.data, list(x.grad), b.grad
///     (11.5, [3.0, 4.0], 1.0)
#[pyfunction]
#[pyo3(signature = (x, w, bias, /))]
fn inner_product_with_bias<'py>(
    x: &Bound<'py, PyAny>,
    w: &Bound<'py, PyAny>,
    bias: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    inner_product(x, w, Some(bias))
}

/// The mean of x_i and the mean of x_i^2, as two Values.
///
/// Args:
///     x: a Vector, or a sequence of Values, Vectors and real numbers.
///
/// Raises:
///     ValueError: there are no operands.
///
/// Two nodes; linear in the number of operands, which are read once if they are contiguous.
///
/// Example:
///     >>> import burtorch as bt
///     >>> mean, squares = bt.reduce_mean_and_mean_squares(bt.current_graph().vector([1.0, 2.0, 3.0, 4.0]))
///     >>> mean.data, squares.data
///     (2.5, 7.5)
#[pyfunction]
#[pyo3(signature = (x, /))]
fn reduce_mean_and_mean_squares<'py>(x: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let py = x.py();
    if let Ok(vector) = x.cast::<PyVector>() {
        let owner = vector.get().owner(py);
        let nodes = atomically(owner, |cell| {
            let ranges = vector.get().ranges_in(py, cell)?;
            let [range] = ranges[..] else { return Ok(None) };
            with_graph!(&mut cell.graph, g => g.reduce_mean_and_mean_squares(range).map(Some).or_raise(py))
        })?;
        if let Some((mean, squares)) = nodes {
            return Ok((wrap(owner, mean)?, wrap(owner, squares)?));
        }
    }
    let operands = read_many(Op::ReduceMean, x)?;
    Ok((reduce_operands(Op::ReduceMean, &operands, py)?, reduce_operands(Op::ReduceMeanSquares, &operands, py)?))
}

/// Join Vectors, Values and numbers, one after another, without copying: concat(x, y) or concat([x, y]).
///
/// Args:
///     parts: Vectors, Values, real numbers (which become constants) or sequences of them. At least one is a Value or
///         a Vector.
///
/// Returns:
///     A Vector that stands for the nodes of its parts. Linear in the number of parts.
///
/// Raises:
///     TypeError: a part is something else, or none is a Value or a Vector.
///     GraphMismatchError: parts belong to different graphs.
///
/// Example:
///     >>> import burtorch as bt
///     >>> x, y = bt.current_graph().vector([1.0, 2.0]), bt.Value(3.0)
///     >>> z = bt.concat(x, y)
///     >>> z.sum().backward()
///     >>> list(z.data), y.grad
///     ([1.0, 2.0, 3.0], 1.0)
#[pyfunction]
#[pyo3(signature = (*parts))]
fn concat<'py>(parts: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let py = parts.py();
    let single = if parts.len() == 1 { Some(parts.get_item(0)?) } else { None };
    let operands = Operand::read_all(single.as_ref().unwrap_or(parts.as_any()))?;
    let owner = common_owner(py, &operands)?;
    let ranges = atomically(&owner, |cell| {
        let mut ranges: Vec<Range> = Vec::new();
        for operand in &operands {
            if let Operand::Tensor(_) = operand {
                let nodes = operand.nodes(py, cell)?;
                ranges.extend(nodes.first().map(|&first| Range::new(first, nodes.len() as u32)));
                continue;
            }
            ranges.extend(operand.views(py, cell)?.into_iter().filter_map(|view| match view {
                View::Nodes(range) => Some(range),
                View::Parameters(_) => None,
            }));
        }
        Ok(ranges)
    })?;
    Ok(PyVector::of_runs(&owner, &ranges)?.into_bound(py).into_any())
}

/// Adds the functions to the module.
pub fn register_functions(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(inner_product_function, m)?)?;
    m.add_function(wrap_pyfunction!(inner_product_with_bias, m)?)?;
    m.add_function(wrap_pyfunction!(reduce_mean_and_mean_squares, m)?)?;
    m.add_function(wrap_pyfunction!(concat, m)?)
}
