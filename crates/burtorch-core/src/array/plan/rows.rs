//! Rows: a program that runs on blocks of rows, and totals over the blocks.
//!
//! The length of a block is a power of two that fits a cache; the rest is divided into shorter powers of two. Each block
//! reads its rows in place, or copies them first if they are not in C order. Promises: totals add blocks in their order; no heap
//! call. Does not know what a block computes.

use super::super::build::ArrayBuilder;
use super::super::expand::copied;
use super::super::instr::{ArrayOp, ArrayProgram, Element, OverRows, Rows, Type};
use super::super::rows::are_sums;
use super::Plan;
use super::argument::Argument;
use super::blocks_once::lowered_once;
use super::gradients_in_parts::Passing;
use super::inner::{Body, Pass};
use super::math::ArrayFloat;
use super::memory::{Bank, room};
use super::place::Source;
use super::single::Operand;
use crate::error::Result;
use crate::interrupt;
use crate::kernels;
use crate::simd::Real;

/// The most rows of a block, and the fewest that are worth one.
const MOST: usize = 1024;
const FEWEST: usize = 16;
/// The most where totals are longer than what is computed of a block.
const LONGEST: usize = 1 << 16;
/// Numbers of a block that stay in the second-level cache beside what is computed of them.
const NUMBERS: usize = 1 << 15;
/// Operands that need no list of their own.
const FEW: usize = 24;

/// One result of rows.
#[derive(Clone, Copy, Debug)]
struct Part {
    over: OverRows,
    is_int: bool,
    size: usize,
    may_be_unreached: bool,
    /// The result of the plan that it is, if the plan passes that on. It is a sum.
    passed: Option<usize>,
}

/// The programs of blocks, by the logarithm of their lengths.
#[derive(Debug)]
struct Blocks<E> {
    bodies: Vec<Option<Box<dyn Body<E>>>>,
    most: usize,
}

/// The lengths of blocks of so many rows, at most `most` each.
fn lengths(rows: usize, most: usize) -> impl Iterator<Item = usize> {
    let rest = rows % most;
    let shorter = (0..most.ilog2()).rev().map(|k| 1 << k).filter(move |n| rest & n != 0);
    std::iter::repeat_n(most, rows / most).chain(shorter)
}

/// How many rows of this body make a block.
fn block_of(rows: &Rows) -> usize {
    let body = &rows.body.0;
    let size = |v| match body.type_of(v) {
        // How many numbers such a row has is not known.
        Type { element: Element::Sparse, .. } => 16,
        ty => ty.dims.size(),
    };
    let inputs = body.inputs().iter().zip(&rows.mapped).filter(|(_, is_mapped)| **is_mapped);
    let given: usize = inputs.map(|(&v, _)| size(v)).sum();
    // Elementwise instructions stay in shorter blocks.
    let stays = |op: &ArrayOp| matches!(op, ArrayOp::Dot(_) | ArrayOp::Loop(_) | ArrayOp::Take { .. });
    let kept = body.instrs().iter().enumerate().filter(|(_, instr)| stays(&instr.op));
    let kept = kept.filter_map(|(at, instr)| match &instr.op {
        // What a loop adds up for all rows has no rows.
        ArrayOp::Loop(of) => body.results(at).zip(are_sums(of)).find(|(_, is_sum)| !is_sum).map(|(v, _)| v),
        // The gradient of a shared matrix is one product for all rows.
        ArrayOp::Dot(dot) => {
            let [x, y] = [0, 1].map(|k| body.type_of(instr.operands[k]).dims);
            let is_outer = dot.extents(&x, &y).is_ok_and(|(_, [m, k, n])| k == 1 && m > 1 && n > 1);
            (!is_outer).then_some(instr.result)
        }
        _ => Some(instr.result),
    });
    let kept: usize = kept.map(size).sum();
    let numbers = (given + kept).max(1);
    // Adding totals is to take no longer than computing them.
    let totals = body.outputs().iter().zip(&rows.results).filter(|(_, over)| **over != OverRows::Each);
    let totals: usize = totals.map(|(&v, _)| size(v)).sum();
    let most = (NUMBERS / numbers).clamp(FEWEST, MOST).max((totals / numbers).min(LONGEST));
    1 << most.ilog2()
}

impl Rows {
    /// Whether they are computed in one block.
    pub(super) fn is_one_block(&self) -> bool {
        lengths(self.rows, block_of(self)).nth(1).is_none()
    }
}

/// The program with floats in place of masks among its arguments.
fn without_masks(program: ArrayProgram) -> Result<ArrayProgram> {
    if program.input_types().iter().all(|ty| ty.element != Element::Mask) {
        return Ok(program);
    }
    copied(&program, |b: &mut ArrayBuilder, at, operands| match &program.instrs()[at].op {
        ArrayOp::Input(Type { dims, element: Element::Mask }) => {
            let x = b.push(ArrayOp::Input(Type::float(*dims)), &[])?;
            Ok(vec![b.push(ArrayOp::Convert(Element::Mask), &[x])?])
        }
        op => b.push_all(op.clone(), operands),
    })
}

