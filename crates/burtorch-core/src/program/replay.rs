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

use super::node::{Comparison, Node, Program, list_len};
use super::steps::{self, ADD, Instr, Lists, SET, SKIP, Step};
use crate::error::{Error, Result};
use crate::ops::{Arity, Op};
use crate::scalar::{Dual, Scalar};
use crate::simd::{Level, Simd, level};

/// What a slot of a replay may hold: how its values are computed differs for dual numbers.
pub trait Carrier: Scalar {
    #[doc(hidden)]
    fn forward_step<const W: usize>(op: Op, level: Level) -> Option<StepOf<Self>>;
}

/// A step, opaque outside of this module.
#[derive(Debug)]
pub struct StepOf<S>(Step<S>);

macro_rules! carriers {
    ($($t:ty)*) => { $(
        impl Carrier for $t {
            fn forward_step<const W: usize>(op: Op, level: Level) -> Option<StepOf<Self>> {
                steps::forward::<$t, W>(op, level).map(StepOf)
            }
        }
    )* };
}
carriers!(f32 f64 Simd<f64, 8> Simd<f32, 16>);

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

impl<S: Carrier, const W: usize> Replay<S, W> {
    /// Makes a program ready to run at the present CPU level.
    pub fn new(program: &Program, build: Build) -> Result<Self> {
        Self::at_level(program, build, level())
    }

    fn at_level(program: &Program, build: Build, level: Level) -> Result<Self> {
        let n = program.n_slots();
        let moves = program.moves();
        let mut builder = Builder::<S, W> { program, moves, level, operands: Vec::new(), marker: Default::default() };
        let forward = builder.forward()?;
        let mut seeds = Vec::new();
        let second = match build {
            Build::Values => Vec::new(),
            Build::Reverse(which) => builder.reverse(which, &mut seeds)?,
            Build::Tangent => builder.tangent()?,
        };
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
            forward,
            second,
            questions: program.guards().iter().map(question).collect(),
            lists: Lists { operands: builder.operands, scratch: filled(2 * longest, zero)? },
            values,
            adjoints: if build == Build::Values { Vec::new() } else { filled(n * W, zero)? },
            n_inputs: program.n_inputs(),
            n_differentiated: program.n_differentiated(),
            outputs: program.outputs().to_vec(),
            seeds,
            level,
        })
    }

    /// Whether it was made for the CPU level that is in use now.
    pub fn is_current(&self) -> bool {
        self.level == level()
    }
}

/// `n` copies, or an error where there is no memory.
fn filled<S: Copy>(n: usize, x: S) -> Result<Vec<S>> {
    let mut all = Vec::new();
    let bytes = n.saturating_mul(size_of::<S>());
    all.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { bytes, what: "the slots of a program" })?;
    all.resize(n, x);
    Ok(all)
}

struct Builder<'p, S, const W: usize> {
    program: &'p Program,
    moves: Vec<bool>,
    level: Level,
    operands: Vec<u32>,
    marker: std::marker::PhantomData<S>,
}

