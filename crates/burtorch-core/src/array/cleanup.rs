//! Programs without what nothing needs, and without what is computed twice.
//!
//! Promises: the same inputs and parameters in the same order, the same outputs to the last bit, one pass each way. Knows no
//! algebra.

use std::collections::HashMap;

use super::build::ArrayBuilder;
use super::instr::{ArrayOp, ArrayProgram, ValueId};
use crate::error::Result;

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

impl ArrayProgram {
    /// The same program without instructions that no output needs and with equal instructions done once.
    ///
    /// Costs time and memory proportional to the number of instructions.
    pub fn cleaned(&self) -> Result<ArrayProgram> {
        let needed = needed(self);
        let mut b = ArrayBuilder::new(self.dtype())?;
        let mut new = vec![ValueId(0); self.n_values()];
        let mut known: HashMap<(&ArrayOp, Box<[ValueId]>), Vec<ValueId>> = HashMap::new();
        for (at, instr) in self.instrs().iter().enumerate().filter(|(at, _)| needed[*at]) {
            let operands: Box<[ValueId]> = instr.operands.iter().map(|v| new[v.at()]).collect();
            let is_input = matches!(instr.op, ArrayOp::Input(_));
            let results = match known.get(&(&instr.op, operands.clone())) {
                Some(results) if !is_input => results.clone(),
                _ => b.push_all(instr.op.clone(), &operands)?,
            };
            for (v, &now) in self.results(at).zip(&results) {
                new[v.at()] = now;
            }
            known.insert((&instr.op, operands), results);
        }
        let outputs: Vec<_> = self.outputs().iter().map(|v| new[v.at()]).collect();
        b.finish(&outputs)
    }
}
