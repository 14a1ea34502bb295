//! The shared part of SGD and Adam for Python: the numbers they update, steps, and saving.
//!
//! Promises: one call at a time; a failed step updates nothing. Knows no rule: a rule is a type of the core.

use burtorch_core::optim::{Adam, Selection};
use burtorch_core::{DType, Float, Parameters, Result, Sgd};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::convert::errors::IntoPython;
use crate::convert::exclusive::Guarded;
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::convert::signals::asked;
use crate::optim::trained::{Kind, Trained};
use crate::params::{AnyParameters, mismatch};

/// A rule for numbers of type `E`.
pub trait Rule<E: Float> {
    /// Updates these numbers by one step.
    fn step(&mut self, params: &mut Parameters<'_, E>, numbers: &Selection) -> Result<()>;
    /// The state that determines the next steps.
    fn to_bytes(&self, params: &Parameters<'_, E>, numbers: &Selection) -> Result<Vec<u8>>;
    /// Restores a saved state.
    fn load_bytes(&mut self, params: &Parameters<'_, E>, numbers: &Selection, bytes: &[u8]) -> Result<()>;
}

macro_rules! rule {
    ($($Rule:ident $E:ty),*) => { $(
        impl Rule<$E> for $Rule<$E> {
            fn step(&mut self, params: &mut Parameters<'_, $E>, numbers: &Selection) -> Result<()> {
                $Rule::step_of(self, params, numbers)
            }

            fn to_bytes(&self, params: &Parameters<'_, $E>, numbers: &Selection) -> Result<Vec<u8>> {
                self.state().padded(numbers.len_of(params.len()))?.to_bytes()
            }

            fn load_bytes(&mut self, params: &Parameters<'_, $E>, numbers: &Selection, bytes: &[u8]) -> Result<()> {
                $Rule::load_bytes_of(self, params, numbers, bytes)
            }
        }
    )* };
}
rule!(Sgd f32, Sgd f64, Adam f32, Adam f64);

/// A rule for one of the supported types.
pub enum AnyRule<A, B> {
    /// float32
    F32(A),
    /// float64
    F64(B),
}

/// Evaluates an expression with the rule inside an [`AnyRule`].
macro_rules! with_rule {
    ($any:expr, $rule:ident => $body:expr) => {
        match $any {
            $crate::optim::moving::AnyRule::F32($rule) => $body,
            $crate::optim::moving::AnyRule::F64($rule) => $body,
        }
    };
}
pub(super) use with_rule;

/// A rule and the numbers that it updates.
pub struct Moving<A, B> {
    /// The numbers that it updates.
    pub trained: Trained,
    /// The rule.
    pub rule: Guarded<AnyRule<A, B>>,
}

impl<A, B> HoldsObjects for Moving<A, B> {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.trained.visit(visit);
    }
}

impl<A: Rule<f32>, B: Rule<f64>> Moving<A, B> {
    /// Reads the numbers to update, and makes the rule for their dtype.
    pub fn new(
        of: &Bound<'_, PyAny>,
        narrow: impl FnOnce() -> Result<A>,
        wide: impl FnOnce() -> Result<B>,
    ) -> PyResult<Self> {
        let py = of.py();
        let trained = Trained::of(of)?;
        trained.params.get().need_kernels()?;
        let rule = match trained.params.get().dtype_of() {
            DType::Float32 => AnyRule::F32(narrow().or_raise(py)?),
            _ => AnyRule::F64(wide().or_raise(py)?),
        };
        Ok(Moving { trained, rule: Guarded::new(rule, "this optimiser") })
    }

    /// One step.
    pub fn step(&self, py: Python<'_>) -> PyResult<()> {
        self.trained.gather(py)?;
        let numbers = &self.trained.numbers;
        self.on_parameters(py, |both| match both {
            Both::F32(rule, params) => rule.step(params, numbers),
            Both::F64(rule, params) => rule.step(params, numbers),
        })?;
        self.trained.scatter(py, Kind::Data)
    }

    /// The state that determines the next steps, besides the numbers and their gradients.
    pub fn save_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        crate::convert::refusals::refuse_reading("the state of an optimiser")?;
        let (numbers, mut bytes) = (&self.trained.numbers, Vec::new());
        self.on_parameters(py, |both| {
            bytes = asked(|| match both {
                Both::F32(rule, params) => rule.to_bytes(params, numbers),
                Both::F64(rule, params) => rule.to_bytes(params, numbers),
            })?;
            Ok(())
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Restores a saved state, or changes nothing.
    pub fn load_state(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        let numbers = &self.trained.numbers;
        self.on_parameters(py, |both| {
            asked(|| match both {
                Both::F32(rule, params) => rule.load_bytes(params, numbers, state),
                Both::F64(rule, params) => rule.load_bytes(params, numbers, state),
            })
        })
    }

    fn on_parameters(&self, py: Python<'_>, f: impl FnOnce(Both<'_, A, B>) -> Result<()>) -> PyResult<()> {
        self.rule
            .with(py, |rule| {
                self.trained.params.get().with(py, |params| match (rule, params) {
                    (AnyRule::F32(rule), AnyParameters::F32(params)) => f(Both::F32(rule, params)),
                    (AnyRule::F64(rule), AnyParameters::F64(params)) => f(Both::F64(rule, params)),
                    _ => Err(mismatch()),
                })
            })??
            .or_raise(py)
    }
}

/// A rule and parameters of one type.
enum Both<'a, A, B> {
    F32(&'a mut A, &'a mut Parameters<'static, f32>),
    F64(&'a mut B, &'a mut Parameters<'static, f64>),
}

/// The state of an optimiser, and the attributes of a subclass, in pickles and copies.
pub type Saved<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyDict>>);

/// The attributes that a subclass gave an optimiser.
pub fn attributes<'py>(optimiser: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    Ok(optimiser.getattr_opt("__dict__")?.map(|found| found.cast_into()).transpose()?)
}

/// Restores them.
pub fn restore_attributes(optimiser: &Bound<'_, PyAny>, saved: Option<Bound<'_, PyDict>>) -> PyResult<()> {
    saved.iter().flatten().try_for_each(|(name, value)| optimiser.setattr(name.cast_into::<PyString>()?, value))
}
