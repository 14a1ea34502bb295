//! Parts of a loop that do not depend on earlier steps, computed for all steps at once.
//!
//! Instructions that read slices and captures but no carry move before the loop, which reads their results in slices; those that
//! no carry of the next step reads move after the loop, which stacks their operands. A contribution whose factor reads no carry
//! is written as their product. Promises: the same results bit for bit, and only moves that save time: a pass over arrays has no
//! call for each step, and takes several numbers at a time. The moved values are limited, like those stored for reverse mode. Does
//! not know how loops run.

use std::collections::HashMap;

use super::super::build::ArrayBuilder;
use super::super::expand::{copied, written_out_whole};
use super::super::expansion::{Expansion, MathOp, MathStep, factor_of, partial_of, value_of};
use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Element, Length, Loop, Reduce, ValueId};
use super::super::simplify::simplified;
use super::body::{parts, shared};
use super::checkpoint::{MOST, TIMES};
use crate::error::Result;

/// Steps from which on it is worth while.
const STEPS: usize = 3;

/// Numbers of a step that one value may have in order to cross: calls do not count beside the work of longer ones.
const WIDE: usize = 1024;

/// Values that may cross.
const CROSSING: usize = 24;

/// What a number that crosses costs, in operations on one number: it is stored once and read once.
const TRANSFER: usize = 2;

/// The program with its loops freed of what steps do not hand to each other.
pub(in super::super) fn with_steps_at_once(program: ArrayProgram) -> Result<ArrayProgram> {
    if !program.instrs().iter().any(|instr| matches!(instr.op, ArrayOp::Loop(_))) {
        return Ok(program);
    }
    copied(&program, |b, at, operands| match &program.instrs()[at].op {
        ArrayOp::Loop(of) => b.loop_at_once(of, operands),
        op => b.push_all(op.clone(), operands),
    })
}

/// When a value of a body is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    /// It is equal in all steps.
    Always,
    Before,
    Within,
    After,
}

/// Whether an instruction may be done for all steps at once: with the same bits, and without an end of its own.
fn is_free(program: &ArrayProgram, instr: &ArrayInstr) -> bool {
    let is_int = program.type_of(instr.result).element == Element::Int;
    match instr.op {
        ArrayOp::Row(_) | ArrayOp::Compare(_) | ArrayOp::View(_) | ArrayOp::Concat(_) => true,
        ArrayOp::Pull(..) | ArrayOp::Select | ArrayOp::Adjoint | ArrayOp::Accumulate => true,
        ArrayOp::Reduce(..) | ArrayOp::ReducePull(..) => !is_int,
        ArrayOp::Take { batch, .. } => batch == 0,
        _ => false,
    }
}

/// What it takes to start an operation on an array, in operations on one number.
const CALL: usize = 30;

/// Operations on numbers that a formula does for each, where a function takes longer, and how many these are.
fn of_formula(formula: Option<Expansion>) -> [usize; 2] {
    let weight = |step: &MathStep| match step.op {
        MathOp::Operand(_) | MathOp::Literal(_) => 0,
        MathOp::Function(_) => 10,
        MathOp::Div => 4,
        _ => 1,
    };
    let weights: Vec<_> = formula.iter().flat_map(|formula| &formula.steps).map(weight).filter(|w| *w > 0).collect();
    [weights.iter().sum::<usize>().max(1), weights.len().max(1)]
}

/// Operations on one number that an instruction costs in a step besides what it costs anywhere: on few numbers all of them, on
/// many the calls.
fn weight(program: &ArrayProgram, instr: &ArrayInstr) -> usize {
    let size = |v: ValueId| program.type_of(v).dims.size();
    let n = size(instr.result);
    let of_row = |[work, calls]: [usize; 2]| (n * work).min(CALL * calls);
    match &instr.op {
        ArrayOp::View(_) | ArrayOp::Adjoint => 0,
        ArrayOp::Row(row) => of_row(of_formula(value_of(*row))),
        ArrayOp::Pull(row, k) => of_row(of_formula(partial_of(*row, (*k).into()))),
        ArrayOp::Reduce(..) => size(instr.operands[0]).min(CALL),
        ArrayOp::ReducePull(..) => (2 * n).min(CALL),
        ArrayOp::Take { .. } => CALL,
        _ => n.min(CALL),
    }
}

