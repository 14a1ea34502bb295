//! Gradients that are passed on in parts while the rest is computed.
//!
//! Promises: each part has the bits of the whole gradient, and is passed on right after the step that makes it final; a gradient of
//! one block of rows takes memory only for the parts that live at one time. Does not know who receives them.

use std::cmp::Reverse;
use std::ops::Range;

use super::super::build::ArrayBuilder;
use super::super::columns::in_columns;
use super::super::expand::inlined;
use super::super::instr::{ArrayOp, ArrayProgram, Element, OverRows, Rows, ValueId, View};
use super::super::lower::lowered;
use super::super::row::Row;
use super::draft::Drafts;
use super::{Argument, ArrayFloat, Plan, fold};
use crate::error::{Error, Result};
use crate::ops::Op;

/// Which results of a plan are passed on rather than kept.
#[derive(Clone, Debug)]
pub(super) struct Passing {
    /// In the order in which they are passed on.
    outputs: Vec<usize>,
    /// Whether their memory is free once they have been.
    is_short: bool,
    /// Whether they are results of rows, which pass them on themselves.
    of_rows: bool,
}

impl Passing {
    /// Of a block of these rows, which passes on some of the results. First comes what needs least of the sweep, by which is meant what
    /// several of them need and the loss does not: the last layer. The order is that of one row, so blocks of all lengths have the same.
    pub(super) fn of_block(passed: &[Option<usize>], of: &Rows) -> Result<Option<Self>> {
        let body = inlined(&of.body.0)?;
        let mut is_known = vec![false; body.instrs().len()];
        let kept = passed.iter().zip(body.outputs()).filter(|(passed, _)| passed.is_none());
        kept.for_each(|(_, &v)| _ = behind(&body, v, &mut is_known));
        let mut needs = Vec::with_capacity(passed.len());
        for (k, passed) in passed.iter().enumerate() {
            if let Some(result) = passed {
                needs.push((behind(&body, body.outputs()[k], &mut is_known.clone()), Reverse(*result), k));
            }
        }
        let mut uses = vec![0; body.instrs().len()];
        needs.iter().flat_map(|(needs, ..)| needs).for_each(|&at| uses[at] += 1);
        let sweep = |needs: &[usize]| needs.iter().filter(|&&at| uses[at] > 1).count();
        needs.sort_by_cached_key(|(needs, result, _)| (sweep(needs), needs.len(), *result));
        let outputs: Vec<_> = needs.into_iter().map(|(.., k)| k).collect();
        Ok((!outputs.is_empty()).then_some(Passing { outputs, is_short: of.is_one_block(), of_rows: false }))
    }

    /// The program with what each result needs that is passed on behind what the one before it needs, and each result in memory of its own.
    pub(super) fn ordered(&self, program: &ArrayProgram) -> Result<ArrayProgram> {
        let mut is_placed = vec![false; program.instrs().len()];
        let is_argument = |at: &usize| matches!(program.instrs()[*at].op, ArrayOp::Input(_) | ArrayOp::Param { .. });
        let mut order: Vec<_> = (0..is_placed.len()).filter(is_argument).collect();
        order.iter().for_each(|&at| is_placed[at] = true);
        let mut b = ArrayBuilder::new(program.dtype())?;
        let mut new = vec![ValueId(0); program.n_values()];
        let mut outputs = vec![None; program.outputs().len()];
        for k in self.outputs.iter().map(|&k| Some(k)).chain([None]) {
            match k {
                Some(k) => order.extend(behind(program, program.outputs()[k], &mut is_placed)),
                None => order.extend((0..is_placed.len()).filter(|&at| !is_placed[at])),
            }
            for at in order.drain(..) {
                let instr = &program.instrs()[at];
                let operands: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
                for (v, now) in program.results(at).zip(b.push_all(instr.op.clone(), &operands)?) {
                    new[v.at()] = now;
                }
            }
            if let Some(k) = k {
                let v = program.outputs()[k];
                let now = new[v.at()];
                outputs[k] = Some(if is_own(program, v) { now } else { b.push(ArrayOp::Copy, &[now])? });
            }
        }
        let outputs: Vec<_> =
            outputs.iter().zip(program.outputs()).map(|(own, v)| own.unwrap_or(new[v.at()])).collect();
        b.finish(&outputs)
    }

