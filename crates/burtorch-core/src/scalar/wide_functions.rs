//! Functions of f128 that the standard library lacks: activations, and the partials that ops use.
//!
//! Promises: rounding errors that would be visible are corrected. Does not know the sweep.

use std::f128::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2};

use crate::simd::math::remainder::floored_division;

pub(super) use super::wide_elementary::{
    acos, asin, atan, atan2, cbrt, cos, cosh, exp, exp_m1, exp2, exp10, hypot, ln, ln_1p, log2, log10, powf, sin, sinh,
    tan, tanh,
};
use super::wide_exact::{floor, mul_add, rest, round_ties_even, sqrt};
pub(super) use super::wide_gamma::{digamma, polygamma};
pub(super) use super::wide_gelu::gelu_grad;
use super::wide_special::exp_of_square;
pub(super) use super::wide_special::{erf, erfc, ln_gamma, normal};

/// 1 / (1 + e^-x).
pub(super) fn sigmoid(x: f128) -> f128 {
    let e = exp(-x.abs());
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

/// The derivative of sigmoid.
pub(super) fn sigmoid_grad(x: f128) -> f128 {
    let e = exp(-x.abs());
    e / ((1.0 + e) * (1.0 + e))
}

/// log(1 + e^x).
pub(super) fn softplus(x: f128) -> f128 {
    let rest = ln_1p(exp(-x.abs()));
    if x > 0.0 { x + rest } else { rest }
}

/// The derivative of tan.
pub(super) fn tan_grad(x: f128) -> f128 {
    let side = cos(x);
    1.0 / (side * side)
}

/// The derivative of tanh at x where y = tanh(x).
pub(super) fn tanh_grad(x: f128, y: f128) -> f128 {
    if y.abs() <= 0.76 {
        return 1.0 - y * y;
    }
    let e = exp(-2.0 * x.abs());
    4.0 * e / ((1.0 + e) * (1.0 + e))
}

/// The derivative of erf.
pub(super) fn erf_grad(x: f128) -> f128 {
    FRAC_2_SQRT_PI * exp_of_square(x, -1.0)
}

/// x times the normal distribution function at x.
pub(super) fn gelu(x: f128) -> f128 {
    // Phi underflows to 0 before x is -infinity: the limit is -0.
    if x == f128::NEG_INFINITY { -0.0 } else { x * normal(x) }
}

/// x / (x^2 + y^2).
pub(super) fn over_squares(x: f128, y: f128) -> f128 {
    let larger = if x.abs() < y.abs() { y } else { x };
    if larger.is_infinite() {
        return if x.is_nan() || y.is_nan() { f128::NAN } else { 1.0 / larger };
    }
    let (x, y) = (x / larger, y / larger);
    x / (x * x + y * y) / larger
}

/// y x^(y - 1).
pub(super) fn pow_dx(x: f128, y: f128) -> f128 {
    if y == 0.0 {
        return if x.is_nan() { x } else { 0.0 };
    }
    if !y.is_finite() || y.abs() >= 5192296858534827628530496329220096.0 || x == 0.0 || x.is_infinite() {
        return pow_dx_far(x, y);
    }
    if x.is_nan() || x < 0.0 && x.is_finite() && floor(y) != y {
        return f128::NAN;
    }
    let size = x.abs();
    let less = y - 1.0;
    // The rounding error of the subtraction, exactly: the larger operand first.
    let rest = if y.abs() > 1.0 { (y - less) - 1.0 } else { y - (less + 1.0) };
    let magnitude = if y.abs() < 1e-30 {
        (y / size) * powf(size, y)
    } else {
        let power = powf(size, less);
        y * if power.is_finite() && power > 0.0 { power + power * (rest * ln(size)) } else { power }
    };
    let is_even = floor(y) == y && floor(y * 0.5) == y * 0.5;
    if is_even && x < 0.0 { -magnitude } else { magnitude }
}

/// x^y log x.
pub(super) fn pow_dy(x: f128, y: f128) -> f128 {
    if x < 0.0 || x.is_nan() || y.is_nan() {
        return f128::NAN;
    }
    if x == 0.0 {
        return if y < 0.0 { f128::NEG_INFINITY } else { 0.0 };
    }
    let power = powf(x, y);
    if x == 1.0 || power == 0.0 { 0.0 } else { power * ln(x) }
}

/// The density of the normal distribution.
pub(super) fn normal_pdf(x: f128) -> f128 {
    0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI * exp_of_square(x, -0.5)
}

floored_division!(f128, rest, mul_add, round_ties_even);

/// The remainder of x / y, with the sign of y.
pub(super) fn remainder(x: f128, y: f128) -> f128 {
    floored_remainder(x, y)
}

/// The largest integer not above x/y.
pub(super) fn floor_divide(x: f128, y: f128) -> f128 {
    floored_quotient(x, y)
}

/// asinh of a magnitude.
fn asinh_of_size(size: f128) -> f128 {
    if size > 1e30 {
        return ln(size) + LN_2;
    }
    ln_1p(size + size * size / (1.0 + sqrt(mul_add(size, size, 1.0))))
}

pub(super) fn asinh(x: f128) -> f128 {
    if x.is_finite() { asinh_of_size(x.abs()).copysign(x) } else { x }
}

pub(super) fn acosh(x: f128) -> f128 {
    if x > 1e30 {
        return ln(x) + LN_2;
    }
    // Below 1 the root of a product of two negative numbers would be real.
    let beyond = if x < 1.0 { f128::NAN } else { x - 1.0 };
    ln_1p(beyond + sqrt(beyond * (x + 1.0)))
}

pub(super) fn atanh(x: f128) -> f128 {
    let size = x.abs();
    (0.5 * ln_1p(2.0 * size / (1.0 - size))).copysign(x)
}

/// y x^(y - 1) if y - 1 rounds to y, or x is 0.
fn pow_dx_far(x: f128, y: f128) -> f128 {
    if x.is_nan() || y.is_nan() || x < 0.0 && x.is_finite() && floor(y) != y && y.is_finite() {
        return f128::NAN;
    }
    if y == 1.0 {
        return 1.0;
    }
    if !y.is_finite() {
        let power = powf(x, y);
        return if power == 0.0 { power } else { y * power };
    }
    let magnitude =
        if x == 0.0 || x.is_infinite() { y * powf(x.abs(), y - 1.0) } else { y * (powf(x.abs(), y) / x.abs()) };
    let is_even = floor(y) == y && floor(y * 0.5) == y * 0.5;
    if is_even && x.is_sign_negative() { -magnitude } else { magnitude }
}
