//! Loops: bodies that run in place, on their own buffers.
//!
//! Arguments are copied to a body's buffers once, carries from its results to its arguments after each step, slices
//! before it, and stacked results after it. Promises: no heap call unless a loop of unknown length takes more steps than ever
//! before. Does not know what bodies compute.

use std::collections::HashMap;

use super::super::dims::bad;
use super::super::expansion::MathOp;
use super::super::instr::{Element, Length, Loop, Type, ValueId};
use super::direct_results::write_carries;
use super::fused::{Item, Operation};
use super::inner::{Body, Pair};
use super::math::{ArrayFloat, BlockOp};
use super::memory::Bank;
use super::number_loop::{MOST_SLICES, NumberLoop, Sizes, Steps};
use super::numbers::{Slots, Straight};
use super::place::Source;
use super::single::Operand;
use crate::error::Result;
use crate::interrupt;
use crate::memory::reserve_in;
use crate::simd::Real;

/// Steps that a float of 32 bits counts.
const MOST_COUNTED: usize = 1 << 24;

/// Where slices come from, or go to.
#[derive(Clone, Copy, Debug)]
enum Slices {
    /// An operand of the loop, or a buffer.
    Array(usize),
    Stack(usize),
}

/// One argument or result of each step.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Its number among the body's.
    k: usize,
    is_int: bool,
    size: usize,
    slices: Slices,
}

/// A loop that is ready to run.
#[derive(Debug)]
pub(super) struct LoopStep<E> {
    bodies: Bodies<E>,
    length: Option<usize>,
    most: usize,
    count: Option<Operand>,
    reverse: bool,
    captures: usize,
    carries: usize,
    operands: Vec<Operand>,
    sliced: Vec<Part>,
    stacked: Vec<Part>,
    /// Buffers of the last carries, and whether they are integers.
    last: Vec<(usize, bool)>,
    /// Buffers that get the number of steps.
    counts: Vec<usize>,
    cost: usize,
}

/// What a step runs.
#[derive(Debug)]
enum Bodies<E> {
    /// Beside what other work takes from it.
    Numbers(Box<NumberLoop<E>>, Pair<E>),
    Arrays(Pair<E>),
}

impl<E: ArrayFloat> LoopStep<E> {
    /// `to` names the results and their buffers, `stacks` which stacks values stand for. `numbers` are a body and a condition on
    /// single numbers, if there are such; else those of arrays are made.
    pub(super) fn new(
        of: &Loop,
        numbers: Option<Pair<E>>,
        arrays: impl FnOnce() -> Result<Pair<E>>,
        values: &[ValueId],
        mut operands: Vec<Operand>,
        to: &[(ValueId, usize, Type)],
        stacks: &HashMap<ValueId, usize>,
    ) -> Result<Self> {
        let values = &values[of.first()..];
        let counted = (of.length == Length::Counted).then(|| operands.remove(0));
        let (length, most) = match of.length {
            Length::Fixed(n) => (Some(n), usize::MAX),
            Length::Counted => (None, usize::MAX),
            Length::While { most, .. } => (None, most.unwrap_or(usize::MAX)),
        };
        let part =
            |k: usize, ty: Type, slices| Part { k, is_int: ty.element == Element::Int, size: ty.dims.size(), slices };
        let (inputs, outputs) = (of.body.0.input_types(), of.body.0.output_types());
        let mut sliced = Vec::new();
        for (k, ty) in inputs.into_iter().enumerate().skip(of.captures + of.carries) {
            let slices = match (length, stacks.get(&values[k])) {
                (Some(_), _) => Slices::Array(k),
                (None, Some(&stack)) => Slices::Stack(stack),
                _ => return Err(bad("slices of a counted loop", "a stack".into(), "an array".into())),
            };
            sliced.push(part(k, ty, slices));
        }
        let mut stacked = Vec::new();
        for (k, ty) in outputs.into_iter().enumerate().skip(of.carries) {
            let (v, buffer, _) = to[k];
            let slices = stacks.get(&v).map_or(Slices::Array(buffer), |&stack| Slices::Stack(stack));
            stacked.push(part(k, ty, slices));
        }
        let last = to[..of.carries].iter().map(|(_, b, ty)| (*b, ty.element == Element::Int)).collect();
        let counts = if length.is_some() { Vec::new() } else { to[of.carries..].iter().map(|(_, b, _)| *b).collect() };
        let size_of = |parts: &[Part]| parts.iter().map(|part| part.size).collect();
        let count = |operands: &[Operand]| operands.iter().map(Operand::size).sum();
        let sizes = Sizes {
            captures: count(&operands[..of.captures]),
            carries: count(&operands[of.captures..of.captures + of.carries]),
            sliced: size_of(&sliced),
            stacked: size_of(&stacked),
            is_endless: length.is_none() && counted.is_none() && most == usize::MAX,
        };
        let numbers = numbers.and_then(|pair| Some((NumberLoop::new(&*pair.0, pair.1.as_deref(), &sizes)?, pair)));
        let (bodies, cost) = match numbers {
            Some((numbers, pair)) => (Bodies::Numbers(Box::new(numbers), pair), 0),
            None => {
                let pair = arrays()?;
                let cost = pair.0.cost() + sizes.sliced.iter().chain(&sizes.stacked).sum::<usize>();
                (Bodies::Arrays(pair), cost)
            }
        };
        Ok(LoopStep {
            bodies,
            length,
            most,
            count: counted,
            reverse: of.reverse,
            captures: of.captures,
            carries: of.carries,
            operands,
            sliced,
            stacked,
            last,
            counts,
            cost,
        })
    }

