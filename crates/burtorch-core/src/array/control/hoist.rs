//! Loop-invariant instructions, moved before the loop.
//!
//! Promises: a moved instruction reads captures only and always terminates: no loops, no branches, and, if the loop may have no
//! step, no instruction that may fail. Before derivatives are taken, computed floats stay in the body, so that each step
//! contributes to captures as in the unrolled program.

use super::super::build::ArrayBuilder;
use super::super::cleanup::computes_no_float;
use super::super::expand::{copied, written_out_whole};
use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Length, Loop, Type, ValueId};
use super::body::shared;
use crate::error::Result;

/// The program, of which no derivative is taken any more, with what is equal in all steps of loops computed before these.
pub(in super::super) fn hoisted(program: &ArrayProgram) -> Result<ArrayProgram> {
    let program = cleaned_whole(program)?;
    if !program.instrs().iter().any(|instr| matches!(instr.op, ArrayOp::Loop(_))) {
        return Ok(program);
    }
    copied(&program, |b, at, operands| match &program.instrs()[at].op {
        ArrayOp::Loop(of) => {
            let mut of = Loop { body: shared(hoisted(&of.body.0)?), ..of.clone() };
            if let Length::While { condition, .. } = &mut of.length {
                *condition = shared(cleaned_whole(&condition.0)?);
            }
            b.push_without_equal(of, operands, |_, _| true)
        }
        op => b.push_all(op.clone(), operands),
    })?
    .cleaned()
}

/// The program without calls and opaque programs, cleaned.
fn cleaned_whole(program: &ArrayProgram) -> Result<ArrayProgram> {
    let is_written_out = |instr: &ArrayInstr| !matches!(instr.op, ArrayOp::Call(_) | ArrayOp::Apart(_));
    if program.instrs().iter().all(is_written_out) { program.cleaned() } else { written_out_whole(program)?.cleaned() }
}

/// A program of a loop, in two parts.
struct Parted<'a> {
    program: &'a ArrayProgram,
    captures: usize,
    /// What each value is before the loop, where it is equal in all steps.
    outside: Vec<Option<ValueId>>,
}

impl Parted<'_> {
    fn stays(&self, instr: &ArrayInstr) -> bool {
        self.outside[instr.result.at()].is_none() && !matches!(instr.op, ArrayOp::Input(_))
    }

    /// The values that are read and equal in all steps, in the order of their first use.
    fn read(&self) -> impl Iterator<Item = (ValueId, Type)> {
        let staying = self.program.instrs().iter().filter(|instr| self.stays(instr));
        let read = staying.flat_map(|instr| instr.operands.iter()).chain(self.program.outputs());
        read.filter_map(|&v| Some((self.outside[v.at()]?, self.program.type_of(v))))
    }

    /// The part that stays, with these captures.
    fn rest(&self, captures: &[(ValueId, Type)]) -> Result<ArrayProgram> {
        let program = self.program;
        let mut b = ArrayBuilder::new(program.dtype())?;
        let given = b.inputs_of(captures.iter().map(|(_, ty)| ty))?;
        let capture = |v: ValueId| captures.iter().position(|(operand, _)| Some(*operand) == self.outside[v.at()]);
        let values = (0..program.n_values() as u32).map(|v| capture(ValueId(v)).map_or(ValueId(0), |k| given[k]));
        let mut new: Vec<_> = values.collect();
        for &v in &program.inputs()[self.captures..] {
            new[v.at()] = b.push(ArrayOp::Input(program.type_of(v)), &[])?;
        }
        for (at, instr) in program.instrs().iter().enumerate().filter(|(_, instr)| self.stays(instr)) {
            let operands: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
            for (v, now) in program.results(at).zip(b.push_all(instr.op.clone(), &operands)?) {
                new[v.at()] = now;
            }
        }
        let outputs: Vec<_> = program.outputs().iter().map(|v| new[v.at()]).collect();
        b.finish(&outputs)
    }
}