/// A body, and when its values are computed.
struct Body {
    program: ArrayProgram,
    carries: usize,
    when: Vec<When>,
    /// How many instructions read each value at each time, the loop's carries among them.
    readers: Vec<[usize; 4]>,
    is_stacked: Vec<bool>,
}

impl Body {
    /// When values could be computed, by what they read.
    fn new(of: &Loop, program: ArrayProgram) -> Body {
        let mut when = vec![When::Always; program.n_values()];
        let [_, carries, slices] = parts(of, program.inputs());
        program.inputs()[carries].iter().for_each(|v| when[v.at()] = When::Within);
        program.inputs()[slices].iter().for_each(|v| when[v.at()] = When::Before);
        for (at, instr) in program.instrs().iter().enumerate() {
            let reads = |time| instr.operands.iter().any(|v| when[v.at()] == time);
            let time = match (reads(When::Within), reads(When::Before)) {
                _ if instr.operands.is_empty() => continue,
                _ if !is_free(&program, instr) => When::Within,
                (false, true) => When::Before,
                (false, false) => When::Always,
                (true, _) => When::Within,
            };
            program.results(at).for_each(|v| when[v.at()] = time);
        }
        // What the next step needs, and what must not move, with all that they read.
        let mut stays = vec![false; when.len()];
        program.outputs()[..of.carries].iter().for_each(|v| stays[v.at()] = true);
        for (at, instr) in program.instrs().iter().enumerate().rev() {
            if !is_free(&program, instr) || program.results(at).any(|v| stays[v.at()]) {
                instr.operands.iter().for_each(|v| stays[v.at()] = true);
                program.results(at).for_each(|v| stays[v.at()] = true);
            }
        }
        for (when, _) in when.iter_mut().zip(stays).filter(|(when, stays)| !stays && **when == When::Within) {
            *when = When::After;
        }
        let (mut readers, mut is_stacked) = (vec![[0; 4]; when.len()], vec![false; when.len()]);
        for instr in program.instrs() {
            let time = when[instr.result.at()] as usize;
            instr.operands.iter().for_each(|v| readers[v.at()][time] += 1);
        }
        program.outputs()[..of.carries].iter().for_each(|v| readers[v.at()][When::Within as usize] += 1);
        program.outputs()[of.carries..].iter().for_each(|v| is_stacked[v.at()] = true);
        Body { program, carries: of.carries, when, readers, is_stacked }
    }

    fn size(&self, v: ValueId) -> usize {
        self.program.type_of(v).dims.size()
    }

    fn is(&self, v: ValueId, time: When) -> bool {
        self.when[v.at()] == time
    }

    fn is_read(&self, v: ValueId, time: When) -> bool {
        self.readers[v.at()][time as usize] > 0
    }

    /// Whether a value may be handed over at all.
    fn may_cross(&self, v: ValueId) -> bool {
        self.size(v) <= WIDE && self.program.type_of(v).element != Element::Int
    }

    /// What it costs to hand over those of these values that are computed at this time, each once.
    fn transfer(&self, of: &[ValueId], time: When, is_new: impl Fn(ValueId) -> bool) -> usize {
        let first = |k: usize| !of[..k].contains(&of[k]);
        let values = (0..of.len()).filter(|&k| first(k) && self.is(of[k], time) && is_new(of[k]));
        values.map(|k| TRANSFER * self.size(of[k])).sum()
    }

    fn stay(&mut self, at: usize) {
        let instr = &self.program.instrs()[at];
        let before = self.when[instr.result.at()] as usize;
        for v in &instr.operands {
            self.readers[v.at()][before] -= 1;
            self.readers[v.at()][When::Within as usize] += 1;
        }
        self.program.results(at).for_each(|v| self.when[v.at()] = When::Within);
    }

