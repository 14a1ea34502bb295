//! Block ops for Python's layers: dense layers, layer norms, attention and cross-entropy on Vectors.
//!
//! Promises: one call appends one block; an error leaves the graph unchanged. Activations of tokens are Vectors in
//! groups of 8 tokens (see the core's `Tokens`); the classes of `burtorch.nn` store the number of tokens.

use burtorch_core::{Op, Range, Tokens, View};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::arguments::{Operand, atomically, common_owner};
use super::elementwise::is_many;
use super::{PyVector, wrap};
use crate::array::array::PyArray;
use crate::array::of_graph::without_rows;
use crate::convert::buffer::{read_token_ids, type_name};
use crate::convert::errors::IntoPython;
use crate::convert::numbers::{argument_number, has_dtype};
use crate::convert::refusals::{is_tracing, needs_arrays};
use crate::graph::parameters::{attach, with_values};
use crate::graph::{PyGraph, current_graph};
use crate::node::token_ids::PyTokenIds;
use crate::params::PyTensor;

/// The token ids of one sample.
pub fn symbols(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u32>> {
    if let Ok(symbols) = object.cast::<PyTokenIds>() {
        let single = symbols.get().single().map(<[u32]>::to_vec);
        return single.ok_or_else(|| {
            PyValueError::new_err("blocks over tokens take one sample at a time, as lanes are tokens: Oracle(lanes=1)")
        });
    }
    let mut symbols = Vec::new();
    let dims = read_token_ids(object, &mut symbols, what)?;
    match dims.row() {
        Some(_) => Ok(symbols),
        None => Err(PyValueError::new_err(format!("{what} must have one dimension, found shape {}", dims.text()))),
    }
}

/// The one run of a vector, as activations of `n` tokens.
fn tokens_in(py: Python<'_>, cell: &crate::graph::cell::Cell, x: &PyVector, n: usize) -> PyResult<Tokens> {
    let ranges = x.ranges_in(py, cell)?;
    let [range] = ranges[..] else {
        return Err(PyValueError::new_err("activations of tokens are one contiguous Vector, found a concatenation"));
    };
    Tokens::new(range, n).ok_or_else(|| {
        PyValueError::new_err(format!(
            "a Vector of {} does not hold activations of {n} tokens in groups of 8",
            range.len()
        ))
    })
}

/// The one run of a vector.
fn one_run(py: Python<'_>, cell: &crate::graph::cell::Cell, x: &PyVector) -> PyResult<Range> {
    match x.ranges_in(py, cell)?[..] {
        [range] => Ok(range),
        _ => Err(PyValueError::new_err("expected contiguous Vectors, found a concatenation")),
    }
}

fn same_graph<'py>(py: Python<'py>, vectors: &[&Bound<'py, PyVector>]) -> PyResult<Bound<'py, PyGraph>> {
    let operands: Vec<Operand> = vectors.iter().map(|&x| Operand::Vector(x.clone().unbind())).collect();
    common_owner(py, &operands)
}

/// The rows of `table` named by `tokens`, plus `positions`, as activations of tokens on the current graph.
#[pyfunction]
#[pyo3(signature = (table, positions, tokens, /))]
fn token_embedding(
    table: &Bound<'_, PyTensor>,
    positions: Option<&Bound<'_, PyTensor>>,
    tokens: &Bound<'_, PyAny>,
) -> PyResult<Py<PyVector>> {
    let py = table.py();
    let ids = symbols(tokens, "tokens")?;
    let owner = current_graph(py)?.into_bound(py).cast_into::<PyGraph>()?;
    let width = table.get().width();
    let range = atomically(&owner, |cell| {
        cell.need_kernels("token_embedding")?;
        attach(py, cell, std::iter::once(table).chain(positions).map(|tensor| tensor.get().owner()))?;
        let (rows, places) = (table.get().slice(), positions.map(|p| p.get().slice()));
        let parameters = &cell.parameters;
        let graph = &mut cell.graph;
        with_values(py, parameters, |given| graph.blocks()?.token_embedding(given, rows, places, width, &ids))?
            .or_raise(py)
    })?;
    range.made(|range| PyVector::of_runs(&owner, &[range.range()]))
}

/// `W x + b` for each of `n` tokens, with the features of several Vectors joined; clipped at 0 with `relu`.
#[pyfunction]
#[pyo3(signature = (x, n, weight, bias=None, relu=false, /))]
fn token_affine<'py>(
    x: Vec<Bound<'py, PyVector>>,
    n: usize,
    weight: &Bound<'py, PyTensor>,
    bias: Option<&Bound<'py, PyTensor>>,
    relu: bool,
) -> PyResult<Py<PyVector>> {
    let py = weight.py();
    let owner = same_graph(py, &x.iter().collect::<Vec<_>>())?;
    let y = atomically(&owner, |cell| {
        cell.need_kernels("token_affine")?;
        attach(py, cell, std::iter::once(weight).chain(bias).map(|tensor| tensor.get().owner()))?;
        let x = x.iter().map(|x| tokens_in(py, cell, x.get(), n)).collect::<PyResult<Vec<_>>>()?;
        check_inputs(weight.get(), x.iter().map(|x| x.width()).sum())?;
        let (w, b) = (weight.get().slice(), bias.map(|bias| bias.get().slice()));
        let parameters = &cell.parameters;
        let graph = &mut cell.graph;
        with_values(py, parameters, |given| graph.blocks()?.token_affine(given, &x, w, b, relu))?.or_raise(py)
    })?;
    y.made(|y| PyVector::of_runs(&owner, &[y.range()]))
}

/// Refuses another number of inputs than a weight (n_out, n_in) has.
pub fn check_inputs(weight: &PyTensor, n_given: usize) -> PyResult<()> {
    match *weight.tensor().shape().dims() {
        [_, n_in] if n_in as usize == n_given => Ok(()),
        [n_out, n_in] => Err(PyValueError::new_err(format!(
            "a dense layer with a weight of shape ({n_out}, {n_in}) expects {n_in} scalars for x, found {n_given}"
        ))),
        ref dims => Err(PyValueError::new_err(format!(
            "a dense layer needs a weight of two dimensions, (n_out, n_in), found shape {dims:?}"
        ))),
    }
}

/// Layer normalisation of `n` tokens.
#[pyfunction]
#[pyo3(signature = (x, n, weight, bias, eps, /))]
fn token_layer_norm<'py>(
    x: &Bound<'py, PyVector>,
    n: usize,
    weight: &Bound<'py, PyTensor>,
    bias: &Bound<'py, PyTensor>,
    eps: f64,
) -> PyResult<Py<PyVector>> {
    let py = x.py();
    let owner = x.get().owner(py).clone();
    let y = atomically(&owner, |cell| {
        cell.need_kernels("token_layer_norm")?;
        attach(py, cell, [weight.get().owner(), bias.get().owner()])?;
        let x = tokens_in(py, cell, x.get(), n)?;
        let (gain, bias) = (weight.get().slice(), bias.get().slice());
        let parameters = &cell.parameters;
        let graph = &mut cell.graph;
        with_values(py, parameters, |given| graph.blocks()?.layer_norm(given, x, gain, bias, eps))?.or_raise(py)
    })?;
    y.made(|y| PyVector::of_runs(&owner, &[y.range()]))
}

