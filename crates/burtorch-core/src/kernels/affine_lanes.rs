//! A dense layer on `L` samples or tokens at once: forward and the gradient of its input.
//!
//! Promises: output sums run over inputs, input-gradient sums over outputs, each in the order 0, 1, 2, ... whatever the
//! tile, so lane `l` does not depend on the other lanes and levels with fused multiply-add agree bit for bit.
//! Knows nothing of weight gradients (`weight_grad_lanes`) or of where lanes come from.

use super::float::{KernelFloat, Pack, line, prefetch};
use super::lanes::features;
use super::levels::{Target, leveled};
use crate::simd::{Real, array_of};
use crate::sync::stop::Pace;

leveled! {
    /// `y = W x + b` in every lane: `x` is `n_in x L`, `y` is `n_out x L`, `w` is `n_out x n_in`.
    pub fn affine_forward_lanes<E, const L>(w: &[E], bias: Option<&[E]>, x: &[E], y: &mut [E]) = forward_at;

    /// `dx = W^T dy` in every lane: `dy` is `n_out x L`, `dx` is `n_in x L`.
    pub fn affine_input_grad_lanes<E, const L>(w: &[E], dy: &[E], dx: &mut [E]) = input_grad_set_at;

    /// `dx += W^T dy` in every lane.
    pub fn affine_input_grad_add_lanes<E, const L>(w: &[E], dy: &[E], dx: &mut [E]) = input_grad_add_at;
}

/// Simply: for each output o, `y[o] = b[o] + sum over i of w[o][i] * x[i]`, where y[o] and x[i] are vectors of lanes.
/// Departure: 8 outputs at once (4 if 8 sums do not fit the registers), so that one load of x[i] serves 8 products and
/// no product waits for the previous one. At 1024 x 1024, 16 lanes of f32: 97 % of the core's peak. The next tile's
/// weights are prefetched, because large matrices come from the third-level cache.
#[inline(always)]
fn forward_at<E: KernelFloat, T: Target, const L: usize>(w: &[E], bias: Option<&[E]>, x: &[E], y: &mut [E]) {
    let (n_in, n_out) = (features::<L>(x.len()), features::<L>(y.len()));
    assert_eq!(w.len(), n_out * n_in, "a weight matrix must hold n_out x n_in numbers");
    if let Some(bias) = bias {
        assert_eq!(bias.len(), n_out, "a bias must hold one number per output");
    }
    let (mut o, mut pace) = (0, Pace::new());
    // SAFETY: the lengths were checked above.
    unsafe {
        if T::fits::<E::V<L>>(8) {
            o = forward_tiles::<E, T, L, 8>(o, w, bias, x, y, &mut pace);
        }
        o = forward_tiles::<E, T, L, 4>(o, w, bias, x, y, &mut pace);
        o = forward_tiles::<E, T, L, 2>(o, w, bias, x, y, &mut pace);
        forward_tiles::<E, T, L, 1>(o, w, bias, x, y, &mut pace);
    }
}

/// Outputs `R` at a time from `o` on; returns the first output left over.
///
/// # Safety
/// `w` holds `n_out x n_in` numbers and `bias` `n_out`, where x holds `n_in * L` and y `n_out * L`.
#[inline(always)]
unsafe fn forward_tiles<E: KernelFloat, T: Target, const L: usize, const R: usize>(
    mut o: usize,
    w: &[E],
    bias: Option<&[E]>,
    x: &[E],
    y: &mut [E],
    pace: &mut Pace,
) -> usize {
    let (n_in, n_out) = (x.len() / L, y.len() / L);
    debug_assert_eq!(w.len(), n_out * n_in);
    while n_out - o >= R && pace.goes_on(R * n_in * L) {
        // SAFETY: `o + r < n_out` and `i < n_in`, and the caller vouches for the lengths.
        unsafe {
            let mut sums: [E::V<L>; R] = array_of(|r| match bias {
                Some(bias) => E::V::splat(*bias.get_unchecked(o + r)),
                None => E::V::splat(-E::default()),
            });
            let tile = w.get_unchecked(o * n_in..(o + R) * n_in);
            let mut start = 0;
            while start < n_in {
                let end = n_in.min(start + line::<E>());
                for r in 0..R {
                    prefetch(w, (o + R + r) * n_in + start);
                }
                for i in start..end {
                    let xs = E::V::read(x, i * L);
                    for r in 0..R {
                        let weight = E::V::splat(*tile.get_unchecked(r * n_in + i));
                        sums[r] = T::mul_add(weight, xs, sums[r]);
                    }
                }
                start = end;
            }
            for r in 0..R {
                sums[r].write(y, (o + r) * L);
            }
        }
        o += R;
    }
    o
}

/// Bytes of weights above which they come from the third-level cache, and only reading by rows is fast enough.
const LARGE: usize = 1 << 19;

#[inline(always)]
fn input_grad_set_at<E: KernelFloat, T: Target, const L: usize>(w: &[E], dy: &[E], dx: &mut [E]) {
    input_grad::<E, T, L, true>(w, dy, dx);
}

#[inline(always)]
fn input_grad_add_at<E: KernelFloat, T: Target, const L: usize>(w: &[E], dy: &[E], dx: &mut [E]) {
    input_grad::<E, T, L, false>(w, dy, dx);
}

