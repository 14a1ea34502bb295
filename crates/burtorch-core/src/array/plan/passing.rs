//! Gradients that are passed on in parts while the rest is computed.
//!
//! Promises: each part has the bits of the whole gradient, and is passed on right after the step that makes it final; a gradient of
//! one block of rows takes memory only for the parts that live at one time. Does not know who receives them.

use std::ops::Range;

use super::super::columns::in_columns;
use super::super::instr::{ArrayOp, ArrayProgram, Element, OverRows, ValueId, View};
use super::super::lower::lowered;
use super::super::row::Row;
use super::draft::Drafts;
use super::{Argument, ArrayFloat, Plan, fold};
use crate::error::{Error, Result};
use crate::ops::Op;

/// Which results of a plan are passed on rather than kept.
#[derive(Clone, Debug)]
pub(super) struct Passing {
    outputs: Vec<bool>,
    /// Whether their memory is free once they have been.
    is_short: bool,
    /// Whether they are results of rows, which pass them on themselves.
    of_rows: bool,
}

impl Passing {
    /// Of a block of rows with these results.
    pub(super) fn of_block(passed: &[Option<usize>], is_one_block: bool) -> Option<Self> {
        let outputs: Vec<_> = passed.iter().map(Option::is_some).collect();
        outputs.contains(&true).then_some(Passing { outputs, is_short: is_one_block, of_rows: false })
    }

    /// Which result that is passed on a value is.
    pub(super) fn output_of(&self, program: &ArrayProgram, v: ValueId) -> Option<usize> {
        if !self.of_rows {
            return None;
        }
        program.outputs().iter().zip(&self.outputs).position(|(output, is_passed)| *is_passed && *output == v)
    }

    /// Ends the lifetime of what is passed on.
    pub(super) fn shorten(&self, drafts: &mut Drafts<'_>) {
        for k in (0..drafts.outputs.len()).filter(|&k| self.is_short && self.outputs[k]) {
            let at = drafts.outputs[k];
            if drafts.outputs.iter().filter(|&&other| other == at).count() > 1 {
                continue;
            }
            let need = &mut drafts.needs[at];
            need.last = need.last_read.max(need.first);
            if self.of_rows {
                need.len = 0;
            }
        }
    }

    /// The results that are passed on by the steps that make them final.
    pub(super) fn finals(&self, drafts: &Drafts<'_>, before: &[usize]) -> Vec<(usize, usize)> {
        let passed = |k: &usize| self.outputs[*k] && !self.of_rows;
        (0..drafts.outputs.len()).filter(passed).map(|k| (before[drafts.needs[drafts.outputs[k]].first], k)).collect()
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
        // The last range first, if the program leaves the order open.
        outputs[1..].reverse();
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
        let outputs = (0..=sums.len()).map(|k| k > 0).collect();
        let plan = Plan::prepared(program, None, Some(&Passing { outputs, is_short, of_rows: true }))?;
        Ok(Some(PassingPlan { plan, ranges }))
    }

    /// Runs it as [`Plan::run`] does; returns the value. Where `take` does not go on, that is [`Error::Interrupted`].
    pub fn run(&mut self, arguments: &[Argument<'_, E>], parameters: &[&[E]], take: &mut TakePart<'_, E>) -> Result<E> {
        let PassingPlan { plan, ranges } = self;
        plan.run_passing(arguments, parameters, &mut |k, part| match take(ranges[ranges.len() - k].clone(), part) {
            true => Ok(()),
            false => Err(Error::Interrupted),
        })?;
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
