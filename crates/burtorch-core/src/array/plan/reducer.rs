//! Reductions over one run of axes, on blocks in C order.
//!
//! Promises: the order of the eager reductions: sums of sixteen or more from eight running sums, others and products from
//! the first to the last. Does not know where blocks come from.
//!
//! The simple algorithm: numbers of a row are added to running results by their place. Departures: a row of `n` vectors (`inner`
//! neighbouring numbers that are not reduced) has that many results side by side, so vectors of the CPU run along them; if
//! `inner` is 1, eight running results are one vector.

use super::super::instr::Reduce;
use super::math::ArrayFloat;
use crate::kernels::{self, StripOp};
use crate::ops::{BinaryOp, Max, Min};
use crate::simd::Real;

/// A reduction and how far it is.
#[derive(Debug)]
pub(super) struct Reducer<E> {
    kind: Reduce,
    n: usize,
    inner: usize,
    /// Running results, `phases * inner` of them.
    state: Vec<E>,
    phases: usize,
    /// The next number's place in the row.
    at: usize,
    /// The next row.
    row: usize,
}

impl<E: ArrayFloat> Reducer<E> {
    /// Of rows of `n` times `inner` numbers.
    pub(super) fn new(kind: Reduce, n: usize, inner: usize) -> Self {
        let phases = if n >= 16 && kind != Reduce::Prod { 8 } else { 1 };
        Reducer { kind, n, inner, state: Vec::new(), phases, at: 0, row: 0 }
    }

    /// Numbers of a row.
    pub(super) fn row_len(&self) -> usize {
        self.n * self.inner
    }

    /// Numbers that it keeps.
    pub(super) fn state_len(&self) -> usize {
        self.phases * self.inner
    }

    /// How many vectors a row has, and how many numbers a vector, if it takes them from the first to the last, each as a whole.
    pub(super) fn vectors(&self) -> Option<(StripOp, usize, usize)> {
        let op = match self.kind {
            Reduce::Sum => StripOp::Add,
            Reduce::Prod => StripOp::Mul,
            Reduce::Max => StripOp::Larger,
            Reduce::Min => StripOp::Smaller,
            _ => return None,
        };
        (self.phases == 1 && self.n > 0 && self.inner >= NARROW).then_some((op, self.n, self.inner))
    }

    /// Gives it its memory.
    pub(super) fn give(&mut self, state: Vec<E>) {
        self.state = state;
    }

    fn start(&self) -> E {
        let of = <E as Real>::of;
        match self.kind {
            Reduce::Prod => of(1.0),
            Reduce::Max => of(f64::NEG_INFINITY),
            Reduce::Min => of(f64::INFINITY),
            // Added to anything it leaves that as it is.
            _ => of(-0.0),
        }
    }

    /// Goes back to the first row. A reduction of nothing has its results at once.
    pub(super) fn begin(&mut self, to: &mut [E]) {
        let start = self.start();
        self.state.fill(start);
        (self.at, self.row) = (0, 0);
        if self.n == 0 {
            to.fill(if self.kind == Reduce::Sum { <E as Real>::of(0.0) } else { start });
        }
    }

    /// Takes the next numbers; results of rows that end are written.
    pub(super) fn take(&mut self, mut x: &[E], to: &mut [E]) {
        let len = self.row_len();
        while !x.is_empty() {
            if self.at == 0 && self.inner == 1 && x.len() >= len {
                let rows = x.len() / len;
                if self.kind == Reduce::Sum && self.phases == 8 {
                    kernels::sums_of_rows(&x[..rows * len], len, &mut to[self.row..self.row + rows]);
                    self.row += rows;
                    x = &x[rows * len..];
                    continue;
                }
                let (whole, to) = (&x[..rows * len], &mut to[self.row..self.row + rows]);
                if self.phases == 1 {
                    short_rows(self.kind, whole, (len, 1), to);
                } else {
                    for (row, to) in whole.chunks_exact(len).zip(to) {
                        *to = self.whole_row(row);
                    }
                }
                self.row += rows;
                x = &x[rows * len..];
                continue;
            }
            if self.at == 0 && self.phases == 1 && (2..NARROW).contains(&self.inner) && x.len() >= len {
                let rows = x.len() / len;
                let to = &mut to[self.row * self.inner..(self.row + rows) * self.inner];
                short_rows(self.kind, &x[..rows * len], (self.n, self.inner), to);
                self.row += rows;
                x = &x[rows * len..];
                continue;
            }
            let (part, rest) = x.split_at(x.len().min(len - self.at));
            self.add(part);
            self.at += part.len();
            if self.at == len {
                self.end_row(to);
            }
            x = rest;
        }
    }

    fn one(&self, total: E, x: E) -> E {
        match self.kind {
            Reduce::Prod => total * x,
            Reduce::Max => Max::forward(total, x),
            Reduce::Min => Min::forward(total, x),
            _ => total + x,
        }
    }

    fn whole_row(&mut self, row: &[E]) -> E {
        let start = self.start();
        self.state.fill(start);
        self.eight(row);
        self.of_eight()
    }

