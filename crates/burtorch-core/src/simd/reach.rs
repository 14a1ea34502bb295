//! Which of some numbers are large, as bits.

use std::simd::Simd;
use std::simd::cmp::SimdPartialOrd;
use std::simd::num::SimdUint;

/// Numbers that are compared at once.
pub const REACH: usize = 32;

macro_rules! reach {
    ($name:ident, $float:ty, $bits:ty, $signed:ty) => {
        /// A bit for each number whose bits without the sign are at least these, which have no sign either.
        #[inline]
        pub fn $name(numbers: &[$float; REACH], least: $bits) -> u32 {
            let magnitudes = Simd::from_array(numbers.map(<$float>::to_bits)) & Simd::splat(<$bits>::MAX >> 1);
            // Without signs both orders are the same, and all CPUs compare signed integers.
            magnitudes.cast::<$signed>().simd_ge(Simd::splat(least as $signed)).to_bitmask() as u32
        }
    };
}

reach!(reach_f32, f32, u32, i32);
reach!(reach_f64, f64, u64, i64);
