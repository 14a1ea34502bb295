//! Operations of formulas as a graph without duplicates.
//!
//! Promises: an operation comes after its operands; products with 1 and operations on literals are folded, which
//! changes no bit. Does not know programs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem::{Discriminant, discriminant};

use crate::array::{Expansion, MathOp};

/// The index of an operation.
pub(super) type Number = u32;

/// A number not computed by an operation here.
pub(super) const UNKNOWN: Number = u32::MAX;

/// An operation and its operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Formula {
    pub(super) op: MathOp,
    pub(super) of: [Number; 3],
}

/// An operation: its kind, the bits of its literal, and its operands.
type Key = (Discriminant<MathOp>, u32, [Number; 3]);

/// All operations so far.
#[derive(Default)]
pub(super) struct Formulas {
    pub(super) all: Vec<Formula>,
    known: HashMap<Key, Number, BuildHasherDefault<Mixed>>,
    literals: HashMap<u64, Number>,
    /// Workspace for expanding a formula.
    room: Vec<Number>,
}

/// Keys are small numbers: one multiplication each mixes them well enough.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }
    fn write_u32(&mut self, x: u32) {
        self.write_u64(x.into());
    }
    fn write_u64(&mut self, x: u64) {
        self.0 = (self.0.rotate_left(23) ^ x).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn write_usize(&mut self, x: usize) {
        self.write_u64(x as u64);
    }
    fn write_isize(&mut self, x: isize) {
        self.write_u64(x as u64);
    }
}

impl Formulas {
    /// Input `k`.
    pub(super) fn input(&mut self, k: usize) -> Number {
        self.add(MathOp::Operand(k), [0; 3])
    }

    pub(super) fn literal(&mut self, x: f64) -> Number {
        if let Some(&known) = self.literals.get(&x.to_bits()) {
            return known;
        }
        let new = self.add(MathOp::Literal(x), [0; 3]);
        self.literals.insert(x.to_bits(), new);
        new
    }

    fn add(&mut self, op: MathOp, of: [Number; 3]) -> Number {
        self.all.push(Formula { op, of });
        self.all.len() as u32 - 1
    }

    /// The value of a literal.
    fn value(&self, x: Number) -> Option<f64> {
        match self.all.get(x as usize)?.op {
            MathOp::Literal(x) => Some(x),
            _ => None,
        }
    }

    /// Adds an operation, or returns the equal existing one.
    pub(super) fn push(&mut self, op: MathOp, mut of: [Number; 3]) -> Number {
        let arity = op.arity();
        if of[..arity].contains(&UNKNOWN) {
            return UNKNOWN;
        }
        of[arity..].fill(0);
        let literals = of.map(|x| self.value(x));
        match (op, literals) {
            (MathOp::Mul, [Some(1.0), _, _]) => return of[1],
            (MathOp::Mul | MathOp::Div, [_, Some(1.0), _]) => return of[0],
            (MathOp::Add, [Some(x), Some(y), _]) => return self.literal(x + y),
            (MathOp::Sub, [Some(x), Some(y), _]) => return self.literal(x - y),
            (MathOp::Mul, [Some(x), Some(y), _]) => return self.literal(x * y),
            (MathOp::Div, [Some(x), Some(y), _]) => return self.literal(x / y),
            (MathOp::Neg, [Some(x), ..]) => return self.literal(-x),
            _ => {}
        }
        let function = if let MathOp::Function(function) = op { function as u32 } else { 0 };
        let next = self.all.len() as u32;
        let known = *self.known.entry((discriminant(&op), function, of)).or_insert(next);
        if known == next { self.add(op, of) } else { known }
    }

    /// Expands a formula of these numbers into operations; absent operands are not read.
    pub(super) fn write_out(&mut self, formula: &Expansion, operands: &[Option<Number>]) -> Number {
        let mut numbers = std::mem::take(&mut self.room);
        numbers.clear();
        for step in &formula.steps[..=formula.result] {
            let number = match step.op {
                MathOp::Operand(k) => operands.get(k).copied().flatten().unwrap_or(UNKNOWN),
                MathOp::Literal(x) => self.literal(x),
                op => self.push(op, step.args.map(|at| numbers.get(at).copied().unwrap_or(0))),
            };
            numbers.push(number);
        }
        let result = numbers[formula.result];
        self.room = numbers;
        result
    }
}
