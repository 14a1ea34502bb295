//! Learning-rate schedules for Python.

use std::sync::atomic::{AtomicU64, Ordering};

use burtorch_core::optim::{Course, Schedule};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::convert::arguments::{Count, sizes};
use crate::convert::buffer::type_name;
use crate::convert::errors::IntoPython;
use crate::convert::gc::collected;
use crate::convert::numbers::argument_number;

/// Sets the learning rate of an optimiser step by step.
///
/// Args:
///     optimizer: any object with an `lr`; its current rate is the base rate, and it gets the rate of step 0 immediately.
///     kind: "constant"; "step": times `factor` every `every` steps; "cosine": half a cosine down to `last` over `total`
///         steps.
///     warm_up: the number of initial steps with a linear increase to the base rate.
///     every, factor, total, last: parameters of `kind`.
///
/// Call `step()` after each step of the optimiser. The rates are those of PyTorch's StepLR and CosineAnnealingLR.
///
/// Raises:
///     ValueError: an unknown kind, invalid numbers, or `every` or `total` missing.
///     TypeError: an optimiser without an `lr`.
///
/// Example:
///     >>> import burtorch as bt
///     >>> sgd = bt.optim.SGD(bt.Parameters(), lr=0.1)
///     >>> schedule = bt.optim.Schedule(sgd, "cosine", total=2, warm_up=1)
///     >>> rates = []
///     >>> for _ in range(4):
///     ...     rates.append(round(sgd.lr, 6))
///     ...     schedule.step()
///     >>> rates
///     [0.1, 0.1, 0.05, 0.0]
#[pyclass(frozen, name = "Schedule", module = "burtorch.optim")]
pub struct PySchedule {
    optimizer: Py<PyAny>,
    schedule: Schedule,
    n_steps: AtomicU64,
}
collected!(PySchedule: optimizer);

#[pymethods]
impl PySchedule {
    #[new]
    #[pyo3(signature = (optimizer, kind="constant", *, warm_up=0, every=None, factor=0.1, total=None, last=0.0))]
    fn new(
        optimizer: &Bound<'_, PyAny>,
        kind: &str,
        #[pyo3(from_py_with = sizes::warm_up)] warm_up: usize,
        every: Option<Count>,
        #[pyo3(from_py_with = argument_number)] factor: f64,
        total: Option<Count>,
        #[pyo3(from_py_with = argument_number)] last: f64,
    ) -> PyResult<Self> {
        let every = every.map(|every| every.positive("every")).transpose()?.map(|every| every as u64);
        let total = total.map(|total| total.positive("total")).transpose()?.map(|total| total as u64);
        let course = match (kind, every, total) {
            ("constant", _, _) => Course::Constant,
            ("step", Some(every), _) => Course::Steps { every, factor },
            ("cosine", _, Some(total)) => Course::Cosine { total, last },
            ("step", ..) => return Err(PyValueError::new_err("a \"step\" schedule needs every=, a number of steps")),
            ("cosine", ..) => {
                return Err(PyValueError::new_err("a \"cosine\" schedule needs total=, a number of steps"));
            }
            _ => {
                let message = format!("kind must be \"constant\", \"step\" or \"cosine\", found {kind:?}");
                return Err(PyValueError::new_err(message));
            }
        };
        let Some(base) = optimizer.getattr_opt("lr")? else {
            let found = type_name(optimizer);
            let message = format!("optimizer must have an lr, such as bt.optim.SGD(params), found {found}");
            return Err(PyTypeError::new_err(message));
        };
        let base: f64 = base.extract()?;
        let schedule = Schedule::new(base, warm_up as u64, course).or_raise(optimizer.py())?;
        optimizer.setattr("lr", schedule.rate(0))?;
        Ok(PySchedule { optimizer: optimizer.clone().unbind(), schedule, n_steps: AtomicU64::new(0) })
    }

    /// A copy, whose optimiser keeps its rate.
    #[staticmethod]
    fn _again(
        optimizer: Py<PyAny>,
        parts: (f64, u64, u64),
        every: Option<(u64, f64)>,
        total: Option<(u64, f64)>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let (base, warm_up, n_steps) = parts;
        let course = match (every, total) {
            (Some((every, factor)), _) => Course::Steps { every, factor },
            (_, Some((total, last))) => Course::Cosine { total, last },
            _ => Course::Constant,
        };
        let schedule = Schedule::new(base, warm_up, course).or_raise(py)?;
        Ok(PySchedule { optimizer, schedule, n_steps: AtomicU64::new(n_steps) })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, this) = (slf.py(), slf.get());
        let (base, warm_up, course) = this.schedule.parts();
        let (every, total) = match course {
            Course::Constant => (None, None),
            Course::Steps { every, factor } => (Some((every, factor)), None),
            Course::Cosine { total, last } => (None, Some((total, last))),
        };
        let parts = (&this.optimizer, (base, warm_up, this.n_steps()), every, total);
        Ok((slf.get_type().getattr("_again")?, parts.into_pyobject(py)?))
    }

    /// Set the optimiser's rate to that of the next step.
    fn step(&self, py: Python<'_>) -> PyResult<()> {
        let step = self.n_steps.fetch_add(1, Ordering::Relaxed) + 1;
        self.optimizer.bind(py).setattr("lr", self.schedule.rate(step))
    }

    /// The rate of step `step`, counted from 0.
    fn rate(&self, step: Count) -> PyResult<f64> {
        step.within("step", 0..=usize::MAX).map(|step| self.schedule.rate(step as u64))
    }

    /// The number of steps taken.
    #[getter]
    fn n_steps(&self) -> u64 {
        self.n_steps.load(Ordering::Relaxed)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (base, warm_up, course) = self.schedule.parts();
        let course = match course {
            Course::Constant => "\"constant\"".to_owned(),
            Course::Steps { every, factor } => format!("\"step\", every={every}, factor={factor:?}"),
            Course::Cosine { total, last } => format!("\"cosine\", total={total}, last={last:?}"),
        };
        let optimizer = self.optimizer.bind(py).repr()?;
        Ok(format!("Schedule({optimizer}, {course}, warm_up={warm_up}, base={base:?}, n_steps={})", self.n_steps()))
    }
}

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySchedule>()
}
