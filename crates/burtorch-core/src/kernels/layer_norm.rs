//! Layer normalisation over features, tokens (or samples) along `L` lanes.
//!
//! `y = gain * (x - mean) / sqrt(variance + eps) + bias`, with the biased variance of two passes. The forward pass
//! stores mean and 1/sqrt(variance + eps) per lane in `stats`; the backward passes need only these and x.
//! Promises: parameter gradients add lanes in the order 0, 1, 2, ...
//! Does not know residual streams.

use super::Mode;
use super::elementwise::contribute;
use super::float::{KernelFloat, Pack};
use super::lanes::{features, transposed};
use super::levels::{Target, leveled};
use crate::simd::{Real, array_of};

leveled! {
    /// Normalises `x`, `n x L`, into `y`; `gain` and `bias` hold n numbers, `stats` receives `2 x L`.
    pub fn layer_norm_forward_lanes<E, const L>(
        x: &[E],
        gain: &[E],
        bias: &[E],
        eps: E,
        y: &mut [E],
        stats: &mut [E],
    ) = forward_at;

    /// The gradient of the input: `dx = ..`, or `dx += ..`.
    pub fn layer_norm_input_grad_lanes<E, const L>(
        x: &[E],
        stats: &[E],
        gain: &[E],
        dy: &[E],
        dx: &mut [E],
        mode: Mode,
    ) = input_grad_at;

    /// The gradients of gain and bias, summed over lanes: set, or added.
    pub fn layer_norm_weight_grad_lanes<E, const L>(
        x: &[E],
        stats: &[E],
        dy: &[E],
        gain_grad: &mut [E],
        bias_grad: &mut [E],
        mode: Mode,
    ) = weight_grad_at;
}

/// Sums `term(i)` over the features. Departure: four alternating sums, because each addition takes 4 cycles.
macro_rules! feature_sum {
    ($n:expr, |$i:ident, $sum:ident| $next:expr) => {{
        let mut sums = [E::V::<L>::of(0.0); 4];
        let mut first = 0;
        while first < $n {
            for a in 0..4 {
                let $i = first + a;
                if $i < $n {
                    let $sum = sums[a];
                    sums[a] = $next;
                }
            }
            first += 4;
        }
        (sums[0] + sums[1]) + (sums[2] + sums[3])
    }};
}

#[inline(always)]
fn forward_at<E: KernelFloat, T: Target, const L: usize>(
    x: &[E],
    gain: &[E],
    bias: &[E],
    eps: E,
    y: &mut [E],
    stats: &mut [E],
) {
    let n = features::<L>(x.len());
    assert!(y.len() == x.len() && stats.len() == 2 * L, "kernel operands differ in length");
    assert!(gain.len() == n && bias.len() == n, "gain and bias must hold one number per feature");
    let share = E::V::<L>::of(1.0) / E::V::<L>::of(n as f64);
    // SAFETY: `i < n`; x and y hold `n * L` numbers, gain and bias n, stats `2 * L`.
    unsafe {
        let mean = feature_sum!(n, |i, sum| sum + E::V::<L>::read(x, i * L)) * share;
        let squares = feature_sum!(n, |i, sum| {
            let off = E::V::<L>::read(x, i * L) - mean;
            T::mul_add(off, off, sum)
        });
        let scale = E::V::<L>::of(1.0) / T::mul_add(squares, share, E::V::splat(eps)).sqrt();
        for i in 0..n {
            let unit = (E::V::<L>::read(x, i * L) - mean) * scale;
            let gain = E::V::splat(*gain.get_unchecked(i));
            let bias = E::V::splat(*bias.get_unchecked(i));
            T::mul_add(unit, gain, bias).write(y, i * L);
        }
        mean.write(stats, 0);
        scale.write(stats, L);
    }
}

/// With `u` the normalised input and `a = gain * dy`: `dx = (a - mean(a) - u * mean(a * u)) / sqrt(variance + eps)`.
#[inline(always)]
fn input_grad_at<E: KernelFloat, T: Target, const L: usize>(
    x: &[E],
    stats: &[E],
    gain: &[E],
    dy: &[E],
    dx: &mut [E],
    mode: Mode,
) {
    let n = features::<L>(x.len());
    assert!(dx.len() == x.len() && dy.len() == x.len() && stats.len() == 2 * L, "kernel operands differ in length");
    assert!(gain.len() == n, "gain and bias must hold one number per feature");
    let share = E::V::<L>::of(1.0) / E::V::<L>::of(n as f64);
    // SAFETY: `i < n`; x, dy and dx hold `n * L` numbers, gain n, stats `2 * L`.
    unsafe {
        let (mean, scale) = (E::V::<L>::read(stats, 0), E::V::<L>::read(stats, L));
        let part = |i: usize| E::V::<L>::splat(*gain.get_unchecked(i)) * E::V::read(dy, i * L);
        let level = feature_sum!(n, |i, sum| sum + part(i)) * share;
        let slope = feature_sum!(n, |i, sum| T::mul_add(part(i), (E::V::read(x, i * L) - mean) * scale, sum)) * share;
        for i in 0..n {
            let unit = (E::V::<L>::read(x, i * L) - mean) * scale;
            let change = T::mul_add(-unit, slope, part(i) - level) * scale;
            match mode {
                Mode::Set => contribute::<E::V<L>, true>(i * L, change, dx),
                Mode::Add => contribute::<E::V<L>, false>(i * L, change, dx),
            }
        }
    }
}

/// Simply: `dgain[i] += sum over lanes of dy * u` and `dbias[i] += sum of dy`. Departure: L features at a time are
/// transposed in registers, so that L sums run side by side, each adding the lanes in order.
#[inline(always)]
fn weight_grad_at<E: KernelFloat, T: Target, const L: usize>(
    x: &[E],
    stats: &[E],
    dy: &[E],
    gain_grad: &mut [E],
    bias_grad: &mut [E],
    mode: Mode,
) {
    let n = features::<L>(x.len());
    assert!(dy.len() == x.len() && stats.len() == 2 * L, "kernel operands differ in length");
    assert!(gain_grad.len() == n && bias_grad.len() == n, "gain and bias must hold one number per feature");
    if mode == Mode::Set {
        gain_grad.fill(E::default());
        bias_grad.fill(E::default());
    }
    let mut i = 0;
    // SAFETY: `i + r < n`; x and dy hold `n * L` numbers, the gradients n, stats `2 * L`.
    unsafe {
        let (mean, scale) = (E::V::<L>::read(stats, 0), E::V::<L>::read(stats, L));
        let term = |i: usize| E::V::read(dy, i * L) * ((E::V::<L>::read(x, i * L) - mean) * scale);
        while n - i >= L {
            let mut sums = (E::V::<L>::read(gain_grad, i), E::V::<L>::read(bias_grad, i));
            let gain_terms: [_; L] = transposed(array_of(|r| term(i + r)));
            let bias_terms: [_; L] = transposed(array_of(|r| E::V::read(dy, (i + r) * L)));
            for l in 0..L {
                sums = (sums.0 + gain_terms[l], sums.1 + bias_terms[l]);
            }
            sums.0.write(gain_grad, i);
            sums.1.write(bias_grad, i);
            i += L;
        }
        for i in i..n {
            for l in 0..L {
                gain_grad[i] = gain_grad[i] + term(i).lane(l);
                bias_grad[i] = bias_grad[i] + dy[i * L + l];
            }
        }
    }
}
