//! A dense layer on one sample: forward, both gradients, and a gradient step without gradient memory.
//!
//! Promises: output `o` of [`affine_forward`] is `dot(w_o, x) + b_o` bit for bit; input gradients sum outputs in the
//! order 0, 1, 2, ..., or backwards if weights change in the same pass; a step by [`affine_sgd_update`] has the bits of a
//! weight gradient followed by a step. Does not know lanes, batches or activations. Cost: `2 n_in n_out` operations, one pass
//! over the weights.

use super::Mode;
use super::float::{KernelFloat, Pack, line, prefetch, prefetch_before};
use super::levels::{Target, columns, leveled};
use super::optim::sgd_step;
use super::reduce::dots_of_next;
use crate::simd::Real;
use crate::sync::stop::Pace;

leveled! {
    /// `y = W x + b`; `w` is `y.len()` rows of `x.len()`.
    pub fn affine_forward<E>(w: &[E], bias: Option<&[E]>, x: &[E], y: &mut [E]) = forward_at;

    /// `dx = W^T dy`.
    pub fn affine_input_grad<E>(w: &[E], dy: &[E], dx: &mut [E]) = input_grad_set_at;

    /// `dx += W^T dy`.
    pub fn affine_input_grad_add<E>(w: &[E], dy: &[E], dx: &mut [E]) = input_grad_add_at;

    /// As [`affine_input_grad_add`], in some columns only, which are different ones.
    pub fn affine_input_grad_columns<E>(w: &[E], dy: &[E], columns: &[u32], dx: &mut [E]) = input_grad_columns_at;

    /// `dW = dy x^T` and `db = dy`, or the same added to what `dw` and `bias_grad` hold.
    pub fn affine_weight_grad<E>(dy: &[E], x: &[E], dw: &mut [E], bias_grad: Option<&mut [E]>, mode: Mode)
        = weight_grad_at;

    /// One step of gradient descent from one sample, `W -= lr dy x^T` and `b -= lr dy`, without storing the gradient.
    pub fn affine_sgd_update<E>(lr: E, dy: &[E], x: &[E], w: &mut [E], bias: Option<&mut [E]>) = sgd_update_at;

    /// `dx = W^T dy`, and then `W -= lr dy x^T`, in one pass over the weights, from the last row to the first: the numbers of
    /// [`affine_input_grad`] within rounding, and the weights of [`affine_sgd_update`] bit for bit.
    pub fn affine_input_grad_sgd_update<E>(lr: E, dy: &[E], x: &[E], w: &mut [E], dx: &mut [E]) = input_grad_sgd_at;
}

#[inline(always)]
fn check_shape<E>(w: &[E], n_out: usize, n_in: usize) {
    assert_eq!(w.len(), n_out * n_in, "a weight matrix must hold n_out x n_in numbers");
}

#[inline(always)]
fn forward_at<E: KernelFloat, T: Target>(w: &[E], bias: Option<&[E]>, x: &[E], y: &mut [E]) {
    check_shape(w, y.len(), x.len());
    if let Some(bias) = bias {
        assert_eq!(bias.len(), y.len(), "a bias must hold one number per output");
    }
    let (mut o, mut pace) = (0, Pace::new());
    if T::fits::<E::Vector>(4 * 4) {
        o = forward_rows::<E, T, 4>(o, w, bias, x, y, &mut pace);
    }
    forward_rows::<E, T, 1>(o, w, bias, x, y, &mut pace);
}

/// Outputs `R` at a time from `o` on; returns the first output left over.
#[inline(always)]
fn forward_rows<E: KernelFloat, T: Target, const R: usize>(
    mut o: usize,
    w: &[E],
    bias: Option<&[E]>,
    x: &[E],
    y: &mut [E],
    pace: &mut Pace,
) -> usize {
    let n_in = x.len();
    while y.len() - o >= R && pace.goes_on(R * n_in * Pace::FROM_MEMORY) {
        let rows = std::array::from_fn(|r| &w[(o + r) * n_in..][..n_in]);
        let sums = dots_of_next::<E, T, R>(rows, x);
        for r in 0..R {
            y[o + r] = match bias {
                Some(bias) => sums[r] + bias[o + r],
                None => sums[r],
            };
        }
        o += R;
    }
    o
}

#[inline(always)]
fn input_grad_set_at<E: KernelFloat, T: Target>(w: &[E], dy: &[E], dx: &mut [E]) {
    check_shape(w, dy.len(), dx.len());
    dx.fill(E::default());
    input_grad_add_at::<E, T>(w, dy, dx);
}

