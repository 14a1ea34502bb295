//! From nodes to instructions, one each.
//!
//! Which nodes a reverse pass reaches, and which contribution is the first to its slot, is the same in every run, so it is
//! decided here: the first contribution overwrites, later ones add, and constants are left out. If only results are needed,
//! slots are shared.
//!
//! Promises: nodes in the order of the program. Does not know how instructions run.

use super::build::{Build, Seeds};
use super::carrier::Carrier;
use super::instr::{ADD, Instr, SET, SKIP, Step};
use super::node::{Node, Program, list_len};
use super::reuse;
use super::steps;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::ops::{Arity, Op};
use crate::simd::Level;

/// The instructions of a program, their lists, and the seeds of a reverse pass.
pub(super) struct Instructions<S> {
    pub(super) forward: Vec<Instr<S>>,
    pub(super) second: Vec<Instr<S>>,
    pub(super) operands: Vec<u32>,
    /// For each seed: its index among the seeds, its slot, and its mode.
    pub(super) seeds: Vec<(usize, u32, u8)>,
    /// The memory slot of each slot of the program, and the number of memory slots.
    pub(super) slots: (Vec<u32>, usize),
}

impl<S: Carrier> Instructions<S> {
    /// One instruction per node, and one per node of the second pass.
    pub(super) fn new<const W: usize>(program: &Program, build: Build, level: Level) -> Result<Self> {
        let slots = match build {
            Build::Values => reuse::slots(program),
            _ => ((0..program.n_slots() as u32).collect(), program.n_slots()),
        };
        let (moves, slots, n_slots) = (program.moves(), slots.0, slots.1);
        let operands = Vec::new();
        let listed = vec![0; if program.calls.is_empty() { 0 } else { program.nodes().len() }];
        let marker = std::marker::PhantomData;
        let with_partials = build != Build::Values;
        let mut builder = Builder::<S, W> { program, moves, level, operands, slots, listed, with_partials, marker };
        let forward = builder.forward()?;
        let mut seeds = Vec::new();
        let second = match build {
            Build::Values => Vec::new(),
            Build::Reverse(which) => builder.reverse(which, &mut seeds)?,
            Build::Tangent | Build::ValuesWithTangents => builder.tangent()?,
        };
        let (forward, second) =
            if build == Build::ValuesWithTangents { (merged(forward, &second), Vec::new()) } else { (forward, second) };
        Ok(Instructions { forward, second, operands: builder.operands, seeds, slots: (builder.slots, n_slots) })
    }
}

/// Places each tangent after its value.
fn merged<S>(values: Vec<Instr<S>>, tangents: &[Instr<S>]) -> Vec<Instr<S>> {
    let mut tangents = tangents.iter().copied().peekable();
    let mut all = Vec::with_capacity(values.len() + tangents.len());
    for value in values {
        all.push(value);
        all.extend(tangents.next_if(|tangent| tangent.c == value.c));
    }
    all
}

/// Steps by op and modes, computed once: a table lookup is predictable for a CPU, a jump by op is not.
struct Known<S>(Vec<Option<Step<S>>>);

impl<S> Known<S> {
    fn step(&mut self, op: Op, modes: u8, find: impl FnOnce() -> Option<Step<S>>) -> Option<Step<S>> {
        // Two bits of mode for each of two operands.
        let at = (op as usize) << 4 | usize::from(modes & 15);
        if at >= self.0.len() {
            self.0.resize(at + 1, None);
        }
        let known = &mut self.0[at];
        if known.is_none() {
            *known = find();
        }
        *known
    }
}

struct Builder<'p, S, const W: usize> {
    program: &'p Program,
    moves: Vec<bool>,
    level: Level,
    operands: Vec<u32>,
    slots: Vec<u32>,
    /// For each node, the start of the operand list of its call's value step.
    listed: Vec<u32>,
    with_partials: bool,
    marker: std::marker::PhantomData<S>,
}

