//! Numbers from anywhere into lanes.
//!
//! Promises: lane k is the number at the k-th place. Knows nothing of what the places mean.
#![allow(unsafe_code)]

use super::{F32x16, F64x8};
use std::simd::Simd;
use std::simd::num::SimdUint;
use std::simd::ptr::SimdConstPtr;

/// A vector that is filled from places listed as 32-bit numbers.
pub(crate) trait Gather: Copy {
    /// The type of a lane.
    type Elem;
    /// Lane k is `from[places[k]]`.
    ///
    /// # Safety
    /// As many places as lanes can be read from `places`, and a number from each.
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

gather!(F64x8, f64, 8);
gather!(F32x16, f32, 16);
