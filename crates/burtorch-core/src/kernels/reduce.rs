//! Reductions of one or two slices to a number, and `y += a x`.
//!
//! Promises: the same bits on every level with fused multiply-add: element `i` belongs to lane `i % W` of accumulator
//! `(i / W) % 4`, with W the fixed virtual width (16 of f32, 8 of f64), and accumulators and lanes are added as one
//! fixed tree. The empty sum is `-0.0`, the neutral element of IEEE addition.
//! Does not know weights or layers.

use super::float::{KernelFloat, Pack, prefetch_at, prefetch_far_at};
use super::levels::{Target, columns, leveled};
use crate::simd::Real;
use crate::simd::slices::Element;

leveled! {
    /// The inner product of `x` and `y`, within `(n-1) u sum |x_i y_i|`.
    pub fn dot<E>(x: &[E], y: &[E]) -> E = dot_at;

    /// The sum of `x`, within `(n-1) u sum |x_i|`.
    pub fn sum<E>(x: &[E]) -> E = sum_at;

    /// The sum of the squares of `x`, within `n u sum x_i^2`.
    pub fn sum_squares<E>(x: &[E]) -> E = sum_squares_at;

    /// How many numbers, fewer than 2^24, have at least this magnitude, which is above 0; NaN is among them.
    pub fn count_reaching<E>(x: &[E], least: E) -> E = count_reaching_at;

    /// Whether no number is infinite or NaN.
    pub fn all_finite<E>(x: &[E]) -> bool = all_finite_at;

    /// `y += a * x`, element by element, one rounding each where the CPU fuses.
    pub fn axpy<E>(a: E, x: &[E], y: &mut [E]) = axpy_at;

    /// `to = x - a g`, each operation rounded; whether all of it is finite.
    pub fn descend<E>(a: E, g: &[E], x: &[E], to: &mut [E]) -> bool = descend_at;

    /// `to += a x`, then `to -= a y` and `to += base`, with the bits of [`axpy`] and [`add_to`](super::add_to).
    pub fn add_difference<E>(a: E, x: &[E], y: &[E], base: &[E], to: &mut [E]) = add_difference_at;

    /// The inner products of `x` with consecutive rows, each with the bits of [`dot`].
    pub fn dots<E>(rows: &[E], x: &[E], to: &mut [E]) = dots_at;

    /// The inner products of `v` with columns of a matrix whose row i starts at `start + i * stride`, each with the
    /// bits of [`dot`]. `room` is a workspace with as many numbers per column as a vector has lanes.
    pub fn dots_of_columns<E>(v: &[E], matrix: &[E], start: usize, stride: isize, room: &mut [E], to: &mut [E])
        = dots_of_columns_at;

    /// The products of each of `x` with each of `y`, added to 0: rows of `to`, with the bits of a product of matrices.
    pub fn outer<E>(x: &[E], y: &[E], to: &mut [E]) = outer_at;

    /// [`axpy`] for each element of `a` with the rows of `x`, which are consecutive, in order.
    pub fn axpy_rows<E>(a: &[E], x: &[E], y: &mut [E]) = axpy_rows_at;
}

#[inline(always)]
fn dot_at<E: KernelFloat, T: Target>(x: &[E], y: &[E]) -> E {
    dot_rows::<E, T, 1, 1>([x], [y], None)[0][0]
}

#[inline(always)]
fn sum_squares_at<E: KernelFloat, T: Target>(x: &[E]) -> E {
    dot_rows::<E, T, 1, 1>([x], [x], None)[0][0]
}

/// The rows to prefetch while others are processed.
#[derive(Clone, Copy)]
pub(super) struct Ahead<E, const R: usize> {
    /// The next rows, for the first-level cache.
    pub(super) near: [*const E; R],
    /// Rows after those, for the second-level cache.
    pub(super) far: Option<[*const E; R]>,
}