impl<S: Carrier, const W: usize> Builder<'_, S, W> {
    /// An instruction for node `k`, with slots of the program.
    fn instr(&mut self, step: Option<Step<S>>, k: usize, modes: u8) -> Result<Instr<S>> {
        let node = self.program.nodes()[k];
        let step = step.ok_or_else(|| Error::BadArgument {
            what: "an op of a traced function",
            expected: match node.op {
                Op::Linearised => "one with second derivatives; a primitive has only first derivatives".into(),
                _ => "one that can be replayed".into(),
            },
            found: node.op.name().into(),
        })?;
        let place = |x: u32| self.slots[x as usize];
        let (a, b) = match node.op.info().arity {
            Arity::Nullary | Arity::Unary => (place(node.a), place(node.a)),
            Arity::Binary | Arity::WithConstant => (place(node.a), place(node.b)),
            _ => (node.a, node.b),
        };
        Ok(Instr { step, a, b, c: place(self.slot(k)), modes, op: node.op, width: W as u8 })
    }

    /// Lists operands with their modes, determined in order; returns the start.
    fn list(&mut self, node: Node, mut mode: impl FnMut(&[bool], u32) -> u8) -> u32 {
        let at = self.operands.len() as u32;
        for &x in self.program.list(node) {
            let mode = mode(&self.moves, x);
            self.operands.push(self.slots[x as usize] << 2 | u32::from(mode));
        }
        at
    }

    fn slot(&self, k: usize) -> u32 {
        self.program.first_node() + k as u32
    }

    /// 1 for each operand that depends on inputs; for a call, 1 if partials are needed.
    fn moving(&self, k: usize) -> u8 {
        let node = self.program.nodes()[k];
        let moves = |x: u32| u8::from(self.moves[x as usize]);
        match node.op.info().arity {
            Arity::Unary => moves(node.a),
            Arity::Binary => moves(node.a) | moves(node.b) << 2,
            Arity::WithConstant => moves(node.a),
            _ if node.op == Op::Linearised && self.with_partials => moves(self.slot(k)),
            _ => 0,
        }
    }

    /// Adds the primitive's index before the operands of a call.
    fn head_of_value(&mut self, k: usize) {
        if self.program.nodes()[k].op == Op::Linearised {
            let which = self.program.calls.partition_point(|call| call.0 < k as u32);
            self.operands.push(which as u32);
            self.listed[k] = self.operands.len() as u32;
        }
    }

    /// In the second pass, adds the start of the value step's list.
    fn head_of_second(&mut self, k: usize) {
        if self.program.nodes()[k].op == Op::Linearised {
            self.operands.push(self.listed[k]);
        }
    }

    fn forward(&mut self) -> Result<Vec<Instr<S>>> {
        // One more, for the stop at the end.
        let mut all = Vec::with_capacity(self.program.nodes().len() + 1);
        let mut known = Known(Vec::new());
        for (k, &node) in self.program.nodes().iter().enumerate() {
            interrupt::ask_at(k)?;
            let step = known.step(node.op, 0, || S::forward_step::<W>(node.op, self.level).map(|step| step.0));
            let mut instr = self.instr(step, k, self.moving(k))?;
            if list_len(node).is_some() {
                self.head_of_value(k);
                instr.a = self.list(node, |moves, x| u8::from(moves[x as usize]));
            }
            all.push(instr);
        }
        Ok(all)
    }

    fn tangent(&mut self) -> Result<Vec<Instr<S>>> {
        let mut all = Vec::new();
        for (k, &node) in self.program.nodes().iter().enumerate() {
            interrupt::ask_at(k)?;
            if !self.moves[self.slot(k) as usize] {
                continue;
            }
            let step = steps::push::<S, W>(node.op, self.level);
            let mut instr = self.instr(step, k, self.moving(k))?;
            if list_len(node).is_some() {
                self.head_of_second(k);
                instr.a = self.list(node, |moves, x| u8::from(moves[x as usize]));
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
        for (k, &output) in self.program.outputs().iter().enumerate() {
            if which == Seeds::All || which == Seeds::One(k) {
                let at = if which == Seeds::All { k } else { 0 };
                seeds.push((at, output, claim(&self.moves, output)));
            }
        }
        seeds.retain(|seed| seed.2 != SKIP);
        let mut all = Vec::with_capacity(self.program.nodes().len() + 1);
        let mut known = Known(Vec::new());
        for (k, &node) in self.program.nodes().iter().enumerate().rev() {
            interrupt::ask_at(k)?;
            let slot = self.slot(k);
            // A slot that depends on inputs and was claimed is reached; `claim` on an unreached slot would mark it, so
            // only operands are claimed.
            if !self.moves[slot as usize] || claim(&self.moves, slot) != ADD {
                // An unreached node cannot become reached later, because all its readers were processed.
                continue;
            }
            let modes = match node.op.info().arity {
                Arity::Unary | Arity::WithConstant => claim(&self.moves, node.a),
                Arity::Binary => {
                    let to_x = claim(&self.moves, node.a);
                    to_x | claim(&self.moves, node.b) << 2
                }
                _ => 0,
            };
            let step = known.step(node.op, modes, || steps::pull::<S, W>(node.op, modes, self.level));
            let mut instr = self.instr(step, k, modes)?;
            if list_len(node).is_some() {
                self.head_of_second(k);
                instr.a = self.list(node, &mut claim);
            }
            all.push(instr);
        }
        Ok(all)
    }
}
