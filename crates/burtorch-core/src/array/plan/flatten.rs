//! Plans of bodies as strips in one allocation.
//!
//! Promises: work keeps the order of the plan's steps. Does not know how strips run.

use super::super::expansion::MathOp;
use super::super::instr::{ArrayOp, Element};
use super::chain::Chain;
use super::flat::{Flat, Part, Places, Port, Room, Span};
use super::math::{ArrayFloat, BlockOp, arity};
use super::memory::Bank;
use super::place::{Source, Walk};
use super::single::{Alone, Operand};
use super::uses::uses;
use super::work::{Arg, Work};
use super::{Plan, Step};
use crate::error::Result;
use crate::kernels::{Strip, StripOp, Strips};
use crate::ops::Function;

/// Numbers of a room at most: what fits the second-level cache.
const MOST: usize = 1 << 16;

/// Numbers that spans begin at multiples of, so that whole vectors end inside of them.
const LINE: usize = 16;

/// Numbers side by side, on average, from which on they are strips of their own.
const LONG: usize = 12;

/// What has become strips so far.
struct Flattened<E> {
    places: Places,
    parts: Vec<Part<E>>,
    strips: Strips,
    /// Numbers of the room, and those that are there from the first.
    len: usize,
    kept: Vec<(usize, Vec<E>)>,
    /// How often buffers are read and written in all.
    uses: Vec<[usize; 2]>,
}

/// The body as one room, if all its arrays are short; else the plan.
pub(super) fn flat<E: ArrayFloat>(mut plan: Plan<E>) -> Result<std::result::Result<Flat<E>, Plan<E>>> {
    let fits = |step: &Step<E>| match step {
        Step::Chain(chain) => {
            let no_lists = chain.places.is_empty() && chain.sums.is_empty();
            (1..=chain.block).contains(&chain.size)
                && no_lists
                && !chain.work.iter().any(|w| matches!(w, Work::Spread { .. }))
        }
        Step::Numbers(_) | Step::Alone(_) => true,
        _ => false,
    };
    // Work on single numbers alone becomes part of other such work.
    let are_numbers = plan.steps.iter().all(|step| matches!(step, Step::Numbers(_)));
    if are_numbers || plan.floats.total() > MOST || !plan.steps.iter().all(fits) {
        return Ok(Err(plan));
    }
    let mut len = 0;
    let mut span = |n: usize| {
        let at = len;
        len += n.next_multiple_of(LINE);
        Span { at, n }
    };
    let buffers = plan.floats.buffers.iter().map(|buffer| span(buffer.len())).collect();
    let places = Places { buffers, consts: vec![None; plan.floats.n_consts()] };
    let uses = uses(&plan);
    let mut f = Flattened { places, parts: Vec::new(), strips: Strips::default(), len, kept: Vec::new(), uses };
    let cost = plan.bytes() / 8 + 8 * plan.steps.len();
    for step in std::mem::take(&mut plan.steps) {
        match step {
            Step::Chain(chain) => f.chain(*chain, &plan.floats)?,
            Step::Alone(alone) => f.alone(alone, &plan.floats)?,
            Step::Numbers(numbers) => {
                numbers.sources().for_each(|source| {
                    f.source(source, &plan.floats);
                });
                f.part(Part::Numbers(numbers));
            }
            _ => {}
        }
    }
    f.end_strips();
    let mut floats = Room::new(f.len + LINE)?;
    f.kept.iter().for_each(|(at, numbers)| floats[*at..at + numbers.len()].copy_from_slice(numbers));
    let port = |buffer: usize, element: Element, n: usize| match element {
        Element::Int => Port::Ints { buffer, n },
        _ => Port::Floats(Span { n, ..f.places.buffers[buffer] }),
    };
    let inputs = plan.arguments.iter().zip(&plan.inputs);
    let arguments = inputs.map(|(&buffer, ty)| port(buffer, ty.element, ty.dims.size())).collect();
    let outputs = plan.outputs.iter().map(|&(buffer, ty)| port(buffer, ty.element, ty.dims.size())).collect();
    let Plan { floats: mut bank, ints, .. } = plan;
    bank.buffers.clear();
    Ok(Ok(Flat { room: floats, floats: bank, ints, places: f.places, parts: f.parts, arguments, outputs, cost }))
}

