//! Compressed numbers, as bits.

use crate::kernels::KernelFloat;
use crate::scalar::Float;
use crate::simd::{Places, REACH, list_f32, list_f64, reach_f32, reach_f64};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// `f32` or `f64`.
pub trait Number: Float + KernelFloat + sealed::Sealed {
    /// The width of the type.
    const BITS: u32;
    /// Bits of the mantissa.
    const MANTISSA: u32;
    /// The magnitude of infinity; larger magnitudes are NaNs.
    const INFINITE: u64;

    /// The bits, in the lowest ones of the word.
    fn bits(self) -> u64;
    /// The number with these bits, which are the lowest of the word.
    fn of_bits(bits: u64) -> Self;
    /// A bit mask of the numbers whose magnitude is at least `magnitude`.
    fn reach(numbers: &[Self; REACH], magnitude: u64) -> u32;
    /// Appends the numbers whose magnitude is at least `magnitude`, and their indices, to two lists with enough room.
    /// `few` is a hint that there are few.
    fn list(numbers: &[[Self; REACH]], magnitude: u64, of: (Places<'_>, bool), to: (&mut Vec<u32>, &mut Vec<Self>));

    /// The bits without the sign, which are ordered like absolute values.
    #[inline(always)]
    fn magnitude(self) -> u64 {
        self.bits() & (u64::MAX >> (65 - Self::BITS))
    }

    /// Whether the sign bit is set.
    #[inline(always)]
    fn is_negative(self) -> bool {
        self.bits() >> (Self::BITS - 1) == 1
    }

    /// The magnitude with the sign of another number.
    #[inline(always)]
    fn with_sign_of(self, other: Self) -> Self {
        Self::of_bits(self.magnitude() | (other.bits() ^ other.magnitude()))
    }
}

macro_rules! number {
    ($float:ty, $bits:literal, $reach:ident, $list:ident) => {
        impl Number for $float {
            const BITS: u32 = $bits;
            const MANTISSA: u32 = <$float>::MANTISSA_DIGITS - 1;
            const INFINITE: u64 = <$float>::INFINITY.to_bits() as u64;

            #[inline(always)]
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }

            #[inline(always)]
            fn of_bits(bits: u64) -> Self {
                Self::from_bits(bits as _)
            }

            #[inline(always)]
            fn reach(numbers: &[Self; REACH], magnitude: u64) -> u32 {
                $reach(numbers, magnitude as _)
            }

            #[inline(always)]
            fn list(
                numbers: &[[Self; REACH]],
                magnitude: u64,
                of: (Places<'_>, bool),
                to: (&mut Vec<u32>, &mut Vec<Self>),
            ) {
                $list(numbers, magnitude as _, of, to);
            }
        }
    };
}

number!(f32, 32, reach_f32, list_f32);
number!(f64, 64, reach_f64, list_f64);