/// The inner products of `R` rows with `P` points, each with the same bits as [`dot`].
///
/// Simply: for each row, for each point, for each k, `sum += row[k] * x[k]`. Departures:
/// 1. Four accumulators of the virtual width, because one chain of additions waits 4 cycles for each; they also shorten
///    the error.
/// 2. Several rows at a time share the loads of a point, and several points those of a row.
/// 3. Later rows are prefetched: they may come from the third-level cache or from memory.
/// 4. The last block is padded with neutral elements (`0 * -0.0 = -0.0`) rather than finished one number at a time.
#[inline(always)]
pub(super) fn dot_rows<E: KernelFloat, T: Target, const R: usize, const P: usize>(
    rows: [&[E]; R],
    xs: [&[E]; P],
    ahead: Option<Ahead<E, R>>,
) -> [[E; P]; R] {
    let n = xs[0].len();
    let width = E::Vector::LANES;
    for slice in rows.iter().chain(&xs) {
        assert_eq!(slice.len(), n, "kernel operands differ in length");
    }
    let ask = |r: usize, k: usize| {
        if let Some(Ahead { near, far }) = &ahead {
            prefetch_at(near[r].wrapping_add(k));
            far.iter().for_each(|far| prefetch_far_at(far[r].wrapping_add(k)));
        }
    };
    let mut sums = [[[E::Vector::splat(-E::default()); 4]; P]; R];
    let mut k = 0;
    while n - k >= 4 * width {
        for a in 0..4 {
            // SAFETY: `k + 4 * width <= n`, the length of every point and row.
            unsafe {
                let points: [_; P] = std::array::from_fn(|c| E::Vector::read(xs[c], k + a * width));
                for r in 0..R {
                    ask(r, k + a * width);
                    let row = E::Vector::read(rows[r], k + a * width);
                    for p in 0..P {
                        sums[r][p][a] = T::mul_add(row, points[p], sums[r][p][a]);
                    }
                }
            }
        }
        k += 4 * width;
    }
    for a in 0..4 {
        if n - k >= width {
            for r in 0..R {
                ask(r, k);
                // SAFETY: `k + width <= n`, the length of every point and row.
                unsafe {
                    let row = E::Vector::read(rows[r], k);
                    for p in 0..P {
                        sums[r][p][a] = T::mul_add(row, E::Vector::read(xs[p], k), sums[r][p][a]);
                    }
                }
            }
            k += width;
        } else if n > k {
            let points: [_; P] = std::array::from_fn(|c| E::Vector::read_or(&xs[c][k..], E::default()));
            for r in 0..R {
                ask(r, n - 1);
                let row = E::Vector::read_or(&rows[r][k..], -E::default());
                for p in 0..P {
                    sums[r][p][a] = T::mul_add(row, points[p], sums[r][p][a]);
                }
            }
            k = n;
        }
    }
    // Not a closure, which would be compiled without the level's instructions.
    let mut totals = [[E::default(); P]; R];
    for r in 0..R {
        for p in 0..P {
            let [a, b, c, d] = sums[r][p];
            totals[r][p] = ((a + b) + (c + d)).tree_sum();
        }
    }
    totals
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

/// Adds ones in the lanes of the numbers.
#[inline(always)]
fn count_reaching_at<E: KernelFloat, T: Target>(x: &[E], least: E) -> E {
    let (zero, one, least) = (E::Vector::of(0.0), E::Vector::of(1.0), E::Vector::splat(least));
    let reached = |x: E::Vector| E::Vector::select(x.abs().is_lt(least), zero, one);
    let fours = x.chunks_exact(4 * E::Vector::LANES);
    let rest = fours.remainder().chunks(E::Vector::LANES);
    let mut sums = [zero; 4];
    for four in fours {
        for (sum, block) in sums.iter_mut().zip(four.chunks_exact(E::Vector::LANES)) {
            *sum = *sum + reached(E::Vector::load(block));
        }
    }
    for (sum, block) in sums.iter_mut().zip(rest) {
        *sum = *sum + reached(E::Vector::read_or(block, E::default()));
    }
    let [a, b, c, d] = sums;
    ((a + b) + (c + d)).tree_sum()
}

/// Departure from checking each number: 0 times a non-finite number is NaN, which persists in a sum.
#[inline(always)]
fn all_finite_at<E: KernelFloat, T: Target>(x: &[E]) -> bool {
    let zero = E::Vector::splat(E::default());
    let (blocks, last) = x.split_at(x.len() / E::Vector::LANES * E::Vector::LANES);
    let mut sums = [T::mul_add(E::Vector::read_or(last, E::default()), zero, zero); 4];
    for (k, block) in blocks.chunks_exact(E::Vector::LANES).enumerate() {
        sums[k % 4] = T::mul_add(E::Vector::load(block), zero, sums[k % 4]);
    }
    let [a, b, c, d] = sums;
    ((a + b) + (c + d)).tree_sum() == E::default()
}

/// Row by row: several rows at once would share loads of x, but a single stream is read faster. A short x stays in
/// registers if there are many.
#[inline(always)]
fn dots_at<E: KernelFloat, T: Target>(rows: &[E], x: &[E], to: &mut [E]) {
    let n = x.len();
    assert!(to.len() * n <= rows.len(), "kernel operands differ in length");
    if T::fits::<E::Vector>(HELD + 4) {
        match n.div_ceil(4 * E::Vector::LANES) {
            1 => return dots_of_held::<E, T, 4>(rows, x, to),
            2 => return dots_of_held::<E, T, 8>(rows, x, to),
            3 => return dots_of_held::<E, T, 12>(rows, x, to),
            4 => return dots_of_held::<E, T, HELD>(rows, x, to),
            _ => {}
        }
    }
    for (r, to) in to.iter_mut().enumerate() {
        *to = dot_rows::<E, T, 1, 1>([&rows[r * n..][..n]], [x], None)[0][0];
    }
}

/// Vectors of x that fit in registers.
const HELD: usize = 16;

/// [`dots_at`] for an x of more than `C - 4` and at most `C` vectors. The padding is -0.0 in x and 0 in rows, so its
/// products do not change a sum.
#[inline(always)]
fn dots_of_held<E: KernelFloat, T: Target, const C: usize>(rows: &[E], x: &[E], to: &mut [E]) {
    let (n, width) = (x.len(), E::Vector::LANES);
    let mut held = [E::Vector::splat(-E::default()); C];
    for (held, x) in held.iter_mut().zip(x.chunks(width)) {
        *held = E::Vector::read_or(x, -E::default());
    }
    let masks: [_; 4] = std::array::from_fn(|k| E::Vector::first(n.saturating_sub((C - 4 + k) * width).min(width)));
    for (row, to) in rows.chunks_exact(n).zip(to) {
        let mut sums = [E::Vector::splat(-E::default()); 4];
        // SAFETY: the row has more than `C - 4` vectors, and the masks cover only its numbers.
        unsafe {
            for k in 0..C / 4 - 1 {
                for a in 0..4 {
                    let c = 4 * k + a;
                    sums[a] = T::mul_add(E::Vector::read(row, c * width), held[c], sums[a]);
                }
            }
            for a in 0..4 {
                let c = C - 4 + a;
                let row = E::Vector::read_masked(row.as_ptr().wrapping_add(c * width), masks[a]);
                sums[a] = T::mul_add(row, held[c], sums[a]);
            }
        }
        let [a, b, c, d] = sums;
        *to = ((a + b) + (c + d)).tree_sum();
    }
}

/// Simply: for each column, the running sums of [`dot`]. Departures:
/// 1. Vectors lie along the columns, and a lane of the running sums is taken for all columns before the next lane, so that rows
///    are read as they lie.
/// 2. The last vector of a row overlaps the one before it, and so do the last four of many.
#[inline(always)]
fn dots_of_columns_at<E: KernelFloat, T: Target>(
    v: &[E],
    matrix: &[E],
    start: usize,
    stride: isize,
    room: &mut [E],
    to: &mut [E],
) {
    let (n, lanes) = (to.len(), E::Vector::LANES);
    let row = |i: usize| start.wrapping_add_signed(i as isize * stride);
    let rows = [row(0), row(v.len().saturating_sub(1))];
    assert!(rows.iter().all(|&row| row < matrix.len() && n <= matrix.len() - row), "kernel operands differ in length");
    let room = &mut room[..lanes * n];
    let first = matrix.as_ptr().wrapping_add(start);
    for (lane, room) in room.chunks_exact_mut(n.max(1)).enumerate() {
        if n < lanes {
            columns!(E, n, lane_step[T, 1](v, lane, first, stride, room));
            continue;
        }
        let mut j = 0;
        while j < n {
            // SAFETY: all rows lie between the first and the last, both of which hold n numbers, as does each row of
            // the workspace.
            unsafe {
                if T::fits::<E::Vector>(20) && n >= 4 * lanes && n - j > 2 * lanes {
                    lane_step::<E::Vector, T, 4>(j.min(n - 4 * lanes), v, lane, first, stride, room);
                    j += 4 * lanes;
                } else {
                    lane_step::<E::Vector, T, 1>(j.min(n - lanes), v, lane, first, stride, room);
                    j += lanes;
                }
            }
        }
    }
    let mut half = lanes / 2;
    while half > 0 {
        let (low, high) = room.split_at_mut(half * n);
        axpy_at::<E, T>(<E as Real>::of(1.0), &high[..half * n], low);
        half /= 2;
    }
    to.copy_from_slice(&room[..n]);
}

/// One lane of the running sums of `C` vectors of columns.
///
/// # Safety
/// `j + C * V::LANES` is at most the length of `to`, and numbers up to there can be read in every row from `first` on.
#[inline(always)]
unsafe fn lane_step<V: Pack<Elem: KernelFloat>, T: Target, const C: usize>(
    j: usize,
    v: &[V::Elem],
    lane: usize,
    first: *const V::Elem,
    stride: isize,
    to: &mut [V::Elem],
) {
    let lanes = <V::Elem as Element>::Vector::LANES;
    let mut sums = [[V::splat(-<V::Elem as Default>::default()); C]; 4];
    let mut row = lane;
    // SAFETY: as the caller promises; rows are below the length of v.
    unsafe {
        while row + 3 * lanes < v.len() {
            for (a, sums) in sums.iter_mut().enumerate() {
                add_row::<V, T, C>(v, row + a * lanes, first.wrapping_add(j), stride, sums);
            }
            row += 4 * lanes;
        }
        for (a, sums) in sums.iter_mut().enumerate() {
            if row + a * lanes < v.len() {
                add_row::<V, T, C>(v, row + a * lanes, first.wrapping_add(j), stride, sums);
            }
        }
        for c in 0..C {
            ((sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c])).write(to, j + c * V::LANES);
        }
    }
}

