//! Functions of a batch, made of a function of one sample, for oracles.
//!
//! Promises: the function of a sample runs once for each combination of shapes and dtypes, as that of any Function does; what it
//! cannot be traced for is refused with its error, and the caller goes another way. Knows nothing of oracles.

use burtorch_core::array::OverRows;
use pyo3::prelude::*;

use super::array_calls::{Running, call_by};
use super::array_path::ArrayPath;
use super::object::Call;
use super::transform::{Argnums, Rule, Transform};
use super::transforms::{function, transform};
use crate::array::trace::current;
use crate::convert::errors::derived;
use crate::convert::gc::{HoldsObjects, Visitor};

/// Functions of samples that lie along the first axes of two arrays.
pub struct Batches {
    /// The total of the results, and its gradient by all Parameters.
    gradient: Py<PyAny>,
    /// The total alone.
    total: Py<PyAny>,
    /// The result of each sample.
    each: Py<PyAny>,
    /// The result of each sample, and its gradient by all Parameters.
    gradients: Py<PyAny>,
}

/// What is wanted of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The total, then its gradient by all Parameters.
    Gradient,
    /// The total.
    Total,
    /// The result of each sample.
    Each,
    /// The result of each sample, then its gradient by all Parameters.
    Gradients,
}

impl HoldsObjects for Batches {
    fn visit(&self, visit: &mut Visitor<'_>) {
        visit(&self.gradient);
        visit(&self.total);
        visit(&self.each);
        visit(&self.gradients);
    }
}

/// Shapes that are kept: batches may have many sizes.
const SHAPES: usize = 64;

impl Batches {
    /// Of a function of one sample.
    pub fn new(f: &Bound<'_, PyAny>, over: OverRows) -> PyResult<Self> {
        let rows_of = |f: &Bound<'_, PyAny>, reduce| -> PyResult<Transform> {
            let zero = || Ok::<_, PyErr>(0_isize.into_pyobject(f.py())?.into_any().unbind());
            let rule = Rule::Vmap { in_axes: zero()?, out_axes: zero()?, reduce };
            transform(f, "vmap", rule, Argnums::All, false)
        };
        let rows = |reduce| rows_of(f, reduce);
        let made = |transform| -> PyResult<Py<PyAny>> {
            let function = function(f, transform)?;
            Call::of(function.clone()).with(|state| {
                state.options.is_quiet = true;
                state.options.max_variants = SHAPES;
            })?;
            Ok(function.unbind())
        };
        let total = Bound::new(f.py(), rows(Some(over))?)?.into_any();
        let of_params = |f| transform(f, "value_and_param_grad", Rule::ParamGrad, Argnums::All, false);
        let of_one = Bound::new(f.py(), of_params(f)?)?.into_any();
        Ok(Batches {
            gradient: made(of_params(&total)?)?,
            total: made(rows(Some(over))?)?,
            each: made(rows(None)?)?,
            gradients: made(rows_of(&of_one, None)?)?,
        })
    }

    /// Bytes of the programs' buffers.
    pub fn bytes(&self, py: Python<'_>) -> usize {
        let of = |function: &Py<PyAny>| {
            let call = Call::of(function.bind(py).clone());
            call.with(|state| state.arrays.iter().flat_map(|v| &v.paths).map(ArrayPath::bytes).sum()).unwrap_or(0)
        };
        [&self.gradient, &self.total, &self.each, &self.gradients].into_iter().map(of).sum::<usize>()
    }

    /// Computes it for a batch, whose second array may be None, by running paths so; `take` looks at the one that was right.
    pub fn call_by<'py, T>(
        &self,
        of: Of,
        [x, y]: [&Bound<'py, PyAny>; 2],
        by: Running<'_>,
        take: &mut dyn FnMut(&mut ArrayPath) -> PyResult<T>,
    ) -> PyResult<T> {
        let py = x.py();
        let function = match of {
            Of::Gradient => &self.gradient,
            Of::Total => &self.total,
            Of::Each => &self.each,
            Of::Gradients => &self.gradients,
        };
        let positional = if y.is_none() { vec![x.clone()] } else { vec![x.clone(), y.clone()] };
        let call = Call { positional, ..Call::of(function.bind(py).clone()) };
        let is_watched = |call: &Call<'_>| call.with(|state| state.unwatched.is_empty());
        if current(py).is_some() || !is_watched(&call)? {
            return Err(derived(py, "TraceError", "this is computed sample by sample".into()));
        }
        call_by(&call, by, &mut |path| {
            if is_watched(&call)? {
                return take(path);
            }
            Err(derived(py, "TraceError", "the function reads a source that cannot be watched".into()))
        })
    }
}
