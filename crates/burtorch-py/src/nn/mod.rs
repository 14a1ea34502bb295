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

mod copies;
pub mod gpt;
pub mod layer_call;
pub mod sample_loss;

use burtorch_core::nn::{CharMlp, CharMlpShape, Gpt, Linear, Mlp};
use burtorch_core::{Float, Graph, Parameters, Range, Tensor};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::convert::arguments::{Count, activation_named, sizes};
use crate::convert::buffer::{read_numbers, read_token_ids};
use crate::convert::errors::IntoPython;
use crate::convert::gc::collected;
use crate::graph::parameters::{attach, with_values};
use crate::graph::{PyGraph, current_graph, interruptible};
use crate::nn::gpt::PyGpt;
use crate::node::blocks::token_ids_for;
use crate::node::vector::tokens::symbols;
use crate::node::vector::{PyVector, appended};
use crate::params::{PyParameters, PyTensor, with_kernels};

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
    Err(PyTypeError::new_err(format!(
        "expected a CharMLP, a GPT, an MLP or a Linear, found {}",
        object.get_type().name()?
    )))
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

/// The character model of the paper: the last `context` symbols, each as `embedding` numbers, one tanh layer of width
/// `hidden`, logits of the next symbol.
///
/// Args:
///     params: the Parameters that receive its tensors: embedding (vocab, embedding), W1 (hidden, context * embedding), b1, W2
///         (vocab, hidden), b2, in this order.
///     vocab, context, embedding, hidden: its sizes, all at least 1.
///     name: if given, its tensors are called `name.embedding`, `name.hidden.weight`, `name.hidden.bias`,
///         `name.output.weight` and `name.output.bias`.
///
/// Raises:
///     ValueError: a zero size, a name in use, full caller memory; nothing is appended.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(seed=0)
///     >>> model = bt.nn.CharMLP(params)
///     >>> model.n_parameters, len(model.logits([0] * 16))
///     (69083, 27)
#[pyclass(frozen, subclass, name = "CharMLP", module = "burtorch.nn")]
pub struct PyCharMlp {
    /// The model.
    pub model: CharMlp,
    /// Its parameters.
    pub params: Py<PyParameters>,
    name: Option<String>,
}
collected!(PyCharMlp: params);

shape_getters! { PyCharMlp:
    /// The number of symbols.
    vocab: usize;
    /// The number of previous symbols that it reads.
    context: usize;
}

#[pymethods]
impl PyCharMlp {
    #[new]
    #[pyo3(
        signature = (params, vocab=27, context=16, embedding=64, hidden=64, name=None, *, _start=None),
        text_signature = "(params, vocab=27, context=16, embedding=64, hidden=64, name=None)"
    )]
    fn new(
        params: &Bound<'_, PyParameters>,
        #[pyo3(from_py_with = sizes::vocab)] vocab: usize,
        #[pyo3(from_py_with = sizes::context)] context: usize,
        #[pyo3(from_py_with = sizes::embedding)] embedding: usize,
        #[pyo3(from_py_with = sizes::hidden)] hidden: usize,
        name: Option<String>,
        _start: Option<usize>,
    ) -> PyResult<Self> {
        params.get().need_kernels()?;
        let shape = CharMlpShape { vocab, context, embedding, hidden };
        let model = params.get().append(
            params.py(),
            |p| with_kernels!(p, p => PyParameters::placed(p, _start, |p| CharMlp::new(p, shape, name.as_deref()))),
        )?;
        Ok(PyCharMlp { model, params: params.clone().unbind(), name })
    }

    /// Logits of the symbol after `tokens`, which are `context` integers (a list or a buffer).
    ///
    /// Raises IndexError for a token outside the vocabulary, ValueError for another number of tokens. Costs one forward
    /// pass.
    fn logits(&self, py: Python<'_>, tokens: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
        let mut symbols = Vec::new();
        let dims = read_token_ids(tokens, &mut symbols, "tokens")?;
        if dims.row().is_none() {
            return Err(PyValueError::new_err(format!(
                "tokens must have shape ({},), found {}",
                self.model.shape().context,
                dims.text()
            )));
        }
        self.params
            .get()
            .with(
                py,
                |params| with_kernels!(params, p => evaluate(p, |graph, p| self.model.logits(graph, p, &symbols))),
            )?
            .or_raise(py)
    }

    /// The embeddings, a Tensor of shape (vocab, embedding).
    #[getter]
    fn embedding(&self, py: Python<'_>) -> PyTensor {
        tensor(py, &self.params, self.model.embedding(), part(&self.name, "embedding"))
    }

    /// The hidden layer, a Linear with tanh.
    #[getter]
    fn hidden(&self, py: Python<'_>) -> PyLinear {
        PyLinear { model: self.model.hidden(), params: self.params.clone_ref(py), name: part(&self.name, "hidden") }
    }

    /// The layer of logits, a Linear.
    #[getter]
    fn output(&self, py: Python<'_>) -> PyLinear {
        PyLinear { model: self.model.output(), params: self.params.clone_ref(py), name: part(&self.name, "output") }
    }

    fn __repr__(&self) -> String {
        let CharMlpShape { vocab, context, embedding, hidden } = self.model.shape();
        format!("CharMLP(vocab={vocab}, context={context}, embedding={embedding}, hidden={hidden})")
    }
}