impl<E: ArrayFloat> Flattened<E> {
    fn span(&mut self, n: usize) -> Span {
        let at = self.len;
        self.len += n.next_multiple_of(LINE);
        Span { at, n }
    }

    fn end_strips(&mut self) {
        if !self.strips.is_empty() {
            self.parts.push(Part::Strips(std::mem::take(&mut self.strips)));
        }
    }

    fn part(&mut self, part: Part<E>) {
        self.end_strips();
        self.parts.push(part);
    }

    fn kept(&mut self, numbers: Vec<E>) -> Span {
        let span = self.span(numbers.len());
        self.kept.push((span.at, numbers));
        span
    }

    /// Where the first number of a source lies.
    fn source(&mut self, source: Source, bank: &Bank<E>) -> usize {
        if let (Source::Const(k), None) = (source, self.places.of(source)) {
            self.places.consts[k] = Some(self.kept(bank.read(source, &|_| &[]).to_vec()));
        }
        self.places.of(source).map_or(0, |span| span.at)
    }

    fn strip(&mut self, op: StripOp, n: usize, to: usize, of: [usize; 3]) {
        self.strips.push(Strip { op, n: n as u32, to: to as u32, of: of.map(|at| at as u32) });
    }

    /// Numbers from a place into a span.
    fn copied(&mut self, first: usize, walk: &Walk, to: Span) {
        if walk.is_constant() {
            return self.strip(StripOp::Fill, to.n, to.at, [first + walk.offset(); 3]);
        }
        let mut runs = Vec::new();
        walk.runs(0, to.n, |at, stride, count| runs.push((first + at, stride, count)));
        if runs.iter().all(|run| run.1 == 1) && to.n >= LONG * runs.len() {
            let mut at = to.at;
            for (from, _, count) in runs {
                self.strip(StripOp::Copy, count, at, [from; 3]);
                at += count;
            }
            return;
        }
        self.strips.gather(places(runs), to.at as u32);
    }

