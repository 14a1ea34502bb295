//! Formulas that rows of the op table share.
//!
//! Promises: written over [`RowMath`], without branches. Does not know ops.

use crate::scalar::RowMath;

/// The larger of two numbers of which neither is less: equal numbers, zeros of any sign, or a NaN.
#[inline(always)]
pub(super) fn tie<S: RowMath>(x: S, y: S) -> S {
    S::select(x.equal(S::lit(0.0)), x + y, S::select(x.nan_mask(), x, y))
}

/// The share of `g` that `max` passes to `x` against `y`: all, half on a tie, or none.
#[inline(always)]
pub(super) fn larger_share<S: RowMath>(g: S, x: S, y: S) -> S {
    let half = S::lit(0.5) * g;
    let none = S::select(x.nan_mask(), x, S::select(y.nan_mask(), y, S::lit(0.0)));
    S::select(y.less(x), g, S::select(x.equal(y), half, none))
}

/// `(x + y)/2`, even if the sum overflows.
#[inline(always)]
pub(super) fn half_sum<S: RowMath>(x: S, y: S) -> S {
    let (half, sum) = (S::lit(0.5), x + y);
    S::select(sum.abs().less(S::lit(f64::INFINITY)), half * sum, half * x + half * y)
}

/// `(x^2 + y^2)/2`, even if the sum overflows.
#[inline(always)]
pub(super) fn half_sum_of_squares<S: RowMath>(x: S, y: S) -> S {
    let (half, sum) = (S::lit(0.5), x * x + y * y);
    S::select(sum.abs().less(S::lit(f64::INFINITY)), half * sum, half * x * x + half * y * y)
}

/// A product with a factor that vanishes faster than the others grow.
#[inline(always)]
pub(super) fn faded<S: RowMath>(factor: S, product: S) -> S {
    S::select(factor.equal(S::lit(0.0)), factor, product)
}

/// A second partial of atan2: `bend` of both coordinates, divided by the larger one so that no square overflows or
/// underflows, over the fourth power of the distance.
#[inline(always)]
pub(super) fn over_squares_bend<S: RowMath>(x: S, y: S, bend: impl Fn(S, S) -> S) -> S {
    let size = S::select(x.abs().less(y.abs()), y.abs(), x.abs());
    let (px, py) = (x / size, y / size);
    let square = px * px + py * py;
    let slope = bend(px, py) / (square * square) / size / size;
    S::select(size.equal(S::lit(f64::INFINITY)), S::lit(0.0), slope)
}

/// `y - c`, and its rounding error.
#[inline(always)]
fn lowered<S: RowMath>(y: S, c: S) -> (S, S) {
    let e = y - c;
    let back = e - y;
    (e, (y - (e - back)) - (c + back))
}

/// `x^(y-c) a b`, 0 if the power is 0. If the power is out of range although the product is not, each factor gets half
/// of it, in two quarters.
#[inline(always)]
fn power_times<S: RowMath>(x: S, y: S, c: f64, a: S, b: S) -> S {
    let (zero, one, c) = (S::lit(0.0), S::lit(1.0), S::lit(c));
    let within = |x: S, bound: f64, yes: S, no: S| S::select(x.abs().less(S::lit(bound)), yes, no);
    // The rounding error of the exponent, times the logarithm, corrects the power.
    let (e, lost) = lowered(y, c);
    let log = x.abs().log();
    let a = a * (one + within(log, 1e4, within(lost, 1.0, lost * log, zero), zero));
    // If the exponent was rounded, its parity no longer determines the sign, so the magnitude of x is used.
    let base = S::select(lost.equal(zero), x, x.abs());
    let power = base.pow(e);
    // At 0 and infinity the power itself, because a quarter of the exponent may underflow.
    let quarter = within(log, 1e4, x.abs().pow(S::lit(0.25) * e), power.abs());
    let size = faded(quarter, (quarter * a * quarter) * (quarter * b) * quarter);
    // A power of -0.0 counts as negative.
    let far = S::select(power.less(zero), -size, S::select((one / power).less(zero), -size, size));
    let near = within(a, 1e3, within(b, 1e3, power * (a * b), far), far);
    let inside = within(power, 1e30, within(power, 1e-30, far, near), far);
    S::select(power.nan_mask(), power, inside)
}

/// `y` times the slope of `x^(y-1)`, whose derivatives of any order are as regular as those of a power; `other` where `y - 1` is
/// rounded or the slope leaves the range in which it is exact to its last bits.
#[inline(always)]
fn times_slope<S: RowMath>(x: S, y: S, other: S) -> S {
    let zero = S::lit(0.0);
    let (e, lost) = lowered(y, S::lit(1.0));
    let slope = x.pow_dx(e);
    let product = y * slope;
    let small = slope * S::lit(1.0 / 16777216.0);
    let if_whole = |yes: S| S::select((small * S::lit(16777216.0)).equal(slope), yes, other);
    let if_finite = |yes: S| S::select(product.abs().less(S::lit(f64::INFINITY)), yes, other);
    let if_exact = |yes: S| S::select(lost.equal(zero), yes, other);
    // A slope of 0 may be one that is too small for its own product.
    let product = S::select(slope.equal(zero), S::select(other.equal(zero), product, other), product);
    if_exact(if_finite(if_whole(product)))
}

