//! Functions of many operands: reductions, inner products, block ops.
#![allow(unsafe_code)]

use burtorch_core::nn::Activation;
use burtorch_core::{NodeId, Op, Operands, Unevaluated, View};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::arguments::{Operand, all_nodes, all_views, appended, atomically, common_owner, n_scalars, read_by};
use super::elementwise::with_one_axis;
use super::joined;
use super::plain::{are_plain, or_plain};
use super::{PyVector, finish, numpy, wrap, wrap_pending};
use crate::array::functions::{self, any_array, of_op};
use crate::array::of_graph::with_rows;
use crate::array::operands::listed;
use crate::convert::entry::attached;
use crate::convert::errors::IntoPython;
use crate::convert::refusals::{is_tracing, needs_arrays};
use crate::graph::interruptible;
use crate::graph::parameters::{attach, with_values};
use crate::node::tensor_items::{is_of_arrays, shaped};
use crate::params::PyTensor;

/// A reduction over scalars.
fn reduce_operands<'py>(op: Op, operands: &[Operand], py: Python<'py>, evaluate: bool) -> PyResult<Bound<'py, PyAny>> {
    let owner = common_owner(py, operands)?;
    let n = n_scalars(operands);
    let node = appended(
        &owner,
        n,
        |cell| all_views(py, cell, operands),
        |graph, parameters, views| {
            let views = as_operands(&views);
            with_values(py, parameters, |given| {
                interruptible(py, n, || match evaluate {
                    true => graph.reduce(op, views, given),
                    false => graph.reduce_unevaluated(op, views, given).map(pending),
                })
            })?
            .or_raise(py)
        },
    )?;
    node.made(|node| if evaluate { wrap(&owner, node) } else { wrap_pending(&owner, node) })
}

/// The number of a node that has no value yet: only its Value, which records that, may use it.
fn pending(node: Unevaluated) -> NodeId {
    NodeId::from_index(node.index())
}

/// Softmax, or its logarithm, of a Vector or a sequence: one output per operand.
pub fn softmax<'py>(op: Op, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let operands = read_many(op.name(), x)?;
    let owner = common_owner(py, &operands)?;
    let n = n_scalars(&operands);
    let range = appended(
        &owner,
        n,
        |cell| all_views(py, cell, &operands),
        |graph, parameters, views| {
            let views = as_operands(&views);
            with_values(py, parameters, |given| interruptible(py, n, || graph.softmax(op, views, given)))?.or_raise(py)
        },
    )?;
    range.made(|range| Ok(PyVector::of_runs(&owner, &[range])?.into_bound(py).into_any()))
}

/// The operands of a reduction: at least one scalar, in a Vector or a sequence.
fn read_many(name: &str, x: &Bound<'_, PyAny>) -> PyResult<Vec<Operand>> {
    let operands = Operand::read_all(x)?;
    // SAFETY: a living object under the GIL.
    if unsafe { crate::node::value::is_value(x.as_ptr()) } || crate::convert::numbers::number_of(x)?.is_some() {
        let message = format!("{name}() expects a Vector or a sequence of Values or numbers, found a single one");
        return Err(PyTypeError::new_err(message));
    }
    if n_scalars(&operands) == 0 {
        return Err(PyValueError::new_err(format!("{name} of no values is undefined; give at least one")));
    }
    Ok(operands)
}

/// A single run is given by its ends, several by a list of views.
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
    evaluate: bool,
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
    let n = n_scalars(&xs);
    let node = appended(
        &owner,
        n,
        |cell| {
            attach(py, cell, read_by(xs.iter().chain(&ws).chain(&bias)))?;
            let views = (all_views(py, cell, &xs)?, all_views(py, cell, &ws)?);
            Ok((views, all_nodes(py, cell, &bias)?.first().copied()))
        },
        |graph, parameters, ((xs, ws), bias)| {
            let (xs, ws) = (as_operands(&xs), as_operands(&ws));
            with_values(py, parameters, |given| {
                interruptible(py, n, || match evaluate {
                    true => graph.inner_product(xs, ws, bias, given),
                    false => graph.inner_product_unevaluated(xs, ws, bias, given).map(pending),
                })
            })?
            .or_raise(py)
        },
    )?;
    node.made(|node| if evaluate { wrap(&owner, node) } else { wrap_pending(&owner, node) })
}

