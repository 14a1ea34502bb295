//! exp and expm1.
//!
//! x = n ln 2 + r with |r| <= ln 2 / 2, the reduced argument in two parts; e^r = 1 + r + q with a polynomial for
//! q = e^r - 1 - r that also takes up the low part of r. What is left to round is then one sum and one scaling.

use super::poly::{fast_two_sum, poly, two_sum};
use crate::simd::{Bits, Real, Truth};

/// (e^r - 1 - r - r^2/2) / r^3 on |r| <= ln 2 / 2; error of e^r - 1 2^-61.7.
const TAIL: [f64; 10] = [
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
const TAIL_F32: [f64; 5] =
    [0.1666666716337204, 0.041666485369205475, 0.008333193138241768, 0.0013933012960478663, 0.00019957698532380164];

/// (e^r - 1 - r) / r^2 in f64, for results in f32; error 2^-37.4.
const TAIL_SHORT: [f64; 7] = [
    0.5,
    0.16666666754699755,
    0.041666666790396205,
    0.008333288898026116,
    0.0013888835430434703,
    0.0001990500370850749,
    2.4870503396112542e-05,
];

const LN2_HIGH: f64 = 0.6931471805598903;
const LN2_LOW: f64 = 5.497923018708371e-14;
const LN2_HIGH_F32: f64 = 0.693145751953125;
const LN2_LOW_F32: f64 = 1.4286068203094173e-06;

/// x = n ln 2 + r + rest for |x| up to 2000 (f32: 160).
#[inline(always)]
fn reduce<V: Real>(x: V) -> (V::Int, V, V) {
    // The high part of ln 2 is short enough for n times it to be exact.
    let (ln2_high, ln2_low) = if V::DOUBLE { (LN2_HIGH, LN2_LOW) } else { (LN2_HIGH_F32, LN2_LOW_F32) };
    let (steps, n) = x.rounded_multiple(V::of(std::f64::consts::LOG2_E));
    let near = (-steps).mul_add(V::of(ln2_high), x);
    let r = (-steps).mul_add(V::of(ln2_low), near);
    (n, r, (-steps).mul_add(V::of(ln2_low), near - r))
}

/// e^(r + rest) - 1 - r - r^2/2, for `rest` below the last place of r and `square` = r^2.
#[inline(always)]
fn tail<V: Real>(r: V, rest: V, square: V) -> V {
    let tail = if V::DOUBLE { poly(r, &TAIL) } else { poly(r, &TAIL_F32) };
    tail.mul_add(r * square, rest.mul_add(r, rest))
}

/// e^(r + rest) as the rounded 1 + r and the rest.
#[inline(always)]
fn exp_near_zero<V: Real>(r: V, rest: V) -> (V, V) {
    let square = r * r;
    let (high, low) = fast_two_sum(V::of(1.0), r);
    (high, low + V::of(0.5).mul_add(square, tail(r, rest, square)))
}

/// 2^n y in two steps, so that neither factor leaves the range and a subnormal result is rounded once.
#[inline(always)]
pub(super) fn scale<V: Real>(y: V, n: V::Int) -> V {
    // Both factors' exponents in place: half of the biased sum rounded down, and the rest.
    let biased = n.plus(V::Int::splat(2 * V::BIAS));
    let mask = V::Int::splat(-1).shift_left(V::STORED_BITS);
    let first = biased.shift_left(V::STORED_BITS - 1).and(mask);
    let second = biased.shift_left(V::STORED_BITS).minus(first);
    y * V::from_bits(first) * V::from_bits(second)
}

/// Clamps x to a little more than the range in which e^x is neither 0 nor infinite; NaN stays.
#[inline(always)]
fn clamp<V: Real>(x: V) -> V {
    // Far enough below the smallest subnormal that a factor of a thousand still gives 0.
    let (least, most) = if V::DOUBLE { (-760.0, 710.0) } else { (-120.0, 89.0) };
    let x = V::select(x.is_lt(V::of(least)), V::of(least), x);
    V::select(x.is_gt(V::of(most)), V::of(most), x)
}

/// e^x as 2^n m, with m from 0.7 to 1.42 in two parts.
#[inline(always)]
pub(super) fn exp_split<V: Real>(x: V) -> (V, V, V::Int) {
    let (n, r, rest) = reduce(clamp(x));
    let (high, low) = exp_near_zero(r, rest);
    (high, low, n)
}

/// e^(x + low) likewise, with `low` below the last place of x.
#[inline(always)]
pub(super) fn exp_sum_split<V: Real>(x: V, low: V) -> (V, V, V::Int) {
    exp_sum_split_unclamped(clamp(x), low)
}

/// The same for f64 and |x| up to 2000, far beyond the range in which e^x is finite and nonzero.
#[inline(always)]
pub(super) fn exp_sum_split_unclamped<V: Real>(x: V, low: V) -> (V, V, V::Int) {
    let (n, r, rest) = reduce(x);
    // The low part of a large x spans many places of r.
    let (r, rest) = fast_two_sum(r, rest + low);
    let (high, low) = exp_near_zero(r, rest);
    (high, low, n)
}

/// Whether, in all lanes, 2^n is normal wherever e^x = 2^n m: then nothing needs clamping, and one scaling rounds like
/// two.
#[inline(always)]
fn is_moderate<V: Real>(size: V) -> bool {
    size.is_lt(V::of(if V::DOUBLE { 700.0 } else { 86.0 })).all()
}

/// e^x.
#[inline(always)]
pub fn exp<V: Real>(x: V) -> V {
    let (n, r, rest) = reduce(x);
    let (high, low) = exp_near_zero(r, rest);
    let y = (high + low) * V::exp2_int(n);
    // Checked last, so that no computation waits for the branch.
    if is_moderate(x.abs()) {
        return y;
    }
    let (high, low, n) = exp_split(x);
    scale(high + low, n)
}

/// e^-size in two parts, for size >= 0: the rounded sum and its error.
#[inline(always)]
fn exp_of_minus<V: Real>(size: V) -> (V, V) {
    let (n, r, rest) = reduce(-size);
    let (high, low) = exp_near_zero(r, rest);
    let (high, low) = fast_two_sum(high, low);
    let power = V::exp2_int(n);
    if is_moderate(size) {
        return (high * power, low * power);
    }
    let (high, low, n) = exp_split(-size);
    let (high, low) = fast_two_sum(high, low);
    (scale(high, n), scale(low, n))
}

/// What softplus and sigmoid share: e = exp(-|x|) and 1 + e, both in two parts.
#[derive(Clone, Copy)]
pub(super) struct Faded<V> {
    pub(super) e: V,
    pub(super) low: V,
    pub(super) sum: V,
    pub(super) lost: V,
}

#[inline(always)]
pub(super) fn faded<V: Real>(x: V) -> Faded<V> {
    let (e, low) = exp_of_minus(x.abs());
    let (sum, lost) = fast_two_sum(V::of(1.0), e);
    Faded { e, low, sum, lost }
}

/// e^x to 37 bits in f64, for results in f32: magnitudes end at e^200 and e^-200.
#[inline(always)]
pub(super) fn exp_short<W: Real>(x: W) -> W {
    let most = W::of(200.0);
    let x = W::select(x.is_gt(most), most, x);
    let x = W::select(x.is_lt(-most), -most, x);
    let (steps, n) = (x * W::of(std::f64::consts::LOG2_E)).round_to_int();
    let r = (-steps).mul_add(W::of(std::f64::consts::LN_2), x);
    (r * r).mul_add(poly(r, &TAIL_SHORT), W::of(1.0) + r) * W::exp2_int(n)
}

/// (e^x - 1) / 2 for |x| up to 710 (f32: 89); `fine` if half a place of the result matters.
#[inline(always)]
pub(super) fn half_expm1<V: Real>(x: V, fine: bool) -> V {
    let (n, r, rest) = reduce(x);
    let power = V::exp2_int(n.minus(V::Int::splat(1)));
    let square = r * r;
    let half_square = V::of(0.5) * square;
    let tail = tail(r, rest, square);
    // Halves of 2^n (1 + r + r^2/2 + tail) - 1: no overflow at n = 1024. Each term is smaller than the sum before it,
    // except at n = 0, where the first is 0.
    if !fine {
        let (high, low) = fast_two_sum(power - V::of(0.5), power * r);
        return high + power.mul_add(half_square + tail, low);
    }
    let square_low = V::of(0.5) * r.mul_add(r, -square);
    let (high, low0) = two_sum(power, V::of(-0.5));
    let (high, low1) = fast_two_sum(high, power * r);
    let (high, low2) = fast_two_sum(high, power * half_square);
    high + power.mul_add(tail + square_low, low0 + low1 + low2)
}

/// e^x - 1.
#[inline(always)]
pub fn expm1<V: Real>(x: V) -> V {
    let (least, most, tiny) = if V::DOUBLE { (-50.0, 710.0, 1e-17) } else { (-20.0, 89.0, 1e-9) };
    let near = V::select(x.is_lt(V::of(least)), V::of(least), x);
    let near = V::select(near.is_gt(V::of(most)), V::of(most), near);
    let half = half_expm1(near, true);
    // Below `tiny` the value is x; halving would lose the last bit of a subnormal, and the sign of 0.
    V::select(x.abs().is_lt(V::of(tiny)), x, half + half)
}
