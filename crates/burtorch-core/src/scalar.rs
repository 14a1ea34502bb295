//! What a node may carry: the `Scalar` trait, for plain floats and for lanes of them.
//!
//! Promises: lane k of every operation equals the operation on lane k, bit for bit; an op on half numbers is computed in
//! f32 and rounded once. The half types are in `narrow`, f128 is in `wide`. Knows nothing of graphs.

mod decimal;
mod narrow;
mod wide;
mod wide_gelu;

mod dual;
mod inlined;

use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::kernels::BlockMath;
use crate::simd::{Elementary, Mask, Select, Simd, SimdFloat, SimdPartialEq, SimdPartialOrd};

pub use decimal::{f128_from_decimal, f128_to_decimal};
pub use dual::Dual;
pub use half::{bf16, f16};
pub(crate) use inlined::Inlined;

/// The element types that burtorch names, with the names Python uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE 754 binary32, one per node.
    Float32,
    /// IEEE 754 binary64, one per node.
    Float64,
    /// IEEE 754 binary16, computed in binary32.
    Float16,
    /// The upper half of a binary32, computed in binary32.
    BFloat16,
    /// IEEE 754 binary128.
    Float128,
}

impl DType {
    /// All of them.
    pub const ALL: [DType; 5] = [DType::Float32, DType::Float64, DType::Float16, DType::BFloat16, DType::Float128];

    /// The name as in `Graph(dtype=...)`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Float32 => "float32",
            DType::Float64 => "float64",
            DType::Float16 => "float16",
            DType::BFloat16 => "bfloat16",
            DType::Float128 => "float128",
        }
    }
}

mod sealed {
    /// Implemented here only: a graph runs a scalar's code while it is borrowed, so that code must be known.
    pub trait Sealed {}
}

