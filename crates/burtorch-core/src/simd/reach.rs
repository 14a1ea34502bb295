//! The positions of large numbers, as bits.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256i, __m512i, _mm256_loadu_si256, _mm256_maskz_compress_epi32, _mm256_storeu_si256, _mm512_loadu_si512,
    _mm512_maskz_compress_epi32, _mm512_maskz_compress_epi64, _mm512_storeu_si512,
};
use std::mem::MaybeUninit;
use std::simd::Simd;
use std::simd::cmp::SimdPartialOrd;
use std::simd::num::{SimdFloat, SimdUint};

/// Numbers that are compared at once.
pub const REACH: usize = 32;

/// Where numbers are found, by their order.
#[derive(Clone, Copy, Debug)]
pub enum Places<'a> {
    /// Consecutive, the first at this index.
    From(u32),
    /// At listed indices.
    Listed(&'a [[u32; REACH]]),
}

impl Places<'_> {
    /// The indices of a chunk.
    #[inline(always)]
    fn of(self, chunk: usize) -> [u32; REACH] {
        match self {
            Places::From(first) => std::array::from_fn(|k| first + (chunk * REACH + k) as u32),
            Places::Listed(places) => places[chunk],
        }
    }
}

/// Uninitialised memory for indices and numbers.
type Room<'a, F> = (&'a mut [MaybeUninit<u32>], &'a mut [MaybeUninit<F>]);

/// Writes the indices and numbers of the set bits to the start of the memory; returns their count.
#[inline(always)]
fn put_ones<F: Copy>(mut ones: u32, places: &[u32; REACH], numbers: &[F; REACH], room: Room<'_, F>) -> usize {
    let mut n = 0;
    while ones != 0 {
        let k = ones.trailing_zeros() as usize;
        room.0[n].write(places[k]);
        room.1[n].write(numbers[k]);
        ones &= ones - 1;
        n += 1;
    }
    n
}

/// The same without a branch: as many as fit a register at a time, compressed to the front.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,popcnt")]
#[inline]
fn compress_f32(ones: u32, places: &[u32; REACH], numbers: &[f32; REACH], room: Room<'_, f32>) -> usize {
    const WIDTH: usize = 16;
    assert!(room.0.len() >= REACH && room.1.len() >= REACH, "no room for places and numbers");
    let mut n = 0;
    for k in 0..REACH / WIDTH {
        let some = (ones >> (k * WIDTH)) as u16;
        // SAFETY: 16 of the 32 numbers are read; there is room for 32, and at most 16 precede these 16.
        unsafe {
            let load = |from: *const __m512i| _mm512_maskz_compress_epi32(some, _mm512_loadu_si512(from));
            let at = load(places.as_ptr().add(k * WIDTH).cast());
            let number = load(numbers.as_ptr().add(k * WIDTH).cast());
            _mm512_storeu_si512(room.0.as_mut_ptr().add(n).cast(), at);
            _mm512_storeu_si512(room.1.as_mut_ptr().add(n).cast(), number);
        }
        n += some.count_ones() as usize;
    }
    n
}

/// The same for wider numbers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,popcnt")]
#[inline]
fn compress_f64(ones: u32, places: &[u32; REACH], numbers: &[f64; REACH], room: Room<'_, f64>) -> usize {
    const WIDTH: usize = 8;
    assert!(room.0.len() >= REACH && room.1.len() >= REACH, "no room for places and numbers");
    let mut n = 0;
    for k in 0..REACH / WIDTH {
        let some = (ones >> (k * WIDTH)) as u8;
        // SAFETY: 8 of the 32 numbers are read; there is room for 32, and at most 24 precede these 8.
        unsafe {
            let at: __m256i = _mm256_loadu_si256(places.as_ptr().add(k * WIDTH).cast());
            let number: __m512i = _mm512_loadu_si512(numbers.as_ptr().add(k * WIDTH).cast());
            _mm256_storeu_si256(room.0.as_mut_ptr().add(n).cast(), _mm256_maskz_compress_epi32(some, at));
            _mm512_storeu_si512(room.1.as_mut_ptr().add(n).cast(), _mm512_maskz_compress_epi64(some, number));
        }
        n += some.count_ones() as usize;
    }
    n
}

macro_rules! reach {
    ($reach:ident, $list:ident, $list_by:ident, $list_avx512:ident, $compress:ident, $float:ty, $bits:ty, $signed:ty) => {
        /// A bit mask of the numbers whose bits without the sign are at least `least`, which has no sign either.
        #[inline(always)]
        pub fn $reach(numbers: &[$float; REACH], least: $bits) -> u32 {
            let magnitudes = Simd::from_array(*numbers).to_bits() & Simd::splat(<$bits>::MAX >> 1);
            // Without signs, signed and unsigned order agree, and all CPUs compare signed integers.
            magnitudes.cast::<$signed>().simd_ge(Simd::splat(least as $signed)).to_bitmask() as u32
        }

        /// Appends such numbers and their indices to lists of equal length with room for all. With `few`, chunks
        /// without such numbers are skipped.
        pub fn $list(
            numbers: &[[$float; REACH]],
            least: $bits,
            (places, few): (Places<'_>, bool),
            (to, found): (&mut Vec<u32>, &mut Vec<$float>),
        ) {
            let room = (to.spare_capacity_mut(), found.spare_capacity_mut());
            #[cfg(target_arch = "x86_64")]
            let n = match super::level() {
                // SAFETY: the CPU has these instructions.
                super::Level::Avx512 => unsafe { $list_avx512(numbers, least, places, few, room) },
                _ => $list_by(numbers, least, (places, true), room, put_ones),
            };
            #[cfg(not(target_arch = "x86_64"))]
            let n = $list_by(numbers, least, (places, few), room, put_ones);
            // SAFETY: this many were written after the existing ones.
            unsafe {
                to.set_len(to.len() + n);
                found.set_len(found.len() + n);
            }
        }

        #[inline(always)]
        fn $list_by(
            numbers: &[[$float; REACH]],
            least: $bits,
            (places, few): (Places<'_>, bool),
            room: Room<'_, $float>,
            put: impl Fn(u32, &[u32; REACH], &[$float; REACH], Room<'_, $float>) -> usize,
        ) -> usize {
            let mut n = 0;
            for (k, numbers) in numbers.iter().enumerate() {
                let ones = $reach(numbers, least);
                if !few || ones != 0 {
                    n += put(ones, &places.of(k), numbers, (&mut room.0[n..], &mut room.1[n..]));
                }
            }
            n
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,popcnt")]
        fn $list_avx512(
            numbers: &[[$float; REACH]],
            least: $bits,
            places: Places<'_>,
            few: bool,
            room: Room<'_, $float>,
        ) -> usize {
            $list_by(numbers, least, (places, few), room, |ones, places, numbers, room| {
                $compress(ones, places, numbers, room)
            })
        }
    };
}

reach!(reach_f32, list_f32, list_f32_by, list_f32_avx512, compress_f32, f32, u32, i32);
reach!(reach_f64, list_f64, list_f64_by, list_f64_avx512, compress_f64, f64, u64, i64);
