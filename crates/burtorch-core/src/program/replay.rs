//! Running a program: forwards, backwards, along a direction.
//!
//! A run computes the nodes in order, writes the seeds to the adjoints of the outputs, takes the nodes in reverse and
//! propagates each adjoint to the operands. Which nodes are reached, and which contribution is the first to its slot, is the
//! same in every run, so it is decided when the replay is built: nothing is reset, nothing is tested.
//!
//! The eager sweep adds `c + 0.0` so that no adjoint is ever -0.0. Here that is done once, where a gradient is read:
//! contributions are linear in the adjoint, so the sign of a zero is visible nowhere else.
//!
//! Long code checks now and then whether to end early. Then the slots are invalid: the caller gets an error, as from
//! [`crate::interrupt::asking`].
//!
//! Promises: no allocation in a run; values and gradients with the bits of the eager graph. Knows one program.
#![allow(unsafe_code)]

use super::build::Build;
use super::bundle::{self, Bundle, Bundles};
use super::carrier::Carrier;
use super::instr::{Calls, Instr, Lists, SET};
use super::instructions::Instructions;
use super::node::{Comparison, Program, list_len};
use super::slots::Slots;
use crate::error::{Error, Result};
use crate::interrupt::{self, PIECE, Work};
use crate::scalar::Scalar;
use crate::simd::{Level, level};

/// A guard of the replay: the question, and the instruction after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) before: usize,
    pub(super) comparison: Comparison,
    pub(super) a: u32,
    pub(super) b: u32,
    pub(super) answer: bool,
}

/// A program that is ready to run on slots of `W` scalars of type `S`. Values stay between runs.
#[derive(Clone, Debug)]
pub struct Replay<S: Scalar, const W: usize> {
    pub(super) forward: Vec<Instr<S>>,
    /// The code of the reverse pass or the tangents.
    second: Vec<Instr<S>>,
    /// The positions after each stop: the start, after guards, and at intervals in long code.
    pub(super) starts: Vec<usize>,
    second_starts: Vec<usize>,
    /// Replaces both for large scalar programs after some runs.
    bundles: Option<Box<Bundles<S>>>,
    /// A program that may be put in bundles when it runs again.
    later: Option<Box<Later>>,
    pub(super) questions: Vec<Question>,
    pub(super) lists: Lists<S>,
    pub(super) values: Slots<S>,
    pub(super) adjoints: Slots<S>,
    n_inputs: usize,
    n_differentiated: usize,
    outputs: Vec<u32>,
    /// For each seed: its index among the seeds, its slot, and its mode.
    seeds: Vec<(usize, u32, u8)>,
    level: Level,
}

/// A program that first runs node by node: a plan costs as much as some tens of runs.
#[derive(Clone, Debug)]
struct Later {
    program: Program,
    build: Build,
    n_runs: u32,
}

/// Runs before a plan is made.
const RUNS_BEFORE_PLAN: u32 = 2;

