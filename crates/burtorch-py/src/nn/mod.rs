//! Models for Python: `CharMLP`, `MLP` and `Linear` over the tensors of `Parameters`.

/// Attributes for the sizes of a model.
macro_rules! shape_getters {
    ($class:ident: $($(#[$doc:meta])* $name:ident: $kind:ty;)*) => {
        #[allow(unsafe_op_in_unsafe_fn, reason = "what the attribute makes of names that are written here")]
        const _: () = {
            #[pymethods]
            impl $class { $(
                $(#[$doc])*
                #[getter]
                fn $name(&self) -> $kind {
                    self.model.shape().$name
                }
            )* }
        };
    };
}

mod char_mlp;
mod copies;
mod dense;
pub mod gpt;
pub mod layer_call;
pub mod sample_loss;

use burtorch_core::nn::{CharMlp, Gpt, Mlp};
use burtorch_core::{Float, Graph, Parameters, Range, Tensor};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::convert::buffer::type_name;
use crate::convert::errors::IntoPython;
use crate::graph::parameters::{attach, with_values};
use crate::graph::{PyGraph, current_graph, interruptible};
use crate::nn::gpt::PyGpt;
use crate::node::token_ids::token_ids_for;
use crate::node::vector::tokens::symbols;
use crate::node::vector::{PyVector, appended};
use crate::params::{PyParameters, PyTensor};
pub use char_mlp::PyCharMlp;
pub use dense::{PyLinear, PyMlp};

/// A model for an oracle.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one per Python model, and it is never moved")]
pub enum AnyModel {
    /// Token ids in, logits out.
    Chars(CharMlp),
    /// Numbers in, numbers out.
    Dense(Mlp),
    /// Token ids in, logits for each of them out.
    Tokens(Gpt),
}

impl AnyModel {
    /// The number of parameters.
    pub fn n_parameters(&self) -> usize {
        match self {
            AnyModel::Chars(model) => model.n_parameters(),
            AnyModel::Dense(model) => model.n_parameters(),
            AnyModel::Tokens(model) => model.n_parameters(),
        }
    }
}

/// The model of a Python object, and its parameters.
pub fn model_of(object: &Bound<'_, PyAny>) -> PyResult<(AnyModel, Py<PyParameters>)> {
    let py = object.py();
    if let Ok(model) = object.cast::<PyCharMlp>() {
        let model = model.get();
        return Ok((AnyModel::Chars(model.model), model.params.clone_ref(py)));
    }
    if let Ok(model) = object.cast::<PyMlp>() {
        let model = model.get();
        return Ok((AnyModel::Dense(model.model.clone()), model.params.clone_ref(py)));
    }
    if let Ok(model) = object.cast::<PyGpt>() {
        let model = model.get();
        return Ok((AnyModel::Tokens(model.model.clone()), model.params.clone_ref(py)));
    }
    // The inner layer of nn.Linear holds its tensors.
    let layer = object.getattr_opt("_layer")?;
    if let Ok(layer) = layer.as_ref().unwrap_or(object).cast::<PyLinear>() {
        let layer = layer.get();
        let model = Mlp::of_layers(vec![layer.model]).or_raise(py)?;
        return Ok((AnyModel::Dense(model), layer.params.clone_ref(py)));
    }
    Err(PyTypeError::new_err(format!("expected a CharMLP, a GPT, an MLP or a Linear, found {}", type_name(object))))
}

/// The values of the nodes that `build` appends to a temporary graph.
fn evaluate<E: Float>(
    params: &Parameters<'_, E>,
    build: impl FnOnce(&mut Graph<'_, E>, &Parameters<'_, E>) -> burtorch_core::Result<Range>,
) -> burtorch_core::Result<Vec<f64>> {
    let mut graph = Graph::new();
    graph.set_no_grad(true);
    let outputs = build(&mut graph, params)?;
    outputs.nodes().map(|node| Ok(graph.value(node)?.to_f64())).collect()
}

fn tensor(py: Python<'_>, params: &Py<PyParameters>, tensor: Tensor, name: Option<String>) -> PyTensor {
    PyTensor::new(params.clone_ref(py), tensor, name)
}

/// The name of a part of an object that may be unnamed.
fn part(name: &Option<String>, part: &str) -> Option<String> {
    name.as_ref().map(|name| format!("{name}.{part}"))
}

/// Methods of all models.
macro_rules! holds_tensors {
    ($($Model:ident)*) => { $(
        #[pymethods]
        impl $Model {
            /// Names and Tensors, in their order in the parameters.
            fn named_tensors(&self, py: Python<'_>) -> Vec<(String, PyTensor)> {
                let named = |(name, found): (String, Tensor)| {
                    let full = part(&self.name, &name);
                    (name, tensor(py, &self.params, found, full))
                };
                self.model.named_tensors().into_iter().map(named).collect()
            }

            /// The number of parameters.
            #[getter]
            fn n_parameters(&self) -> usize {
                self.model.n_parameters()
            }

            /// The Parameters with its tensors.
            #[getter]
            fn params(&self, py: Python<'_>) -> Py<PyParameters> {
                self.params.clone_ref(py)
            }
        }
    )* };
}
holds_tensors!(PyCharMlp PyLinear PyMlp PyGpt);

/// Appends the logits for `tokens` to the current graph.
fn append(
    model: &AnyModel,
    params: &Py<PyParameters>,
    owner: &Bound<'_, PyGraph>,
    tokens: &[u32],
) -> PyResult<Py<PyVector>> {
    let (py, n) = (owner.py(), model.n_parameters());
    let range = appended(
        owner,
        n,
        |cell| {
            cell.need_kernels("a model")?;
            attach(py, cell, [params])
        },
        |graph, parameters, ()| {
            with_values(py, parameters, |given| {
                interruptible(py, n, || match model {
                    AnyModel::Chars(model) => graph.blocks()?.char_mlp(given, model, tokens),
                    AnyModel::Tokens(model) => Ok(graph.blocks()?.gpt(given, model, tokens)?.range()),
                    AnyModel::Dense(_) => Err(burtorch_core::Error::EmptyReduction { op: "tokens" }),
                })
            })?
            .or_raise(py)
        },
    )?;
    range.made(|range| PyVector::of_runs(owner, &[range]))
}

#[pymethods]
impl PyCharMlp {
    /// Appends the logits of the symbol after `tokens` to the current graph, as a Vector.
    ///
    /// Raises IndexError for a token outside the vocabulary, ValueError for another number of tokens.
    fn __call__(&self, tokens: &Bound<'_, PyAny>) -> PyResult<Py<PyVector>> {
        let (context, found) = (self.model.shape().context, tokens.len()?);
        if found != context {
            return Err(PyValueError::new_err(format!("a context holds {context} tokens, found {found}")));
        }
        let owner = current_graph(tokens.py())?.into_bound(tokens.py()).cast_into::<PyGraph>()?;
        let ids = token_ids_for(&owner, tokens, "tokens")?;
        append(&AnyModel::Chars(self.model), &self.params, &owner, &ids)
    }
}

#[pymethods]
impl PyGpt {
    /// Appends the logits of the symbol after each of `tokens` to the current graph, in groups of 8 tokens (`nn.Tokens`).
    fn _append(&self, tokens: &Bound<'_, PyAny>) -> PyResult<Py<PyVector>> {
        let owner = current_graph(tokens.py())?.into_bound(tokens.py()).cast_into::<PyGraph>()?;
        append(&AnyModel::Tokens(self.model.clone()), &self.params, &owner, &symbols(tokens, "tokens")?)
    }
}

/// Adds the classes to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyCharMlp>()?;
    m.add_class::<PyLinear>()?;
    m.add_class::<PyMlp>()
}
