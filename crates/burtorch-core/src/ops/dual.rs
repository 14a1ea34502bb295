//! Dual numbers: a value and its derivative in one direction, as a [`Scalar`] or, over a number that records, as the type in
//! which formulas are written.
//!
//! Promises: the value part of every operation has the bits of the operation on values. Derivatives of functions are those of
//! the rows. A zero tangent contributes nothing, however large its partial is: no 0 * inf, and nothing recorded. Does not know
//! programs, which use it to differentiate a reverse pass once more.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::formulas::{faded, over_squares_bend, pow_dx_dx, pow_dx_dy, pow_dy_dy};
use super::{self as rows, BinaryOp, UnaryOp};
use crate::scalar::{RowMath, Scalar, sealed};
use crate::simd::for_each_function;

/// `v + d e` with `e * e = 0`: a value, and how fast it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dual<S> {
    /// The value.
    pub v: S,
    /// Its derivative.
    pub d: S,
}

impl<S: RowMath> Dual<S> {
    /// A value with its derivative.
    #[inline(always)]
    pub const fn new(v: S, d: S) -> Self {
        Dual { v, d }
    }
}

impl<S: RowMath> Add for Dual<S> {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Dual { v: self.v + other.v, d: sum_of_moved(self.d, other.d) }
    }
}

impl<S: RowMath> Sub for Dual<S> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Dual { v: self.v - other.v, d: difference(self.d, other.d) }
    }
}

impl<S: RowMath> Mul for Dual<S> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Dual {
            v: self.v * other.v,
            d: sum_of_moved(moved(self.d, || self.d * other.v), moved(other.d, || other.d * self.v)),
        }
    }
}

impl<S: RowMath> Div for Dual<S> {
    type Output = Self;
    #[inline(always)]
    #[allow(clippy::suspicious_arithmetic_impl)] // the quotient rule multiplies
    fn div(self, other: Self) -> Self {
        let v = self.v / other.v;
        let rise = difference(self.d, moved(other.d, || other.d * v));
        let slope = || unless_at_rest(rise, rise, rise / other.v);
        Dual { v, d: if rests(rise) { rise } else { slope() } }
    }
}

impl<S: RowMath> Neg for Dual<S> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Dual { v: -self.v, d: if rests(self.d) { self.d } else { -self.d } }
    }
}

impl<S: Scalar> sealed::Sealed for Dual<S> {}

