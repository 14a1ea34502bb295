//! The positions of large numbers, as bits.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _mm512_add_epi32, _mm512_maskz_compress_epi32, _mm512_set1_epi32, _mm512_setr_epi32, _mm512_storeu_si512,
};
use std::mem::MaybeUninit;
use std::simd::Simd;
use std::simd::cmp::SimdPartialOrd;
use std::simd::num::SimdUint;

/// Numbers that are compared at once.
pub const REACH: usize = 32;

/// Memory for places that is not initialised yet.
type Room = [MaybeUninit<u32>];

/// Writes the places of the ones, the lowest bit being `first`, to the front of the room; how many.
#[inline(always)]
fn put_ones(mut ones: u32, first: u32, room: &mut Room) -> usize {
    let mut n = 0;
    while ones != 0 {
        room[n].write(first + ones.trailing_zeros());
        ones &= ones - 1;
        n += 1;
    }
    n
}

/// The same without a branch: half of the places at a time, those of ones in front.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,popcnt")]
#[inline]
fn put_compressed(ones: u32, first: u32, room: &mut Room) -> usize {
    const HALF: usize = REACH / 2;
    assert!(room.len() >= REACH, "no room for places");
    let steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut n = 0;
    for (half, first) in [(ones as u16, first), ((ones >> HALF) as u16, first + HALF as u32)] {
        let places = _mm512_add_epi32(steps, _mm512_set1_epi32(first as i32));
        // SAFETY: there is room for 32 places, of which at most 16 are before these 16.
        unsafe { _mm512_storeu_si512(room.as_mut_ptr().add(n).cast(), _mm512_maskz_compress_epi32(half, places)) };
        n += half.count_ones() as usize;
    }
    n
}

macro_rules! reach {
    ($reach:ident, $list:ident, $list_by:ident, $list_avx512:ident, $float:ty, $bits:ty, $signed:ty) => {
        /// A bit for each number whose bits without the sign are at least these, which have no sign either.
        #[inline(always)]
        pub fn $reach(numbers: &[$float; REACH], least: $bits) -> u32 {
            let magnitudes = Simd::from_array(numbers.map(<$float>::to_bits)) & Simd::splat(<$bits>::MAX >> 1);
            // Without signs both orders are the same, and all CPUs compare signed integers.
            magnitudes.cast::<$signed>().simd_ge(Simd::splat(least as $signed)).to_bitmask() as u32
        }

        /// Appends the places of such numbers, the first of which is at `first`, to a list with room for all.
        pub fn $list(numbers: &[[$float; REACH]], least: $bits, first: u32, to: &mut Vec<u32>) {
            let room = to.spare_capacity_mut();
            #[cfg(target_arch = "x86_64")]
            let n = match super::level() {
                // SAFETY: the CPU has these instructions.
                super::Level::Avx512 => unsafe { $list_avx512(numbers, least, first, room) },
                _ => $list_by(numbers, least, first, room, put_ones),
            };
            #[cfg(not(target_arch = "x86_64"))]
            let n = $list_by(numbers, least, first, room, put_ones);
            // SAFETY: so many places have been written behind those there were.
            unsafe { to.set_len(to.len() + n) };
        }

        #[inline(always)]
        fn $list_by(
            numbers: &[[$float; REACH]],
            least: $bits,
            first: u32,
            room: &mut Room,
            put: impl Fn(u32, u32, &mut Room) -> usize,
        ) -> usize {
            let mut n = 0;
            for (numbers, first) in numbers.iter().zip((first..).step_by(REACH)) {
                n += put($reach(numbers, least), first, &mut room[n..]);
            }
            n
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,popcnt")]
        fn $list_avx512(numbers: &[[$float; REACH]], least: $bits, first: u32, room: &mut Room) -> usize {
            $list_by(numbers, least, first, room, |ones, first, room| put_compressed(ones, first, room))
        }
    };
}

reach!(reach_f32, list_f32, list_f32_by, list_f32_avx512, f32, u32, i32);
reach!(reach_f64, list_f64, list_f64_by, list_f64_avx512, f64, u64, i64);
