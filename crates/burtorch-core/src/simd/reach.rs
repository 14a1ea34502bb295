//! The positions of large numbers, as bits.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256i, __m512i, _mm_storeu_si128, _mm256_add_epi32, _mm256_and_si256, _mm256_castsi256_pd, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_cmpgt_epi32, _mm256_cmpgt_epi64, _mm256_loadu_si256, _mm256_maskz_compress_epi32,
    _mm256_movemask_pd, _mm256_movemask_ps, _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_set1_epi64x,
    _mm256_storeu_si256, _mm512_loadu_si512, _mm512_maskz_compress_epi32, _mm512_maskz_compress_epi64,
    _mm512_storeu_si512,
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

/// For each pattern of 8 bits the places of its ones, ascending.
#[cfg(target_arch = "x86_64")]
static ONES: [[u32; 8]; 256] = {
    let mut ones = [[0; 8]; 256];
    let mut pattern = 0;
    while pattern < 256 {
        let (mut k, mut n) = (0, 0);
        while k < 8 {
            if pattern >> k & 1 == 1 {
                ones[pattern][n] = k;
                n += 1;
            }
            k += 1;
        }
        pattern += 1;
    }
    ones
};

/// The same for 4 bits, as places of the halves of wider numbers.
#[cfg(target_arch = "x86_64")]
static HALVES: [[u32; 8]; 16] = {
    let mut halves = [[0; 8]; 16];
    let mut pattern = 0;
    while pattern < 16 {
        let mut k = 0;
        while k < 8 {
            halves[pattern][k] = 2 * ONES[pattern][k / 2] + k as u32 % 2;
            k += 1;
        }
        pattern += 1;
    }
    halves
};

/// What [`list_f32`] does, 8 numbers at a time, by a table of permutations; `indices` gives the places of the next 8 in an order.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn permute_f32(
    numbers: &[[f32; REACH]],
    least: u32,
    few: bool,
    room: Room<'_, f32>,
    indices: impl Fn(usize, __m256i) -> __m256i,
) -> usize {
    const WIDTH: usize = 8;
    let numbers_room = numbers.len() * REACH;
    assert!(room.0.len() >= numbers_room && room.1.len() >= numbers_room, "no room for places and numbers");
    let below = _mm256_set1_epi32(least as i32 - 1);
    let mut n = 0;
    for (c, chunk) in numbers.iter().enumerate() {
        let mut found = [(0, below); REACH / WIDTH];
        for (some, found) in chunk.as_chunks::<WIDTH>().0.iter().zip(&mut found) {
            // SAFETY: these are 8 numbers.
            let some = unsafe { _mm256_loadu_si256(some.as_ptr().cast()) };
            let reaches = _mm256_cmpgt_epi32(_mm256_and_si256(some, _mm256_set1_epi32(i32::MAX)), below);
            *found = (_mm256_movemask_ps(_mm256_castsi256_ps(reaches)), some);
        }
        if few && found.iter().all(|(ones, _)| *ones == 0) {
            continue;
        }
        for (k, (ones, some)) in found.into_iter().enumerate() {
            // SAFETY: 8 bits choose one of 256 rows; at most as many numbers were found as precede these 8, for all of which there is
            // room.
            unsafe {
                let order = _mm256_loadu_si256(ONES[ones as usize & 0xFF].as_ptr().cast());
                let at = indices(c * REACH + k * WIDTH, order);
                _mm256_storeu_si256(room.0.as_mut_ptr().add(n).cast(), at);
                _mm256_storeu_si256(room.1.as_mut_ptr().add(n).cast(), _mm256_permutevar8x32_epi32(some, order));
            }
            n += ones.count_ones() as usize;
        }
    }
    n
}

/// The same for 4 wider numbers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn permute_f64(
    numbers: &[[f64; REACH]],
    least: u64,
    few: bool,
    room: Room<'_, f64>,
    indices: impl Fn(usize, __m256i) -> __m256i,
) -> usize {
    const WIDTH: usize = 4;
    let numbers_room = numbers.len() * REACH;
    assert!(room.0.len() >= numbers_room && room.1.len() >= numbers_room, "no room for places and numbers");
    let below = _mm256_set1_epi64x(least as i64 - 1);
    let mut n = 0;
    for (c, chunk) in numbers.iter().enumerate() {
        let mut found = [(0, below); REACH / WIDTH];
        for (some, found) in chunk.as_chunks::<WIDTH>().0.iter().zip(&mut found) {
            // SAFETY: these are 4 numbers.
            let some = unsafe { _mm256_loadu_si256(some.as_ptr().cast()) };
            let reaches = _mm256_cmpgt_epi64(_mm256_and_si256(some, _mm256_set1_epi64x(i64::MAX)), below);
            *found = (_mm256_movemask_pd(_mm256_castsi256_pd(reaches)), some);
        }
        if few && found.iter().all(|(ones, _)| *ones == 0) {
            continue;
        }
        for (k, (ones, some)) in found.into_iter().enumerate() {
            // SAFETY: 4 bits choose one of 16 rows; at most as many numbers were found as precede these 4, for all of which there is
            // room.
            unsafe {
                let order = _mm256_loadu_si256(ONES[ones as usize & 0xF].as_ptr().cast());
                let halves = _mm256_loadu_si256(HALVES[ones as usize & 0xF].as_ptr().cast());
                let at = indices(c * REACH + k * WIDTH, order);
                _mm_storeu_si128(room.0.as_mut_ptr().add(n).cast(), _mm256_castsi256_si128(at));
                _mm256_storeu_si256(room.1.as_mut_ptr().add(n).cast(), _mm256_permutevar8x32_epi32(some, halves));
            }
            n += ones.count_ones() as usize;
        }
    }
    n
}

macro_rules! reach {
    ($reach:ident, $list:ident, $list_by:ident, $list_avx512:ident, $compress:ident, $list_avx2:ident, $permute:ident, $float:ty, $bits:ty, $signed:ty) => {
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
                // SAFETY: as above.
                super::Level::Avx2 => unsafe { $list_avx2(numbers, least, places, few, room) },
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

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,popcnt")]
        fn $list_avx2(
            numbers: &[[$float; REACH]],
            least: $bits,
            places: Places<'_>,
            few: bool,
            room: Room<'_, $float>,
        ) -> usize {
            match places {
                Places::From(first) => $permute(numbers, least, few, room, |k, order| {
                    _mm256_add_epi32(order, _mm256_set1_epi32((first + k as u32) as i32))
                }),
                Places::Listed(places) => {
                    let places = places.as_flattened();
                    assert!(places.len() >= numbers.len() * REACH, "no place for each number");
                    $permute(numbers, least, few, room, |k, order| {
                        let mut last = [0; 8];
                        let some = places.get(k..k + 8).unwrap_or_else(|| {
                            last.iter_mut().zip(&places[k..]).for_each(|(to, place)| *to = *place);
                            &last
                        });
                        // SAFETY: these are 8 places.
                        _mm256_permutevar8x32_epi32(unsafe { _mm256_loadu_si256(some.as_ptr().cast()) }, order)
                    })
                }
            }
        }
    };
}

reach!(reach_f32, list_f32, list_f32_by, list_f32_avx512, compress_f32, list_f32_avx2, permute_f32, f32, u32, i32);
reach!(reach_f64, list_f64, list_f64_by, list_f64_avx512, compress_f64, list_f64_avx2, permute_f64, f64, u64, i64);
