//! sinh and cosh from an exponential and its inverse, both in two parts; their inverse functions and atanh from a logarithm
//! in two parts. f32 goes through f64.

use super::double::{Pair, any_sum, quotient, root, square};
use super::exp::{exp_sum_split_unclamped, scale};
use super::log::split;
use super::poly::{fast_two_sum, poly, two_sum};
use super::pow::log_pair;
use crate::simd::{Bits, Real};

/// 1/3!, 1/5!, ...: (sinh x - x) / x^3 in x^2, for |x| up to 1; the omitted terms are 2^-65 of it.
const SINH: [f64; 9] = [
    1.0 / 6.0,
    1.0 / 120.0,
    1.0 / 5040.0,
    1.0 / 362880.0,
    1.0 / 39916800.0,
    1.0 / 6227020800.0,
    1.0 / 1307674368000.0,
    1.0 / 355687428096000.0,
    1.0 / 121645100408832000.0,
];

/// e^|x| / 2 and e^-|x| / 2, each in two parts, the first before a last scaling by 2^n.
#[inline(always)]
fn half_exponentials<W: Real<Elem = f64>>(x: W) -> (Pair<W>, Pair<W>, W::Int) {
    let size = x.abs();
    let most = W::of(720.0);
    let size = W::select(size.is_gt(most), most, size);
    let (high, low, n) = exp_sum_split_unclamped(size, W::of(0.0));
    let (high, low) = fast_two_sum(high, low);
    // Relative to the same power of two, the inverse is 2^(-2n) / (high + low); beyond 2^-120 it is negligible.
    let steps = W::from_int(n);
    let most = W::of(60.0);
    let shown = W::select(steps.is_gt(most), most, steps);
    let down = W::exp2_int((W::of(-2.0) * shown).round_to_int().1);
    let inverse = quotient((down, W::of(0.0)), (high, low));
    ((high, low), inverse, n.minus(W::Int::splat(1)))
}

/// (e^x - e^-x) / 2.
#[inline(always)]
pub fn sinh<V: Real>(x: V) -> V {
    let wide = x.widen();
    let (up, down, n) = half_exponentials(wide);
    let (high, low) = any_sum(up, (-down.0, -down.1));
    let far = scale(high + low, n).copysign(wide);
    let z = wide * wide;
    let near = (wide * z).mul_add(poly(z, &SINH), wide);
    let y = V::Wide::select(wide.abs().is_lt(V::Wide::of(1.0)), near, far);
    // Infinities and NaN are returned unchanged.
    let plain = wide.abs().is_lt(V::Wide::of(f64::INFINITY));
    V::narrow(V::Wide::select(plain, y, wide))
}

/// (e^x + e^-x) / 2.
#[inline(always)]
pub fn cosh<V: Real>(x: V) -> V {
    let wide = x.widen();
    let (up, down, n) = half_exponentials(wide);
    let (high, low) = any_sum(up, down);
    let plain = wide.abs().is_lt(V::Wide::of(f64::INFINITY));
    V::narrow(V::Wide::select(plain, scale(high + low, n), wide.abs()))
}

/// log(x) + log(2^lift) for a positive normal x in two parts.
#[inline(always)]
fn log_of_pair<W: Real<Elem = f64>>(x: Pair<W>, lift: W) -> Pair<W> {
    let (n, m) = split(x.0);
    any_sum(log_pair(W::from_int(n) + lift, m), (x.1 / x.0, W::of(0.0)))
}

/// log(x + sqrt(x^2 + unit)) for x >= 0; above 2^60 it is log(2 x).
#[inline(always)]
fn inverse<W: Real<Elem = f64>>(x: W, unit: f64) -> W {
    let (zero, one) = (W::of(0.0), W::of(1.0));
    let far = x.is_gt(W::of(1152921504606846976.0));
    let near = W::select(far, one, x);
    let (high, low) = square(near);
    let (rest, lost) = two_sum(high, W::of(unit));
    let side = root(fast_two_sum(rest, lost + low));
    let whole = any_sum((near, zero), side);
    let argument = (W::select(far, x, whole.0), W::select(far, zero, whole.1));
    let (high, low) = log_of_pair(argument, W::select(far, one, zero));
    high + low
}

/// x and three more terms of an odd series, for |x| below 2^-10.
#[inline(always)]
fn near_zero<W: Real>(x: W, series: &[f64; 3]) -> W {
    let z = x * x;
    (x * z).mul_add(poly(z, series), x).copysign(x)
}

/// The number whose sinh is x.
#[inline(always)]
pub fn asinh<V: Real>(x: V) -> V {
    let wide = x.widen();
    let size = wide.abs();
    let far = inverse(size, 1.0).copysign(wide);
    let near = near_zero(wide, &[-1.0 / 6.0, 0.075, -15.0 / 336.0]);
    let y = V::Wide::select(size.is_lt(V::Wide::of(0.0009765625)), near, far);
    V::narrow(V::Wide::select(size.is_lt(V::Wide::of(f64::INFINITY)), y, wide))
}

/// The number not below 0 whose cosh is x; NaN below 1.
#[inline(always)]
pub fn acosh<V: Real>(x: V) -> V {
    let wide = x.widen();
    let (one, infinity) = (V::Wide::of(1.0), V::Wide::of(f64::INFINITY));
    let y = V::Wide::select(wide.is_lt(infinity), inverse(wide, -1.0), wide);
    V::narrow(V::Wide::select(wide.is_ge(one), y, V::Wide::of(f64::NAN)))
}

/// The number whose tanh is x: half the logarithm of (1 + x)/(1 - x).
#[inline(always)]
pub fn atanh<V: Real>(x: V) -> V {
    let wide = x.widen();
    let size = wide.abs();
    let (zero, one) = (V::Wide::of(0.0), V::Wide::of(1.0));
    let inside = V::Wide::select(size.is_lt(one), size, zero);
    let ratio = quotient(fast_two_sum(one, inside), fast_two_sum(one, -inside));
    let ratio = fast_two_sum(ratio.0, ratio.1);
    let (high, low) = log_of_pair(ratio, zero);
    let far = (V::Wide::of(0.5) * (high + low)).copysign(wide);
    let near = near_zero(wide, &[1.0 / 3.0, 0.2, 1.0 / 7.0]);
    let y = V::Wide::select(size.is_lt(V::Wide::of(0.0009765625)), near, far);
    let y = V::Wide::select(size.is_eq(one), V::Wide::of(f64::INFINITY).copysign(wide), y);
    V::narrow(V::Wide::select(size.is_le(one), y, V::Wide::of(f64::NAN)))
}
