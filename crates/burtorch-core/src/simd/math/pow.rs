//! pow: e^(y log |x|) with the logarithm in two parts, 68 bits of it right.
//!
//! A relative error of the logarithm is multiplied by up to 745 in the result, so a rounded logarithm would cost ten bits.
//! log m = 2s + 2/3 s z + 2/5 s z^2 + ..., s = f / (2 + f), z = s^2: the leading terms are carried in two parts, the
//! rest is a polynomial. f32 goes through plain f64. Signs, zeros and infinities follow C99 F.10.4.4.

use super::double::{Pair, pair, product, sum};
use super::exp::{exp_short, exp_sum_split, exp_sum_split_unclamped, scale};
use super::log::{LN2_HIGH, LN2_LOW, split};
use super::poly::{fast_two_sum, poly, two_sum};
use crate::simd::{Bits, Real, Truth};

/// sum of 2 z^k / (2k + 7), after the terms written out; error 2^-72.8 of the logarithm.
const LOG_REST: [f64; 7] = [
    0.28571428571433183,
    0.22222222220004062,
    0.18181818606694175,
    0.15384572803473187,
    0.13335767051748457,
    0.11684958172669277,
    0.11911693299865331,
];

const TWO_THIRDS: [f64; 2] = [0.6666666666666666, 3.700743415417188e-17];
const TWO_FIFTHS: [f64; 2] = [0.4, -2.2204460492503132e-17];

/// (2 atanh s - 2 s) / (s z) in z for results in f32; error 2^-44.9.
const ATANH_SHORT: [f64; 5] =
    [0.6666666667583525, 0.39999995610847705, 0.2857211029326162, 0.2217614144826479, 0.19584838545834135];

/// log(2^n m) in two parts.
#[inline(always)]
pub(super) fn log_pair<W: Real>(n: W, m: W) -> Pair<W> {
    let (two, f) = (W::of(2.0), m - W::of(1.0));
    let under = two + f;
    let under_low = f - (under - two);
    let s = f / under;
    let s = (s, ((-s).mul_add(under, f) - s * under_low) / under);
    let z = product(s, s);
    let rest = fast_two_sum(W::of(TWO_FIFTHS[0]), z.0 * poly(z.0, &LOG_REST));
    let fifths = (rest.0, rest.1 + W::of(TWO_FIFTHS[1]));
    let thirds = sum(pair(TWO_THIRDS), product(z, fifths));
    let near = sum((two * s.0, two * s.1), product(s, product(z, thirds)));
    let whole = sum((n * W::of(LN2_HIGH), n * W::of(LN2_LOW)), near);
    fast_two_sum(whole.0, whole.1)
}

/// log(2^n m) to 45 bits, enough for f32.
#[inline(always)]
fn log_short<W: Real>(n: W, m: W) -> W {
    let f = m - W::of(1.0);
    let s = f / (W::of(2.0) + f);
    let z = s * s;
    n.mul_add(W::of(std::f64::consts::LN_2), s * z.mul_add(poly(z, &ATANH_SHORT), W::of(2.0)))
}

/// Whether a number, at least 0, is an integer.
#[inline(always)]
fn is_integer<W: Real>(size: W) -> W::Mask {
    let unit = W::of(4503599627370496.0);
    size.is_ge(unit) | ((size + unit) - unit).is_eq(size)
}

/// log |x| in two parts, or to 45 bits; infinite at 0 and infinity.
#[inline(always)]
pub(super) fn log_of_size<W: Real<Elem = f64>, const SHORT: bool>(x: W) -> Pair<W> {
    let (zero, infinity) = (W::of(0.0), W::of(f64::INFINITY));
    let size = x.abs();
    let least = W::of(f64::MIN_POSITIVE);
    let plain = (size.is_ge(least) & size.is_lt(infinity)).all();
    let (mut scaled, mut lift) = (size, zero);
    if !plain {
        let small = size.is_lt(least);
        scaled = W::select(small, size * W::of(18014398509481984.0), size);
        lift = W::select(small, W::of(54.0), zero);
    }
    let (n, m) = split(scaled);
    let n = W::from_int(n) - lift;
    let mut log = if SHORT { (log_short(n, m), zero) } else { log_pair(n, m) };
    if !plain {
        log.0 = W::select(size.is_eq(zero), -infinity, log.0);
        log.0 = W::select(size.is_eq(infinity), infinity, log.0);
        log.1 = W::select(size.is_eq(zero) | size.is_eq(infinity), zero, log.1);
    }
    log
}

