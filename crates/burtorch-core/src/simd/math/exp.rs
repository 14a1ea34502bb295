//! exp and expm1.
//!
//! x = n ln 2 + r with |r| <= ln 2 / 2, the reduced argument in two parts; e^r = 1 + r + q with a polynomial for
//! q = e^r - 1 - r that also takes up the low part of r. What is left to round is then one sum and one scaling.

use super::poly::{fast_two_sum, poly};
use crate::simd::{Bits, Real};

/// (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, error 2^-61.7 relative to r.
const TAIL: [f64; 11] = [
    0.5,
    0.16666666666666677,
    0.04166666666666668,
    0.008333333333321442,
    0.0013888888888877076,
    0.00019841269886569808,
    2.4801587341890247e-05,
    2.755724378612542e-06,
    2.7557257794729756e-07,
    2.510917872397945e-08,
    2.092000703202781e-09,
];

/// The same for f32, error 2^-31.1.
const TAIL_F32: [f64; 6] = [
    0.5,
    0.1666666716337204,
    0.041666485369205475,
    0.008333193138241768,
    0.0013933012960478663,
    0.00019957698532380164,
];

const LN2_HIGH: f64 = 0.6931471805598903;
const LN2_LOW: f64 = 5.497923018708371e-14;
const LN2_HIGH_F32: f64 = 0.693145751953125;
const LN2_LOW_F32: f64 = 1.4286068203094173e-06;

/// e^x = 2^n (1 + r + q).
pub(super) struct Parts<V: Real> {
    pub(super) n: V::Int,
    pub(super) r: V,
    pub(super) q: V,
}

/// Splits e^(x + low) for |x| up to 1100 (f32: 160), with `low` small beside x.
#[inline(always)]
pub(super) fn parts<V: Real>(x: V, low: V) -> Parts<V> {
    // The high part of ln 2 is short enough for n times it to be exact.
    let (ln2_high, ln2_low) = if V::DOUBLE { (LN2_HIGH, LN2_LOW) } else { (LN2_HIGH_F32, LN2_LOW_F32) };
    let (steps, n) = (x * V::of(std::f64::consts::LOG2_E)).round_to_int();
    let near = (-steps).mul_add(V::of(ln2_high), x);
    let r = (-steps).mul_add(V::of(ln2_low), near);
    let rest = (-steps).mul_add(V::of(ln2_low), near - r) + low;
    let tail = if V::DOUBLE { poly(r, &TAIL) } else { poly(r, &TAIL_F32) };
    let q = tail.mul_add(r * r, rest.mul_add(r, rest));
    Parts { n, r, q }
}

/// 2^n y in two steps, so that neither factor leaves the range and a subnormal result is rounded once.
#[inline(always)]
pub(super) fn scale<V: Real>(y: V, n: V::Int) -> V {
    let biased = n.plus(V::Int::splat(2 * V::BIAS));
    let first = biased.shift_right(1);
    let second = biased.minus(first);
    let first = V::from_bits(first.shift_left(V::STORED_BITS));
    y * first * V::from_bits(second.shift_left(V::STORED_BITS))
}

/// e^(x + low) for any x, with `low` small beside x.
#[inline(always)]
pub(super) fn exp_sum<V: Real>(x: V, low: V) -> V {
    // Beyond these the result is infinite or 0; a NaN passes both comparisons unchanged.
    let (least, most) = if V::DOUBLE { (-746.0, 710.0) } else { (-104.0, 89.0) };
    let x = V::select(x.is_lt(V::of(least)), V::of(least), x);
    let x = V::select(x.is_gt(V::of(most)), V::of(most), x);
    let Parts { n, r, q } = parts(x, low);
    let (high, low) = fast_two_sum(V::of(1.0), r);
    scale(high + (low + q), n)
}

/// e^x.
#[inline(always)]
pub fn exp<V: Real>(x: V) -> V {
    exp_sum(x, V::of(0.0))
}

/// (e^x - 1) / 2 for |x| up to 710 (f32: 89).
#[inline(always)]
pub(super) fn half_expm1<V: Real>(x: V) -> V {
    let Parts { n, r, q } = parts(x, V::of(0.0));
    let power = V::exp2_int(n.minus(V::Int::splat(1)));
    // Halves of 2^n (1 + r + q) - 1: no overflow at n = 1024. 2^n - 1 exceeds 2^n r, save at n = 0 where it is 0.
    let (high, low) = fast_two_sum(power - V::of(0.5), power * r);
    high + power.mul_add(q, low)
}

/// e^x - 1.
#[inline(always)]
pub fn expm1<V: Real>(x: V) -> V {
    let (least, most, tiny) = if V::DOUBLE { (-50.0, 710.0, 1e-17) } else { (-20.0, 89.0, 1e-9) };
    let near = V::select(x.is_lt(V::of(least)), V::of(least), x);
    let near = V::select(near.is_gt(V::of(most)), V::of(most), near);
    let half = half_expm1(near);
    // Below `tiny` the value is x; halving there would lose a subnormal's last bit and the sign of 0.
    V::select(x.abs().is_lt(V::of(tiny)), x, half + half)
}
