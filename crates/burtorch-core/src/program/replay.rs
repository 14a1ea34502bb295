//! Running a program: forwards, backwards, along a direction.
//!
//! In words: compute the nodes in order; write the seeds to the adjoints of the outputs; take the nodes in reverse and
//! hand each adjoint on to the operands. Which node is reached, and which contribution is the first to its slot, is the
//! same at every run, so it is decided when the replay is made: nothing is reset, nothing is tested.
//!
//! The eager sweep adds `c + 0.0` so that no adjoint is ever -0.0. Here that is done once, where a gradient is read:
//! contributions are linear in the adjoint, so the sign of a zero shows nowhere else.
//!
//! Promises: no allocation in a run; values and gradients with the bits of the eager graph. Knows one program.
#![allow(unsafe_code)]

use super::bundle::{self, Bundle, Bundles, Memory};
use super::call_steps::Calls;
use super::instructions::Instructions;
use super::node::{Comparison, Program, list_len};
use super::steps::{self, Instr, Lists, SET, Step};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::scalar::{Dual, Scalar};
use crate::simd::{Level, Simd, level};

/// What a slot of a replay may hold: how its values are computed differs for dual numbers.
pub trait Carrier: Scalar {
    #[doc(hidden)]
    fn forward_step<const W: usize>(op: Op, level: Level) -> Option<StepOf<Self>>;
    /// Whether programs of single numbers may run in bundles.
    #[doc(hidden)]
    const IN_BUNDLES: bool = false;
    #[doc(hidden)]
    fn in_bundles(_program: &Program, _build: Build, _level: Level, _always: bool) -> Option<BundlesOf<Self>> {
        None
    }
}

/// Bundles, opaque outside of this module.
#[derive(Debug)]
pub struct BundlesOf<S>(Bundles<S>);

/// A step, opaque outside of this module.
#[derive(Debug)]
pub struct StepOf<S>(pub(super) Step<S>);

macro_rules! carriers {
    ($($t:ty)*) => { $(
        impl Carrier for $t {
            fn forward_step<const W: usize>(op: Op, level: Level) -> Option<StepOf<Self>> {
                steps::forward::<$t, W>(op, level).map(StepOf)
            }
        }
    )* };
}
carriers!(f32 Simd<f64, 8> Simd<f32, 16>);

impl Carrier for f64 {
    const IN_BUNDLES: bool = true;
    fn forward_step<const W: usize>(op: Op, level: Level) -> Option<StepOf<Self>> {
        steps::forward::<f64, W>(op, level).map(StepOf)
    }
    fn in_bundles(program: &Program, build: Build, level: Level, always: bool) -> Option<BundlesOf<Self>> {
        bundle::bundles(program, build, level, always).map(BundlesOf)
    }
}

macro_rules! dual_carriers {
    ($($t:ty)*) => { $(
        impl Carrier for Dual<$t> {
            fn forward_step<const W: usize>(op: Op, level: Level) -> Option<StepOf<Self>> {
                steps::forward_dual::<$t, W>(op, level).map(StepOf)
            }
        }
    )* };
}
dual_carriers!(f32 f64 Simd<f64, 8>);

/// What a replay is to do besides computing values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Nothing.
    Values,
    /// Gradients of a weighted sum of outputs.
    Reverse(Seeds),
    /// The derivative of all outputs along a direction.
    Tangent,
}

/// Which outputs a reverse pass starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeds {
    /// One of them.
    One(usize),
    /// All of them.
    All,
}

/// A guard as it is asked: before which instruction, what.
#[derive(Clone, Copy, Debug)]
struct Question {
    before: usize,
    comparison: Comparison,
    a: u32,
    b: u32,
    answer: bool,
}

