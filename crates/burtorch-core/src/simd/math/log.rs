//! log, log1p and softplus.
//!
//! x = 2^n m with m between 1/sqrt(2) and sqrt(2), f = m - 1 exact. log x = n ln 2 + f - (f^2/2 - tail), where the two
//! leading terms n ln 2 + f are added exactly and everything after them is small.

use super::exp::{Faded, faded};
use super::poly::poly;
use crate::simd::{Bits, Real, Truth};

/// (2 atanh s - 2 s) / (s z) in z = s^2, s = f / (2 + f); error 2^-59.5 relative.
const ATANH: [f64; 7] = [
    0.6666666666666735,
    0.3999999999941039,
    0.28571428743281085,
    0.22222198484889175,
    0.18183568826601407,
    0.15313936241385087,
    0.1479709457852216,
];

/// (log(1 + f) - f + f^2/2) / f^3 for f32, error 2^-30.4 relative to log(1 + f).
const TAIL_F32: [f64; 9] = [
    0.3333331048488617,
    -0.24999986588954926,
    0.20002223551273346,
    -0.16669246554374695,
    0.14218713343143463,
    -0.12384483218193054,
    0.11872739344835281,
    -0.11788821220397949,
    0.06914588063955307,
];

pub(super) const LN2_HIGH: f64 = 0.6931471805598903;
pub(super) const LN2_LOW: f64 = 5.497923018708371e-14;
const LN2_HIGH_F32: f64 = 0.693145751953125;
const LN2_LOW_F32: f64 = 1.4286068203094173e-06;

/// A positive, finite, normal x as n and m with x = 2^n m, m from 1/sqrt(2) to sqrt(2).
#[inline(always)]
pub(super) fn split<V: Real>(x: V) -> (V::Int, V) {
    let root_half = V::of(std::f64::consts::FRAC_1_SQRT_2).to_bits();
    // The bias keeps the shifted number positive, so that a logical shift will do.
    let bias = V::Int::splat(V::BIAS).shift_left(V::STORED_BITS);
    let bits = x.to_bits();
    let n = bits.minus(root_half).plus(bias).shift_right(V::STORED_BITS).minus(V::Int::splat(V::BIAS));
    (n, V::from_bits(bits.minus(n.shift_left(V::STORED_BITS))))
}

/// log(2^n m) + low, for m from 1/sqrt(2) to sqrt(2) and `low` small beside m - 1.
#[inline(always)]
fn log_of_parts<V: Real>(n: V, m: V, low: V) -> V {
    let one = V::of(1.0);
    let f = m - one;
    let (ln2_high, ln2_low) = if V::DOUBLE { (LN2_HIGH, LN2_LOW) } else { (LN2_HIGH_F32, LN2_LOW_F32) };
    let half = V::of(0.5) * f;
    // The rounding error of f^2/2 is below the precision of the final sum.
    let half_square = half * f;
    let tail = if V::DOUBLE {
        // m + 1 equals 2 + f, and need not wait for f.
        let s = f / (m + one);
        let z = s * s;
        s * z.mul_add(poly(z, &ATANH), half_square)
    } else {
        f * f * f * poly(f, &TAIL_F32)
    };
    // n times the high part is exact, so fusing it changes no bit.
    let high = n.mul_add(V::of(ln2_high), f);
    let rest = f - (-n).mul_add(V::of(ln2_high), high);
    let rest = n.mul_add(V::of(ln2_low), rest + low);
    high - (half_square - (tail + rest))
}

/// log x.
#[inline(always)]
pub fn log<V: Real>(x: V) -> V {
    let least = V::of(if V::DOUBLE { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE as f64 });
    let infinity = V::of(f64::INFINITY);
    if (x.is_ge(least) & x.is_lt(infinity)).all() {
        return log_normal(x, V::of(0.0));
    }
    // Subnormals are scaled into the normal range first.
    let bits = V::STORED_BITS as i32 + 2;
    let zero = V::of(0.0);
    let small = x.is_lt(least);
    let scaled = V::select(small, x * V::of(2f64.powi(bits)), x);
    let y = log_normal(scaled, V::select(small, V::of(bits as f64), zero));
    let y = V::select(x.is_lt(infinity), y, x);
    let y = V::select(x.is_eq(zero), -infinity, y);
    V::select(x.is_lt(zero), V::of(f64::NAN), y)
}

/// log(2^-lift x) for positive, finite, normal x.
#[inline(always)]
fn log_normal<V: Real>(x: V, lift: V) -> V {
    let (n, m) = split(x);
    log_of_parts(V::from_int(n) - lift, m, V::of(0.0))
}

/// log(1 + x) for finite x > -1.
#[inline(always)]
fn log1p_sum<V: Real>(x: V) -> V {
    let one = V::of(1.0);
    let sum = one + x;
    let lost = V::select(x.abs().is_gt(one), one - (sum - x), x - (sum - one));
    let (n, m) = split(sum);
    // log(sum + lost) = log(sum) + lost / sum to first order, which is accurate enough.
    log_of_parts(V::from_int(n), m, lost / sum)
}

/// log(1 + x).
#[inline(always)]
pub fn log1p<V: Real>(x: V) -> V {
    let infinity = V::of(f64::INFINITY);
    let least = V::of(-1.0);
    let mut y = log1p_sum(x);
    if !(x.is_gt(least) & x.is_lt(infinity)).all() {
        y = V::select(x.is_lt(infinity), y, x);
        y = V::select(x.is_eq(least), -infinity, y);
        y = V::select(x.is_lt(least), V::of(f64::NAN), y);
    }
    // The logarithm has the sign of x, also for 0.
    V::select(x.is_eq(V::of(0.0)), x, y)
}

/// log(1 + e^x) = max(x, 0) + log1p(e^-|x|), the exponential in two parts.
#[inline(always)]
pub fn softplus<V: Real>(x: V) -> V {
    softplus_of(x, faded(x))
}

/// The same of the shared part, for e <= 1.
#[inline(always)]
pub(super) fn softplus_of<V: Real>(x: V, Faded { low, sum, lost, .. }: Faded<V>) -> V {
    let zero = V::of(0.0);
    // As `log1p_sum`.
    let (n, m) = split(sum);
    let small = log_of_parts(V::from_int(n), m, (lost + low) / sum);
    V::select(x.is_gt(zero), x, zero) + small
}