    fn chain(&mut self, chain: Chain<E>, bank: &Bank<E>) -> Result<()> {
        let Chain { size, streams, repeated, work, reducers, blocks, .. } = chain;
        let blocks: Vec<_> = (0..blocks).map(|_| self.span(size)).collect();
        for (stream, to) in repeated {
            let (source, walk) = (streams[stream].source, streams[stream].walk);
            if let Source::Const(_) = source {
                let numbers = bank.read(source, &|_| &[]);
                let number = numbers.get(walk.offset()).copied().unwrap_or_default();
                self.kept.push((blocks[to].at, vec![number; size]));
            } else {
                let first = self.source(source, bank);
                self.strip(StripOp::Fill, size, blocks[to].at, [first + walk.offset(); 3]);
            }
        }
        let mut reducers: Vec<_> = reducers.into_iter().map(Some).collect();
        for work in work {
            let at = |f: &mut Self, arg: Arg, n: usize| match arg {
                Arg::Block(k) => Span { n, ..blocks[k] },
                Arg::Buffer(k) => Span { n, ..f.places.buffers[k] },
                Arg::Stream(k) => {
                    let first = f.source(streams[k].source, bank);
                    Span { at: first + streams[k].walk.offset(), n }
                }
            };
            match work {
                Work::Compute { op, of, .. } | Work::Keep { op, of, .. } => {
                    let to = match work {
                        Work::Compute { to, .. } => blocks[to],
                        Work::Keep { buffer, .. } => Span { n: size, ..self.places.buffers[buffer] },
                        _ => continue,
                    };
                    let mut spans = [at(self, of[0], size); 3];
                    for k in 1..arity(op) {
                        spans[k] = at(self, of[k], size);
                    }
                    match strip_of(op) {
                        Some(op) => self.strip(op, size, to.at, spans.map(|span| span.at)),
                        None => self.part(Part::Function { op, to, of: spans }),
                    }
                }
                Work::Twins { functions, of, to, .. } => {
                    let of = at(self, of, size);
                    for (function, to) in functions.into_iter().zip(to) {
                        let (op, to) = (BlockOp::Math(MathOp::Function(function)), at(self, to, size));
                        self.part(Part::Function { op, to, of: [of; 3] });
                    }
                }
                Work::Gather { stream, to } => {
                    let first = self.source(streams[stream].source, bank);
                    self.copied(first, &streams[stream].walk, blocks[to]);
                }
                Work::GatherRows { stream, row, to } => {
                    let first = self.source(streams[stream].source, bank);
                    self.copied(first, &streams[stream].walk, Span { n: size / row, ..blocks[to] });
                }
                Work::Shares { of, row, to } => {
                    let of = [at(self, of[0], size / row), at(self, of[1], size), at(self, of[2], size / row)];
                    self.part(Part::Shares { of, to: blocks[to] });
                }
                Work::Store { of, buffer } => {
                    let (from, to) = (at(self, of, size), self.places.buffers[buffer]);
                    self.strip(StripOp::Copy, size, to.at, [from.at; 3]);
                }
                Work::Reduce { of, reducer, buffer } => {
                    let (of, to) = (at(self, of, size), self.places.buffers[buffer]);
                    let Some(reducer) = reducers[reducer].take() else { continue };
                    match reducer.vectors() {
                        Some(vectors) => self.reduced(vectors, of, to.at),
                        None => self.part(Part::Reduce { reducer, of, to }),
                    }
                }
                Work::Lookup { .. } | Work::Scatter { .. } | Work::Spread { .. } => {}
            }
        }
        Ok(())
    }

    fn alone(&mut self, mut alone: Box<Alone<E>>, bank: &Bank<E>) -> Result<()> {
        if alone.is_of_ints() {
            alone.read_as_inputs();
            self.part(Part::Alone(alone, None));
            return Ok(());
        }
        let to = Span { n: alone.size(), ..self.places.buffers[alone.to()] };
        match alone.op() {
            ArrayOp::Copy => {
                let Operand { place, walk, .. } = alone.operands()[0];
                let first = self.source(place.source, bank);
                self.copied(first, &walk, to);
            }
            ArrayOp::Concat(axis) => {
                let (axis, of) = (*axis, alone.operands().to_vec());
                self.concat(axis, &of, to, bank);
            }
            ArrayOp::AccumulateAt(_) => {
                let [sum, c] = [alone.operands()[0], alone.operands()[1]];
                if !alone.is_in_place() {
                    let first = self.source(sum.place.source, bank);
                    self.copied(first, &sum.walk, to);
                }
                let from = self.source(c.place.source, bank);
                if let Some(part) = alone.part() {
                    self.added(from, &c.walk, to.at, part, c.size());
                }
            }
            _ => {
                alone.read_as_inputs();
                self.part(Part::Alone(alone, Some(to)));
            }
        }
        Ok(())
    }

    fn concat(&mut self, axis: usize, of: &[Operand], to: Span, bank: &Bank<E>) {
        let outer = of[0].place.dims[..axis].iter().product::<usize>();
        if outer == 1 {
            let mut at = to.at;
            for operand in of.iter().filter(|operand| operand.size() > 0) {
                let first = self.source(operand.place.source, bank);
                if !self.made_there(operand, at) {
                    self.copied(first, &operand.walk, Span { at, n: operand.size() });
                }
                at += operand.size();
            }
            return;
        }
        let mut from = vec![0; to.n];
        let row = to.n / outer.max(1);
        let mut column = 0;
        for operand in of {
            let first = self.source(operand.place.source, bank);
            let width = operand.size() / outer.max(1);
            let mut k = 0;
            operand.walk.runs(0, operand.size(), |at, stride, count| {
                for i in 0..count {
                    let place = (first + at).wrapping_add_signed(stride * i as isize);
                    from[k / width * row + column + k % width] = place as u32;
                    k += 1;
                }
            });
            column += width;
        }
        self.strips.gather(from.into_iter(), to.at as u32);
    }