impl<S: Carrier, const W: usize> Builder<'_, S, W> {
    /// An instruction for a node at a slot.
    fn instr(&mut self, step: Option<Step<S>>, node: Node, c: u32, modes: u8) -> Result<Instr<S>> {
        let step = step.ok_or_else(|| Error::BadArgument {
            what: "an op of a recorded function",
            expected: "one that can be replayed".into(),
            found: node.op.name().into(),
        })?;
        let b = if node.op.info().arity == Arity::Unary { node.a } else { node.b };
        Ok(Instr { step, a: node.a, b, c, modes, op: node.op })
    }

    /// What to do for one operand, asked in order.
    fn list(&mut self, node: Node, mut mode: impl FnMut(u32) -> u8) -> u32 {
        let at = self.operands.len() as u32;
        for &x in self.program.list(node) {
            self.operands.push(x << 2 | u32::from(mode(x)));
        }
        at
    }

    fn slot(&self, k: usize) -> u32 {
        self.program.first_node() + k as u32
    }

    /// 1 for each operand that moves.
    fn moving(&self, node: Node) -> u8 {
        let moves = |x: u32| u8::from(self.moves[x as usize]);
        match node.op.info().arity {
            Arity::Unary => moves(node.a),
            Arity::Binary => moves(node.a) | moves(node.b) << 2,
            Arity::WithConstant => moves(node.a),
            _ => 0,
        }
    }

    fn forward(&mut self) -> Result<Vec<Instr<S>>> {
        let mut all = Vec::with_capacity(self.program.nodes().len());
        for (k, &node) in self.program.nodes().iter().enumerate() {
            let step = S::forward_step::<W>(node.op, self.level).map(|step| step.0);
            let (modes, slot) = (self.moving(node), self.slot(k));
            let mut instr = self.instr(step, node, slot, modes)?;
            if list_len(node).is_some() {
                let moves = self.moves.clone();
                instr.a = self.list(node, |x| u8::from(moves[x as usize]));
            }
            all.push(instr);
        }
        Ok(all)
    }

    fn tangent(&mut self) -> Result<Vec<Instr<S>>> {
        let mut all = Vec::new();
        for (k, &node) in self.program.nodes().iter().enumerate() {
            let slot = self.slot(k);
            if !self.moves[slot as usize] {
                continue;
            }
            let step = steps::push::<S, W>(node.op, self.level);
            let modes = self.moving(node);
            let mut instr = self.instr(step, node, slot, modes)?;
            if list_len(node).is_some() {
                let moves = self.moves.clone();
                instr.a = self.list(node, |x| u8::from(moves[x as usize]));
            }
            all.push(instr);
        }
        Ok(all)
    }

    fn reverse(&mut self, which: Seeds, seeds: &mut Vec<(usize, u32, u8)>) -> Result<Vec<Instr<S>>> {
        let mut touched = vec![false; self.program.n_slots()];
        let mut claim = |moves: &[bool], x: u32| match (moves[x as usize], touched[x as usize]) {
            (false, _) => SKIP,
            (true, false) => {
                touched[x as usize] = true;
                SET
            }
            (true, true) => ADD,
        };
        let moves = std::mem::take(&mut self.moves);
        for (k, &output) in self.program.outputs().iter().enumerate() {
            if which == Seeds::All || which == Seeds::One(k) {
                let at = if which == Seeds::All { k } else { 0 };
                seeds.push((at, output, claim(&moves, output)));
            }
        }
        seeds.retain(|seed| seed.2 != SKIP);
        let mut all = Vec::new();
        for (k, &node) in self.program.nodes().iter().enumerate().rev() {
            let slot = self.slot(k);
            // Claimed and moving means reached; `claim` on an unreached slot would mark it, so look at operands only.
            if !moves[slot as usize] || claim(&moves, slot) != ADD {
                // An unreached node is never an operand of a reached one above: all of those have been taken.
                continue;
            }
            let modes = match node.op.info().arity {
                Arity::Unary | Arity::WithConstant => claim(&moves, node.a),
                Arity::Binary => {
                    let to_x = claim(&moves, node.a);
                    to_x | claim(&moves, node.b) << 2
                }
                _ => 0,
            };
            let step = steps::pull::<S, W>(node.op, modes, self.level);
            let mut instr = self.instr(step, node, slot, modes)?;
            if list_len(node).is_some() {
                instr.a = self.list(node, |x| claim(&moves, x));
            }
            all.push(instr);
        }
        self.moves = moves;
        Ok(all)
    }
}

impl<S: Scalar, const W: usize> Replay<S, W> {
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
        Self::run(&self.forward, &mut self.values, &mut self.adjoints, &mut self.lists);
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
        Self::run(&self.second, &mut self.values, &mut self.adjoints, &mut self.lists);
    }

    /// One reverse pass from a single output, with seed 1.
    #[inline(always)]
    pub fn reverse_one(&mut self) {
        if let [(_, slot, _)] = self.seeds[..] {
            self.adjoints[slot as usize * W..][..W].fill(S::lit(1.0));
            Self::run(&self.second, &mut self.values, &mut self.adjoints, &mut self.lists);
        }
    }

    /// Tangents of all nodes from [`Replay::directions_mut`], after the values.
    pub fn tangents(&mut self) {
        Self::run(&self.second, &mut self.values, &mut self.adjoints, &mut self.lists);
    }

    /// Whether lane `lane` of scalar `k` answers a question as it was answered when the program was recorded.
    #[inline(always)]
    fn agrees(&self, question: &Question, k: usize, lane: usize) -> bool {
        let number = |slot: u32| self.values[slot as usize * W + k].lane(lane);
        question.comparison.holds(number(question.a), number(question.b)) == question.answer
    }

    /// Computes values until a guard answers otherwise than recorded: `Err` with the number of that guard. Asks of the
    /// first lane of the first scalar; meant for one number per slot.
    #[inline(always)]
    pub fn checked_values(&mut self) -> std::result::Result<(), usize> {
        if self.questions.is_empty() {
            self.values();
            return Ok(());
        }
        self.values_and_guards()
    }

    #[inline(never)]
    fn values_and_guards(&mut self) -> std::result::Result<(), usize> {
        let mut from = 0;
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
        Ok(())
    }

    /// Computes all values and calls `disagrees` with every lane (of `W * S::LANES`) on which some guard answers
    /// otherwise.
    pub fn values_with_mask(&mut self, mut disagrees: impl FnMut(usize)) {
        self.values();
        for k in 0..W {
            for lane in 0..S::LANES {
                if !self.questions.iter().all(|question| self.agrees(question, k, lane)) {
                    disagrees(k * S::LANES + lane);
                }
            }
        }
    }

    /// Whether there are guards.
    pub fn has_guards(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Bytes of instructions and slots.
    pub fn bytes(&self) -> usize {
        (self.forward.len() + self.second.len()) * size_of::<Instr<S>>()
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
