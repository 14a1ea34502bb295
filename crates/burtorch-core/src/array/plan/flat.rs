//! Bodies with short arrays: all of them in one allocation, and most of the work in one list.
//!
//! The simple algorithm: the steps of a plan, on the same numbers. Departures: buffers, constants and blocks are adjacent, so
//! elementwise operations, copies and partial sums are strips of one list, for which a level is chosen once; for an array of some
//! tens of numbers they take a fraction of the overhead of a step. Promises: the bits of the plan. Does not know how steps become
//! strips.

use std::ops::{Deref, DerefMut};

use super::Argument;
use super::inner::Body;
use super::math::{ArrayFloat, BlockOp, compute};
use super::memory::{Bank, room};
use super::numbers::{Numbers, Straight};
use super::place::Source;
use super::reducer::Reducer;
use super::single::Alone;
use crate::error::Result;
use crate::kernels::{self, Strips};

/// Numbers side by side in a room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) at: usize,
    pub(super) n: usize,
}

/// Where sources of floats lie in a room: buffers, and the constants that are read there.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) buffers: Vec<Span>,
    pub(super) consts: Vec<Option<Span>>,
}

impl Places {
    /// Where a source lies, if it does.
    pub(super) fn of(&self, source: Source) -> Option<Span> {
        match source {
            Source::Buffer(k) => Some(self.buffers[k]),
            Source::Const(k) => self.consts[k],
            _ => None,
        }
    }
}

/// The alignment of the allocation in bytes: that of the widest vector, and of a cache line.
const LINE: usize = 64;

/// Numbers with this alignment, so that each aligned vector lies in one cache line.
#[derive(Debug)]
pub(super) struct Room<E> {
    numbers: Vec<E>,
    first: usize,
}

impl<E: ArrayFloat> Room<E> {
    /// Zeros of this length.
    pub(super) fn new(len: usize) -> Result<Self> {
        let line = LINE / size_of::<E>();
        let numbers: Vec<E> = room(len + line)?;
        let first = numbers.as_ptr().align_offset(LINE).min(line);
        Ok(Room { numbers, first })
    }
}

impl<E> Deref for Room<E> {
    type Target = [E];
    fn deref(&self) -> &[E] {
        &self.numbers[self.first..]
    }
}

impl<E> DerefMut for Room<E> {
    fn deref_mut(&mut self) -> &mut [E] {
        &mut self.numbers[self.first..]
    }
}

/// A part of a run.
#[derive(Debug)]
pub(super) enum Part<E> {
    Strips(Strips),
    Function {
        op: BlockOp,
        to: Span,
        of: [Span; 3],
    },
    Reduce {
        reducer: Reducer<E>,
        of: Span,
        to: Span,
    },
    Shares {
        of: [Span; 3],
        to: Span,
    },
    Numbers(Numbers<E>),
    /// Of floats into this span, or of integers.
    Alone(Box<Alone<E>>, Option<Span>),
}

/// What a body takes or gives: floats of a room, or a buffer of integers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Port {
    Floats(Span),
    Ints { buffer: usize, n: usize },
}

impl Port {
    fn span(self) -> std::ops::Range<usize> {
        match self {
            Port::Floats(Span { at, n }) => at..at + n,
            Port::Ints { .. } => 0..0,
        }
    }

