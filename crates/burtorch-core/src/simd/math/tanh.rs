//! tanh, sigmoid and their derivatives, all from one exponential of -|x| or one expm1 of 2|x|: no branch on the sign,
//! no cancellation, no overflow.

use super::exp::{Faded, exp, faded, half_expm1};
use super::log::softplus_of;
use crate::simd::{Real, Truth};

/// (e^2x - 1) / (e^2x + 1), odd in x to the last bit.
#[inline(always)]
pub fn tanh<V: Real>(x: V) -> V {
    // Above this the result rounds to 1.
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
    let (near, is_near) = ((-y).mul_add(y, V::of(1.0)), y.abs().is_le(V::of(0.76)));
    // Skips the exponential if no lane needs it.
    if is_near.all() {
        return near;
    }
    let size = x.abs();
    let far = V::of(4.0) * bell(size + size);
    V::select(is_near, near, far)
}

/// e / (1 + e)^2 with e = exp(-size), as t - t^2 with t = e / (1 + e): t is at most 1/2, so nothing cancels, and the
/// error of t counts once instead of twice for that of 1 + e.
#[inline(always)]
fn bell<V: Real>(size: V) -> V {
    bell_of(exp(-size))
}

/// The same of e.
#[inline(always)]
fn bell_of<V: Real>(e: V) -> V {
    let t = e / (V::of(1.0) + e);
    (-t).mul_add(t, t)
}

/// 1 / (1 + e^-x), the exponential in two parts, and the quotient with its remainder made good.
#[inline(always)]
pub fn sigmoid<V: Real>(x: V) -> V {
    sigmoid_of(x, faded(x))
}

/// The same of the shared part.
#[inline(always)]
fn sigmoid_of<V: Real>(x: V, Faded { e, low, sum, lost }: Faded<V>) -> V {
    let (zero, one) = (V::of(0.0), V::of(1.0));
    let negative = x.is_lt(zero);
    let (over, over_low) = (V::select(negative, e, one), V::select(negative, low, zero));
    let quotient = over / sum;
    let rest = (-quotient).mul_add(sum, over) + (over_low - quotient * (lost + low));
    // 1 / sum to a few bits: e / sum is the quotient itself, or its complement.
    rest.mul_add(V::select(negative, one - quotient, quotient), quotient)
}

/// log(1 + e^x) and its derivative.
#[inline(always)]
pub fn softplus_and_sigmoid<V: Real>(x: V) -> (V, V) {
    let shared = faded(x);
    (softplus_of(x, shared), sigmoid_of(x, shared))
}

/// The sigmoid and its derivative.
#[inline(always)]
pub fn sigmoid_and_grad<V: Real>(x: V) -> (V, V) {
    let shared = faded(x);
    (sigmoid_of(x, shared), bell_of(shared.e))
}

/// The derivative of the sigmoid: e / (1 + e)^2 with e = exp(-|x|).
#[inline(always)]
pub fn sigmoid_grad<V: Real>(x: V) -> V {
    bell(x.abs())
}
