//! Numbers in two parts, about 106 bits, where one number has too few.
//!
//! Promises that a product or a sum of pairs loses only the last few of those bits. Does not know functions.

use super::poly::{fast_two_sum, two_sum};
use crate::simd::Real;

/// A number in two parts, the second below the last place of the first.
pub(super) type Pair<W> = (W, W);

#[inline(always)]
pub(super) fn product<W: Real>(a: Pair<W>, b: Pair<W>) -> Pair<W> {
    let high = a.0 * b.0;
    (high, a.0.mul_add(b.0, -high) + a.0.mul_add(b.1, a.1 * b.0))
}

/// `a + b` for |a| >= |b|.
#[inline(always)]
pub(super) fn sum<W: Real>(a: Pair<W>, b: Pair<W>) -> Pair<W> {
    let (high, low) = fast_two_sum(a.0, b.0);
    (high, low + (a.1 + b.1))
}

/// `a + b` of any magnitudes.
#[inline(always)]
pub(super) fn any_sum<W: Real>(a: Pair<W>, b: Pair<W>) -> Pair<W> {
    let (high, low) = two_sum(a.0, b.0);
    fast_two_sum(high, low + (a.1 + b.1))
}

#[inline(always)]
pub(super) fn pair<W: Real>(c: [f64; 2]) -> Pair<W> {
    (W::of(c[0]), W::of(c[1]))
}

/// `x^2`, exactly.
#[inline(always)]
pub(super) fn square<W: Real>(x: W) -> Pair<W> {
    let high = x * x;
    (high, x.mul_add(x, -high))
}

/// `a / b`.
#[inline(always)]
pub(super) fn quotient<W: Real>(a: Pair<W>, b: Pair<W>) -> Pair<W> {
    let high = a.0 / b.0;
    let rest = (-high).mul_add(b.0, a.0) + (-high).mul_add(b.1, a.1);
    (high, rest / b.0)
}

/// The square root of a nonnegative number; for 0 the second part is 0.
#[inline(always)]
pub(super) fn root<W: Real>(a: Pair<W>) -> Pair<W> {
    let high = a.0.sqrt();
    let rest = ((-high).mul_add(high, a.0) + a.1) / (high + high);
    (high, W::select(high.is_gt(W::of(0.0)), rest, W::of(0.0)))
}
