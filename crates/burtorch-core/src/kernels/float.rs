//! The number types of kernels: f32 and f64, one at a time or as a vector of any width.
//!
//! Contains the methods that [`Real`] lacks: reading and writing at a position of a slice, and movement between lanes.
//! Promises: sums over the lanes of a vector follow one fixed tree, whatever the CPU level. Does not know levels or kernels.

use crate::simd::slices::Element;
use crate::simd::{Mask, Real, Simd, SimdUint, paired};

/// A number type that kernels are compiled for: f32 or f64. Its [`Element::Vector`] is the fixed virtual width in which
/// reductions are defined, 16 of f32 or 8 of f64.
pub trait KernelFloat: Element<Vector: Pack<Elem = Self>> + PartialOrd {
    #[doc(hidden)]
    type V<const N: usize>: Pack<Elem = Self>;
    #[doc(hidden)]
    type Bytes16: Pack<Elem = Self>;
    #[doc(hidden)]
    type Bytes32: Pack<Elem = Self>;
    #[doc(hidden)]
    type Bytes64: Pack<Elem = Self>;
}

/// A vector that kernels are written in.
#[doc(hidden)]
pub trait Pack: Real {
    /// Elements `at..at + LANES` of `from`.
    ///
    /// # Safety
    /// `at + LANES <= from.len()`.
    unsafe fn read(from: &[Self::Elem], at: usize) -> Self;
    /// Writes elements `at..at + LANES` of `to`.
    ///
    /// # Safety
    /// `at + LANES <= to.len()`.
    unsafe fn write(self, to: &mut [Self::Elem], at: usize);
    /// Up to `LANES` elements of `from`, the missing ones replaced by `fill`.
    fn read_or(from: &[Self::Elem], fill: Self::Elem) -> Self;
    /// Writes the first `to.len()` lanes, at most `LANES`.
    fn write_some(self, to: &mut [Self::Elem]);
    /// True in the first `count` lanes.
    fn first(count: usize) -> Self::Mask;
    /// The numbers at `from` in the lanes of `mask`, and 0 elsewhere.
    ///
    /// # Safety
    /// The numbers in the lanes of `mask` may be read.
    unsafe fn read_masked(from: *const Self::Elem, mask: Self::Mask) -> Self;
    /// Writes the lanes of `mask`.
    ///
    /// # Safety
    /// The numbers in the lanes of `mask` may be written.
    unsafe fn write_masked(self, to: *mut Self::Elem, mask: Self::Mask);
    /// Lane `i` takes the value of lane `(i + BY) % LANES`.
    fn rotate<const BY: usize>(self) -> Self;
    /// The lanes of both interleaved: `(a0, b0, a1, b1, ..)` as a first and a second half.
    fn interleaved(self, other: Self) -> (Self, Self);

    /// The lanes of both interleaved within each 16 bytes: those from the first halves, and those from the second
    /// halves.
    fn interleaved_pieces(self, other: Self) -> [Self; 2];
    /// 16 bytes from each address, in order.
    ///
    /// # Safety
    /// 16 bytes may be read at `at(piece)` for each piece of a vector.
    unsafe fn read_pieces(at: impl Fn(usize) -> *const Self::Elem) -> Self;

    /// The elements of `from` at up to `LANES` indices; 0 in the remaining lanes.
    ///
    /// # Safety
    /// Every index is below `from.len()`.
    unsafe fn gather(from: &[Self::Elem], places: &[u32]) -> Self;

    /// Elements `at` and `at + 1` of `from`, alternating.
    ///
    /// # Safety
    /// `at + 2 <= from.len()`.
    unsafe fn read_pair(from: &[Self::Elem], at: usize) -> Self;
    /// The lanes of the two halves interleaved.
    fn zipped(self) -> Self;
    /// Even lanes, then odd lanes.
    fn unzipped(self) -> Self;
    /// Each lane of the first half twice.
    fn twice(self) -> Self;
    /// Sums of neighbouring lanes of `self`, then of `other`.
    fn pair_sums(self, other: Self) -> Self;

    /// `other` where it is greater, else `self`.
    #[inline(always)]
    fn greater_of(self, other: Self) -> Self {
        Self::select(other.is_gt(self), other, self)
    }

    /// The sum of 1, 2, 4, 8 or 16 lanes: adds the halves until one lane is left.
    #[inline(always)]
    fn tree_sum(mut self) -> Self::Elem {
        if Self::LANES >= 16 {
            self = self + self.rotate::<8>();
        }
        if Self::LANES >= 8 {
            self = self + self.rotate::<4>();
        }
        if Self::LANES >= 4 {
            self = self + self.rotate::<2>();
        }
        if Self::LANES >= 2 {
            self = self + self.rotate::<1>();
        }
        self.lane(0)
    }

    /// The greatest lane, by the same tree; unspecified if a lane is NaN.
    #[inline(always)]
    fn tree_max(mut self) -> Self::Elem {
        if Self::LANES >= 16 {
            self = self.greater_of(self.rotate::<8>());
        }
        if Self::LANES >= 8 {
            self = self.greater_of(self.rotate::<4>());
        }
        if Self::LANES >= 4 {
            self = self.greater_of(self.rotate::<2>());
        }
        if Self::LANES >= 2 {
            self = self.greater_of(self.rotate::<1>());
        }
        self.lane(0)
    }
}