/// The functions: the derivative of an op is that of its row; those of helpers are listed.
macro_rules! of_duals {
    (
        op { $($(#[$doc:meta])* $name:ident $row:ident { $($body:tt)* })* }
        op2 { $($(#[$doc2:meta])* $name2:ident $row2:ident { $($body2:tt)* })* }
        exact { $($(#[$edoc:meta])* $exact:ident $erow:ident { $from:ident })* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hrow:ident {
            $(rare)? |$hx:ident| $hwide:expr;
            dx = |$hg:ident, $hx1:ident, $hy1:ident| $hdx:expr;
        })* }
        helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hrow2:ident {
            $(rare)? |$hx2:ident, $hy2:ident| $hwide2:expr;
            dx = |$gx:ident, $xx:ident, $yx:ident, $zx:ident| $hdx2:expr;
            dy = |$gy:ident, $xy:ident, $yy:ident, $zy:ident| $hdy2:expr;
        })* }
        slice { $($slice:tt)* }
    ) => {
        of_duals! {
            $( $name |g, x, y| rows::$row::dx(g, x, y); )*
            $( $exact |g, x, y| rows::$erow::dx(g, x, y); )*
            $( $hname |$hg, $hx1, $hy1| $hdx; )*
        }
        of_duals! { both
            $( $name2 |gx, xx, yx, zx| rows::$row2::dx(gx, xx, yx, zx), |gy, xy, yy, zy| rows::$row2::dy(gy, xy, yy, zy); )*
            $( $hname2 |$gx, $xx, $yx, $zx| $hdx2, |$gy, $xy, $yy, $zy| $hdy2; )*
        }
    };
    ($($name:ident |$g:ident, $x:ident, $y:ident| $dx:expr;)*) => { $(
        #[inline(always)]
        fn $name(self) -> Self {
            #[inline(always)]
            #[allow(unused_variables)]
            fn dx<S: RowMath>($g: S, $x: S, $y: S) -> S {
                $dx
            }
            let y = RowMath::$name(self.v);
            Dual { v: y, d: moved(self.d, || dx(self.d, self.v, y)) }
        }
    )* };
    (both $(
        $name:ident |$gx:ident, $xx:ident, $yx:ident, $zx:ident| $dx:expr,
            |$gy:ident, $xy:ident, $yy:ident, $zy:ident| $dy:expr;
    )*) => { $(
        #[inline(always)]
        fn $name(self, y: Self) -> Self {
            #[inline(always)]
            #[allow(unused_variables)]
            fn dx<S: RowMath>($gx: S, $xx: S, $yx: S, $zx: S) -> S {
                $dx
            }
            #[inline(always)]
            #[allow(unused_variables)]
            fn dy<S: RowMath>($gy: S, $xy: S, $yy: S, $zy: S) -> S {
                $dy
            }
            let z = RowMath::$name(self.v, y.v);
            let by_x = moved_seldom(self.d, || dx(self.d, self.v, y.v, z));
            Dual { v: z, d: sum_of_moved(by_x, moved_seldom(y.d, || dy(y.d, self.v, y.v, z))) }
        }
    )* };
}

impl<S: RowMath> RowMath for Dual<S> {
    type Mask = S::Mask;
    const RECORDS: bool = S::RECORDS;
    const IS_FINITE: bool = S::IS_FINITE;

    #[inline(always)]
    fn lit(x: f64) -> Self {
        // NaN has no derivative: rows return NaN for operands outside the domain.
        let v = S::lit(x);
        Dual { v, d: if x.is_nan() { v } else { S::lit(0.0) } }
    }
    #[inline(always)]
    fn all_zero(self) -> bool {
        self.v.all_zero() && self.d.all_zero()
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
        Dual {
            v: S::select(mask, yes.v, no.v),
            d: if rests(yes.d) && rests(no.d) { yes.d } else { S::select(mask, yes.d, no.d) },
        }
    }

    for_each_function!(of_duals);
}

impl<S: Scalar> Scalar for Dual<S> {
    type Elem = S::Elem;
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
    type Part = Self;

    #[inline(always)]
    fn part(self, _k: usize) -> Self {
        self
    }
    #[inline(always)]
    fn with_part(self, _k: usize, part: Self) -> Self {
        part
    }

    #[inline(always)]
    fn splat(elem: Self::Elem) -> Self {
        let v = S::splat(elem);
        Dual { v, d: S::select(v.nan_mask(), v, S::lit(0.0)) }
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
    fn has_exact_inverse(self) -> bool {
        self.v.has_exact_inverse()
    }
}

/// Whether a derivative is known to be 0; relevant when operations are recorded.
#[inline(always)]
fn rests<S: RowMath>(d: S) -> bool {
    S::RECORDS && d.all_zero()
}

/// The sum of the contributions of two operands.
#[inline(always)]
pub(crate) fn sum_of_moved<S: RowMath>(x: S, y: S) -> S {
    if rests(x) {
        y
    } else if rests(y) {
        x
    } else {
        x + y
    }
}

#[inline(always)]
fn difference<S: RowMath>(x: S, y: S) -> S {
    if rests(y) {
        x
    } else if rests(x) {
        -y
    } else {
        x - y
    }
}

/// The contribution of an operand with tangent `d`: none if `d` is 0, whatever the partial.
#[inline(always)]
pub(crate) fn moved<S: RowMath>(d: S, contribution: impl Fn() -> S) -> S {
    if rests(d) {
        return d;
    }
    let c = contribution();
    if rests(c) { c } else { unless_at_rest(d, S::lit(0.0), c) }
}

/// `c`, a multiple of the tangent `d`, or `rest` if `d` is 0. When operations are recorded it is `c` there too, unless
/// that is 0 * inf: the record may be differentiated again, and `c` depends on `d`.
#[inline(always)]
fn unless_at_rest<S: RowMath>(d: S, rest: S, c: S) -> S {
    if S::IS_FINITE {
        return c;
    }
    let zero = S::lit(0.0);
    let at_rest = if S::RECORDS { S::select(c.nan_mask(), rest, c + zero) } else { rest };
    S::select(d.equal(zero), at_rest, c)
}

/// The same for an expensive contribution: an exponent is usually constant.
#[inline(always)]
fn moved_seldom<S: RowMath>(d: S, contribution: impl Fn() -> S) -> S {
    if d.all_zero() { S::lit(0.0) } else { moved(d, contribution) }
}
