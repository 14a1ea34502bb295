//! Instructions with a step of their own: layout, indexing, running results and products.
//!
//! Promises: the order in the instruction's documentation; indices are checked before anything is added. Does not know
//! chains.

use super::super::dims::Dims;
use super::super::instr::{ArrayOp, Cumulate, Data, Element, Reduce, Slice, Type, View};
use super::chain::BLOCK;
use super::concat::concat;
use super::dot::Product;
use super::indexed::{check, scatter_add, scatter_set, take};
use super::integers;
use super::math::ArrayFloat;
use super::memory::{Bank, room};
use super::place::{Along, Place, Source, Walk};
use super::sorted;
use crate::error::{Error, Result};
use crate::kernels;
use crate::memory::list_for;
use crate::ops::products_of_others;
use crate::simd::Real;

/// An operand: where its numbers come from and how they lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub(super) place: Place,
    pub(super) walk: Walk,
    pub(super) element: Element,
}

impl Operand {
    pub(super) fn size(&self) -> usize {
        self.place.dims.size()
    }
}

/// A step of one instruction.
#[derive(Debug)]
pub(super) struct Alone<E> {
    op: ArrayOp,
    of: Vec<Operand>,
    ty: Type,
    /// The result's buffer, which holds the first operand already if that is changed in place, and how many numbers are written there.
    to: usize,
    len: usize,
    is_in_place: bool,
    product: Option<Product<E>>,
    at: Option<Walk>,
    floats: Vec<E>,
    ints: [Vec<i64>; 2],
    /// Numbers and indices of a row that is sorted.
    places: Vec<u128>,
}

impl<E: ArrayFloat> Alone<E> {
    pub(super) fn new(op: ArrayOp, of: Vec<Operand>, ty: Type, to: usize, is_in_place: bool) -> Result<Self> {
        let product = match op {
            ArrayOp::Dot(dot) => Some(Product::new(dot, &of[of.len() - 2].place, &of[of.len() - 1].place)?),
            _ => None,
        };
        // The part of the first operand that is added to.
        let at = match &op {
            ArrayOp::AccumulateAt(slices) => Some(part(&ty.dims, slices)?),
            _ => None,
        };
        let largest = of.iter().map(Operand::size).max().unwrap_or(0);
        let is_int = |x: &Operand| x.element == Element::Int;
        let (floats, ints) = match op {
            ArrayOp::AccumulateAt(_) => (of[1].size().min(BLOCK), 0),
            ArrayOp::Convert(_) | ArrayOp::Row(_) | ArrayOp::Compare(_) | ArrayOp::Select => {
                (if of.iter().all(is_int) { 0 } else { largest }, if of.iter().any(is_int) { largest } else { 0 })
            }
            // The exponentials of a row.
            ArrayOp::ReducePull(Reduce::LogSumExp, _) if of.len() == 3 => (of[1].size() / of[0].size().max(1), 0),
            _ => (0, 0),
        };
        let (floats, ints) = (room(floats)?, [room(ints)?, room(ints)?]);
        let sorted = if matches!(op, ArrayOp::ArgSort) { of[0].place.dims.last().copied().unwrap_or(1) } else { 0 };
        let places = list_for(sorted, "an array program")?;
        Ok(Alone { op, of, ty, to, len: ty.dims.size(), is_in_place, product, at, floats, ints, places })
    }

    /// The same with so many numbers written: the result, and what other steps take besides.
    pub(super) fn writing(self, len: usize) -> Self {
        Alone { len, ..self }
    }

    pub(super) fn op(&self) -> &ArrayOp {
        &self.op
    }

    pub(super) fn operands(&self) -> &[Operand] {
        &self.of
    }

    /// The result's buffer.
    pub(super) fn to(&self) -> usize {
        self.to
    }

    /// Numbers that it writes.
    pub(super) fn size(&self) -> usize {
        self.len
    }

    pub(super) fn is_of_ints(&self) -> bool {
        self.ty.element == Element::Int
    }

