//! Dual numbers: a value and its derivative in one direction, as a [`Scalar`].
//!
//! Promises: the value part of every operation has the bits of the operation on values. Derivatives follow the rules of
//! the ops: a power whose exponent does not move takes no logarithm. Knows nothing of programs, which use it to
//! differentiate a reverse pass once more.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{Scalar, sealed};
use crate::kernels::{BlockMath, TokenMath};

/// `v + d e` with `e * e = 0`: a value, and how fast it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dual<S> {
    /// The value.
    pub v: S,
    /// Its derivative.
    pub d: S,
}

impl<S: Scalar> Dual<S> {
    /// A value with its derivative.
    #[inline(always)]
    pub const fn new(v: S, d: S) -> Self {
        Dual { v, d }
    }

    /// A function of this number, given its value and its derivative there.
    #[inline(always)]
    fn through(self, value: S, slope: S) -> Self {
        Dual { v: value, d: self.d * slope }
    }
}

impl<S: Scalar> Add for Dual<S> {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Dual { v: self.v + other.v, d: self.d + other.d }
    }
}

impl<S: Scalar> Sub for Dual<S> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Dual { v: self.v - other.v, d: self.d - other.d }
    }
}

impl<S: Scalar> Mul for Dual<S> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Dual { v: self.v * other.v, d: self.d * other.v + self.v * other.d }
    }
}

impl<S: Scalar> Div for Dual<S> {
    type Output = Self;
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        let v = self.v / other.v;
        Dual { v, d: (self.d - v * other.d) / other.v }
    }
}

impl<S: Scalar> Neg for Dual<S> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Dual { v: -self.v, d: -self.d }
    }
}

impl<S: Scalar> sealed::Sealed for Dual<S> {}

/// The plain loops, which are right for anything with arithmetic.
impl<S: Scalar> BlockMath for Dual<S> {}
impl<S: Scalar> TokenMath for Dual<S> {}

/// Functions of one argument: value, then slope from the argument and the value.
macro_rules! chain {
    ($($name:ident |$x:ident, $y:ident| $slope:expr;)*) => { $(
        #[inline(always)]
        fn $name(self) -> Self {
            let $x = self.v;
            let $y = $x.$name();
            self.through($y, $slope)
        }
    )* };
}

impl<S: Scalar> Scalar for Dual<S> {
    type Elem = S::Elem;
    type Mask = S::Mask;
    type Compute = Self;

    const LANES: usize = S::LANES;
    const UNREACHED: Self = Dual { v: S::UNREACHED, d: S::UNREACHED };

    #[inline(always)]
    fn widen(self) -> Self {
        self
    }
    #[inline(always)]
    fn narrow(computed: Self) -> Self {
        computed
    }
    #[inline(always)]
    fn splat(elem: Self::Elem) -> Self {
        Dual { v: S::splat(elem), d: S::lit(0.0) }
    }
    #[inline(always)]
    fn lane(self, k: usize) -> Self::Elem {
        self.v.lane(k)
    }
    #[inline(always)]
    fn with_lane(self, k: usize, elem: Self::Elem) -> Self {
        Dual { v: self.v.with_lane(k, elem), d: self.d }
    }
    #[inline(always)]
    fn sum_lanes(self) -> Self::Elem {
        self.v.sum_lanes()
    }
    #[inline(always)]
    fn all_finite(self) -> bool {
        self.v.all_finite() && self.d.all_finite()
    }
    #[inline(always)]
    fn is_unreached(&self) -> bool {
        self.v.is_unreached()
    }
    #[inline(always)]
    fn all_zero(self) -> bool {
        self.v.all_zero() && self.d.all_zero()
    }
    #[inline(always)]
    fn has_exact_inverse(self) -> bool {
        self.v.has_exact_inverse()
    }

    chain! {
        exp |x, y| y;
        expm1 |x, y| x.exp();
        log |x, y| S::lit(1.0) / x;
        log1p |x, y| S::lit(1.0) / (S::lit(1.0) + x);
        sin |x, y| x.cos();
        cos |x, y| -x.sin();
        tan |x, y| x.tan_grad();
        tan_grad |x, y| S::lit(2.0) * x.tan() * y;
        erf |x, y| x.erf_grad();
        erf_grad |x, y| S::lit(-2.0) * x * y;
        gelu |x, y| x.gelu_grad();
        gelu_grad |x, y| normal_density(x) * (S::lit(2.0) - x * x);
        tanh |x, y| x.tanh_grad(y);
        sigmoid |x, y| x.sigmoid_grad();
        sigmoid_grad |x, y| y * -(S::lit(0.5) * x).tanh();
        softplus |x, y| x.sigmoid();
        sqrt |x, y| S::lit(0.5) / y;
    }

