//! Elementwise instructions on operands that are the same along an axis, computed once along it.
//!
//! Jacobians and batches repeat the numbers of a function beside all tangents: a factor with a function in it is computed for those
//! numbers, and then repeated. Promises: the same results bit for bit. Does not know plans.

use super::build::ArrayBuilder;
use super::dims::Dims;
use super::expand::copied;
use super::expansion::factor_of;
use super::instr::{ArrayInstr, ArrayOp, ArrayProgram, ValueId, View};
use crate::error::Result;

/// Numbers of a result from which on it is worth another pass.
const MANY: usize = 1 << 10;

/// The program with what is repeated computed once.
pub(super) fn once_along_axes(program: ArrayProgram) -> Result<ArrayProgram> {
    let is_long = |instr: &ArrayInstr| program.type_of(instr.result).dims.size() >= MANY;
    let repeats = |instr: &ArrayInstr| matches!(instr.op, ArrayOp::View(View::Broadcast(_))) && is_long(instr);
    if !program.instrs().iter().any(repeats) {
        return Ok(program);
    }
    copied(&program, |b, at, operands| {
        let instr = &program.instrs()[at];
        if !is_long(instr) {
            return b.push_all(instr.op.clone(), operands);
        }
        match instr.op {
            ArrayOp::Row(_) | ArrayOp::Compare(_) | ArrayOp::Select => {
                let Some((dims, small)) = b.distinct(operands)? else { return b.push_all(instr.op.clone(), operands) };
                let once = b.push(instr.op.clone(), &small)?;
                Ok(vec![b.broadcast_to(once, dims)?])
            }
            ArrayOp::Pull(..) => match b.factor_once(instr, operands)? {
                Some(factor) => Ok(vec![b.adjoint_product(operands[0], factor)?]),
                None => b.push_all(instr.op.clone(), operands),
            },
            _ => b.push_all(instr.op.clone(), operands),
        }
    })
}

impl ArrayBuilder {
    /// What a value repeats, with as many axes as the value.
    fn repeated(&mut self, v: ValueId) -> Result<(Dims, ValueId)> {
        let dims = self.dims(v);
        let ArrayInstr { op, operands, .. } = self.so_far().instr_of(v).clone();
        let ArrayOp::View(View::Broadcast(_)) = op else { return Ok((dims, v)) };
        let from = self.dims(operands[0]);
        let mut extents = vec![1; dims.rank() - from.rank()];
        extents.extend_from_slice(&from);
        let own = Dims::new(&extents)?;
        Ok((own, self.view(operands[0], View::Reshape(own))?))
    }

    /// The shape of these values, and the values without what all of them repeat, if that is at least half.
    fn distinct(&mut self, of: &[ValueId]) -> Result<Option<(Dims, Vec<ValueId>)>> {
        let dims = self.dims(of[0]);
        let repeats = |v: &ValueId| matches!(self.so_far().instr_of(*v).op, ArrayOp::View(View::Broadcast(_)));
        if !of.iter().all(repeats) {
            return Ok(None);
        }
        let found = of.iter().map(|&v| self.repeated(v)).collect::<Result<Vec<_>>>()?;
        let own = |axis| found.iter().map(|(own, _)| own[axis]).max().unwrap_or(1);
        let own = Dims::new(&(0..dims.rank()).map(own).collect::<Vec<_>>())?;
        if own.size() > dims.size() / 2 {
            return Ok(None);
        }
        let small = found.into_iter().map(|(_, v)| self.broadcast_to(v, own)).collect::<Result<_>>()?;
        Ok(Some((dims, small)))
    }

    /// The factor of a contribution, if its operands repeat numbers.
    fn factor_once(&mut self, instr: &ArrayInstr, operands: &[ValueId]) -> Result<Option<ValueId>> {
        let Some(formula) = factor_of(instr) else { return Ok(None) };
        let places = [0, 1, 2, operands.len() - 1];
        let reads = formula.reads();
        let read: Vec<_> = (0..4).filter(|&k| reads[k]).map(|k| operands[places[k]]).collect();
        if read.is_empty() {
            return Ok(None);
        }
        let Some((dims, small)) = self.distinct(&read)? else { return Ok(None) };
        let mut given = [small[0]; 4];
        for (k, v) in (0..4).filter(|&k| reads[k]).zip(small) {
            given[k] = v;
        }
        let factor = self.formula(&formula, &given)?;
        self.broadcast_to(factor, dims).map(Some)
    }
}