/// # Safety
/// `row` is below the length of `v`, and `C` vectors of numbers can be read in each row from `first` on.
#[inline(always)]
unsafe fn add_row<V: Pack<Elem: KernelFloat>, T: Target, const C: usize>(
    v: &[V::Elem],
    row: usize,
    first: *const V::Elem,
    stride: isize,
    sums: &mut [V; C],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let factor = V::splat(*v.get_unchecked(row));
        let numbers = std::slice::from_raw_parts(first.wrapping_offset(row as isize * stride), C * V::LANES);
        for (c, sum) in sums.iter_mut().enumerate() {
            *sum = T::mul_add(factor, V::read(numbers, c * V::LANES), *sum);
        }
    }
}

/// The inner products of `R` consecutive rows; prefetches the rows after them.
#[inline(always)]
pub(super) fn dots_of_next<E: KernelFloat, T: Target, const R: usize>(rows: [&[E]; R], x: &[E]) -> [E; R] {
    let near = std::array::from_fn(|r| rows[r].as_ptr().wrapping_add(R * x.len()));
    dot_rows::<E, T, R, 1>(rows, [x], (R > 1).then_some(Ahead { near, far: None })).map(|[product]| product)
}

#[inline(always)]
fn outer_at<E: KernelFloat, T: Target>(x: &[E], y: &[E], to: &mut [E]) {
    assert_eq!(x.len() * y.len(), to.len(), "kernel operands differ in length");
    for (&x, to) in x.iter().zip(to.chunks_exact_mut(y.len().max(1))) {
        columns!(E, y.len(), outer_step[T](x, y, to));
    }
}

