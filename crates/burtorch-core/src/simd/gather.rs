//! Gathered numbers in lanes, and sums over groups of lanes.
//!
//! Promises: lane k is the number at the k-th place; sums have a documented order. Does not know the meaning of the
//! places.
#![allow(unsafe_code)]

use super::{F32x16, F64x4, F64x8};
use std::simd::num::SimdUint;
use std::simd::ptr::SimdConstPtr;
use std::simd::{Simd, simd_swizzle};

/// A vector filled from indices of 32 bits.
pub(crate) trait Gather: Copy {
    /// The type of a lane.
    type Elem;
    /// Lane k is `from[places[k]]`.
    ///
    /// # Safety
    /// `places` holds as many indices as lanes, each of a readable number.
    unsafe fn gather(from: *const Self::Elem, places: *const u32) -> Self;
}

macro_rules! gather {
    ($vector:ty, $elem:ty, $lanes:literal) => {
        impl Gather for $vector {
            type Elem = $elem;
            #[inline(always)]
            unsafe fn gather(from: *const $elem, places: *const u32) -> Self {
                debug_assert!(!from.is_null() && !places.is_null());
                // SAFETY: by the contract of this function; places need not be aligned for a vector.
                unsafe {
                    let places = places.cast::<Simd<u32, $lanes>>().read_unaligned();
                    Simd::gather_ptr(Simd::splat(from).wrapping_add(places.cast::<usize>()))
                }
            }
        }
    };
}

gather!(F64x4, f64, 4);
gather!(F64x8, f64, 8);
gather!(F32x16, f32, 16);

/// Eight lanes that were stored just before, or that represent several short lists.
pub(crate) trait Collect: Gather {
    /// As [`Gather::gather`].
    ///
    /// Loads each number separately. A CPU forwards a pending store to such a load, but not to a gather, which waits
    /// for it: from one store of eight lanes to the next takes 16 ns with a gather, 8.5 with this, and 4.4 with four
    /// lanes; without pending stores 1.4, 2.4 and 1.0.
    ///
    /// # Safety
    /// As for [`Gather::gather`].
    unsafe fn collect(from: *const Self::Elem, places: *const u32) -> Self;

    /// The sums of the first `n` lanes of each group of `width` lanes, in ascending order, in every lane of the group.
    /// `width` is 1, 2, 4 or 8, and at most the number of lanes.
    fn sums_of_groups(self, width: usize, n: usize) -> Self;

    /// The same in descending order, from lane `n - 1`.
    fn sums_of_groups_backwards(self, width: usize, n: usize) -> Self;
}

/// Loads lanes one by one. Not a closure, which would be compiled without the level's instructions.
macro_rules! collected {
    ($from:ident, $places:ident, $($k:literal)*) => {{
        debug_assert!(!$from.is_null() && !$places.is_null());
        // SAFETY: by the contract of `collect`.
        unsafe { Simd::from_array([$( *$from.add(*$places.add($k) as usize) ),*]) }
    }};
}

impl Collect for F64x4 {
    #[inline(always)]
    unsafe fn collect(from: *const f64, places: *const u32) -> Self {
        collected!(from, places, 0 1 2 3)
    }

    #[inline(always)]
    fn sums_of_groups(self, width: usize, n: usize) -> Self {
        let x = self;
        match width {
            1 => x,
            2 if n == 1 => simd_swizzle!(x, [0, 0, 2, 2]),
            2 => simd_swizzle!(x, [0, 0, 2, 2]) + simd_swizzle!(x, [1, 1, 3, 3]),
            _ => {
                let parts = each_of_four(x);
                let mut total = parts[0];
                for (k, &part) in parts.iter().enumerate().skip(1) {
                    if k < n {
                        total += part;
                    }
                }
                total
            }
        }
    }