    pub(super) fn is_in_place(&self) -> bool {
        self.is_in_place
    }

    /// The part of the first operand that is added to.
    pub(super) fn part(&self) -> Option<&Walk> {
        self.at.as_ref()
    }

    /// Lets it find floats in buffers as arguments with their numbers.
    pub(super) fn read_as_inputs(&mut self) {
        for operand in self.of.iter_mut().filter(|operand| operand.element != Element::Int) {
            if let Source::Buffer(k) = operand.place.source {
                operand.place.source = Source::Input(k);
            }
        }
    }

    /// Runs it.
    pub(super) fn run<'a>(
        &mut self,
        floats: &mut Bank<E>,
        ints: &mut Bank<i64>,
        given: &impl Fn(Source) -> &'a [E],
        given_ints: &impl Fn(Source) -> &'a [i64],
    ) -> Result<()> {
        if self.ty.element == Element::Int {
            let mut to = std::mem::take(&mut ints.buffers[self.to]);
            let done = self.run_ints(floats, ints, given, given_ints, &mut to[..self.ty.dims.size()]);
            ints.buffers[self.to] = to;
            return done;
        }
        let mut to = std::mem::take(&mut floats.buffers[self.to]);
        let done = self.run_floats(floats, ints, given, given_ints, &mut to[..self.len]);
        floats.buffers[self.to] = to;
        done
    }

    /// Runs one that gives floats.
    pub(super) fn run_floats<'a>(
        &mut self,
        bank: &Bank<E>,
        ints: &Bank<i64>,
        given: &impl Fn(Source) -> &'a [E],
        given_ints: &impl Fn(Source) -> &'a [i64],
        to: &mut [E],
    ) -> Result<()> {
        let of = &self.of;
        let source = |k: usize| bank.read(of[k].place.source, given);
        let whole = |k: usize| &source(k)[of[k].place.offset..][..of[k].size()];
        let whole_ints = |k: usize| &ints.read(of[k].place.source, given_ints)[of[k].place.offset..][..of[k].size()];
        let gather_ints = |k: usize, to: &mut [i64]| {
            of[k].walk.gather(ints.read(of[k].place.source, given_ints), 0, &mut to[..of[k].size()]);
        };
        match &self.op {
            ArrayOp::Copy => of[0].walk.gather(source(0), 0, to),
            ArrayOp::Concat(axis) => joined(of, *axis, to, |k, start, to| of[k].walk.gather(source(k), start, to)),
            ArrayOp::AccumulateAt(_) => {
                if !self.is_in_place {
                    of[0].walk.gather(source(0), 0, to);
                }
                let Some(at) = &self.at else { return Ok(()) };
                if of[1].place.is_contiguous() {
                    add_at(at, 0, whole(1), to);
                    return Ok(());
                }
                for start in (0..of[1].size()).step_by(BLOCK) {
                    let c = &mut self.floats[..BLOCK.min(of[1].size() - start)];
                    of[1].walk.gather(source(1), start, c);
                    add_at(at, start, c, to);
                }
            }
            ArrayOp::Take { axis, batch } => {
                take([&of[0].place.dims, &of[1].place.dims], (*axis, *batch), whole(0), whole_ints(1), to)?
            }
            ArrayOp::ScatterAdd { axis, batch } => {
                let (indices, c) = (whole_ints(1), whole(2));
                check(indices, self.ty.dims[*axis])?;
                if !self.is_in_place {
                    to.copy_from_slice(whole(0));
                }
                scatter_add([&self.ty.dims, &of[1].place.dims], (*axis, *batch), indices, c, to)?;
            }
            ArrayOp::ScatterSet { axis, batch } => {
                let (indices, y) = (whole_ints(1), whole(2));
                check(indices, self.ty.dims[*axis])?;
                if !self.is_in_place {
                    to.copy_from_slice(whole(0));
                }
                scatter_set([&self.ty.dims, &of[1].place.dims], (*axis, *batch), indices, y, to)?;
            }
            ArrayOp::Cumulate { kind, axis, reverse } => {
                let along = Along::new(&self.ty.dims, *axis, axis + 1);
                match kind {
                    Cumulate::Sum => running(along, *reverse, whole(0), to, |_, before, x| before + x),
                    Cumulate::Recurrence => {
                        let a = whole(0);
                        running(along, *reverse, whole(1), to, |at, before, b| a[at] * before + b);
                    }
                }
            }
            ArrayOp::ReducePull(Reduce::Prod, axes) => {
                let dims = of[1].place.dims;
                let n: usize = axes.iter().map(|axis| dims[axis]).product();
                let rows = whole(1).chunks_exact(n.max(1)).zip(to.chunks_exact_mut(n.max(1)));
                for (&g, (x, to)) in whole(0).iter().zip(rows) {
                    if g.is_unreached() {
                        to.fill(g);
                    } else {
                        products_of_others(g, x, to);
                        to.iter_mut().for_each(|c| *c = *c + <E as Real>::of(0.0));
                    }
                }
            }
            ArrayOp::ReducePull(Reduce::Max | Reduce::Min, _) => {
                kernels::shares_of_extremes(whole(0), whole(1), whole(2), to);
            }
            ArrayOp::Reduce(kind, _) => whole_rows(*kind, whole(0), self.ty.dims.size(), to),
            ArrayOp::ReducePull(Reduce::LogSumExp, _) if of.len() == 4 => {
                let (totals, e) = whole(3).split_at(of[0].size());
                let n = (e.len() / totals.len().max(1)).max(1);
                let rows = whole(0).iter().zip(totals).zip(e.chunks_exact(n).zip(to.chunks_exact_mut(n)));
                rows.for_each(|((&g, &s), (e, to))| kernels::log_sum_exp_shares(g, e, s, to));
            }
            ArrayOp::ReducePull(kind, _) => {
                let n = (to.len() / of[0].size().max(1)).max(1);
                let rows = whole(0).iter().zip(whole(2)).zip(whole(1).chunks_exact(n).zip(to.chunks_exact_mut(n)));
                for ((&g, &y), (x, to)) in rows {
                    if *kind == Reduce::Norm2 {
                        kernels::norm2_shares(g, x, y, to);
                    } else {
                        let [_, s] = kernels::log_sum_exp(x, &mut self.floats);
                        kernels::log_sum_exp_shares(g, &self.floats, s, to);
                    }
                }
            }
            ArrayOp::Dot(_) => {
                let Some(product) = &mut self.product else { return Ok(()) };
                if of.len() == 2 {
                    product.run(source(0), source(1), to);
                    return Ok(());
                }
                if !self.is_in_place {
                    of[0].walk.gather(source(0), 0, to);
                }
                product.run_onto(source(1), source(2), to);
            }
            ArrayOp::Convert(element) => {
                gather_ints(0, &mut self.ints[0]);
                let is_mask = *element == Element::Mask;
                for (to, &x) in to.iter_mut().zip(&self.ints[0]) {
                    *to = <E as Real>::of(if is_mask { f64::from(u8::from(x != 0)) } else { x as f64 });
                }
            }
            ArrayOp::Compare(comparison) => {
                for k in 0..of.len() {
                    gather_ints(k, &mut self.ints[k]);
                }
                for (k, to) in to.iter_mut().enumerate() {
                    let holds = integers::compare(*comparison, self.ints[0][k], self.ints[1][k]);
                    *to = <E as Real>::of(f64::from(u8::from(holds)));
                }
            }
            op => return Err(no_step(op)),
        }
        Ok(())
    }

    fn run_ints<'a>(
        &mut self,
        bank: &Bank<E>,
        ints: &Bank<i64>,
        given: &impl Fn(Source) -> &'a [E],
        given_ints: &impl Fn(Source) -> &'a [i64],
        to: &mut [i64],
    ) -> Result<()> {
        let of = &self.of;
        let floats = |k: usize| bank.read(of[k].place.source, given);
        let source = |k: usize| ints.read(of[k].place.source, given_ints);
        let whole = |k: usize| &source(k)[of[k].place.offset..][..of[k].size()];
        let whole_floats = |k: usize| &floats(k)[of[k].place.offset..][..of[k].size()];
        let gather = |k: usize, to: &mut [i64]| of[k].walk.gather(source(k), 0, &mut to[..of[k].size()]);
        match &self.op {
            ArrayOp::Copy => of[0].walk.gather(source(0), 0, to),
            ArrayOp::Concat(axis) => joined(of, *axis, to, |k, start, to| of[k].walk.gather(source(k), start, to)),
            ArrayOp::Take { axis, batch } => {
                take([&of[0].place.dims, &of[1].place.dims], (*axis, *batch), whole(0), whole(1), to)?
            }
            ArrayOp::ScatterAdd { axis, batch } => {
                check(whole(1), self.ty.dims[*axis])?;
                if !self.is_in_place {
                    to.copy_from_slice(whole(0));
                }
                scatter_add([&self.ty.dims, &of[1].place.dims], (*axis, *batch), whole(1), whole(2), to)?;
            }
            ArrayOp::ScatterSet { axis, batch } => {
                check(whole(1), self.ty.dims[*axis])?;
                if !self.is_in_place {
                    to.copy_from_slice(whole(0));
                }
                scatter_set([&self.ty.dims, &of[1].place.dims], (*axis, *batch), whole(1), whole(2), to)?;
            }
            ArrayOp::ArgExtreme { axis, largest } => {
                let along = Along::new(&of[0].place.dims, *axis, axis + 1);
                if of[0].element == Element::Int {
                    integers::arg_extreme(along, *largest, whole(0), to);
                } else {
                    integers::arg_extreme(along, *largest, whole_floats(0), to);
                }
            }
            ArrayOp::Cumulate { kind, axis, reverse } => {
                let along = Along::new(&self.ty.dims, *axis, axis + 1);
                match kind {
                    Cumulate::Sum => running(along, *reverse, whole(0), to, |_, before: i64, x| before.wrapping_add(x)),
                    Cumulate::Recurrence => {
                        let a = whole(0);
                        let next = |at: usize, before: i64, b| a[at].wrapping_mul(before).wrapping_add(b);
                        running(along, *reverse, whole(1), to, next);
                    }
                }
            }
            ArrayOp::ArgSort => {
                let n = of[0].place.dims.last().copied().unwrap_or(1);
                if of[0].element == Element::Int {
                    sorted::arg_sort(n, whole(0), &mut self.places, to)?;
                } else {
                    sorted::arg_sort(n, whole_floats(0), &mut self.places, to)?;
                }
            }
            ArrayOp::Search { right } => {
                let [n, m] = [0, 1].map(|k| of[k].place.dims.last().copied().unwrap_or(1));
                if of[0].element == Element::Int {
                    sorted::search([n, m], *right, whole(0), whole(1), to)?;
                } else {
                    sorted::search([n, m], *right, whole_floats(0), whole_floats(1), to)?;
                }
            }
            ArrayOp::Convert(_) => {
                let room = &mut self.floats[..of[0].size()];
                of[0].walk.gather(floats(0), 0, room);
                to.iter_mut().zip(room).for_each(|(to, x)| *to = x.to_f64() as i64);
            }
            ArrayOp::Reduce(kind, axes) => {
                let dims = of[0].place.dims;
                let from = axes.iter().next().unwrap_or(dims.rank());
                integers::reduce(*kind, Along::new(&dims, from, from + axes.len()), whole(0), to);
            }
            ArrayOp::Row(row) => {
                (0..of.len()).for_each(|k| gather(k, &mut self.ints[k]));
                integers::row(*row, &self.ints, to);
            }
            ArrayOp::Select => {
                let mask = &mut self.floats[..of[0].size()];
                of[0].walk.gather(floats(0), 0, mask);
                gather(1, &mut self.ints[0]);
                gather(2, &mut self.ints[1]);
                for (k, to) in to.iter_mut().enumerate() {
                    *to = self.ints[usize::from(mask[k] == <E as Real>::of(0.0))][k];
                }
            }
            op => return Err(no_step(op)),
        }
        Ok(())
    }
}

