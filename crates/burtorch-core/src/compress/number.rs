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
    /// Bits of the number.
    const BITS: u32;
    /// Bits of its mantissa.
    const MANTISSA: u32;
    /// The magnitude of infinity; magnitudes above are those of NaN.
    const INFINITE: u64;

    /// Its bits.
    fn bits(self) -> u64;
    /// The number of these bits, the lowest of the word.
    fn of_bits(bits: u64) -> Self;
    /// A bit for each number whose magnitude is at least this one.
    fn reach(numbers: &[Self; REACH], magnitude: u64) -> u32;
    /// Appends numbers whose magnitude is at least this one, and their places, to lists of one length with room for all; they may be
    /// `few`.
    fn list(numbers: &[[Self; REACH]], magnitude: u64, of: (Places<'_>, bool), to: (&mut Vec<u32>, &mut Vec<Self>));

    /// Its bits without the sign: ordered as absolute values are.
    #[inline(always)]
    fn magnitude(self) -> u64 {
        self.bits() & (u64::MAX >> (65 - Self::BITS))
    }

    /// The sign bit.
    #[inline(always)]
    fn is_negative(self) -> bool {
        self.bits() >> (Self::BITS - 1) == 1
    }

    /// This number with the sign of another.
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