#[inline(always)]
fn power<W: Real<Elem = f64>, const SHORT: bool>(x: W, y: W) -> W {
    let zero = W::of(0.0);
    let log = log_of_size::<W, SHORT>(x);
    let exponent = y * log.0;
    let magnitude = if SHORT {
        // Where the exponential is out of its range, far outside that of f32, the power is 0 or infinite: infinities
        // may occur.
        let power = W::select(exponent.is_lt(W::of(-150.0)), zero, exp_short(exponent));
        W::select(exponent.is_gt(W::of(150.0)), W::of(f64::INFINITY), power)
    } else {
        let low = y.mul_add(log.0, -exponent) + y * log.1;
        // Far outside the range the low part is meaningless, at infinity it is NaN.
        let low = W::select(exponent.abs().is_lt(W::of(1000.0)), low, zero);
        let (high, low, n) = exp_sum_split(exponent, low);
        scale(high + low, n)
    };
    with_sign(x, y, magnitude)
}

/// |x|^y with the sign of x^y, or the value that C99 assigns.
#[inline(always)]
fn with_sign<W: Real>(x: W, y: W, magnitude: W) -> W {
    let (zero, one) = (W::of(0.0), W::of(1.0));
    // An infinite y has met a logarithm of 0 at x = -1.
    let magnitude = W::select(x.is_eq(-one), one, magnitude);
    let size = y.abs();
    let whole = is_integer(size);
    let odd = whole & !is_integer(size * W::of(0.5));
    let signed = W::select(odd, magnitude.copysign(one.copysign(x)), magnitude);
    let outside = x.is_lt(zero) & x.is_gt(W::of(f64::NEG_INFINITY)) & !whole;
    let signed = W::select(outside | x.is_nan() | y.is_nan(), W::of(f64::NAN), signed);
    W::select(x.is_eq(one) | y.is_eq(zero), one, signed)
}

/// x to the power y.
#[inline(always)]
pub fn pow<V: Real>(x: V, y: V) -> V {
    let (x, y) = (x.widen(), y.widen());
    V::narrow(if V::DOUBLE { power::<V::Wide, false>(x, y) } else { power::<V::Wide, true>(x, y) })
}

/// `factor |x|^(y + low)` with one rounding of the product, for a factor of any magnitude in two parts: an overflow or
/// underflow of the power alone does not matter.
#[inline(always)]
fn scaled_power<W: Real<Elem = f64>>(log: Pair<W>, y: W, y_low: W, factor: Pair<W>) -> W {
    let zero = W::of(0.0);
    let exponent = y * log.0;
    let low = y.mul_add(log.0, -exponent) + y.mul_add(log.1, y_low * log.0);
    // Beyond these the product is 0 or infinite whatever the factor.
    let most = W::of(1500.0);
    let low = W::select(exponent.abs().is_lt(most), low, zero);
    let exponent = W::select(exponent.is_gt(most), most, exponent);
    let exponent = W::select(exponent.is_lt(-most), -most, exponent);
    let (high, low, steps) = exp_sum_split_unclamped(exponent, low);
    let (high, low) = fast_two_sum(high, low);
    // The factor as 2^k m, also where it is subnormal.
    let is_small = factor.0.abs().is_lt(W::of(1e-290));
    let lift = W::select(is_small, W::of(18014398509481984.0), W::of(1.0));
    let size = (factor.0 * lift).abs();
    let (k, m) = split(size);
    let m_low = scale(factor.1 * lift, W::Int::splat(0).minus(k));
    let total = W::from_int(steps) + W::from_int(k) - W::select(is_small, W::of(54.0), zero);
    let total = W::select(total.is_gt(W::of(1100.0)), W::of(1100.0), total);
    let total = W::select(total.is_lt(W::of(-1200.0)), W::of(-1200.0), total);
    let m_low = W::select(factor.0.is_lt(zero), -m_low, m_low);
    let whole = product((m, m_low), (high, low));
    let result = scale(whole.0 + whole.1, total.round_to_int().1);
    W::select(factor.0.is_eq(zero), zero, result.copysign(factor.0))
}

