//! Cholesky factorisation.

use super::super::float::KernelFloat;
use super::super::levels::{Target, leveled};
use super::super::product::{Finish, Matrix, MatrixMut, Start, product};
use super::{BLOCK, add_multiple, block_work};
use crate::sync::stop::Pace;

/// Overwrites the lower triangle of the symmetric matrix `a` of `n` rows by `L` with `L Lᵀ = a`, and the rest by 0.
/// Only the lower triangle is read. Returns whether the matrix is positive definite; otherwise `L` has NaNs or
/// infinities.
///
/// Simply: for each column, take the root of the diagonal, divide the rest by it, and subtract its products from the
/// following columns. Departure: [`BLOCK`] columns at once, whose updates of the others are matrix products.
pub fn cholesky<E: KernelFloat>(n: usize, a: &mut [E], workspace: &mut [E]) -> bool {
    let (mut is_definite, mut pace) = (true, Pace::new());
    for first in (0..n).step_by(BLOCK) {
        let end = (first + BLOCK).min(n);
        if !pace.goes_on(block_work(n - first)) {
            break;
        }
        is_definite &= columns_of_cholesky(n, a, first, end, workspace);
        let (rows, width) = (n - end, end - first);
        let (positive, rest) = workspace.split_at_mut(rows * width);
        let (negative, rest) = rest.split_at_mut(rows * width);
        for i in 0..rows {
            let row = &a[(end + i) * n + first..][..width];
            positive[i * width..(i + 1) * width].copy_from_slice(row);
            negative[i * width..(i + 1) * width].iter_mut().zip(row).for_each(|(to, &x)| *to = -x);
        }
        // Only the blocks up to the diagonal.
        for top in (0..rows).step_by(BLOCK) {
            let bottom = (top + BLOCK).min(rows);
            let l = Matrix::strided(negative, top * width, bottom - top, width, width as isize, 1);
            let r = Matrix::strided(positive, 0, width, bottom, 1, width as isize);
            let to = MatrixMut::strided(a, (end + top) * n + end, bottom - top, bottom, n as isize, 1);
            product(Start::Output, l, r, to, Finish::AsIs, rest);
        }
    }
    for i in 0..n {
        a[i * n + i + 1..(i + 1) * n].fill(E::default());
    }
    is_definite
}

leveled! {
    /// Columns `first..end` of a Cholesky factorisation, once all columns before them are subtracted.
    pub fn columns_of_cholesky<E>(n: usize, a: &mut [E], first: usize, end: usize, column: &mut [E]) -> bool = columns_at;
}

#[inline(always)]
fn columns_at<E: KernelFloat, T: Target>(n: usize, a: &mut [E], first: usize, end: usize, column: &mut [E]) -> bool {
    let zero = E::default();
    let mut is_definite = true;
    for k in first..end {
        is_definite &= a[k * n + k] > zero;
        let root = a[k * n + k].sqrt();
        a[k * n + k] = root;
        for i in k + 1..n {
            a[i * n + k] = a[i * n + k] / root;
            column[i - k - 1] = a[i * n + k];
        }
        for i in k + 1..n {
            let last = end.min(i + 1);
            let factor = -column[i - k - 1];
            add_multiple::<E, T>(factor, &column[..last - k - 1], &mut a[i * n + k + 1..i * n + last]);
        }
    }
    is_definite
}