/// A program that is ready to run on slots of `W` scalars of type `S`. Values stay between runs.
#[derive(Clone, Debug)]
pub struct Replay<S: Scalar, const W: usize> {
    forward: Vec<Instr<S>>,
    /// The reverse pass, or the tangents.
    second: Vec<Instr<S>>,
    /// Instead of both, for large programs at single points that have run before.
    bundles: Option<Box<Bundles<S>>>,
    /// What may be put in bundles when it runs again.
    later: Option<Box<Later>>,
    questions: Vec<Question>,
    lists: Lists<S>,
    values: Vec<S>,
    /// Adjoints, or tangents.
    adjoints: Vec<S>,
    n_inputs: usize,
    n_differentiated: usize,
    outputs: Vec<u32>,
    /// For each output that is a seed: its place among the seeds, its slot, how it is written.
    seeds: Vec<(usize, u32, u8)>,
    level: Level,
}

/// A program that runs node by node the first time: planning costs as much as some tens of runs.
#[derive(Clone, Debug)]
struct Later {
    program: Program,
    build: Build,
    n_runs: u32,
}

/// Runs before a plan is made.
const RUNS_BEFORE_PLAN: u32 = 2;

impl<S: Carrier, const W: usize> Replay<S, W> {
    /// Makes a program ready to run at the present CPU level. A large one is put in bundles when it runs again and that
    /// is faster.
    pub fn new(program: &Program, build: Build) -> Result<Self> {
        let mut replay = Self::node_by_node(program, build)?;
        if W == 1 && S::IN_BUNDLES && bundle::may_be_worth_it(program) {
            replay.later = Some(Box::new(Later { program: program.clone(), build, n_runs: 0 }));
        }
        Ok(replay)
    }

    /// As [`Replay::new`], one instruction for each node.
    pub fn node_by_node(program: &Program, build: Build) -> Result<Self> {
        let level = level();
        let code = Instructions::new::<W>(program, build, level)?;
        let (slots, n) = code.slots;
        let outputs = program.outputs().iter().map(|&x| slots[x as usize]).collect();
        let mut replay = Self::empty(program, build, level, n, outputs)?;
        replay.seeds = code.seeds;
        for question in &mut replay.questions {
            (question.a, question.b) = (slots[question.a as usize], slots[question.b as usize]);
        }
        (replay.forward, replay.second) = (code.forward, code.second);
        replay.lists.calls = calls::<S, W>(program, code.operands.len())?;
        replay.lists.operands = code.operands;
        Ok(replay)
    }

    /// As [`Replay::new`], in bundles of equal ops; `None` where that is not possible: other scalars than f64, guards, a
    /// CPU level without vectors.
    pub fn in_bundles(program: &Program, build: Build) -> Result<Option<Self>> {
        let level = level();
        let bundles = if W == 1 { S::in_bundles(program, build, level, true) } else { None };
        bundles.map(|bundles| Self::of_bundles(program, build, level, bundles.0)).transpose()
    }

    fn of_bundles(program: &Program, build: Build, level: Level, mut bundles: Bundles<S>) -> Result<Self> {
        let mut replay = Self::empty(program, build, level, bundles.len, std::mem::take(&mut bundles.outputs))?;
        replay.seeds = bundles.seeds.iter().map(|&(place, slot)| (place, slot, SET)).collect();
        if let Build::Reverse(_) = build {
            replay.adjoints[bundles.nothing as usize] = S::UNREACHED;
        }
        replay.bundles = Some(Box::new(bundles));
        Ok(replay)
    }

    /// Memory of `n` slots and no code.
    fn empty(program: &Program, build: Build, level: Level, n: usize, outputs: Vec<u32>) -> Result<Self> {
        let longest = program.nodes().iter().filter_map(|&node| list_len(node)).max().unwrap_or(0);
        let zero = S::lit(0.0);
        let mut values = filled(n * W, zero)?;
        for (k, &x) in program.constants.iter().enumerate() {
            let at = (program.n_inputs() + k) * W;
            values[at..at + W].fill(S::lit(x));
        }
        let question = |g: &super::Guard| Question {
            before: g.after as usize,
            comparison: g.comparison,
            a: g.a,
            b: g.b,
            answer: g.answer,
        };
        Ok(Replay {
            forward: Vec::new(),
            second: Vec::new(),
            bundles: None,
            later: None,
            questions: program.guards().iter().map(question).collect(),
            lists: Lists { operands: Vec::new(), scratch: filled(2 * longest, zero)?, calls: Calls::default() },
            values,
            adjoints: if build == Build::Values { Vec::new() } else { filled(n * W, zero)? },
            n_inputs: program.n_inputs(),
            n_differentiated: program.n_differentiated(),
            outputs,
            seeds: Vec::new(),
            level,
        })
    }