/// A number or a fixed group of numbers (lanes) that one node carries. The types of this crate only.
///
/// Comparisons give a mask, and [`Scalar::select`] chooses by it: code without branches serves all lane counts.
pub trait Scalar:
    Copy
    + Debug
    + Default
    + PartialEq
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + BlockMath
    + sealed::Sealed
{
    /// The type of one lane.
    type Elem: Float;
    /// One truth value per lane.
    type Mask: Copy;
    /// What ops are computed in: f32 for the half types, otherwise this type itself.
    type Compute: Scalar<Compute = Self::Compute>;

    /// Lanes per scalar; 1 for plain floats.
    const LANES: usize;
    /// The adjoint of a node that no path has reached: -0.0 in every lane.
    const UNREACHED: Self;

    /// The number in the type that ops are computed in; exact.
    fn widen(self) -> Self::Compute;
    /// A computed number, rounded to this type.
    fn narrow(computed: Self::Compute) -> Self;

    /// The same number in every lane.
    fn splat(elem: Self::Elem) -> Self;
    /// A literal in every lane.
    #[inline(always)]
    fn lit(x: f64) -> Self {
        Self::splat(Self::Elem::from_f64(x))
    }
    /// Lane `k`.
    fn lane(self, k: usize) -> Self::Elem;
    /// A copy with lane `k` replaced.
    fn with_lane(self, k: usize, elem: Self::Elem) -> Self;
    /// The sum over lanes, in one fixed order.
    fn sum_lanes(self) -> Self::Elem;
    /// Whether every lane is finite.
    fn all_finite(self) -> bool;
    /// Whether the adjoint is the "not reached" one. All lanes of a node are reached at once, so one lane tells.
    fn is_unreached(&self) -> bool;
    /// Whether every lane is zero of either sign.
    fn all_zero(self) -> bool;

    /// Whether `1/self` is exact and normal in every lane, so that dividing by `self` is multiplying by `1/self`.
    fn has_exact_inverse(self) -> bool;

    /// e^x.
    fn exp(self) -> Self;
    /// e^x - 1.
    fn expm1(self) -> Self;
    /// The natural logarithm.
    fn log(self) -> Self;
    /// log(1 + x).
    fn log1p(self) -> Self;
    /// Sine.
    fn sin(self) -> Self;
    /// Cosine.
    fn cos(self) -> Self;
    /// Tangent.
    fn tan(self) -> Self;
    /// Its derivative.
    fn tan_grad(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// Its derivative.
    fn erf_grad(self) -> Self;
    /// x times the normal distribution at x.
    fn gelu(self) -> Self;
    /// Its derivative.
    fn gelu_grad(self) -> Self;
    /// The angle of the point (x, self).
    fn atan2(self, x: Self) -> Self;
    /// `self / (self^2 + y^2)`.
    fn over_squares(self, y: Self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Its derivative, given `y = tanh(self)`.
    fn tanh_grad(self, y: Self) -> Self;
    /// 1/(1 + e^-x).
    fn sigmoid(self) -> Self;
    /// Its derivative.
    fn sigmoid_grad(self) -> Self;
    /// log(1 + e^x).
    fn softplus(self) -> Self;
    /// x^y.
    fn pow(self, y: Self) -> Self;
    /// Its derivative by x.
    fn pow_dx(self, y: Self) -> Self;
    /// Its derivative by y.
    fn pow_dy(self, y: Self) -> Self;

    /// Square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// Magnitude.
    fn abs(self) -> Self;

    /// Per lane `self < other`.
    fn less(self, other: Self) -> Self::Mask;
    /// Per lane `self <= other`.
    fn less_equal(self, other: Self) -> Self::Mask;
    /// Per lane `self == other`.
    fn equal(self, other: Self) -> Self::Mask;
    /// Per lane: is it a NaN?
    fn nan_mask(self) -> Self::Mask;
    /// Per lane `yes` where the mask holds, else `no`.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
}

/// A plain float: one lane, which is itself.
pub trait Float: Scalar<Elem = Self, Mask = bool> + PartialOrd {
    /// The name of the type.
    const DTYPE: DType;
    /// Rounds to this type.
    fn from_f64(x: f64) -> Self;
    /// Widens or rounds to `f64`.
    fn to_f64(self) -> f64;
    /// Rounds to this type.
    fn from_f128(x: f128) -> Self;
    /// Widens; exact.
    fn to_f128(self) -> f128;
}

/// The elementary functions of [`Scalar`], from the module that has one implementation for numbers and lanes.
macro_rules! elementary {
    () => {
        elementary! {
            exp expm1 log log1p sin cos tan tan_grad tanh sigmoid sigmoid_grad softplus erf erf_grad gelu gelu_grad;
            tanh_grad pow pow_dx pow_dy atan2 over_squares
        }
    };
    ($($name:ident)* ; $($name2:ident)*) => {
        $(
            #[inline(always)]
            fn $name(self) -> Self {
                Elementary::$name(self)
            }
        )*
        $(
            #[inline(always)]
            fn $name2(self, y: Self) -> Self {
                Elementary::$name2(self, y)
            }
        )*
    };
}

macro_rules! plain_float {
    ($t:ty, $dtype:ident) => {
        impl sealed::Sealed for $t {}

        impl Scalar for $t {
            type Elem = $t;
            type Mask = bool;
            type Compute = $t;
            const LANES: usize = 1;
            const UNREACHED: Self = -0.0;

            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn narrow(computed: $t) -> $t {
                computed
            }

            #[inline(always)]
            fn splat(elem: $t) -> Self {
                elem
            }
            #[inline(always)]
            fn lane(self, _k: usize) -> $t {
                self
            }
            #[inline(always)]
            fn with_lane(self, _k: usize, elem: $t) -> Self {
                elem
            }
            #[inline(always)]
            fn sum_lanes(self) -> $t {
                self
            }
            #[inline(always)]
            fn all_finite(self) -> bool {
                self.is_finite()
            }
            #[inline(always)]
            fn is_unreached(&self) -> bool {
                self.to_bits() == (-0.0 as $t).to_bits()
            }
            #[inline(always)]
            fn all_zero(self) -> bool {
                self == 0.0
            }
            #[inline(always)]
            fn has_exact_inverse(self) -> bool {
                // A power of two (no bits in the fraction) that is normal and whose inverse is.
                const FRACTION: u32 = <$t>::MANTISSA_DIGITS - 1;
                let bits = self.to_bits();
                bits & ((1 << FRACTION) - 1) == 0 && self.is_normal() && (1.0 / self).is_normal()
            }
            elementary!();
            #[inline(always)]
            fn sqrt(self) -> Self {
                <$t>::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                <$t>::abs(self)
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

        impl Float for $t {
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline]
            fn from_f128(x: f128) -> Self {
                x as $t
            }
            #[inline]
            fn to_f128(self) -> f128 {
                self as f128
            }
        }
    };
}

plain_float!(f32, Float32);
plain_float!(f64, Float64);

macro_rules! lanes {
    ($t:ty, $int:ty, $n:literal) => {
        impl sealed::Sealed for Simd<$t, $n> {}

        impl Scalar for Simd<$t, $n> {
            type Elem = $t;
            type Mask = Mask<$int, $n>;
            type Compute = Self;
            const LANES: usize = $n;
            const UNREACHED: Self = Simd::from_array([-0.0; $n]);

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }
            #[inline(always)]
            fn narrow(computed: Self) -> Self {
                computed
            }

            #[inline(always)]
            fn splat(elem: $t) -> Self {
                Simd::splat(elem)
            }
            #[inline(always)]
            fn lane(self, k: usize) -> $t {
                self[k]
            }
            #[inline(always)]
            fn with_lane(mut self, k: usize, elem: $t) -> Self {
                self[k] = elem;
                self
            }
            #[inline(always)]
            fn sum_lanes(self) -> $t {
                // Halves are added until one lane is left: the same tree at every instruction level.
                let mut lanes = self.to_array();
                let mut width = $n;
                while width > 1 {
                    width /= 2;
                    for k in 0..width {
                        lanes[k] += lanes[k + width];
                    }
                }
                lanes[0]
            }
            #[inline(always)]
            fn all_finite(self) -> bool {
                self.is_finite().all()
            }
            #[inline(always)]
            fn is_unreached(&self) -> bool {
                self[0].to_bits() == (-0.0 as $t).to_bits()
            }
            #[inline(always)]
            fn all_zero(self) -> bool {
                self.simd_eq(Simd::splat(0.0)).all()
            }
            #[inline(always)]
            fn has_exact_inverse(self) -> bool {
                self.to_array().iter().all(|x| x.has_exact_inverse())
            }
            elementary!();
            #[inline(always)]
            fn sqrt(self) -> Self {
                crate::simd::StdFloat::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                SimdFloat::abs(self)
            }
            #[inline(always)]
            fn less(self, other: Self) -> Self::Mask {
                self.simd_lt(other)
            }
            #[inline(always)]
            fn less_equal(self, other: Self) -> Self::Mask {
                self.simd_le(other)
            }
            #[inline(always)]
            fn equal(self, other: Self) -> Self::Mask {
                self.simd_eq(other)
            }
            #[inline(always)]
            fn nan_mask(self) -> Self::Mask {
                self.is_nan()
            }
            #[inline(always)]
            fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
                mask.select(yes, no)
            }
        }
    };
}

lanes!(f32, i32, 4);
lanes!(f32, i32, 8);
lanes!(f32, i32, 16);
lanes!(f32, i32, 64);
lanes!(f64, i64, 2);
lanes!(f64, i64, 4);
lanes!(f64, i64, 8);