/// `power factor`, 0 if the power is 0, even with an infinite factor.
#[inline(always)]
fn unless_zero<W: Real>(power: W, factor: W) -> W {
    W::select(power.is_eq(W::of(0.0)), power, power * factor)
}

#[inline(always)]
fn pow_dx_of<W: Real<Elem = f64>, const SHORT: bool>(x: W, y: W) -> W {
    let (zero, one) = (W::of(0.0), W::of(1.0));
    let log = log_of_size::<W, SHORT>(x);
    let (less, rest) = two_sum(y, -one);
    let size = if SHORT { y * exp_short(less * log.0) } else { scaled_power(log, less, rest, (y, zero)) };
    let size = W::select(y.is_eq(one), one, size);
    let whole = is_integer(y.abs());
    // x^(y - 1) is odd if y is even.
    let even = whole & is_integer(y.abs() * W::of(0.5));
    let signed = W::select(even, size * one.copysign(x), size);
    let outside = x.is_lt(zero) & x.is_gt(W::of(f64::NEG_INFINITY)) & !whole;
    let signed = W::select(outside | x.is_nan() | y.is_nan(), W::of(f64::NAN), signed);
    // An infinite exponent has no neighbours: the value is the limit of the formula.
    let infinite = y.abs().is_eq(W::of(f64::INFINITY));
    let slope =
        if infinite.any() { W::select(infinite, unless_zero(power::<W, SHORT>(x, y), y), signed) } else { signed };
    W::select(y.is_eq(zero), W::select(x.is_nan(), x, zero), slope)
}

/// The derivative of `x^y` by x: `y x^(y - 1)`, with all digits of `y - 1`; 0 where the exponent is 0, as the power is then
/// constant.
#[inline(always)]
pub fn pow_dx<V: Real>(x: V, y: V) -> V {
    let (x, y) = (x.widen(), y.widen());
    V::narrow(if V::DOUBLE { pow_dx_of::<V::Wide, false>(x, y) } else { pow_dx_of::<V::Wide, true>(x, y) })
}

#[inline(always)]
fn pow_dy_of<W: Real<Elem = f64>, const SHORT: bool>(x: W, y: W) -> W {
    let (zero, one) = (W::of(0.0), W::of(1.0));
    let log = log_of_size::<W, SHORT>(x);
    let inside = if SHORT { exp_short(y * log.0) * log.0 } else { scaled_power(log, y, zero, log) };
    // 1^y and x^0 are constant, even if y or log x is infinite.
    let inside = W::select(x.is_eq(one), zero, inside);
    let infinite = y.abs().is_eq(W::of(f64::INFINITY)) | x.is_eq(W::of(f64::INFINITY));
    let inside =
        if infinite.any() { W::select(infinite, unless_zero(power::<W, SHORT>(x, y), log.0), inside) } else { inside };
    let inside = W::select(x.is_lt(zero) | x.is_nan() | y.is_nan(), W::of(f64::NAN), inside);
    let at_zero = W::select(y.is_lt(zero), W::of(f64::NEG_INFINITY), W::select(y.is_nan(), y, zero));
    W::select(x.is_eq(zero), at_zero, inside)
}

/// The derivative of `x^y` by y: `x^y log x`; 0 at x = 0 where the power is flat to the right of y (chosen at 0^0), NaN for
/// negative x.
#[inline(always)]
pub fn pow_dy<V: Real>(x: V, y: V) -> V {
    let (x, y) = (x.widen(), y.widen());
    V::narrow(if V::DOUBLE { pow_dy_of::<V::Wide, false>(x, y) } else { pow_dy_of::<V::Wide, true>(x, y) })
}
