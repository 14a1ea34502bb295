//! The common part of all methods: the iterate, draws, counts, and steps that are complete or undone.
//!
//! A [`Runner`] owns a method and its iterate. A step has two parts: [`Method::propose`] computes everything except the state,
//! and may fail or be interrupted; [`Method::commit`] stores it and cannot fail. Promises: after an error, including a
//! step whose result is not finite, the last iterate and all state are unchanged; no heap call after warm-up.

use std::sync::Arc;

use super::kept::Vectors;
use super::prox::Prox;
use super::terms::{FiniteSum, Samples, Workspace};
use crate::draw::{Draw, Purpose};
use crate::error::{Error, Result};
use crate::kernels;
use crate::memory;

/// Given choices that replace draws.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choices<'a> {
    /// The batch, or the clients that take part.
    pub batch: Option<&'a [u32]>,
    /// Whether the rare event of the method happens: a full gradient, a new reference point, a communication.
    pub coin: Option<bool>,
    /// Uniform numbers for the compressor of each client.
    pub compression: Option<&'a [Vec<f64>]>,
    /// Clients of the cohort that drop out. Only methods with cohorts support this.
    pub missing: &'a [u32],
}

/// The cost of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Gradients of single samples; a difference of two counts as two.
    pub oracle_calls: u64,
    /// Numbers sent by clients, in the bits that theory counts.
    pub bits_up: f64,
    /// Numbers sent to clients, in bits.
    pub bits_down: f64,
    /// Bytes of the clients' messages as they are encoded.
    pub wire_bytes: u64,
    /// Whether clients and server exchanged anything.
    pub rounds: u64,
    /// Seconds of a virtual clock.
    pub time: f64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, more: Cost) {
        self.oracle_calls += more.oracle_calls;
        self.bits_up += more.bits_up;
        self.bits_down += more.bits_down;
        self.wire_bytes += more.wire_bytes;
        self.rounds += more.rounds;
        self.time += more.time;
    }
}

/// The environment of a step besides the method's own state.
#[derive(Debug)]
pub struct Env<'a> {
    /// The problem.
    pub problem: &'a FiniteSum,
    /// The step size of this step.
    pub step: f64,
    /// The proximal operator.
    pub prox: Prox,
    /// Seed of all draws.
    pub seed: u64,
    /// Steps before this one.
    pub round: u64,
    /// Threads for gradients and clients.
    pub threads: usize,
    /// Given choices that replace draws.
    pub choices: Choices<'a>,
    /// Memory of gradients.
    pub workspace: &'a mut Workspace,
    /// Memory of projections.
    pub scratch: &'a mut Vec<f64>,
    /// Whether the next iterate, as [`Env::descend`] left it, is known to be finite.
    pub next_is_finite: bool,
}

impl Env<'_> {
    /// Whether an event of probability `p` happens in this step.
    pub fn coin(&self, p: f64) -> bool {
        let drawn = || Draw::new(self.seed, self.round, 0, Purpose::Method).happens(p);
        self.choices.coin.unwrap_or_else(drawn)
    }

    /// Sets `out` to the weighted sum of gradients at `x`, minus those at `minus`.
    pub fn grad(&mut self, x: &[f64], minus: Option<&[f64]>, samples: Samples<'_>, out: &mut [f64]) -> Result<()> {
        out.fill(0.0);
        self.problem.grad(x, minus, samples, self.threads, self.workspace, out)
    }

    /// Sets `out` to the difference of weighted sums of gradients at two points, plus `base`.
    pub fn grad_from(
        &mut self,
        points: [&[f64]; 2],
        base: &[f64],
        samples: Samples<'_>,
        out: &mut [f64],
    ) -> Result<()> {
        self.problem.grad_from(points, base, samples, self.threads, self.workspace, out)
    }

    /// Sets `out` to the gradient at `x`.
    pub fn full_grad(&mut self, x: &[f64], out: &mut [f64]) -> Result<()> {
        self.grad(x, None, Samples::mean(self.problem.all()), out)
    }

    /// An error if there is a proximal term.
    pub fn without_prox(&self) -> Result<()> {
        if self.prox == Prox::Zero {
            return Ok(());
        }
        let expected = "zero for this method".into();
        Err(Error::BadArgument { what: "prox", expected, found: "another".into() })
    }

    /// `next = prox(x - step g)`, which the method leaves as it is.
    pub fn descend(&mut self, x: &[f64], g: &[f64], next: &mut [f64]) -> Result<()> {
        self.next_is_finite = kernels::descend(self.step, g, x, next) && self.prox == Prox::Zero;
        self.prox.apply(self.step, next, self.scratch)
    }
}

/// A named part of a method's state, all of which decides its next steps.
pub type Part<'a> = (&'static str, &'a mut [f64]);

/// A method: how an iterate becomes the next.
pub trait Method: Send + Sync {
    /// Initialises the state of a method that starts at `x`.
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost>;
    /// Computes the next iterate and the other changes, separately from the state.
    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost>;
    /// Makes the proposed changes.
    fn commit(&mut self);
    /// The state, except the clients' vectors.
    fn parts(&mut self) -> Vec<Part<'_>>;
    /// The clients' vectors, by name.
    fn kept(&mut self) -> Vec<(&'static str, &mut dyn Vectors)> {
        Vec::new()
    }
    /// The last batch, and the result of the coin.
    fn drawn(&self) -> (&[u32], Option<bool>);
}