/// Prefetches the cache line at `place`, which may be any address.
#[inline(always)]
pub(super) fn prefetch_at<E>(place: *const E) {
    // SAFETY: a prefetch accepts any address and reads nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Prefetches the cache line of element `at` of `from`, which may lie beyond the end.
#[inline(always)]
pub(super) fn prefetch<E>(from: &[E], at: usize) {
    prefetch_at(from.as_ptr().wrapping_add(at));
}

/// As [`prefetch`], for the line `distance` numbers before `from`.
#[inline(always)]
pub(super) fn prefetch_before<E>(from: &[E], distance: usize) {
    prefetch_at(from.as_ptr().wrapping_sub(distance));
}

/// As [`prefetch`], to the second-level cache only.
#[inline(always)]
pub(super) fn prefetch_far<E>(from: &[E], at: usize) {
    prefetch_far_at(from.as_ptr().wrapping_add(at));
}

/// As [`prefetch_at`], to the second-level cache only.
#[inline(always)]
pub(super) fn prefetch_far_at<E>(place: *const E) {
    // SAFETY: a prefetch accepts any address and reads nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Numbers in a cache line of 64 bytes.
#[inline(always)]
pub(super) const fn line<E>() -> usize {
    64 / size_of::<E>()
}

macro_rules! kernel_float {
    ($t:ty, $int:ty) => {
        impl KernelFloat for $t {
            type V<const N: usize> = Simd<$t, N>;
            type Bytes16 = Simd<$t, { 16 / size_of::<$t>() }>;
            type Bytes32 = Simd<$t, { 32 / size_of::<$t>() }>;
            type Bytes64 = Simd<$t, { 64 / size_of::<$t>() }>;
        }

        impl<const N: usize> Pack for Simd<$t, N> {
            #[inline(always)]
            unsafe fn read(from: &[$t], at: usize) -> Self {
                debug_assert!(at + N <= from.len());
                // SAFETY: the caller guarantees `at + N <= from.len()`; an array is aligned as its element.
                Simd::from_array(unsafe { *from.as_ptr().add(at).cast::<[$t; N]>() })
            }

            #[inline(always)]
            unsafe fn write(self, to: &mut [$t], at: usize) {
                debug_assert!(at + N <= to.len());
                // SAFETY: the caller guarantees `at + N <= to.len()`; an array is aligned as its element.
                unsafe { *to.as_mut_ptr().add(at).cast::<[$t; N]>() = self.to_array() }
            }

            #[inline(always)]
            fn read_or(from: &[$t], fill: $t) -> Self {
                Simd::load_or(from, Simd::splat(fill))
            }

            #[inline(always)]
            fn write_some(self, to: &mut [$t]) {
                if to.len() == N {
                    self.copy_to_slice(to);
                } else {
                    self.store_select(to, Mask::splat(true));
                }
            }

            #[inline(always)]
            fn first(count: usize) -> Mask<$int, N> {
                Mask::from_bitmask(!(u64::MAX << count))
            }

            #[inline(always)]
            unsafe fn read_masked(from: *const $t, mask: Mask<$int, N>) -> Self {
                // SAFETY: as the caller promises.
                unsafe { Simd::load_select_ptr(from, mask, Simd::splat(0.0)) }
            }

            #[inline(always)]
            unsafe fn write_masked(self, to: *mut $t, mask: Mask<$int, N>) {
                // SAFETY: as the caller promises.
                unsafe { self.store_select_ptr(to, mask) }
            }

            #[inline(always)]
            fn rotate<const BY: usize>(self) -> Self {
                self.rotate_elements_left::<BY>()
            }

            #[inline(always)]
            fn interleaved(self, other: Self) -> (Self, Self) {
                self.interleave(other)
            }

            #[inline(always)]
            fn interleaved_pieces(self, other: Self) -> [Self; 2] {
                paired::interleaved_pieces(self, other)
            }

            #[inline(always)]
            unsafe fn read_pieces(at: impl Fn(usize) -> *const $t) -> Self {
                const PIECE: usize = 16 / size_of::<$t>();
                let mut numbers = [0.0; N];
                for k in 0..N / PIECE {
                    // SAFETY: as the caller promises; an array is aligned as its element.
                    let piece = unsafe { *at(k).cast::<[$t; PIECE]>() };
                    numbers[k * PIECE..(k + 1) * PIECE].copy_from_slice(&piece);
                }
                Simd::from_array(numbers)
            }

            #[inline(always)]
            unsafe fn gather(from: &[$t], places: &[u32]) -> Self {
                let (mask, places) =
                    (Mask::from_bitmask(!(u64::MAX << places.len())), Simd::<u32, N>::load_or_default(places));
                // SAFETY: as the caller promises, lanes that hold an index are within `from`.
                unsafe { Simd::gather_select_unchecked(from, mask, places.cast(), Simd::splat(0.0)) }
            }

            #[inline(always)]
            unsafe fn read_pair(from: &[$t], at: usize) -> Self {
                debug_assert!(at + 2 <= from.len());
                // SAFETY: the caller guarantees `at + 2 <= from.len()`; an array is aligned as its element.
                paired::repeated(unsafe { *from.as_ptr().add(at).cast::<[$t; 2]>() })
            }

            #[inline(always)]
            fn zipped(self) -> Self {
                paired::zipped(self)
            }

            #[inline(always)]
            fn unzipped(self) -> Self {
                paired::unzipped(self)
            }

            #[inline(always)]
            fn twice(self) -> Self {
                paired::twice(self)
            }

            #[inline(always)]
            fn pair_sums(self, other: Self) -> Self {
                let (even, odd) = self.deinterleave(other);
                even + odd
            }
        }
    };
}

kernel_float!(f32, i32);
kernel_float!(f64, i64);
