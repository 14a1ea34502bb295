//! The argument type of an elementary function: one number, or a vector of them.
//!
//! Contains the sealed trait [`Real`] (f32, f64 and their vectors) with its integer and truth-value companions.
//! Promises: every method is one IEEE operation per lane, so a formula written over `Real` gives the same bits in a
//! scalar and in each lane of a vector. Does not know the functions built on it.

use std::fmt::Debug;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};
use std::simd::cmp::{SimdPartialEq, SimdPartialOrd};
use std::simd::num::{SimdFloat, SimdInt, SimdUint};
use std::simd::{Mask, Select, Simd, StdFloat};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl<const N: usize> Sealed for super::Simd<f32, N> {}
    impl<const N: usize> Sealed for super::Simd<f64, N> {}
}

/// Truth values of a comparison: `bool`, or one per lane.
pub trait Truth: Copy + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self> {
    /// Whether some lane is true.
    fn any(self) -> bool;
    /// Whether every lane is true.
    fn all(self) -> bool;
}

/// The integers with the bits of the floats: as wide as one float, wrapping, one per lane.
pub trait Bits: Copy {
    /// The same integer in every lane; for a narrow float the low half.
    fn splat(value: i64) -> Self;
    /// Wrapping sum.
    fn plus(self, other: Self) -> Self;
    /// Wrapping difference.
    fn minus(self, other: Self) -> Self;
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
    /// Bitwise or.
    fn or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    fn xor(self, other: Self) -> Self;
    /// Shift towards the high bits.
    fn shift_left(self, by: u32) -> Self;
    /// Shift towards the low bits, filling with zeros.
    fn shift_right(self, by: u32) -> Self;
}

/// A real number or a vector of them: `f32`, `f64`, `Simd<f32, N>`, `Simd<f64, N>`.
///
/// Every operation is lane by lane and rounds once, as IEEE 754 requires; there is no contraction.
pub trait Real:
    sealed::Sealed
    + Copy
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
{
    /// The type of one lane.
    type Elem: Real<Elem = Self::Elem>;
    /// The bits of the lanes.
    type Int: Bits;
    /// The outcome of a comparison.
    type Mask: Truth;
    /// The same lanes in f64: `Self` where they are already.
    type Wide: Real<Elem = f64, Wide = Self::Wide>;
    /// A vector of the width used for slices.
    type Part: Real<Elem = Self::Elem>;
    /// A vector of half that width, 32 bytes.
    type Half: Real<Elem = Self::Elem>;

    /// How many numbers this holds.
    const LANES: usize;
    /// Whether a lane is an f64 (otherwise an f32).
    const DOUBLE: bool;

    /// The same number in every lane.
    fn splat(value: Self::Elem) -> Self;
    /// A constant in every lane, rounded to the lane's type.
    fn of(value: f64) -> Self;
    /// The lane at `index`.
    fn lane(self, index: usize) -> Self::Elem;
    /// A copy in which the lane at `index` is replaced.
    fn with_lane(self, index: usize, value: Self::Elem) -> Self;
    /// The first [`LANES`](Self::LANES) numbers of a slice; panics if it is shorter.
    fn load(from: &[Self::Elem]) -> Self;
    /// Writes the lanes to the start of a slice; panics if it is shorter.
    fn store(self, to: &mut [Self::Elem]);
    /// `self * factor + addend` with one rounding.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// The square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// The absolute value.
    fn abs(self) -> Self;
    /// The largest integer not above this.
    fn whole_below(self) -> Self;
    /// The smallest integer not below this.
    fn whole_above(self) -> Self;
    /// The magnitude of this with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;
    /// The bits.
    fn to_bits(self) -> Self::Int;
    /// The number that has these bits.
    fn from_bits(bits: Self::Int) -> Self;
    /// Lanes in f64, exactly.
    fn widen(self) -> Self::Wide;
    /// Lanes rounded from f64.
    fn narrow(wide: Self::Wide) -> Self;

    /// `self < other`, false for NaN.
    fn is_lt(self, other: Self) -> Self::Mask;
    /// `self <= other`, false for NaN.
    fn is_le(self, other: Self) -> Self::Mask;
    /// `self > other`, false for NaN.
    fn is_gt(self, other: Self) -> Self::Mask;
    /// `self >= other`, false for NaN.
    fn is_ge(self, other: Self) -> Self::Mask;
    /// `self == other`, false for NaN.
    fn is_eq(self, other: Self) -> Self::Mask;
    /// `yes` where `mask` holds, otherwise `no`.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// Whether a lane is NaN.
    #[inline(always)]
    fn is_nan(self) -> Self::Mask {
        !self.is_eq(self)
    }

    /// How many bits the significand stores: 52 or 23.
    const STORED_BITS: u32 = if Self::DOUBLE { 52 } else { 23 };
    /// The bias of the stored exponent: 1023 or 127.
    const BIAS: i64 = if Self::DOUBLE { 1023 } else { 127 };
    /// 1.5 * 2^52 or 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits.
    const ROUNDER: f64 = if Self::DOUBLE { 6755399441055744.0 } else { 12582912.0 };

    /// The nearest integer, ties to even, as a number and as an integer; for magnitudes below 2^51 (f32: 2^22).
    #[inline(always)]
    fn round_to_int(self) -> (Self, Self::Int) {
        let rounder = Self::of(Self::ROUNDER);
        let shifted = self + rounder;
        (shifted - rounder, shifted.to_bits().minus(rounder.to_bits()))
    }

    /// As `(self * factor).round_to_int()`, with one rounding less.
    #[inline(always)]
    fn rounded_multiple(self, factor: Self) -> (Self, Self::Int) {
        let rounder = Self::of(Self::ROUNDER);
        let shifted = self.mul_add(factor, rounder);
        (shifted - rounder, shifted.to_bits().minus(rounder.to_bits()))
    }

    /// A small integer as a number; for magnitudes below 2^51 (f32: 2^22).
    #[inline(always)]
    fn from_int(n: Self::Int) -> Self {
        let rounder = Self::of(Self::ROUNDER);
        Self::from_bits(rounder.to_bits().plus(n)) - rounder
    }

    /// 2^n for n from -1022 to 1023 (f32: -126 to 127).
    #[inline(always)]
    fn exp2_int(n: Self::Int) -> Self {
        let bias = Self::Int::splat(Self::BIAS);
        Self::from_bits(n.plus(bias).shift_left(Self::STORED_BITS))
    }
}

