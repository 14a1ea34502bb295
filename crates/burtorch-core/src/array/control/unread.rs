//! Removal of slices that the body of a loop does not read, of unread stacked results, and of carries that only their own next
//! steps read.
//!
//! Promises: the same results bit for bit.

use super::super::build::ArrayBuilder;
use super::super::expand::copied;
use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Length, Loop, ValueId};
use super::super::simplify::simplified;
use super::body::shared;
use crate::error::Result;

/// The program with loops that take and stack only what is read.
pub(in super::super) fn without_unread(program: ArrayProgram) -> Result<ArrayProgram> {
    let is_loop = |instr: &ArrayInstr| matches!(instr.op, ArrayOp::Loop(_));
    if !program.instrs().iter().any(is_loop) {
        return Ok(program);
    }
    carrying_what_is_read(&stacking_what_is_read(&taking_what_is_read(&program)?.cleaned()?)?)?.cleaned()
}

fn read_of(program: &ArrayProgram) -> Vec<bool> {
    let mut is_read = vec![false; program.n_values()];
    let read = program.instrs().iter().flat_map(|instr| &instr.operands[..]);
    read.chain(program.outputs()).for_each(|v| is_read[v.at()] = true);
    is_read
}

/// The program with loops without carries that only the next steps of themselves read.
fn carrying_what_is_read(program: &ArrayProgram) -> Result<ArrayProgram> {
    let is_read = read_of(program);
    copied(program, |b, at, operands| {
        let op = &program.instrs()[at].op;
        let ArrayOp::Loop(of) = op else { return b.push_all(op.clone(), operands) };
        let of = Loop { body: shared(carrying_what_is_read(&of.body.0)?), ..of.clone() };
        let results: Vec<_> = program.results(at).collect();
        let is_live = live_carries(&of, results.iter().take(of.carries).map(|v| is_read[v.at()]).collect());
        if is_live.iter().all(|is_live| *is_live) {
            return b.push_all(ArrayOp::Loop(of), operands);
        }
        let stays = |k: usize| k < of.captures || is_live.get(k - of.captures).copied().unwrap_or(true);
        let outputs = of.body.0.outputs().iter().enumerate();
        let outputs = outputs.filter(|(k, _)| is_live.get(*k).copied().unwrap_or(true)).map(|(_, &v)| v).collect();
        let length = match &of.length {
            Length::While { condition, most } => {
                Length::While { condition: shared(with_inputs((*condition.0).clone(), stays)?), most: *most }
            }
            other => other.clone(),
        };
        let body = shared(with_inputs((*of.body.0).clone().with_outputs(outputs), stays)?);
        let carries = is_live.iter().filter(|is_live| **is_live).count();
        let (first, others) = operands.split_at(of.first());
        let kept = others.iter().enumerate().filter(|(k, _)| stays(*k)).map(|(_, v)| *v);
        let operands: Vec<_> = first.iter().copied().chain(kept).collect();
        let mut found = b.push_all(ArrayOp::Loop(Loop { body, length, carries, ..of.clone() }), &operands)?.into_iter();
        let is_left = |k: usize| is_live.get(k).copied().unwrap_or(true);
        // Nothing reads the others.
        Ok((0..results.len()).map(|k| if is_left(k) { found.next() } else { None }.unwrap_or(ValueId(0))).collect())
    })
}

/// Which carries something reads besides their own next steps, given those whose last values something reads.
fn live_carries(of: &Loop, mut is_live: Vec<bool>) -> Vec<bool> {
    let body = &of.body.0;
    if let Length::While { condition, .. } = &of.length {
        let is_read = read_of(&condition.0);
        let inputs = &condition.0.inputs()[of.captures..];
        inputs.iter().zip(&mut is_live).for_each(|(v, is_live)| *is_live |= is_read[v.at()]);
    }
    loop {
        let mut needed = vec![false; body.n_values()];
        let outputs = body.outputs().iter().enumerate();
        outputs.filter(|(k, _)| is_live.get(*k) != Some(&false)).for_each(|(_, v)| needed[v.at()] = true);
        for (at, instr) in body.instrs().iter().enumerate().rev() {
            if body.results(at).any(|v| needed[v.at()]) {
                instr.operands.iter().for_each(|v| needed[v.at()] = true);
            }
        }
        let before = is_live.clone();
        let inputs = &body.inputs()[of.captures..];
        inputs.iter().zip(&mut is_live).for_each(|(v, is_live)| *is_live |= needed[v.at()]);
        if is_live == before {
            return is_live;
        }
    }
}

/// The program with those of its inputs that stay; nothing that its results need reads the others.
fn with_inputs(program: ArrayProgram, stays: impl Fn(usize) -> bool) -> Result<ArrayProgram> {
    let program = program.cleaned()?;
    let mut b = ArrayBuilder::new(program.dtype())?;
    let mut arguments = Vec::with_capacity(program.inputs().len());
    for (k, &v) in program.inputs().iter().enumerate() {
        let ty = program.type_of(v);
        arguments.push(if stays(k) { b.push(ArrayOp::Input(ty), &[])? } else { ValueId(0) });
    }
    let new = b.append(&program, &arguments)?;
    let outputs: Vec<_> = program.outputs().iter().map(|v| new[v.at()]).collect();
    b.finish(&outputs)
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
    let is_read = read_of(program);
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
