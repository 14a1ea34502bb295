//! Optimisers for Python.

mod freezing;
mod moving;
pub mod trainable;
pub mod trained;

mod adam;
mod schedule;

use burtorch_core::Sgd;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::errors::IntoPython;
use crate::convert::gc::collected;
use crate::convert::numbers::argument_number;
use crate::convert::stop::{PyStop, begin_unless};
use crate::params::PyParameters;
use moving::{Moving, Saved, attributes, restore_attributes, with_rule};

/// Stochastic gradient descent: `values -= lr * grads`.
///
/// Args:
///     params: Parameters, a model, a layer, a Tensor, a list of Tensors, or a list of Values (leaves, of any graphs). A
///         step updates only these numbers.
///     lr: the learning rate, finite and not negative. May be changed at any time.
///     momentum: v = momentum * v + grad, values -= lr * v, as in PyTorch. Below 1; costs one number
///         per updated number.
///     nesterov: whether to use Nesterov momentum.
///     weight_decay: adds weight_decay * values to the gradients.
///
/// Frozen numbers do not change. A step reads and writes each number once.
///
/// Raises:
///     ValueError: an invalid rate, no numbers, or Tensors of two Parameters.
///     TypeError: other arguments, or Tensors together with Values.
///     StaleValueError, from `step()`: one of the Values is stale; none was updated.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters()
///     >>> w = params.tensor(2, init=1.0)
///     >>> params.grads[:] = [2.0, -4.0]
///     >>> bt.optim.SGD(params, lr=0.5).step()
///     >>> list(w.values)
///     [0.0, 3.0]
#[pyclass(frozen, name = "SGD", module = "burtorch.optim")]
pub struct PySgd(Moving<Sgd<f32>, Sgd<f64>>);
collected!(PySgd: 0);

#[pymethods]
impl PySgd {
    #[new]
    #[pyo3(signature = (params, lr=0.1, momentum=0.0, nesterov=false, weight_decay=0.0))]
    fn new(
        params: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument_number)] lr: f64,
        #[pyo3(from_py_with = argument_number)] momentum: f64,
        nesterov: bool,
        #[pyo3(from_py_with = argument_number)] weight_decay: f64,
    ) -> PyResult<Self> {
        Ok(PySgd(Moving::new(
            params,
            || Sgd::with_momentum(lr, momentum, nesterov, weight_decay),
            || Sgd::with_momentum(lr, momentum, nesterov, weight_decay),
        )?))
    }

    /// The learning rate.
    #[getter]
    fn lr(&self, py: Python<'_>) -> PyResult<f64> {
        crate::convert::refusals::refuse_reading("lr of an optimiser")?;
        self.0.rule.with(py, |sgd| with_rule!(sgd, sgd => sgd.lr()))
    }

    #[setter]
    fn set_lr(&self, py: Python<'_>, #[pyo3(from_py_with = argument_number)] lr: f64) -> PyResult<()> {
        self.0.rule.with(py, |sgd| with_rule!(sgd, sgd => sgd.set_lr(lr)))?.or_raise(py)
    }

    /// The momentum.
    #[getter]
    fn momentum(&self, py: Python<'_>) -> PyResult<f64> {
        crate::convert::refusals::refuse_reading("momentum of an optimiser")?;
        self.0.rule.with(py, |sgd| with_rule!(sgd, sgd => sgd.momentum()))
    }

    /// The weight decay.
    #[getter]
    fn weight_decay(&self, py: Python<'_>) -> PyResult<f64> {
        crate::convert::refusals::refuse_reading("weight_decay of an optimiser")?;
        self.0.rule.with(py, |sgd| with_rule!(sgd, sgd => sgd.weight_decay()))
    }

    /// Update the values by one step against the gradients.
    ///
    /// `stop=`, a `bt.Stop()`: if it is set, the step does not start (StoppedError, and no value changes); a step that has started updates
    /// all values.
    #[pyo3(signature = (*, stop=None))]
    fn step(&self, py: Python<'_>, stop: Option<&Bound<'_, PyStop>>) -> PyResult<()> {
        begin_unless(py, stop)?;
        self.0.step(py)
    }

    /// Set the gradients of its numbers to zero.
    fn zero_grad(&self, py: Python<'_>) -> PyResult<()> {
        self.0.trained.zero_grad(py)
    }

    /// The state that determines the next steps, besides Parameters and gradients: rates and velocity, in the checkpoint format.
    fn save_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.0.save_state(py)
    }

    /// Restore the state of a save_state with as many numbers.
    ///
    /// Raises FormatError for any other state; then nothing has changed.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> params = bt.Parameters()
    ///     >>> w = params.tensor(2, init=1.0)
    ///     >>> state = bt.optim.SGD(params, lr=0.25, momentum=0.9).save_state()
    ///     >>> sgd = bt.optim.SGD(params)
    ///     >>> sgd.load_state(state)
    ///     >>> sgd.lr, sgd.momentum
    ///     (0.25, 0.9)
    fn load_state(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        self.0.load_state(py, state)
    }

    /// Bytes of its state: none without momentum, else one number per updated number, from the first step on.
    #[getter]
    fn state_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        crate::convert::refusals::refuse_reading("state_bytes of an optimiser")?;
        self.0.rule.with(py, |sgd| with_rule!(sgd, sgd => sgd.state_bytes()))
    }

    /// The Parameters whose numbers it updates; for Values, the Parameters that hold their numbers during a step.
    #[getter]
    fn params(&self, py: Python<'_>) -> Py<PyParameters> {
        self.0.trained.params.clone_ref(py)
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>,)> {
        Ok((self.0.trained.made_for(py)?,))
    }

    fn __getstate__<'py>(slf: &Bound<'py, Self>) -> PyResult<Saved<'py>> {
        Ok((slf.get().0.save_state(slf.py())?, attributes(slf.as_any())?))
    }

    fn __setstate__(slf: &Bound<'_, Self>, saved: Saved<'_>) -> PyResult<()> {
        let (state, own) = saved;
        slf.get().0.load_state(slf.py(), state.as_bytes())?;
        restore_attributes(slf.as_any(), own)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("SGD(lr={})", self.lr(py)?))
    }
}

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySgd>()?;
    adam::register(m)?;
    schedule::register(m)
}
