//! Tangents of 0.
//!
//! Promises: where a tangent is 0 nothing moves, however large a partial is; a derivative by the tangent itself, in which it is
//! no number but a variable, is that of the identity. Does not know modes.

use std::sync::Arc;

use super::activity::{active_in_loop, active_values};
use super::build::ArrayBuilder;
use super::expand::copied;
use super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Comparison, Loop, Shared, ValueId, View};
use crate::error::Result;

impl ArrayBuilder {
    /// A tangent with zero tangents marked.
    pub(super) fn at_rest_unreached(&mut self, t: ValueId) -> Result<ValueId> {
        let dims = self.dims(t);
        let zero = self.literal(0.0)?;
        let zero = self.broadcast_to(zero, dims)?;
        let rests = self.push(ArrayOp::Compare(Comparison::Equal), &[t, zero])?;
        let unreached = self.push(ArrayOp::Unreached(dims), &[])?;
        self.push(ArrayOp::Select, &[rests, unreached, t])
    }
}

/// Whether an instruction marks zero tangents.
fn marks_rest(program: &ArrayProgram, instr: &ArrayInstr) -> bool {
    let [rests, unreached, t] = instr.operands[..] else { return false };
    let (rests, mut nothing) = (program.instr_of(rests), program.instr_of(unreached));
    while let ArrayOp::View(View::Broadcast(_) | View::Reshape(_)) = nothing.op {
        nothing = program.instr_of(nothing.operands[0]);
    }
    let of_t = rests.op == ArrayOp::Compare(Comparison::Equal) && rests.operands[0] == t;
    instr.op == ArrayOp::Select && of_t && matches!(nothing.op, ArrayOp::Unreached(_))
}

/// Whether it marks any, itself or in a loop. Other programs within it are differentiated on their own.
fn has_rest(program: &ArrayProgram) -> bool {
    program.instrs().iter().any(|instr| match &instr.op {
        ArrayOp::Loop(of) => has_rest(&of.body.0),
        _ => marks_rest(program, instr),
    })
}

/// The program without marks on those tangents that move with variables: a derivative by them would find nothing where they
/// are 0.
pub(super) fn without_rest(program: ArrayProgram, variables: &[ValueId]) -> Result<ArrayProgram> {
    if !has_rest(&program) {
        return Ok(program);
    }
    let active = active_values(&program, variables);
    copied(&program, |b, at, operands| {
        let instr = &program.instrs()[at];
        let is_active: Vec<_> = instr.operands.iter().map(|v| active[v.at()]).collect();
        match &instr.op {
            ArrayOp::Loop(of) if has_rest(&of.body.0) => {
                let body = &of.body.0;
                let (moving, _) = active_in_loop(of, &is_active[of.first()..]);
                let moving: Vec<_> = body.inputs().iter().zip(moving).filter(|(_, m)| *m).map(|(&v, _)| v).collect();
                let body = Shared(Arc::new(without_rest((**body).clone(), &moving)?));
                b.push_all(ArrayOp::Loop(Loop { body, ..of.clone() }), operands)
            }
            _ if marks_rest(&program, instr) && is_active[2] => b.reached(operands[2]).map(|t| vec![t]),
            op => b.push_all(op.clone(), operands),
        }
    })
}
