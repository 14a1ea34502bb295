//! Listed rows of a compressed sparse matrix, and their products with dense vectors.
//!
//! Promises: the same bits on every level with fused multiply-add: place `i` of a row belongs to sum `i % 8`, and the eight are
//! added as one fixed tree. Columns are checked once, when rows are made, and not at each use: that saves a quarter of the
//! instructions of a product.

use super::float::{KernelFloat, Pack, line, prefetch};
use super::levels::{Target, leveled};
use crate::simd::{Real, array_of};

/// Row i has `values[starts[i]..starts[i + 1]]` in the columns of the same places, all of which are below d.
#[derive(Clone, Debug)]
pub struct SparseRows<E> {
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<E>,
    d: usize,
}

leveled! {
    /// `to[k]` = the inner product of `x` with row `list[k]` of `rows`. Rows listed beyond the length of `to` are
    /// prefetched, because they come next.
    pub fn dots_of_sparse_rows<E>(rows: &SparseRows<E>, list: &[u32], x: &[E], to: &mut [E]) = dots_at;

    /// [`dots_of_sparse_rows`] of two points: rows are read once.
    pub fn dots_of_sparse_rows_at_two<E>(rows: &SparseRows<E>, list: &[u32], x: &[E], y: &[E], to: &mut [E], to_y: &mut [E])
        = dots_at_two_at;

    /// `y += a[k] *` row `list[k]` of `rows`, in order.
    pub fn add_sparse_rows<E>(rows: &SparseRows<E>, list: &[u32], a: &[E], y: &mut [E]) = add_at;
}

/// How many rows ahead to prefetch: reading a row at a random address takes as long as ten products.
const AHEAD: usize = 8;

impl<E> SparseRows<E> {
    /// `None` unless starts ascend to the number of values, there are as many columns, and all columns are below `d`.
    pub fn new(starts: Vec<usize>, columns: Vec<u32>, values: Vec<E>, d: usize) -> Option<Self> {
        let ends = starts.is_sorted() && starts.last() == Some(&values.len());
        let is_right = ends && columns.len() == values.len() && columns.iter().all(|&c| (c as usize) < d);
        is_right.then_some(SparseRows { starts, columns, values, d })
    }

    /// Starts, columns and values.
    pub fn parts(&self) -> (&[usize], &[u32], &[E]) {
        (&self.starts, &self.columns, &self.values)
    }

    /// Columns and values of row `i`.
    #[inline(always)]
    pub fn row(&self, i: usize) -> (&[u32], &[E]) {
        let at = self.starts[i]..self.starts[i + 1];
        (&self.columns[at.clone()], &self.values[at])
    }

    /// Prefetches the data of the next row, and of a later one.
    #[inline(always)]
    fn ask(&self, list: &[u32], k: usize) {
        if let Some(&later) = list.get(k + 2 * AHEAD) {
            prefetch(&self.starts, later as usize);
        }
        if let Some(&soon) = list.get(k + AHEAD) {
            self.ask_for_row(soon);
        }
    }

    #[inline(always)]
    fn ask_for_row(&self, i: u32) {
        let start = self.starts[i as usize];
        // Enough for most rows; the hardware prefetcher continues.
        (0..2).for_each(|part| prefetch(&self.columns, start + part * line::<u32>()));
        (0..3).for_each(|part| prefetch(&self.values, start + part * line::<E>()));
    }

    /// Prefetches the first of these rows, which are read after other work.
    pub fn ask_for_next(&self, list: &[u32]) {
        list.iter().take(AHEAD).for_each(|&i| self.ask_for_row(i));
    }
}

#[inline(always)]
fn products<E: KernelFloat, T: Target, const P: usize>(
    rows: &SparseRows<E>,
    list: &[u32],
    points: [&[E]; P],
    n: usize,
    mut put: impl FnMut(usize, [E; P]),
) {
    assert!(points.iter().all(|x| x.len() >= rows.d), "kernel operands differ in length");
    for (k, &i) in list[..n].iter().enumerate() {
        rows.ask(list, k);
        let (columns, values) = rows.row(i as usize);
        // SAFETY: columns are below d, as `new` has checked, and points have at least d numbers.
        put(k, unsafe { product::<E, T, P>(columns, values, points) });
    }
}

/// # Safety
/// Columns are below the length of every point.
#[inline(always)]
unsafe fn product<E: KernelFloat, T: Target, const P: usize>(
    columns: &[u32],
    values: &[E],
    points: [&[E]; P],
) -> [E; P] {
    let mut sums = [E::V::<8>::splat(E::default()); P];
    for (columns, values) in columns.chunks(8).zip(values.chunks(8)) {
        let v = E::V::<8>::read_or(values, E::default());
        for p in 0..P {
            let numbers = if T::GATHERS {
                // SAFETY: as the caller promises.
                unsafe { E::V::<8>::gather(points[p], columns) }
            } else {
                let mut numbers = [E::default(); 8];
                // SAFETY: as the caller promises.
                let at = |&c: &u32| unsafe { *points[p].get_unchecked(c as usize) };
                numbers.iter_mut().zip(columns).for_each(|(to, c)| *to = at(c));
                // SAFETY: `numbers` has eight elements.
                unsafe { E::V::<8>::read(&numbers, 0) }
            };
            sums[p] = T::mul_add(v, numbers, sums[p]);
        }
    }
    // Turns a sum of -0.0 into +0.0.
    array_of(|k| sums[k].tree_sum() + E::default())
}

#[inline(always)]
fn dots_at<E: KernelFloat, T: Target>(rows: &SparseRows<E>, list: &[u32], x: &[E], to: &mut [E]) {
    products::<E, T, 1>(rows, list, [x], to.len(), |k, [product]| to[k] = product);
}

#[inline(always)]
fn dots_at_two_at<E: KernelFloat, T: Target>(
    rows: &SparseRows<E>,
    list: &[u32],
    x: &[E],
    y: &[E],
    to: &mut [E],
    to_y: &mut [E],
) {
    products::<E, T, 2>(rows, list, [x, y], to.len(), |k, [product, other]| (to[k], to_y[k]) = (product, other));
}

#[inline(always)]
fn add_at<E: KernelFloat, T: Target>(rows: &SparseRows<E>, list: &[u32], a: &[E], y: &mut [E]) {
    assert!(y.len() >= rows.d && list.len() == a.len(), "kernel operands differ in length");
    for (&i, &a) in list.iter().zip(a) {
        let a = E::V::<1>::splat(a);
        let mut one = |c: u32, v: E| {
            // SAFETY: columns are below d, as `new` has checked, and y has at least d numbers.
            let to = unsafe { y.get_unchecked_mut(c as usize) };
            *to = T::mul_add(a, E::V::splat(v), E::V::splat(*to)).lane(0);
        };
        let (columns, values) = rows.row(i as usize);
        let ((pairs, last), (value_pairs, last_value)) = (columns.as_chunks::<2>(), values.as_chunks::<2>());
        for (c, v) in pairs.iter().zip(value_pairs) {
            one(c[0], v[0]);
            one(c[1], v[1]);
        }
        last.iter().zip(last_value).for_each(|(&c, &v)| one(c, v));
    }
}
