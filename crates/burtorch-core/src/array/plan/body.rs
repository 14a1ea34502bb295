//! Plans as bodies of loops and choices, on buffers of their own or on single numbers.
//!
//! Promises: a result becomes an argument of the next run without a copy if no other value is in its buffer. Does not know
//! the order of steps.

use std::collections::HashMap;

use super::super::columns::in_numbers;
use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Element, Length, Loop, Type};
use super::super::lower::lowered;
use super::draft::Carried;
use super::flatten::flat;
use super::inner::{Body, Pair, Pass};
use super::numbers::Straight;
use super::place::Source;
use super::{Argument, ArrayFloat, Plan, Step, fold};
use crate::error::{Error, Result};
use crate::interrupt;

/// A body made ready.
pub(super) fn body_of<E: ArrayFloat>(program: &ArrayProgram, carried: Carried) -> Result<Box<dyn Body<E>>> {
    Ok(match flat(Plan::ready(&Plan::<E>::lowered(program)?, Some(carried), None)?)? {
        Ok(flat) => Box::new(flat),
        Err(plan) => Box::new(plan),
    })
}

pub(super) fn condition_of(of: &Loop) -> Option<&ArrayProgram> {
    if let Length::While { condition, .. } = &of.length { Some(&condition.0) } else { None }
}

/// Loops within a loop that is tried on single numbers, at most. Where that fails the loops within are made ready again, so the
/// time doubles with each level.
const DEEPEST: usize = 5;

/// The largest number of loops, each within the one before.
fn depth(program: &ArrayProgram) -> usize {
    let of = |instr: &ArrayInstr| match &instr.op {
        ArrayOp::Loop(of) => 1 + depth(&of.body.0),
        ArrayOp::Cond { yes, no } => depth(&yes.0).max(depth(&no.0)),
        ArrayOp::Rows(rows) => depth(&rows.body.0),
        _ => 0,
    };
    program.instrs().iter().map(of).max().unwrap_or(0)
}

/// The body and the condition of a loop on single numbers, if those are few.
pub(super) fn numbers_of<E: ArrayFloat>(of: &Loop) -> Result<Option<Pair<E>>> {
    if interrupt::is_over() {
        return Err(Error::Interrupted);
    }
    if depth(&of.body.0) > DEEPEST {
        return Ok(None);
    }
    let made = |program: &ArrayProgram| -> Result<Option<Box<dyn Body<E>>>> {
        Ok(match in_numbers(&fold::folded::<E>(lowered(program)?)?)? {
            Some(numbers) => Some(Box::new(Plan::prepared(&numbers, Some(Carried::default()), None)?)),
            None => None,
        })
    };
    let Some(body) = made(&of.body.0)? else { return Ok(None) };
    Ok(match condition_of(of).map(made).transpose()? {
        Some(None) => None,
        condition => Some((body, condition.flatten())),
    })
}

/// For each result of a body whether its buffer is no argument's and no other result's.
pub(super) fn own(outputs: &[(usize, Type)], arguments: &[usize], inputs: &[Type]) -> Vec<bool> {
    let key = |buffer: usize, ty: &Type| (buffer, ty.element == Element::Int);
    let mut uses = HashMap::new();
    let arguments = arguments.iter().zip(inputs).map(|(&buffer, ty)| key(buffer, ty));
    for key in arguments.chain(outputs.iter().map(|(buffer, ty)| key(*buffer, ty))) {
        *uses.entry(key).or_insert(0) += 1;
    }
    outputs.iter().map(|(buffer, ty)| uses[&key(*buffer, ty)] == 1).collect()
}

impl<E: ArrayFloat> Body<E> for Plan<E> {
    fn floats_in(&mut self, k: usize) -> &mut [E] {
        let n = self.inputs[k].dims.size();
        &mut self.floats.buffers[self.arguments[k]][..n]
    }
    fn ints_in(&mut self, k: usize) -> &mut [i64] {
        let n = self.inputs[k].dims.size();
        &mut self.ints.buffers[self.arguments[k]][..n]
    }
    fn floats_out(&self, k: usize) -> &[E] {
        let (buffer, ty) = &self.outputs[k];
        &self.floats.buffers[*buffer][..ty.dims.size()]
    }
    fn ints_out(&self, k: usize) -> &[i64] {
        let (buffer, ty) = &self.outputs[k];
        &self.ints.buffers[*buffer][..ty.dims.size()]
    }
    fn pass_on(&mut self, from: usize, to: usize) {
        fn pass<T: Copy>(buffers: &mut [Vec<T>], from: usize, to: usize, n: usize, is_own: bool) {
            if from == to {
                return;
            }
            // What the next run overwrites takes the place of what no run reads again.
            if is_own && buffers[from].len() == buffers[to].len() {
                return buffers.swap(from, to);
            }
            let room = std::mem::take(&mut buffers[from]);
            buffers[to][..n].copy_from_slice(&room[..n]);
            buffers[from] = room;
        }
        let ((buffer, ty), to, is_own) = (self.outputs[from], self.arguments[to], self.own[from]);
        match ty.element {
            Element::Int => pass(&mut self.ints.buffers, buffer, to, ty.dims.size(), is_own),
            _ => pass(&mut self.floats.buffers, buffer, to, ty.dims.size(), is_own),
        }
    }
    fn run(&mut self) -> Result<Option<&'static str>> {
        self.run_steps(&[], &[], None)?;
        Ok(self.singular)
    }
    fn run_on(&mut self, arguments: &[Argument<'_, E>]) -> Result<Option<&'static str>> {
        Plan::run(self, arguments, &[])?;
        Ok(self.singular)
    }
    fn run_passing(&mut self, arguments: &[Argument<'_, E>], pass: &mut Pass<'_, E>) -> Result<Option<&'static str>> {
        self.run_with(arguments, &[], Some(pass))?;
        Ok(self.singular)
    }
    fn append_to(&self, straight: &mut Straight<E>, arguments: &[usize]) -> Option<Vec<usize>> {
        let is_number = |ty: &Type| ty.dims.size() == 1 && ty.element != Element::Int;
        let mut places = HashMap::new();
        for ((&buffer, ty), &slot) in self.arguments.iter().zip(&self.inputs).zip(arguments) {
            places.insert((Source::Buffer(buffer), 0), is_number(ty).then_some(slot)?);
        }
        for step in &self.steps {
            match step {
                Step::Numbers(numbers) => straight.append(numbers, &self.floats, &mut places)?,
                Step::Choice(choice) => choice.append_to(straight, &self.floats, &mut places)?,
                Step::Loop(step) => step.append_to(straight, &self.floats, &mut places)?,
                _ => return None,
            }
        }
        let slot =
            |(buffer, ty): &(usize, Type)| places.get(&(Source::Buffer(*buffer), 0)).copied().filter(|_| is_number(ty));
        self.outputs.iter().map(slot).collect()
    }
    fn cost(&self) -> usize {
        self.bytes() / 8 + 8 * self.steps.len()
    }
    fn bytes(&self) -> usize {
        Plan::bytes(self)
    }
}
