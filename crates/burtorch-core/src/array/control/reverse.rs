//! Reverse mode of loops and choices: a loop runs backwards over its stored carries.
//!
//! Promises: the adjoint of a capture starts with its contributions from outside the loop, and a carry's with those beside the
//! loop, so that contributions are added in the order of the unrolled program.

use std::collections::HashMap;

use super::super::activity::{active_in_loop, active_values};
use super::super::build::ArrayBuilder;
use super::super::dims::Dims;
use super::super::expand::inlined;
use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Length, Loop, Shared, ValueId};
use super::super::reverse::Sweep;
use super::body::{is_float, parts, shared};
use super::checkpoint::with_history;
use crate::error::Result;

/// What the reverse pass of a body takes and gives, by the positions of the body's arguments and results.
struct Step<'a> {
    body: &'a ArrayProgram,
    captures: usize,
    carries: usize,
    /// Arguments that move.
    moving: &'a [bool],
    /// Results behind the carries that have an adjoint, and whether that may be unreached.
    seeded: Vec<Option<bool>>,
    /// Carries whose adjoint begins with that of another use.
    started: Vec<bool>,
    /// Results that are stacked, which need not be computed again.
    known: Vec<usize>,
}

impl Step<'_> {
    /// The program that takes captures, their adjoints so far, adjoints of the next carries, the carries, the slices, adjoints
    /// of what is stacked, the adjoints that carries begin with, and results of the step that are known; it gives the adjoints of captures, carries and slices.
    fn reversed(&self) -> Result<ArrayProgram> {
        let body = inlined(self.body)?;
        let by: Vec<_> = body.inputs().iter().zip(self.moving).filter(|(_, m)| **m).map(|(&v, _)| v).collect();
        let active = active_values(&body, &by);
        let wanted = (0..body.instrs().len()).map(|at| body.results(at).any(|v| active[v.at()]));
        let body = with_history(&body, &wanted.collect::<Vec<_>>())?;

        let types = body.input_types();
        let before = self.captures + self.carries;
        let moving = |range: std::ops::Range<usize>| range.filter(|&k| self.moving[k]);
        let mut r = ArrayBuilder::new(body.dtype())?;
        let captures = r.inputs_of(&types[..self.captures])?;
        let sums = r.inputs_of(moving(0..self.captures).map(|k| &types[k]))?;
        let next = r.inputs_of(moving(self.captures..before).map(|k| &types[k]))?;
        let rest = r.inputs_of(&types[self.captures..])?;
        let outputs = body.output_types();
        let seeded = || (0..self.seeded.len()).filter_map(|k| self.seeded[k].map(|may| (self.carries + k, may)));
        let seeds = r.inputs_of(seeded().map(|(k, _)| &outputs[k]))?;
        let started = || (0..self.carries).filter(|&k| self.started[k]);
        let starts = r.inputs_of(started().map(|k| &types[self.captures + k]))?;
        let known = r.inputs_of(self.known.iter().map(|&k| &outputs[k]))?;
        let arguments = [captures, rest].concat();
        let new = r.append(&body, &arguments)?;
        let so_far = r.so_far().clone();
        let by: Vec<_> = moving(0..arguments.len()).map(|k| arguments[k]).collect();
        let active = active_values(&so_far, &by);
        let adjoints = vec![None; so_far.n_values()];
        let mut sweep = Sweep { b: &mut r, adjoints };
        for (k, sum) in moving(0..self.captures).zip(sums) {
            sweep.adjoints[arguments[k].at()] = Some(sweep.b.as_adjoint(sum)?);
        }
        for (k, start) in started().zip(starts) {
            sweep.adjoints[arguments[self.captures + k].at()] = Some(sweep.b.as_adjoint(start)?);
        }
        for ((k, may_be_unreached), seed) in seeded().zip(seeds) {
            let seed = if may_be_unreached { sweep.b.as_adjoint(seed)? } else { seed };
            sweep.add(new[body.outputs()[k].at()], seed)?;
        }
        for (k, g) in moving(self.captures..before).zip(next) {
            let g = sweep.b.as_adjoint(g)?;
            sweep.add(new[body.outputs()[k - self.captures].at()], g)?;
        }
        sweep.run(&so_far, &active)?;
        let results = moving(0..arguments.len()).map(|k| sweep.begun(arguments[k])).collect::<Result<Vec<_>>>()?;
        let known = self.known.iter().zip(known).map(|(&k, input)| (new[body.outputs()[k].at()], input)).collect();
        reading(&r.finish(&results)?, &known)?.cleaned()
    }
}

