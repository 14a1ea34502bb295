//! Loops whose bodies compute single numbers: all steps in one piece of code over one list of slots.
//!
//! Promises: the bits of the body run step by step, and no heap call unless a loop of unknown length takes more steps than ever
//! before. Does not know where slices come from.

use super::super::expansion::MathOp;
use super::direct_results::write_carries;
use super::fused::{Item, Operation};
use super::inner::Body;
use super::math::{ArrayFloat, BlockOp};
use super::memory::room;
use super::numbers::Straight;
use super::peephole::simplify;
use super::scalars::{Code, Cursor};
use crate::error::Result;
use crate::interrupt;
use crate::memory::reserve_in;
use crate::simd::Real;

/// The most arrays of slices of such a loop.
pub(super) const MOST_SLICES: usize = 32;

/// Steps between two looks at whether to end early.
const STEPS: usize = 256;

/// How many steps a run has, and in which order they go through slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub(super) length: Option<usize>,
    pub(super) most: usize,
    pub(super) reverse: bool,
}

/// A number of the slices of a step, or of what a step stacks: its slot, in which list it lies, where in the part of a step, and
/// how many numbers that has.
#[derive(Clone, Copy, Debug)]
struct Part {
    slot: usize,
    list: usize,
    number: usize,
    of: usize,
}

impl Part {
    /// Of numbers that come one after the other in arrays with so many of them in each step.
    fn list(sizes: &[usize]) -> impl Iterator<Item = Part> {
        let numbers = |(list, &of): (usize, &usize)| (0..of).map(move |number| Part { slot: 0, list, number, of });
        sizes.iter().enumerate().flat_map(numbers)
    }

    fn at(&self, step: usize) -> usize {
        step * self.of + self.number
    }

    /// The cursor at the first of `n` steps.
    fn begun(&self, n: usize, reverse: bool) -> Cursor {
        let (first, by) = if reverse { (n - 1, -(self.of as isize)) } else { (0, self.of as isize) };
        Cursor { slot: self.slot, list: self.list, at: self.at(first), by }
    }
}

/// How many numbers captures and carries have together, and the arrays of a step's slices and of what it stacks.
pub(super) struct Sizes {
    pub(super) captures: usize,
    pub(super) carries: usize,
    pub(super) sliced: Vec<usize>,
    pub(super) stacked: Vec<usize>,
    /// Whether only the condition ends it.
    pub(super) is_endless: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct NumberLoop<E> {
    code: Code<E>,
    condition: Option<(Code<E>, usize)>,
    /// The slot that counts steps, if the code is the whole loop.
    count: Option<usize>,
    slots: Vec<E>,
    /// Captures and carries, whose slots come first.
    arguments: usize,
    /// From a slot to that of a carry.
    moves: Vec<(usize, usize)>,
    /// Numbers on the way, where a carry becomes another one.
    between: Vec<E>,
    sliced: Vec<Part>,
    /// Slots and where their numbers go: of what is known before a step, and of its results.
    stacked: [Vec<Part>; 2],
    /// Of a run: slices, and both kinds of what is stacked.
    cursors: [Vec<Cursor>; 3],
    /// Where what is stacked goes during a run.
    pub(super) stacks: Vec<Vec<E>>,
}

impl<E: ArrayFloat> NumberLoop<E> {
    /// Of a body and, maybe, a condition whose arguments and results are these numbers; `None` unless both compute single numbers.
    pub(super) fn new(body: &dyn Body<E>, condition: Option<&dyn Body<E>>, sizes: &Sizes) -> Option<Self> {
        let Sizes { captures, carries, sliced: of_slices, stacked: of_stacks, .. } = sizes;
        let (captures, carries) = (*captures, *carries);
        if of_slices.len() > MOST_SLICES {
            return None;
        }
        let mut straight = Straight::new();
        let slices = of_slices.iter().sum::<usize>();
        let arguments: Vec<_> = (0..captures + carries + slices).map(|_| straight.slot(E::default())).collect();
        let (mut work, mut results) = straight.apart(|straight| body.append_to(straight, &arguments))?;
        let of_stacked = &results[carries..].to_vec();
        let of_carries = &arguments[captures..captures + carries];
        write_carries(&mut work, &mut results, of_carries);
        let goes_on = match condition {
            Some(condition) => Some(
                straight.apart(|straight| Some(condition.append_to(straight, &arguments[..captures + carries])?[0]))?,
            ),
            None => None,
        };
        let is_whole =
            sizes.is_endless && of_slices.is_empty() && of_stacks.is_empty() && size_of::<E>() == size_of::<f64>();
        let (code, condition, count) = match goes_on {
            Some((condition, of)) if is_whole => {
                let count = straight.whole(&mut work, (condition, of), &results, of_carries);
                results.copy_from_slice(of_carries);
                let kept = [of_carries, &[count]].concat();
                simplify(&mut work, &mut straight.slots, arguments.len(), &kept);
                (Code::repeated(&work, &kept, straight.left), None, Some(count))
            }
            goes_on => {
                let mut code = |work: &mut Vec<Item>, kept: &[usize]| {
                    simplify(work, &mut straight.slots, arguments.len(), kept);
                    Code::repeated(work, kept, straight.left)
                };
                let code_of_step = code(&mut work, &results);
                let condition = goes_on.map(|(mut work, of)| (code(&mut work, &[of]), of));
                (code_of_step, condition, None)
            }
        };
        let moves: Vec<_> =
            results.iter().copied().zip(of_carries.iter().copied()).filter(|(from, to)| from != to).collect();
        let crosses = moves.iter().any(|(from, _)| of_carries.contains(from));
        let stacked = [true, false].map(|is_known| {
            let parts = Part::list(of_stacks).zip(&results[carries..]).zip(of_stacked);
            let wanted = parts.filter(|(_, before)| arguments.contains(before) == is_known);
            wanted.map(|((part, &slot), _)| Part { slot, ..part }).collect::<Vec<_>>()
        });
        let of_parts = arguments[captures + carries..].iter();
        let sliced: Vec<_> = Part::list(of_slices).zip(of_parts).map(|(part, &slot)| Part { slot, ..part }).collect();
        let cursors = [&sliced, &stacked[0], &stacked[1]].map(|parts| Vec::with_capacity(parts.len()));
        let between = room(if crosses { moves.len() } else { 0 }).ok()?;
        Some(NumberLoop {
            code,
            condition,
            count,
            slots: straight.slots,
            sliced,
            stacked,
            cursors,
            arguments: captures + carries,
            moves,
            between,
            stacks: Vec::with_capacity(of_stacks.len()),
        })
    }