    /// Leaves in the loop what costs more to hand over than to compute there.
    fn settle(&mut self) {
        let n = self.program.instrs().len();
        let is_input = |instr: &ArrayInstr| matches!(instr.op, ArrayOp::Input(_));
        for at in (0..n).rev() {
            let instr = &self.program.instrs()[at];
            let v = instr.result;
            let is_last =
                self.is_read(v, When::Within) && !self.is_read(v, When::Before) && !self.is_read(v, When::After);
            if !self.is(v, When::Before) || is_input(instr) || !is_last || self.is_stacked[v.at()] {
                continue;
            }
            let more = self.transfer(&instr.operands, When::Before, |x| !self.is_read(x, When::Within));
            if !self.may_cross(v) || weight(&self.program, instr) + more <= TRANSFER * self.size(v) {
                self.stay(at);
            }
        }
        for at in 0..n {
            let instr = &self.program.instrs()[at];
            let v = instr.result;
            if !self.is(v, When::After) || instr.operands.iter().any(|&x| self.is(x, When::After)) {
                continue;
            }
            let mine = |x: ValueId| instr.operands.iter().filter(|y| **y == x).count();
            let is_alone =
                |x: ValueId| !self.is_stacked[x.at()] && self.readers[x.at()][When::After as usize] == mine(x);
            let less = self.transfer(&instr.operands, When::Within, is_alone);
            let more = if self.is_stacked[v.at()] { 0 } else { TRANSFER * self.size(v) };
            let may_cross = instr.operands.iter().all(|&x| !self.is(x, When::Within) || self.may_cross(x));
            if !may_cross || weight(&self.program, instr) + more <= less {
                self.stay(at);
            }
        }
    }

    /// Values of a time that something computed at one of these times reads, or that the loop stacks.
    fn handed(&self, from: When, to: &[When], stacked: bool) -> Vec<ValueId> {
        let values = self.program.instrs().iter().enumerate().flat_map(|(at, _)| self.program.results(at));
        let is_handed =
            |v: &ValueId| to.iter().any(|&time| self.is_read(*v, time)) || stacked && self.is_stacked[v.at()];
        values.filter(|&v| self.is(v, from)).filter(is_handed).collect()
    }

    /// Operations that move out of the loop.
    fn moved(&self) -> usize {
        let moves = |instr: &&ArrayInstr| self.is(instr.result, When::Before) || self.is(instr.result, When::After);
        self.program.instrs().iter().filter(moves).map(|instr| weight(&self.program, instr)).sum()
    }

    /// What is computed at this time, of the body's arguments and of these values.
    fn part(&self, time: When, given: &[ValueId], wanted: &[ValueId]) -> Result<ArrayProgram> {
        let p = &self.program;
        let mut b = ArrayBuilder::new(p.dtype())?;
        let mut new = vec![None; p.n_values()];
        for &v in p.inputs().iter().chain(given) {
            let input = b.push(ArrayOp::Input(p.type_of(v)), &[])?;
            new[v.at()] = Some(if p.may_be_unreached(v) { b.as_adjoint(input)? } else { input });
        }
        for (at, instr) in p.instrs().iter().enumerate() {
            let v = instr.result;
            if new[v.at()].is_some() || !(self.is(v, time) || self.is(v, When::Always)) {
                continue;
            }
            let operands = instr.operands.iter().map(|v| new[v.at()]).collect::<Option<Vec<_>>>();
            // What is there in another part only is read by none of this one.
            let Some(operands) = operands else { continue };
            for (v, now) in p.results(at).zip(b.push_all(instr.op.clone(), &operands)?) {
                new[v.at()] = Some(now);
            }
        }
        let outputs: Vec<_> = wanted.iter().filter_map(|v| new[v.at()]).collect();
        b.finish(&outputs)
    }
}

