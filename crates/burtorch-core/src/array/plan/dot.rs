//! Products of matrices in any strides.
//!
//! Promises: a product with a vector on either side is one inner product in the order of `inner_product` for each result; a
//! product of two matrices is one chain of fused multiply-adds over k for each result, in order. Terms with an unreached
//! adjoint are skipped. Does not know plans.

use super::super::dims::Dims;
use super::super::instr::Dot;
use super::math::ArrayFloat;
use super::memory::room;
use super::place::Place;
use crate::error::Result;
use crate::kernels::{self, Finish, Matrix, MatrixMut, Start, product, product_workspace_len, slices};
use crate::simd::Real;

/// A matrix among many: where its numbers lie.
#[derive(Clone, Copy, Debug)]
struct Side {
    place: Place,
    /// Steps from row to row and from column to column.
    steps: [isize; 2],
}

impl Side {
    fn new(place: &Place, is_transposed: bool) -> Self {
        let rank = place.dims.rank();
        let mut steps = [place.strides[rank - 2], place.strides[rank - 1]];
        if is_transposed {
            steps.reverse();
        }
        Side { place: *place, steps }
    }

    /// The first number of matrix `at`.
    fn start(&self, batch: &Dims, at: usize) -> usize {
        let mut rest = at;
        let mut start = self.place.offset;
        for axis in (0..batch.rank()).rev() {
            start = start.wrapping_add_signed(self.place.strides[axis] * (rest % batch[axis]) as isize);
            rest /= batch[axis];
        }
        start
    }

    /// The step from matrix to matrix, if there is one.
    fn next(&self, batch: &Dims) -> Option<isize> {
        let steps = (0..batch.rank()).filter(|&axis| batch[axis] > 1);
        let steps: Vec<_> = steps.map(|axis| (self.place.strides[axis], batch[axis] as isize)).collect();
        let is_even = steps.windows(2).all(|pair| pair[0].0 == pair[1].0 * pair[1].1);
        is_even.then(|| steps.last().map_or(0, |(step, _)| *step))
    }
}

/// A product that is ready to run.
#[derive(Debug)]
pub(super) struct Product<E> {
    x: Side,
    y: Side,
    extents: [usize; 3],
    batch: Dims,
    adjoint: [bool; 2],
    /// Steps between matrices, where they are even.
    next: Option<[isize; 2]>,
    workspace: Vec<E>,
}

/// Adjoints that are looked at together.
const SCAN: usize = 32;

/// Columns whose running sums stay in the first-level cache.
const COLUMNS: usize = 128;

impl<E: ArrayFloat> Product<E> {
    /// Of operands in these places.
    pub(super) fn new(dot: Dot, x: &Place, y: &Place) -> Result<Self> {
        let (batch, extents) = dot.extents(&x.dims, &y.dims)?;
        let [m, k, n] = extents;
        let (x, y) = (Side::new(x, dot.transposed[0]), Side::new(y, dot.transposed[1]));
        let next = x.next(&batch).zip(y.next(&batch)).map(|(x, y)| [x, y]);
        let of_vectors = k * 2 + COLUMNS * <E::Vector as Real>::LANES;
        let of_terms = if dot.adjoint == [false; 2] { 0 } else { (k * m.max(n)) + m * n + m.max(n) };
        let len =
            if m == 1 || n == 1 { of_vectors } else { product_workspace_len::<E>(m, n, k) }.max(of_terms).max(m + n);
        Ok(Product { x, y, extents, batch, adjoint: dot.adjoint, next, workspace: room(len)? })
    }

