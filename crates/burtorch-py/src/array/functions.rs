//! Functions of several Arrays, which get NumPy's signatures in `python/burtorch/_arrays.py`; and op functions of Arrays.

use burtorch_core::array::{ArrayBuilder, ArrayOp, Element, Reduce, Row, ValueId};
use burtorch_core::nn::Activation;
use burtorch_core::ops::Arity;
use burtorch_core::{DType, Op};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::append::{append_all, append_of};
use super::arguments::Given;
use super::array::PyArray;
use super::methods::{Over, all_of, of, of_two};
use super::of_graph::without_rows;
use super::operands::is_read;
use super::run::{AnyRunner, Read};
use super::trace::{Active, Source, current};
use crate::convert::arrays::Kind;
use crate::convert::buffer::type_name;
use crate::convert::errors::if_any;
use crate::convert::refusals::{is_tracing, needs_arrays};
use crate::params::PyTensor;

type Any<'py> = Bound<'py, PyAny>;
type Made<'py> = PyResult<Bound<'py, PyArray>>;

/// Whether one of these is an Array, or a tensor of Parameters or a number read by a function that is traced with Arrays.
pub fn any_array(of: &[Any<'_>]) -> bool {
    of.iter().any(|x| x.is_instance_of::<PyArray>() || is_read(x) && current(x.py()).is_some())
}

/// A tensor of Parameters as an Array of the innermost trace.
pub fn array_of_tensor<'py>(tensor: &Bound<'py, PyTensor>) -> Made<'py> {
    of(tensor.as_any(), |_, x| Ok(x))
}

/// An op function of Arrays: elementwise, or a reduction of one whole Array.
pub fn of_op<'py>(op: Op, arguments: &[Any<'py>]) -> PyResult<Any<'py>> {
    let arguments: Vec<_> = arguments.iter().filter(|x| !x.is_none()).cloned().collect();
    let made = match (Row::new(op), &arguments[..]) {
        (Some(row), of) if of.len() == row.arity() => all_of(of, |b, of| b.row(op, of)),
        (Some(_), [x]) => reduction(op.info().folds.unwrap_or(op), x, &Over::ALL, false),
        (None, [x]) => reduction(op, x, &Over::ALL, false),
        _ => Err(not_of_arrays(op.name())),
    };
    made.map(Bound::into_any)
}

pub fn not_of_arrays(name: &str) -> PyErr {
    PyTypeError::new_err(format!("{name}() does not take these Arrays"))
}

/// A reduction op of the table over axes.
pub fn reduction<'py>(op: Op, x: &Any<'py>, axis: &Over, keepdims: bool) -> Made<'py> {
    if op.info().arity != Arity::Reduction {
        return Err(not_of_arrays(op.name()));
    }
    let axes = axis.axes();
    of(x, |b, x| {
        let mut reduce = |kind| b.reduce(kind, x, axes, keepdims);
        match op {
            Op::ReduceSum => reduce(Reduce::Sum),
            Op::ReduceMul => reduce(Reduce::Prod),
            Op::ReduceMax => reduce(Reduce::Max),
            Op::ReduceMin => reduce(Reduce::Min),
            Op::LogSumExp => reduce(Reduce::LogSumExp),
            Op::Norm2 => reduce(Reduce::Norm2),
            Op::ReduceMean => b.mean(x, axes, keepdims),
            Op::ReduceNegativeMean => {
                let mean = b.mean(x, axes, keepdims)?;
                b.row(Op::Neg, &[mean])
            }
            Op::VarianceBiased => b.var(x, axes, 0.0, keepdims),
            Op::Variance => b.var(x, axes, 1.0, keepdims),
            Op::ReduceSumOfSquares | Op::ReduceMeanSquares => {
                let squares = b.row(Op::SQUARE, &[x])?;
                if op == Op::ReduceSumOfSquares {
                    b.reduce(Reduce::Sum, squares, axes, keepdims)
                } else {
                    b.mean(squares, axes, keepdims)
                }
            }
            _ => Err(burtorch_core::Error::Unsupported { op: op.name(), rule: "form over arrays" }),
        }
    })
}

