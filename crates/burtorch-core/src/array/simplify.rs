//! Programs without work on adjoints that no path reaches, as derivatives of derivatives leave it, and without numbers that are
//! kept for partials which do not read them.
//!
//! Promises the same results to the last bit: an unreached number is -0.0, which no sum shows. Knows nothing of plans.

use std::collections::HashMap;

use super::build::ArrayBuilder;
use super::expand::copied;
use super::expansion::partial_of;
use super::instr::{ArrayOp, ArrayProgram, Comparison, Reduce, ValueId};
use crate::error::Result;

/// What is known of values.
#[derive(Default)]
struct Facts {
    /// Values that are unreached throughout.
    unreached: Vec<bool>,
    /// Masks of values that are unreached where it holds and nowhere else.
    masks: HashMap<ValueId, ValueId>,
}

/// The same program with fewer instructions.
pub(super) fn simplified(program: &ArrayProgram) -> Result<ArrayProgram> {
    let mut facts = Facts::default();
    copied(program, |b, at, operands| {
        let instr = &program.instrs()[at];
        let operands = read_by(&instr.op, operands);
        let results = match facts.known(b, &instr.op, &operands)? {
            Some(v) => vec![v],
            None => b.push_all(instr.op.clone(), &operands)?,
        };
        if let [v] = results[..] {
            facts.learn(b, v);
        }
        Ok(results)
    })
}

/// The operands; the adjoint replaces each operand that the partial does not read.
fn read_by(op: &ArrayOp, of: &[ValueId]) -> Vec<ValueId> {
    let ArrayOp::Pull(row, k) = *op else { return of.to_vec() };
    let reads = partial_of(row, k.into()).map_or([false; 4], |formula| formula.reads());
    let last = of.len() - 1;
    // The value is the last operand, and the fourth of the formula.
    let is_read = |at: usize| at == 0 || reads[at] || at == last && reads[3];
    of.iter().enumerate().map(|(at, &v)| if is_read(at) { v } else { of[0] }).collect()
}

impl Facts {
    fn is_unreached(&self, v: ValueId) -> bool {
        self.unreached.get(v.at()).is_some_and(|is| *is)
    }

    /// A value that the result is equal to.
    fn known(&self, b: &mut ArrayBuilder, op: &ArrayOp, of: &[ValueId]) -> Result<Option<ValueId>> {
        let is_unreached = |k: usize| self.is_unreached(of[k]);
        let becomes_unreached = match op {
            ArrayOp::View(_) | ArrayOp::Copy | ArrayOp::Pull(..) | ArrayOp::ReducePull(..) => is_unreached(0),
            ArrayOp::Reduce(Reduce::Sum, _) => is_unreached(0) && b.dims(of[0]).size() > 0,
            ArrayOp::Select => is_unreached(1) && is_unreached(2),
            ArrayOp::Accumulate => is_unreached(0) && is_unreached(1),
            ArrayOp::Dot(dot) => (0..2).any(|k| dot.adjoint[k] && is_unreached(k)),
            _ => false,
        };
        if becomes_unreached {
            let types: Vec<_> = of.iter().map(|&v| b.type_of(v)).collect();
            let dims = op.infer(&types)?[0].dims;
            return b.push(ArrayOp::Unreached(dims), &[]).map(Some);
        }
        Ok(match op {
            ArrayOp::Accumulate if is_unreached(0) => Some(of[1]),
            ArrayOp::Accumulate | ArrayOp::AccumulateAt(_) if is_unreached(1) => Some(of[0]),
            ArrayOp::Compare(Comparison::IsUnreached) => self.masks.get(&of[0]).copied(),
            ArrayOp::Select if is_unreached(1) && self.masks.get(&of[2]) == Some(&of[0]) => Some(of[2]),
            _ => None,
        })
    }

    fn learn(&mut self, b: &ArrayBuilder, v: ValueId) {
        self.unreached.resize(b.so_far().n_values(), false);
        let Some(instr) = b.so_far().instrs().last().filter(|instr| instr.result == v) else { return };
        match instr.op {
            ArrayOp::Unreached(_) => self.unreached[v.at()] = true,
            ArrayOp::Select
                if self.is_unreached(instr.operands[1]) && !b.so_far().may_be_unreached(instr.operands[2]) =>
            {
                self.masks.insert(v, instr.operands[0]);
            }
            _ => {}
        }
    }
}
