//! `Adam` and `AdamW` for Python, and clipping.

use burtorch_core::optim::{Adam, AdamRates, clip_grad_norm_of};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::moving::{Moving, Saved, attributes, restore_attributes, with_rule};
use crate::convert::errors::IntoPython;
use crate::convert::gc::collected;
use crate::convert::numbers::argument_number;
use crate::convert::refusals::refuse_reading;
use crate::convert::stop::{PyStop, begin_unless};
use crate::optim::trained::{Kind, Trained};
use crate::params::{PyParameters, with_kernels};

/// Adam, as in PyTorch: steps along the first moment of gradients over the root of the second.
///
/// Args:
///     params: Parameters, a model, a layer, a Tensor, a list of Tensors, or a list of Values (leaves, of any graphs). A
///         step updates only these numbers.
///     lr: the learning rate, finite and not negative. May be changed at any time.
///     betas: decay rates of the two moments, below 1.
///     eps: the constant added to the root of the second moment.
///     weight_decay: adds weight_decay * values to the gradients.
///
/// Costs two numbers of memory per updated number; a step is one pass over them. Frozen numbers do not change.
///
/// Raises:
///     ValueError: an invalid rate, no numbers, or Tensors of two Parameters.
///     TypeError: other arguments, or Tensors together with Values.
///     StaleValueError, from `step()`: one of the Values is stale; none was updated.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(dtype="float64")
///     >>> w = params.tensor(2, init=1.0)
///     >>> params.grads[:] = [0.5, -8.0]
///     >>> bt.optim.Adam(params, lr=0.25).step()
///     >>> [round(x, 6) for x in w.values]
///     [0.75, 1.25]
#[pyclass(frozen, subclass, name = "Adam", module = "burtorch.optim")]
pub struct PyAdam {
    moving: Moving<Adam<f32>, Adam<f64>>,
    decoupled: bool,
}
collected!(PyAdam: moving);

impl PyAdam {
    fn make(params: &Bound<'_, PyAny>, rates: AdamRates) -> PyResult<Self> {
        let moving = Moving::new(params, || Adam::new(rates), || Adam::new(rates))?;
        Ok(PyAdam { moving, decoupled: rates.decoupled })
    }

    fn rates(&self, py: Python<'_>) -> PyResult<AdamRates> {
        self.moving.rule.with(py, |adam| with_rule!(adam, adam => adam.rates()))
    }
}

#[pymethods]
impl PyAdam {
    #[new]
    #[pyo3(
        signature = (params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0),
        text_signature = "(params, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)"
    )]
    fn new(
        params: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument_number)] lr: f64,
        betas: (f64, f64),
        #[pyo3(from_py_with = argument_number)] eps: f64,
        #[pyo3(from_py_with = argument_number)] weight_decay: f64,
    ) -> PyResult<Self> {
        Self::make(params, AdamRates { lr, betas, eps, weight_decay, decoupled: false })
    }

    /// The learning rate.
    #[getter]
    fn lr(&self, py: Python<'_>) -> PyResult<f64> {
        crate::convert::refusals::refuse_reading("lr of an optimiser")?;
        Ok(self.rates(py)?.lr)
    }

    #[setter]
    fn set_lr(&self, py: Python<'_>, #[pyo3(from_py_with = argument_number)] lr: f64) -> PyResult<()> {
        self.moving.rule.with(py, |adam| with_rule!(adam, adam => adam.set_lr(lr)))?.or_raise(py)
    }

    /// The decay rates of the two moments.
    #[getter]
    fn betas(&self, py: Python<'_>) -> PyResult<(f64, f64)> {
        crate::convert::refusals::refuse_reading("betas of an optimiser")?;
        Ok(self.rates(py)?.betas)
    }

    /// The constant added to the root of the second moment.
    #[getter]
    fn eps(&self, py: Python<'_>) -> PyResult<f64> {
        crate::convert::refusals::refuse_reading("eps of an optimiser")?;
        Ok(self.rates(py)?.eps)
    }

    /// The weight decay.
    #[getter]
    fn weight_decay(&self, py: Python<'_>) -> PyResult<f64> {
        crate::convert::refusals::refuse_reading("weight_decay of an optimiser")?;
        Ok(self.rates(py)?.weight_decay)
    }

    /// The number of steps taken.
    #[getter]
    fn n_steps(&self, py: Python<'_>) -> PyResult<u64> {
        crate::convert::refusals::refuse_reading("n_steps of an optimiser")?;
        self.moving.rule.with(py, |adam| with_rule!(adam, adam => adam.n_steps()))
    }

    /// Update the values by one step.
    ///
    /// `stop=`, a `bt.Stop()`: if it is set, the step does not start (StoppedError, and no value changes); a step that has started updates
    /// all values.
    #[pyo3(signature = (*, stop=None))]
    fn step(&self, py: Python<'_>, stop: Option<&Bound<'_, PyStop>>) -> PyResult<()> {
        begin_unless(py, stop)?;
        self.moving.step(py)
    }

    /// Set the gradients of its numbers to zero.
    fn zero_grad(&self, py: Python<'_>) -> PyResult<()> {
        self.moving.trained.zero_grad(py)
    }

    /// The state that determines the next steps, besides Parameters and gradients: rates, moments and steps, in the checkpoint format.
    fn save_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.moving.save_state(py)
    }

    /// Restore the state of a save_state with as many numbers.
    ///
    /// Raises FormatError for any other state; then nothing has changed.
    fn load_state(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        self.moving.load_state(py, state)
    }

    /// Bytes of its state: two numbers per updated number, from the first step on.
    #[getter]
    fn state_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        crate::convert::refusals::refuse_reading("state_bytes of an optimiser")?;
        self.moving.rule.with(py, |adam| with_rule!(adam, adam => adam.state_bytes()))
    }

    /// The Parameters whose numbers it updates; for Values, the Parameters that hold their numbers during a step.
    #[getter]
    fn params(&self, py: Python<'_>) -> Py<PyParameters> {
        self.moving.trained.params.clone_ref(py)
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>,)> {
        Ok((self.moving.trained.made_for(py)?,))
    }

    fn __getstate__<'py>(slf: &Bound<'py, Self>) -> PyResult<Saved<'py>> {
        Ok((slf.get().moving.save_state(slf.py())?, attributes(slf.as_any())?))
    }

    fn __setstate__(slf: &Bound<'_, Self>, saved: Saved<'_>) -> PyResult<()> {
        let (state, own) = saved;
        slf.get().moving.load_state(slf.py(), state.as_bytes())?;
        restore_attributes(slf.as_any(), own)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = if self.decoupled { "AdamW" } else { "Adam" };
        Ok(format!("{name}(lr={})", self.lr(py)?))
    }
}