impl<S: Carrier, const W: usize> Replay<S, W> {
    /// Prepares a program for the current CPU level. A large one is put in bundles when it runs again, if that is
    /// faster.
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
        (replay.forward, replay.starts) = in_pieces(code.forward, &mut replay.questions);
        (replay.second, replay.second_starts) = in_pieces(code.second, &mut []);
        replay.lists.calls = calls::<S, W>(program, code.operands.len())?;
        replay.lists.operands = code.operands;
        Ok(replay)
    }

    /// As [`Replay::new`], in bundles of equal ops; `None` if that is not possible: scalars other than f64, guards, a
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

    /// Memory of `n` slots without code.
    fn empty(program: &Program, build: Build, level: Level, n: usize, outputs: Vec<u32>) -> Result<Self> {
        let longest = program.nodes().iter().filter_map(|&node| list_len(node)).max().unwrap_or(0);
        let zero = S::lit(0.0);
        let mut values = Slots::filled(n * W, zero)?;
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
            starts: Vec::new(),
            second_starts: Vec::new(),
            bundles: None,
            later: None,
            questions: program.guards().iter().map(question).collect(),
            lists: Lists { operands: Vec::new(), scratch: filled(2 * longest, zero)?, calls: Calls::default() },
            values,
            adjoints: if build == Build::Values { Slots::default() } else { Slots::filled(n * W, zero)? },
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

/// Instructions with a stop at guards, one in every [`PIECE`], and one at the end; with the position after each, which
/// guards record.
fn in_pieces<S>(mut code: Vec<Instr<S>>, questions: &mut [Question]) -> (Vec<Instr<S>>, Vec<usize>) {
    if questions.is_empty() && code.len() <= PIECE {
        code.push(Instr::stop());
        return (code, vec![0]);
    }
    let mut all = Vec::with_capacity(code.len() + 1);
    let mut starts = vec![0];
    let mut questions = questions.iter_mut().peekable();
    for (k, instr) in code.into_iter().enumerate() {
        let is_asked = questions.peek().is_some_and(|question| question.before <= k);
        if is_asked || k > 0 && k.is_multiple_of(PIECE) {
            all.push(Instr::stop());
            starts.push(all.len());
        }
        while let Some(question) = questions.next_if(|question| question.before <= k) {
            question.before = all.len();
        }
        all.push(instr);
    }
    all.push(Instr::stop());
    if questions.peek().is_some() {
        starts.push(all.len());
        questions.for_each(|question| question.before = all.len());
        all.push(Instr::stop());
    }
    (all, starts)
}

/// The data for a program's calls of primitives with `listed` listed operands.
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

/// `n` copies, or an error without memory.
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

    /// The same of an input and the next.
    #[inline(always)]
    pub fn two_inputs_mut(&mut self, input: usize) -> [&mut [S::Elem]; 2] {
        let both = lanes_mut(&mut self.values[..self.n_inputs * W][input * W..][..2 * W]);
        both.split_at_mut(W * S::LANES).into()
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

    /// The same of an input and the next.
    #[inline(always)]
    pub fn two_gradients(&mut self, input: usize) -> [&[S::Elem]; 2] {
        let block = &mut self.adjoints[..self.n_differentiated * W][input * W..][..2 * W];
        for x in block.iter_mut() {
            *x = *x + S::lit(0.0);
        }
        lanes(block).split_at(W * S::LANES).into()
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

    #[inline(never)]
    fn run_bundles(&mut self, which: impl Fn(&Bundles<S>) -> &[Bundle<S>]) {
        let Some(bundles) = self.bundles.take() else { return };
        let (v, d) = (self.values.as_mut_ptr(), self.adjoints.as_mut_ptr());
        let first: &[Bundle<S>] = which(&bundles);
        if !first.is_empty() {
            // SAFETY: the plan lists slots below `bundles.len`, the length of values and adjoints; scratch was
            // allocated for the longest node; the last bundle stops; all are borrowed here.
            unsafe { Bundle::run(first.as_ptr(), v, d, bundles.slots.as_ptr(), self.lists.scratch.as_mut_ptr()) }
        }
        self.bundles = Some(bundles);
    }

    /// Plans a program now that would be planned when it runs again; after an interrupt it may still be planned later.
    pub fn plan(&mut self) {
        let Some(later) = self.later.take() else { return };
        if interrupt::is_over() {
            self.later = Some(later);
        } else if let Some(bundles) = S::in_bundles(&later.program, later.build, self.level, false)
            && let Ok(mut planned) = Self::of_bundles(&later.program, later.build, self.level, bundles.0)
        {
            planned.values[..self.n_inputs].copy_from_slice(&self.values[..self.n_inputs]);
            let n = self.n_differentiated.min(self.adjoints.len());
            planned.adjoints[..n].copy_from_slice(&self.adjoints[..n]);
            *self = planned;
        } else if interrupt::check().is_err() {
            self.later = Some(later);
        }
    }

    /// Runs a program that is, or may now be put, in bundles. Inputs and directions were written before.
    #[inline(never)]
    fn run_large(&mut self) {
        if let Some(later) = &mut self.later {
            later.n_runs += 1;
            if later.n_runs >= RUNS_BEFORE_PLAN {
                self.plan();
            }
        }
        if self.bundles.is_some() {
            return self.run_bundles(|bundles| &bundles.forward);
        }
        self.run_pieces();
    }

    #[inline(always)]
    fn run_forward(&mut self) {
        if self.bundles.is_some() || self.later.is_some() {
            return self.run_large();
        }
        self.run_pieces();
    }

    /// Runs all code, piece by piece.
    #[inline(always)]
    fn run_pieces(&mut self) {
        self.run_forward_from(0);
        if self.starts.len() > 1 {
            self.run_forward_on(1, usize::MAX);
        }
    }

    /// Runs the pieces of code from number `piece` on that start before an instruction, or none once interrupted, and
    /// returns the number of the next piece.
    #[inline(never)]
    pub(super) fn run_forward_on(&mut self, mut piece: usize, before: usize) -> usize {
        let mut work = Work::default();
        while let Some(&start) = self.starts.get(piece).filter(|start| **start < before) {
            let length = self.starts.get(piece + 1).copied().unwrap_or(self.forward.len()) - start;
            if work.add(length).is_err() {
                break;
            }
            self.run_forward_from(start);
            piece += 1;
        }
        piece
    }

    /// Runs the instructions from this one up to the next stop.
    #[inline(always)]
    pub(super) fn run_forward_from(&mut self, from: usize) {
        Self::run(&self.forward[from..], &mut self.values, &mut self.adjoints, &mut self.lists);
    }

    #[inline(always)]
    fn run_second(&mut self) {
        if self.bundles.is_some() {
            return self.run_bundles(|bundles| &bundles.second);
        }
        Self::run(&self.second, &mut self.values, &mut self.adjoints, &mut self.lists);
        if self.second_starts.len() > 1 {
            self.run_second_on();
        }
    }

    /// Runs the pieces of long code after the first, or none once interrupted.
    #[inline(never)]
    fn run_second_on(&mut self) {
        for &start in &self.second_starts[1..] {
            if interrupt::is_over() {
                return;
            }
            Self::run(&self.second[start..], &mut self.values, &mut self.adjoints, &mut self.lists);
        }
    }

    #[inline(always)]
    fn run(code: &[Instr<S>], values: &mut [S], adjoints: &mut [S], lists: &mut Lists<S>) {
        let (v, d) = (values.as_mut_ptr(), adjoints.as_mut_ptr());
        let Some(first) = code.first() else { return };
        // SAFETY: the builder took slots from a valid program, so they lie in values and adjoints, which have one entry
        // (of W scalars) per slot; lists and scratch were allocated for its longest node; the last instruction of all
        // code stops; all are borrowed here.
        unsafe { (first.step)(v, d, code.as_ptr(), lists) }
    }

    /// Computes all values, whatever the outcomes of guards. As all runs, interruptible.
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

    /// How many lanes, from the first, are in use: primitives are called for no others.
    pub fn use_lanes(&mut self, n: usize) {
        self.lists.calls.n_lanes = n;
    }

    /// The number of instructions in a run of values and of the second pass.
    pub fn n_instructions(&self) -> usize {
        let bundles = self.bundles.as_ref().map_or(0, |bundles| {
            bundles.forward.iter().chain(&bundles.second).filter(|bundle| bundle.computes()).count()
        });
        self.forward.iter().chain(&self.second).filter(|instr| instr.computes()).count() + bundles
    }

    /// The number of instructions, including stops.
    pub(super) fn code_len(&self) -> usize {
        self.forward.len() + self.second.len()
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

/// The lanes of scalars as a slice.
#[inline(always)]
fn lanes<S: Scalar>(block: &[S]) -> &[S::Elem] {
    assert!(size_of::<S>() == S::LANES * size_of::<S::Elem>());
    // SAFETY: a float or a vector of floats holds its lanes in order and nothing else, as the size says.
    unsafe { std::slice::from_raw_parts(block.as_ptr().cast(), block.len() * S::LANES) }
}

/// The lanes of scalars as a mutable slice.
#[inline(always)]
fn lanes_mut<S: Scalar>(block: &mut [S]) -> &mut [S::Elem] {
    assert!(size_of::<S>() == S::LANES * size_of::<S::Elem>());
    // SAFETY: as in `lanes`; any bits are a float.
    unsafe { std::slice::from_raw_parts_mut(block.as_mut_ptr().cast(), block.len() * S::LANES) }
}