    #[inline(always)]
    fn tanh_grad(self, y: Self) -> Self {
        let slope = self.v.tanh_grad(y.v);
        self.through(slope, S::lit(-2.0) * y.v * slope)
    }

    #[inline(always)]
    fn atan2(self, x: Self) -> Self {
        // Both coordinates over the larger one, so that no square overflows or vanishes.
        let size = S::select(self.v.abs().less(x.v.abs()), x.v.abs(), self.v.abs());
        let (py, px) = (self.v / size, x.v / size);
        Dual { v: self.v.atan2(x.v), d: (px * self.d - py * x.d) / ((px * px + py * py) * size) }
    }

    #[inline(always)]
    fn pow(self, y: Self) -> Self {
        let zero = S::lit(0.0);
        let v = self.v.pow(y.v);
        let by_base = self.d * (y.v * self.v.pow(y.v - S::lit(1.0)));
        let by_exponent = y.d * (v * self.v.log());
        // What does not move contributes nothing, whatever its partial is.
        let base_rests = self.d.equal(zero);
        let d = S::select(base_rests, zero, by_base) + S::select(y.d.equal(zero), zero, by_exponent);
        Dual { v, d }
    }

    #[inline(always)]
    fn over_squares(self, y: Self) -> Self {
        let (by_x, by_y) = (self.v.over_squares(y.v), y.v.over_squares(self.v));
        Dual { v: by_x, d: self.d * (by_y * by_y - by_x * by_x) - y.d * (S::lit(2.0) * by_x * by_y) }
    }

    #[inline(always)]
    fn pow_dx(self, y: Self) -> Self {
        let (zero, one) = (S::lit(0.0), S::lit(1.0));
        let curved = y.v * (y.v - one);
        // A line has no curvature, not even where a negative power of its argument is infinite.
        let straight = S::select(self.v.nan_mask(), self.v, zero);
        let slope = S::select(curved.equal(zero), straight, curved * self.v.pow(y.v - S::lit(2.0)));
        Dual { v: self.v.pow_dx(y.v), d: moved(self.d, slope) + moved(y.d, mixed_slope(self.v, y.v)) }
    }

    #[inline(always)]
    fn pow_dy(self, y: Self) -> Self {
        let v = self.v.pow_dy(y.v);
        Dual { v, d: moved(self.d, mixed_slope(self.v, y.v)) + moved(y.d, v * self.v.log()) }
    }

    #[inline(always)]
    fn abs(self) -> Self {
        let zero = S::lit(0.0);
        let d = S::select(self.v.less(zero), -self.d, S::select(zero.less(self.v), self.d, self.v * self.d));
        Dual { v: self.v.abs(), d }
    }

    #[inline(always)]
    fn less(self, other: Self) -> Self::Mask {
        self.v.less(other.v)
    }
    #[inline(always)]
    fn less_equal(self, other: Self) -> Self::Mask {
        self.v.less_equal(other.v)
    }
    #[inline(always)]
    fn equal(self, other: Self) -> Self::Mask {
        self.v.equal(other.v)
    }
    #[inline(always)]
    fn nan_mask(self) -> Self::Mask {
        self.v.nan_mask()
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        Dual { v: S::select(mask, yes.v, no.v), d: S::select(mask, yes.d, no.d) }
    }
}

/// What a movement `d` of an operand contributes: nothing where it rests, whatever the slope is.
#[inline(always)]
fn moved<S: Scalar>(d: S, slope: S) -> S {
    S::select(d.equal(S::lit(0.0)), S::lit(0.0), d * slope)
}

/// `d^2(x^y)/(dx dy) = x^(y-1) (1 + y log x)`.
#[inline(always)]
fn mixed_slope<S: Scalar>(x: S, y: S) -> S {
    x.pow(y - S::lit(1.0)) * (S::lit(1.0) + y * x.log())
}

/// The density of the normal distribution, from the derivative of the error function.
#[inline(always)]
fn normal_density<S: Scalar>(x: S) -> S {
    let scaled = x * S::lit(std::f64::consts::FRAC_1_SQRT_2);
    S::lit(0.5 * std::f64::consts::FRAC_1_SQRT_2) * scaled.erf_grad()
}