/// # Safety
/// `j + V::LANES` is at most the length of both slices.
#[inline(always)]
unsafe fn outer_step<V: Pack, T: Target>(j: usize, x: V::Elem, y: &[V::Elem], to: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe { T::mul_add(V::splat(x), V::read(y, j), V::of(0.0)).write(to, j) }
}

#[inline(always)]
fn axpy_rows_at<E: KernelFloat, T: Target>(a: &[E], x: &[E], y: &mut [E]) {
    assert!(a.len() * y.len() <= x.len(), "kernel operands differ in length");
    columns!(E, y.len(), axpy_rows_step[T](a, x, y));
}

/// Simply: for each row, `y += a x`. Sums stay in a register over all rows.
///
/// # Safety
/// `j + V::LANES` is at most the length of `y`, and `x` has a row for each element of `a`.
#[inline(always)]
unsafe fn axpy_rows_step<V: Pack, T: Target>(j: usize, a: &[V::Elem], x: &[V::Elem], y: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sum = V::read(y, j);
        for (row, &a) in a.iter().enumerate() {
            sum = T::mul_add(V::splat(a), V::read(x, row * y.len() + j), sum);
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

/// Simply: a loop over numbers, and [`all_finite`]. Departure: the same loop sums 0 times each number, as `all_finite`
/// does.
#[inline(always)]
fn descend_at<E: KernelFloat, T: Target>(a: E, g: &[E], x: &[E], to: &mut [E]) -> bool {
    let n = to.len();
    assert!(g.len() == n && x.len() == n, "kernel operands differ in length");
    let (zero, a, width) = (E::Vector::splat(E::default()), E::Vector::splat(a), E::Vector::LANES);
    let mut sums = [zero; 2];
    let mut j = 0;
    while n - j >= 2 * width {
        for sum in &mut sums {
            // SAFETY: `j + width <= n`, the length of all slices, for both of the vectors.
            let new = unsafe { E::Vector::read(x, j) - a * E::Vector::read(g, j) };
            // SAFETY: as above.
            unsafe { new.write(to, j) };
            *sum = T::mul_add(new, zero, *sum);
            j += width;
        }
    }
    for sum in &mut sums {
        let at = j.min(n)..n.min(j + width);
        let read = |from: &[E]| E::Vector::read_or(&from[at.clone()], E::default());
        let new = read(x) - a * read(g);
        new.write_some(&mut to[at]);
        *sum = T::mul_add(new, zero, *sum);
        j += width;
    }
    let [b, c] = sums;
    (b + c).tree_sum() == E::default()
}

#[inline(always)]
fn add_difference_at<E: KernelFloat, T: Target>(a: E, x: &[E], y: &[E], base: &[E], to: &mut [E]) {
    let n = to.len();
    assert!([x, y, base].iter().all(|list| list.len() == n), "kernel operands differ in length");
    columns!(E, n, add_difference_step[T](a, x, y, base, to));
}

/// # Safety
/// `j + V::LANES` is at most the length of all slices.
#[inline(always)]
unsafe fn add_difference_step<V: Pack, T: Target>(
    j: usize,
    a: V::Elem,
    x: &[V::Elem],
    y: &[V::Elem],
    base: &[V::Elem],
    to: &mut [V::Elem],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let at_x = T::mul_add(V::splat(a), V::read(x, j), V::read(to, j));
        let both = T::mul_add(V::splat(-a), V::read(y, j), at_x);
        (both + V::read(base, j)).write(to, j);
    }
}
