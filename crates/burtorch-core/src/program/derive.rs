//! Derivatives beyond one gradient: directions, products with the Hessian, Jacobians and Hessians.
//!
//! Eight directions (or eight outputs, or eight columns of the Hessian) are the lanes of one run. A Hessian is the reverse
//! pass on dual numbers: forward over reverse.
//!
//! Promises: derivatives agree with those of the reverse pass, also at kinks, because tangents are computed from the same
//! rows of the op table. Where a zero seed meets an infinite partial (0 * inf), a Jacobian's rows are computed one by
//! one instead, each on its own nodes. All numbers are f64. Does not know guards: the caller has chosen the program.

use super::build::{Build, Seeds};
use super::node::{Parts, Program};
use super::passes;
use super::replay::Replay;
use crate::error::{Error, Result};
use crate::interrupt::{self, Work};
use crate::ops::Dual;
use crate::scalar::{RowMath, Scalar};
use crate::simd::F64x8;

/// Directions in one run.
pub const LANES: usize = 8;

/// A function's derivative along a direction.
#[derive(Debug)]
pub struct Along(Replay<f64, 1>);

impl Along {
    /// Prepares a program.
    pub fn new(program: &Program) -> Result<Self> {
        Replay::new(program, Build::ValuesWithTangents).map(Along)
    }

    /// Values of all outputs and their derivatives at `x` (all inputs) along `direction` (those that are differentiated).
    pub fn run(&mut self, x: &[f64], direction: &[f64], values: &mut [f64], tangents: &mut [f64]) {
        self.0.inputs_mut().copy_from_slice(x);
        self.0.directions_mut().copy_from_slice(direction);
        self.0.values();
        for k in 0..self.0.n_outputs() {
            values[k] = self.0.output(k, 0);
            tangents[k] = self.0.output_tangent(k, 0);
        }
    }
}

/// A vector times the Jacobian of a function.
#[derive(Debug)]
pub struct Against(Replay<f64, 1>);

impl Against {
    /// Prepares a program.
    pub fn new(program: &Program) -> Result<Self> {
        Replay::new(program, Build::Reverse(Seeds::All)).map(Against)
    }

    /// Values of all outputs at `x`.
    pub fn values(&mut self, x: &[f64], values: &mut [f64]) {
        self.0.inputs_mut().copy_from_slice(x);
        self.0.values();
        for (k, value) in values.iter_mut().enumerate() {
            *value = self.0.output(k, 0);
        }
    }

    /// The gradient of the sum of outputs weighted by `seeds`, at the `x` of the last call of [`Against::values`].
    pub fn pull(&mut self, seeds: &[f64], gradient: &mut [f64]) {
        self.0.reverse(seeds);
        for (k, g) in gradient.iter_mut().enumerate() {
            *g = self.0.gradient(k, 0);
        }
    }
}

/// The Hessian of the first output times a direction.
#[derive(Debug)]
pub struct HessianAlong(Replay<Dual<f64>, 1>);

impl HessianAlong {
    /// Prepares a program.
    pub fn new(program: &Program) -> Result<Self> {
        Replay::new(program, Build::Reverse(Seeds::One(0))).map(HessianAlong)
    }

    /// The Hessian at `x` times `direction`; the gradient goes to `gradient`.
    pub fn run(&mut self, x: &[f64], direction: &[f64], gradient: &mut [f64], product: &mut [f64]) {
        let moving = direction.iter().copied().chain(std::iter::repeat(0.0));
        for ((slot, &x), d) in self.0.inputs_mut().iter_mut().zip(x).zip(moving) {
            *slot = Dual::new(x, d);
        }
        self.0.values();
        self.0.reverse_one();
        for (k, (g, p)) in gradient.iter_mut().zip(product).enumerate() {
            let both = self.0.gradient(k, 0);
            (*g, *p) = (both.v, derivative_of(both));
        }
    }
}

/// Eight columns of a Hessian, or of a compressed one, at once.
#[derive(Debug)]
pub struct HessianColumns(Replay<Dual<F64x8>, 1>);

impl HessianColumns {
    /// Prepares a program.
    pub fn new(program: &Program) -> Result<Self> {
        Replay::new(program, Build::Reverse(Seeds::One(0))).map(HessianColumns)
    }

    /// For each of `n_columns` directions, calls `take(column, input, entry)` with the product of the Hessian at `x`
    /// and the direction. `direction(column, input)` is the component of a direction. Interruptible.
    pub fn run(
        &mut self,
        x: &[f64],
        n_columns: usize,
        direction: impl Fn(usize, usize) -> f64,
        mut take: impl FnMut(usize, usize, f64),
    ) -> Result<()> {
        let mut work = Work::default();
        let n = self.0.raw_gradients().len();
        for first in (0..n_columns).step_by(LANES) {
            let lanes = LANES.min(n_columns - first);
            for (j, (slot, &x)) in self.0.inputs_mut().iter_mut().zip(x).enumerate() {
                let moving = |lane: usize| if lane < lanes && j < n { direction(first + lane, j) } else { 0.0 };
                *slot = Dual::new(F64x8::lit(x), F64x8::from_array(std::array::from_fn(moving)));
            }
            self.0.values();
            self.0.reverse_one();
            work.add(LANES * (n + self.0.n_instructions()))?;
            for j in 0..n {
                let entries = derivative_of(self.0.gradient(j, 0));
                for lane in 0..lanes {
                    take(first + lane, j, entries.lane(lane));
                }
            }
        }
        Ok(())
    }
}

/// The derivative of a partial: NaN has none.
fn derivative_of<S: Scalar>(partial: Dual<S>) -> S {
    S::select(partial.v.nan_mask(), partial.v, partial.d)
}