/// `d^2(x^y)/dx^2 = y (y-1) x^(y-2)`. A linear function has no curvature, even where a negative power of x is infinite.
#[inline(always)]
pub(super) fn pow_dx_dx<S: RowMath>(x: S, y: S) -> S {
    let (zero, one) = (S::lit(0.0), S::lit(1.0));
    let straight = S::select(x.nan_mask(), x, zero);
    let curved = times_slope(x, y, power_times(x, y, 2.0, y, y - one));
    // A zero of the formula itself still depends on y.
    let straight = S::select(curved.equal(zero), curved + zero, straight);
    S::select(y.equal(zero), straight, S::select(y.equal(one), straight, curved))
}

/// `d^2(x^y)/(dx dy) = x^(y-1) (1 + y log x)`; NaN for x < 0.
#[inline(always)]
pub(super) fn pow_dx_dy<S: RowMath>(x: S, y: S) -> S {
    let (one, log) = (S::lit(1.0), x.log());
    let factor = one + y * log;
    let factor = S::select(y.equal(S::lit(0.0)), S::select(factor.nan_mask(), one, factor), factor);
    S::select(log.nan_mask(), log, power_times(x, y, 1.0, factor, one))
}

/// `d^2(x^y)/dy^2 = x^y (log x)^2`; at x = 0 it is 0 for y >= 0, as the first derivative is; NaN for x < 0.
#[inline(always)]
pub(super) fn pow_dy_dy<S: RowMath>(x: S, y: S) -> S {
    let (zero, log) = (S::lit(0.0), x.log());
    let inside = S::select(log.nan_mask(), log, power_times(x, y, 0.0, log, log));
    let at_zero = S::select(y.less(zero), inside, S::select(y.nan_mask(), y, zero));
    S::select(x.equal(zero), at_zero, inside)
}

/// A constant in three parts, so that f128 has all digits.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $high:expr, $middle:literal, $low:literal;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name<S: RowMath>() -> S {
            S::lit($high) + (S::lit($middle) + S::lit($low))
        }
    )* };
}

constants! {
    /// log 2.
    ln_2 = std::f64::consts::LN_2, 2.3190468138462996e-17, 5.707708438416212e-34;
    /// log 10.
    ln_10 = std::f64::consts::LN_10, -2.1707562233822494e-16, -9.984262454465777e-33;
    /// 1/log 2.
    log2_e = std::f64::consts::LOG2_E, 2.0355273740931033e-17, -1.0614659956117258e-33;
    /// 1/log 10.
    log10_e = std::f64::consts::LOG10_E, 1.098319650216765e-17, 3.717181233110959e-34;
    /// The scale of selu.
    selu_scale = 1.0507009873554805, 3.9874847667154144e-17, 1.0069132266402253e-33;
    /// The scale of selu times selu(-infinity) without the scale.
    selu_depth = 1.7580993408473768, 1.41535193800845e-17, -1.1763708922383827e-33;
    /// sqrt(1/2).
    root_half = std::f64::consts::FRAC_1_SQRT_2, -4.833646656726457e-17, 2.0693376543497068e-33;
}

/// -1, 0 or 1; NaN for NaN.
#[inline(always)]
pub(super) fn sign_of<S: RowMath>(x: S) -> S {
    let (zero, one) = (S::lit(0.0), S::lit(1.0));
    S::select(zero.less(x), one, S::select(x.less(zero), -one, S::select(x.nan_mask(), x, zero)))
}

/// The nearest integer, ties to even, with the sign of x.
#[inline(always)]
pub(super) fn nearest<S: RowMath>(x: S) -> S {
    let (half, size) = (S::lit(0.5), x.abs());
    let below = size.floor();
    let rest = size - below;
    let is_even = (below * half).equal((below * half).floor());
    let on_tie = S::select(is_even, below, below + S::lit(1.0));
    let near = S::select(half.less(rest), below + S::lit(1.0), S::select(rest.equal(half), on_tie, below));
    S::select(x.less(S::lit(0.0)), -near, S::select(x.equal(S::lit(0.0)), x, near))
}

/// 1 - x^2: as a product if the difference would lose digits, and as a difference if its derivative, -2x, would.
#[inline(always)]
pub(super) fn below_one<S: RowMath>(x: S) -> S {
    let one = S::lit(1.0);
    S::select(x.abs().less(S::lit(0.5)), one - x * x, (one - x) * (one + x))
}

/// sqrt(x^2 - 1) for x >= 1, without overflow.
#[inline(always)]
pub(super) fn acosh_run<S: RowMath>(x: S) -> S {
    let one = S::lit(1.0);
    let run = ((x - one) * (x + one)).sqrt();
    S::select(x.less(one), S::lit(f64::NAN), S::select(S::lit(1e18).less(x), x, run))
}