    /// Computes it.
    pub(super) fn run(&mut self, x: &[E], y: &[E], to: &mut [E]) {
        let [m, k, n] = self.extents;
        if m * n == 0 {
            return;
        }
        let is_adjoint = self.adjoint != [false; 2];
        let finish = if is_adjoint { Finish::Reached } else { Finish::AsIs };
        let count = self.batch.size();
        let is_stacked = self.next.is_some() && count > 1 && m != 1 && n != 1;
        let is_whole = is_stacked && (!is_adjoint || k > 0 && self.are_reached([x, y]));
        let step = if is_whole { count } else { 1 };
        for at in (0..count).step_by(step.max(1)) {
            let (from_x, from_y) = (self.x.start(&self.batch, at), self.y.start(&self.batch, at));
            let to = &mut to[at * m * n..(at + step) * m * n];
            if is_adjoint && !is_whole && (k == 0 || self.has_unreached([x, y], [from_x, from_y])) {
                match self.adjoint {
                    [true, true] => self.reached_terms([x, y], [from_x, from_y], to),
                    _ => self.reached_rows([x, y], [from_x, from_y], to),
                }
            } else if m == 1 || n == 1 {
                self.of_vector([x, y], [from_x, from_y], to);
                if is_adjoint {
                    to.iter_mut().for_each(|c| *c = *c + <E as Real>::of(0.0));
                }
            } else if k == 1 && step == 1 && self.y.steps[1] == 1 {
                let x = strided(x, from_x, self.x.steps[0], &mut self.workspace[..m]);
                kernels::outer(x, &y[from_y..from_y + n], to);
            } else {
                let [next_x, next_y] = self.next.unwrap_or_default();
                let a = Matrix::strided(x, from_x, m, k, self.x.steps[0], self.x.steps[1]).stacked(next_x);
                let b = Matrix::strided(y, from_y, k, n, self.y.steps[0], self.y.steps[1]).stacked(next_y);
                let c = MatrixMut::by_rows(to, m, n).stacked(step, (m * n) as isize);
                product(Start::Number(<E as Real>::of(0.0)), a, b, c, finish, &mut self.workspace);
            }
        }
    }

    /// Adds the product of a column and a row, one of which may be an adjoint.
    pub(super) fn run_onto(&mut self, x: &[E], y: &[E], to: &mut [E]) {
        let [m, _, n] = self.extents;
        let (column, row) = self.workspace.split_at_mut(m);
        let column = strided(x, self.x.place.offset, self.x.steps[0], column);
        let row = strided(y, self.y.place.offset, self.y.steps[1], &mut row[..n]);
        kernels::add_products(column, row, self.adjoint, to);
    }

    /// Whether all adjoints lie side by side and none of them is unreached.
    fn are_reached(&self, of: [&[E]; 2]) -> bool {
        let mut sides = [&self.x, &self.y].into_iter().zip(of).zip(self.adjoint).filter(|(_, is_adjoint)| *is_adjoint);
        sides.all(|((side, numbers), _)| {
            let Place { offset, dims, .. } = side.place;
            side.place.is_contiguous()
                && numbers[offset..offset + dims.size()]
                    .chunks(SCAN)
                    .all(|part| part.iter().fold(true, |all, g| all & !g.is_unreached()))
        })
    }

    fn at(side: &Side, start: usize, i: usize, j: usize) -> usize {
        start.wrapping_add_signed(i as isize * side.steps[0] + j as isize * side.steps[1])
    }

    fn has_unreached(&self, of: [&[E]; 2], from: [usize; 2]) -> bool {
        let [m, k, n] = self.extents;
        let some = |side: &Side, k: usize, rows: usize, columns: usize| {
            (0..rows).any(|i| (0..columns).any(|j| of[k][Self::at(side, from[k], i, j)].is_unreached()))
        };
        self.adjoint[0] && some(&self.x, 0, m, k) || self.adjoint[1] && some(&self.y, 1, k, n)
    }

