//! A dense layer on 64 samples at once, for weights larger than the second-level cache: forward and the
//! gradient of its input.
//!
//! Promises: the sums of `affine_lanes` in the same order, so the same bits lane by lane; but weights are read from memory only
//! once for 64 samples. With AVX2 a tile has 16 lanes only, and `affine_product` prefers products. Does not know weight gradients.

use super::float::{KernelFloat, Pack, line, prefetch, prefetch_far};
use super::lanes::features;
use super::levels::Target;
use crate::simd::{Real, array_of};
use crate::sync::stop::Pace;

/// Numbers of the inner dimension per tile: their activations (16 KB of f32) stay in the first-level cache.
const DEPTH: usize = 64;

/// Simply: `y[o] = b[o] + sum over i of w[o][i] * x[i]` in every lane. Departures:
/// 1. A tile of 6 outputs x 4 vectors of lanes keeps 24 sums in registers: 10 loads for 24 products, and each weight is
///    used for all lanes while it is in a register.
/// 2. Inputs are processed in blocks for all outputs; sums are kept in y between blocks.
/// 3. The weights of the next tile are prefetched.
#[inline(always)]
pub(super) fn forward<E: KernelFloat, T: Target, const L: usize>(w: &[E], bias: Option<&[E]>, x: &[E], y: &mut [E]) {
    let (n_in, n_out) = (features::<L>(x.len()), features::<L>(y.len()));
    assert_eq!(w.len(), n_out * n_in, "a weight matrix must hold n_out x n_in numbers");
    for (o, y) in y.chunks_exact_mut(L).enumerate() {
        y.fill(bias.map_or(-E::default(), |bias| bias[o]));
    }
    let (mut start, mut pace) = (0, Pace::new());
    while start < n_in {
        let end = n_in.min(start + DEPTH);
        let job = Job { w, n_in, n_out, from: start, to: end, overwrites: false };
        // SAFETY: the lengths were checked above, and the lanes are a multiple of a tile.
        unsafe {
            let mut lane = 0;
            if T::fits::<E::Vector>(24) {
                lane = forward_columns::<E, T, L, 4>(lane, &job, x, y, &mut pace);
            }
            forward_columns::<E, T, L, 1>(lane, &job, x, y, &mut pace);
        }
        start = end;
    }
}

/// The weights, and the part of the inner dimension to sum.
struct Job<'a, E> {
    w: &'a [E],
    n_in: usize,
    n_out: usize,
    from: usize,
    to: usize,
    /// Whether sums start at 0 instead of the existing values.
    overwrites: bool,
}

/// Lanes `K` vectors at a time from `lane` on; returns the first lane left over.
///
/// # Safety
/// `job.w` holds `n_out x n_in` numbers, x `n_in * L` and y `n_out * L`; `from..to` are inputs.
#[inline(always)]
unsafe fn forward_columns<E: KernelFloat, T: Target, const L: usize, const K: usize>(
    mut lane: usize,
    job: &Job<'_, E>,
    x: &[E],
    y: &mut [E],
    pace: &mut Pace,
) -> usize {
    let step = K * E::Vector::LANES;
    debug_assert!(L.is_multiple_of(step) && job.to <= job.n_in);
    while L - lane >= step {
        // SAFETY: as the caller promises.
        unsafe {
            let o = forward_tiles::<E, T, L, K, 6>(0, lane, job, x, y, pace);
            let o = forward_tiles::<E, T, L, K, 3>(o, lane, job, x, y, pace);
            forward_tiles::<E, T, L, K, 1>(o, lane, job, x, y, pace);
        }
        lane += step;
    }
    lane
}

/// Outputs `R` at a time from `o` on; returns the first output left over.
///
/// # Safety
/// As [`forward_columns`], and `lane + K * E::Vector::LANES` is at most `L`.
#[inline(always)]
unsafe fn forward_tiles<E: KernelFloat, T: Target, const L: usize, const K: usize, const R: usize>(
    mut o: usize,
    lane: usize,
    job: &Job<'_, E>,
    x: &[E],
    y: &mut [E],
    pace: &mut Pace,
) -> usize {
    let Job { w, n_in, n_out, from, to, .. } = *job;
    let at = |row: usize, k: usize| row * L + lane + k * E::Vector::LANES;
    debug_assert!(w.len() == n_out * n_in && x.len() == n_in * L && y.len() == n_out * L);
    while n_out - o >= R && pace.goes_on((to - from) * R * K * E::Vector::LANES) {
        // SAFETY: `o + r < n_out` and `i < n_in`, and the caller vouches for the lengths.
        unsafe {
            let mut sums: [[E::Vector; K]; R] = array_of(|r| array_of(|k| E::Vector::read(y, at(o + r, k))));
            let tile = w.get_unchecked(o * n_in..(o + R) * n_in);
            for r in 0..R {
                for i in (from..to).step_by(line::<E>()) {
                    prefetch(w, (o + R + r) * n_in + i);
                }
            }
            for i in from..to {
                let xs: [E::Vector; K] = array_of(|k| E::Vector::read(x, at(i, k)));
                for r in 0..R {
                    let weight = E::Vector::splat(*tile.get_unchecked(r * n_in + i));
                    for k in 0..K {
                        sums[r][k] = T::mul_add(weight, xs[k], sums[r][k]);
                    }
                }
            }
            for r in 0..R {
                for k in 0..K {
                    sums[r][k].write(y, at(o + r, k));
                }
            }
        }
        o += R;
    }
    o
}