pub(super) fn are_finite(all: &[f64]) -> Result<bool> {
    let found = interrupt::pieces(all.len()).all(|piece| all[piece].iter().all(|x| x.is_finite()));
    interrupt::check().map(|()| found)
}

/// How a Jacobian is computed.
#[derive(Debug)]
pub enum Jacobian {
    /// Eight columns at a time.
    Forward(Replay<F64x8, 1>),
    /// Eight rows at a time.
    Reverse(Replay<F64x8, 1>),
}

impl Jacobian {
    /// The cheaper way: columns cost about two thirds of rows.
    pub fn new(program: &Program) -> Result<Self> {
        let (columns, rows) = (program.n_differentiated(), program.outputs().len());
        if 2 * columns.div_ceil(LANES) <= 3 * rows.div_ceil(LANES) {
            Self::forward(program)
        } else {
            Replay::new(program, Build::Reverse(Seeds::All)).map(Jacobian::Reverse)
        }
    }

    /// By columns.
    pub fn forward(program: &Program) -> Result<Self> {
        Replay::new(program, Build::Tangent).map(Jacobian::Forward)
    }

    /// By rows.
    pub fn reverse(program: &Program) -> Result<Self> {
        Replay::new(program, Build::Reverse(Seeds::All)).map(Jacobian::Reverse)
    }

    /// Writes the Jacobian at `x` by rows, one per output. Returns whether every entry is finite. Interruptible.
    pub fn run(&mut self, x: &[f64], to: &mut [f64]) -> Result<bool> {
        match self {
            Jacobian::Forward(replay) => {
                let n = replay.directions_mut().len();
                columns(replay, x, n, |c, j| f64::from(u8::from(c == j)), |i, c, entry| to[i * n + c] = entry)?;
            }
            Jacobian::Reverse(replay) => rows(replay, x, to)?,
        }
        are_finite(to)
    }
}

/// For each of `n_columns` directions, calls `take(output, column, entry)`. Interruptible.
pub fn columns(
    replay: &mut Replay<F64x8, 1>,
    x: &[f64],
    n_columns: usize,
    direction: impl Fn(usize, usize) -> f64,
    mut take: impl FnMut(usize, usize, f64),
) -> Result<()> {
    let mut work = Work::default();
    for (slot, &x) in replay.inputs_mut().iter_mut().zip(x) {
        *slot = F64x8::lit(x);
    }
    replay.values();
    for first in (0..n_columns).step_by(LANES) {
        let lanes = LANES.min(n_columns - first);
        for (j, slot) in replay.directions_mut().iter_mut().enumerate() {
            let moving = |lane: usize| if lane < lanes { direction(first + lane, j) } else { 0.0 };
            *slot = F64x8::from_array(std::array::from_fn(moving));
        }
        replay.tangents();
        work.add(LANES * (replay.n_outputs() + replay.n_instructions()))?;
        for output in 0..replay.n_outputs() {
            let entries = replay.output_tangent(output, 0);
            for lane in 0..lanes {
                take(output, first + lane, entries.lane(lane) + 0.0);
            }
        }
    }
    Ok(())
}

fn rows(replay: &mut Replay<F64x8, 1>, x: &[f64], to: &mut [f64]) -> Result<()> {
    let mut work = Work::default();
    for (slot, &x) in replay.inputs_mut().iter_mut().zip(x) {
        *slot = F64x8::lit(x);
    }
    replay.values();
    let (m, n) = (replay.n_outputs(), replay.raw_gradients().len());
    let mut seeds = vec![F64x8::lit(0.0); m];
    for first in (0..m).step_by(LANES) {
        let lanes = LANES.min(m - first);
        for (i, seed) in seeds.iter_mut().enumerate() {
            *seed = F64x8::from_array(std::array::from_fn(|lane| f64::from(u8::from(first + lane == i))));
        }
        replay.reverse(&seeds);
        work.add(LANES * (m + n + replay.n_instructions()))?;
        for j in 0..n {
            let entries = replay.gradient(j, 0);
            for lane in 0..lanes {
                to[(first + lane) * n + j] = entries.lane(lane);
            }
        }
    }
    Ok(())
}

/// The program of one output alone, with nothing that only the others need.
pub fn of_one_output(program: &Program, output: usize) -> Result<Program> {
    let (dtype, parts) = program.clone().into_parts();
    let kept = parts.outputs.get(output).copied();
    let outputs = vec![kept.ok_or(Error::OutOfRange {
        what: "output",
        found: output as u64,
        max: parts.outputs.len() as u64 - 1,
    })?];
    passes::without_dead_code(Program::new(dtype, Parts { outputs, guards: Vec::new(), ..parts })?)
}

/// The replay for the gradient of one output, on its own nodes.
pub fn reverse_of(program: &Program, output: usize) -> Result<Replay<f64, 1>> {
    Replay::new(&of_one_output(program, output)?, Build::Reverse(Seeds::One(0)))
}

/// Computes that gradient at `x`.
pub fn run_reverse(replay: &mut Replay<f64, 1>, x: &[f64]) {
    replay.inputs_mut().copy_from_slice(x);
    replay.values();
    replay.reverse_one();
}

/// The gradient of one output at `x`, on its own nodes: correct even if partials of other nodes are infinite.
pub fn row_alone(program: &Program, output: usize, x: &[f64], to: &mut [f64]) -> Result<()> {
    let mut replay = reverse_of(program, output)?;
    run_reverse(&mut replay, x);
    for (k, g) in to.iter_mut().enumerate() {
        *g = replay.gradient(k, 0);
    }
    Ok(())
}
