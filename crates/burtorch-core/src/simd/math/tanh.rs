//! tanh, sigmoid and their derivatives, all from one exponential of -|x| or one expm1 of 2|x|: no branch on the sign,
//! no cancellation, no overflow.

use super::exp::{exp, half_expm1};
use crate::simd::Real;

/// (e^2x - 1) / (e^2x + 1), odd in x to the last bit.
#[inline(always)]
pub fn tanh<V: Real>(x: V) -> V {
    // From here on the result rounds to 1.
    let most = V::of(if V::DOUBLE { 20.0 } else { 10.0 });
    let size = x.abs();
    let size = V::select(size.is_gt(most), most, size);
    let half = half_expm1(size + size, false);
    (half / (half + V::of(1.0))).copysign(x)
}

/// The derivative of tanh at `x`, where `y = tanh(x)`: 1 - y^2 where that is accurate, else 4e / (1 + e)^2 with
/// e = exp(-2 |x|).
#[inline(always)]
pub fn tanh_grad<V: Real>(x: V, y: V) -> V {
    let size = x.abs();
    let far = V::of(4.0) * bell(size + size);
    V::select(y.abs().is_le(V::of(0.76)), (-y).mul_add(y, V::of(1.0)), far)
}

/// e / (1 + e)^2 with e = exp(-size), as t - t^2 with t = e / (1 + e): t is at most 1/2, so nothing cancels, and the
/// error of t counts once where that of 1 + e would count twice.
#[inline(always)]
fn bell<V: Real>(size: V) -> V {
    let e = exp(-size);
    let t = e / (V::of(1.0) + e);
    (-t).mul_add(t, t)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid<V: Real>(x: V) -> V {
    let one = V::of(1.0);
    let e = exp(-x.abs());
    V::select(x.is_lt(V::of(0.0)), e, one) / (one + e)
}

/// The derivative of the sigmoid: e / (1 + e)^2 with e = exp(-|x|).
#[inline(always)]
pub fn sigmoid_grad<V: Real>(x: V) -> V {
    bell(x.abs())
}