/// Simply: `dx[i] += sum over o of w[o][i] * dy[o]` in every lane. Departures: tiles of 6 inputs x 4 vectors of lanes,
/// and outputs in blocks, as in [`forward`]; the next block's rows of W are prefetched to the second-level cache.
#[inline(always)]
pub(super) fn input_grad<E: KernelFloat, T: Target, const L: usize, const SET: bool>(w: &[E], dy: &[E], dx: &mut [E]) {
    let (n_in, n_out) = (features::<L>(dx.len()), features::<L>(dy.len()));
    assert_eq!(w.len(), n_out * n_in, "a weight matrix must hold n_out x n_in numbers");
    if SET && n_out == 0 {
        dx.fill(E::default());
    }
    let (mut start, mut pace) = (0, Pace::new());
    while start < n_out {
        let end = n_out.min(start + DEPTH);
        let job = Job { w, n_in, n_out, from: start, to: end, overwrites: SET && start == 0 };
        // SAFETY: the lengths were checked above, and the lanes are a multiple of a tile.
        unsafe {
            let mut lane = 0;
            if T::fits::<E::Vector>(24) {
                lane = input_columns::<E, T, L, 4>(lane, &job, dy, dx, &mut pace);
            }
            input_columns::<E, T, L, 1>(lane, &job, dy, dx, &mut pace);
        }
        start = end;
    }
}

/// Lanes `K` vectors at a time from `lane` on; returns the first lane left over.
///
/// # Safety
/// `job.w` holds `n_out x n_in` numbers, dy `n_out * L` and dx `n_in * L`; `from..to` are outputs.
#[inline(always)]
unsafe fn input_columns<E: KernelFloat, T: Target, const L: usize, const K: usize>(
    mut lane: usize,
    job: &Job<'_, E>,
    dy: &[E],
    dx: &mut [E],
    pace: &mut Pace,
) -> usize {
    let step = K * E::Vector::LANES;
    debug_assert!(L.is_multiple_of(step) && job.to <= job.n_out);
    while L - lane >= step {
        // SAFETY: as the caller promises.
        unsafe {
            let i = input_tiles::<E, T, L, K, 6>(0, lane, job, dy, dx, pace);
            let i = input_tiles::<E, T, L, K, 2>(i, lane, job, dy, dx, pace);
            input_tiles::<E, T, L, K, 1>(i, lane, job, dy, dx, pace);
        }
        lane += step;
    }
    lane
}

/// Inputs `R` at a time from `i` on; returns the first input left over.
///
/// # Safety
/// As [`input_columns`], and `lane + K * E::Vector::LANES` is at most `L`.
#[inline(always)]
unsafe fn input_tiles<E: KernelFloat, T: Target, const L: usize, const K: usize, const R: usize>(
    mut i: usize,
    lane: usize,
    job: &Job<'_, E>,
    dy: &[E],
    dx: &mut [E],
    pace: &mut Pace,
) -> usize {
    let Job { w, n_in, n_out, from, to, overwrites } = *job;
    let at = |row: usize, k: usize| row * L + lane + k * E::Vector::LANES;
    let zero = E::Vector::splat(E::default());
    debug_assert!(w.len() == n_out * n_in && dy.len() == n_out * L && dx.len() == n_in * L);
    while n_in - i >= R && pace.goes_on((to - from) * R * K * E::Vector::LANES) {
        // SAFETY: `i + r < n_in` and `o < n_out`, and the caller vouches for the lengths.
        unsafe {
            let mut sums: [[E::Vector; K]; R] =
                array_of(|r| array_of(|k| if overwrites { zero } else { E::Vector::read(dx, at(i + r, k)) }));
            for o in from..to {
                let dys: [E::Vector; K] = array_of(|k| E::Vector::read(dy, at(o, k)));
                let weights = w.get_unchecked(o * n_in + i..o * n_in + i + R);
                prefetch_far(w, (o + DEPTH) * n_in + i);
                for r in 0..R {
                    let weight = E::Vector::splat(*weights.get_unchecked(r));
                    for k in 0..K {
                        sums[r][k] = T::mul_add(weight, dys[k], sums[r][k]);
                    }
                }
            }
            for r in 0..R {
                for k in 0..K {
                    // Adding +0.0 turns a sum that is -0.0, the mark of "not reached", into +0.0.
                    (sums[r][k] + zero).write(dx, at(i + r, k));
                }
            }
        }
        i += R;
    }
    i
}