    fn eight(&mut self, x: &[E]) {
        match self.kind {
            Reduce::Max => kernels::larger_of_eight(x, &mut self.state),
            Reduce::Min => kernels::smaller_of_eight(x, &mut self.state),
            _ => kernels::add_to_eight(x, &mut self.state),
        }
    }

    fn of_eight(&self) -> E {
        let s = |k: usize| self.state[k];
        let two = |a, b| self.one(a, b);
        two(two(two(s(0), s(4)), two(s(2), s(6))), two(two(s(1), s(5)), two(s(3), s(7))))
    }

    /// Adds numbers of one row.
    fn add(&mut self, mut x: &[E]) {
        let period = self.state.len();
        let mut place = self.at % period;
        if period == 8 && self.inner == 1 && place == 0 {
            return self.eight(x);
        }
        if period == 1 {
            self.state[0] = x.iter().fold(self.state[0], |total, &x| self.one(total, x));
            return;
        }
        while !x.is_empty() {
            let (part, rest) = x.split_at(x.len().min(period - place));
            merge(self.kind, part, &mut self.state[place..place + part.len()]);
            place = 0;
            x = rest;
        }
    }

    fn end_row(&mut self, to: &mut [E]) {
        let inner = self.inner;
        if self.phases == 8 {
            for (from, into) in [(4, 0), (6, 2), (2, 0), (5, 1), (7, 3), (3, 1), (1, 0)] {
                let (low, high) = self.state.split_at_mut(from * inner);
                merge(self.kind, &high[..inner], &mut low[into * inner..(into + 1) * inner]);
            }
        }
        to[self.row * inner..(self.row + 1) * inner].copy_from_slice(&self.state[..inner]);
        let start = self.start();
        self.state.fill(start);
        self.row += 1;
        self.at = 0;
    }
}

/// Numbers side by side of rows that are reduced without kernels.
const NARROW: usize = 8;

/// Rows of `n` times `inner` numbers, each from the first to the last.
fn short_rows<E: ArrayFloat>(kind: Reduce, x: &[E], shape: (usize, usize), to: &mut [E]) {
    match kind {
        Reduce::Prod => by_length(x, shape, to, folded::<E>(|total, x| total * x), |total, x| total * x),
        Reduce::Max => by_length(x, shape, to, extreme::<E>(|x, top| x > top, Max::forward), Max::forward),
        Reduce::Min => by_length(x, shape, to, extreme::<E>(|x, top| x < top, Min::forward), Min::forward),
        _ => by_length(x, shape, to, folded::<E>(|total, x| total + x), |total, x| total + x),
    }
}

/// A row from the first to the last.
fn folded<E: ArrayFloat>(one: impl Fn(E, E) -> E + Copy) -> impl Fn(&[E]) -> E {
    move |row| row[1..].iter().fold(row[0], |total, &x| one(total, x))
}

/// The same for extremes. Departure: a comparison passes over NaN and the signs of zeros; where there may be some, `one` decides.
fn extreme<E: ArrayFloat>(beats: impl Fn(E, E) -> bool, one: impl Fn(E, E) -> E + Copy) -> impl Fn(&[E]) -> E {
    move |row| {
        let (mut top, mut is_number) = (row[0], true);
        for &x in row {
            is_number &= x.partial_cmp(&x).is_some();
            top = if beats(x, top) { x } else { top };
        }
        if is_number && top != <E as Real>::of(0.0) { top } else { folded(one)(row) }
    }
}

fn by_length<E: ArrayFloat>(
    x: &[E],
    (n, inner): (usize, usize),
    to: &mut [E],
    of_row: impl Fn(&[E]) -> E,
    one: impl Fn(E, E) -> E,
) {
    fn rows<E: ArrayFloat, const N: usize>(x: &[E], to: &mut [E], of_row: impl Fn(&[E]) -> E) {
        x.as_chunks::<N>().0.iter().zip(to).for_each(|(row, to)| *to = of_row(row));
    }
    match (n, inner) {
        (1, _) => to.copy_from_slice(x),
        (2, 1) => rows::<E, 2>(x, to, of_row),
        (3, 1) => rows::<E, 3>(x, to, of_row),
        (4, 1) => rows::<E, 4>(x, to, of_row),
        (_, 1) => x.chunks_exact(n).zip(to).for_each(|(row, to)| *to = of_row(row)),
        _ => {
            for (row, to) in x.chunks_exact(n * inner).zip(to.chunks_exact_mut(inner)) {
                to.copy_from_slice(&row[..inner]);
                for part in row[inner..].chunks_exact(inner) {
                    to.iter_mut().zip(part).for_each(|(to, &x)| *to = one(*to, x));
                }
            }
        }
    }
}

fn merge<E: ArrayFloat>(kind: Reduce, x: &[E], total: &mut [E]) {
    match kind {
        Reduce::Prod => kernels::multiply_to(x, total),
        Reduce::Max => kernels::larger_to(x, total),
        Reduce::Min => kernels::smaller_to(x, total),
        _ => kernels::add_to(x, total),
    }
}