/// The derivative of y = cbrt(x).
#[inline(always)]
pub(super) fn cbrt_slope<S: RowMath>(x: S, y: S) -> S {
    let infinity = S::lit(f64::INFINITY);
    let (slope, steep) = (y / x / S::lit(3.0), S::lit(1.0) / x);
    let at_zero = S::select(steep.less(S::lit(0.0)), -steep, steep);
    S::select(x.equal(S::lit(0.0)), at_zero, S::select(x.abs().equal(infinity), S::lit(0.0), slope))
}

/// The derivative of x sigmoid(x).
#[inline(always)]
pub(super) fn silu_slope<S: RowMath>(x: S) -> S {
    let bend = S::select(x.abs().equal(S::lit(f64::INFINITY)), S::lit(0.0), x * x.sigmoid_grad());
    x.sigmoid() + bend
}

/// The share of `g` for a function with slope 1 for x > 0 and `slope` for x < 0, whose left slope at 0 is `at_zero`; at
/// 0 it is the slope of smallest magnitude between the two.
#[inline(always)]
pub(super) fn kinked<S: RowMath>(g: S, x: S, at_zero: S, slope: S) -> S {
    let (zero, one) = (S::lit(0.0), S::lit(1.0));
    let least = S::select(at_zero.less(zero), zero, S::select(one.less(at_zero), one, at_zero));
    let left = S::select(x.less(zero), g * slope, S::select(x.nan_mask(), x, g * least));
    S::select(zero.less(x), g, left)
}

/// c e^x for x <= 0, even if the exponential alone would lose digits.
#[inline(always)]
pub(super) fn scaled_exp<S: RowMath>(c: S, x: S) -> S {
    let half = (S::lit(0.5) * x).exp();
    let scaled = S::select(x.less(S::lit(-80.0)), (c * half) * half, c * x.exp());
    // An infinite factor outweighs an exponential that is only 0 by rounding.
    let infinity = S::lit(f64::INFINITY);
    let outlasts = S::select(x.equal(-infinity), scaled, c);
    S::select(c.abs().equal(infinity), outlasts, scaled)
}

/// x/z for z = hypot(x, y): 0 at the origin, equal shares if both are infinite. The larger share is computed from 1 and
/// the smaller one, because derivatives of x/z cancel there.
#[inline(always)]
pub(super) fn hypot_share<S: RowMath>(x: S, y: S, z: S) -> S {
    let (zero, one, infinity) = (S::lit(0.0), S::lit(1.0), S::lit(f64::INFINITY));
    // The length of finite operands may overflow, and that of subnormal operands has few digits.
    let factor =
        S::select(z.equal(infinity), S::lit(0.25), S::select(z.less(S::lit(1e-30)), S::lit(2f64.powi(64)), one));
    let length = S::select(factor.equal(one), z, (factor * x).hypot(factor * y));
    let (share, other) = (factor * x / length, factor * y / length);
    let rest = sign_of(x) * (one - other * other / (one + share.abs()));
    // If the length has no finite inverse, only the share itself has a derivative in range.
    let rest = S::select(z.less(S::lit(1e-300)), share, rest);
    let share = S::select(y.abs().less(x.abs()), rest, share);
    let alone = S::select(y.abs().equal(infinity), root_half(), one);
    let at_infinity = sign_of(x) * S::select(y.nan_mask(), y, alone);
    let share = S::select(x.abs().equal(infinity), at_infinity, share);
    S::select(z.equal(zero), zero, share)
}

/// x - y in two parts; the second is 0 if the first is not finite. The difference of equal infinities is 0.
#[inline(always)]
fn difference<S: RowMath>(x: S, y: S) -> (S, S) {
    let high = x - y;
    let back = high - x;
    let low = (x - (high - back)) - (y + back);
    let (zero, infinity) = (S::lit(0.0), S::lit(f64::INFINITY));
    let apart = S::select(high.nan_mask(), S::select(x.equal(y), zero, high), high);
    (apart, S::select(high.abs().less(infinity), low, zero))
}

/// log(e^x + e^y): the larger operand, plus log(1 + e^-|x - y|).
#[inline(always)]
pub(super) fn log_add_exp<S: RowMath>(x: S, y: S) -> S {
    let is_first = y.less(x);
    let (top, other) = (S::select(is_first, x, y), S::select(is_first, y, x));
    let (distance, rest) = difference(other, top);
    let more = distance.exp();
    top + (more + more * rest).log1p()
}

/// 1/(1 + e^(y - x)).
#[inline(always)]
pub(super) fn logistic_of_difference<S: RowMath>(x: S, y: S) -> S {
    let (distance, rest) = difference(x, y);
    distance.sigmoid() + rest * distance.sigmoid_grad()
}

/// The derivative of x log(y) by y.
#[inline(always)]
pub(super) fn xlogy_slope<S: RowMath>(x: S, y: S) -> S {
    let zero = S::lit(0.0);
    let slope = S::select(y.less(zero), S::lit(f64::NAN), x / y);
    let at_zero = S::select(zero.less(y), slope, S::select(y.nan_mask(), y, zero));
    S::select(x.equal(zero), at_zero, slope)
}