/// `x @ y`: an inner product, or one per row of a matrix of parameters on the left; otherwise a product of Arrays, if a Tensor is one
/// of the operands and either of them has several axes.
pub fn product<'py>(x: &Bound<'py, PyAny>, y: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if any_array(&[x.clone(), y.clone()]) {
        return functions::inner_product(x, y, None);
    }
    let [left, right] = [x, y].map(|a| a.cast::<PyTensor>().ok());
    let n_axes = |tensor: Option<&Bound<'py, PyTensor>>, a: &Bound<'py, PyAny>| match tensor {
        Some(w) => w.get().n_dims(),
        None if a.is_instance_of::<PyVector>() => 1,
        None => numpy::n_dims(a),
    };
    if left.is_none() && right.is_none() {
        return inner_product(x, y, None, true);
    }
    match (left, n_axes(left, x), n_axes(right, y)) {
        (_, 0 | 1, 0 | 1) => inner_product(x, y, None, true),
        (Some(w), 2, 0 | 1) => matrix_product(w, y),
        _ if is_tracing() => Err(needs_arrays(x.py(), "a product of matrices")),
        _ => x.py().import("burtorch._arrays")?.getattr("matmul")?.call1((x, y)),
    }
}

/// `W @ x` for a matrix of parameters: one output per row, as one block.
pub fn matrix_product<'py>(w: &Bound<'py, PyTensor>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let xs = Operand::read_all(x)?;
    let (n_columns, n_given) = (w.get().slice().len() / w.as_any().len()?.max(1), n_scalars(&xs));
    if n_columns != n_given {
        return Err(PyValueError::new_err(format!("W @ x expects {n_columns} scalars for x, found {n_given}")));
    }
    let (weights, operands) = (w.get().slice(), std::iter::once(Operand::Tensor(w.clone().unbind())).chain(xs));
    let operands: Vec<Operand> = operands.collect();
    let owner = common_owner(py, &operands)?;
    let n = weights.len();
    let range = appended(
        &owner,
        n,
        |cell| {
            cell.need_kernels("W @ x")?;
            all_views(py, cell, &operands)
        },
        |graph, parameters, views| {
            let x = views.get(1..).unwrap_or(&[]);
            with_values(py, parameters, |given| {
                interruptible(py, n, || graph.blocks()?.affine(given, x, weights, None, Activation::Identity))
            })?
            .or_raise(py)
        },
    )?;
    range.made(|range| Ok(PyVector::of_runs(&owner, &[range])?.into_bound(py).into_any()))
}

/// The function of a binary op on one sequence, if its row names a reduction for that: mean, max, min.
pub fn fold<'py>(op: Op, sequence: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match op.info().folds {
        Some(reduction) => reduce_operands(reduction, &read_many(op.name(), sequence)?, sequence.py(), true),
        None => Err(PyTypeError::new_err(format!("{}() takes two operands, found 1", op.name()))),
    }
}

/// The function of a reduction.
///
/// # Safety
/// `x` is a living object; the GIL is held.
pub unsafe fn reduction_function(op: Op, x: *mut ffi::PyObject, evaluate: bool) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    if evaluate && let Some(made) = unsafe { super::quick::reduce(op, x) } {
        return made;
    }
    attached(|py| {
        // SAFETY: as above.
        let x = unsafe { Bound::from_borrowed_ptr(py, x) };
        let x = match with_rows(&x) {
            Ok(rows) => rows.unwrap_or(x),
            Err(error) => return finish(Err(error)),
        };
        if any_array(std::slice::from_ref(&x)) {
            return finish(of_op(op, &[x]));
        }
        finish(or_plain(py, &[x], false, |x| reduce_operands(op, &read_many(op.name(), &x[0])?, py, evaluate)))
    })
}

