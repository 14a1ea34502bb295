//! `GPT` for Python: a transformer over the tensors of `Parameters`.

use burtorch_core::kernels::BlockMath;
use burtorch_core::nn::{Gpt, GptShape};
use burtorch_core::{Float, Graph, Parameters};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::convert::arguments::sizes;
use crate::convert::buffer::read_token_ids;
use crate::convert::errors::IntoPython;
use crate::convert::gc::collected;
use crate::convert::numbers::argument_number;
use crate::convert::refusals::refuse_reading;
use crate::params::{PyParameters, PyTensor, with_kernels};

/// A transformer that reads tokens and computes logits of the symbol after each of them.
///
/// Args:
///     params: the Parameters that receive its tensors: embeddings of tokens (vocab, width) and of positions (context, width);
///         for each layer gain and bias of a layer norm, weights of queries, keys and values (width, width) without biases,
///         mixing weights and bias, gain and bias of a second layer norm, W1 (expansion * width, width), b1, W2, b2; then
///         gain and bias of the optional final layer norm; then weights (vocab, width) and biases of the logits.
///     vocab, context, layers, heads, width: its sizes, all at least 1; `heads` divides `width`. The defaults are the
///         paper's: 46,289 parameters.
///     expansion: width of the feed-forward layers with ReLU, as a multiple of `width`.
///     eps: the constant that layer norms add to the variance.
///     final_norm: whether a layer norm follows the last layer.
///     name: if given, its tensors are called `name.tokens`, `name.positions`, `name.blocks.0.norm1.weight`, ...
///
/// Raises:
///     ValueError: an invalid size, a name in use, full caller memory; nothing is appended.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(seed=0)
///     >>> model = bt.nn.GPT(params)
///     >>> logits = model.logits([1, 2, 3])
///     >>> model.n_parameters, len(logits), len(logits[0])
///     (46289, 3, 65)
#[pyclass(frozen, subclass, name = "GPT", module = "burtorch._core")]
pub struct PyGpt {
    /// The model.
    pub model: Gpt,
    /// Its parameters.
    pub params: Py<PyParameters>,
    /// The prefix of its tensors' names.
    pub name: Option<String>,
}
collected!(PyGpt: params);

shape_getters! { PyGpt:
    /// The number of symbols.
    vocab: usize;
    /// The largest number of tokens.
    context: usize;
    /// The number of layers.
    layers: usize;
    /// The number of heads in each layer.
    heads: usize;
    /// Features of a token.
    width: usize;
    /// Width of the feed-forward layers, as a multiple of `width`.
    expansion: usize;
    /// The constant that layer norms add to the variance.
    eps: f64;
    /// Whether a layer norm follows the last layer.
    final_norm: bool;
}

#[pymethods]
impl PyGpt {
    #[new]
    #[pyo3(
        signature = (params, vocab=65, context=8, layers=6, heads=6, width=24, expansion=4, eps=1e-5, final_norm=false,
            name=None, *, _start=None),
        text_signature = "(params, vocab=65, context=8, layers=6, heads=6, width=24, expansion=4, eps=1e-05, final_norm=False, name=None)"
    )]
    #[allow(clippy::too_many_arguments, reason = "the numbers that make a GPT, all with defaults")]
    fn new(
        params: &Bound<'_, PyParameters>,
        #[pyo3(from_py_with = sizes::vocab)] vocab: usize,
        #[pyo3(from_py_with = sizes::context)] context: usize,
        #[pyo3(from_py_with = sizes::layers)] layers: usize,
        #[pyo3(from_py_with = sizes::heads)] heads: usize,
        #[pyo3(from_py_with = sizes::width)] width: usize,
        #[pyo3(from_py_with = sizes::expansion)] expansion: usize,
        #[pyo3(from_py_with = argument_number)] eps: f64,
        final_norm: bool,
        name: Option<String>,
        _start: Option<usize>,
    ) -> PyResult<Self> {
        params.get().need_kernels()?;
        let shape = GptShape { vocab, context, layers, heads, width, expansion, eps, final_norm };
        let model = params.get().append(
            params.py(),
            |p| with_kernels!(p, p => PyParameters::placed(p, _start, |p| Gpt::new(p, shape, name.as_deref()))),
        )?;
        Ok(PyGpt { model, params: params.clone().unbind(), name })
    }

    /// Logits of the symbol after each of `tokens`, 1 to `context` integers (a list or a buffer): one list per token.
    ///
    /// Raises IndexError for a token outside the vocabulary, ValueError for another number of tokens. Costs one forward
    /// pass.
    fn logits(&self, py: Python<'_>, tokens: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<f64>>> {
        refuse_reading("logits of a model")?;
        let mut symbols = Vec::new();
        let dims = read_token_ids(tokens, &mut symbols, "tokens")?;
        if dims.row().is_none() {
            let most = self.model.shape().context;
            return Err(PyValueError::new_err(format!("tokens must have shape (1..{most},), found {}", dims.text())));
        }
        self.params.get().with(py, |params| with_kernels!(params, p => logits(&self.model, p, &symbols)))?.or_raise(py)
    }

    /// The embeddings of tokens, a Tensor of shape (vocab, width).
    #[getter]
    fn tokens(&self, py: Python<'_>) -> PyTensor {
        PyTensor::new(self.params.clone_ref(py), self.model.tokens(), None)
    }

    /// The embeddings of positions, a Tensor of shape (context, width).
    #[getter]
    fn positions(&self, py: Python<'_>) -> PyTensor {
        PyTensor::new(self.params.clone_ref(py), self.model.positions(), None)
    }

    fn __repr__(&self) -> String {
        let GptShape { vocab, context, layers, heads, width, .. } = self.model.shape();
        format!("GPT(vocab={vocab}, context={context}, layers={layers}, heads={heads}, width={width})")
    }
}

/// Logits by token.
fn logits<E: Float + BlockMath>(
    model: &Gpt,
    params: &Parameters<'_, E>,
    tokens: &[u32],
) -> burtorch_core::Result<Vec<Vec<f64>>> {
    model.check_tokens(tokens)?;
    let mut graph = Graph::<E>::new();
    graph.set_no_grad(true);
    let logits = model.logits(&mut graph, params, tokens)?;
    let value = |t: usize, f: usize| {
        let node = logits.node(t, f).ok_or(burtorch_core::Error::EmptyReduction { op: "logits" })?;
        Ok(graph.value(node)?.to_f64())
    };
    (0..tokens.len()).map(|t| (0..logits.width()).map(|f| value(t, f)).collect()).collect()
}

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGpt>()
}