/// The inner product of two Arrays of one axis, plus a bias.
pub fn inner_product<'py>(x: &Any<'py>, w: &Any<'py>, bias: Option<&Any<'py>>) -> PyResult<Any<'py>> {
    let product = of_two(x, w, ArrayBuilder::matmul)?;
    match bias {
        Some(bias) => Ok(of_two(product.as_any(), bias, |b, x, y| b.row(Op::SUM, &[x, y]))?.into_any()),
        None => Ok(product.into_any()),
    }
}

/// Rows of a table at integer indices.
pub fn gather<'py>(table: &Any<'py>, rows: &Any<'py>) -> PyResult<Any<'py>> {
    let whole = if_any(rows.py(), rows.extract::<i64>())?;
    let made = of_two(table, rows, |b, table, rows| {
        let rows = integer_or(b, whole, rows)?;
        let rows = b.from_zero(rows)?;
        b.take(table, rows, 0)
    });
    made.map(Bound::into_any)
}

/// A Python int, which would otherwise become a float beside floats, or the operand itself.
fn integer_or(b: &mut ArrayBuilder, whole: Option<i64>, operand: ValueId) -> burtorch_core::Result<ValueId> {
    whole.map_or(Ok(operand), |k| b.push(ArrayOp::Integer(k), &[]))
}

/// A dense layer: `x W^T + b`, and an activation.
pub fn affine<'py>(
    weight: &Any<'py>,
    x: &Any<'py>,
    bias: Option<&Any<'py>>,
    activation: Activation,
) -> PyResult<Any<'py>> {
    let operands: Vec<_> = [weight, x].into_iter().chain(bias).cloned().collect();
    let made = all_of(&operands, |b, of| {
        let [weight, x, bias @ ..] = of else { return Err(burtorch_core::Error::EmptyReduction { op: "affine" }) };
        let weight = b.transpose(*weight, &[1, 0])?;
        let mut y = b.matmul(*x, weight)?;
        for &bias in bias {
            y = b.row(Op::SUM, &[y, bias])?;
        }
        activation.op().map_or(Ok(y), |op| b.row(op, &[y]))
    });
    made.map(Bound::into_any)
}

/// `x / sqrt(mean of x^2 + epsilon)` along the last axis, times a weight.
pub fn rms_norm<'py>(x: &Any<'py>, weight: &Any<'py>, epsilon: f64) -> PyResult<Any<'py>> {
    let made = of_two(x, weight, |b, x, weight| {
        if !(epsilon >= 0.0 && epsilon.is_finite()) {
            let (expected, found) = ("finite and at least 0".into(), epsilon.to_string());
            return Err(burtorch_core::Error::BadArgument { what: "eps", expected, found });
        }
        let [features, gains] = [x, weight].map(|v| b.type_of(v).dims.last().copied());
        // One gain is for all features.
        if features != gains && gains.unwrap_or(1) != 1 {
            let [left, right] = [features, gains].map(|n| n.unwrap_or(1));
            return Err(burtorch_core::Error::LengthMismatch { op: "rms_norm (features, and gains)", left, right });
        }
        let share = b.rms_norm(x, Some(&[-1]), epsilon)?;
        b.row(Op::PRODUCT, &[share, weight])
    });
    made.map(Bound::into_any)
}

/// Softmax or its logarithm along the last axis.
pub fn softmax<'py>(op: Op, x: &Any<'py>, axis: isize) -> PyResult<Any<'py>> {
    let made = of(x, |b, x| if op == Op::Softmax { b.softmax(x, axis) } else { b.log_softmax(x, axis) });
    made.map(Bound::into_any)
}

/// Arrays joined along an axis.
#[pyfunction]
pub fn array_concatenate<'py>(arrays: Vec<Any<'py>>, axis: isize) -> Made<'py> {
    all_of(&arrays, |b, of| b.concatenate(of, axis))
}

