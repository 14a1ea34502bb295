//! Values that a chain recomputes, so that an earlier chain need not store them.
//!
//! Promises: their operands are in memory when they are read. Does not know how chains run.

use super::super::expansion::{MathOp, partial_of};
use super::super::instr::{ArrayInstr, ArrayOp, ValueId};
use super::super::row::Row;
use super::draft::Drafts;
use crate::ops::Op;

/// Numbers that are beyond the cache, and operations that are done again for them at most.
const LARGE: usize = 1 << 17;
const FEW: usize = 3;

impl Drafts<'_> {
    /// Whether a chain computes a value again that an earlier chain has: a few operations take less time than numbers beyond
    /// the cache to be written and read, if what they take is there anyway.
    pub(super) fn computes_again(&mut self, v: ValueId, step: usize) -> bool {
        let is_there = |u: ValueId| self.member[u.at()].is_none() || self.needs[u.at()].is_read;
        let (mut again, mut found) = (vec![v], 0);
        while let Some(&u) = again.get(found) {
            let ArrayInstr { op, operands, .. } = self.program.instr_of(u);
            if is_there(u) || !is_cheap(op) || found == FEW || self.program.type_of(u).dims.size() < LARGE {
                return false;
            }
            again.extend(operands.iter().copied().filter(|&u| !is_there(u)));
            found += 1;
        }
        for u in again {
            for &of in &self.program.instr_of(u).operands {
                if self.member[of.at()].is_none() || self.needs[of.at()].is_read {
                    self.read(self.place_of(of), step);
                }
            }
            self.compute_again(u, step);
        }
        true
    }
}

/// Whether it takes less time than writing and reading the numbers.
fn is_cheap(op: &ArrayOp) -> bool {
    let is_arithmetic = |op: MathOp| {
        matches!(op, MathOp::Operand(_) | MathOp::Literal(_) | MathOp::Add | MathOp::Sub | MathOp::Mul | MathOp::Neg)
    };
    match *op {
        ArrayOp::Row(Row::Op(Op::Add | Op::Sub | Op::Mul | Op::Neg)) | ArrayOp::Take { .. } => true,
        ArrayOp::Pull(row, k) => partial_of(row, k.into())
            .is_some_and(|formula| formula.steps[..=formula.result].iter().all(|step| is_arithmetic(step.op))),
        _ => false,
    }
}