    /// Rows of `n` vectors of `inner` numbers, each reduced to a vector.
    fn reduced(&mut self, (op, n, inner): (StripOp, usize, usize), of: Span, to: usize) {
        for row in 0..of.n / (n * inner) {
            let (first, to) = (of.at + row * n * inner, to + row * inner);
            self.strip(StripOp::Copy, inner, to, [first; 3]);
            (1..n).for_each(|k| self.strip(op, inner, to, [to, first + k * inner, to]));
        }
    }

    /// Lets the operation that computes an operand of a step write it where the step wants it, if nothing else reads it.
    fn made_there(&mut self, operand: &Operand, to: usize) -> bool {
        let Source::Buffer(k) = operand.place.source else { return false };
        let (n, is_alone) = (operand.size(), self.uses[k] == [1, 1]);
        let is_whole = operand.place.is_contiguous() && operand.place.offset == 0;
        let makes = |strip: &Strip| strip.to as usize == self.places.buffers[k].at;
        let made = self.strips.list().iter().rposition(makes).filter(|_| is_alone && is_whole);
        made.is_some_and(|made| self.strips.write_to(made, n, to))
    }

    /// Adds `n` numbers on one way to those on another.
    fn added(&mut self, from: usize, way: &Walk, to: usize, part: &Walk, n: usize) {
        let [mut from_runs, mut to_runs] = [Vec::new(), Vec::new()];
        way.runs(0, n, |at, stride, count| from_runs.push((from + at, stride, count)));
        part.runs(0, n, |at, stride, count| to_runs.push((to + at, stride, count)));
        if let ([(from, 1, _)], [(to, 1, _)]) = (&from_runs[..], &to_runs[..]) {
            return self.strip(StripOp::Add, n, *to, [*to, *from, *to]);
        }
        let pairs: Vec<_> = places(from_runs).zip(places(to_runs)).map(|(from, to)| [from, to]).collect();
        self.strips.add_at(pairs.into_iter());
    }
}

/// The places of runs of numbers.
fn places(runs: Vec<(usize, isize, usize)>) -> impl Iterator<Item = u32> {
    let places = |(at, stride, count): (usize, isize, usize)| {
        (0..count).map(move |i| at.wrapping_add_signed(stride * i as isize) as u32)
    };
    runs.into_iter().flat_map(places)
}

/// An operation that strips do.
fn strip_of(op: BlockOp) -> Option<StripOp> {
    Some(match op {
        BlockOp::IsUnreached => StripOp::IsUnreached,
        BlockOp::Hidden | BlockOp::NanOr | BlockOp::ContributionNanOr => return None,
        BlockOp::Resting | BlockOp::RestingProduct | BlockOp::RestingQuotient => return None,
        BlockOp::Contribution => StripOp::Contribution,
        BlockOp::Product => StripOp::Product,
        BlockOp::MulAdd => StripOp::MulAdd,
        BlockOp::ReachedMulAdd => StripOp::ReachedMulAdd,
        BlockOp::Two(two) => StripOp::Two(two),
        BlockOp::Math(op) => match op {
            MathOp::Add => StripOp::Add,
            MathOp::Sub => StripOp::Sub,
            MathOp::Mul => StripOp::Mul,
            MathOp::Div => StripOp::Div,
            MathOp::Neg => StripOp::Neg,
            MathOp::Less => StripOp::Less,
            MathOp::LessEqual => StripOp::LessEqual,
            MathOp::Equal => StripOp::Equal,
            MathOp::IsNan => StripOp::IsNan,
            MathOp::Select => StripOp::Select,
            MathOp::Function(Function::Sqrt) => StripOp::Sqrt,
            MathOp::Function(Function::Abs) => StripOp::Abs,
            _ => return None,
        },
    })
}