/// Simply: for each output o, `dx += dy[o] * w_o`. Departure: four outputs in one pass over dx, so that dx is loaded and
/// stored a quarter as often; each entry still adds its outputs in order.
#[inline(always)]
fn input_grad_add_at<E: KernelFloat, T: Target>(w: &[E], dy: &[E], dx: &mut [E]) {
    check_shape(w, dy.len(), dx.len());
    let n_in = dx.len();
    let (mut o, mut pace) = (0, Pace::new());
    while dy.len() - o >= 4 && pace.goes_on(4 * n_in * Pace::FROM_MEMORY) {
        let rows: [&[E]; 4] = std::array::from_fn(|r| &w[(o + r) * n_in..][..n_in]);
        let factors: [E; 4] = std::array::from_fn(|r| dy[o + r]);
        columns!(E, n_in, input_grad_step[T, 4](&rows, &factors, dx));
        o += 4;
    }
    while dy.len() - o >= 1 && pace.goes_on(n_in * Pace::FROM_MEMORY) {
        let rows = [&w[o * n_in..][..n_in]];
        columns!(E, n_in, input_grad_step[T, 1](&rows, &[dy[o]], dx));
        o += 1;
    }
}

/// # Safety
/// `j + V::LANES` is at most the length of `dx` and of every row.
#[inline(always)]
unsafe fn input_grad_step<V: Pack, T: Target, const R: usize>(
    j: usize,
    rows: &[&[V::Elem]; R],
    factors: &[V::Elem; R],
    dx: &mut [V::Elem],
) {
    // SAFETY: as the caller promises. Adding +0.0 turns a sum that is -0.0 into +0.0.
    unsafe {
        let mut sum = V::read(dx, j);
        for r in 0..R {
            if V::LANES >= line::<V::Elem>() {
                prefetch(rows[r], R * dx.len() + j);
            }
            sum = T::mul_add(V::read(rows[r], j), V::splat(factors[r]), sum);
        }
        (sum + V::splat(V::Elem::default())).write(dx, j);
    }
}

/// Columns whose sums run side by side.
const SIDE: usize = 8;

/// Simply: for each column, the sum over outputs, in order. Departure: 8 columns at once, because each product of a sum
/// waits for the previous one.
#[inline(always)]
fn input_grad_columns_at<E: KernelFloat, T: Target>(w: &[E], dy: &[E], columns: &[u32], dx: &mut [E]) {
    check_shape(w, dy.len(), dx.len());
    let mut pace = Pace::new();
    for some in columns.chunks(SIDE) {
        if !pace.goes_on(SIDE * dy.len() * Pace::FROM_MEMORY) {
            return;
        }
        // If there are fewer, the last column is repeated.
        let at: [usize; SIDE] = std::array::from_fn(|k| some[k.min(some.len() - 1)] as usize);
        let mut sums: [_; SIDE] = std::array::from_fn(|k| E::V::<1>::splat(dx[at[k]]));
        let mut rows = w.chunks_exact(dx.len());
        for outputs in dy.chunks(if dy.len() < 4 { 1 } else { 4 }) {
            let together = outputs.len() == 4;
            for (&factor, row) in outputs.iter().zip(&mut rows) {
                for k in 0..SIDE {
                    sums[k] = T::mul_add(E::V::<1>::splat(row[at[k]]), E::V::<1>::splat(factor), sums[k]);
                    // Adds +0.0 as often as the kernel for all columns does.
                    sums[k] = if together { sums[k] } else { sums[k] + E::V::<1>::splat(E::default()) };
                }
            }
            sums = std::array::from_fn(|k| sums[k] + E::V::<1>::splat(E::default()));
        }
        at.iter().zip(sums).for_each(|(&column, sum)| dx[column] = sum.lane(0));
    }
}

#[inline(always)]
fn weight_grad_at<E: KernelFloat, T: Target>(dy: &[E], x: &[E], dw: &mut [E], bias_grad: Option<&mut [E]>, mode: Mode) {
    check_shape(dw, dy.len(), x.len());
    let (n_in, mut pace) = (x.len(), Pace::new());
    for (o, &factor) in dy.iter().enumerate() {
        if !pace.goes_on(n_in * Pace::FROM_MEMORY) {
            return;
        }
        let row = &mut dw[o * n_in..][..n_in];
        match mode {
            Mode::Set => columns!(E, n_in, weight_grad_step[T, true](factor, x, row)),
            Mode::Add => columns!(E, n_in, weight_grad_step[T, false](factor, x, row)),
        }
    }
    if let Some(db) = bias_grad {
        assert_eq!(db.len(), dy.len(), "a bias must hold one number per output");
        for (db, &dy) in db.iter_mut().zip(dy) {
            *db = if mode == Mode::Set { E::default() } else { *db } + dy;
        }
    }
}

