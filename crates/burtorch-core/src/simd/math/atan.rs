//! atan2, the angle of a point, and the inverse functions of sin, cos and tan, which are angles too.
//!
//! The smaller over the larger coordinate, or (a - b) / (a + b) where that is above tan(pi/8), is at most tan(pi/8);
//! its arc tangent is a short odd series; octant and half plane come back as an exact multiple of pi/4 plus a rest.

use super::double::{root, square};
use super::exp::scale;
use super::log::split;
use super::poly::{fast_two_sum, poly, two_sum};
use crate::simd::{Bits, Real, Truth};

/// (atan t - t) / t^3 in t^2, |t| <= tan(pi/8); error 2^-63.8 relative.
const ATAN: [f64; 12] = [
    -0.33333333333333326,
    0.19999999999997178,
    -0.14285714285334683,
    0.11111111085246479,
    -0.09090908049805013,
    0.07692280816229206,
    -0.06666200474898491,
    0.058767839519925605,
    -0.05216979205865217,
    0.04498121744013303,
    -0.03335547596145023,
    0.015080845469252573,
];

/// The same for results in f32; error 2^-40.2.
const ATAN_SHORT: [f64; 7] = [
    -0.3333333329590934,
    0.19999994340205052,
    -0.14285423890503285,
    0.11104004056526469,
    -0.08996802152592069,
    0.06990881950868377,
    -0.03791575613734517,
];

/// pi/4 in two parts; the first ends in three zeros, so small multiples of it are exact.
const PIO4: [f64; 2] = [std::f64::consts::FRAC_PI_4, 3.061616997868383e-17];

/// tan(pi/8), above which the ratio is turned by pi/4.
const TURN: f64 = 0.41421356237309503;

/// The coordinates, scaled so that the larger magnitude `b` is near 1 if their ratio could leave the range.
#[inline(always)]
fn bring_in_range<W: Real>(a: W, b: W) -> (W, W) {
    let (zero, one, infinity) = (W::of(0.0), W::of(1.0), W::of(f64::INFINITY));
    let scale = W::select(b.is_gt(W::of(1e150)), W::of(2f64.powi(-500)), one);
    let scale = W::select(b.is_lt(W::of(1e-150)), W::of(2f64.powi(600)), scale);
    let (mut low, mut high) = (a * scale, b * scale);
    // Two zeros have the ratio 0, two infinities 1, a number and infinity 0.
    high = W::select(b.is_eq(zero), one, high);
    let endless = b.is_eq(infinity);
    low = W::select(endless, W::select(a.is_eq(infinity), one, zero), low);
    (low, W::select(endless, one, high))
}

#[inline(always)]
fn angle<W: Real, const SHORT: bool>(y: W, x: W) -> W {
    let (high, low) = angle_in_parts::<W, SHORT>(y, x);
    let angle = (high + low).copysign(y);
    W::select(x.is_nan() | y.is_nan(), W::of(f64::NAN), angle)
}

/// The magnitude of the angle in two parts.
#[inline(always)]
fn angle_in_parts<W: Real, const SHORT: bool>(y: W, x: W) -> (W, W) {
    let (zero, one) = (W::of(0.0), W::of(1.0));
    let (rise, run) = (y.abs(), x.abs());
    let steep = rise.is_gt(run);
    let mut a = W::select(steep, run, rise);
    let mut b = W::select(steep, rise, run);
    if !(b.is_ge(W::of(1e-150)) & b.is_le(W::of(1e150))).all() {
        (a, b) = bring_in_range(a, b);
    }

    // The ratio t and the remainder of its division.
    let turned = a.is_gt(b * W::of(TURN));
    let over = W::select(turned, a - b, a);
    let under = W::select(turned, a + b, b);
    let over_low = W::select(turned, a - (over + b), zero);
    let under_low = W::select(turned, a - (under - b), zero);
    let t = over / under;
    let z = t * t;
    let rest = if SHORT {
        t * z * poly(z, &ATAN_SHORT)
    } else {
        let left = (-t).mul_add(under, over) + (-t).mul_add(under_low, over_low);
        (t * z).mul_add(poly(z, &ATAN), (left / under) * (one - z))
    };

    // The angle is eighths pi/4 + sign (t + rest).
    let eighths = W::select(turned, one, zero);
    let eighths = W::select(steep, W::of(2.0) - eighths, eighths);
    let sign = W::select(steep, -one, one);
    let behind = one.copysign(x).is_lt(zero);
    let eighths = W::select(behind, W::of(4.0) - eighths, eighths);
    let sign = W::select(behind, -sign, sign);
    let (high, low) = fast_two_sum(eighths * W::of(PIO4[0]), sign * t);
    (high, low + eighths.mul_add(W::of(PIO4[1]), sign * rest))
}

