//! Operations of a callable's oracle on its parameters, for each type.
//!
//! Promises: memory of the caller is checked before it is written to. Knows nothing of callables.

use std::ops::Range;

use burtorch_core::kernels::{add_to, sgd_update, sum_squares};
use burtorch_core::params::WantedSet;
use burtorch_core::{Error, Float, LaneFloat, Parameters};
use pyo3::prelude::*;

use super::engine::check_apart;
use crate::array::run::Number;
use crate::convert::buffer::CallerMemory;
use crate::convert::errors::IntoPython;
use crate::params::{AnyParameters, PyParameters, mismatch};
use crate::trace::array_path::ArrayPath;

/// Evaluates an expression on parameters of a type that oracles support.
macro_rules! with_kernel_params {
    ($any:expr, $params:ident => $body:expr) => {
        match $any {
            AnyParameters::F32($params) => $body,
            AnyParameters::F64($params) => $body,
            _ => Err(mismatch()),
        }
    };
}

/// A function of Parameters.
pub(super) fn in_params<R>(
    params: &Py<PyParameters>,
    py: Python<'_>,
    f: impl FnOnce(&mut dyn KernelParameters) -> burtorch_core::Result<R>,
) -> PyResult<R> {
    params.get().with(py, |params| with_kernel_params!(params, p => f(p)))?.or_raise(py)
}

/// Operations of a callable's oracle on its parameters, for each type.
pub trait KernelParameters {
    /// Overwrites the gradients, or those in `out`, with those of a program; returns its loss.
    fn write(&mut self, path: &ArrayPath, out: Option<&mut CallerMemory>) -> burtorch_core::Result<f64>;
    /// Writes the gradients of several samples that a program has computed; returns their losses.
    fn write_rows(&self, path: &ArrayPath, rows: &mut CallerMemory) -> burtorch_core::Result<Vec<f64>>;
    /// Overwrites the gradients, or those in `out`, with row `k`.
    fn take_row(&mut self, rows: &CallerMemory, k: usize, out: Option<&mut CallerMemory>) -> burtorch_core::Result<()>;
    /// Refuses a point or memory of another length, or memory in use.
    fn check(&self, at: Option<&CallerMemory>, out: Option<&CallerMemory>) -> burtorch_core::Result<()>;
    /// Refuses arguments that do not fit a gradient of some parameters; returns the number of parameters.
    fn check_some(
        &self,
        wanted: &WantedSet,
        at: Option<&CallerMemory>,
        out: &CallerMemory,
    ) -> burtorch_core::Result<usize>;
    /// Writes the wanted numbers of a gradient, or the whole gradient if the memory is large enough.
    fn take_some(&self, wanted: &WantedSet, all: &CallerMemory, out: &mut CallerMemory) -> burtorch_core::Result<()>;
    /// Writes a gradient to its place, or to `out`.
    fn take(&mut self, all: &CallerMemory, out: Option<&mut CallerMemory>) -> burtorch_core::Result<()>;
    /// Writes a point to the values; returns the earlier ones.
    fn exchange(&mut self, point: &CallerMemory) -> burtorch_core::Result<Vec<f64>>;
    /// Restores the result of [`KernelParameters::exchange`].
    fn put_back(&mut self, before: &[f64]);
    /// Sets the gradients to 0, or those in `out`.
    fn zero(&mut self, out: Option<&mut CallerMemory>);
    /// Exchanges the gradients with those in memory.
    fn exchange_gradients(&mut self, with: &mut CallerMemory) -> burtorch_core::Result<()>;
    /// Adds a gradient to the numbers in `out`.
    fn add(&self, gradient: &CallerMemory, out: &mut CallerMemory) -> burtorch_core::Result<()>;
    /// One step of gradient descent.
    fn descend(&mut self, lr: f64) -> burtorch_core::Result<()>;
    /// The norm of the gradients.
    fn grad_norm(&self) -> burtorch_core::Result<f64>;
}

/// The ranges that are trained.
fn trained<E: Float>(params: &Parameters<'_, E>) -> Vec<Range<usize>> {
    let mut trained = Vec::new();
    params.for_each_trainable(|range| trained.push(range));
    trained
}

/// Writes a gradient, with 0 for frozen numbers.
fn write_trained<E: Float>(trained: &[Range<usize>], gradient: &[E], to: &mut [E]) -> burtorch_core::Result<()> {
    if gradient.len() != to.len() {
        return Err(Error::LengthMismatch { op: "a gradient", left: to.len(), right: gradient.len() });
    }
    let mut at = 0;
    for range in trained {
        to[at..range.start].fill(E::from_f64(0.0));
        to[range.clone()].copy_from_slice(&gradient[range.clone()]);
        at = range.end;
    }
    to[at..].fill(E::from_f64(0.0));
    Ok(())
}