/// Arrays along a new axis.
#[pyfunction]
pub fn array_stack<'py>(arrays: Vec<Any<'py>>, axis: isize) -> Made<'py> {
    all_of(&arrays, |b, of| {
        let rank = of.first().map_or(0, |&v| b.type_of(v).dims.rank()) as isize;
        b.stack(of, if axis < 0 { (axis + rank + 1).max(0) } else { axis } as usize)
    })
}

/// `yes` where the mask is true, else `no`.
#[pyfunction]
pub fn array_where<'py>(mask: Any<'py>, yes: Any<'py>, no: Any<'py>) -> Made<'py> {
    let [mask, yes, no] = [without_rows(&mask)?, without_rows(&yes)?, without_rows(&no)?];
    let made = append_of(mask.py(), [&mask, &yes, &no], |b, [mask, yes, no]| b.where_(mask, yes, no))?;
    made.ok_or_else(|| not_of_arrays("where"))
}

/// Einstein summation.
#[pyfunction]
fn array_einsum<'py>(subscripts: &str, arrays: Vec<Any<'py>>) -> Made<'py> {
    all_of(&arrays, |b, of| b.einsum(subscripts, of))
}

/// NumPy's dot.
#[pyfunction]
fn array_dot<'py>(x: Any<'py>, y: Any<'py>) -> Made<'py> {
    of_two(&x, &y, ArrayBuilder::dot)
}

/// The sum over pairs of axes.
#[pyfunction]
fn array_tensordot<'py>(x: Any<'py>, y: Any<'py>, axes_x: Vec<isize>, axes_y: Vec<isize>) -> Made<'py> {
    of_two(&x, &y, |b, x, y| b.tensordot(x, y, &axes_x, &axes_y))
}

/// The elements along an axis at rows of indices.
#[pyfunction]
fn array_take_along_axis<'py>(x: Any<'py>, indices: Any<'py>, axis: isize) -> Made<'py> {
    of_two(&x, &indices, |b, x, indices| b.take_along_axis(x, indices, axis))
}

/// Numbers added along the first axis at integer indices.
#[pyfunction]
fn array_scatter_add<'py>(x: Any<'py>, indices: Any<'py>, numbers: Any<'py>) -> Made<'py> {
    of_three([x, indices, numbers], ArrayBuilder::scatter_add)
}

/// The same for indices that count from 0 alone.
#[pyfunction]
fn array_segment_sum<'py>(sums: Any<'py>, ids: Any<'py>, numbers: Any<'py>) -> Made<'py> {
    of_three([sums, ids, numbers], |b, sums, ids, numbers| {
        let ids = b.from_zero(ids)?;
        b.scatter_add(sums, ids, numbers)
    })
}

/// Elements put along the first axis at integer indices.
#[pyfunction]
fn array_scatter_set<'py>(x: Any<'py>, indices: Any<'py>, elements: Any<'py>) -> Made<'py> {
    of_three([x, indices, elements], ArrayBuilder::scatter_set)
}

fn of_three<'py>(
    operands: [Any<'py>; 3],
    f: fn(&mut ArrayBuilder, ValueId, ValueId, ValueId) -> burtorch_core::Result<ValueId>,
) -> Made<'py> {
    all_of(&operands, |b, of| match *of {
        [x, y, z] => f(b, x, y, z),
        _ => Err(burtorch_core::Error::EmptyReduction { op: "scatter" }),
    })
}

/// The elements along an axis in ascending order, or the indices that sort them.
#[pyfunction]
fn array_sort<'py>(x: Any<'py>, axis: isize, indices: bool) -> Made<'py> {
    of(&x, |b, x| if indices { b.argsort(x, axis) } else { b.sort(x, axis) })
}