impl Truth for bool {
    #[inline(always)]
    fn any(self) -> bool {
        self
    }
    #[inline(always)]
    fn all(self) -> bool {
        self
    }
}

macro_rules! scalar {
    ($float:ty, $int:ty, $uint:ty, $double:literal) => {
        impl Bits for $int {
            #[inline(always)]
            fn splat(value: i64) -> Self {
                value as $int
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn shift_left(self, by: u32) -> Self {
                self << by
            }
            #[inline(always)]
            fn shift_right(self, by: u32) -> Self {
                ((self as $uint) >> by) as $int
            }
        }

        impl Real for $float {
            type Elem = $float;
            type Int = $int;
            type Mask = bool;
            type Wide = f64;
            type Part = Simd<$float, { 64 / size_of::<$float>() }>;
            type Half = Simd<$float, { 32 / size_of::<$float>() }>;
            const LANES: usize = 1;
            const DOUBLE: bool = $double;

            #[inline(always)]
            fn splat(value: $float) -> Self {
                value
            }
            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $float
            }
            #[inline(always)]
            fn lane(self, _: usize) -> $float {
                self
            }
            #[inline(always)]
            fn with_lane(self, _: usize, value: $float) -> Self {
                value
            }
            #[inline(always)]
            fn load(from: &[$float]) -> Self {
                from[0]
            }
            #[inline(always)]
            fn store(self, to: &mut [$float]) {
                to[0] = self;
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                <$float>::mul_add(self, factor, addend)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                <$float>::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                <$float>::abs(self)
            }
            #[inline(always)]
            fn whole_below(self) -> Self {
                <$float>::floor(self)
            }
            #[inline(always)]
            fn whole_above(self) -> Self {
                <$float>::ceil(self)
            }
            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                <$float>::copysign(self, sign)
            }
            #[inline(always)]
            fn to_bits(self) -> $int {
                <$float>::to_bits(self) as $int
            }
            #[inline(always)]
            fn from_bits(bits: $int) -> Self {
                <$float>::from_bits(bits as $uint)
            }
            #[inline(always)]
            fn widen(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn narrow(wide: f64) -> Self {
                wide as $float
            }
            #[inline(always)]
            fn is_lt(self, other: Self) -> bool {
                self < other
            }
            #[inline(always)]
            fn is_le(self, other: Self) -> bool {
                self <= other
            }
            #[inline(always)]
            fn is_gt(self, other: Self) -> bool {
                self > other
            }
            #[inline(always)]
            fn is_ge(self, other: Self) -> bool {
                self >= other
            }
            #[inline(always)]
            fn is_eq(self, other: Self) -> bool {
                self == other
            }
            #[inline(always)]
            fn select(mask: bool, yes: Self, no: Self) -> Self {
                if mask { yes } else { no }
            }
        }
    };
}

