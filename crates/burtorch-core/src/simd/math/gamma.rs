//! The logarithm of the gamma function and its derivatives, one lane at a time, so that each takes the shortest path.
//!
//! Near 1 and 2, where log gamma is 0, a series about 2; above, products, then Stirling's series; below 0, reflection
//! with sine and cotangent in two parts. f32 is computed in f64.

use super::double::{any_sum, product, quotient};
use super::log::split;
use super::poly::{fast_two_sum, poly, two_sum};
use super::polygamma::gamma_functions;
use super::pow::{log_of_size, log_pair};
use super::trig::sin_cos;
use crate::simd::Real;

/// (-1)^k (zeta(k) - 1) / k from k = 2: the terms after (1 - gamma) e in log gamma(2 + e).
const NEAR_TWO: [f64; 29] = [
    0.3224670334241132,
    -0.0673523010531981,
    0.020580808427784546,
    -0.007385551028673986,
    0.0028905103307415234,
    -0.001192753911703261,
    0.0005096695247430425,
    -0.00022315475845357939,
    9.945751278180853e-05,
    -4.492623673813314e-05,
    2.050721277567069e-05,
    -9.439488275268397e-06,
    4.374866789907488e-06,
    -2.039215753801366e-06,
    9.55141213040742e-07,
    -4.492469198764566e-07,
    2.1207184805554665e-07,
    -1.0043224823968099e-07,
    4.7698101693639804e-08,
    -2.2711094608943164e-08,
    1.0838659214896955e-08,
    -5.183475041970047e-09,
    2.4836745438024785e-09,
    -1.1921401405860912e-09,
    5.731367241678862e-10,
    -2.7595228851242334e-10,
    1.330476437424449e-10,
    -6.4229645638381e-11,
    3.1044247747322276e-11,
];

/// 1 - Euler's constant.
const SLOPE_AT_TWO: f64 = 0.42278433509846713;
const PI: [f64; 2] = [std::f64::consts::PI, 1.2246467991473532e-16];
const LOG_PI: [f64; 2] = [1.1447298858494002, 1.0265951162707826e-17];
/// log(2 pi)/2.
const STIRLING: [f64; 2] = [0.9189385332046728, -3.8782941580672414e-17];

type Two = (f64, f64);

#[inline(always)]
fn log_parts(x: f64) -> Two {
    log_of_size::<f64, false>(x)
}

gamma_functions!(f64, f64::mul_add, f64::floor, f64::round_ties_even, 12.0, 9, log_parts, cot_of_pi, PI[0]);

/// sin and cos of pi r for |r| up to 1/4.
#[inline(always)]
fn sin_cos_of_pi(r: f64) -> (Two, Two) {
    let (high, low) = product((r, 0.0), (PI[0], PI[1]));
    sin_cos::<f64, false>(high, low)
}

/// pi-free cotangent of pi r for |r| up to 1/2.
#[inline(always)]
fn cot_of_pi(r: f64) -> Two {
    let size = r.abs();
    let ratio = if size <= 0.25 {
        let (sin, cos) = sin_cos_of_pi(size);
        quotient(cos, sin)
    } else {
        let (sin, cos) = sin_cos_of_pi(0.5 - size);
        quotient(sin, cos)
    };
    if r < 0.0 { (-ratio.0, -ratio.1) } else { ratio }
}

/// |sin(pi r)| for |r| up to 1/2.
#[inline(always)]
fn sin_of_pi(r: f64) -> Two {
    let size = r.abs();
    if size <= 0.25 { sin_cos_of_pi(size).0 } else { sin_cos_of_pi(0.5 - size).1 }
}

/// The logarithm of a positive number in two parts.
#[inline(always)]
fn log_of_two(x: Two) -> Two {
    let (n, m) = split(x.0);
    any_sum(log_pair(<f64 as Real>::from_int(n), m), (x.1 / x.0, 0.0))
}

/// log gamma(2 + e) for |e| up to 1/2.
#[inline(always)]
fn near_two(e: f64) -> Two {
    fast_two_sum(SLOPE_AT_TWO * e, e * e * poly(e, &NEAR_TWO))
}