    /// The slots of captures and then carries, before a run and after it.
    pub(super) fn numbers(&mut self) -> impl Iterator<Item = &mut E> {
        self.slots[..self.arguments].iter_mut()
    }

    pub(super) fn bytes(&self) -> usize {
        (self.slots.len() + self.between.len()) * size_of::<E>()
    }

    /// Runs all steps over these slices and says how many they were. `stacks` must have the length of the loop, if that is known.
    pub(super) fn run(&mut self, steps: Steps, from: [&[E]; MOST_SLICES]) -> Result<usize> {
        let n = steps.length.unwrap_or(steps.most);
        if let Some(count) = self.count {
            self.slots[count] = E::default();
            self.code.run(&mut self.slots)?;
            return Ok(self.slots[count].to_f64() as usize);
        }
        if self.condition.is_none() && self.between.is_empty() && n > 0 {
            let parts = [&self.sliced, &self.stacked[0], &self.stacked[1]];
            for (cursors, parts) in self.cursors.iter_mut().zip(parts) {
                cursors.clear();
                cursors.extend(parts.iter().map(|part| part.begun(n, steps.reverse)));
            }
            let [reads, writes @ ..] = &self.cursors;
            let are_long = writes.iter().flatten().all(|c| c.is_inside(n, &self.stacks));
            if are_long && reads.iter().all(|c| c.is_inside(n, &from)) {
                return self.run_known(n, from);
            }
        }
        let NumberLoop { code, condition, slots, moves, between, sliced, stacked, stacks, .. } = self;
        let cost = code.len() * 4;
        let mut work = interrupt::Work::default();
        let mut at = if steps.reverse { n.wrapping_sub(1) } else { 0 };
        for step in 0..n {
            if let Some((condition, goes_on)) = condition {
                condition.run(slots)?;
                if slots[*goes_on] == E::default() {
                    return Ok(step);
                }
            }
            if step % STEPS == 0 {
                work.add(cost * STEPS)?;
            }
            for part in &*sliced {
                slots[part.slot] = from[part.list][part.at(at)];
            }
            for part in &stacked[0] {
                put(&mut stacks[part.list], part.at(at), slots[part.slot])?;
            }
            code.run(slots)?;
            for part in &stacked[1] {
                put(&mut stacks[part.list], part.at(at), slots[part.slot])?;
            }
            if between.is_empty() {
                moves.iter().for_each(|&(from, to)| slots[to] = slots[from]);
            } else {
                between.iter_mut().zip(&*moves).for_each(|(number, &(from, _))| *number = slots[from]);
                between.iter().zip(&*moves).for_each(|(number, &(_, to))| slots[to] = *number);
            }
            at = if steps.reverse { at.wrapping_sub(1) } else { at + 1 };
        }
        Ok(n)
    }

    /// Runs `n` steps, of which the cursors are at the first.
    fn run_known(&mut self, n: usize, from: [&[E]; MOST_SLICES]) -> Result<usize> {
        let NumberLoop { code, slots, moves, cursors: [reads, before, after], stacks, .. } = self;
        let mut work = interrupt::Work::default();
        let mut left = n;
        while left > 0 {
            let now = left.min(STEPS);
            work.add(code.len() * 4 * now)?;
            code.repeat(now, slots, (reads, &from), ([before, after], stacks), moves)?;
            left -= now;
        }
        Ok(n)
    }
}

impl<E: ArrayFloat> Straight<E> {
    /// Makes the work of a step, of which these results become these carries, that of a loop which runs while a slot of its
    /// condition holds; the slot that counts its steps.
    fn whole(
        &mut self,
        work: &mut Vec<Item>,
        (condition, of): (Vec<Item>, usize),
        results: &[usize],
        carries: &[usize],
    ) -> usize {
        let (one, count) = (self.slot(<E as Real>::of(1.0)), self.slot(E::default()));
        self.moved(results, carries);
        work.append(&mut self.work);
        let op = BlockOp::Math(MathOp::Add);
        work.push(Item::Operation(Operation { op, of: [count, one, 0], to: count }));
        let body = std::mem::take(work);
        work.push(Item::Loop { condition, of, body });
        if self.left.is_none() {
            self.left = Some(self.slot(E::default()));
        }
        count
    }
}

/// Writes a number into a stack, at its end or inside of it.
#[inline(always)]
fn put<E: Clone>(stack: &mut Vec<E>, at: usize, number: E) -> Result<()> {
    if at >= stack.len() {
        return grow(stack, at, number);
    }
    stack[at] = number;
    Ok(())
}

#[cold]
#[inline(never)]
fn grow<E: Clone>(stack: &mut Vec<E>, at: usize, number: E) -> Result<()> {
    let more = at + 1 - stack.len();
    reserve_in(stack, more, "what a loop keeps")?;
    stack.resize(at + 1, number);
    Ok(())
}
