//! The numbers kernels compute with: f32 and f64, one at a time or as a vector of any width.
//!
//! Promises that sums over the lanes of a vector follow one fixed tree, whatever the CPU level.
//! Knows nothing of levels or kernels.

use crate::simd::{Select, Simd, SimdPartialOrd, StdFloat};
use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl<const N: usize> Sealed for super::Simd<f32, N> {}
    impl<const N: usize> Sealed for super::Simd<f64, N> {}
}

/// A number type that kernels are compiled for: f32 or f64.
pub trait KernelFloat:
    sealed::Sealed
    + Copy
    + Default
    + Debug
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// A vector of `N` of these.
    #[doc(hidden)]
    type V<const N: usize>: Pack<Elem = Self>;
    /// The vector of the fixed virtual width in which reductions are defined: 16 of f32, 8 of f64.
    #[doc(hidden)]
    type Wide: Pack<Elem = Self>;
    /// The nearest number to `x`.
    #[doc(hidden)]
    fn from_f64(x: f64) -> Self;
}

/// A vector of numbers, with the few operations kernels are written in.
#[doc(hidden)]
pub trait Pack:
    sealed::Sealed
    + Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// The type of one lane.
    type Elem: KernelFloat;
    /// The number of lanes.
    const N: usize;
    /// All lanes equal to `x`.
    fn splat(x: Self::Elem) -> Self;
    /// Elements `at..at + N` of `from`.
    ///
    /// # Safety
    /// `at + N <= from.len()`.
    unsafe fn load(from: &[Self::Elem], at: usize) -> Self;
    /// Up to `N` elements of `from`, the missing ones replaced by `fill`.
    fn load_or(from: &[Self::Elem], fill: Self::Elem) -> Self;
    /// Writes elements `at..at + N` of `to`.
    ///
    /// # Safety
    /// `at + N <= to.len()`.
    unsafe fn store(self, to: &mut [Self::Elem], at: usize);
    /// `self * b + c` with one rounding.
    fn fused_mul_add(self, b: Self, c: Self) -> Self;
    /// The square root of each lane.
    fn square_root(self) -> Self;
    /// Lane by lane, `self` where it is greater than `other` or `other` is NaN, else `other`.
    fn greater_of(self, other: Self) -> Self;
    /// Lane `i` takes the value of lane `(i + BY) % N`.
    fn rotate<const BY: usize>(self) -> Self;
    /// The lanes of both in turn: `(a0, b0, a1, b1, ..)` as a first and a second half.
    fn interleaved(self, other: Self) -> (Self, Self);
    /// The first lane.
    fn first(self) -> Self::Elem;

    /// The sum of the lanes of a vector of 1, 2, 4, 8 or 16: halves are added until one lane is left.
    #[inline(always)]
    fn tree_sum(mut self) -> Self::Elem {
        if Self::N >= 16 {
            self = self + self.rotate::<8>();
        }
        if Self::N >= 8 {
            self = self + self.rotate::<4>();
        }
        if Self::N >= 4 {
            self = self + self.rotate::<2>();
        }
        if Self::N >= 2 {
            self = self + self.rotate::<1>();
        }
        self.first()
    }

    /// The greatest lane, by the same tree; unspecified if a lane is NaN.
    #[inline(always)]
    fn tree_max(mut self) -> Self::Elem {
        if Self::N >= 16 {
            self = self.greater_of(self.rotate::<8>());
        }
        if Self::N >= 8 {
            self = self.greater_of(self.rotate::<4>());
        }
        if Self::N >= 4 {
            self = self.greater_of(self.rotate::<2>());
        }
        if Self::N >= 2 {
            self = self.greater_of(self.rotate::<1>());
        }
        self.first()
    }
}

macro_rules! kernel_float {
    ($t:ty, $wide:literal) => {
        impl KernelFloat for $t {
            type V<const N: usize> = Simd<$t, N>;
            type Wide = Simd<$t, $wide>;
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $t
            }
        }

        impl<const N: usize> Pack for Simd<$t, N> {
            type Elem = $t;
            const N: usize = N;

            #[inline(always)]
            fn splat(x: $t) -> Self {
                Simd::splat(x)
            }

            #[inline(always)]
            unsafe fn load(from: &[$t], at: usize) -> Self {
                debug_assert!(at + N <= from.len());
                // SAFETY: the caller guarantees `at + N <= from.len()`; an array has the alignment of its element.
                Simd::from_array(unsafe { *from.as_ptr().add(at).cast::<[$t; N]>() })
            }

            #[inline(always)]
            fn load_or(from: &[$t], fill: $t) -> Self {
                Simd::load_or(from, Simd::splat(fill))
            }

            #[inline(always)]
            unsafe fn store(self, to: &mut [$t], at: usize) {
                debug_assert!(at + N <= to.len());
                // SAFETY: the caller guarantees `at + N <= to.len()`; an array has the alignment of its element.
                unsafe { *to.as_mut_ptr().add(at).cast::<[$t; N]>() = self.to_array() }
            }

            #[inline(always)]
            fn fused_mul_add(self, b: Self, c: Self) -> Self {
                StdFloat::mul_add(self, b, c)
            }

            #[inline(always)]
            fn square_root(self) -> Self {
                StdFloat::sqrt(self)
            }

            #[inline(always)]
            fn greater_of(self, other: Self) -> Self {
                self.simd_le(other).select(other, self)
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
            fn first(self) -> $t {
                self[0]
            }
        }
    };
}

kernel_float!(f32, 16);
kernel_float!(f64, 8);