/// Adds the contributions of a block to a total.
fn add_part<E: ArrayFloat>(part: Part, from: &[E], to: &mut [E]) {
    if !part.may_be_unreached {
        return kernels::add_to(from, &mut to[..from.len()]);
    }
    for (to, &c) in to.iter_mut().zip(from).filter(|(_, c)| !c.is_unreached()) {
        *to = *to + (c + <E as Real>::of(0.0));
    }
}

/// Rows that are ready to run.
#[derive(Debug)]
pub(super) struct RowsStep<E> {
    blocks: Blocks<E>,
    rows: usize,
    operands: Vec<Operand>,
    mapped: Box<[bool]>,
    parts: Vec<Part>,
    to: Vec<usize>,
    /// The results' buffers while it runs.
    floats: Vec<Vec<E>>,
    ints: Vec<Vec<i64>>,
    /// For operands that do not lie in C order, the numbers of a block.
    rooms: Vec<Room<E>>,
}

/// Numbers of an operand in C order.
#[derive(Debug)]
enum Room<E> {
    /// They lie so.
    None,
    Float(Vec<E>),
    Int(Vec<i64>),
}

/// What makes a lowered program ready.
type Making<'a, E> = dyn Fn(&ArrayProgram, Option<&Passing>) -> Result<Box<dyn Body<E>>> + 'a;

impl<E: ArrayFloat> RowsStep<E> {
    /// Of these operands, with results in these buffers; `body` makes the program of a block ready.
    pub(super) fn new(
        of: &Rows,
        operands: Vec<Operand>,
        to: Vec<usize>,
        passed: Vec<Option<usize>>,
        body: &Making<'_, E>,
    ) -> Result<Self> {
        let most = block_of(of);
        let passing = Passing::of_block(&passed, of)?;
        let mut bodies = Vec::new();
        bodies.resize_with(most.ilog2() as usize + 1, || None);
        for n in lengths(of.rows, most) {
            let place = &mut bodies[n.ilog2() as usize];
            if place.is_none() {
                let lowered = lowered_once(of, n, |program| Plan::<E>::lowered(&without_masks(program)?))?;
                *place = Some(body(&lowered, passing.as_ref())?);
            }
        }
        let program = &of.body.0;
        let parts = program.outputs().iter().zip(&of.results).zip(passed).map(|((&v, &over), passed)| {
            let ty = program.type_of(v);
            let may_be_unreached = program.may_be_unreached(v);
            Part { over, is_int: ty.element == Element::Int, size: ty.dims.size(), may_be_unreached, passed }
        });
        let mut rooms = Vec::with_capacity(operands.len());
        for (operand, is_mapped) in operands.iter().zip(&of.mapped) {
            let size = if *is_mapped { operand.size() / of.rows.max(1) * most.min(of.rows) } else { operand.size() };
            rooms.push(match operand.element {
                _ if operand.place.is_contiguous() || operand.element == Element::Sparse => Room::None,
                Element::Int => Room::Int(room(size)?),
                _ => Room::Float(room(size)?),
            });
        }
        Ok(RowsStep {
            rooms,
            blocks: Blocks { bodies, most },
            rows: of.rows,
            operands,
            mapped: of.mapped.clone(),
            parts: parts.collect(),
            floats: to.iter().map(|_| Vec::new()).collect(),
            ints: to.iter().map(|_| Vec::new()).collect(),
            to,
        })
    }