/// Adam with decoupled weight decay: each step subtracts `lr * weight_decay * values` from the values, without the moments.
///
/// Arguments, cost and errors are those of Adam; the default of weight_decay is 0.01, as in PyTorch.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(dtype="float64")
///     >>> w = params.tensor(1, init=1.0)
///     >>> bt.optim.AdamW(params, lr=0.5, weight_decay=0.5).step()
///     >>> list(w.values)
///     [0.75]
#[pyclass(frozen, extends = PyAdam, name = "AdamW", module = "burtorch.optim")]
pub struct PyAdamW;

#[pymethods]
impl PyAdamW {
    #[new]
    #[pyo3(
        signature = (params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01),
        text_signature = "(params, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)"
    )]
    fn new(
        params: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument_number)] lr: f64,
        betas: (f64, f64),
        #[pyo3(from_py_with = argument_number)] eps: f64,
        #[pyo3(from_py_with = argument_number)] weight_decay: f64,
    ) -> PyResult<PyClassInitializer<Self>> {
        let adam = PyAdam::make(params, AdamRates { lr, betas, eps, weight_decay, decoupled: true })?;
        Ok(PyClassInitializer::from(adam).add_subclass(PyAdamW))
    }
}

/// Scale gradients so that their joint Euclidean norm is at most `max_norm`; return the norm before.
///
/// Args:
///     params: as for an optimiser. Other gradients are neither read nor changed.
///     max_norm: at least 0. Infinity only measures: no gradient changes.
///
/// The factor is max_norm / (norm + 1e-6) if that is below 1, as in PyTorch. Costs one or two passes over the gradients, and two
/// more if squares would overflow or underflow, which are then scaled.
///
/// Raises:
///     ValueError: an invalid norm, or arguments without numbers.
///     TypeError: arguments that an optimiser does not take.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(dtype="float64")
///     >>> w = params.tensor(2, init=0.0)
///     >>> params.grads[:] = [3.0, 4.0]
///     >>> bt.optim.clip_grad_norm(params, 1.0)
///     5.0
///     >>> [round(g, 5) for g in params.grads]
///     [0.6, 0.8]
#[pyfunction]
fn clip_grad_norm(params: &Bound<'_, PyAny>, #[pyo3(from_py_with = argument_number)] max_norm: f64) -> PyResult<f64> {
    let py = params.py();
    refuse_reading("the norm of a gradient")?;
    let trained = Trained::of(params)?;
    let params = trained.params.get();
    params.need_kernels()?;
    let clip = |params: &mut _| with_kernels!(params, p => clip_grad_norm_of(p, &trained.numbers, max_norm));
    let norm = params.with(py, clip)?.or_raise(py)?;
    trained.scatter(py, Kind::Gradients)?;
    Ok(norm)
}

/// Adds classes and function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyAdam>()?;
    m.add_class::<PyAdamW>()?;
    m.add_function(wrap_pyfunction!(clip_grad_norm, m)?)
}