    /// Runs it; what met a singular matrix.
    pub(super) fn run<'a>(
        &mut self,
        floats: &mut Bank<E>,
        ints: &mut Bank<i64>,
        given: &impl Fn(Source) -> &'a [E],
        given_ints: &impl Fn(Source) -> &'a [i64],
    ) -> Result<Option<&'static str>> {
        let counted = self.count.map(|count| ints.read(count.place.source, given_ints)[count.place.offset] as usize);
        let length = self.length.or(counted);
        self.grow(floats, ints, length)?;
        let before = self.captures + self.carries;
        let (body, condition) = match &mut self.bodies {
            Bodies::Arrays((body, condition)) => (&mut **body, condition),
            Bodies::Numbers(..) => {
                let steps = Steps { length, most: self.most, reverse: self.reverse };
                let step = self.run_numbers(steps, floats, given)?;
                self.counts.iter().for_each(|&buffer| ints.buffers[buffer][0] = step as i64);
                return Ok(None);
            }
        };
        for (k, operand) in self.operands[..before].iter().enumerate() {
            write(body, k, operand, floats, ints, given, given_ints);
            // Of a condition, carries are written before each step.
            if let Some(condition) = condition
                && k < self.captures
            {
                write(&mut **condition, k, operand, floats, ints, given, given_ints);
            }
        }
        let mut work = interrupt::Work::default();
        let mut singular = None;
        let mut step = 0;
        while length.map_or(step < self.most, |n| step < n) {
            if !goes_on(body, condition, &self.last, self.captures, &mut singular)? {
                break;
            }
            work.add(self.cost)?;
            let at = length.filter(|_| self.reverse).map_or(step, |n| n - 1 - step);
            for part in &self.sliced {
                let Part { k, is_int, size, slices } = *part;
                let operand = |k: usize| &self.operands[k].place;
                match (slices, is_int) {
                    (Slices::Array(x), false) => {
                        let from = &floats.read(operand(x).source, given)[operand(x).offset + at * size..][..size];
                        body.floats_in(k).copy_from_slice(from);
                    }
                    (Slices::Array(x), true) => {
                        let from = &ints.read(operand(x).source, given_ints)[operand(x).offset + at * size..][..size];
                        body.ints_in(k).copy_from_slice(from);
                    }
                    (Slices::Stack(s), false) => {
                        body.floats_in(k).copy_from_slice(&floats.stacks[s][at * size..][..size]);
                    }
                    (Slices::Stack(s), true) => {
                        body.ints_in(k).copy_from_slice(&ints.stacks[s][at * size..][..size]);
                    }
                }
            }
            singular = singular.or(body.run()?);
            for part in &self.stacked {
                let Part { k, is_int, size, slices } = *part;
                match (slices, is_int) {
                    (Slices::Array(b), false) => {
                        floats.buffers[b][at * size..][..size].copy_from_slice(body.floats_out(k));
                    }
                    (Slices::Array(b), true) => {
                        ints.buffers[b][at * size..][..size].copy_from_slice(body.ints_out(k));
                    }
                    (Slices::Stack(s), false) => put(&mut floats.stacks[s], at * size, body.floats_out(k))?,
                    (Slices::Stack(s), true) => put(&mut ints.stacks[s], at * size, body.ints_out(k))?,
                }
            }
            for k in 0..self.carries {
                body.pass_on(k, self.captures + k);
            }
            step += 1;
        }
        for (k, &(buffer, is_int)) in self.last.iter().enumerate() {
            if is_int {
                let from = body.ints_in(self.captures + k);
                ints.buffers[buffer][..from.len()].copy_from_slice(from);
            } else {
                let from = body.floats_in(self.captures + k);
                floats.buffers[buffer][..from.len()].copy_from_slice(from);
            }
        }
        for &buffer in &self.counts {
            ints.buffers[buffer][0] = step as i64;
        }
        Ok(singular)
    }

    /// Runs it on single numbers; the number of steps.
    fn run_numbers<'a>(
        &mut self,
        steps: Steps,
        floats: &mut Bank<E>,
        given: &impl Fn(Source) -> &'a [E],
    ) -> Result<usize> {
        let Bodies::Numbers(numbers, _) = &mut self.bodies else { return Ok(0) };
        let mut slots = numbers.numbers();
        for operand in &self.operands[..self.captures + self.carries] {
            let from = &floats.read(operand.place.source, given)[operand.place.offset..][..operand.size()];
            from.iter().zip(&mut slots).for_each(|(&number, slot)| *slot = number);
        }
        drop(slots);
        numbers.stacks.clear();
        for part in &self.stacked {
            numbers.stacks.push(std::mem::take(match part.slices {
                Slices::Array(b) => &mut floats.buffers[b],
                Slices::Stack(s) => &mut floats.stacks[s],
            }));
        }
        let mut from: [&[E]; MOST_SLICES] = [&[]; MOST_SLICES];
        for (part, from) in self.sliced.iter().zip(&mut from) {
            *from = match part.slices {
                Slices::Array(k) => {
                    let place = &self.operands[k].place;
                    &floats.read(place.source, given)[place.offset..]
                }
                Slices::Stack(s) => &floats.stacks[s],
            };
        }
        let done = numbers.run(steps, from);
        for (part, stack) in self.stacked.iter().zip(numbers.stacks.drain(..)) {
            match part.slices {
                Slices::Array(b) => floats.buffers[b] = stack,
                Slices::Stack(s) => floats.stacks[s] = stack,
            }
        }
        let (captures, carries) = self.operands[..self.captures + self.carries].split_at(self.captures);
        let mut slots = numbers.numbers().skip(captures.iter().map(Operand::size).sum());
        for (&(buffer, _), operand) in self.last.iter().zip(carries) {
            floats.buffers[buffer].iter_mut().take(operand.size()).zip(&mut slots).for_each(|(to, slot)| *to = *slot);
        }
        done
    }

    /// Appends it to work on single numbers, if it is such work without slices and limits, and nothing reads how many steps it took.
    pub(super) fn append_to(&self, straight: &mut Straight<E>, bank: &Bank<E>, places: &mut Slots) -> Option<()> {
        let Bodies::Numbers(_, (body, condition)) = &self.bodies else { return None };
        let is_plain = self.sliced.is_empty() && self.stacked.is_empty() && self.count.is_none();
        let is_limited = self.length.is_none() && self.most != usize::MAX;
        let is_counted = self.length.is_none_or(|n| n <= MOST_COUNTED);
        if !is_plain || is_limited || !is_counted || self.last.iter().any(|(_, is_int)| *is_int) {
            return None;
        }
        let mut arguments = straight.slots_of(&self.operands, bank, places)?;
        let carries: Vec<_> = (0..self.carries).map(|_| straight.slot(E::default())).collect();
        straight.moved(&arguments[self.captures..], &carries);
        arguments.splice(self.captures.., carries.iter().copied());
        let number = |straight: &mut Straight<E>, x: usize| straight.slot(<E as Real>::of(x as f64));
        // Of a loop of so many steps, how many are left.
        let counter = self.length.map(|n| {
            let (n, counter) = (number(straight, n), straight.slot(E::default()));
            straight.work.push(Item::Move { from: n, to: counter });
            counter
        });
        let (condition, of) = match (condition, counter) {
            (Some(condition), _) => straight.apart(|straight| Some(condition.append_to(straight, &arguments)?[0]))?,
            (None, Some(counter)) => (Vec::new(), counter),
            (None, None) => return None,
        };
        let append = |straight: &mut Straight<E>| {
            let mut results = body.append_to(straight, &arguments)?;
            write_carries(&mut straight.work, &mut results, &carries);
            straight.moved(&results, &carries);
            if let Some(counter) = counter {
                let (op, one) = (BlockOp::Math(MathOp::Sub), number(straight, 1));
                straight.work.push(Item::Operation(Operation { op, of: [counter, one, 0], to: counter }));
            }
            Some(())
        };
        let (body, ()) = straight.apart(append)?;
        straight.work.push(Item::Loop { condition, of, body });
        straight.left = straight.left.or_else(|| Some(number(straight, 0)));
        for (&(buffer, _), slot) in self.last.iter().zip(carries) {
            places.insert((Source::Buffer(buffer), 0), slot);
        }
        Some(())
    }

    /// Makes stacks as long as they will be, where that is known.
    fn grow(&mut self, floats: &mut Bank<E>, ints: &mut Bank<i64>, length: Option<usize>) -> Result<()> {
        for part in &self.stacked {
            let Slices::Stack(s) = part.slices else { continue };
            let len = length.unwrap_or(0) * part.size;
            if part.is_int {
                resize(&mut ints.stacks[s], len)?;
            } else {
                resize(&mut floats.stacks[s], len)?;
            }
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        match &self.bodies {
            Bodies::Arrays((body, condition)) => {
                body.bytes() + condition.as_ref().map_or(0, |condition| condition.bytes())
            }
            Bodies::Numbers(numbers, _) => numbers.bytes(),
        }
    }
}

