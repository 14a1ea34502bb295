//! Reductions of one or two slices to a number, and `y += a x`.
//!
//! Promises the same bits on every level with fused multiply-add: element `i` belongs to lane `i % W` of accumulator
//! `(i / W) % 4`, with W the fixed virtual width (16 of f32, 8 of f64), and accumulators and lanes are added as one
//! fixed tree. The sum of nothing is `-0.0`, the neutral element of IEEE addition.
//! Knows nothing of weights or layers.

use super::float::{KernelFloat, Pack, line, prefetch};
use super::levels::{Target, columns, leveled};
use crate::simd::Real;

leveled! {
    /// The inner product of `x` and `y`, within `(n-1) u sum |x_i y_i|`.
    pub fn dot<E>(x: &[E], y: &[E]) -> E = dot_at;

    /// The sum of `x`, within `(n-1) u sum |x_i|`.
    pub fn sum<E>(x: &[E]) -> E = sum_at;

    /// The sum of the squares of `x`, within `n u sum x_i^2`.
    pub fn sum_squares<E>(x: &[E]) -> E = sum_squares_at;

    /// `y += a * x`, element by element, one rounding each where the CPU fuses.
    pub fn axpy<E>(a: E, x: &[E], y: &mut [E]) = axpy_at;

    /// The inner products of `x` with rows that lie one after the other, each with the bits of [`dot`].
    pub fn dots<E>(rows: &[E], x: &[E], to: &mut [E]) = dots_at;

    /// [`axpy`] for every `step`-th of `a` with rows of `x` that lie `stride` apart, in order.
    pub fn axpy_rows<E>(a: &[E], step: usize, x: &[E], stride: usize, y: &mut [E]) = axpy_rows_at;
}

#[inline(always)]
fn dot_at<E: KernelFloat, T: Target>(x: &[E], y: &[E]) -> E {
    dot_rows::<E, T, 1>([x], y)[0]
}

#[inline(always)]
fn sum_squares_at<E: KernelFloat, T: Target>(x: &[E]) -> E {
    dot_rows::<E, T, 1>([x], x)[0]
}

/// The inner products of `R` rows with one `x`, each with the same bits as [`dot`].
///
/// Simply: for each row, for each k, `sum += row[k] * x[k]`. Departures:
/// 1. Four accumulators of the virtual width, because one chain of additions waits 4 cycles for each; they also shorten
///    the error.
/// 2. Several rows at a time share the loads of x.
/// 3. Where there are several rows, the next ones are asked for: they may come from the third-level cache.
/// 4. The last block is padded with neutral elements (`0 * -0.0 = -0.0`) rather than finished one number at a time.
#[inline(always)]
pub(super) fn dot_rows<E: KernelFloat, T: Target, const R: usize>(rows: [&[E]; R], x: &[E]) -> [E; R] {
    let n = x.len();
    let width = E::Vector::LANES;
    for row in rows {
        assert_eq!(row.len(), n, "kernel operands differ in length");
    }
    let mut sums = [[E::Vector::splat(-E::default()); 4]; R];
    let mut k = 0;
    while n - k >= 4 * width {
        for a in 0..4 {
            // SAFETY: `k + 4 * width <= n`, the length of x and of every row.
            unsafe {
                let xs = E::Vector::read(x, k + a * width);
                for r in 0..R {
                    if R > 1 && width >= line::<E>() {
                        prefetch(rows[r], R * n + k + a * width);
                    }
                    sums[r][a] = T::mul_add(E::Vector::read(rows[r], k + a * width), xs, sums[r][a]);
                }
            }
        }
        k += 4 * width;
    }
    for a in 0..4 {
        if n - k >= width {
            for r in 0..R {
                // SAFETY: `k + width <= n`, the length of x and of every row.
                let (ws, xs) = unsafe { (E::Vector::read(rows[r], k), E::Vector::read(x, k)) };
                sums[r][a] = T::mul_add(ws, xs, sums[r][a]);
            }
            k += width;
        } else if n > k {
            let xs = E::Vector::read_or(&x[k..], E::default());
            for r in 0..R {
                let ws = E::Vector::read_or(&rows[r][k..], -E::default());
                sums[r][a] = T::mul_add(ws, xs, sums[r][a]);
            }
            k = n;
        }
    }
    sums.map(|[a, b, c, d]| ((a + b) + (c + d)).tree_sum())
}

#[inline(always)]
pub(super) fn sum_at<E: KernelFloat, T: Target>(x: &[E]) -> E {
    let n = x.len();
    let width = E::Vector::LANES;
    let mut sums = [E::Vector::splat(-E::default()); 4];
    let mut k = 0;
    while n - k >= 4 * width {
        for (a, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `k + 4 * width <= n`.
            *sum = *sum + unsafe { E::Vector::read(x, k + a * width) };
        }
        k += 4 * width;
    }
    for sum in &mut sums {
        *sum = *sum + E::Vector::read_or(&x[k.min(n)..], -E::default());
        k += width;
    }
    let [a, b, c, d] = sums;
    ((a + b) + (c + d)).tree_sum()
}

#[inline(always)]
fn dots_at<E: KernelFloat, T: Target>(rows: &[E], x: &[E], to: &mut [E]) {
    let n = x.len();
    for (k, to) in to.chunks_mut(4).enumerate() {
        let row = |r: usize| &rows[(4 * k + r) * n..][..n];
        if let [_, _, _, _] = to {
            to.copy_from_slice(&dot_rows::<E, T, 4>([row(0), row(1), row(2), row(3)], x));
        } else {
            to.iter_mut().enumerate().for_each(|(r, to)| *to = dot_rows::<E, T, 1>([row(r)], x)[0]);
        }
    }
}

#[inline(always)]
fn axpy_rows_at<E: KernelFloat, T: Target>(a: &[E], step: usize, x: &[E], stride: usize, y: &mut [E]) {
    let Some(last) = a.len().checked_sub(1).map(|last| last / step) else { return };
    assert!(last * stride + y.len() <= x.len(), "kernel operands differ in length");
    columns!(E, y.len(), axpy_rows_step[T](a, step, x, stride, y));
}

/// Simply: for each row, `y += a x`. Sums stay in a register over all rows.
///
/// # Safety
/// `j + V::LANES` is at most the length of `y`, and of `x` from its last row on.
#[inline(always)]
unsafe fn axpy_rows_step<V: Pack, T: Target>(
    j: usize,
    a: &[V::Elem],
    step: usize,
    x: &[V::Elem],
    stride: usize,
    y: &mut [V::Elem],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sum = V::read(y, j);
        for (row, &a) in a.iter().step_by(step).enumerate() {
            sum = T::mul_add(V::splat(a), V::read(x, row * stride + j), sum);
        }
        sum.write(y, j);
    }
}

#[inline(always)]
fn axpy_at<E: KernelFloat, T: Target>(a: E, x: &[E], y: &mut [E]) {
    assert_eq!(x.len(), y.len(), "kernel operands differ in length");
    columns!(E, y.len(), axpy_step[T](a, x, y));
}

/// # Safety
/// `j + V::LANES` is at most the length of both slices.
#[inline(always)]
pub(super) unsafe fn axpy_step<V: Pack, T: Target>(j: usize, a: V::Elem, x: &[V::Elem], y: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe { T::mul_add(V::splat(a), V::read(x, j), V::read(y, j)).write(y, j) }
}