/// gain x / sqrt(mean of x^2 + eps): root mean square normalisation.
///
/// Args:
///     x: a Vector of contiguous scalars.
///     weight: a tensor of gains, one per feature.
///     eps: the constant added to the mean of squares.
///     tokens: the number of tokens in `x`, in groups of 8 (`nn.Tokens`); each is normalised over its features. With 0,
///         `x` is normalised as a whole.
///
/// Returns a Vector as long as `x`, one block. Costs 4 operations per element, and twice that in the backward pass.
///
/// Raises:
///     ValueError: the numbers of gains and features differ, or `x` is a concatenation. TypeError: a graph whose dtype differs
///     from the parameters', or is neither float32 nor float64.
///
/// Example:
///     >>> import burtorch as bt
///     >>> weight = bt.Parameters(dtype="float64").tensor(2, init=1.0)
///     >>> list(bt.rms_norm(bt.current_graph().vector([3.0, -3.0]), weight, eps=0.0).data)
///     [1.0, -1.0]
#[pyfunction]
#[pyo3(signature = (x, weight, eps=1e-5, tokens=0))]
fn rms_norm<'py>(
    x: &Bound<'py, PyAny>,
    weight: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = argument_number)] eps: f64,
    tokens: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if crate::array::functions::any_array(&[x.clone(), weight.clone()]) {
        return crate::array::functions::rms_norm(x, weight, eps);
    }
    let of_arrays = |of: &[Bound<'py, PyAny>]| crate::array::functions::rms_norm(&of[0], &of[1], eps);
    if let Some(found) = crate::array::functions::evaluated_on_numbers(&[x, weight], of_arrays)? {
        return Ok(found);
    }
    if is_tracing() && !x.is_instance_of::<PyVector>() {
        return Err(needs_arrays(py, "rms_norm()"));
    }
    let (Ok(vector), Ok(gains)) = (x.cast::<PyVector>(), weight.cast::<PyTensor>()) else {
        let arrays = [without_rows(x)?, without_rows(weight)?];
        let is_array =
            |x: &Bound<'py, PyAny>| PyResult::Ok(x.is_instance_of::<PyArray>() || is_many(x) || has_dtype(x)?);
        if is_array(&arrays[0])? && is_array(&arrays[1])? && tokens == 0 {
            return match crate::array::functions::evaluated_on_numbers(&[&arrays[0], &arrays[1]], of_arrays)? {
                Some(found) => Ok(found),
                None => of_arrays(&arrays),
            };
        }
        let found = [x, weight].map(type_name).join(" and ");
        let message = format!("rms_norm() takes a Vector and a Tensor, or arrays, as x and weight, found {found}");
        return Err(PyTypeError::new_err(message));
    };
    let (x, weight) = (vector, gains);
    let owner = x.get().owner(py).clone();
    let range = atomically(&owner, |cell| {
        cell.need_kernels("rms_norm")?;
        attach(py, cell, [weight.get().owner()])?;
        let x = match tokens {
            0 => one_run(py, cell, x.get())?,
            n => tokens_in(py, cell, x.get(), n)?.range(),
        };
        let operands = [View::Parameters(weight.get().slice()), View::Nodes(x)];
        let own = [eps, tokens as f64];
        let (parameters, graph) = (&cell.parameters, &mut cell.graph);
        with_values(py, parameters, |given| graph.blocks()?.append_block(Op::RmsNorm, given, &operands, &own))?
            .or_raise(py)
    })?;
    range.made(|range| Ok(PyVector::of_runs(&owner, &[range])?.into_bound(py).into_any()))
}