    /// Whether a block is to compute results in their order.
    pub(super) fn has_order(&self) -> bool {
        !self.of_rows
    }

    /// Which result that is passed on a value is.
    pub(super) fn output_of(&self, program: &ArrayProgram, v: ValueId) -> Option<usize> {
        self.outputs.iter().copied().find(|&k| self.of_rows && program.outputs()[k] == v)
    }

    /// The drafts after which results are passed on: those that make them final, unless one before them is not.
    fn after(&self, drafts: &Drafts<'_>) -> impl Iterator<Item = (usize, usize)> {
        self.outputs.iter().scan(0, |last, &k| {
            *last = drafts.needs[drafts.outputs[k]].first.max(*last);
            Some((*last, k))
        })
    }

    /// Ends the lifetime of what is passed on.
    pub(super) fn shorten(&self, drafts: &mut Drafts<'_>) {
        let after: Vec<_> = self.after(drafts).filter(|_| self.is_short).collect();
        for (step, k) in after {
            let at = drafts.outputs[k];
            if drafts.outputs.iter().filter(|&&other| other == at).count() > 1 {
                continue;
            }
            let need = &mut drafts.needs[at];
            need.last = need.last_read.max(step);
            if self.of_rows {
                need.len = 0;
            }
        }
    }

    /// The results that are passed on, in order, and the steps after which they are.
    pub(super) fn finals(&self, drafts: &Drafts<'_>, before: &[usize]) -> Vec<(usize, usize)> {
        self.after(drafts).filter(|_| !self.of_rows).map(|(step, k)| (before[step], k)).collect()
    }
}

/// The instructions that a value needs and that are not marked, in order. Marks them.
fn behind(program: &ArrayProgram, v: ValueId, is_marked: &mut [bool]) -> Vec<usize> {
    let at = |v: ValueId| program.instrs().partition_point(|instr| instr.result <= v) - 1;
    let (mut open, mut found) = (vec![at(v)], Vec::new());
    while let Some(k) = open.pop() {
        if !std::mem::replace(&mut is_marked[k], true) {
            found.push(k);
            open.extend(program.instrs()[k].operands.iter().map(|&v| at(v)));
        }
    }
    found.sort_unstable();
    found
}

/// Whether a value lies in memory of its own, in order.
fn is_own(program: &ArrayProgram, mut v: ValueId) -> bool {
    loop {
        let instr = program.instr_of(v);
        match instr.op {
            ArrayOp::View(View::Reshape(_)) | ArrayOp::Adjoint | ArrayOp::After => v = instr.operands[0],
            ArrayOp::View(_) | ArrayOp::Input(_) | ArrayOp::Param { .. } | ArrayOp::Const(..) => return false,
            ArrayOp::Literal(_) | ArrayOp::Unreached(_) => return false,
            _ => return true,
        }
    }
}

/// The instruction with rows of which a value is a result, and how it is totalled.
fn rows_of(program: &ArrayProgram, v: ValueId) -> Option<(usize, OverRows)> {
    let at = program.instrs().partition_point(|instr| instr.result <= v).checked_sub(1)?;
    let ArrayOp::Rows(rows) = &program.instrs()[at].op else { return None };
    let k = program.results(at).position(|result| result == v)?;
    Some((at, rows.results[k]))
}

/// The slices of which a result is the sum, onto zeros, and the values that they are.
fn slices_of(program: &ArrayProgram, result: usize) -> Option<Vec<(Range<usize>, ValueId)>> {
    let mut v = *program.outputs().get(result)?;
    let mut found = Vec::new();
    loop {
        let instr = program.instr_of(v);
        match &instr.op {
            ArrayOp::AccumulateAt(slices) => {
                let [slice] = &slices[..] else { return None };
                if slice.step != 1 {
                    return None;
                }
                found.push((slice.start..slice.start + slice.count, instr.operands[1]));
                v = instr.operands[0];
            }
            ArrayOp::View(View::Broadcast(_)) if is_zero(program, instr.operands[0]) => break,
            _ => return None,
        }
    }
    found.sort_by_key(|(range, _)| range.start);
    let is_apart = found.windows(2).all(|pair| pair[0].0.end <= pair[1].0.start);
    (is_apart && !found.is_empty()).then_some(found)
}

