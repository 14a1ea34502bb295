//! `nn.sample_loss`: a model's loss of one sample, appended to the current graph in one call.
//!
//! Promises: a sample is read and checked before the graph is touched; long work releases the GIL, so several
//! threads build branches at the same time; an error leaves the graph as it was.

use burtorch_core::erased::Erasable;
use burtorch_core::nn::{Input, Label, Model};
use burtorch_core::{Error, Graph, NodeId};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::convert::buffer::{read_either, read_numbers, read_token_ids};
use crate::convert::errors::IntoPython;
use crate::graph::cell::AnyGraph;
use crate::graph::parameters::{attach, with_values};
use crate::graph::{PyGraph, current_graph, unlocked};
use crate::nn::{AnyModel, model_of};
use crate::node::vector::{reclaim_if_due, wrap};
use crate::params::PyParameters;

/// A sample, as read from its arguments.
#[derive(Default)]
struct Sample {
    tokens: Vec<u32>,
    numbers: Vec<f64>,
    classes: Vec<u32>,
    targets: Vec<f64>,
}

/// Append a model's loss of one sample to the current graph, and return it as a Value.
///
/// In a branch (Graph.branches(), parallel()) several threads do so at the same time: the call releases the interpreter's
/// lock unless the model is small.
///
/// Args:
///     model: a CharMLP, an MLP or a Linear.
///     x: the sample: integers for a CharMLP, numbers otherwise; a sequence or a buffer.
///     y: the target: an integer in a sequence for a class (softmax cross-entropy), numbers to come near to
///         (mean of squared differences).
///
/// Raises:
///     TypeError: the graph is of another dtype than the parameters.
///     ValueError: data of another shape than the model takes.
///     IndexError: a token or class out of range. In all cases nothing is appended.
///     BusyError: the graph or the parameters are in use by another thread.
///
/// Costs one pass forward.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(dtype="float64")
///     >>> model = bt.nn.Linear(params, 2, 1, bias=False)
///     >>> params.values[:] = [1.0, 2.0]
///     >>> loss = bt.nn.sample_loss(model, [1.0, 1.0], [0.0])
///     >>> loss.backward()
///     >>> loss.data, list(params.grads)
///     (9.0, [6.0, 6.0])
#[pyfunction]
#[pyo3(signature = (model, x, y, /))]
fn sample_loss<'py>(
    py: Python<'py>,
    model: &Bound<'py, PyAny>,
    x: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (model, params) = model_of(model)?;
    let mut sample = Sample::default();
    match &model {
        AnyModel::Dense(_) => read_numbers(x, &mut sample.numbers, "x").map(drop)?,
        _ => read_token_ids(x, &mut sample.tokens, "x").map(drop)?,
    }
    let Sample { classes, targets, .. } = &mut sample;
    read_either(y, classes, targets, "y")?;
    let graph = current_graph(py)?.into_bound(py).cast_into::<PyGraph>()?;
    graph.get().with(py, |cell| {
        reclaim_if_due(py, cell)?;
        attach(py, cell, [&params])
    })?;
    let node = graph.get().released(py, |graph, _| match graph {
        AnyGraph::F64(graph) => append(py, graph, &model, &params, &sample),
        AnyGraph::F32(graph) => append(py, graph, &model, &params, &sample),
        _ => Err(PyTypeError::new_err("models build on float64 and float32 graphs")),
    })?;
    wrap(&graph, node)
}

fn append<E: Erasable + burtorch_core::LaneFloat>(
    py: Python<'_>,
    graph: &mut Graph<'static, E>,
    model: &AnyModel,
    params: &Py<PyParameters>,
    sample: &Sample,
) -> PyResult<NodeId> {
    let numbers = |from: &[f64]| -> Vec<E> { from.iter().map(|&x| E::lit(x)).collect() };
    let (x, targets) = (numbers(&sample.numbers), numbers(&sample.targets));
    let input = if x.is_empty() { Input::Tokens(&sample.tokens) } else { Input::Numbers(&x) };
    let label = if targets.is_empty() { Label::Classes(&sample.classes) } else { Label::Numbers(&targets) };
    with_values(py, std::slice::from_ref(params), |given| {
        let params = given.first().and_then(|any| E::params(any)).ok_or(Error::MissingParameters).or_raise(py)?;
        let mut build = |model: &dyn Model<E>| {
            model.check(input, label)?;
            let start = graph.mark();
            let built = model.loss(graph, params, input, label);
            if built.is_err() {
                graph.rewind(start)?;
            }
            built
        };
        unlocked(py, params.len(), || match model {
            AnyModel::Chars(model) => build(model),
            AnyModel::Dense(model) => build(model),
            AnyModel::Tokens(model) => build(model),
        })
        .or_raise(py)
    })?
}

/// Adds the function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(sample_loss, m)?)
}
