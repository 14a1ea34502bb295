//! What is equal in all steps of a loop, computed before it.
//!
//! Promises that what moves out of a body reads captures only and ends by itself: no loops, no choices. So equal instructions are
//! done once, as in the unrolled program.

use super::super::build::ArrayBuilder;
use super::super::instr::{ArrayOp, Loop, ValueId};
use super::body::shared;
use crate::error::Result;

impl ArrayBuilder {
    /// A loop over the steps of `body`, without what is equal in all of them. `of.body` is replaced.
    pub(super) fn push_hoisted(&mut self, mut of: Loop, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        // The type rule is that of the whole loop.
        let types: Vec<_> = operands.iter().map(|&v| self.type_of(v)).collect();
        ArrayOp::Loop(of.clone()).infer(&types)?;
        let mut operands = operands.to_vec();
        let counts = self.without_counters(&mut of, &mut operands)?;
        let body = of.body.0.cleaned()?;
        let (captures, rest) = body.inputs().split_at(of.captures);
        // What each value is out here, where it is equal in all steps.
        let mut outside: Vec<Option<ValueId>> = vec![None; body.n_values()];
        for (v, &operand) in captures.iter().zip(&operands) {
            outside[v.at()] = Some(operand);
        }
        let mut stays = vec![true; body.instrs().len()];
        for (at, instr) in body.instrs().iter().enumerate() {
            let moves = !matches!(instr.op, ArrayOp::Loop(_) | ArrayOp::Cond { .. } | ArrayOp::Call(_));
            let given: Option<Vec<_>> = instr.operands.iter().map(|v| outside[v.at()]).collect();
            let Some(given) = given.filter(|given| moves && !given.is_empty()) else { continue };
            stays[at] = false;
            for (v, now) in body.results(at).zip(self.push_all(instr.op.clone(), &given)?) {
                outside[v.at()] = Some(now);
            }
        }
        let mut b = ArrayBuilder::new(body.dtype())?;
        let mut new = vec![ValueId(0); body.n_values()];
        let mut given = Vec::new();
        // In the order of their first use.
        let used = (0..stays.len()).filter(|&at| stays[at]).flat_map(|at| body.instrs()[at].operands.iter());
        for &v in used.chain(body.outputs()) {
            if let Some(operand) = outside[v.at()]
                && !given.contains(&(v, operand))
            {
                given.push((v, operand));
                new[v.at()] = b.push(ArrayOp::Input(body.type_of(v)), &[])?;
            }
        }
        for &v in rest {
            new[v.at()] = b.push(ArrayOp::Input(body.type_of(v)), &[])?;
        }
        for (at, instr) in body.instrs().iter().enumerate() {
            if stays[at] && !matches!(instr.op, ArrayOp::Input(_)) {
                let operands: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
                for (v, now) in body.results(at).zip(b.push_all(instr.op.clone(), &operands)?) {
                    new[v.at()] = now;
                }
            }
        }
        let outputs: Vec<_> = body.outputs().iter().map(|v| new[v.at()]).collect();
        let operands: Vec<_> = given.iter().map(|(_, v)| *v).chain(operands[of.captures..].iter().copied()).collect();
        of.captures = given.len();
        of.body = shared(b.finish(&outputs)?);
        let mut results = self.push_all(ArrayOp::Loop(of), &operands)?;
        for (carry, last) in counts {
            let last = self.push(ArrayOp::Integer(last), &[])?;
            results.insert(carry, last);
        }
        Ok(results)
    }
}