/// The program with these values read from arguments.
fn reading(program: &ArrayProgram, known: &HashMap<ValueId, ValueId>) -> Result<ArrayProgram> {
    let mut b = ArrayBuilder::new(program.dtype())?;
    let mut new = vec![ValueId(0); program.n_values()];
    let first = program.first_alike();
    let known: HashMap<_, _> = known.iter().map(|(v, input)| (first[v.at()], input)).collect();
    for (at, instr) in program.instrs().iter().enumerate() {
        let v = instr.result;
        if let Some(input) = known.get(&first[v.at()]) {
            let input = new[input.at()];
            new[v.at()] = if program.may_be_unreached(v) { b.as_adjoint(input)? } else { input };
            continue;
        }
        let operands: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
        for (v, now) in program.results(at).zip(b.push_all(instr.op.clone(), &operands)?) {
            new[v.at()] = now;
        }
    }
    let outputs: Vec<_> = program.outputs().iter().map(|v| new[v.at()]).collect();
    b.finish(&outputs)
}

impl Sweep<'_> {
    /// The contributions of a loop that keeps its carries, by a loop that runs the other way.
    pub(in super::super) fn loop_back(
        &mut self,
        of: &Loop,
        program: &ArrayProgram,
        at: usize,
        active: &[bool],
    ) -> Result<()> {
        let instr = &program.instrs()[at];
        let results: Vec<_> = program.results(at).collect();
        let operands = &instr.operands[of.first()..];
        let [captures, carries, slices] = parts(of, operands);
        let of_operands: Vec<_> = operands.iter().map(|v| active[v.at()]).collect();
        let (moving, _) = active_in_loop(of, &of_operands);
        let body = &of.body.0;
        let gs: Vec<_> = results.iter().map(|v| self.adjoints[v.at()].filter(|_| active[v.at()])).collect();

        let mut starts = vec![None; of.carries];
        if let Length::Fixed(n @ 1..) = of.length {
            for k in carries.clone().filter(|&k| moving[k]) {
                let i = k - of.captures;
                let is_alone = operands.iter().filter(|&&v| v == operands[k]).count() == 1;
                let outside = self.adjoints[operands[k].at()].filter(|_| is_alone && active[operands[k].at()]);
                if let Some(outside) = outside {
                    starts[i] = Some(self.starts(of.reverse, n, outside)?);
                }
            }
        }
        let seeded = gs[of.carries..body.outputs().len()]
            .iter()
            .map(|g| g.map(|g| self.b.so_far().may_be_unreached(g)))
            .collect();
        let started = starts.iter().map(Option::is_some).collect();
        let stacked = of.carries..body.outputs().len() - of.carries;
        let is_known = |&k: &usize| {
            let v = body.outputs()[k];
            // Some have more results, or will have for reverse mode.
            let is_one = !matches!(
                body.instr_of(v).op,
                ArrayOp::Input(_)
                    | ArrayOp::Call(_)
                    | ArrayOp::Apart(_)
                    | ArrayOp::Loop(_)
                    | ArrayOp::Cond { .. }
                    | ArrayOp::Rows(_)
                    | ArrayOp::Lu
                    | ArrayOp::Qr
            );
            is_one && is_float(body.type_of(v)) && !body.outputs()[of.carries..k].contains(&v)
        };
        let known: Vec<_> = stacked.filter(is_known).collect();
        let step = Step {
            body,
            captures: of.captures,
            carries: of.carries,
            moving: &moving,
            seeded,
            started,
            known: known.clone(),
        };
        let reversed = step.reversed()?;

        let mut given = Vec::new();
        let length = match &of.length {
            Length::Fixed(n) => Length::Fixed(*n),
            Length::Counted => {
                given.push(instr.operands[0]);
                Length::Counted
            }
            Length::While { .. } => {
                given.push(results[results.len() - 1]);
                Length::Counted
            }
        };
        given.extend(&operands[captures.clone()]);
        let is_first = |k: usize| !operands[..k].contains(&operands[k]);
        for k in captures.clone().filter(|&k| moving[k]) {
            let sum =
                if is_first(k) { self.begun(operands[k])? } else { self.b.unreached_like(body.input_types()[k])? };
            given.push(sum);
        }
        for k in carries.clone().filter(|&k| moving[k]) {
            let g = gs[k - of.captures];
            given.push(g.map_or_else(|| self.b.unreached_like(body.input_types()[k]), Ok)?);
        }
        let kept = body.outputs().len() - of.carries;
        given.extend(&results[kept..kept + of.carries]);
        given.extend(&operands[slices.clone()]);
        given.extend(gs[of.carries..body.outputs().len()].iter().flatten());
        given.extend(starts.iter().flatten());
        given.extend(known.iter().map(|&k| results[k]));
        let sums = (0..of.captures).filter(|&k| moving[k]).count();
        let backwards = Loop {
            body: shared(reversed),
            length,
            reverse: !of.reverse,
            captures: of.captures,
            carries: sums + carries.clone().filter(|&k| moving[k]).count(),
            checkpoint: of.checkpoint,
        };
        let found = self.b.push_loop(backwards, &given)?;
        for (k, g) in (0..operands.len()).filter(|&k| moving[k]).zip(found) {
            if !active[operands[k].at()] {
                continue;
            }
            let begins_outside =
                captures.contains(&k) && is_first(k) || carries.contains(&k) && starts[k - of.captures].is_some();
            if begins_outside {
                self.adjoints[operands[k].at()] = Some(g);
            } else {
                self.add(operands[k], g)?;
            }
        }
        Ok(())
    }

    /// For each of `n` steps the adjoint that a carry begins with: in the first step what it has outside.
    fn starts(&mut self, reverse: bool, n: usize, outside: ValueId) -> Result<ValueId> {
        let dims = self.b.dims(outside);
        let led = |n: usize| Dims::new(&[&[n], &dims[..]].concat());
        let first = self.b.reshape(outside, &led(1)?)?;
        let unreached = self.b.push(ArrayOp::Unreached(dims), &[])?;
        let others = self.b.broadcast_to(unreached, led(n - 1)?)?;
        self.b.concatenate(&if reverse { [others, first] } else { [first, others] }, 0)
    }

    /// The contributions of a choice: the same choice between the branches' reverse passes.
    pub(in super::super) fn cond_back(
        &mut self,
        branches: [&ArrayProgram; 2],
        instr: &ArrayInstr,
        gs: &[Option<ValueId>],
        active: &[bool],
    ) -> Result<()> {
        let operands = &instr.operands[1..];
        let [yes, no] = branches.map(|body| self.body_back(body, operands, gs, active));
        let op = ArrayOp::Cond { yes: yes?, no: no? };
        self.add_all_of(op, instr.operands.to_vec(), operands, gs, active)
    }

    fn moving(&self, operands: &[ValueId], active: &[bool]) -> Vec<bool> {
        operands.iter().map(|v| active[v.at()] && is_float(self.b.type_of(*v))).collect()
    }

    /// The reverse pass of a body of these operands.
    pub(super) fn body_back(
        &self,
        body: &ArrayProgram,
        operands: &[ValueId],
        gs: &[Option<ValueId>],
        active: &[bool],
    ) -> Result<Shared<ArrayProgram>> {
        let step = Step {
            body,
            captures: operands.len(),
            carries: 0,
            moving: &self.moving(operands, active),
            seeded: gs.iter().map(|g| g.map(|g| self.b.so_far().may_be_unreached(g))).collect(),
            started: vec![],
            known: vec![],
        };
        step.reversed().map(shared)
    }

    /// Adds what `op` makes of reverse passes of bodies of these operands; it is given `given` first.
    pub(super) fn add_all_of(
        &mut self,
        op: ArrayOp,
        mut given: Vec<ValueId>,
        operands: &[ValueId],
        gs: &[Option<ValueId>],
        active: &[bool],
    ) -> Result<()> {
        let moving = self.moving(operands, active);
        let is_first = |k: usize| !operands[..k].contains(&operands[k]);
        for k in (0..operands.len()).filter(|&k| moving[k]) {
            let ty = self.b.type_of(operands[k]);
            given.push(if is_first(k) { self.begun(operands[k])? } else { self.b.unreached_like(ty)? });
        }
        given.extend(gs.iter().flatten());
        let found = self.b.push_all(op, &given)?;
        for (k, g) in (0..operands.len()).filter(|&k| moving[k]).zip(found) {
            if is_first(k) {
                self.adjoints[operands[k].at()] = Some(g);
            } else {
                self.add(operands[k], g)?;
            }
        }
        Ok(())
    }
}