    /// Whether it was made for the CPU level that is in use now.
    pub fn is_current(&self) -> bool {
        self.level == level()
    }
}

/// What the primitives of a program need, `listed` operands being listed.
fn calls<S: Scalar, const W: usize>(program: &Program, listed: usize) -> Result<Calls<S>> {
    if program.calls.is_empty() {
        return Ok(Calls::default());
    }
    let longest = program.calls.iter().map(|call| program.nodes()[call.0 as usize].b as usize).max().unwrap_or(0);
    Ok(Calls {
        primitives: program.calls.iter().map(|call| call.1.clone()).collect(),
        partials: filled(listed * W, S::lit(0.0))?,
        numbers: filled(3 * longest, 0.0)?,
        failed: filled(W * S::LANES, false)?,
        n_lanes: W * S::LANES,
    })
}

/// `n` copies, or an error where there is no memory.
fn filled<S: Copy>(n: usize, x: S) -> Result<Vec<S>> {
    let mut all = Vec::new();
    let bytes = n.saturating_mul(size_of::<S>());
    all.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { bytes, what: "the slots of a program" })?;
    all.resize(n, x);
    Ok(all)
}

impl<S: Carrier, const W: usize> Replay<S, W> {
    /// The inputs, `W` scalars each; write them before a run.
    #[inline(always)]
    pub fn inputs_mut(&mut self) -> &mut [S] {
        &mut self.values[..self.n_inputs * W]
    }

    /// The numbers of one input in all lanes, `W * S::LANES` of them; write them before a run.
    #[inline(always)]
    pub fn input_lanes_mut(&mut self, input: usize) -> &mut [S::Elem] {
        lanes_mut(&mut self.values[..self.n_inputs * W][input * W..][..W])
    }

    /// The numbers of one output in all lanes.
    #[inline(always)]
    pub fn output_lanes(&self, output: usize) -> &[S::Elem] {
        lanes(&self.values[self.outputs[output] as usize * W..][..W])
    }

    /// The gradient with respect to one input in all lanes, made free of -0.0.
    #[inline(always)]
    pub fn gradient_lanes(&mut self, input: usize) -> &[S::Elem] {
        let block = &mut self.adjoints[..self.n_differentiated * W][input * W..][..W];
        for x in block.iter_mut() {
            *x = *x + S::lit(0.0);
        }
        lanes(block)
    }

    /// The directions of the inputs, `W` scalars each; write them before [`Replay::tangents`].
    pub fn directions_mut(&mut self) -> &mut [S] {
        let n = self.n_differentiated * W;
        &mut self.adjoints[..n]
    }

    /// Number of outputs.
    pub fn n_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Scalar `k` of output `output`.
    #[inline(always)]
    pub fn output(&self, output: usize, k: usize) -> S {
        self.values[self.outputs[output] as usize * W + k]
    }

    /// Scalar `k` of the tangent of output `output`.
    pub fn output_tangent(&self, output: usize, k: usize) -> S {
        let at = self.outputs[output] as usize;
        self.adjoints[at * W + k]
    }

    /// Scalar `k` of the gradient with respect to input `input`; never -0.0.
    #[inline(always)]
    pub fn gradient(&self, input: usize, k: usize) -> S {
        self.adjoints[..self.n_differentiated * W][input * W + k] + S::lit(0.0)
    }

    /// The gradient with respect to all inputs, where a zero may have either sign.
    #[inline(always)]
    pub fn raw_gradients(&self) -> &[S] {
        &self.adjoints[..self.n_differentiated * W]
    }

    /// The memory of bundles.
    #[inline(always)]
    fn memory(&mut self, slots: *const u32) -> Memory<S> {
        let (v, d) = (self.values.as_mut_ptr(), self.adjoints.as_mut_ptr());
        Memory { v, d, slots, scratch: self.lists.scratch.as_mut_ptr() }
    }

