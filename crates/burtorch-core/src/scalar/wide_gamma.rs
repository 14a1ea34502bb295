//! The derivatives of log gamma for f128.
//!
//! Promises: sums in two parts; logarithm and cotangent in one. Does not know the sweep.

use std::f128::consts::PI;

use super::wide_elementary::{ln, tan};
use super::wide_exact::{floor, mul_add, round_ties_even};
use crate::simd::math::polygamma::gamma_functions;

gamma_functions!(f128, mul_add, floor, round_ties_even, 40.0, 15, log_parts, cot_of_pi, PI);

fn log_parts(x: f128) -> (f128, f128) {
    (ln(x), 0.0)
}

/// The cotangent of pi r for |r| up to 1/2.
fn cot_of_pi(r: f128) -> (f128, f128) {
    let size = r.abs();
    let ratio = if size <= 0.25 { 1.0 / tan(PI * size) } else { tan(PI * (0.5 - size)) };
    (ratio.copysign(r), 0.0)
}

/// The derivative of log gamma.
#[inline(never)]
#[optimize(size)]
pub(super) fn digamma(x: f128) -> f128 {
    if x.is_nan() || x == f128::INFINITY {
        return x;
    }
    if x == 0.0 {
        return f128::INFINITY.copysign(-x);
    }
    if x.abs() < 1e-4000 {
        return -1.0 / x;
    }
    if x > 0.0 {
        let (high, low) = digamma_above_zero(x, 0.0);
        return high + low;
    }
    let r = x - round_ties_even(x);
    if r == 0.0 || x.is_infinite() {
        return f128::NAN;
    }
    let (at, lost) = exact_sum(1.0, -x);
    let (high, low) = digamma_above_zero(at, lost);
    let (sum, rest) = exact_sum(high, -PI * cot_of_pi(r).0);
    sum + (rest + low)
}

/// The n-th derivative of digamma.
#[inline(never)]
#[optimize(size)]
pub(super) fn polygamma(x: f128, n: f128) -> f128 {
    if n >= 1.0 && n == floor(n) { nth_polygamma(n as usize, x) } else { f128::NAN }
}