#[cold]
fn no_step(op: &ArrayOp) -> Error {
    let found = format!("{op:?}");
    Error::BadArgument { what: "instruction", expected: "one that plans run".into(), found }
}

/// Norms of rows, or logarithms of sums of exponentials; where there is more room, these sums and the exponentials.
fn whole_rows<E: ArrayFloat>(kind: Reduce, x: &[E], rows: usize, to: &mut [E]) {
    let n = (x.len() / rows.max(1)).max(1);
    let (values, more) = to.split_at_mut(rows);
    let (totals, e) = more.split_at_mut(rows.min(more.len()));
    for (k, (x, value)) in x.chunks_exact(n).zip(values).enumerate() {
        if kind == Reduce::Norm2 {
            *value = kernels::norm2(x);
            continue;
        }
        let e = if e.is_empty() { &mut [] } else { &mut e[k * n..(k + 1) * n] };
        let [log, total] = kernels::log_sum_exp(x, e);
        *value = log;
        totals.get_mut(k).into_iter().for_each(|to| *to = total);
    }
}

/// Adds contributions to the numbers that lie on a way, from `start` on. One that is unreached, -0.0, changes no sum.
fn add_at<E: ArrayFloat>(way: &Walk, start: usize, c: &[E], to: &mut [E]) {
    way.parts(start, c.len(), |numbers, at, stride, tile| {
        let run = &c[numbers];
        let mut add = |at: usize, c: E| to[at] = to[at] + c;
        match tile {
            Some(tile) => {
                let mut at = at;
                for c in run.chunks_exact(tile.len()) {
                    tile.iter().zip(c).for_each(|(&place, &c)| add(at.wrapping_add_signed(place), c));
                    at = at.wrapping_add_signed(stride);
                }
            }
            None if stride == 1 => kernels::add_to(run, &mut to[at..at + run.len()]),
            None => {
                for (k, &c) in run.iter().enumerate() {
                    add(at.wrapping_add_signed(stride * k as isize), c);
                }
            }
        }
    });
}

