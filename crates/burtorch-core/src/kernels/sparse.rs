//! Compressed sparse rows in lists of the caller, and their products with dense vectors.
//!
//! The simple algorithm: for each row, multiply its numbers by those of a vector and add; or multiply them by one number and add the
//! products at their columns. Departures: four terms at a time and columns two by two, because a CPU has three loads per cycle (28 %
//! less time). Promises: the same bits on every CPU. Columns of the caller's lists are checked in one pass over a block of rows, not
//! at each use: that saves a quarter of the instructions of a product.
#![allow(unsafe_code)]

use super::float::{KernelFloat, Pack};
use super::levels::{Target, leveled};
use crate::simd::Real;

mod sealed {
    pub trait Sealed {}
    impl Sealed for i32 {}
    impl Sealed for i64 {}
}

/// A number of a column or of a place, as lists hold it. No other type can have it: kernels rely on its answer.
pub trait SparsePlace: Copy + sealed::Sealed {
    /// The index; a negative number becomes an index beyond the end of every list.
    fn at(self) -> usize;

    /// Two consecutive indices.
    ///
    /// # Safety
    /// `at + 2 <= of.len()`.
    #[inline(always)]
    unsafe fn two(of: &[Self], at: usize) -> [usize; 2] {
        debug_assert!(at + 2 <= of.len());
        // SAFETY: as the caller promises.
        unsafe { [of.get_unchecked(at).at(), of.get_unchecked(at + 1).at()] }
    }
}

impl SparsePlace for i32 {
    #[inline(always)]
    fn at(self) -> usize {
        self as u32 as usize
    }

    /// A single load: the time of products with sparse rows is that of their loads.
    #[cfg(all(target_pointer_width = "64", target_endian = "little"))]
    #[inline(always)]
    unsafe fn two(of: &[Self], at: usize) -> [usize; 2] {
        debug_assert!(at + 2 <= of.len());
        // SAFETY: as the caller promises.
        let both = unsafe { of.as_ptr().add(at).cast::<u64>().read_unaligned() };
        [both as u32 as usize, (both >> 32) as usize]
    }
}

impl SparsePlace for i64 {
    #[inline(always)]
    fn at(self) -> usize {
        self as usize
    }
}

/// Rows in the caller's lists, whose columns index a vector of `d` numbers: row i has the numbers and columns from
/// `starts[i]` to `starts[i + 1]`.
#[derive(Clone, Copy, Debug)]
pub struct CheckedRows<'a, E, I> {
    numbers: &'a [E],
    columns: &'a [I],
    starts: &'a [I],
    d: usize,
}

impl<'a, E: KernelFloat, I: SparsePlace> CheckedRows<'a, E, I> {
    /// `None` if a list is too short, or a column is not below `d`.
    pub fn new(numbers: &'a [E], columns: &'a [I], starts: &'a [I], d: usize) -> Option<Self> {
        are_inside::<E>(numbers, columns, starts, d).then_some(CheckedRows { numbers, columns, starts, d })
    }

    /// The start and the end of row i.
    #[inline(always)]
    fn row(&self, i: usize) -> (usize, usize) {
        (self.starts[i].at(), self.starts[i + 1].at())
    }
}

