//! Triangular systems with one or many right sides.

use super::super::float::KernelFloat;
use super::super::levels::{Target, leveled};
use super::super::product::{Finish, Matrix, MatrixMut, Start, product};
use super::{BLOCK, add_multiple, block_work, mul_add, two_rows};
use crate::sync::stop::Pace;

/// Which triangle of a matrix is meant, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Triangle {
    /// The upper one.
    pub upper: bool,
    /// Its transpose.
    pub transposed: bool,
    /// A unit diagonal: the stored diagonal is ignored.
    pub unit: bool,
}

impl Triangle {
    /// Whether the system is solved by forward substitution.
    fn is_forward(self) -> bool {
        self.upper == self.transposed
    }
}

/// Overwrites `x`, `n` rows of `m` numbers, by the solution of `T X = x`, with `T` a triangle of the matrix `a` of `n`
/// rows. Numbers outside the triangle are not read.
///
/// Simply: for each row, divide by the diagonal and subtract multiples from the following rows. Departure: [`BLOCK`]
/// rows at once, whose update of the others is one matrix product.
pub fn solve_triangular<E: KernelFloat>(
    triangle: Triangle,
    n: usize,
    m: usize,
    a: &[E],
    x: &mut [E],
    workspace: &mut [E],
) {
    if m == 0 {
        return;
    }
    let is_forward = triangle.is_forward();
    let (blocks, mut pace) = (n.div_ceil(BLOCK), Pace::new());
    for block in 0..blocks {
        if !pace.goes_on(block_work(m.max(n))) {
            break;
        }
        let block = if is_forward { block } else { blocks - 1 - block };
        let (first, end) = (block * BLOCK, (block * BLOCK + BLOCK).min(n));
        rows_of_solution(triangle, n, m, a, x, first, end);
        let rest = if is_forward { end..n } else { 0..first };
        let (rows, width) = (rest.len(), end - first);
        if rows == 0 {
            continue;
        }
        let (negative, workspace) = workspace.split_at_mut(rows * width);
        for (i, to) in rest.clone().zip(negative.chunks_exact_mut(width)) {
            for (k, to) in (first..end).zip(to) {
                *to = -a[if triangle.transposed { k * n + i } else { i * n + k }];
            }
        }
        let (above, below) = x.split_at_mut(if is_forward { end * m } else { first * m });
        let (solved, others) = if is_forward { (&above[first * m..], below) } else { (&below[..width * m], above) };
        let factors = Matrix::by_rows(negative, rows, width);
        let solved = Matrix::by_rows(solved, width, m);
        product(Start::Output, factors, solved, MatrixMut::by_rows(others, rows, m), Finish::AsIs, workspace);
    }
}

leveled! {
    /// Rows `first..end` of the solution, once all rows before them are subtracted.
    pub fn rows_of_solution<E>(
        triangle: Triangle,
        n: usize,
        m: usize,
        a: &[E],
        x: &mut [E],
        first: usize,
        end: usize,
    ) = rows_at;
}

#[inline(always)]
fn rows_at<E: KernelFloat, T: Target>(
    triangle: Triangle,
    n: usize,
    m: usize,
    a: &[E],
    x: &mut [E],
    first: usize,
    end: usize,
) {
    let is_forward = triangle.is_forward();
    for step in 0..end - first {
        let k = if is_forward { first + step } else { end - 1 - step };
        if !triangle.unit {
            let diagonal = a[k * n + k];
            x[k * m..(k + 1) * m].iter_mut().for_each(|x| *x = *x / diagonal);
        }
        let rest = if is_forward { k + 1..end } else { first..k };
        let (row, column) = if triangle.transposed { (1, n) } else { (n, 1) };
        if m == 1 {
            let solved = x[k];
            for i in rest {
                x[i] = mul_add::<E, T>(-a[i * row + k * column], solved, x[i]);
            }
        } else {
            for i in rest {
                let (solved, x) = two_rows(x, m, k, i);
                add_multiple::<E, T>(-a[i * row + k * column], solved, x);
            }
        }
    }
}