/// Simply: for each input i, `dx[i] = sum over o of w[o][i] * dy[o]`, vectors of lanes. Departure: 16 inputs at once,
/// which share the loads of dy[o] and read 16 neighbours of each row of W (one cache line of f32); at 1024 x 1024, 95 %
/// of peak. Fewer with few registers: 6 instead of 4 on AVX2 is a third faster, because each line is read less often.
#[inline(always)]
fn input_grad<E: KernelFloat, T: Target, const L: usize, const SET: bool>(w: &[E], dy: &[E], dx: &mut [E]) {
    let (n_in, n_out) = (features::<L>(dx.len()), features::<L>(dy.len()));
    assert_eq!(w.len(), n_out * n_in, "a weight matrix must hold n_out x n_in numbers");
    if size_of_val(w) > LARGE && T::fits::<E::V<L>>(18) {
        // SAFETY: the lengths were checked above.
        return unsafe { input_grad_by_rows::<E, T, L, SET>(w, dy, dx) };
    }
    let (mut i, mut pace) = (0, Pace::new());
    // SAFETY: the lengths were checked above.
    unsafe {
        if T::fits::<E::V<L>>(16) {
            i = input_grad_tiles::<E, T, L, SET, 16>(i, w, dy, dx, &mut pace);
        }
        if T::fits::<E::V<L>>(8) {
            i = input_grad_tiles::<E, T, L, SET, 8>(i, w, dy, dx, &mut pace);
        }
        if !T::fits::<E::V<L>>(8) && T::fits::<E::V<L>>(6) {
            i = input_grad_tiles::<E, T, L, SET, 6>(i, w, dy, dx, &mut pace);
        }
        i = input_grad_tiles::<E, T, L, SET, 4>(i, w, dy, dx, &mut pace);
        input_grad_tiles::<E, T, L, SET, 1>(i, w, dy, dx, &mut pace);
    }
}

/// The same sums in the same order for many weights: one pass over dx per 16 rows of W, which are read in memory order;
/// tiles of inputs would step from row to row and wait for each. Twice as fast at 1024 x 1024 on a CPU with a slow
/// third-level cache.
///
/// # Safety
/// `w` holds `n_out x n_in` numbers, where dy holds `n_out * L` and dx `n_in * L`.
#[inline(always)]
unsafe fn input_grad_by_rows<E: KernelFloat, T: Target, const L: usize, const SET: bool>(
    w: &[E],
    dy: &[E],
    dx: &mut [E],
) {
    if SET {
        dx.fill(E::default());
    }
    let mut pace = Pace::new();
    // SAFETY: as the caller promises.
    unsafe {
        let o = input_grad_rows::<E, T, L, 16>(0, w, dy, dx, &mut pace);
        let o = input_grad_rows::<E, T, L, 4>(o, w, dy, dx, &mut pace);
        input_grad_rows::<E, T, L, 1>(o, w, dy, dx, &mut pace);
    }
}

/// Outputs `R` at a time from `o` on; returns the first output left over.
///
/// # Safety
/// As [`input_grad_by_rows`].
#[inline(always)]
unsafe fn input_grad_rows<E: KernelFloat, T: Target, const L: usize, const R: usize>(
    mut o: usize,
    w: &[E],
    dy: &[E],
    dx: &mut [E],
    pace: &mut Pace,
) -> usize {
    let (n_in, n_out) = (dx.len() / L, dy.len() / L);
    debug_assert_eq!(w.len(), n_out * n_in);
    let zero = E::V::splat(E::default());
    while n_out - o >= R && pace.goes_on(R * n_in * L) {
        // SAFETY: `o + r < n_out` and `i < n_in`, and the caller vouches for the lengths.
        unsafe {
            let dys: [E::V<L>; R] = array_of(|r| E::V::read(dy, (o + r) * L));
            let tile = w.get_unchecked(o * n_in..(o + R) * n_in);
            for i in 0..n_in {
                if i % line::<E>() == 0 {
                    for r in 0..R {
                        prefetch(w, (o + R + r) * n_in + i);
                    }
                }
                let mut sum = E::V::read(dx, i * L);
                for r in 0..R {
                    sum = T::mul_add(E::V::splat(*tile.get_unchecked(r * n_in + i)), dys[r], sum);
                }
                (sum + zero).write(dx, i * L);
            }
        }
        o += R;
    }
    o
}

/// Inputs `R` at a time from `i` on; returns the first input left over.
///
/// # Safety
/// `w` holds `n_out x n_in` numbers, where dy holds `n_out * L` and dx `n_in * L`.
#[inline(always)]
unsafe fn input_grad_tiles<E: KernelFloat, T: Target, const L: usize, const SET: bool, const R: usize>(
    mut i: usize,
    w: &[E],
    dy: &[E],
    dx: &mut [E],
    pace: &mut Pace,
) -> usize {
    let (n_in, n_out) = (dx.len() / L, dy.len() / L);
    debug_assert_eq!(w.len(), n_out * n_in);
    let zero = E::V::splat(E::default());
    while n_in - i >= R && pace.goes_on(R * n_out * L) {
        // SAFETY: `i + r < n_in` and `o < n_out`, and the caller vouches for the lengths.
        unsafe {
            let mut sums: [E::V<L>; R] = array_of(|r| if SET { zero } else { E::V::read(dx, (i + r) * L) });
            for o in 0..n_out {
                let dys = E::V::read(dy, o * L);
                let weights = w.get_unchecked(o * n_in + i..o * n_in + i + R);
                for r in 0..R {
                    sums[r] = T::mul_add(E::V::splat(*weights.get_unchecked(r)), dys, sums[r]);
                }
            }
            for r in 0..R {
                // Adding +0.0 turns a sum that is -0.0, the mark of "not reached", into +0.0.
                (sums[r] + zero).write(dx, (i + r) * L);
            }
        }
        i += R;
    }
    i
}