/// Causal attention of `n` tokens.
#[pyfunction]
#[pyo3(signature = (q, k, v, n, heads, /))]
fn token_attention<'py>(
    q: &Bound<'py, PyVector>,
    k: &Bound<'py, PyVector>,
    v: &Bound<'py, PyVector>,
    n: usize,
    heads: usize,
) -> PyResult<Py<PyVector>> {
    let py = q.py();
    let owner = same_graph(py, &[q, k, v])?;
    let y = atomically(&owner, |cell| {
        cell.need_kernels("token_attention")?;
        let part = |x: &Bound<'py, PyVector>| tokens_in(py, cell, x.get(), n);
        let (q, k, v) = (part(q)?, part(k)?, part(v)?);
        cell.graph.blocks().and_then(|blocks| blocks.causal_attention(q, k, v, heads)).or_raise(py)
    })?;
    y.made(|y| PyVector::of_runs(&owner, &[y.range()]))
}

/// The mean over `n` tokens of their softmax cross-entropy, as a Value.
#[pyfunction]
#[pyo3(signature = (x, n, classes, /))]
fn token_cross_entropy<'py>(
    x: &Bound<'py, PyVector>,
    n: usize,
    classes: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let classes = symbols(classes, "classes")?;
    let owner = x.get().owner(py).clone();
    let loss = atomically(&owner, |cell| {
        cell.need_kernels("token_cross_entropy")?;
        let x = tokens_in(py, cell, x.get(), n)?;
        cell.graph.blocks().and_then(|blocks| blocks.token_cross_entropy(x, &classes)).or_raise(py)
    })?;
    loss.made(|loss| wrap(&owner, loss))
}

/// `x + y`, element by element, as one block.
#[pyfunction]
#[pyo3(signature = (x, y, /))]
fn add_ranges<'py>(x: &Bound<'py, PyVector>, y: &Bound<'py, PyVector>) -> PyResult<Py<PyVector>> {
    let py = x.py();
    let owner = same_graph(py, &[x, y])?;
    let z = atomically(&owner, |cell| {
        let (x, y) = (one_run(py, cell, x.get())?, one_run(py, cell, y.get())?);
        cell.graph.blocks().and_then(|blocks| blocks.add_ranges(x, y)).or_raise(py)
    })?;
    z.made(|z| PyVector::of_runs(&owner, &[z]))
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(token_embedding, m)?)?;
    m.add_function(wrap_pyfunction!(token_affine, m)?)?;
    m.add_function(wrap_pyfunction!(token_layer_norm, m)?)?;
    m.add_function(wrap_pyfunction!(rms_norm, m)?)?;
    m.add_function(wrap_pyfunction!(token_attention, m)?)?;
    m.add_function(wrap_pyfunction!(token_cross_entropy, m)?)?;
    m.add_function(wrap_pyfunction!(add_ranges, m)?)
}