/// The way through a part of an array in C order.
fn part(dims: &Dims, slices: &[Slice]) -> Result<Walk> {
    let whole = Place::whole(Source::Buffer(0), 0, *dims);
    let counts: Vec<_> = slices.iter().map(|slice| slice.count).collect();
    let part = whole.viewed(&View::Slice(slices.into()), Dims::new(&counts)?);
    Ok(Walk::new(&part.unwrap_or(whole)))
}

/// Operands joined along an axis.
fn joined<T: Copy + Default>(of: &[Operand], axis: usize, to: &mut [T], gather: impl Fn(usize, usize, &mut [T])) {
    let widths = of.iter().map(|x| x.place.dims[axis..].iter().product());
    concat(widths, of[0].place.dims[..axis].iter().product(), to, gather);
}

/// `to[i] = next(position, to[i - 1], x[i])` along an axis, from `to[0] = next(position, 0, x[0])`; sums begin with x itself.
fn running<T: Copy>(along: Along, reverse: bool, x: &[T], to: &mut [T], next: impl Fn(usize, T, T) -> T) {
    let Along { n, inner, .. } = along;
    for first in along.rows() {
        let mut before = None;
        for k in 0..n {
            let at = first + if reverse { n - 1 - k } else { k } * inner;
            to[at] = match before {
                Some(before) => next(at, before, x[at]),
                None => x[at],
            };
            before = Some(to[at]);
        }
    }
}

/// Numbers of a constant as those of a program's float type, if they are none already.
pub(super) fn own_numbers<E: ArrayFloat>(data: &Data) -> Option<Vec<E>> {
    match data {
        Data::Mask(mask) => Some(mask.iter().map(|&holds| <E as Real>::of(f64::from(u8::from(holds)))).collect()),
        _ => None,
    }
}