    /// The product without terms whose adjoint is unreached, of which there may be many: only the others are visited. A result
    /// without terms is unreached.
    ///
    /// In words: each row of the result (or column, where the adjoint is the second operand) is a sum of rows of the operand
    /// that is no adjoint (or of its columns), and the terms of each result come in the order of k.
    fn reached_rows(&mut self, [x, y]: [&[E]; 2], [from_x, from_y]: [usize; 2], to: &mut [E]) {
        let [m, k, n] = self.extents;
        let by_rows = self.adjoint[0];
        let (rows, len) = if by_rows { (m, n) } else { (n, m) };
        let (others, sums) = self.workspace.split_at_mut(k * len);
        let (sums, is_reached) = sums[..rows * len + rows].split_at_mut(rows * len);
        let zero = <E as Real>::of(0.0);
        // Row p of the other operand, or column p.
        let (numbers, from, [next, inside]) =
            if by_rows { (y, from_y, self.y.steps) } else { (x, from_x, [self.x.steps[1], self.x.steps[0]]) };
        for (p, other) in others.chunks_exact_mut(len).enumerate() {
            copy_strided(numbers, from.wrapping_add_signed(p as isize * next), inside, other);
        }
        sums.fill(zero);
        is_reached.fill(E::UNREACHED);
        let mut visit = |g: E, r: usize, p: usize| {
            if !g.is_unreached() {
                is_reached[r] = zero;
                kernels::axpy(g, &others[p * len..(p + 1) * len], &mut sums[r * len..(r + 1) * len]);
            }
        };
        // Adjoints are read in the order in which they most likely lie, many at once where all of them are unreached.
        let (side, adjoints, start, lines, width) =
            if by_rows { (&self.x, x, from_x, m, k) } else { (&self.y, y, from_y, k, n) };
        for line in 0..lines {
            for first in (0..width).step_by(SCAN) {
                let count = SCAN.min(width - first);
                let place = Self::at(side, start, line, first);
                let is_none = side.steps[1] == 1
                    && adjoints[place..place + count].iter().fold(true, |all, g| all & g.is_unreached());
                for at in (first..first + count).filter(|_| !is_none) {
                    let g = adjoints[Self::at(side, start, line, at)];
                    if by_rows { visit(g, line, at) } else { visit(g, at, line) }
                }
            }
        }
        for (at, &sum) in sums.iter().enumerate() {
            let (r, l) = (at / len, at % len);
            let sum = if is_reached[r].is_unreached() { E::UNREACHED } else { sum + zero };
            to[if by_rows { r * n + l } else { l * n + r }] = sum;
        }
    }

    /// The sums of terms without an unreached adjoint on either side.
    fn reached_terms(&self, [x, y]: [&[E]; 2], from: [usize; 2], to: &mut [E]) {
        let [_, k, n] = self.extents;
        for (at, to) in to.iter_mut().enumerate() {
            let mut total = E::UNREACHED;
            for i in 0..k {
                let (x, y) = (x[Self::at(&self.x, from[0], at / n, i)], y[Self::at(&self.y, from[1], i, at % n)]);
                if !(self.adjoint[0] && x.is_unreached() || self.adjoint[1] && y.is_unreached()) {
                    total = total + (x * y + <E as Real>::of(0.0));
                }
            }
            *to = total;
        }
    }

    /// Inner products of a vector with the rows of the other operand, or with its columns: whichever lie side by side.
    fn of_vector(&mut self, [x, y]: [&[E]; 2], [from_x, from_y]: [usize; 2], to: &mut [E]) {
        let [m, k, n] = self.extents;
        if k == 0 {
            return to.fill(<E as Real>::of(0.0));
        }
        if k == 1 {
            // One number times each of the others.
            let ((one, from), (others, start, step)) = if m == 1 {
                ((x, from_x), (y, from_y, self.y.steps[1]))
            } else {
                ((y, from_y), (x, from_x, self.x.steps[0]))
            };
            let others = strided(others, start, step, &mut self.workspace[..m * n]);
            return kernels::outer(&one[from..=from], others, to);
        }
        // The vector, and for the others: the numbers, where they start, the step from one to the next, the step inside.
        let (vector, others) = if m == 1 {
            ((x, from_x, self.x.steps[1]), (y, from_y, self.y.steps[1], self.y.steps[0]))
        } else {
            ((y, from_y, self.y.steps[0]), (x, from_x, self.x.steps[0], self.x.steps[1]))
        };
        let (packed, rest) = self.workspace.split_at_mut(k);
        let v = strided(vector.0, vector.1, vector.2, packed);
        let (numbers, start, next, inside) = others;
        if next == 1 && inside != 1 && m * n > 1 {
            for (block, to) in to.chunks_mut(COLUMNS).enumerate() {
                of_columns(v, numbers, start + block * COLUMNS, inside, rest, to);
            }
            return;
        }
        if inside == 1 && next == k as isize && k >= slices::SHORT {
            return kernels::dots(&numbers[start..], v, to);
        }
        let (packed, _) = rest.split_at_mut(k);
        for (r, to) in to.iter_mut().enumerate() {
            let row = strided(numbers, start.wrapping_add_signed(r as isize * next), inside, packed);
            // The order of the operands shows in no bit.
            *to = slices::dot(row, v);
        }
    }
}

