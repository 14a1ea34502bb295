//! `f128`, IEEE binary128, as a scalar: 34 digits, for references and ill-conditioned problems, not for speed.
//!
//! Arithmetic is the compiler's; elementary functions build on those of the standard library.

use std::f128::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::{DType, Float, Scalar, sealed};

/// 1/sqrt(2 pi).
const INV_SQRT_2PI: f128 =
    0.39894228040143267793994605993438186847585863116493465766592582967065792589930183850125233390730693_f128;

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
        if self.is_infinite() {
            return if self > 0.0 { 1.0 } else { 0.0 };
        }
        normal(self) + self * (INV_SQRT_2PI * exp_of_square(self, -0.5))
    }
    fn atan2(self, x: Self) -> Self {
        f128::atan2(self, x)
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

/// The normal distribution at x.
fn normal(x: f128) -> f128 {
    // erfc magnifies the rounding of its argument by its square, so that is made good by the derivative.
    let a = -x * FRAC_1_SQRT_2;
    0.5 * f128::erfc(a)
}