/// sum of x_i w_i; dx_i = w_i, dw_i = x_i.
///
/// Args:
///     x: a Vector, or a sequence of Values, Vectors and real numbers.
///     w: likewise, as many scalars.
///     evaluate: False appends a node without a value, for its gradient only; the value is computed when it is read. If an
///         operand is a Tensor the value is computed at once.
///
/// With Arrays, or arrays of several axes: x @ w.
///
/// Raises:
///     ValueError: lengths differ or are 0.
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
#[pyo3(signature = (x, w, /, *, evaluate=true))]
fn inner_product_function<'py>(
    x: &Bound<'py, PyAny>,
    w: &Bound<'py, PyAny>,
    evaluate: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let all = [x.clone(), w.clone()];
    if any_array(&all) {
        return functions::inner_product(x, w, None);
    }
    if let Some(product) = with_axes(&all, |x| functions::inner_product(&x[0], &x[1], None))? {
        return Ok(product);
    }
    or_plain(x.py(), &all, false, |x| inner_product(&x[0], &x[1], None, evaluate))
}

/// The result where some operands are Tensors of several axes, or arrays of several axes among plain numbers: that of Arrays.
fn with_axes<'py>(
    all: &[Bound<'py, PyAny>],
    function: impl FnOnce(&[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let all = all.iter().map(|x| with_rows(x)?.map_or_else(|| listed(x), Ok)).collect::<PyResult<Vec<_>>>()?;
    if is_of_arrays(&all)? {
        return function(&all).map(Some);
    }
    let have_axes = all.iter().any(|x| numpy::n_dims(x) > 1) && are_plain(all.iter().cloned(), 0)?;
    if have_axes { functions::evaluated(all[0].py(), &all, function) } else { Ok(None) }
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
#[pyo3(signature = (x, w, bias, /, *, evaluate=true))]
fn inner_product_with_bias<'py>(
    x: &Bound<'py, PyAny>,
    w: &Bound<'py, PyAny>,
    bias: &Bound<'py, PyAny>,
    evaluate: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let all = [x.clone(), w.clone(), bias.clone()];
    if any_array(&all) {
        return functions::inner_product(x, w, Some(bias));
    }
    if let Some(product) = with_axes(&all, |x| functions::inner_product(&x[0], &x[1], Some(&x[2])))? {
        return Ok(product);
    }
    or_plain(x.py(), &all, false, |x| inner_product(&x[0], &x[1], Some(&x[2]), evaluate))
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
fn reduce_mean_and_mean_squares<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if any_array(std::slice::from_ref(x)) {
        let both = [Op::AVERAGE, Op::MEAN_SQUARE].map(|op| of_op(op, std::slice::from_ref(x)));
        return Ok(PyTuple::new(py, both.into_iter().collect::<PyResult<Vec<_>>>()?)?.into_any());
    }
    or_plain(py, std::slice::from_ref(x), false, |x| Ok(mean_and_mean_squares(&x[0])?.into_pyobject(py)?.into_any()))
}

fn mean_and_mean_squares<'py>(x: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let py = x.py();
    if let Ok(vector) = x.cast::<PyVector>() {
        let owner = vector.get().owner(py);
        let nodes = atomically(owner, |cell| {
            let ranges = vector.get().ranges_in(py, cell)?;
            let [range] = ranges[..] else { return Ok(None) };
            cell.graph.reduce_mean_and_mean_squares(range).map(Some).or_raise(py)
        })?;
        let wrapped = nodes.made(|nodes| match nodes {
            Some((mean, squares)) => Ok(Some((wrap(owner, mean)?, wrap(owner, squares)?))),
            None => Ok(None),
        })?;
        if let Some(wrapped) = wrapped {
            return Ok(wrapped);
        }
    }
    let operands = read_many("reduce_mean_and_mean_squares", x)?;
    let reduced = |op| reduce_operands(op, &operands, py, true);
    // Both or neither.
    let owner = common_owner(py, &operands)?;
    atomically(&owner, |_| Ok(()))?.made(|()| Ok((reduced(Op::AVERAGE)?, reduced(Op::MEAN_SQUARE)?)))
}

/// exp(x_i) / sum of exp(x), shifted by the largest so that nothing overflows; dx_i = y_i (g_i - sum of g_j y_j).
///
/// Args:
///     x: an Array; or a Vector, or a sequence of Values, Vectors and real numbers.
///     axis: for an Array, the axis along which the outputs add up to 1; by default the last one.
///
/// Returns:
///     An Array of the same shape, or a Vector with one probability per operand. If operands are infinite, the limit, with equal shares for ties.
///
/// Raises:
///     ValueError: there are no operands.
///
/// One block of nodes; linear in the number of operands. The relative error of output i is at most
/// (max - x_i) / 2 + n + 3 units in the last place.
///
/// Example:
///     >>> import burtorch as bt
///     >>> x = bt.current_graph().vector([1000.0, 1000.0])
///     >>> p = bt.softmax(x)
///     >>> p[0].backward()
///     >>> list(p.data), list(x.grad)
///     ([0.5, 0.5], [0.25, -0.25])
#[pyfunction(name = "softmax")]
#[pyo3(signature = (x, /, axis=None))]
fn softmax_function<'py>(x: &Bound<'py, PyAny>, axis: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
    softmax_along(Op::Softmax, x, axis)
}

