//! The interface between an oracle and its engine, and the checks shared by both kinds.

use std::ops::Range;

use burtorch_core::draw::Draw;
use burtorch_core::oracle::{Cost, OracleMemory, Until};
use burtorch_core::params::WantedSet;
use burtorch_core::sync::Stop;
use burtorch_core::{Error, Float, Parameters};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::compress::AnyLargest;
use crate::convert::buffer::{CallerMemory, FlatArray};
use crate::convert::gc::HoldsObjects;

/// The engine of an oracle: a built-in model, or a callable.
pub trait Engine: HoldsObjects + Send + Sync {
    /// Reads a batch and checks its shape; returns the number of its samples.
    fn begin(&mut self, contexts: &Bound<'_, PyAny>, targets: &Bound<'_, PyAny>) -> PyResult<usize>;
    /// Computes with the current batch.
    fn run(&mut self, py: Python<'_>, want: Want<'_>) -> PyResult<f64>;
    /// Loss and gradient of sample `k` of the current batch.
    fn sample(&mut self, py: Python<'_>, k: usize, want: WantSample<'_>) -> PyResult<f64>;
    /// Its state between calls.
    fn memory(&self) -> OracleMemory;
    /// The current batch as NumPy arrays, which only engines have that predict times.
    fn arrays<'py>(&self, _py: Python<'py>) -> PyResult<[Bound<'py, PyAny>; 2]> {
        Err(PyValueError::new_err("this oracle predicts no times"))
    }
    /// Seconds that a call takes besides its computation, for batches of the current shape: those that were measured last.
    fn overhead(&mut self, measured: Option<f64>) -> Option<f64> {
        measured
    }
}

/// The loss of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Softmax of the outputs, against a class or probabilities.
    CrossEntropy,
    /// The mean of squared differences.
    Mse,
}

/// The result of a call for one sample, besides its loss.
pub enum WantSample<'a> {
    /// Its gradient, in this memory if given.
    Gradient(Option<CallerMemory>),
    /// The same; the parameters do not change until that of the next sample.
    Row(Option<CallerMemory>),
    /// The largest numbers of its gradient.
    Largest(&'a mut AnyLargest),
}

/// The result of a call for a batch.
pub enum Want<'a> {
    /// Loss and some numbers of the gradient, in this memory, at a point if given, and whether the loss may be omitted.
    Some(&'a WantedSet, CallerMemory, Option<CallerMemory>, bool),
    /// Loss and gradient, at a point and in memory if given, and whether the loss may be omitted.
    Gradient(Option<CallerMemory>, Option<CallerMemory>, bool),
    /// Loss and gradient, emitted in parts.
    Stream(WantStream<'a>),
    /// Loss, and the largest numbers of the gradient, at a point if given.
    Largest(Option<CallerMemory>, &'a mut AnyLargest),
    /// Loss and gradient until a token is set.
    Until(WantUntil<'a>),
    /// The predicted time of a gradient of these numbers, for the last batch if none is read.
    Cost(&'a WantedSet, &'a mut Cost),
    /// Loss and an unbiased random gradient.
    Random(WantRandom<'a>),
    /// The loss.
    Loss,
    /// The loss of each sample.
    Losses(&'a mut Vec<f64>),
    /// A step of gradient descent at this rate, unless a token is set before values move: whether that was so.
    Step(f64, Option<(&'a Stop, &'a mut bool)>),
    /// The norm of the gradient of each sample.
    Norms(&'a mut Vec<f64>),
}

/// Receives a range of parameters with a final gradient, and a copy of it if it is not kept; returns whether to continue.
pub type Take<'a> = dyn FnMut(Range<usize>, Option<FlatArray>) -> bool + Send + 'a;

/// A gradient in parts.
pub struct WantStream<'a> {
    pub at: Option<CallerMemory>,
    pub out: Option<CallerMemory>,
    /// Whether the gradient stays in the memory where it is written.
    pub keeps: bool,
    pub take: &'a mut Take<'a>,
}

/// A gradient, or some numbers of it, until a token is set.
pub struct WantUntil<'a> {
    pub wanted: Option<&'a WantedSet>,
    pub at: Option<CallerMemory>,
    pub out: Option<CallerMemory>,
    pub until: Until<'a>,
    /// The number of finished samples; None if nothing is kept.
    pub n: &'a mut Option<usize>,
}

/// A gradient whose layers sample their inputs.
pub struct WantRandom<'a> {
    pub at: Option<CallerMemory>,
    pub out: Option<CallerMemory>,
    /// The probability of an input.
    pub p: f64,
    pub draw: Draw<'a>,
    /// The variance of the gradient.
    pub variance: &'a mut f64,
}

/// Refuses memory with two uses.
pub fn check_apart<E: Float>(
    params: &Parameters<'_, E>,
    at: Option<&CallerMemory>,
    out: Option<&CallerMemory>,
) -> Result<(), Error> {
    let shares =
        |memory: &CallerMemory| memory.overlaps_numbers(params.values()) || memory.overlaps_numbers(params.grads());
    let taken = out.is_some_and(|out| shares(out) || at.is_some_and(|at| at.overlaps(out)));
    if taken || at.is_some_and(|at| at.overlaps_numbers(params.grads())) {
        return Err(Error::BadArgument {
            what: "memory for an oracle",
            expected: "memory apart from the gradients and, for out, from the values and the point".into(),
            found: "memory that overlaps".into(),
        });
    }
    Ok(())
}