/// The body with contributions as products where a factor with a function in it reads no carry.
fn with_factors(of: &Loop) -> Result<ArrayProgram> {
    let body = simplified(&written_out_whole(&of.body.0)?)?.cleaned()?;
    let body = Body::new(of, body);
    let program = &body.program;
    copied(program, |b, at, operands| {
        let instr = &program.instrs()[at];
        let is_early = |v| body.is(v, When::Before) || body.is(v, When::Always);
        if let ArrayOp::ReducePull(Reduce::LogSumExp, axes) = instr.op
            && !is_early(instr.operands[0])
            && body.is(instr.operands[1], When::Before)
        {
            return Ok(vec![b.softmax_shares(operands, axes)?]);
        }
        if let Some(formula) = factor_of(instr) {
            let places = [0, 1, 2, operands.len() - 1];
            let read =
                || places.iter().zip(formula.reads()).filter(|(_, reads)| *reads).map(|(&k, _)| instr.operands[k]);
            if !is_early(instr.operands[0]) && read().all(is_early) && read().any(|v| body.is(v, When::Before)) {
                let factor = b.formula(&formula, &places.map(|k| operands[k]))?;
                return Ok(vec![b.adjoint_product(operands[0], factor)?]);
            }
        }
        b.push_all(instr.op.clone(), operands)
    })
}

impl ArrayBuilder {
    /// A loop of a fixed number of steps, and before and after it what these compute at once, if that is worth while.
    fn loop_at_once(&mut self, of: &Loop, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        let as_it_is = ArrayOp::Loop(of.clone());
        let Length::Fixed(n @ STEPS..) = of.length else { return self.push_all(as_it_is, operands) };
        let mut body = Body::new(of, with_factors(of)?);
        body.settle();
        let (carried, stacked) = body.program.outputs().split_at(body.carries);
        // What the loop is given besides slices, what comes before only for what is after, and what the loop stacks.
        let is_input = |v: &ValueId| matches!(body.program.instr_of(*v).op, ArrayOp::Input(_));
        let mut known = body.handed(When::Before, &[When::Within], false);
        known.retain(|v| !is_input(v));
        let mut others = body.handed(When::Before, &[When::After], true);
        others.retain(|v| !known.contains(v));
        let mut kept = body.handed(When::Within, &[When::After], true);
        for &v in stacked.iter().filter(|v| body.is(**v, When::Always)) {
            if !kept.contains(&v) {
                kept.push(v);
            }
        }
        let size = |values: &[ValueId]| values.iter().map(|&v| body.size(v)).sum::<usize>();
        let own = size(&body.program.inputs()[of.captures..]) + size(stacked);
        let crossing = size(&known) + size(&others) + size(&kept).saturating_sub(size(stacked));
        let is_much =
            crossing > TIMES * own || crossing.saturating_mul(n) > MOST || known.len() + kept.len() > CROSSING;
        if is_much || body.moved() <= TRANSFER * crossing {
            return self.push_all(as_it_is, operands);
        }
        let slices = parts(of, operands)[2].clone();
        let axes = (0..operands.len()).map(|k| slices.contains(&k).then_some(0));
        let given = [&known[..], &others].concat();
        let prelude = body.part(When::Before, &[], &given)?.batched(&axes.clone().collect::<Vec<_>>(), n)?;
        let computed = self.results_of(&prelude, operands)?;

        let within = body.part(When::Within, &known, &[carried, &kept].concat())?;
        let arguments = [operands, &computed[..known.len()]].concat();
        let mut results = self.push_loop(Loop { body: shared(within), ..of.clone() }, &arguments)?;
        let history = results.split_off(body.carries);

        let late: Vec<_> = stacked.iter().copied().filter(|v| body.is(*v, When::After)).collect();
        let given = [&given[..], &kept].concat();
        let axes: Vec<_> = axes.chain(given.iter().map(|_| Some(0))).collect();
        let epilogue = body.part(When::After, &given, &late)?.batched(&axes, n)?;
        let found = self.results_of(&epilogue, &[operands, &computed, &history].concat())?;

        let known: HashMap<_, _> =
            given.iter().chain(&late).zip(computed.iter().chain(&history).chain(&found)).collect();
        results.extend(stacked.iter().map(|v| *known[v]));
        Ok(results)
    }

