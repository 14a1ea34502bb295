//! `f128`, IEEE binary128, as a scalar: 34 digits, for references and ill-conditioned problems, not for speed.
//!
//! Arithmetic is the compiler's; elementary functions build on those of the standard library.

use std::f128::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::{DType, Float, Scalar, sealed, wide_gelu};

/// What 1/sqrt(2) is more than its constant.
const INV_SQRT_2_LOW: f128 = 4.711121274310916032846058368197052840513e-35;
impl sealed::Sealed for f128 {}

impl Scalar for f128 {
    type Elem = f128;
    type Mask = bool;
    type Compute = f128;
    const LANES: usize = 1;
    const UNREACHED: Self = -0.0;

    #[inline(always)]
    fn widen(self) -> f128 {
        self
    }
    #[inline(always)]
    fn narrow(computed: f128) -> f128 {
        computed
    }
    #[inline(always)]
    fn splat(elem: f128) -> Self {
        elem
    }
    #[inline(always)]
    fn lane(self, _k: usize) -> f128 {
        self
    }
    #[inline(always)]
    fn with_lane(self, _k: usize, elem: f128) -> Self {
        elem
    }
    #[inline(always)]
    fn sum_lanes(self) -> f128 {
        self
    }
    #[inline(always)]
    fn all_finite(self) -> bool {
        self.is_finite()
    }
    #[inline(always)]
    fn is_unreached(&self) -> bool {
        self.to_bits() == (-0.0_f128).to_bits()
    }
    #[inline(always)]
    fn all_zero(self) -> bool {
        self == 0.0
    }
    fn has_exact_inverse(self) -> bool {
        let fraction = self.to_bits() & ((1 << 112) - 1);
        fraction == 0 && self.is_normal() && (1.0 / self).is_normal()
    }

    fn exp(self) -> Self {
        f128::exp(self)
    }
    fn expm1(self) -> Self {
        f128::exp_m1(self)
    }
    fn log(self) -> Self {
        f128::ln(self)
    }
    fn log1p(self) -> Self {
        f128::ln_1p(self)
    }
    fn sin(self) -> Self {
        f128::sin(self)
    }
    fn cos(self) -> Self {
        f128::cos(self)
    }
    fn tan(self) -> Self {
        f128::tan(self)
    }
    fn tan_grad(self) -> Self {
        let cos = f128::cos(self);
        1.0 / (cos * cos)
    }
    fn erf(self) -> Self {
        f128::erf(self)
    }
    fn erf_grad(self) -> Self {
        FRAC_2_SQRT_PI * exp_of_square(self, -1.0)
    }
    fn gelu(self) -> Self {
        // Phi is 0 before x is -infinite: the limit is -0.
        if self == f128::NEG_INFINITY { -0.0 } else { self * normal(self) }
    }
    fn gelu_grad(self) -> Self {
        wide_gelu::gelu_grad(self)
    }
    fn atan2(self, x: Self) -> Self {
        f128::atan2(self, x)
    }
    fn over_squares(self, y: Self) -> Self {
        let larger = if self.abs() < y.abs() { y } else { self };
        if larger.is_infinite() {
            return if self.is_nan() || y.is_nan() { f128::NAN } else { 1.0 / larger };
        }
        let (x, y) = (self / larger, y / larger);
        x / (x * x + y * y) / larger
    }
    fn tanh(self) -> Self {
        f128::tanh(self)
    }
    fn tanh_grad(self, y: Self) -> Self {
        if y.abs() <= 0.76 {
            return 1.0 - y * y;
        }
        let e = f128::exp(-2.0 * self.abs());
        4.0 * e / ((1.0 + e) * (1.0 + e))
    }
    fn sigmoid(self) -> Self {
        let e = f128::exp(-self.abs());
        if self < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
    }
    fn sigmoid_grad(self) -> Self {
        let e = f128::exp(-self.abs());
        e / ((1.0 + e) * (1.0 + e))
    }
    fn softplus(self) -> Self {
        let rest = f128::ln_1p(f128::exp(-self.abs()));
        if self > 0.0 { self + rest } else { rest }
    }
    fn pow(self, y: Self) -> Self {
        f128::powf(self, y)
    }
    fn pow_dx(self, y: Self) -> Self {
        if !y.is_finite() || y.abs() >= 5192296858534827628530496329220096.0 || self == 0.0 || self.is_infinite() {
            return pow_dx_far(self, y);
        }
        if self.is_nan() || self < 0.0 && self.is_finite() && y.floor() != y {
            return f128::NAN;
        }
        let size = self.abs();
        let less = y - 1.0;
        // What the subtraction lost, exactly: the larger operand first.
        let rest = if y.abs() > 1.0 { (y - less) - 1.0 } else { y - (less + 1.0) };
        let magnitude = if y.abs() < 1e-30 {
            (y / size) * f128::powf(size, y)
        } else {
            let power = f128::powf(size, less);
            y * if power.is_finite() && power > 0.0 { power + power * (rest * f128::ln(size)) } else { power }
        };
        let is_even = y.floor() == y && (y * 0.5).floor() == y * 0.5;
        if is_even && self < 0.0 { -magnitude } else { magnitude }
    }
    fn pow_dy(self, y: Self) -> Self {
        if self < 0.0 || self.is_nan() || y.is_nan() {
            return f128::NAN;
        }
        if self == 1.0 { 0.0 } else { f128::powf(self, y) * f128::ln(self) }
    }

