//! `Tensor`: a shaped part of `Parameters`, which graphs read in place.

use burtorch_core::optim::Selection;
use burtorch_core::{Init, Slice, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{PyParameters, with_params};
use crate::convert::buffer::FlatArray;
use crate::convert::errors::IntoPython;
use crate::convert::gc::collected;

/// A shaped part of Parameters, by rows. Made by `Parameters.tensor`.
#[pyclass(frozen, name = "Tensor", module = "burtorch")]
pub struct PyTensor {
    params: Py<PyParameters>,
    tensor: Tensor,
    name: Option<String>,
}
collected!(PyTensor: params);

impl PyTensor {
    /// A tensor of these parameters.
    pub fn new(params: Py<PyParameters>, tensor: Tensor, name: Option<String>) -> Self {
        PyTensor { params, tensor, name }
    }

    /// Its position and shape.
    pub fn tensor(&self) -> Tensor {
        self.tensor
    }

    /// The positions of its numbers. With [`PyTensor::owner`], all that a graph needs to read `w[i]`.
    pub fn slice(&self) -> Slice {
        self.tensor.slice()
    }

    /// The number of dimensions.
    pub fn n_dims(&self) -> usize {
        self.tensor.shape().dims().len()
    }

    /// All of it.
    pub fn whole(&self) -> Tensor {
        self.tensor
    }

    /// The number of elements in a row.
    pub fn width(&self) -> usize {
        self.tensor.slice().len() / self.tensor.shape().dims().first().map_or(1, |&rows| (rows as usize).max(1))
    }

    /// The owner of its numbers.
    pub fn owner(&self) -> &Py<PyParameters> {
        &self.params
    }
}

#[pymethods]
impl PyTensor {
    /// The dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.shape().dims())
    }

    /// The name, or None.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The position of its first number in the flat arrays, and the position after the last.
    #[getter]
    fn span(&self) -> (usize, usize) {
        let range = self.tensor.slice().range();
        (range.start, range.end)
    }

    /// The Parameters that contain it.
    #[getter]
    fn params(&self, py: Python<'_>) -> Py<PyParameters> {
        self.params.clone_ref(py)
    }

    /// Its values, flat, by rows, sharing the memory.
    #[getter]
    fn values(&self, py: Python<'_>) -> PyResult<FlatArray> {
        crate::convert::refusals::refuse_reading(".values of a tensor")?;
        PyParameters::array(self.params.bind(py), Some(self.tensor.slice()), false)
    }

    /// Its gradients, likewise.
    #[getter]
    fn grads(&self, py: Python<'_>) -> PyResult<FlatArray> {
        crate::convert::refusals::refuse_reading(".grads of a tensor")?;
        PyParameters::array(self.params.bind(py), Some(self.tensor.slice()), true)
    }

    /// Whether any of its numbers is trainable.
    #[getter]
    fn trainable(&self, py: Python<'_>) -> PyResult<bool> {
        let range = self.tensor.slice().range();
        self.params.get().with(py, |params| with_params!(params, p => p.any_trainable(range)))
    }

    /// Set only its gradients to zero.
    fn zero_grad(&self, py: Python<'_>) -> PyResult<()> {
        let zero = |params: &mut _| with_params!(params, p => Selection::of(p, &[self.slice()]).map(|numbers| p.zero_grad_of(&numbers)));
        self.params.get().with(py, zero)?.or_raise(py)
    }

    /// Freeze it: no gradient, no gradient memory, no work.
    fn freeze(&self, py: Python<'_>) -> PyResult<()> {
        let slice = self.tensor.slice();
        self.params.get().with(py, |params| with_params!(params, p => p.freeze(slice)))?.or_raise(py)
    }

    /// Make it trainable again.
    fn unfreeze(&self, py: Python<'_>) -> PyResult<()> {
        let slice = self.tensor.slice();
        self.params.get().with(py, |params| with_params!(params, p => p.unfreeze(slice)))?.or_raise(py)
    }

    // Pickles and copies name the numbers of a copy of the Parameters.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let make = py.import("burtorch._core")?.getattr("_unpickle_tensor")?;
        let parts = (&self.params, self.tensor.slice().range().start, self.shape(py)?, self.name.as_deref());
        Ok((make, parts.into_pyobject(py)?))
    }

    fn __len__(&self) -> usize {
        self.tensor.shape().dims()[0] as usize
    }

    fn __repr__(&self) -> String {
        let dims: Vec<String> = self.tensor.shape().dims().iter().map(u32::to_string).collect();
        let comma = if dims.len() == 1 { "," } else { "" };
        match &self.name {
            Some(name) => format!("Tensor(({}{comma}), name={name:?})", dims.join(", ")),
            None => format!("Tensor(({}{comma}))", dims.join(", ")),
        }
    }
}

/// The function that unpickles a Tensor.
#[pyfunction]
fn _unpickle_tensor(
    params: &Bound<'_, PyParameters>,
    start: usize,
    shape: Vec<usize>,
    name: Option<String>,
) -> PyResult<PyTensor> {
    let tensor = params.get().with(
        params.py(),
        |any| with_params!(any, p => p.again(start, |p| p.tensor(&shape, None, Init::Constant(0.0), true))),
    )?;
    Ok(PyTensor::new(params.clone().unbind(), tensor.or_raise(params.py())?, name))
}

/// Adds the function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_unpickle_tensor, m)?)
}