/// How many of the sorted elements come before each element of `x`, of equal ones all if `right`.
#[pyfunction]
fn array_search<'py>(row: Any<'py>, x: Any<'py>, right: bool) -> Made<'py> {
    of_two(&row, &x, |b, row, x| b.search_sorted(row, x, right))
}

/// Quantiles along an axis, along a new first one; the median for None.
#[pyfunction]
fn array_quantiles<'py>(x: Any<'py>, q: Option<Vec<f64>>, axis: isize) -> Made<'py> {
    of(&x, |b, x| match &q {
        Some(q) => b.quantiles(x, q, axis),
        None => b.median(x, axis),
    })
}

/// `x` as an Array of the innermost trace among `x` and `like`.
#[pyfunction]
#[pyo3(signature = (x, *like))]
pub fn array_of<'py>(x: Any<'py>, like: &Bound<'py, PyTuple>) -> Made<'py> {
    let operands: Vec<_> = [x].into_iter().chain(like).collect();
    all_of(&operands, |_, of| match of {
        [x, ..] => Ok(*x),
        [] => Err(burtorch_core::Error::EmptyReduction { op: "array" }),
    })
}

/// The array repeated to a shape.
#[pyfunction]
fn array_broadcast_to<'py>(x: Any<'py>, shape: Vec<usize>) -> Made<'py> {
    of(&x, |b, x| b.broadcast_to(x, burtorch_core::array::Dims::new(&shape)?))
}

/// `x op y` of the op with this name; or of one operand, if the op is unary.
#[pyfunction]
#[pyo3(signature = (name, *operands))]
fn array_row<'py>(name: &str, operands: &Bound<'py, PyTuple>) -> Made<'py> {
    let Some(op) = Op::from_name(name) else { return Err(not_of_arrays(name)) };
    all_of(&operands.iter().collect::<Vec<_>>(), |b, of| b.row(op, of))
}

/// Whether each element is a NaN.
#[pyfunction]
fn array_isnan<'py>(x: Any<'py>) -> Made<'py> {
    of(&x, |b, x| {
        let x = b.convert(x, Element::Float)?;
        b.compare(burtorch_core::array::Comparison::IsNan, &[x])
    })
}

/// Minus the logarithm of the softmax along the last axis, at the given class.
#[pyfunction]
pub fn array_cross_entropy<'py>(logits: Any<'py>, targets: Any<'py>) -> Made<'py> {
    let whole = if_any(targets.py(), targets.extract::<i64>())?;
    of_two(&logits, &targets, |b, logits, targets| {
        let targets = integer_or(b, whole, targets)?;
        b.softmax_cross_entropy(logits, targets)
    })
}

/// (x - mean) / sqrt(variance + epsilon) over axes, or x / sqrt(mean of x^2 + epsilon).
#[pyfunction]
pub fn array_norm<'py>(x: Any<'py>, axis: Over, epsilon: f64, is_centred: bool) -> Made<'py> {
    of(&x, |b, x| match is_centred {
        true => b.layer_norm(x, axis.axes(), epsilon),
        false => b.rms_norm(x, axis.axes(), epsilon),
    })
}

/// softmax(q k^T / sqrt(d)) v where the mask is true.
#[pyfunction]
fn array_attention<'py>(q: Any<'py>, k: Any<'py>, v: Any<'py>, mask: Option<Any<'py>>) -> Made<'py> {
    let operands: Vec<_> = [q, k, v].into_iter().chain(mask).collect();
    all_of(&operands, |b, of| match *of {
        [q, k, v] => b.attention(q, k, v, None),
        [q, k, v, mask] => b.attention(q, k, v, Some(mask)),
        _ => Err(burtorch_core::Error::LengthMismatch { op: "attention", left: 3, right: of.len() }),
    })
}

