//! Division with remainder as in Python and NumPy, one lane at a time: the remainder is exact except for its last
//! addition.

use std::ops::Rem;

use crate::simd::Real;

/// Defines `floored_remainder` and `floored_quotient` for a float type, given its remainder, fused sum and nearest
/// integer.
macro_rules! floored_division {
    ($t:ty, $rest:path, $mul_add:path, $nearest:path) => {
        /// The remainder of x / y, with the sign of y; NaN for y = 0 and for infinite x.
        #[inline(always)]
        fn floored_remainder(x: $t, y: $t) -> $t {
            let rest = $rest(x, y);
            if rest == 0.0 {
                (0.0 as $t).copysign(y)
            } else if (rest < 0.0) != (y < 0.0) {
                rest + y
            } else {
                rest
            }
        }

        /// The largest integer not above x/y; x/y for y = 0.
        #[inline(always)]
        fn floored_quotient(x: $t, y: $t) -> $t {
            let truncated = $rest(x, y);
            if y == 0.0 || truncated.is_nan() {
                return if y == 0.0 { x / y } else { <$t>::NAN };
            }
            let below = if truncated != 0.0 && (truncated < 0.0) != (y < 0.0) { 1.0 } else { 0.0 };
            if y.is_infinite() {
                return if below == 0.0 { x / y } else { -1.0 };
            }
            // A multiple of y, divided by y: an integer up to rounding, which is corrected.
            let near = $nearest((x - truncated) / y);
            let missing = ($mul_add(-near, y, x) - truncated) / y;
            let whole = if missing.abs() >= 0.5 && missing.is_finite() { near + $nearest(missing) } else { near };
            if whole == below { (0.0 as $t).copysign(x / y) } else { whole - below }
        }
    };
}

pub(crate) use floored_division;

floored_division!(f64, Rem::rem, f64::mul_add, f64::round_ties_even);

/// Applies `f` to the lanes of both.
#[inline(always)]
fn by_lane<V: Real>(x: V, y: V, f: impl Fn(f64, f64) -> f64) -> V {
    let (xs, ys) = (x.widen(), y.widen());
    let mut all = xs;
    for k in 0..V::LANES {
        all = all.with_lane(k, f(xs.lane(k), ys.lane(k)));
    }
    V::narrow(all)
}

/// The remainder of x / y, with the sign of y.
#[inline(always)]
pub fn remainder<V: Real>(x: V, y: V) -> V {
    by_lane(x, y, floored_remainder)
}

/// The largest integer not above x/y.
#[inline(always)]
pub fn floor_divide<V: Real>(x: V, y: V) -> V {
    by_lane(x, y, floored_quotient)
}
