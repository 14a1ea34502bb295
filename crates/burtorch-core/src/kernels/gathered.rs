//! Products with listed rows of a table, and sums of such rows: batches of samples.
//!
//! Promises: a product has the bits of [`dot`](super::dot), a sum those of [`axpy`](super::axpy) row after row. Rows at random
//! places are prefetched: otherwise most of the time is waiting for memory.
//! Does not know samples or losses.

use super::float::{KernelFloat, Pack, line, prefetch_far};
use super::levels::{Target, columns, leveled};
use super::reduce::{Ahead, dot_rows};
use crate::simd::array_of;

leveled! {
    /// `to[k]` = the inner product of `x` with row `rows[k]` of `table`. Rows have the length of `x`; rows listed
    /// beyond the length of `to` are prefetched, because they come next.
    pub fn dots_of_rows<E>(table: &[E], rows: &[u32], x: &[E], to: &mut [E]) = dots_of_rows_at;

    /// [`dots_of_rows`] of two points: rows are read once.
    pub fn dots_of_rows_at_two<E>(table: &[E], rows: &[u32], x: &[E], y: &[E], to: &mut [E], to_y: &mut [E])
        = dots_at_two_at;

    /// `y += a[k] *` row `rows[k]` of `table`, in order. Rows are as long as `y`.
    pub fn add_rows<E>(table: &[E], rows: &[u32], a: &[E], y: &mut [E]) = add_rows_at;
}

/// How many bytes ahead rows are prefetched to the first-level cache; and further ahead to the second-level cache, for
/// which a core can have many more pending lines. Together they make rows of 2.4 kB at random addresses 1.6 times as
/// fast.
const NEAR: usize = 1 << 13;
const FAR: usize = 5 << 13;

/// The number of rows in this many bytes, small but at least one.
#[inline(always)]
fn rows_of<E>(bytes: usize, width: usize) -> usize {
    (bytes / (width * size_of::<E>()).max(1)).clamp(4, 64)
}

/// Prefetches the first of these rows before processing starts; later ones are prefetched during processing. Does
/// nothing for fewer than are read at a time.
pub fn ask_for_rows<E>(table: &[E], rows: &[u32], width: usize) {
    if rows.len() > 4 {
        ask_for_next_rows(table, rows, width);
    }
}

/// [`ask_for_rows`] for rows that are read after other work, however few they are. Not for rows so wide that they would not stay
/// in the cache.
pub fn ask_for_next_rows<E>(table: &[E], rows: &[u32], width: usize) {
    if width * size_of::<E>() > FAR {
        return;
    }
    for &row in &rows[..rows.len().min(rows_of::<E>(FAR, width))] {
        let first = row as usize * width;
        (first..first + width).step_by(line::<E>()).for_each(|at| prefetch_far(table, at));
    }
}

/// A table and a list of its rows; `at` is the current one.
struct List<'a, E> {
    table: &'a [E],
    rows: &'a [u32],
    width: usize,
    near: usize,
    far: usize,
}

impl<'a, E> List<'a, E> {
    #[inline(always)]
    fn new(table: &'a [E], rows: &'a [u32], width: usize) -> Self {
        List { table, rows, width, near: rows_of::<E>(NEAR, width), far: rows_of::<E>(FAR, width) }
    }

    #[inline(always)]
    fn row(&self, k: usize) -> &'a [E] {
        &self.table[self.rows[k] as usize * self.width..][..self.width]
    }

    /// The start of the row `distance` after row `k`; row `k` itself at the end.
    #[inline(always)]
    fn after(&self, k: usize, distance: usize) -> *const E {
        let row = *self.rows.get(k + distance).unwrap_or(&self.rows[k]);
        self.table.as_ptr().wrapping_add(row as usize * self.width)
    }

    /// The rows to prefetch while `R` rows from `k` on are processed.
    #[inline(always)]
    fn ahead<const R: usize>(&self, k: usize) -> Option<Ahead<E, R>> {
        let at = |distance| array_of(|r| self.after(k + r, distance));
        Some(Ahead { near: at(self.near), far: Some(at(self.far)) })
    }
}

/// The products of `R` rows at a time with `P` points.
#[inline(always)]
fn products<E: KernelFloat, T: Target, const R: usize, const P: usize>(
    list: &List<'_, E>,
    points: [&[E]; P],
    mut put: impl FnMut(usize, [E; P]),
    n: usize,
) {
    let mut k = 0;
    while n - k >= R {
        let rows = array_of(|r| list.row(k + r));
        let found = dot_rows::<E, T, R, P>(rows, points, list.ahead(k));
        found.into_iter().enumerate().for_each(|(r, products)| put(k + r, products));
        k += R;
    }
    for k in k..n {
        let [products] = dot_rows::<E, T, 1, P>([list.row(k)], points, list.ahead(k));
        put(k, products);
    }
}

#[inline(always)]
fn dots_of_rows_at<E: KernelFloat, T: Target>(table: &[E], rows: &[u32], x: &[E], to: &mut [E]) {
    let list = List::new(table, rows, x.len());
    let n = to.len();
    let put = |k: usize, [product]: [E; 1]| to[k] = product;
    // The registers hold 16 sums, or 4.
    if T::fits::<E::Vector>(16) {
        products::<E, T, 4, 1>(&list, [x], put, n);
    } else {
        products::<E, T, 1, 1>(&list, [x], put, n);
    }
}

#[inline(always)]
fn dots_at_two_at<E: KernelFloat, T: Target>(
    table: &[E],
    rows: &[u32],
    x: &[E],
    y: &[E],
    to: &mut [E],
    to_y: &mut [E],
) {
    let list = List::new(table, rows, x.len());
    let n = to.len();
    if T::fits::<E::Vector>(16) {
        let put = |k: usize, [product, other]: [E; 2]| (to[k], to_y[k]) = (product, other);
        return products::<E, T, 2, 2>(&list, [x, y], put, n);
    }
    for k in 0..n {
        to[k] = dot_rows::<E, T, 1, 1>([list.row(k)], [x], list.ahead(k))[0][0];
        to_y[k] = dot_rows::<E, T, 1, 1>([list.row(k)], [y], None)[0][0];
    }
}

#[inline(always)]
fn add_rows_at<E: KernelFloat, T: Target>(table: &[E], rows: &[u32], a: &[E], y: &mut [E]) {
    assert_eq!(rows.len(), a.len(), "kernel operands differ in length");
    let list = List::new(table, rows, y.len());
    let mut k = 0;
    while rows.len() - k >= 8 {
        let some: [&[E]; 8] = array_of(|r| list.row(k + r));
        let factors: [E; 8] = array_of(|r| a[k + r]);
        columns!(E, y.len(), add_step[T, 8](factors, some, y));
        k += 8;
    }
    for k in k..rows.len() {
        columns!(E, y.len(), add_step[T, 1]([a[k]], [list.row(k)], y));
    }
}

/// Sums stay in a register over `R` rows.
///
/// # Safety
/// `j + V::LANES` is at most the length of `y` and of every row.
#[inline(always)]
unsafe fn add_step<V: Pack, T: Target, const R: usize>(
    j: usize,
    a: [V::Elem; R],
    rows: [&[V::Elem]; R],
    y: &mut [V::Elem],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sum = V::read(y, j);
        for r in 0..R {
            sum = T::mul_add(V::splat(a[r]), V::read(rows[r], j), sum);
        }
        sum.write(y, j);
    }
}