fn is_zero(program: &ArrayProgram, v: ValueId) -> bool {
    program.instr_of(v).op == ArrayOp::Literal(0f64.to_bits())
}

/// The sum over rows that a value is, but for its shape and the signs of zeros.
fn sum_behind(program: &ArrayProgram, mut v: ValueId) -> Option<ValueId> {
    loop {
        let instr = program.instr_of(v);
        v = match &instr.op {
            ArrayOp::View(View::Reshape(_)) => instr.operands[0],
            ArrayOp::Row(Row::Op(Op::AddConstant)) => {
                let added = program.instr_of(instr.operands[1]);
                let is_nothing = is_zero(program, instr.operands[1])
                    || matches!(added.op, ArrayOp::View(View::Broadcast(_))) && is_zero(program, added.operands[0]);
                is_nothing.then_some(instr.operands[0])?
            }
            ArrayOp::Rows(_) => return Some(v),
            _ => return None,
        };
    }
}

/// A program of a value and a gradient made ready, which passes the gradient on.
#[derive(Debug)]
pub struct PassingPlan<E> {
    plan: Plan<E>,
    ranges: Vec<Range<usize>>,
}

/// Receives a range of the gradient and its numbers, to which 0 is to be added: it makes -0 into 0. Returns whether to go on.
pub type TakePart<'a, E> = dyn FnMut(Range<usize>, &[E]) -> bool + 'a;

impl<E: ArrayFloat> PassingPlan<E> {
    /// Of a program with two results, a float and a gradient that is put together of parts which are sums over rows; `None` for
    /// any other.
    pub fn new(program: &ArrayProgram) -> Result<Option<Self>> {
        let program = program.without_calls()?;
        let [value, gradient] = program.outputs() else { return Ok(None) };
        if [value, gradient].iter().any(|v| program.type_of(**v).element != Element::Float) {
            return Ok(None);
        }
        let Some(slices) = slices_of(&program, 1) else { return Ok(None) };
        let mut outputs = vec![*value];
        let mut ranges = Vec::with_capacity(slices.len());
        for (range, v) in slices {
            let Some(sum) = sum_behind(&program, v) else { return Ok(None) };
            outputs.push(sum);
            ranges.push(range);
        }
        let program = in_columns(fold::folded::<E>(lowered(&program.with_outputs(outputs))?)?)?;
        let sums = &program.outputs()[1..];
        let rows: Vec<_> = sums.iter().filter_map(|&v| rows_of(&program, v)).collect();
        // Of one instruction each, so that they are final when its last block has been computed.
        let is_apart = (1..sums.len()).all(|k| !sums[..k].contains(&sums[k]));
        let is_one = rows.iter().all(|(at, over)| *at == rows[0].0 && *over == OverRows::Sum);
        if !(is_apart && is_one && rows.len() == sums.len()) {
            return Ok(None);
        }
        let is_short = matches!(&program.instrs()[rows[0].0].op, ArrayOp::Rows(of) if of.is_one_block());
        let outputs = (1..=sums.len()).collect();
        let plan = Plan::prepared(&program, None, Some(&Passing { outputs, is_short, of_rows: true }))?;
        Ok(Some(PassingPlan { plan, ranges }))
    }

    /// Runs it as [`Plan::run`] does; returns the value. Where `take` does not go on, that is [`Error::Interrupted`].
    pub fn run(&mut self, arguments: &[Argument<'_, E>], parameters: &[&[E]], take: &mut TakePart<'_, E>) -> Result<E> {
        let PassingPlan { plan, ranges } = self;
        let mut pass = |k: usize, part: &[E]| match take(ranges[k - 1].clone(), part) {
            true => Ok(()),
            false => Err(Error::Interrupted),
        };
        plan.run_with(arguments, parameters, Some(&mut pass))?;
        Ok(plan.floats(0)?[0])
    }

    /// The ranges that are passed on, in ascending order.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// Bytes of its buffers.
    pub fn bytes(&self) -> usize {
        self.plan.bytes()
    }
}