/// The function of linear algebra with this name: a list of results.
#[pyfunction]
#[pyo3(signature = (name, *operands))]
fn array_linalg<'py>(name: &str, operands: &Bound<'py, PyTuple>) -> PyResult<Vec<Bound<'py, PyArray>>> {
    let operands = operands.iter().map(|x| without_rows(&x)).collect::<PyResult<Vec<_>>>()?;
    let made = append_all(
        operands.first().map_or_else(|| Err(not_of_arrays(name)), |x| Ok(x.py()))?,
        &operands,
        |b, of| match (name, of) {
            ("solve", &[a, y]) => Ok(vec![b.solve(a, y)?]),
            ("lstsq", &[a, y]) => Ok(vec![b.lstsq(a, y)?]),
            ("inv", &[a]) => Ok(vec![b.inv(a)?]),
            ("det", &[a]) => Ok(vec![b.det(a)?]),
            ("cholesky", &[a]) => Ok(vec![b.cholesky(a)?]),
            ("slogdet", &[a]) => Ok(b.slogdet(a)?.to_vec()),
            ("qr", &[a]) => Ok(b.qr(a)?.to_vec()),
            _ => Err(burtorch_core::Error::Unsupported { op: "linear algebra", rule: "function of this name" }),
        },
    )?;
    made.ok_or_else(|| not_of_arrays(name))
}

/// Runs a function of Arrays on arrays of numbers, as a traced function would: same instructions, same bits. Nothing where the
/// function uses Arrays from around it.
pub fn evaluated<'py>(
    py: Python<'py>,
    arguments: &[Any<'py>],
    function: impl FnOnce(&[Any<'py>]) -> PyResult<Any<'py>>,
) -> PyResult<Option<Any<'py>>> {
    let mut given = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let found = Given::of(argument)?.filter(|given| !matches!(given, Given::Traced(_) | Given::Tensor(..)));
        let Some(found) = found else {
            let found = type_name(argument);
            return Err(PyTypeError::new_err(format!("expected real numbers or arrays of them, found {found}")));
        };
        given.push(found);
    }
    let kinds: Vec<_> = given.iter().filter_map(Given::float_kind).collect();
    let is_float32 = !kinds.is_empty() && kinds.iter().all(|&kind| kind == Kind::F32);
    let (dtype, kind) = if is_float32 { (DType::Float32, Kind::F32) } else { (DType::Float64, Kind::F64) };
    let source = Source::Once(arguments.iter().map(|x| x.clone().unbind()).collect());
    let active = Active::begin(current(py), py, "a function of arrays", dtype, source)?;
    let inputs =
        given.iter().map(|given| Ok(active.input(given.type_of())?.into_any())).collect::<PyResult<Vec<_>>>()?;
    let result = function(&inputs)?;
    let is_one = result.is_instance_of::<PyArray>();
    let results: Vec<Any<'py>> = if is_one { vec![result] } else { result.try_iter()?.collect::<PyResult<_>>()? };
    let arrays = results.iter().map(|x| Ok(x.cast::<PyArray>()?.clone())).collect::<PyResult<Vec<_>>>()?;
    let values: Vec<_> = arrays.iter().map(|x| x.get().value(py)).collect::<PyResult<_>>()?;
    let sets = active.trace().get().sets(py);
    // In a trace with Values the numbers would be constants, although Parameters may change.
    if !sets.is_empty() && active.trace().get().outer().is_none() && is_tracing() {
        return Err(needs_arrays(py, "a function that reads Parameters"));
    }
    let ended = active.finish(&values)?;
    if !ended.captures.is_empty() {
        return Ok(None);
    }
    let mut runner = AnyRunner::new(py, &ended.program)?;
    runner.run(py, &given, Read { sets: &sets, numbers: &ended.numbers })?;
    let numbers = (0..values.len()).map(|k| runner.result(py, k, kind)).collect::<PyResult<Vec<_>>>()?;
    match (is_one, numbers.first()) {
        (true, Some(only)) => Ok(Some(only.clone())),
        _ => Ok(Some(PyList::new(py, numbers)?.into_any())),
    }
}