leveled! {
    /// Whether rows are inside these lists, in order, with columns below `d`.
    pub fn are_inside<E>(numbers: &[E], columns: &[impl SparsePlace], starts: &[impl SparsePlace], d: usize) -> bool = are_inside_at;

    /// `to[i]` = the inner product of x with row i, in four running sums.
    pub fn sparse_dots<E>(rows: &CheckedRows<'_, E, impl SparsePlace>, x: &[E], to: &mut [E]) = sparse_dots_at;

    /// `to += the sum of a_i row i`, row by row. With `is_adjoint` no term is -0.0, the mark of "not reached".
    pub fn sparse_add<E>(rows: &CheckedRows<'_, E, impl SparsePlace>, a: &[E], is_adjoint: bool, to: &mut [E]) = sparse_add_at;
}

#[inline(always)]
fn are_inside_at<E: KernelFloat, T: Target>(
    numbers: &[E],
    columns: &[impl SparsePlace],
    starts: &[impl SparsePlace],
    d: usize,
) -> bool {
    let n = numbers.len().min(columns.len());
    let [first, .., last] = starts else { return true };
    let are_ordered = starts.iter().zip(&starts[1..]).fold(last.at() <= n, |all, (a, b)| all & (a.at() <= b.at()));
    are_ordered && columns[first.at()..last.at()].iter().fold(true, |all, c| all & (c.at() < d))
}

#[inline(always)]
fn sparse_dots_at<E: KernelFloat, T: Target>(rows: &CheckedRows<'_, E, impl SparsePlace>, x: &[E], to: &mut [E]) {
    assert!(rows.d <= x.len() && to.len() < rows.starts.len().max(1), "kernel operands differ in length");
    for (i, to) in to.iter_mut().enumerate() {
        let (start, end) = rows.row(i);
        // SAFETY: the constructor has checked that rows lie in both lists, and columns in x.
        *to = unsafe { product(rows.numbers, rows.columns, start, end, x) };
    }
}

/// The inner product of x with the row from `start` to `end`.
///
/// # Safety
/// Both lists reach to `end`, and the columns of the row are below the length of x.
#[inline(always)]
unsafe fn product<E: KernelFloat, I: SparsePlace>(
    numbers: &[E],
    columns: &[I],
    start: usize,
    end: usize,
    x: &[E],
) -> E {
    let zero = E::default();
    let mut sums = E::V::<4>::splat(zero);
    let mut at = start;
    // SAFETY: places are below `end`, and columns in x.
    unsafe {
        let number = |k: usize| *x.get_unchecked(k);
        while at + 4 <= end {
            let columns = four(columns, at).map(number);
            sums = sums + E::V::<4>::read(numbers, at) * E::V::<4>::load(&columns);
            at += 4;
        }
        let one = |at: usize| *numbers.get_unchecked(at) * number(columns.get_unchecked(at).at());
        // No sum is ever -0.0, so adding 0 is harmless.
        let last = match end - at {
            0 => return sum_of(sums),
            1 => [one(at), zero, zero, zero],
            2 => {
                let terms = E::V::<2>::read(numbers, at) * E::V::<2>::load(&I::two(columns, at).map(number));
                [terms.lane(0), terms.lane(1), zero, zero]
            }
            _ => [one(at), one(at + 1), one(at + 2), zero],
        };
        sum_of(sums + E::V::<4>::load(&last))
    }
}

/// The sum of four.
#[inline(always)]
fn sum_of<V: Real>(sums: V) -> V::Elem {
    (sums.lane(0) + sums.lane(1)) + (sums.lane(2) + sums.lane(3))
}

#[inline(always)]
fn sparse_add_at<E: KernelFloat, T: Target>(
    rows: &CheckedRows<'_, E, impl SparsePlace>,
    a: &[E],
    is_adjoint: bool,
    to: &mut [E],
) {
    assert!(rows.d <= to.len() && a.len() < rows.starts.len().max(1), "kernel operands differ in length");
    for (i, &a) in a.iter().enumerate() {
        let (start, end) = rows.row(i);
        // SAFETY: as above, for `to`.
        unsafe {
            if is_adjoint {
                add_row::<_, _, true>(rows.numbers, rows.columns, start, end, a, to);
            } else {
                add_row::<_, _, false>(rows.numbers, rows.columns, start, end, a, to);
            }
        }
    }
}

/// `to += a row` for the row from `start` to `end`.
///
/// # Safety
/// As for [`product`], with `to` instead of x.
#[inline(always)]
unsafe fn add_row<E: KernelFloat, I: SparsePlace, const IS_ADJOINT: bool>(
    numbers: &[E],
    columns: &[I],
    start: usize,
    end: usize,
    a: E,
    to: &mut [E],
) {
    let mut at = start;
    // SAFETY: places are below `end`, and columns in `to`.
    unsafe {
        let mut add = |k: usize, term: E| {
            let to = to.get_unchecked_mut(k);
            *to = *to + term;
        };
        while at + 4 <= end {
            let terms = terms::<E::V<4>, IS_ADJOINT>(numbers, at, a);
            four(columns, at).into_iter().enumerate().for_each(|(i, k)| add(k, terms.lane(i)));
            at += 4;
        }
        if at + 2 <= end {
            let terms = terms::<E::V<2>, IS_ADJOINT>(numbers, at, a);
            I::two(columns, at).into_iter().enumerate().for_each(|(i, k)| add(k, terms.lane(i)));
            at += 2;
        }
        if at < end {
            add(columns.get_unchecked(at).at(), terms::<E::V<1>, IS_ADJOINT>(numbers, at, a).lane(0));
        }
    }
}

/// Four consecutive columns.
///
/// # Safety
/// `at + 4 <= columns.len()`.
#[inline(always)]
unsafe fn four<I: SparsePlace>(columns: &[I], at: usize) -> [usize; 4] {
    // SAFETY: as the caller promises.
    let ([a, b], [c, d]) = unsafe { (I::two(columns, at), I::two(columns, at + 2)) };
    [a, b, c, d]
}

/// A vector of numbers from `at` on, times a; with `IS_ADJOINT` never -0.0.
///
/// # Safety
/// The numbers exist.
#[inline(always)]
unsafe fn terms<V: Pack, const IS_ADJOINT: bool>(numbers: &[V::Elem], at: usize, a: V::Elem) -> V {
    // SAFETY: as the caller promises.
    let terms = unsafe { V::read(numbers, at) } * V::splat(a);
    if IS_ADJOINT { terms + V::of(0.0) } else { terms }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: usize = 19;

    /// Rows of 0 to 9 numbers, with repeated columns in any order.
    fn rows<I: TryFrom<usize>>() -> (Vec<f64>, Vec<I>, Vec<I>) {
        let place = |k: usize| I::try_from(k).ok().unwrap();
        let (mut numbers, mut columns, mut starts) = (Vec::new(), Vec::new(), vec![place(0)]);
        for row in 0..40 {
            for k in 0..row % 10 {
                numbers.push([1.5, -0.0, 0.25, -7.0, 1e300][(row + 3 * k) % 5]);
                columns.push(place((row * 7 + k * k) % D));
            }
            starts.push(place(numbers.len()));
        }
        (numbers, columns, starts)
    }

    fn check<I: SparsePlace + TryFrom<usize>>() {
        let (numbers, columns, starts) = rows::<I>();
        let rows = CheckedRows::new(&numbers, &columns, &starts, D).unwrap();
        let row = |i: usize| starts[i].at()..starts[i + 1].at();
        let x: Vec<f64> = (0..D).map(|k| [0.1, -3.0, -0.0, 1e9][k % 4] + k as f64).collect();
        let mut found = vec![0.0; 40];
        sparse_dots(&rows, &x, &mut found);
        for (i, found) in found.iter().enumerate() {
            let mut sums = [0.0; 4];
            row(i).enumerate().for_each(|(k, at)| sums[k % 4] += numbers[at] * x[columns[at].at()]);
            let expected: f64 = (sums[0] + sums[1]) + (sums[2] + sums[3]);
            assert_eq!(found.to_bits(), expected.to_bits(), "row {i}");
        }
        for is_adjoint in [false, true] {
            let a: Vec<f64> = (0..40).map(|i| [2.0, -0.5, 0.0, 3e5][i % 4]).collect();
            let start = if is_adjoint { -0.0 } else { 0.0 };
            let (mut found, mut expected) = ([start; D], [start; D]);
            sparse_add(&rows, &a, is_adjoint, &mut found);
            for (i, a) in a.iter().enumerate() {
                for at in row(i) {
                    let term = numbers[at] * a;
                    expected[columns[at].at()] += if is_adjoint { term + 0.0 } else { term };
                }
            }
            assert_eq!(found.map(f64::to_bits), expected.map(f64::to_bits), "{is_adjoint}");
        }
    }

    #[test]
    fn products_have_the_bits_of_plain_loops() {
        check::<i32>();
        check::<i64>();
    }

    #[test]
    fn wrong_rows_are_refused() {
        let (numbers, columns, starts) = ([1.0, 2.0], [0, 2], [0, 1, 2]);
        assert!(CheckedRows::new(&numbers, &columns, &starts, 3).is_some());
        assert!(CheckedRows::new(&numbers, &columns, &starts, 2).is_none(), "a column that is not there");
        assert!(CheckedRows::new(&numbers, &[0, -1], &starts, 3).is_none(), "a negative column");
        assert!(CheckedRows::new(&numbers, &columns[..1], &starts, 3).is_none(), "too few columns");
        assert!(CheckedRows::new(&numbers, &columns, &[0, 2, 1], 3).is_none(), "starts in no order");
        assert!(CheckedRows::new(&numbers, &columns, &[-1, 1, 2], 3).is_none(), "a negative start");
    }
}