/// One dense layer: `activation(W x + b)`.
///
/// Args:
///     params: the Parameters that receive W (n_out, n_in) and then b (n_out,).
///     n_in, n_out: numbers of inputs and outputs, both at least 1.
///     bias: whether there is a b. It starts at 0.
///     activation: None or "identity", "tanh", "relu", "sigmoid". W is initialised by He's rule for relu, else Glorot's.
///     name: if given, the tensors are called `name.weight` and `name.bias`.
///
/// Raises:
///     ValueError: a zero size, an unknown activation, a name in use; nothing is appended.
///
/// Example:
///     >>> import burtorch as bt
///     >>> layer = bt.nn.Linear(bt.Parameters(), 2, 1)
///     >>> layer.weight.values[:] = [2.0, 3.0]
///     >>> layer([1.0, 10.0])
///     [32.0]
#[pyclass(frozen, name = "Linear", module = "burtorch.nn")]
pub struct PyLinear {
    model: Linear,
    params: Py<PyParameters>,
    name: Option<String>,
}
collected!(PyLinear: params);

#[pymethods]
impl PyLinear {
    #[new]
    #[pyo3(
        signature = (params, n_in, n_out, bias=true, activation=None, name=None, *, _start=None),
        text_signature = "(params, n_in, n_out, bias=True, activation=None, name=None)"
    )]
    #[allow(clippy::too_many_arguments, reason = "the numbers that make a layer, most with defaults")]
    fn new(
        params: &Bound<'_, PyParameters>,
        #[pyo3(from_py_with = sizes::n_in)] n_in: usize,
        #[pyo3(from_py_with = sizes::n_out)] n_out: usize,
        bias: bool,
        activation: Option<&str>,
        name: Option<String>,
        _start: Option<usize>,
    ) -> PyResult<Self> {
        let py = params.py();
        let activation = activation_named(py, activation)?;
        params.get().need_kernels()?;
        let model = params
            .get()
            .append(py, |p| with_kernels!(p, p => PyParameters::placed(p, _start, |p| Linear::new(p, n_in, n_out, bias, activation, name.as_deref()))))?;
        Ok(PyLinear { model, params: params.clone().unbind(), name })
    }

    /// The n_out outputs for n_in inputs: for numbers (a list or a buffer), a list of floats, without a gradient; for Values
    /// or a Vector, a Vector on their graph, with the same numbers.
    ///
    /// Raises ValueError for another number of inputs, TypeError for a graph of another dtype than the parameters.
    fn __call__<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let model = Mlp::of_layers(vec![self.model]).or_raise(x.py())?;
        outputs(&model, &self.params, x)
    }

    /// The weights, a Tensor of shape (n_out, n_in).
    #[getter]
    fn weight(&self, py: Python<'_>) -> PyTensor {
        tensor(py, &self.params, self.model.weight(), part(&self.name, "weight"))
    }

    /// The biases, a Tensor of shape (n_out,), or None.
    #[getter]
    fn bias(&self, py: Python<'_>) -> Option<PyTensor> {
        self.model.bias().map(|bias| tensor(py, &self.params, bias, part(&self.name, "bias")))
    }

    /// "identity", "tanh", "relu" or "sigmoid".
    #[getter]
    fn activation(&self) -> &'static str {
        self.model.activation().name()
    }

    /// The number of inputs.
    #[getter]
    fn n_in(&self) -> usize {
        self.model.n_in()
    }

    /// The number of outputs.
    #[getter]
    fn n_out(&self) -> usize {
        self.model.n_out()
    }

    fn __repr__(&self) -> String {
        let bias = if self.model.bias().is_some() { "True" } else { "False" };
        let Self { model: layer, .. } = self;
        format!("Linear({}, {}, bias={bias}, activation={:?})", layer.n_in(), layer.n_out(), layer.activation().name())
    }
}

