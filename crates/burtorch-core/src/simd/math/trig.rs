//! sin, cos, tan and the derivative of tan.
//!
//! Both kernels on |r| <= pi/4, then the quadrant chooses. f32 goes through f64, where short polynomials suffice.

use super::poly::{fast_two_sum, poly};
use super::quadrant::{FAR, NEAR, NEXT, Reduced, nearest, parts, reduce};
use crate::simd::{Bits, Real, Truth};

/// (sin r - r) / r^3 in r^2, |r| <= pi/4; error 2^-58 relative.
const SIN: [f64; 6] = [
    -0.16666666666666632,
    0.008333333333322476,
    -0.00019841269829839363,
    2.7557313698711606e-06,
    -2.50507587054554e-08,
    1.589680861507969e-10,
];

/// (cos r - 1 + r^2/2) / r^4 in r^2; error 2^-64.
const COS: [f64; 6] = [
    0.0416666666666666,
    -0.0013888888888874463,
    2.4801587289659014e-05,
    -2.755731439597956e-07,
    2.0875728423737775e-09,
    -1.1359881965976396e-11,
];

/// As [`SIN`] for results in f32; error 2^-37.6.
const SIN_SHORT: [f64; 4] =
    [-0.16666666641500602, 0.008333329371412944, -0.00019839330232392438, 2.7182680179014533e-06];

/// As [`COS`] for results in f32; error 2^-43.2.
const COS_SHORT: [f64; 4] =
    [0.041666666622589464, -0.0013888883733326309, 2.4799514797020002e-05, -2.720981228416471e-07];

/// A value and its rounding error.
pub(super) type Pair<W> = (W, W);

/// sin and cos of r + low, |r| <= pi/4.
#[inline(always)]
pub(super) fn sin_cos<W: Real, const SHORT: bool>(r: W, low: W) -> (Pair<W>, Pair<W>) {
    (sin_near::<W, SHORT>(r, low), cos_near::<W, SHORT>(r, low))
}

/// sin of r + low, |r| <= pi/4.
#[inline(always)]
fn sin_near<W: Real, const SHORT: bool>(r: W, low: W) -> Pair<W> {
    let z = r * r;
    if SHORT {
        return ((z * r).mul_add(poly(z, &SIN_SHORT), r), W::of(0.0));
    }
    let head = W::of(1.0) - W::of(0.5) * z;
    fast_two_sum(r, (z * r).mul_add(poly(z, &SIN), low * head))
}

/// cos of r + low, |r| <= pi/4.
#[inline(always)]
fn cos_near<W: Real, const SHORT: bool>(r: W, low: W) -> Pair<W> {
    let (one, half) = (W::of(1.0), W::of(0.5));
    let z = r * r;
    let half_z = half * z;
    let head = one - half_z;
    if SHORT {
        return ((z * z).mul_add(poly(z, &COS_SHORT), head), W::of(0.0));
    }
    // The rounding errors of 1 - z/2 and of z.
    let lost = ((one - head) - half_z) - half * r.mul_add(r, -z);
    fast_two_sum(head, (z * z).mul_add(poly(z, &COS), (-r).mul_add(low, lost)))
}

/// Whether `n` is odd, as 2.0 or 0.0.
#[inline(always)]
fn odd<W: Real>(n: W::Int) -> W {
    W::from_bits(n.and(W::Int::splat(1)).shift_left(if W::DOUBLE { 62 } else { 30 }))
}

/// `y` with its sign flipped where bit 1 of `n` is set.
#[inline(always)]
fn flip<W: Real>(y: W, n: W::Int) -> W {
    let sign = n.and(W::Int::splat(2)).shift_left(if W::DOUBLE { 62 } else { 30 });
    W::from_bits(y.to_bits().xor(sign))
}

/// The sine of x plus `turn` quarter turns, in f64.
#[inline(always)]
fn wave<W: Real<Elem = f64>, const SHORT: bool>(x: W, turn: f64) -> W {
    if W::LANES == 1
        && !SHORT
        && let Some(y) = wave_of_number(x, turn)
    {
        return y;
    }
    let Reduced { quadrant, r, low } = reduce::<W, SHORT>(x);
    let (_, n) = (quadrant + W::of(turn)).round_to_int();
    let (sin, cos) = sin_cos::<W, SHORT>(r, low);
    flip(W::select(odd::<W>(n).is_gt(W::of(0.0)), cos.0, sin.0), n)
}

/// sin and cos of x, in f64.
#[inline(always)]
fn waves<W: Real<Elem = f64>, const SHORT: bool>(x: W) -> (W, W) {
    let Reduced { quadrant, r, low } = reduce::<W, SHORT>(x);
    let (sin, cos) = sin_cos::<W, SHORT>(r, low);
    let turned = |turn: f64| {
        let (_, n) = (quadrant + W::of(turn)).round_to_int();
        flip(W::select(odd::<W>(n).is_gt(W::of(0.0)), cos.0, sin.0), n)
    };
    (turned(0.0), turned(1.0))
}