/// log gamma above 0, in two parts.
#[inline(always)]
fn log_gamma_above_zero(x: f64) -> Two {
    if x < 0.5 {
        return small(x);
    }
    if x < 1.5 {
        let log = log_of_two(fast_two_sum(1.0, x - 1.0));
        return any_sum(near_two(x - 1.0), (-log.0, -log.1));
    }
    if x < 10.0 {
        let (mut at, mut passed) = (x, (1.0, 0.0));
        while at > 2.5 {
            at -= 1.0;
            passed = product(passed, (at, 0.0));
        }
        return any_sum(log_of_two(passed), near_two(at - 2.0));
    }
    let log = log_parts(x);
    let over = 1.0 / x;
    let square = over * over;
    let mut series = 0.0;
    for k in (0..9).rev() {
        series = series * square + bernoulli(k) / ((2 * k + 1) * (2 * k + 2)) as f64;
    }
    // (x - 1/2) (log x - 1) - 1/2 + log(2 pi)/2 + ...
    let less = any_sum(log, (-1.0, 0.0));
    let whole = product((x - 0.5, 0.0), less);
    if whole.0 > 1e300 {
        return (whole.0, 0.0);
    }
    any_sum(any_sum(whole, (-0.5, 0.0)), any_sum((STIRLING[0], STIRLING[1]), (series * over, 0.0)))
}

/// log |gamma| for 0 < |x| < 1/2: gamma(2 + x) over x (1 + x).
#[inline(always)]
fn small(x: f64) -> Two {
    let (log, above) = (log_parts(x), log_of_two(fast_two_sum(1.0, x)));
    let logs = any_sum(log, above);
    any_sum(near_two(x), (-logs.0, -logs.1))
}

#[inline(always)]
fn log_gamma(x: f64) -> f64 {
    if x.is_nan() || x.is_infinite() {
        return x.abs();
    }
    if x.abs() < 0.5 && x != 0.0 {
        let (high, low) = small(x);
        return high + low;
    }
    if x > 0.0 {
        let (high, low) = log_gamma_above_zero(x);
        return high + low;
    }
    let r = x - x.round_ties_even();
    if r == 0.0 {
        return f64::INFINITY;
    }
    // gamma(x) gamma(1 - x) = pi / sin(pi x).
    let (at, lost) = two_sum(1.0, -x);
    let beyond = any_sum(log_gamma_above_zero(at), (lost * (at.ln() - 0.5 / at), 0.0));
    let sine = log_of_two(sin_of_pi(r));
    let (high, low) = any_sum(any_sum((LOG_PI[0], LOG_PI[1]), (-sine.0, -sine.1)), (-beyond.0, -beyond.1));
    high + low
}

#[inline(always)]
fn derivative_of_log_gamma(x: f64) -> f64 {
    if x.is_nan() || x == f64::INFINITY {
        return x;
    }
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    // Closer to the pole only 1/x matters.
    if x.abs() < 1e-300 {
        return -1.0 / x;
    }
    if x > 0.0 {
        let (high, low) = digamma_above_zero(x, 0.0);
        return high + low;
    }
    let r = x - x.round_ties_even();
    if r == 0.0 || x.is_infinite() {
        return f64::NAN;
    }
    // psi(1 - x) - psi(x) = pi cot(pi x).
    let (at, lost) = two_sum(1.0, -x);
    let cot = product(cot_of_pi(r), (PI[0], PI[1]));
    let (high, low) = any_sum(digamma_above_zero(at, lost), (-cot.0, -cot.1));
    high + low
}

/// Each lane by itself.
#[inline(always)]
fn by_lane<V: Real>(x: V, f: impl Fn(f64) -> f64) -> V {
    let mut y = x.widen();
    for k in 0..V::LANES {
        y = y.with_lane(k, f(y.lane(k)));
    }
    V::narrow(y)
}

/// log |gamma(x)|; infinite at 0, -1, -2 ...
#[inline(always)]
pub fn lgamma<V: Real>(x: V) -> V {
    by_lane(x, log_gamma)
}

/// The derivative of log gamma; NaN at -1, -2 ...
#[inline(always)]
pub fn digamma<V: Real>(x: V) -> V {
    by_lane(x, derivative_of_log_gamma)
}

/// Derivative number n of digamma, for an integer n not below 1.
#[inline(always)]
pub fn polygamma<V: Real>(x: V, n: V) -> V {
    let orders = n.widen();
    let mut y = x.widen();
    for k in 0..V::LANES {
        let order = orders.lane(k);
        let is_order = order >= 1.0 && order == order.floor();
        y = y.with_lane(k, if is_order { nth_polygamma(order as usize, y.lane(k)) } else { f64::NAN });
    }
    V::narrow(y)
}