    #[inline(never)]
    fn run_bundles(&mut self, which: impl Fn(&Bundles<S>) -> &[Bundle<S>]) {
        let Some(bundles) = self.bundles.take() else { return };
        let memory = self.memory(bundles.slots.as_ptr());
        for bundle in which(&bundles) {
            // SAFETY: the plan lists slots of a memory of `bundles.len` numbers, which values and adjoints have; scratch
            // was made for the longest node; all are borrowed here.
            unsafe { bundle.run(memory) }
        }
        self.bundles = Some(bundles);
    }

    /// Runs what may be in bundles, or may be put in them now. Inputs and directions are written already.
    #[inline(never)]
    fn run_large(&mut self) {
        if let Some(mut later) = self.later.take() {
            later.n_runs += 1;
            if later.n_runs < RUNS_BEFORE_PLAN {
                self.later = Some(later);
            } else if let Some(bundles) = S::in_bundles(&later.program, later.build, self.level, false)
                && let Ok(mut planned) = Self::of_bundles(&later.program, later.build, self.level, bundles.0)
            {
                planned.values[..self.n_inputs].copy_from_slice(&self.values[..self.n_inputs]);
                let n = self.n_differentiated.min(self.adjoints.len());
                planned.adjoints[..n].copy_from_slice(&self.adjoints[..n]);
                *self = planned;
            }
        }
        if self.bundles.is_some() {
            return self.run_bundles(|bundles| &bundles.forward);
        }
        Self::run(&self.forward, &mut self.values, &mut self.adjoints, &mut self.lists);
    }

    #[inline(always)]
    fn run_forward(&mut self) {
        if self.bundles.is_some() || self.later.is_some() {
            return self.run_large();
        }
        Self::run(&self.forward, &mut self.values, &mut self.adjoints, &mut self.lists);
    }

    #[inline(always)]
    fn run_second(&mut self) {
        if self.bundles.is_some() {
            return self.run_bundles(|bundles| &bundles.second);
        }
        Self::run(&self.second, &mut self.values, &mut self.adjoints, &mut self.lists);
    }

    #[inline(always)]
    fn run(code: &[Instr<S>], values: &mut [S], adjoints: &mut [S], lists: &mut Lists<S>) {
        let (v, d) = (values.as_mut_ptr(), adjoints.as_mut_ptr());
        for instr in code {
            // SAFETY: the builder took slots from a valid program, so they lie in values and adjoints, which have one
            // entry (of W scalars) per slot; lists and scratch were made for its longest node; all are borrowed here.
            unsafe { (instr.step)(v, d, instr, lists) }
        }
    }

    /// Computes all values, whatever the guards say.
    #[inline(always)]
    pub fn values(&mut self) {
        self.run_forward();
    }

    /// One reverse pass after [`Replay::values`] or [`Replay::checked_values`]; seed `k` of `W` scalars for output `k`
    /// (or for the only one).
    #[inline(always)]
    pub fn reverse(&mut self, seeds: &[S]) {
        for &(at, slot, mode) in &self.seeds {
            let adjoint = &mut self.adjoints[slot as usize * W..][..W];
            for (adjoint, &seed) in adjoint.iter_mut().zip(&seeds[at * W..]) {
                *adjoint = if mode == SET { seed } else { *adjoint + seed };
            }
        }
        self.run_second();
    }

    /// One reverse pass from a single output, with seed 1.
    #[inline(always)]
    pub fn reverse_one(&mut self) {
        if let [(_, slot, _)] = self.seeds[..] {
            self.adjoints[slot as usize * W..][..W].fill(S::lit(1.0));
            self.run_second();
        }
    }

    /// Tangents of all nodes from [`Replay::directions_mut`], after the values.
    pub fn tangents(&mut self) {
        self.run_second();
    }

    /// Whether lane `lane` of scalar `k` answers a question as it was answered when the program was recorded.
    #[inline(always)]
    fn agrees(&self, question: &Question, k: usize, lane: usize) -> bool {
        let number = |slot: u32| self.values[slot as usize * W + k].lane(lane);
        question.comparison.holds(number(question.a), number(question.b)) == question.answer
    }

