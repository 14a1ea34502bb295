//! Half-precision numbers: `f16` and `bf16` of the crate `half`, as scalars.
//!
//! Promises: every op is computed in f32 and rounded once, to nearest even; so is every sum of two adjoints, and each
//! addition to a gradient. Reductions add in f32 and round their result.

use half::{bf16, f16};

use super::{DType, Float, RowMath, Scalar, sealed};
use crate::simd::for_each_function;

/// `x` in f32, with the last bit set if it is not exact: rounding that to a half type equals rounding `x` itself.
#[inline]
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) == x || x.is_nan() {
        return near;
    }
    // Steps towards zero if rounding went outwards: an infinity becomes the largest number.
    let outwards = f64::from(near).abs() > x.abs();
    f32::from_bits((near.to_bits() - u32::from(outwards)) | 1)
}

/// The same from an f128.
fn wide_to_odd(x: f128) -> f64 {
    let near = x as f64;
    if f128::from(near) == x || x.is_nan() {
        return near;
    }
    let outwards = f128::from(near).abs() > x.abs();
    f64::from_bits((near.to_bits() - u64::from(outwards)) | 1)
}

/// A half number in f32: the conversion detects CPU features, so there is one copy.
#[inline(never)]
fn f32_of_f16(x: f16) -> f32 {
    x.to_f32()
}

/// The nearest half number, likewise.
#[inline(never)]
fn f16_of_f32(x: f32) -> f16 {
    f16::from_f32(x)
}

/// Functions: those of f32, rounded.
macro_rules! of_halves {
    (
        op { $($(#[$doc:meta])* $name:ident $formula:ident { $($body:tt)* })* }
        op2 { $($(#[$doc2:meta])* $name2:ident $formula2:ident { $($body2:tt)* })* }
        exact { $($(#[$edoc:meta])* $exact:ident $eformula:ident { $from:ident })* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hformula:ident { $($hbody:tt)* })* }
        helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hformula2:ident { $($hbody2:tt)* })* }
        slice { $($slice:tt)* }
    ) => {
        of_halves! { $($name)* $($exact)* $($hname)* ; $($name2)* $($hname2)* }
    };
    ($($name:ident)* ; $($name2:ident)*) => {
        $(
            #[inline]
            fn $name(self) -> Self {
                Self::narrow(RowMath::$name(self.widen()))
            }
        )*
        $(
            #[inline]
            fn $name2(self, y: Self) -> Self {
                Self::narrow(RowMath::$name2(self.widen(), y.widen()))
            }
        )*
    };
}

macro_rules! half_number {
    ($t:ty, $dtype:ident, $fraction:literal, $widen:expr, $narrow:expr) => {
        impl sealed::Sealed for $t {}

        impl RowMath for $t {
            #[inline]
            fn lit(x: f64) -> Self {
                $narrow(to_odd(x))
            }
            of_one_number!(compared);

            for_each_function!(of_halves);
        }

        impl Scalar for $t {
            type Elem = $t;
            type Compute = f32;
            const LANES: usize = 1;
            const UNREACHED: Self = <$t>::NEG_ZERO;

            #[inline(always)]
            fn widen(self) -> f32 {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(computed: f32) -> $t {
                $narrow(computed)
            }
            of_one_number!(lane);
            #[inline(always)]
            fn all_finite(self) -> bool {
                self.is_finite()
            }
            #[inline(always)]
            fn is_unreached(&self) -> bool {
                self.to_bits() == Self::UNREACHED.to_bits()
            }
            #[inline(always)]
            fn has_exact_inverse(self) -> bool {
                let inverse = Self::narrow(1.0 / self.widen());
                self.to_bits() & ((1 << $fraction) - 1) == 0 && self.is_normal() && inverse.is_normal()
            }
        }

        impl Float for $t {
            const DTYPE: DType = DType::$dtype;
            #[inline]
            fn from_f64(x: f64) -> Self {
                $narrow(to_odd(x))
            }
            #[inline]
            fn to_f64(self) -> f64 {
                $widen(self).into()
            }
            fn from_f128(x: f128) -> Self {
                <Self as Float>::from_f64(wide_to_odd(x))
            }
            fn to_f128(self) -> f128 {
                $widen(self).into()
            }
        }
    };
}

half_number!(f16, Float16, 10, f32_of_f16, f16_of_f32);
half_number!(bf16, BFloat16, 7, bf16::to_f32, bf16::from_f32);