scalar!(f32, i32, u32, false);
scalar!(f64, i64, u64, true);

macro_rules! vector {
    ($float:ty, $int:ty, $uint:ty, $double:literal) => {
        impl<const N: usize> Truth for Mask<$int, N> {
            #[inline(always)]
            fn any(self) -> bool {
                Mask::any(self)
            }
            #[inline(always)]
            fn all(self) -> bool {
                Mask::all(self)
            }
        }

        impl<const N: usize> Bits for Simd<$int, N> {
            #[inline(always)]
            fn splat(value: i64) -> Self {
                Simd::splat(value as $int)
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn shift_left(self, by: u32) -> Self {
                self << Simd::splat(by as $int)
            }
            #[inline(always)]
            fn shift_right(self, by: u32) -> Self {
                (self.cast::<$uint>() >> Simd::splat(by as $uint)).cast::<$int>()
            }
        }

        impl<const N: usize> Real for Simd<$float, N> {
            type Elem = $float;
            type Int = Simd<$int, N>;
            type Mask = Mask<$int, N>;
            type Wide = Simd<f64, N>;
            type Part = Simd<$float, { 64 / size_of::<$float>() }>;
            type Half = Simd<$float, { 32 / size_of::<$float>() }>;
            const LANES: usize = N;
            const DOUBLE: bool = $double;

            #[inline(always)]
            fn splat(value: $float) -> Self {
                Simd::splat(value)
            }
            #[inline(always)]
            fn of(value: f64) -> Self {
                Simd::splat(value as $float)
            }
            #[inline(always)]
            fn lane(self, index: usize) -> $float {
                self[index]
            }
            #[inline(always)]
            fn with_lane(mut self, index: usize, value: $float) -> Self {
                self[index] = value;
                self
            }
            #[inline(always)]
            fn load(from: &[$float]) -> Self {
                Simd::from_slice(from)
            }
            #[inline(always)]
            fn store(self, to: &mut [$float]) {
                self.copy_to_slice(to);
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                StdFloat::mul_add(self, factor, addend)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                StdFloat::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                SimdFloat::abs(self)
            }
            #[inline(always)]
            fn whole_below(self) -> Self {
                StdFloat::floor(self)
            }
            #[inline(always)]
            fn whole_above(self) -> Self {
                StdFloat::ceil(self)
            }
            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                SimdFloat::copysign(self, sign)
            }
            #[inline(always)]
            fn to_bits(self) -> Simd<$int, N> {
                SimdFloat::to_bits(self).cast::<$int>()
            }
            #[inline(always)]
            fn from_bits(bits: Simd<$int, N>) -> Self {
                <Self as SimdFloat>::from_bits(bits.cast::<$uint>())
            }
            #[inline(always)]
            fn widen(self) -> Simd<f64, N> {
                self.cast::<f64>()
            }
            #[inline(always)]
            fn narrow(wide: Simd<f64, N>) -> Self {
                wide.cast::<$float>()
            }
            #[inline(always)]
            fn is_lt(self, other: Self) -> Mask<$int, N> {
                self.simd_lt(other)
            }
            #[inline(always)]
            fn is_le(self, other: Self) -> Mask<$int, N> {
                self.simd_le(other)
            }
            #[inline(always)]
            fn is_gt(self, other: Self) -> Mask<$int, N> {
                self.simd_gt(other)
            }
            #[inline(always)]
            fn is_ge(self, other: Self) -> Mask<$int, N> {
                self.simd_ge(other)
            }
            #[inline(always)]
            fn is_eq(self, other: Self) -> Mask<$int, N> {
                self.simd_eq(other)
            }
            #[inline(always)]
            fn select(mask: Mask<$int, N>, yes: Self, no: Self) -> Self {
                mask.select(yes, no)
            }
        }
    };
}

vector!(f32, i32, u32, false);
vector!(f64, i64, u64, true);
