//! Removal of unused instructions and of repeated ones.
//!
//! Promises: the same inputs and parameters in the same order, the same outputs bit for bit, one pass in each direction. Does
//! not know algebra.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;

use super::build::ArrayBuilder;
use super::instr::{ArrayOp, ArrayProgram, Element, ValueId, View};
use super::words::Words;
use crate::error::Result;

/// What is known of an instruction with these operands.
type Known<'a, T> = HashMap<(&'a ArrayOp, Box<[ValueId]>), T, BuildHasherDefault<Words>>;

/// Marks the instructions that outputs need.
fn needed(program: &ArrayProgram) -> Vec<bool> {
    let mut values = vec![false; program.n_values()];
    for v in program.outputs() {
        values[v.at()] = true;
    }
    let mut needed = vec![false; program.instrs().len()];
    for (at, instr) in program.instrs().iter().enumerate().rev() {
        let is_kept = matches!(instr.op, ArrayOp::Input(_) | ArrayOp::Param { .. });
        needed[at] = is_kept || program.results(at).any(|v| values[v.at()]);
        if needed[at] {
            instr.operands.iter().for_each(|v| values[v.at()] = true);
        }
    }
    needed
}

/// Whether an instruction computes no float, and its adjoint none: at most it reads existing floats. Equal ones may share one
/// adjoint, the sum for their results.
pub(super) fn computes_no_float(program: &ArrayProgram, at: usize) -> bool {
    let instr = &program.instrs()[at];
    let looks = matches!(
        instr.op,
        ArrayOp::Param { .. }
            | ArrayOp::Literal(_)
            | ArrayOp::Const(..)
            | ArrayOp::Unreached(_)
            | ArrayOp::View(View::Reshape(_) | View::Permute(_) | View::Slice(_))
            | ArrayOp::Take { .. }
    );
    looks || program.results(at).all(|v| program.type_of(v).element != Element::Float)
}

impl ArrayProgram {
    /// The same program without unused instructions and with equal instructions computed once.
    ///
    /// Costs time and memory proportional to the number of instructions. Derivatives of the result are those of this program up
    /// to the order in which contributions are added.
    pub fn cleaned(&self) -> Result<ArrayProgram> {
        self.cleaned_of(|_| true)
    }

    /// The same program without unused instructions, and with those computed once that compute no float: contributions
    /// are added in the same order.
    pub(super) fn pruned(&self) -> Result<ArrayProgram> {
        self.cleaned_of(|at| computes_no_float(self, at))
    }

    fn cleaned_of(&self, is_done_once: impl Fn(usize) -> bool) -> Result<ArrayProgram> {
        let needed = needed(self);
        let mut b = ArrayBuilder::new(self.dtype())?;
        let mut new = vec![ValueId(0); self.n_values()];
        let mut known: Known<'_, Vec<ValueId>> = Known::default();
        for (at, instr) in self.instrs().iter().enumerate().filter(|(at, _)| needed[*at]) {
            let operands: Box<[ValueId]> = instr.operands.iter().map(|v| new[v.at()]).collect();
            let results = match matches!(instr.op, ArrayOp::Input(_)) || !is_done_once(at) {
                true => b.push_all(instr.op.clone(), &operands)?,
                false => match known.entry((&instr.op, operands)) {
                    Entry::Occupied(known) => known.get().clone(),
                    Entry::Vacant(new) => {
                        let results = b.push_all(instr.op.clone(), &new.key().1)?;
                        new.insert(results).clone()
                    }
                },
            };
            for (v, &now) in self.results(at).zip(&results) {
                new[v.at()] = now;
            }
        }
        let outputs: Vec<_> = self.outputs().iter().map(|v| new[v.at()]).collect();
        b.finish(&outputs)
    }

    /// For each value the first equal one.
    pub(super) fn first_alike(&self) -> Vec<ValueId> {
        let mut first: Vec<_> = (0..self.n_values() as u32).map(ValueId).collect();
        let mut known: Known<'_, usize> = Known::default();
        for (at, instr) in self.instrs().iter().enumerate().filter(|(_, instr)| !matches!(instr.op, ArrayOp::Input(_)))
        {
            let operands = instr.operands.iter().map(|v| first[v.at()]).collect();
            let before = *known.entry((&instr.op, operands)).or_insert(at);
            for (v, w) in self.results(at).zip(self.results(before)) {
                first[v.at()] = w;
            }
        }
        first
    }
}