    /// Computes values until a guard answers otherwise than recorded: `Err` with the number of that guard, or with the
    /// number of guards where a primitive failed. Asks of the first lane of the first scalar; meant for one number per
    /// slot.
    #[inline(always)]
    pub fn checked_values(&mut self) -> std::result::Result<(), usize> {
        if self.questions.is_empty() && self.lists.calls.is_empty() {
            self.values();
            return Ok(());
        }
        self.values_and_guards()
    }

    /// How many lanes, from the first, are in use: primitives are called for no others.
    pub fn use_lanes(&mut self, n: usize) {
        self.lists.calls.n_lanes = n;
    }

    #[inline(never)]
    fn values_and_guards(&mut self) -> std::result::Result<(), usize> {
        let mut from = 0;
        self.lists.calls.failed.fill(false);
        for (k, question) in self.questions.iter().enumerate() {
            if question.before > from {
                Self::run(&self.forward[from..question.before], &mut self.values, &mut self.adjoints, &mut self.lists);
                from = question.before;
            }
            if !self.agrees(question, 0, 0) {
                return Err(k);
            }
        }
        Self::run(&self.forward[from..], &mut self.values, &mut self.adjoints, &mut self.lists);
        if self.lists.calls.failed.contains(&true) { Err(self.questions.len()) } else { Ok(()) }
    }

    /// Computes all values and calls `disagrees` with every lane (of `W * S::LANES`) on which some guard answers
    /// otherwise.
    pub fn values_with_mask(&mut self, mut disagrees: impl FnMut(usize)) {
        self.lists.calls.failed.fill(false);
        self.values();
        for (at, _) in self.lists.calls.failed.iter().enumerate().filter(|(_, failed)| **failed) {
            disagrees(at);
        }
        for k in 0..W {
            for lane in 0..S::LANES {
                if !self.questions.iter().all(|question| self.agrees(question, k, lane)) {
                    disagrees(k * S::LANES + lane);
                }
            }
        }
    }

    /// Whether there are guards, or primitives that may fail.
    pub fn has_guards(&self) -> bool {
        !self.questions.is_empty() || !self.lists.calls.is_empty()
    }

    /// How many instructions a run of values and of what comes second takes.
    pub fn n_instructions(&self) -> usize {
        let bundles = self.bundles.as_ref().map_or(0, |bundles| bundles.forward.len() + bundles.second.len());
        self.forward.len() + self.second.len() + bundles
    }

    /// How many slots hold values.
    pub fn n_slots(&self) -> usize {
        self.values.len() / W
    }

    /// Bytes of instructions and slots.
    pub fn bytes(&self) -> usize {
        let bundles = self.bundles.as_ref().map_or(0, |bundles| {
            (bundles.forward.len() + bundles.second.len()) * size_of::<Bundle<S>>() + bundles.slots.len() * 4
        });
        bundles
            + (self.forward.len() + self.second.len()) * size_of::<Instr<S>>()
            + self.lists.operands.len() * 4
            + (self.lists.scratch.len() + self.values.len() + self.adjoints.len()) * size_of::<S>()
    }
}

/// The lanes of scalars, in a row.
#[inline(always)]
fn lanes<S: Scalar>(block: &[S]) -> &[S::Elem] {
    assert!(size_of::<S>() == S::LANES * size_of::<S::Elem>());
    // SAFETY: a float or a vector of floats holds its lanes in order and nothing else, as the size says.
    unsafe { std::slice::from_raw_parts(block.as_ptr().cast(), block.len() * S::LANES) }
}

/// The lanes of scalars, in a row, to be written.
#[inline(always)]
fn lanes_mut<S: Scalar>(block: &mut [S]) -> &mut [S::Elem] {
    assert!(size_of::<S>() == S::LANES * size_of::<S::Elem>());
    // SAFETY: as in `lanes`; any bits are a float.
    unsafe { std::slice::from_raw_parts_mut(block.as_mut_ptr().cast(), block.len() * S::LANES) }
}