/// The angle of the point (x, y) from the x axis, from -pi to pi.
#[inline(always)]
pub fn atan2<V: Real>(y: V, x: V) -> V {
    let (y, x) = (y.widen(), x.widen());
    V::narrow(if V::DOUBLE { angle::<V::Wide, false>(y, x) } else { angle::<V::Wide, true>(y, x) })
}

/// sqrt(1 - x^2) in two parts; NaN outside of -1 to 1.
#[inline(always)]
fn other_side<W: Real>(x: W) -> (W, W) {
    let (high, low) = square(x);
    let (rest, lost) = two_sum(W::of(1.0), -high);
    root(fast_two_sum(rest, lost - low))
}

/// The angle whose sine is x: that of the point (sqrt(1 - x^2), x).
#[inline(always)]
pub fn asin<V: Real>(x: V) -> V {
    let wide = x.widen();
    let size = wide.abs();
    let (run, run_low) = other_side(size);
    let (high, low) = angle_in_parts::<V::Wide, false>(size, run);
    // On the unit circle the angle decreases by the correction of the other side divided by the height.
    let angle = (high + (-size).mul_add(run_low, low)).copysign(wide);
    V::narrow(V::Wide::select(size.is_le(V::Wide::of(1.0)), angle, V::Wide::of(f64::NAN)))
}

/// The angle whose cosine is x.
#[inline(always)]
pub fn acos<V: Real>(x: V) -> V {
    let wide = x.widen();
    let (rise, rise_low) = other_side(wide.abs());
    let (high, low) = angle_in_parts::<V::Wide, false>(rise, wide);
    let angle = high + wide.mul_add(rise_low, low);
    V::narrow(V::Wide::select(wide.abs().is_le(V::Wide::of(1.0)), angle, V::Wide::of(f64::NAN)))
}

/// The angle whose tangent is x.
#[inline(always)]
pub fn atan<V: Real>(x: V) -> V {
    atan2(x, V::of(1.0))
}

/// x / (x^2 + y^2), the partials of atan2 except for a sign. f64 is scaled so that the larger of the two is near 1,
/// which avoids harmful over- and underflow of squares; f32 is computed in f64.
#[inline(always)]
pub fn over_squares<V: Real>(x: V, y: V) -> V {
    let (wide_x, wide_y) = (x.widen(), y.widen());
    if !V::DOUBLE {
        return V::narrow(finish(wide_x, wide_y, wide_x / wide_x.mul_add(wide_x, wide_y * wide_y)));
    }
    let larger = V::Wide::select(wide_x.abs().is_lt(wide_y.abs()), wide_y, wide_x).abs();
    let is_small = larger.is_lt(V::Wide::of(1e-290));
    let lift = V::Wide::select(is_small, V::Wide::of(18014398509481984.0), V::Wide::of(1.0));
    let (k, _) = split(larger * lift);
    let down = <V::Wide as Real>::Int::splat(0).minus(k);
    let (scaled_x, scaled_y) = (scale(wide_x * lift, down), scale(wide_y * lift, down));
    let x_is_larger = scaled_x.abs().is_gt(scaled_y.abs());
    let first = V::Wide::select(x_is_larger, scaled_x, scaled_y);
    let second = V::Wide::select(x_is_larger, scaled_y, scaled_x);
    // The quotient is as small as x: if that is subnormal, digits would be lost before the last scaling.
    let is_tiny = scaled_x.abs().is_lt(V::Wide::of(1e-290));
    let (up, up_bits) = (V::Wide::of(324518553658426726783156020576256.0), V::Wide::of(108.0));
    let zero = V::Wide::of(0.0);
    let over = V::Wide::select(is_tiny, scale(wide_x * (lift * up), down), scaled_x);
    let quotient = over / first.mul_add(first, second * second);
    let lifted = V::Wide::select(is_small, V::Wide::of(54.0), zero) - V::Wide::select(is_tiny, up_bits, zero);
    let down = V::Wide::from_int(down) + lifted;
    V::narrow(finish(wide_x, wide_y, scale(quotient, down.round_to_int().1)))
}

/// The quotient, or the special values at zero, infinities and NaN.
#[inline(always)]
fn finish<W: Real<Elem = f64>>(x: W, y: W, quotient: W) -> W {
    let size = x.abs() + y.abs();
    let plain = size.is_gt(W::of(0.0)) & x.abs().is_lt(W::of(f64::INFINITY)) & y.abs().is_lt(W::of(f64::INFINITY));
    if plain.all() {
        return quotient;
    }
    // 1/inf = 0, 0/0 and NaN + anything are NaN.
    let zero = W::of(0.0);
    let special = W::select(size.is_eq(zero), zero / size, W::of(1.0) / size);
    W::select(plain, quotient, special)
}
