//! `Linear` and `MLP` for Python: dense layers over the tensors of `Parameters`.

use burtorch_core::Float;
use burtorch_core::nn::{Linear, Mlp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{evaluate, part, tensor};
use crate::array::functions::affine;
use crate::array::of_graph::array_among;
use crate::convert::arguments::{Count, activation_named, sizes};
use crate::convert::buffer::read_numbers;
use crate::convert::errors::IntoPython;
use crate::convert::gc::collected;
use crate::convert::refusals::{is_tracing, needs_arrays};
use crate::params::{PyParameters, PyTensor, with_kernels};

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
#[pyclass(frozen, name = "Linear", module = "burtorch._core")]
pub struct PyLinear {
    pub(super) model: Linear,
    pub(super) params: Py<PyParameters>,
    pub(super) name: Option<String>,
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
    /// or a Vector, a Vector on their graph, with the same numbers; for an Array, or a list of Arrays, an Array.
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
#[pyclass(frozen, subclass, name = "MLP", module = "burtorch._core")]
pub struct PyMlp {
    pub(super) model: Mlp,
    pub(super) params: Py<PyParameters>,
    pub(super) name: Option<String>,
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
    /// Vector, a Vector on their graph, with the same numbers; for an Array, or a list of Arrays, an Array.
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

/// The outputs as an Array, if `x` is one or a list that contains some, or if a function is traced with Arrays.
fn array_outputs<'py>(
    model: &Mlp,
    params: &Py<PyParameters>,
    x: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = x.py();
    let Some(mut y) = array_among(x)? else {
        // Weights are read at every call, which only programs over Arrays do.
        return if is_tracing() { Err(needs_arrays(py, "a layer")) } else { Ok(None) };
    };
    for layer in model.layers() {
        let own = |of| Bound::new(py, tensor(py, params, of, None)).map(Bound::into_any);
        let (weight, bias) = (own(layer.weight())?, layer.bias().map(own).transpose()?);
        y = affine(&weight, &y, bias.as_ref(), layer.activation())?;
    }
    Ok(Some(y))
}

fn outputs<'py>(model: &Mlp, params: &Py<PyParameters>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    // An iterator is read only once.
    let x = &if x.hasattr("__len__")? {
        x.clone()
    } else {
        PyList::new(py, x.try_iter()?.collect::<PyResult<Vec<_>>>()?)?.into_any()
    };
    if let Some(array) = array_outputs(model, params, x)? {
        return Ok(array);
    }
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