    fn ints(self) -> (usize, usize) {
        match self {
            Port::Ints { buffer, n } => (buffer, n),
            Port::Floats(_) => (0, 0),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Flat<E> {
    pub(super) room: Room<E>,
    /// Constants of floats alone.
    pub(super) floats: Bank<E>,
    pub(super) ints: Bank<i64>,
    pub(super) places: Places,
    pub(super) parts: Vec<Part<E>>,
    pub(super) arguments: Vec<Port>,
    pub(super) outputs: Vec<Port>,
    pub(super) cost: usize,
}

/// What lies in a room before and after a span.
struct Around<'r, E> {
    before: &'r [E],
    after: &'r [E],
    end: usize,
}

/// A span, to be written, and what lies around it.
fn apart<E>(room: &mut [E], span: Span) -> (Around<'_, E>, &mut [E]) {
    let (before, rest) = room.split_at_mut(span.at);
    let (to, after) = rest.split_at_mut(span.n);
    (Around { before, after, end: span.at + span.n }, to)
}

impl<'r, E> Around<'r, E> {
    /// The numbers of another span.
    fn at(&self, Span { at, n }: Span) -> &'r [E] {
        if at < self.end { &self.before[at..at + n] } else { &self.after[at - self.end..][..n] }
    }
}

impl<E: ArrayFloat> Part<E> {
    fn run(&mut self, room: &mut [E], floats: &mut Bank<E>, ints: &mut Bank<i64>, places: &Places) -> Result<()> {
        match self {
            Part::Strips(strips) => kernels::run_strips(strips, room),
            Part::Function { op, to, of } => {
                let (around, to) = apart(room, *to);
                compute(*op, of.map(|of| around.at(of)), to);
            }
            Part::Reduce { reducer, of, to } => {
                let (around, to) = apart(room, *to);
                reducer.begin(to);
                reducer.take(around.at(*of), to);
            }
            Part::Shares { of: [g, x, y], to } => {
                let (around, to) = apart(room, *to);
                kernels::shares_of_extremes(around.at(*g), around.at(*x), around.at(*y), to);
            }
            Part::Numbers(numbers) => numbers.run_in(room, |source| places.of(source).map_or(0, |span| span.at))?,
            Part::Alone(alone, Some(to)) => {
                let (around, to) = apart(room, *to);
                let given = |source| if let Source::Input(k) = source { around.at(places.buffers[k]) } else { &[] };
                alone.run_floats(floats, ints, &given, &|_| &[], to)?;
            }
            Part::Alone(alone, None) => {
                let room = &*room;
                let given = |source| match source {
                    Source::Input(k) => &room[places.buffers[k].at..][..places.buffers[k].n],
                    _ => &[],
                };
                alone.run(floats, ints, &given, &|_| &[])?;
            }
        }
        Ok(())
    }
}

impl<E: ArrayFloat> Body<E> for Flat<E> {
    fn floats_in(&mut self, k: usize) -> &mut [E] {
        &mut self.room[self.arguments[k].span()]
    }
    fn ints_in(&mut self, k: usize) -> &mut [i64] {
        let (buffer, n) = self.arguments[k].ints();
        &mut self.ints.buffers[buffer][..n]
    }
    fn floats_out(&self, k: usize) -> &[E] {
        &self.room[self.outputs[k].span()]
    }
    fn ints_out(&self, k: usize) -> &[i64] {
        let (buffer, n) = self.outputs[k].ints();
        &self.ints.buffers[buffer][..n]
    }
    fn pass_on(&mut self, from: usize, to: usize) {
        match (self.outputs[from], self.arguments[to]) {
            (Port::Floats(from), Port::Floats(to)) if from.at != to.at => {
                self.room.copy_within(from.at..from.at + from.n, to.at);
            }
            (Port::Ints { buffer: from, n }, Port::Ints { buffer: to, .. }) if from != to => {
                let room = std::mem::take(&mut self.ints.buffers[from]);
                self.ints.buffers[to][..n].copy_from_slice(&room[..n]);
                self.ints.buffers[from] = room;
            }
            _ => {}
        }
    }
    fn run(&mut self) -> Result<Option<&'static str>> {
        let Flat { room, floats, ints, places, parts, .. } = self;
        parts.iter_mut().try_for_each(|part| part.run(room, floats, ints, places))?;
        Ok(None)
    }
    fn run_on(&mut self, _: &[Argument<'_, E>]) -> Result<Option<&'static str>> {
        self.run()
    }
    fn append_to(&self, _: &mut Straight<E>, _: &[usize]) -> Option<Vec<usize>> {
        None
    }
    fn cost(&self) -> usize {
        self.cost
    }
    fn bytes(&self) -> usize {
        let ints: usize = self.ints.buffers.iter().map(Vec::len).sum();
        self.room.len() * size_of::<E>() + ints * 8
    }
}