    /// Runs it; what met a singular matrix.
    pub(super) fn run<'a>(
        &mut self,
        floats: &mut Bank<E>,
        ints: &mut Bank<i64>,
        outer: &[Argument<'_, E>],
        given: (&impl Fn(Source) -> &'a [E], &impl Fn(Source) -> &'a [i64]),
        pass: Option<&mut Pass<'_, E>>,
    ) -> Result<Option<&'static str>> {
        self.exchange(floats, ints);
        let done = self.run_blocks(floats, ints, outer, given, pass);
        self.exchange(floats, ints);
        done
    }

    /// Takes the results' buffers, or gives them back.
    fn exchange(&mut self, floats: &mut Bank<E>, ints: &mut Bank<i64>) {
        for (k, (part, &to)) in self.parts.iter().zip(&self.to).enumerate() {
            if part.is_int {
                std::mem::swap(&mut self.ints[k], &mut ints.buffers[to]);
            } else {
                std::mem::swap(&mut self.floats[k], &mut floats.buffers[to]);
            }
        }
    }

    fn run_blocks<'a>(
        &mut self,
        floats: &Bank<E>,
        ints: &Bank<i64>,
        outer: &[Argument<'_, E>],
        (given, given_ints): (&impl Fn(Source) -> &'a [E], &impl Fn(Source) -> &'a [i64]),
        mut pass: Option<&mut Pass<'_, E>>,
    ) -> Result<Option<&'static str>> {
        let mut singular = None;
        let mut work = interrupt::Work::default();
        let mut start = 0;
        for n in lengths(self.rows, self.blocks.most) {
            for ((room, operand), is_mapped) in self.rooms.iter_mut().zip(&self.operands).zip(&self.mapped) {
                let of_row = operand.size() / self.rows;
                let (from, len) = if *is_mapped { (of_row * start, of_row * n) } else { (0, operand.size()) };
                match room {
                    Room::None => {}
                    // What is shared is copied once.
                    _ if !is_mapped && start > 0 => {}
                    Room::Int(to) => {
                        operand.walk.gather(ints.read(operand.place.source, given_ints), from, &mut to[..len]);
                    }
                    Room::Float(to) => {
                        operand.walk.gather(floats.read(operand.place.source, given), from, &mut to[..len]);
                    }
                }
            }
            let all = self.operands.iter().zip(&self.mapped).zip(&self.rooms).map(|((operand, is_mapped), room)| {
                if let (Element::Sparse, Source::Input(k)) = (operand.element, operand.place.source)
                    && let Argument::Sparse(rows) = outer[k]
                {
                    return Argument::Sparse(if *is_mapped { rows.part(start, n) } else { rows });
                }
                let (from, len) = match (operand.size(), *is_mapped) {
                    (size, false) => (0, size),
                    (size, true) => (size / self.rows * start, size / self.rows * n),
                };
                let from = operand.place.offset + from;
                match (operand.element, room) {
                    (_, Room::Int(numbers)) => Argument::Int(&numbers[..len]),
                    (_, Room::Float(numbers)) => Argument::Float(&numbers[..len]),
                    (Element::Int, _) => Argument::Int(&ints.read(operand.place.source, given_ints)[from..][..len]),
                    _ => Argument::Float(&floats.read(operand.place.source, given)[from..][..len]),
                }
            });
            let mut more = Vec::new();
            let mut few = [Argument::Float(&[]); FEW];
            let arguments = if self.operands.len() <= FEW {
                few.iter_mut().zip(all).for_each(|(to, argument)| *to = argument);
                &few[..self.operands.len()]
            } else {
                more.extend(all);
                &more[..]
            };
            let Some(body) = &mut self.blocks.bodies[n.ilog2() as usize] else { continue };
            work.add(body.cost())?;
            let (parts, sums) = (&self.parts, &mut self.floats);
            let pass = pass.as_mut().filter(|_| start + n == self.rows);
            let is_last = pass.is_some();
            singular = singular.or(match pass {
                // What the other blocks contribute has been summed up.
                Some(pass) => body.run_passing(arguments, &mut |k, c| match parts[k].passed {
                    Some(result) if start == 0 => pass(result, c),
                    Some(result) => {
                        add_part(parts[k], c, &mut sums[k]);
                        pass(result, &sums[k][..c.len()])
                    }
                    None => Ok(()),
                })?,
                None => body.run_on(arguments)?,
            });
            for (k, part) in self.parts.iter().enumerate().filter(|(_, part)| !is_last || part.passed.is_none()) {
                let at = if part.over == OverRows::Each { start * part.size } else { 0 };
                let is_first = start == 0 || part.over == OverRows::Each;
                if part.is_int {
                    let from = body.ints_out(k);
                    let to = &mut self.ints[k][at..at + from.len()];
                    to.iter_mut().zip(from).for_each(|(to, &x)| *to = if is_first { x } else { to.wrapping_add(x) });
                } else {
                    let from = body.floats_out(k);
                    let to = &mut self.floats[k][at..at + from.len()];
                    if is_first { to.copy_from_slice(from) } else { add_part(*part, from, to) }
                }
            }
            start += n;
        }
        self.finish();
        Ok(singular)
    }

    /// Totals of no rows, and means.
    fn finish(&mut self) {
        for (k, part) in self.parts.iter().enumerate() {
            match part.over {
                OverRows::Each => {}
                _ if self.rows == 0 && part.is_int => self.ints[k][..part.size].fill(0),
                _ if self.rows == 0 => {
                    let nothing = if part.may_be_unreached { E::UNREACHED } else { <E as Real>::of(0.0) };
                    self.floats[k][..part.size].fill(nothing);
                }
                OverRows::Sum => {}
                OverRows::Mean => {
                    let rows = <E as Real>::of(self.rows as f64);
                    self.floats[k][..part.size].iter_mut().for_each(|x| *x = *x / rows);
                }
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks.bodies.iter().flatten().map(|body| body.bytes()).sum()
    }
}
