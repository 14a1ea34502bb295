//! Compressed sparse rows in lists of the caller, and their products with dense vectors.
//!
//! Promises: the same bits on every CPU. Columns of the caller's lists are checked in one pass over a block of rows, not at
//! each use: that saves a quarter of the instructions of a product.
#![allow(unsafe_code)]

use super::float::KernelFloat;
use super::levels::{Target, leveled};
use crate::simd::Real;

mod sealed {
    pub trait Sealed {}
    impl Sealed for i32 {}
    impl Sealed for i64 {}
}

/// A number of a column or of a place, as lists hold it. No other type can have it: kernels rely on its answer.
pub trait SparsePlace: Copy + sealed::Sealed {
    /// The number, or one that no list reaches where it is negative.
    fn at(self) -> usize;
}

impl SparsePlace for i32 {
    #[inline(always)]
    fn at(self) -> usize {
        self as u32 as usize
    }
}

impl SparsePlace for i64 {
    #[inline(always)]
    fn at(self) -> usize {
        self as usize
    }
}

leveled! {
    /// The inner products of `x` with rows of the caller's lists: row i has the numbers and columns from `starts[i]` to
    /// `starts[i + 1]`. Four running sums each. Nothing is written and the answer is false where a list is too short or a column
    /// is not one of x.
    pub fn sparse_dots<E>(numbers: &[E], columns: &[impl SparsePlace], starts: &[impl SparsePlace], x: &[E], to: &mut [E]) -> bool
        = sparse_dots_at;

    /// `to += the sum of a_i row i`, row by row; otherwise as [`sparse_dots`]. With `is_adjoint` no term is -0.0, the mark of
    /// "not reached".
    pub fn sparse_add<E>(
        numbers: &[E],
        columns: &[impl SparsePlace],
        starts: &[impl SparsePlace],
        a: &[E],
        is_adjoint: bool,
        to: &mut [E],
    ) -> bool = sparse_add_at;
}

/// Whether rows lie in these lists, one after the other, with columns below `d`.
#[inline(always)]
fn are_inside<E>(numbers: &[E], columns: &[impl SparsePlace], starts: &[impl SparsePlace], d: usize) -> bool {
    let n = numbers.len().min(columns.len());
    let [first, .., last] = starts else { return true };
    let are_ordered = starts.iter().zip(&starts[1..]).fold(last.at() <= n, |all, (a, b)| all & (a.at() <= b.at()));
    are_ordered && columns[first.at()..last.at()].iter().fold(true, |all, c| all & (c.at() < d))
}

#[inline(always)]
fn sparse_dots_at<E: KernelFloat, T: Target>(
    numbers: &[E],
    columns: &[impl SparsePlace],
    starts: &[impl SparsePlace],
    x: &[E],
    to: &mut [E],
) -> bool {
    let starts = &starts[..to.len() + 1];
    if !are_inside(numbers, columns, starts, x.len()) {
        return false;
    }
    for (i, to) in to.iter_mut().enumerate() {
        let row = starts[i].at()..starts[i + 1].at();
        // Each sum by its name: in an array they would be kept in memory.
        let zero = <E as Real>::of(0.0);
        let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
        // SAFETY: rows lie in both lists, and columns in x, as was checked above.
        unsafe {
            let (numbers, columns) = (numbers.get_unchecked(row.clone()), columns.get_unchecked(row));
            let ((fours, rest), (column_fours, column_rest)) = (numbers.as_chunks::<4>(), columns.as_chunks::<4>());
            for (v, k) in fours.iter().zip(column_fours) {
                a = a + v[0] * *x.get_unchecked(k[0].at());
                b = b + v[1] * *x.get_unchecked(k[1].at());
                c = c + v[2] * *x.get_unchecked(k[2].at());
                d = d + v[3] * *x.get_unchecked(k[3].at());
            }
            if let ([v, ..], [k, ..]) = (rest, column_rest) {
                a = a + *v * *x.get_unchecked(k.at());
            }
            if let ([_, v, ..], [_, k, ..]) = (rest, column_rest) {
                b = b + *v * *x.get_unchecked(k.at());
            }
            if let ([_, _, v], [_, _, k]) = (rest, column_rest) {
                c = c + *v * *x.get_unchecked(k.at());
            }
        }
        *to = (a + b) + (c + d);
    }
    true
}

#[inline(always)]
fn sparse_add_at<E: KernelFloat, T: Target>(
    numbers: &[E],
    columns: &[impl SparsePlace],
    starts: &[impl SparsePlace],
    a: &[E],
    is_adjoint: bool,
    to: &mut [E],
) -> bool {
    let starts = &starts[..a.len() + 1];
    if !are_inside(numbers, columns, starts, to.len()) {
        return false;
    }
    for (i, &a) in a.iter().enumerate() {
        for at in starts[i].at()..starts[i + 1].at() {
            // SAFETY: as above, of `to`.
            unsafe {
                let to = to.get_unchecked_mut(columns.get_unchecked(at).at());
                let term = *numbers.get_unchecked(at) * a;
                *to = *to + if is_adjoint { term + <E as Real>::of(0.0) } else { term };
            }
        }
    }
    true
}
