//! `CharMLP` for Python: the paper's character model over the tensors of `Parameters`.

use burtorch_core::nn::{CharMlp, CharMlpShape};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::dense::PyLinear;
use super::{evaluate, part, tensor};
use crate::convert::arguments::sizes;
use crate::convert::buffer::read_token_ids;
use crate::convert::errors::IntoPython;
use crate::convert::gc::collected;
use crate::convert::refusals::refuse_reading;
use crate::params::{PyParameters, PyTensor, with_kernels};

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
#[pyclass(frozen, subclass, name = "CharMLP", module = "burtorch._core")]
pub struct PyCharMlp {
    /// The model.
    pub model: CharMlp,
    /// Its parameters.
    pub params: Py<PyParameters>,
    pub(super) name: Option<String>,
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
        refuse_reading("logits of a model")?;
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