/// The same if all of them are arrays of numbers, else nothing.
pub fn evaluated_on_numbers<'py>(
    arguments: &[&Any<'py>],
    function: impl FnOnce(&[Any<'py>]) -> PyResult<Any<'py>>,
) -> PyResult<Option<Any<'py>>> {
    let [first, ..] = arguments else { return Ok(None) };
    for argument in arguments {
        if !matches!(Given::of(argument)?, Some(Given::Numbers(..))) {
            return Ok(None);
        }
    }
    let arguments: Vec<_> = arguments.iter().map(|&x| x.clone()).collect();
    evaluated(first.py(), &arguments, function)
}

/// The same for a Python function.
#[pyfunction]
#[pyo3(signature = (function, *arguments))]
fn array_evaluated<'py>(function: &Any<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Option<Any<'py>>> {
    let py = function.py();
    evaluated(py, &arguments.iter().collect::<Vec<_>>(), |inputs| function.call1(PyTuple::new(py, inputs)?))
}

/// A call of a reduction with array keywords, if the first operand is an Array or an array of numbers: `axis`, `keepdims`.
pub fn with_axis<'py>(op: Op, x: &Any<'py>, keywords: &[(String, Any<'py>)]) -> PyResult<Any<'py>> {
    let op = op.info().folds.unwrap_or(op);
    let (mut axis, mut keepdims) = (Over::ALL, false);
    for (name, value) in keywords {
        match name.as_str() {
            "axis" => axis = value.extract()?,
            "keepdims" => keepdims = value.extract()?,
            _ => {
                let message = format!("{}() got an unexpected keyword argument '{name}'", op.name());
                return Err(PyTypeError::new_err(message));
            }
        }
    }
    if any_array(std::slice::from_ref(x)) {
        return reduction(op, x, &axis, keepdims).map(Bound::into_any);
    }
    let made = evaluated(x.py(), std::slice::from_ref(x), |inputs| match inputs {
        [x] => reduction(op, x, &axis, keepdims).map(Bound::into_any),
        _ => Err(not_of_arrays(op.name())),
    })?;
    made.ok_or_else(|| not_of_arrays(op.name()))
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(array_concatenate, m)?)?;
    m.add_function(wrap_pyfunction!(array_stack, m)?)?;
    m.add_function(wrap_pyfunction!(array_where, m)?)?;
    m.add_function(wrap_pyfunction!(array_einsum, m)?)?;
    m.add_function(wrap_pyfunction!(array_dot, m)?)?;
    m.add_function(wrap_pyfunction!(array_tensordot, m)?)?;
    m.add_function(wrap_pyfunction!(array_take_along_axis, m)?)?;
    m.add_function(wrap_pyfunction!(array_scatter_add, m)?)?;
    m.add_function(wrap_pyfunction!(array_scatter_set, m)?)?;
    m.add_function(wrap_pyfunction!(array_segment_sum, m)?)?;
    m.add_function(wrap_pyfunction!(super::operands::array_in_place_of, m)?)?;
    m.add_function(wrap_pyfunction!(super::operands::array_is_traced, m)?)?;
    m.add_function(wrap_pyfunction!(array_search, m)?)?;
    m.add_function(wrap_pyfunction!(array_sort, m)?)?;
    m.add_function(wrap_pyfunction!(array_quantiles, m)?)?;
    m.add_function(wrap_pyfunction!(array_broadcast_to, m)?)?;
    m.add_function(wrap_pyfunction!(array_linalg, m)?)?;
    m.add_function(wrap_pyfunction!(array_of, m)?)?;
    m.add_function(wrap_pyfunction!(array_row, m)?)?;
    m.add_function(wrap_pyfunction!(array_isnan, m)?)?;
    m.add_function(wrap_pyfunction!(array_cross_entropy, m)?)?;
    m.add_function(wrap_pyfunction!(array_norm, m)?)?;
    m.add_function(wrap_pyfunction!(array_attention, m)?)?;
    m.add_function(wrap_pyfunction!(array_evaluated, m)?)
}