/// Whether there is another step.
fn goes_on<E: ArrayFloat>(
    body: &mut dyn Body<E>,
    condition: &mut Option<Box<dyn Body<E>>>,
    carries: &[(usize, bool)],
    captures: usize,
    singular: &mut Option<&'static str>,
) -> Result<bool> {
    let Some(condition) = condition else { return Ok(true) };
    for (k, &(_, is_int)) in carries.iter().enumerate() {
        let k = captures + k;
        if is_int {
            condition.ints_in(k).copy_from_slice(body.ints_in(k));
        } else {
            condition.floats_in(k).copy_from_slice(body.floats_in(k));
        }
    }
    *singular = singular.or(condition.run()?);
    Ok(condition.floats_out(0)[0] != E::default())
}

fn resize<T: Copy + Default>(stack: &mut Vec<T>, len: usize) -> Result<()> {
    reserve_in(stack, len.saturating_sub(stack.len()), "what a loop keeps")?;
    stack.resize(len, T::default());
    Ok(())
}

/// Writes numbers into a stack, at its end or inside of it.
fn put<T: Copy>(stack: &mut Vec<T>, at: usize, numbers: &[T]) -> Result<()> {
    if at < stack.len() {
        stack[at..at + numbers.len()].copy_from_slice(numbers);
    } else {
        reserve_in(stack, numbers.len(), "what a loop keeps")?;
        stack.extend_from_slice(numbers);
    }
    Ok(())
}

/// Copies an operand into argument `k` of a body.
pub(super) fn write<'a, E: ArrayFloat>(
    body: &mut dyn Body<E>,
    k: usize,
    operand: &Operand,
    floats: &Bank<E>,
    ints: &Bank<i64>,
    given: &impl Fn(Source) -> &'a [E],
    given_ints: &impl Fn(Source) -> &'a [i64],
) {
    let (place, n) = (&operand.place, operand.size());
    if operand.element == Element::Int {
        body.ints_in(k).copy_from_slice(&ints.read(place.source, given_ints)[place.offset..][..n]);
    } else {
        body.floats_in(k).copy_from_slice(&floats.read(place.source, given)[place.offset..][..n]);
    }
}