impl ArrayBuilder {
    /// A loop over the steps of `body`, without what is equal in all of them and computes no float.
    pub(super) fn push_scan(&mut self, mut of: Loop, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        // The type rule is that of the whole loop.
        let types: Vec<_> = operands.iter().map(|&v| self.type_of(v)).collect();
        ArrayOp::Loop(of.clone()).infer(&types)?;
        let mut operands = operands.to_vec();
        let counts = self.without_counters(&mut of, &mut operands)?;
        of.body = shared(of.body.0.pruned()?);
        let mut results = self.push_without_equal(of, &operands, computes_no_float)?;
        for (carry, last) in counts {
            let last = self.push(ArrayOp::Integer(last), &[])?;
            results.insert(carry, last);
        }
        Ok(results)
    }

    /// A loop without those instructions that may move and are equal in all steps.
    fn push_without_equal(
        &mut self,
        mut of: Loop,
        operands: &[ValueId],
        may_move: impl Fn(&ArrayProgram, usize) -> bool,
    ) -> Result<Vec<ValueId>> {
        // What may fail is left to the steps where there may be none.
        let has_steps = matches!(of.length, Length::Fixed(1..));
        let may_move = |program: &ArrayProgram, at: usize| {
            may_move(program, at) && (has_steps || !may_fail(&program.instrs()[at].op))
        };
        let (counted, operands) = operands.split_at(of.first());
        let (captures, rest) = operands.split_at(of.captures);
        let body = of.body.0.clone();
        let parted = self.parted(&body, captures, may_move)?;
        let mut read: Vec<_> = parted.read().collect();
        if let Length::While { condition, .. } = &mut of.length {
            let program = condition.0.clone();
            let parted = self.parted(&program, captures, may_move)?;
            read.extend(parted.read());
            read = each_once(read);
            *condition = shared(parted.rest(&read)?);
        }
        let read = each_once(read);
        of.captures = read.len();
        of.body = shared(parted.rest(&read)?);
        let captures = read.iter().map(|(operand, _)| *operand);
        let operands: Vec<_> = counted.iter().copied().chain(captures).chain(rest.iter().copied()).collect();
        self.push_all(ArrayOp::Loop(of), &operands)
    }

    /// The program, with those instructions done here that may move and are equal in all steps.
    fn parted<'p>(
        &mut self,
        program: &'p ArrayProgram,
        captures: &[ValueId],
        may_move: impl Fn(&ArrayProgram, usize) -> bool,
    ) -> Result<Parted<'p>> {
        let mut outside: Vec<Option<ValueId>> = vec![None; program.n_values()];
        for (v, &operand) in program.inputs().iter().zip(captures) {
            outside[v.at()] = Some(operand);
        }
        for (at, instr) in program.instrs().iter().enumerate() {
            let is_long = matches!(instr.op, ArrayOp::Loop(_) | ArrayOp::Cond { .. } | ArrayOp::Call(_));
            // An argument of a body is reached.
            let is_adjoint = program.results(at).any(|v| program.may_be_unreached(v));
            let given: Option<Vec<_>> = instr.operands.iter().map(|v| outside[v.at()]).collect();
            let Some(given) = given.filter(|given| !given.is_empty()) else { continue };
            if !is_long && !is_adjoint && may_move(program, at) {
                for (v, now) in program.results(at).zip(self.push_all(instr.op.clone(), &given)?) {
                    outside[v.at()] = Some(now);
                }
            }
        }
        Ok(Parted { program, captures: captures.len(), outside })
    }
}

/// Whether an instruction is an error for some numbers.
fn may_fail(op: &ArrayOp) -> bool {
    let is_by_index = matches!(op, ArrayOp::Take { .. } | ArrayOp::ScatterAdd { .. } | ArrayOp::ScatterSet { .. });
    is_by_index || matches!(op, ArrayOp::Lu | ArrayOp::Qr | ArrayOp::Cholesky)
}

fn each_once(all: Vec<(ValueId, Type)>) -> Vec<(ValueId, Type)> {
    let mut once: Vec<(ValueId, Type)> = Vec::with_capacity(all.len());
    for (operand, ty) in all {
        if once.iter().all(|(known, _)| *known != operand) {
            once.push((operand, ty));
        }
    }
    once
}
