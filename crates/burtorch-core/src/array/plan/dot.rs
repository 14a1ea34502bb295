//! Products of matrices in any strides.
//!
//! Promises: a product with a vector on either side is one inner product in the order of `inner_product` for each result; a
//! product of two matrices is one chain of fused multiply-adds over k for each result, in order. Terms with an unreached
//! adjoint are left out. Knows nothing of plans.

use super::super::instr::Dot;
use super::math::ArrayFloat;
use super::memory::room;
use super::place::{Place, Walk};
use crate::error::Result;
use crate::kernels::{self, slices};
use crate::simd::Real;

/// A product that is ready to run.
#[derive(Debug)]
pub(super) struct Product<E> {
    /// Rows of the first operand, and columns of the second, as rows.
    x: Walk,
    y: Walk,
    extents: [usize; 3],
    batch: usize,
    adjoint: [bool; 2],
    by_rows: bool,
    packed: [Vec<E>; 2],
}

impl<E: ArrayFloat> Product<E> {
    /// Of operands in these places.
    pub(super) fn new(dot: Dot, x: &Place, y: &Place) -> Result<Self> {
        let (batch, [m, k, n]) = dot.extents(&x.dims, &y.dims)?;
        // With a vector, results are inner products: columns of the second operand are read as rows.
        let by_rows = m != 1 && n != 1;
        let walk = |place: &Place, flipped: bool| {
            let mut place = *place;
            if flipped {
                let rank = place.dims.rank();
                let (rows, columns) = (place.dims[rank - 2], place.dims[rank - 1]);
                place.dims = place.dims.with(rank - 2, columns)?.with(rank - 1, rows)?;
                place.strides.swap(rank - 2, rank - 1);
            }
            Ok(Walk::new(&place))
        };
        let (x, y) = (walk(x, dot.transposed[0])?, walk(y, dot.transposed[1] == by_rows)?);
        let packed = [room(m * k, E::default())?, room(k * n, E::default())?];
        Ok(Product { x, y, extents: [m, k, n], batch: batch.size(), adjoint: dot.adjoint, by_rows, packed })
    }

    /// Computes it.
    pub(super) fn run(&mut self, x: &[E], y: &[E], to: &mut [E]) {
        let [m, k, n] = self.extents;
        for at in 0..self.batch {
            let [packed_x, packed_y] = &mut self.packed;
            let x = side_by_side(&self.x, x, at * m * k, m * k, packed_x);
            let y = side_by_side(&self.y, y, at * k * n, k * n, packed_y);
            let to = &mut to[at * m * n..(at + 1) * m * n];
            let is_partial = |of: &[E], is_adjoint: bool| is_adjoint && of.iter().any(|x| x.is_unreached());
            if k == 0 && self.adjoint != [false; 2] {
                to.fill(E::UNREACHED);
                continue;
            }
            if is_partial(x, self.adjoint[0]) || is_partial(y, self.adjoint[1]) {
                reached_terms(self.extents, x, y, self.adjoint, self.by_rows, to);
            } else if self.by_rows {
                of_matrices(self.extents, x, y, to);
            } else if k == 0 {
                to.fill(<E as Real>::of(0.0));
            } else {
                for (r, x) in x.chunks_exact(k).enumerate() {
                    for (c, y) in y.chunks_exact(k).enumerate() {
                        to[r * n + c] = slices::dot(x, y);
                    }
                }
            }
            if self.adjoint != [false; 2] && !(is_partial(x, self.adjoint[0]) || is_partial(y, self.adjoint[1])) {
                to.iter_mut().for_each(|c| *c = *c + <E as Real>::of(0.0));
            }
        }
    }
}

/// Numbers `start..start + n`, copied only if they do not lie side by side.
fn side_by_side<'a, E: ArrayFloat>(walk: &Walk, from: &'a [E], start: usize, n: usize, packed: &'a mut [E]) -> &'a [E] {
    match walk.contiguous_run(start, n) {
        Some(at) => &from[at..at + n],
        None => {
            walk.gather(from, start, packed);
            packed
        }
    }
}

/// The product of `m x k` and `k x n`.
fn of_matrices<E: ArrayFloat>([_, k, n]: [usize; 3], x: &[E], y: &[E], to: &mut [E]) {
    to.fill(<E as Real>::of(0.0));
    if k == 0 || n == 0 {
        return;
    }
    for (x, to) in x.chunks_exact(k).zip(to.chunks_exact_mut(n)) {
        for (&x, y) in x.iter().zip(y.chunks_exact(n)) {
            kernels::axpy(x, y, to);
        }
    }
}

/// The same of terms without an unreached adjoint; a result without terms is unreached.
fn reached_terms<E: ArrayFloat>(
    [m, k, n]: [usize; 3],
    x: &[E],
    y: &[E],
    adjoint: [bool; 2],
    by_rows: bool,
    to: &mut [E],
) {
    for r in 0..m {
        for c in 0..n {
            let mut total = E::UNREACHED;
            for i in 0..k {
                let (x, y) = (x[r * k + i], y[if by_rows { i * n + c } else { c * k + i }]);
                if !(adjoint[0] && x.is_unreached() || adjoint[1] && y.is_unreached()) {
                    total = total + (x * y + <E as Real>::of(0.0));
                }
            }
            to[r * n + c] = total;
        }
    }
}