    fn sqrt(self) -> Self {
        f128::sqrt(self)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        f128::abs(self)
    }
    #[inline(always)]
    fn less(self, other: Self) -> bool {
        self < other
    }
    #[inline(always)]
    fn less_equal(self, other: Self) -> bool {
        self <= other
    }
    #[inline(always)]
    fn equal(self, other: Self) -> bool {
        self == other
    }
    #[inline(always)]
    fn nan_mask(self) -> bool {
        self.is_nan()
    }
    #[inline(always)]
    fn select(mask: bool, yes: Self, no: Self) -> Self {
        if mask { yes } else { no }
    }
}

impl Float for f128 {
    const DTYPE: DType = DType::Float128;
    fn from_f64(x: f64) -> Self {
        x.into()
    }
    fn to_f64(self) -> f64 {
        self as f64
    }
    fn from_f128(x: f128) -> Self {
        x
    }
    fn to_f128(self) -> f128 {
        self
    }
}

/// e^(factor x^2), with the rounding of the square made good: an exponent of n would make n half-places of it.
fn exp_of_square(x: f128, factor: f128) -> f128 {
    let square = x * x;
    if !square.is_finite() {
        return f128::exp(factor * square);
    }
    let rest = x.mul_add(x, -square);
    let power = f128::exp(factor * square);
    power + power * (factor * rest)
}

/// y x^(y - 1) where y - 1 is y, or x is 0.
fn pow_dx_far(x: f128, y: f128) -> f128 {
    if x.is_nan() || y.is_nan() || x < 0.0 && x.is_finite() && y.floor() != y && y.is_finite() {
        return f128::NAN;
    }
    if y == 1.0 {
        return 1.0;
    }
    if !y.is_finite() {
        return y * f128::powf(x, y);
    }
    let magnitude = if x == 0.0 || x.is_infinite() {
        y * f128::powf(x.abs(), y - 1.0)
    } else {
        y * (f128::powf(x.abs(), y) / x.abs())
    };
    let is_even = y.floor() == y && (y * 0.5).floor() == y * 0.5;
    if is_even && x.is_sign_negative() { -magnitude } else { magnitude }
}

/// The normal distribution at x.
pub(super) fn normal(x: f128) -> f128 {
    // erfc magnifies the rounding of its argument by its square, so that is made good by the derivative.
    let a = -x * FRAC_1_SQRT_2;
    let rest = (-x).mul_add(FRAC_1_SQRT_2, -a) - x * INV_SQRT_2_LOW;
    let erfc = f128::erfc(a);
    if !a.is_finite() || erfc == 0.0 {
        return 0.5 * erfc;
    }
    0.5 * (erfc - rest * FRAC_2_SQRT_PI * exp_of_square(a, -1.0))
}