    #[inline(always)]
    fn sums_of_groups_backwards(self, width: usize, n: usize) -> Self {
        let x = self;
        match width {
            1 => x,
            2 if n == 1 => simd_swizzle!(x, [0, 0, 2, 2]),
            2 => simd_swizzle!(x, [1, 1, 3, 3]) + simd_swizzle!(x, [0, 0, 2, 2]),
            _ => {
                let parts = each_of_four(x);
                let mut total = Simd::splat(-0.0);
                for (k, &part) in parts.iter().enumerate().rev() {
                    if k < n {
                        total += part;
                    }
                }
                total
            }
        }
    }
}

/// Each lane broadcast.
#[inline(always)]
fn each_of_four(x: F64x4) -> [F64x4; 4] {
    [simd_swizzle!(x, [0; 4]), simd_swizzle!(x, [1; 4]), simd_swizzle!(x, [2; 4]), simd_swizzle!(x, [3; 4])]
}

impl Collect for F64x8 {
    #[inline(always)]
    unsafe fn collect(from: *const f64, places: *const u32) -> Self {
        collected!(from, places, 0 1 2 3 4 5 6 7)
    }

    #[inline(always)]
    fn sums_of_groups(self, width: usize, n: usize) -> Self {
        let x = self;
        match width {
            1 => x,
            2 if n == 1 => first_of_two(x),
            2 => first_of_two(x) + second_of_two(x),
            4 => {
                let parts = quarters(x);
                let mut total = parts[0];
                for (k, &part) in parts.iter().enumerate().skip(1) {
                    if k < n {
                        total += part;
                    }
                }
                total
            }
            _ => {
                let parts = eighths(x);
                let mut total = parts[0];
                for (k, &part) in parts.iter().enumerate().skip(1) {
                    if k < n {
                        total += part;
                    }
                }
                total
            }
        }
    }

    #[inline(always)]
    fn sums_of_groups_backwards(self, width: usize, n: usize) -> Self {
        let x = self;
        match width {
            1 => x,
            2 if n == 1 => first_of_two(x),
            2 => second_of_two(x) + first_of_two(x),
            4 => {
                let parts = quarters(x);
                // Starts at -0.0, the neutral element of addition.
                let mut total = Simd::splat(-0.0);
                for (k, &part) in parts.iter().enumerate().rev() {
                    if k < n {
                        total += part;
                    }
                }
                total
            }
            _ => {
                let parts = eighths(x);
                let mut total = Simd::splat(-0.0);
                for (k, &part) in parts.iter().enumerate().rev() {
                    if k < n {
                        total += part;
                    }
                }
                total
            }
        }
    }
}

#[inline(always)]
fn first_of_two(x: F64x8) -> F64x8 {
    simd_swizzle!(x, [0, 0, 2, 2, 4, 4, 6, 6])
}

#[inline(always)]
fn second_of_two(x: F64x8) -> F64x8 {
    simd_swizzle!(x, [1, 1, 3, 3, 5, 5, 7, 7])
}

/// Lane k of each group of four, broadcast to the group.
#[inline(always)]
fn quarters(x: F64x8) -> [F64x8; 4] {
    [
        simd_swizzle!(x, [0, 0, 0, 0, 4, 4, 4, 4]),
        simd_swizzle!(x, [1, 1, 1, 1, 5, 5, 5, 5]),
        simd_swizzle!(x, [2, 2, 2, 2, 6, 6, 6, 6]),
        simd_swizzle!(x, [3, 3, 3, 3, 7, 7, 7, 7]),
    ]
}

/// Each lane broadcast.
#[inline(always)]
fn eighths(x: F64x8) -> [F64x8; 8] {
    [
        simd_swizzle!(x, [0; 8]),
        simd_swizzle!(x, [1; 8]),
        simd_swizzle!(x, [2; 8]),
        simd_swizzle!(x, [3; 8]),
        simd_swizzle!(x, [4; 8]),
        simd_swizzle!(x, [5; 8]),
        simd_swizzle!(x, [6; 8]),
        simd_swizzle!(x, [7; 8]),
    ]
}
