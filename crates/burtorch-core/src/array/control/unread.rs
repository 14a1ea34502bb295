//! Removal of slices that the body of a loop does not read, and of unread stacked results.
//!
//! Promises: the same results bit for bit.

use super::super::expand::copied;
use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Loop, ValueId};
use super::super::simplify::simplified;
use super::body::shared;
use crate::error::Result;

/// The program with loops that take and stack only what is read.
pub(in super::super) fn without_unread(program: &ArrayProgram) -> Result<ArrayProgram> {
    let is_loop = |instr: &ArrayInstr| matches!(instr.op, ArrayOp::Loop(_));
    if !program.instrs().iter().any(is_loop) {
        return Ok(program.clone());
    }
    stacking_what_is_read(&taking_what_is_read(program)?.cleaned()?)
}

/// The program with loops that take only what their bodies read: a partial may need no value, as that of a sum.
fn taking_what_is_read(program: &ArrayProgram) -> Result<ArrayProgram> {
    copied(program, |b, at, operands| match &program.instrs()[at].op {
        ArrayOp::Loop(of) => {
            let body = shared(taking_what_is_read(&simplified(&of.body.0)?)?);
            b.push_loop(Loop { body, ..of.clone() }, operands)
        }
        op => b.push_all(op.clone(), operands),
    })
}

fn stacking_what_is_read(program: &ArrayProgram) -> Result<ArrayProgram> {
    let mut is_read = vec![false; program.n_values()];
    let read = program.instrs().iter().flat_map(|instr| &instr.operands[..]);
    read.chain(program.outputs()).for_each(|v| is_read[v.at()] = true);
    copied(program, |b, at, operands| {
        let op = &program.instrs()[at].op;
        let ArrayOp::Loop(of) = op else { return b.push_all(op.clone(), operands) };
        let outputs = of.body.0.outputs();
        let stays: Vec<_> = program
            .results(at)
            .enumerate()
            .map(|(k, v)| !(of.carries..outputs.len()).contains(&k) || is_read[v.at()])
            .collect();
        if stays.iter().all(|stays| *stays) {
            return b.push_all(op.clone(), operands);
        }
        let outputs = outputs.iter().zip(&stays).filter(|(_, stays)| **stays).map(|(&v, _)| v).collect();
        let body = shared((*of.body.0).clone().with_outputs(outputs));
        let mut found = b.push_all(ArrayOp::Loop(Loop { body, ..of.clone() }), operands)?.into_iter();
        // Nothing reads the others.
        Ok(stays.iter().map(|stays| if *stays { found.next() } else { None }.unwrap_or(ValueId(0))).collect())
    })
}