/// log(softmax(x)), accurate even if probabilities are near 0 or 1; dx_i = g_i - exp(y_i) sum of g_j.
///
/// Args, errors and cost as for softmax().
///
/// Example:
///     >>> import burtorch as bt
///     >>> x = bt.current_graph().vector([0.0, -1000.0])
///     >>> list(bt.log_softmax(x).data)
///     [0.0, -1000.0]
#[pyfunction]
#[pyo3(signature = (x, /, axis=None))]
fn log_softmax<'py>(x: &Bound<'py, PyAny>, axis: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
    softmax_along(Op::LogSoftmax, x, axis)
}

/// For an Array, or an array of numbers with axes: along the last axis by default.
fn softmax_along<'py>(op: Op, x: &Bound<'py, PyAny>, axis: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
    let along = axis.unwrap_or(-1);
    let x = &match with_rows(x)? {
        Some(x) => x,
        None if any_array(std::slice::from_ref(x)) => x.clone(),
        None if axis.is_some() => listed(&with_one_axis(x)?)?,
        None => listed(&shaped(x)?)?,
    };
    if any_array(std::slice::from_ref(x)) {
        return functions::softmax(op, x, along);
    }
    if numpy::n_dims(x) > 1 || axis.is_some() && numpy::is_array(x) {
        let made = functions::evaluated(x.py(), std::slice::from_ref(x), |x| functions::softmax(op, &x[0], along))?;
        return made.ok_or_else(|| functions::not_of_arrays(op.name()));
    }
    if axis.is_some() {
        return Err(PyTypeError::new_err(format!("{}() takes axis= for Arrays only", op.name())));
    }
    or_plain(x.py(), std::slice::from_ref(x), false, |x| softmax(op, &x[0]))
}

/// Adds the functions to the module.
pub fn register_functions(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(inner_product_function, m)?)?;
    m.add_function(wrap_pyfunction!(inner_product_with_bias, m)?)?;
    m.add_function(wrap_pyfunction!(reduce_mean_and_mean_squares, m)?)?;
    m.add_function(wrap_pyfunction!(joined::concat, m)?)?;
    m.add_function(wrap_pyfunction!(joined::stack, m)?)?;
    m.add_function(wrap_pyfunction!(softmax_function, m)?)?;
    m.add_function(wrap_pyfunction!(log_softmax, m)?)
}
