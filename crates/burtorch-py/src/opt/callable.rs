//! Terms computed by a Python function.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use burtorch_core::opt::{Samples, Terms};
use burtorch_core::sync::caller;
use burtorch_core::{Error, Result};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::convert::arrays::{Kind, filled, of_integers};
use crate::convert::buffer::read_numbers;
use crate::convert::gc::{HoldsObjects, Visitor};

/// The function, and its last exception in the work of each thread.
pub struct Callable {
    function: Py<PyAny>,
    raised: Mutex<Vec<(ThreadId, PyErr)>>,
    n: usize,
    d: usize,
}

impl HoldsObjects for Callable {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.function.visit(visit);
    }
}

impl Callable {
    /// `function(x, indices)` returns the mean value of these samples at x and its gradient.
    pub fn new(function: Py<PyAny>, n: usize, d: usize) -> Arc<Self> {
        Arc::new(Callable { function, raised: Mutex::new(Vec::new()), n, d })
    }

    /// The function.
    pub fn function(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    /// The exception of the function in the work of this thread, once.
    pub fn raised(&self) -> Option<PyErr> {
        let mut all = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let place = all.iter().position(|(thread, _)| *thread == caller())?;
        Some(all.swap_remove(place).1)
    }

    fn call(&self, py: Python<'_>, x: &[f64], indices: &[u32], gradient: &mut Vec<f64>) -> PyResult<f64> {
        let indices: Vec<i64> = indices.iter().map(|&i| i.into()).collect();
        let x = filled(py, &[self.d], Kind::F64, x)?;
        let indices = of_integers(py, &[indices.len()], &indices)?;
        let found = self.function.bind(py).call1((x, indices))?;
        let (value, found) = found.extract::<(f64, Bound<'_, PyAny>)>().map_err(|error| {
            let wrong = "the function of a FiniteSum must return a value and a gradient";
            crate::convert::errors::instead(py, error, PyTypeError::new_err(wrong))
        })?;
        gradient.clear();
        read_numbers(&found, gradient, "a gradient")?;
        if gradient.len() == self.d {
            return Ok(value);
        }
        Err(PyValueError::new_err(format!("a gradient has {} numbers, expected {}", gradient.len(), self.d)))
    }

    /// Calls `with` with factor, value and gradient: once for the mean of all samples, or once per sample if they have
    /// weights.
    fn sum(&self, x: &[f64], samples: Samples<'_>, with: &mut dyn FnMut(f64, f64, &[f64])) -> Result<()> {
        let mut gradient = Vec::new();
        let done = Python::attach(|py| {
            if samples.weights.is_none() {
                let value = self.call(py, x, samples.indices, &mut gradient)?;
                with(samples.total(), value, &gradient);
                return Ok(());
            }
            for ((_, weight), i) in samples.weighted().zip(samples.indices) {
                let value = self.call(py, x, std::slice::from_ref(i), &mut gradient)?;
                with(weight, value, &gradient);
            }
            Ok(())
        });
        done.map_err(|error: PyErr| {
            // The one before is dropped without the lock, because that may run Python code.
            let _before = self.raised();
            self.raised.lock().unwrap_or_else(PoisonError::into_inner).push((caller(), error));
            Error::Interrupted
        })
    }
}

/// The same as terms.
pub struct CallableTerms(pub Arc<Callable>);

impl Terms for CallableTerms {
    fn n(&self) -> usize {
        self.0.n
    }

    fn d(&self) -> usize {
        self.0.d
    }

    fn loss(&self, x: &[f64], samples: Samples<'_>, _: &mut Vec<f64>) -> Result<f64> {
        let mut sum = 0.0;
        if !samples.indices.is_empty() {
            self.0.sum(x, samples, &mut |weight, value, _| sum += weight * value)?;
        }
        Ok(sum)
    }

    fn grad(
        &self,
        x: &[f64],
        minus: Option<&[f64]>,
        samples: Samples<'_>,
        _: &mut Vec<f64>,
        out: &mut [f64],
    ) -> Result<()> {
        if samples.indices.is_empty() {
            return Ok(());
        }
        for (x, sign) in std::iter::once((x, 1.0)).chain(minus.map(|minus| (minus, -1.0))) {
            let mut add = |weight: f64, _, gradient: &[f64]| {
                out.iter_mut().zip(gradient).for_each(|(out, g)| *out += sign * weight * g);
            };
            self.0.sum(x, samples, &mut add)?;
        }
        Ok(())
    }
}