    /// The results of a program with these arguments.
    fn results_of(&mut self, program: &ArrayProgram, arguments: &[ValueId]) -> Result<Vec<ValueId>> {
        let new = self.append(program, arguments)?;
        Ok(program.outputs().iter().map(|v| new[v.at()]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{ScanOptions, Variable};
    use crate::{DType, Op};

    /// How many functions a step of the last loop computes.
    fn functions(program: &ArrayProgram) -> usize {
        let mut bodies = program.instrs().iter().rev().filter_map(|instr| match &instr.op {
            ArrayOp::Loop(of) => Some(&of.body.0),
            _ => None,
        });
        let is_function = |instr: &&ArrayInstr| match instr.op {
            ArrayOp::Row(row) => of_formula(value_of(row))[0] >= 10,
            ArrayOp::Pull(row, k) => of_formula(partial_of(row, k.into()))[0] >= 10,
            _ => false,
        };
        bodies.next().map_or(0, |body| body.instrs().iter().filter(is_function).count())
    }

    #[test]
    fn functions_leave_the_steps_that_do_not_wait_for_them() -> Result<()> {
        let mut b = ArrayBuilder::new(DType::Float64)?;
        let (h, xs) = (b.input(&[], Element::Float)?, b.input(&[50], Element::Float)?);
        let op = |name| Op::from_name(name).expect("an op of the table");
        let mut body = ArrayBuilder::new(DType::Float64)?;
        let (state, x) = (body.input(&[], Element::Float)?, body.input(&[], Element::Float)?);
        // A function of the slice, one that the next state waits for, and one of the new state.
        let early = body.row(op("exp"), &[x])?;
        let sine = body.row(op("sin"), &[state])?;
        let new = body.row(op("mul"), &[sine, early])?;
        let late = body.row(op("log"), &[new])?;
        let body = body.finish(&[new, late])?;
        let results = b.scan(body, &[], &[h], &[xs], ScanOptions::default())?;
        let total = b.reduce(Reduce::Sum, results[1], None, false)?;
        let program = b.finish(&[total])?;
        let gradient = program.gradient(&[Variable::Input(0)])?;
        for (program, before, after) in [(&program, 3, 1), (&gradient, 1, 0)] {
            let whole = written_out_whole(program)?;
            assert_eq!(functions(&whole), before);
            assert_eq!(functions(&with_steps_at_once(whole)?), after);
        }
        Ok(())
    }

    /// A loop of `n` steps whose state needs so many functions of its slice, one after the other.
    fn waiting(n: usize, count: usize) -> Result<ArrayProgram> {
        let mut b = ArrayBuilder::new(DType::Float64)?;
        let (h, xs) = (b.input(&[], Element::Float)?, b.input(&[n], Element::Float)?);
        let op = |name| Op::from_name(name).expect("an op of the table");
        let mut body = ArrayBuilder::new(DType::Float64)?;
        let (mut state, x) = (body.input(&[], Element::Float)?, body.input(&[], Element::Float)?);
        for k in 0..count {
            let scale = body.literal(k as f64 + 2.0)?;
            let scaled = body.row(op("mul"), &[x, scale])?;
            let sine = body.row(op("sin"), &[scaled])?;
            state = body.row(op("mul"), &[state, sine])?;
            state = body.row(op("sqrt"), &[state])?;
        }
        let body = body.finish(&[state])?;
        let results = b.scan(body, &[], &[h], &[xs], ScanOptions::default())?;
        b.finish(&[results[0]])
    }

    #[test]
    fn what_crosses_is_bounded() -> Result<()> {
        let left = |n, count| Ok::<_, crate::Error>(functions(&with_steps_at_once(waiting(n, count)?)?));
        for (n, count, moves) in [(2, 1, false), (3, 1, true), (MOST, 1, true), (MOST + 1, 1, false)] {
            assert_eq!(left(n, count)?, if moves { count } else { 2 * count }, "{n} steps");
        }
        // The loop has two numbers of its own, a state and a slice.
        assert_eq!((left(50, CROSSING)?, left(50, CROSSING + 1)?), (CROSSING, 2 * CROSSING + 2));
        Ok(())
    }
}