/// # Safety
/// `j + V::LANES` is at most the length of both slices.
#[inline(always)]
pub(super) unsafe fn weight_grad_step<V: Pack, T: Target, const SET: bool>(
    j: usize,
    factor: V::Elem,
    x: &[V::Elem],
    row: &mut [V::Elem],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let before = if SET { V::splat(V::Elem::default()) } else { V::read(row, j) };
        T::mul_add(V::splat(factor), V::read(x, j), before).write(row, j);
    }
}

#[inline(always)]
fn sgd_update_at<E: KernelFloat, T: Target>(lr: E, dy: &[E], x: &[E], w: &mut [E], bias: Option<&mut [E]>) {
    check_shape(w, dy.len(), x.len());
    let n_in = x.len();
    for (o, &factor) in dy.iter().enumerate() {
        let row = &mut w[o * n_in..][..n_in];
        columns!(E, n_in, sgd_update_step[T](lr, factor, x, row));
    }
    if let Some(bias) = bias {
        assert_eq!(bias.len(), dy.len(), "a bias must hold one number per output");
        columns!(E, dy.len(), sgd_step[T](lr, dy, bias));
    }
}

/// # Safety
/// `j + V::LANES` is at most the length of both slices.
#[inline(always)]
unsafe fn sgd_update_step<V: Pack, T: Target>(
    j: usize,
    lr: V::Elem,
    factor: V::Elem,
    x: &[V::Elem],
    row: &mut [V::Elem],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let zero = V::splat(V::Elem::default());
        let grad = T::mul_add(V::splat(factor), V::read(x, j), zero);
        T::mul_add(V::splat(-lr), grad, V::read(row, j)).write(row, j);
    }
}

/// Bytes of weights above which reading them takes longer than computing: a large part of a second-level cache.
const LARGE: usize = 1 << 20;

/// Four outputs at a time, as in [`input_grad_add_at`]; each vector of weights is updated right after its last use.
/// Rows are processed from last to first: the forward pass has just read the last rows, and the next one starts with
/// the first, so both reuse the part of a large matrix in the second-level cache. A large matrix is processed row by
/// row, a single stream that the hardware prefetcher follows: 218 us for both passes over 4 MB instead of 235 with four
/// streams; reading alone takes 192.
#[inline(always)]
fn input_grad_sgd_at<E: KernelFloat, T: Target>(lr: E, dy: &[E], x: &[E], w: &mut [E], dx: &mut [E]) {
    check_shape(w, dy.len(), dx.len());
    assert_eq!(x.len(), dx.len(), "kernel operands differ in length");
    let n_in = dx.len();
    dx.fill(E::default());
    let by_four = if size_of_val(w) < LARGE { dy.len() / 4 * 4 } else { 0 };
    for o in (by_four..dy.len()).rev() {
        let row = &mut w[o * n_in..][..n_in];
        columns!(E, n_in, input_grad_sgd_step[T, 1](lr, &[dy[o]], x, row, dx));
    }
    for o in (0..by_four).step_by(4).rev() {
        let rows = &mut w[o * n_in..][..4 * n_in];
        let factors: [E; 4] = std::array::from_fn(|r| dy[o + r]);
        columns!(E, n_in, input_grad_sgd_step[T, 4](lr, &factors, x, rows, dx));
    }
}

/// # Safety
/// `j + V::LANES` is at most the length of `dx`; `x` is as long, and `rows` `R` times as long.
#[inline(always)]
unsafe fn input_grad_sgd_step<V: Pack, T: Target, const R: usize>(
    j: usize,
    lr: V::Elem,
    factors: &[V::Elem; R],
    x: &[V::Elem],
    rows: &mut [V::Elem],
    dx: &mut [V::Elem],
) {
    let (zero, n_in) = (V::splat(V::Elem::default()), dx.len());
    // SAFETY: as the caller promises.
    unsafe {
        let xs = V::read(x, j);
        // All loads precede all stores: rows may be a multiple of 4096 bytes apart, and then a load waits for a store.
        let before: [V; R] = std::array::from_fn(|r| V::read(rows, r * n_in + j));
        if V::LANES >= line::<V::Elem>() {
            for r in 0..R {
                prefetch_before(rows, (R - r) * n_in - j);
            }
        }
        let mut sum = V::read(dx, j);
        for r in (0..R).rev() {
            sum = T::mul_add(before[r], V::splat(factors[r]), sum);
        }
        (sum + zero).write(dx, j);
        for r in 0..R {
            let grad = T::mul_add(V::splat(factors[r]), xs, zero);
            T::mul_add(V::splat(-lr), grad, before[r]).write(rows, r * n_in + j);
        }
    }
}
