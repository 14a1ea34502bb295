//! The numbers that are compressed, as bits.

use crate::scalar::Float;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// `f32` or `f64`.
pub trait Number: Float + sealed::Sealed {
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
    /// Whether a magnitude of the numbers is at least this one, which is above 0: without a branch per number.
    fn any_reaches(numbers: &[Self], magnitude: u64) -> bool;

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
    ($float:ty, $signed:ty) => {
        impl Number for $float {
            const BITS: u32 = <$signed>::BITS;
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

            #[inline]
            fn any_reaches(numbers: &[Self], magnitude: u64) -> bool {
                let below = magnitude as $signed - 1;
                let differences = numbers.iter().map(|x| below - (x.to_bits() as $signed & <$signed>::MAX));
                differences.fold(0, |signs, difference| signs | difference) < 0
            }
        }
    };
}

number!(f32, i32);
number!(f64, i64);