/// As many numbers as there is room, copied unless they lie side by side.
fn strided<'a, E: ArrayFloat>(from: &'a [E], start: usize, step: isize, room: &'a mut [E]) -> &'a [E] {
    let n = room.len();
    if step == 1 {
        return &from[start..start + n];
    }
    copy_strided(from, start, step, room);
    room
}

fn copy_strided<E: ArrayFloat>(from: &[E], start: usize, step: isize, to: &mut [E]) {
    if step == 1 {
        return to.copy_from_slice(&from[start..start + to.len()]);
    }
    for (k, to) in to.iter_mut().enumerate() {
        *to = from[start.wrapping_add_signed(k as isize * step)];
    }
}

/// Inner products of `v` with columns of a matrix, of which row i begins at `start + i * inside`: those of `slices::dot`.
fn of_columns<E: ArrayFloat>(v: &[E], numbers: &[E], start: usize, inside: isize, room: &mut [E], to: &mut [E]) {
    let n = to.len();
    let row = |i: usize| &numbers[start.wrapping_add_signed(i as isize * inside)..][..n];
    if v.len() < slices::SHORT {
        for (c, to) in to.iter_mut().enumerate() {
            *to = (1..v.len()).fold(row(0)[c] * v[0], |total, i| total + row(i)[c] * v[i]);
        }
        return;
    }
    kernels::dots_of_columns(v, numbers, start, inside, room, to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_with_columns_have_the_bits_of_inner_products() {
        for k in [1, 3, 16, 31, 100] {
            for n in [1, 5, 43, 130] {
                let number = |i: usize| ((i * 7919 % 1009) as f64 - 500.0) / 37.0;
                let matrix: Vec<f64> = (0..k * n).map(number).collect();
                let v: Vec<f64> = (0..k).map(|i| number(i + 17)).collect();
                let dims = |extents: &[usize]| Dims::new(extents).unwrap();
                let place = |extents: &[usize]| Place::whole(super::super::place::Source::Input(0), 0, dims(extents));
                let (x, y) = (place(&[1, k]), place(&[k, n]));
                let mut to = vec![0.0; n];
                Product::new(Dot::default(), &x, &y).unwrap().run(&v, &matrix, &mut to);
                let mut by_rows = vec![0.0; n];
                let (x, y) = (place(&[n, k]), place(&[k, 1]));
                Product::new(Dot::default(), &x, &y).unwrap().run(&matrix, &v, &mut by_rows);
                for (row, to) in matrix.chunks(k).zip(by_rows) {
                    assert_eq!(to.to_bits(), slices::dot(row, &v).to_bits(), "k {k}, n {n}");
                }
                for (c, &to) in to.iter().enumerate() {
                    let column: Vec<_> = (0..k).map(|i| matrix[i * n + c]).collect();
                    assert_eq!(to.to_bits(), slices::dot(&column, &v).to_bits(), "k {k}, n {n}, column {c}");
                }
            }
        }
    }
}