impl<E: LaneFloat + Number> KernelParameters for Parameters<'static, E> {
    fn write(&mut self, path: &ArrayPath, out: Option<&mut CallerMemory>) -> burtorch_core::Result<f64> {
        let (Some([loss]), Some(gradient)) = (path.floats::<E>(0), path.floats::<E>(1)) else {
            return Err(Error::MissingParameters);
        };
        let trained = trained(self);
        let to = match out {
            Some(out) => out.slice_mut(),
            None => self.grads_mut(),
        };
        write_trained(&trained, gradient, to)?;
        Ok(loss.to_f64())
    }

    fn write_rows(&self, path: &ArrayPath, rows: &mut CallerMemory) -> burtorch_core::Result<Vec<f64>> {
        let (Some(losses), Some(gradients)) = (path.floats::<E>(0), path.floats::<E>(1)) else {
            return Err(Error::MissingParameters);
        };
        let (trained, n) = (trained(self), self.len());
        if gradients.len() != losses.len() * n {
            return Err(Error::LengthMismatch { op: "gradients", left: losses.len() * n, right: gradients.len() });
        }
        let rows = rows.slice_mut::<E>().chunks_exact_mut(n).zip(gradients.chunks_exact(n));
        rows.into_iter().try_for_each(|(to, gradient)| write_trained(&trained, gradient, to))?;
        Ok(losses.iter().map(|x| x.to_f64()).collect())
    }

    fn take_row(&mut self, rows: &CallerMemory, k: usize, out: Option<&mut CallerMemory>) -> burtorch_core::Result<()> {
        let n = self.len();
        let to = match out {
            Some(out) => out.slice_mut(),
            None => self.grads_mut(),
        };
        to.copy_from_slice(&rows.slice::<E>()[k * n..(k + 1) * n]);
        Ok(())
    }

    fn check(&self, at: Option<&CallerMemory>, out: Option<&CallerMemory>) -> burtorch_core::Result<()> {
        check_apart(self, at, out)?;
        for (op, memory) in [("a point (parameters and numbers)", at), ("out (parameters and numbers)", out)] {
            if let Some(found) = memory.map(|memory| memory.slice::<E>().len()).filter(|&n| n != self.len()) {
                return Err(Error::LengthMismatch { op, left: self.len(), right: found });
            }
        }
        Ok(())
    }

    fn check_some(
        &self,
        wanted: &WantedSet,
        at: Option<&CallerMemory>,
        out: &CallerMemory,
    ) -> burtorch_core::Result<usize> {
        self.check(at, None)?;
        check_apart(self, at, Some(out))?;
        wanted.check_room(self, out.slice::<E>())?;
        Ok(self.len())
    }

    fn take_some(&self, wanted: &WantedSet, all: &CallerMemory, out: &mut CallerMemory) -> burtorch_core::Result<()> {
        wanted.check_room(self, out.slice::<E>())?;
        let (all, out) = (all.slice::<E>(), out.slice_mut());
        if out.len() == all.len() {
            out.copy_from_slice(all)
        } else {
            wanted.pick(all, out)
        }
        Ok(())
    }

    fn take(&mut self, all: &CallerMemory, out: Option<&mut CallerMemory>) -> burtorch_core::Result<()> {
        let to = match out {
            Some(out) => out.slice_mut(),
            None => self.grads_mut(),
        };
        to.copy_from_slice(all.slice::<E>());
        Ok(())
    }

    fn exchange(&mut self, point: &CallerMemory) -> burtorch_core::Result<Vec<f64>> {
        let mut before = Vec::new();
        let bytes = 8 * self.len();
        before.try_reserve_exact(self.len()).map_err(|_| Error::OutOfMemory { bytes, what: "a copy of the values" })?;
        before.extend(self.values().iter().map(|x| x.to_f64()));
        self.values_mut().copy_from_slice(point.slice());
        Ok(before)
    }

    fn put_back(&mut self, before: &[f64]) {
        for (value, &x) in self.values_mut().iter_mut().zip(before) {
            *value = E::from_f64(x);
        }
    }

    fn zero(&mut self, out: Option<&mut CallerMemory>) {
        match out {
            Some(out) => out.slice_mut().fill(E::from_f64(0.0)),
            None => self.zero_grad(),
        }
    }

    fn exchange_gradients(&mut self, with: &mut CallerMemory) -> burtorch_core::Result<()> {
        self.grads_mut().swap_with_slice(with.slice_mut());
        Ok(())
    }

    fn add(&self, gradient: &CallerMemory, out: &mut CallerMemory) -> burtorch_core::Result<()> {
        add_to(gradient.slice::<E>(), out.slice_mut());
        Ok(())
    }

    fn descend(&mut self, lr: f64) -> burtorch_core::Result<()> {
        self.for_each_trainable_mut(|_, x, g| sgd_update(E::from_f64(lr), g, x));
        Ok(())
    }

    fn grad_norm(&self) -> burtorch_core::Result<f64> {
        Ok(sum_squares(self.grads()).to_f64().sqrt())
    }
}