/// The same bits for a single number, with branches that a CPU predicts if arguments change slowly, as in the steps of
/// a loop: the result waits for neither the quadrant, the low part nor the other function (11 ns of latency instead of
/// 20). `None` for rare arguments.
#[inline(always)]
fn wave_of_number<W: Real<Elem = f64>>(x: W, turn: f64) -> Option<W> {
    let size = x.abs();
    if size.is_le(W::of(NEAR)).all() {
        let zero = W::of(0.0);
        return Some(if turn == 0.0 { sin_near::<W, false>(x, zero).0 } else { cos_near::<W, false>(x, zero).0 });
    }
    if !size.is_le(W::of(FAR)).all() {
        return None;
    }
    let is_next = (size.is_gt(W::of(NEXT[0])) & size.is_lt(W::of(NEXT[1]))).all();
    let quadrant = if is_next { W::of(1.0).copysign(x) } else { nearest(x) };
    let (first, r, low) = parts(x, quadrant);
    if !first.is_eq(r).all() {
        return None;
    }
    let (_, n) = (quadrant + W::of(turn)).round_to_int();
    let is_odd = odd::<W>(n).is_gt(W::of(0.0)).all();
    let y = if is_odd { cos_near::<W, false>(first, low).0 } else { sin_near::<W, false>(first, low).0 };
    Some(flip(y, n))
}

/// tan x and its derivative, in f64.
#[inline(always)]
fn slope<W: Real<Elem = f64>, const SHORT: bool>(x: W) -> (W, W) {
    let Reduced { quadrant, r, low } = reduce::<W, SHORT>(x);
    let (sin, cos) = sin_cos::<W, SHORT>(r, low);
    let (_, n) = quadrant.round_to_int();
    let odd = odd::<W>(n).is_gt(W::of(0.0));
    let over = (W::select(odd, -cos.0, sin.0), W::select(odd, -cos.1, sin.1));
    let under = (W::select(odd, sin.0, cos.0), W::select(odd, sin.1, cos.1));
    let y = over.0 / under.0;
    // One step of division with remainder: the low parts' correction of the rounded quotient, which is negligible for
    // f32.
    let rest =
        if SHORT { W::of(0.0) } else { ((-y).mul_add(under.0, over.0) + (-y).mul_add(under.1, over.1)) / under.0 };
    let square = y * y;
    let square_rest = y.mul_add(y, -square) + (y + y) * rest;
    // 1 + y^2, whichever is larger first.
    let one = W::of(1.0);
    let grad = one + square;
    let lost = W::select(square.is_gt(one), one - (grad - square), square - (grad - one));
    (y + rest, grad + (lost + square_rest))
}

/// Whether x itself is the nearest number to sin x and tan x.
#[inline(always)]
fn is_tiny<V: Real>(x: V) -> V::Mask {
    x.abs().is_lt(V::of(if V::DOUBLE { 1e-9 } else { 1e-5 }))
}

/// sin x for any x: beyond 2^20 with all the digits of pi it takes.
#[inline(always)]
pub fn sin<V: Real>(x: V) -> V {
    let y = if V::DOUBLE { wave::<V::Wide, false>(x.widen(), 0.0) } else { wave::<V::Wide, true>(x.widen(), 0.0) };
    V::select(is_tiny(x), x, V::narrow(y))
}

/// cos x for any x.
#[inline(always)]
pub fn cos<V: Real>(x: V) -> V {
    let y = if V::DOUBLE { wave::<V::Wide, false>(x.widen(), 1.0) } else { wave::<V::Wide, true>(x.widen(), 1.0) };
    V::narrow(y)
}

/// sin x and cos x.
#[inline(always)]
pub fn sin_and_cos<V: Real>(x: V) -> (V, V) {
    let (sin, cos) = if V::DOUBLE { waves::<V::Wide, false>(x.widen()) } else { waves::<V::Wide, true>(x.widen()) };
    (V::select(is_tiny(x), x, V::narrow(sin)), V::narrow(cos))
}

/// tan x and its derivative.
#[inline(always)]
pub fn tan_and_grad<V: Real>(x: V) -> (V, V) {
    let (y, grad) = if V::DOUBLE { slope::<V::Wide, false>(x.widen()) } else { slope::<V::Wide, true>(x.widen()) };
    (V::select(is_tiny(x), x, V::narrow(y)), V::narrow(grad))
}

/// tan x for any x.
#[inline(always)]
pub fn tan<V: Real>(x: V) -> V {
    tan_and_grad(x).0
}

/// The derivative of tan: 1 + tan(x)^2, from the tangent before it is rounded.
#[inline(always)]
pub fn tan_grad<V: Real>(x: V) -> V {
    tan_and_grad(x).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Simd;

    /// `x` and its neighbours, up to so many places away.
    fn around(x: f64, places: i64) -> impl Iterator<Item = f64> {
        (-places..=places).map(move |by| f64::from_bits(x.to_bits().wrapping_add_signed(by)))
    }

    /// At the limits between the branches of a single number, and elsewhere.
    #[test]
    fn single_numbers_have_the_bits_of_lanes() {
        let mut numbers: Vec<f64> =
            [NEAR, NEXT[0], NEXT[1], FAR, 1e-9].into_iter().flat_map(|x| around(x, 50)).collect();
        for k in 0..4000 {
            numbers.extend(around(f64::from(k) * std::f64::consts::FRAC_PI_4, 2));
            numbers.extend(around(f64::from(k * 197) * std::f64::consts::FRAC_PI_2, 2));
            numbers.push(f64::from(k) * 0.0037);
            numbers.push(f64::from_bits((k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        }
        numbers.extend([0.0, f64::INFINITY, f64::NAN, f64::MIN_POSITIVE, f64::MAX]);
        for x in numbers.into_iter().flat_map(|x| [x, -x]) {
            let lanes = Simd::<f64, 4>::splat(x);
            let (y, of_lanes) = ([sin(x), cos(x)], [sin(lanes)[1], cos(lanes)[1]]);
            assert_eq!(y.map(f64::to_bits), of_lanes.map(f64::to_bits), "{x:e}");
        }
    }
}
