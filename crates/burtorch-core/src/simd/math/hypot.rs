//! hypot: the length of a vector of two, without overflow or underflow inside; its square in two parts.

use super::double::{root, square, sum};
use crate::simd::{Real, Truth};

#[inline(always)]
fn length<W: Real<Elem = f64>>(x: W, y: W) -> W {
    let (x, y) = (x.abs(), y.abs());
    let (one, infinity) = (W::of(1.0), W::of(f64::INFINITY));
    let steep = y.is_gt(x);
    let (mut a, mut b) = (W::select(steep, y, x), W::select(steep, x, y));
    let moderate = a.is_ge(W::of(1e-140)) & a.is_le(W::of(1e140));
    let mut back = one;
    if !moderate.all() {
        let (large, small) = (a.is_gt(W::of(1e140)), a.is_lt(W::of(1e-140)));
        let (up, down) = (W::of(2f64.powi(600)), W::of(2f64.powi(-600)));
        let factor = W::select(large, down, W::select(small, up, one));
        back = W::select(large, up, W::select(small, down, one));
        (a, b) = (a * factor, b * factor);
    }
    let (high, low) = root(sum(square(a), square(b)));
    let y_or_x = x + y;
    let length = (high + low) * back;
    let length = W::select(y_or_x.is_eq(W::of(0.0)), W::of(0.0), length);
    let length = W::select(x.is_nan() | y.is_nan(), W::of(f64::NAN), length);
    W::select(x.is_eq(infinity) | y.is_eq(infinity), infinity, length)
}

/// sqrt(x^2 + y^2); infinite if either is, even if the other is NaN.
#[inline(always)]
pub fn hypot<V: Real>(x: V, y: V) -> V {
    V::narrow(length(x.widen(), y.widen()))
}