/// A sequence of dense layers, with `activation` after each except the last.
///
/// Args:
///     params: the Parameters that receive the tensors, layer by layer, weights before biases.
///     sizes: inputs, hidden widths, outputs: at least two numbers.
///     activation: "tanh" (default), "relu", "sigmoid" or "identity", after all layers except the last.
///     bias: whether layers have biases.
///     name: if given, layer k is called `name.k`.
///
/// In an Oracle its default loss is softmax cross-entropy for integer labels, the mean squared difference for float labels.
///
/// Raises:
///     ValueError: invalid sizes, an unknown activation, a name in use; nothing is appended.
///
/// Example:
///     >>> import burtorch as bt
///     >>> model = bt.nn.MLP(bt.Parameters(), [3, 4, 4, 1])
///     >>> model.n_parameters, len(model([2.0, 3.0, -1.0]))
///     (41, 1)
#[pyclass(frozen, subclass, name = "MLP", module = "burtorch.nn")]
pub struct PyMlp {
    model: Mlp,
    params: Py<PyParameters>,
    name: Option<String>,
}
collected!(PyMlp: params);

#[pymethods]
impl PyMlp {
    #[new]
    #[pyo3(
        signature = (params, sizes, activation="tanh", bias=true, name=None, *, _start=None),
        text_signature = "(params, sizes, activation='tanh', bias=True, name=None)"
    )]
    fn new(
        params: &Bound<'_, PyParameters>,
        sizes: Vec<Count>,
        activation: &str,
        bias: bool,
        name: Option<String>,
        _start: Option<usize>,
    ) -> PyResult<Self> {
        let py = params.py();
        let sizes = sizes.iter().map(|n| n.positive("each of sizes")).collect::<PyResult<Vec<_>>>()?;
        let activation = activation_named(py, Some(activation))?;
        params.get().need_kernels()?;
        let model = params
            .get()
            .append(py, |p| with_kernels!(p, p => PyParameters::placed(p, _start, |p| Mlp::new(p, &sizes, bias, activation, name.as_deref()))))?;
        Ok(PyMlp { model, params: params.clone().unbind(), name })
    }

    /// The outputs for the inputs `x`: for numbers (a list or a buffer), a list of floats, without a gradient; for Values or a
    /// Vector, a Vector on their graph, with the same numbers.
    ///
    /// Raises ValueError for another number of inputs, TypeError for a graph of another dtype than the parameters.
    fn __call__<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        outputs(&self.model, &self.params, x)
    }

    /// The layers, first to last.
    #[getter]
    fn layers(&self, py: Python<'_>) -> Vec<PyLinear> {
        let layer = |(k, &model): (usize, &Linear)| PyLinear {
            model,
            params: self.params.clone_ref(py),
            name: part(&self.name, &k.to_string()),
        };
        self.model.layers().iter().enumerate().map(layer).collect()
    }

    /// The number of inputs.
    #[getter]
    fn n_in(&self) -> usize {
        self.model.n_in()
    }

    /// The number of outputs.
    #[getter]
    fn n_out(&self) -> usize {
        self.model.n_out()
    }

    fn __repr__(&self) -> String {
        let sizes = std::iter::once(self.model.n_in()).chain(self.model.layers().iter().map(Linear::n_out));
        format!("MLP({:?})", sizes.collect::<Vec<_>>())
    }
}

fn outputs<'py>(model: &Mlp, params: &Py<PyParameters>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    // An iterator is read only once.
    let x = &if x.hasattr("__len__")? {
        x.clone()
    } else {
        PyList::new(py, x.try_iter()?.collect::<PyResult<Vec<_>>>()?)?.into_any()
    };
    if let Some(nodes) = crate::node::dense::outputs(model.layers(), params, x)? {
        return Ok(nodes);
    }
    let mut numbers = Vec::new();
    let dims = read_numbers(x, &mut numbers, "x")?;
    if dims.row().is_none() {
        return Err(PyValueError::new_err(format!("x must have shape ({},), found {}", model.n_in(), dims.text())));
    }
    params
        .get()
        .with(py, |params| {
            with_kernels!(params, p => evaluate(p, |graph, p| {
                let x: Vec<_> = numbers.iter().map(|&x| Float::from_f64(x)).collect();
                model.outputs(graph, p, &x)
            }))
        })?
        .or_raise(py)?
        .into_pyobject(py)
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
