//! Programs of a value and a gradient, which pass the gradient on in parts while they run.
//!
//! Promises: runs without the GIL, so that other threads can take parts meanwhile. Does not know who takes them.

use std::ops::Range;

use burtorch_core::array::{ArrayProgram, Floats, PassingPlan};
use burtorch_core::{DType, Float};
use pyo3::prelude::*;

use super::arguments::Given;
use super::run::{Number, Read, Rooms};
use crate::convert::errors::IntoPython;
use crate::convert::signals::asked;
use crate::convert::threads::detached;

/// Receives a range and its gradient, to which 0 is to be added; returns whether to go on.
pub type TakeFloats<'a> = dyn FnMut(Range<usize>, Floats<'_>) -> bool + Send + 'a;

/// A plan that passes its gradient on, and its buffers.
pub struct PartsRunner<E> {
    plan: PassingPlan<E>,
    rooms: Rooms<E>,
}

/// The same of either float type.
pub enum AnyParts {
    /// float64
    F64(Box<PartsRunner<f64>>),
    /// float32
    F32(Box<PartsRunner<f32>>),
}

impl<E: Number> PartsRunner<E> {
    fn new(program: &ArrayProgram) -> burtorch_core::Result<Option<Box<Self>>> {
        Ok(E::passing_plan(program)?.map(|plan| Box::new(PartsRunner { plan, rooms: Rooms::new(program) })))
    }

    fn run(
        &mut self,
        py: Python<'_>,
        given: &[Given<'_>],
        read: Read<'_>,
        take: &mut TakeFloats<'_>,
        floats: fn(&[E]) -> Floats<'_>,
    ) -> PyResult<f64> {
        let PartsRunner { plan, rooms } = self;
        rooms.filled(py, given, read, true, |arguments, parameters| {
            let run = || E::run_passing(plan, arguments, parameters, &mut |range, part| take(range, floats(part)));
            detached(py, || asked(run)).map(Float::to_f64).or_raise(py)
        })
    }
}

impl AnyParts {
    /// Plans a program. `None` if its gradient is not put together of parts. May be interrupted.
    pub fn new(py: Python<'_>, program: &ArrayProgram) -> PyResult<Option<Self>> {
        let made = asked(|| {
            Ok(match program.dtype() {
                DType::Float32 => PartsRunner::new(program)?.map(AnyParts::F32),
                _ => PartsRunner::new(program)?.map(AnyParts::F64),
            })
        });
        made.or_raise(py)
    }

    /// Runs the program on these arguments and on the current values of its other inputs; returns the value.
    pub fn run(
        &mut self,
        py: Python<'_>,
        given: &[Given<'_>],
        read: Read<'_>,
        take: &mut TakeFloats<'_>,
    ) -> PyResult<f64> {
        match self {
            AnyParts::F64(runner) => runner.run(py, given, read, take, |x| Floats::F64(x)),
            AnyParts::F32(runner) => runner.run(py, given, read, take, |x| Floats::F32(x)),
        }
    }

    /// The ranges of the parts, in ascending order.
    pub fn ranges(&self) -> &[Range<usize>] {
        match self {
            AnyParts::F64(runner) => runner.plan.ranges(),
            AnyParts::F32(runner) => runner.plan.ranges(),
        }
    }

    /// Bytes of its buffers.
    pub fn bytes(&self) -> usize {
        match self {
            AnyParts::F64(runner) => runner.plan.bytes(),
            AnyParts::F32(runner) => runner.plan.bytes(),
        }
    }
}