/// `n` zeros.
pub(super) fn zeros(n: usize) -> Result<Vec<f64>> {
    memory::filled(0.0, n, "the state of a method")
}

/// A method at work on a problem.
pub struct Runner {
    problem: Arc<FiniteSum>,
    method: Box<dyn Method>,
    x: Vec<f64>,
    next: Vec<f64>,
    prox: Prox,
    seed: u64,
    round: u64,
    threads: usize,
    /// The weight of each sample in the value, unless all are equal.
    weights: Option<Vec<f64>>,
    cost: Cost,
    workspace: Workspace,
    scratch: Vec<f64>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runner(round={}, {:?})", self.round, self.problem)
    }
}

fn check_step(step: f64) -> Result<()> {
    if step > 0.0 && step.is_finite() {
        return Ok(());
    }
    Err(Error::BadArgument { what: "a step", expected: "finite and above 0".into(), found: step.to_string() })
}

impl Runner {
    /// Puts a method at `x`.
    pub fn new(
        problem: Arc<FiniteSum>,
        method: Box<dyn Method>,
        x: &[f64],
        prox: Prox,
        seed: u64,
        threads: usize,
    ) -> Result<Self> {
        if x.len() != problem.d() {
            return Err(Error::LengthMismatch { op: "a method", left: problem.d(), right: x.len() });
        }
        super::rows::check_finite(x, "the first point")?;
        let x = memory::copied(x, "an iterate")?;
        let (prox, next) = (prox.checked()?, zeros(x.len())?);
        let mut new = Runner {
            problem,
            method,
            x,
            next,
            prox,
            seed,
            round: 0,
            threads,
            weights: None,
            cost: Cost::default(),
            workspace: Workspace::default(),
            scratch: Vec::new(),
        };
        let (method, mut env, x, _) = new.parts_of_a_step(1.0, Choices::default());
        let cost = method.start(&mut env, x)?;
        new.cost = cost;
        Ok(new)
    }

    /// The method, its environment, the iterate, and memory for the next.
    fn parts_of_a_step<'a>(
        &'a mut self,
        step: f64,
        choices: Choices<'a>,
    ) -> (&'a mut dyn Method, Env<'a>, &'a [f64], &'a mut [f64]) {
        let env = Env {
            problem: &self.problem,
            step,
            prox: self.prox,
            seed: self.seed,
            round: self.round,
            threads: self.threads,
            choices,
            workspace: &mut self.workspace,
            scratch: &mut self.scratch,
            next_is_finite: false,
        };
        (&mut *self.method, env, &self.x, &mut self.next)
    }

    /// Takes a step of this size. After an error nothing has changed.
    pub fn step(&mut self, step: f64, choices: Choices<'_>) -> Result<()> {
        check_step(step)?;
        let (method, mut env, x, next) = self.parts_of_a_step(step, choices);
        let cost = method.propose(&mut env, x, next)?;
        if !env.next_is_finite && !kernels::all_finite(&self.next) {
            return Err(Error::Diverged { round: self.round + 1 });
        }
        // The output of an interrupted kernel must not become the state.
        crate::interrupt::check()?;
        std::mem::swap(&mut self.x, &mut self.next);
        self.method.commit();
        self.cost += cost;
        self.round += 1;
        Ok(())
    }

    /// The iterate.
    pub fn x(&self) -> &[f64] {
        &self.x
    }

    /// The problem.
    pub fn problem(&self) -> &Arc<FiniteSum> {
        &self.problem
    }

    /// Steps taken.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The cost of all steps and of the start.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// See [`Method::drawn`].
    pub fn drawn(&self) -> (&[u32], Option<bool>) {
        self.method.drawn()
    }

    /// Calls `with` for every part of the state except the clients' vectors, the iterate first.
    pub fn for_parts(&mut self, mut with: impl FnMut(&'static str, &mut [f64]) -> Result<()>) -> Result<()> {
        with("x", &mut self.x)?;
        self.method.parts().into_iter().try_for_each(|(name, part)| with(name, part))
    }

    /// The vectors that clients keep, by their names.
    pub fn kept(&mut self) -> Vec<(&'static str, &mut dyn Vectors)> {
        self.method.kept()
    }

    /// Sets the number of steps and their cost, after the parts of the state have been replaced.
    pub fn restore(&mut self, round: u64, cost: Cost) {
        (self.round, self.cost) = (round, cost);
    }

    /// Sets the weights of samples in [`Runner::evaluate`], one per sample.
    pub fn weigh(&mut self, weights: Option<Vec<f64>>) {
        self.weights = weights.filter(|weights| weights.len() == self.problem.n());
    }

    /// The value at `x`, with that of the proximal term; its gradient without it is added to `out`, which is empty or zero.
    pub fn evaluate(&mut self, x: &[f64], out: &mut [f64]) -> Result<f64> {
        let all = match &self.weights {
            Some(weights) => Samples { indices: self.problem.all(), weights: Some(weights), scale: 1.0 },
            None => Samples::mean(self.problem.all()),
        };
        let workspace = &mut self.workspace;
        if !out.is_empty() {
            self.problem.grad(x, None, all, self.threads, workspace, out)?;
        }
        Ok(self.problem.loss(x, all, self.threads, workspace)? + self.prox.value(x))
    }
}
