//! LU factorisation with partial pivoting.

use super::super::float::KernelFloat;
use super::super::levels::{Target, leveled};
use super::super::product::{Finish, Matrix, MatrixMut, Start, product};
use super::{BLOCK, add_multiple, block_work, two_rows};
use crate::sync::stop::Pace;

/// Overwrites the matrix `a` of `n` rows by its factors: `L` below the diagonal (1 on it), `U` on and above it. Row `i`
/// of `L U` is row `permutation[i]` of the matrix. Returns the sign of the permutation.
///
/// Simply: for each column, swap rows so that the largest number comes first, then subtract multiples of that row from
/// those below. Departure: [`BLOCK`] columns at once, whose update of the others is one matrix product. Each number is
/// the same chain of multiply-adds either way.
pub fn lu<E: KernelFloat>(n: usize, a: &mut [E], permutation: &mut [i64], workspace: &mut [E]) -> E {
    for (i, row) in permutation.iter_mut().enumerate() {
        *row = i as i64;
    }
    let (mut sign, mut pace) = (E::of(1.0), Pace::new());
    for first in (0..n).step_by(BLOCK) {
        let end = (first + BLOCK).min(n);
        if !pace.goes_on(block_work(n - first)) {
            break;
        }
        sign = columns_of_lu(n, a, first, end, permutation, sign);
        let (rows, others) = (n - end, n - end);
        if rows == 0 {
            break;
        }
        let (above, below) = a.split_at_mut(end * n);
        let (negative, workspace) = workspace.split_at_mut(rows * (end - first));
        for (row, to) in below.chunks_exact(n).zip(negative.chunks_exact_mut(end - first)) {
            to.iter_mut().zip(&row[first..end]).for_each(|(to, &x)| *to = -x);
        }
        let l = Matrix::by_rows(negative, rows, end - first);
        let u = Matrix::strided(above, first * n + end, end - first, others, n as isize, 1);
        let rest = MatrixMut::strided(below, end, rows, others, n as isize, 1);
        product(Start::Output, l, u, rest, Finish::AsIs, workspace);
    }
    sign
}

leveled! {
    /// Columns `first..end` of an LU factorisation after the earlier columns, and those rows of the others.
    pub fn columns_of_lu<E>(
        n: usize,
        a: &mut [E],
        first: usize,
        end: usize,
        permutation: &mut [i64],
        sign: E,
    ) -> E = columns_at;
}

#[inline(always)]
fn columns_at<E: KernelFloat, T: Target>(
    n: usize,
    a: &mut [E],
    first: usize,
    end: usize,
    permutation: &mut [i64],
    mut sign: E,
) -> E {
    let zero = E::default();
    for k in first..end {
        let mut pivot = k;
        for i in k + 1..n {
            if a[i * n + k].abs() > a[pivot * n + k].abs() {
                pivot = i;
            }
        }
        if pivot != k {
            let (above, below) = a.split_at_mut(pivot * n);
            above[k * n..(k + 1) * n].swap_with_slice(&mut below[..n]);
            permutation.swap(k, pivot);
            sign = -sign;
        }
        // All numbers below are 0 too, so there is nothing to eliminate.
        if a[k * n + k] == zero {
            continue;
        }
        for i in k + 1..n {
            let (top, row) = two_rows(a, n, k, i);
            row[k] = row[k] / top[k];
            let factor = -row[k];
            add_multiple::<E, T>(factor, &top[k + 1..end], &mut row[k + 1..end]);
        }
    }
    for k in first..end {
        for i in k + 1..end {
            let (top, row) = two_rows(a, n, k, i);
            let factor = -row[k];
            add_multiple::<E, T>(factor, &top[end..], &mut row[end..]);
        }
    }
    sign
}
