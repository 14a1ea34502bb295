//! Lanes in pairs: lane `2 t + p` belongs to token t and to one of two neighbouring features p.
//!
//! Promises: moves numbers and never changes them. Half a register of tokens fills a whole one in this way. Does not know the
//! meaning of the numbers.

use std::simd::{Simd, SimdElement, Swizzle};

macro_rules! movements {
    ($($name:ident = |$k:ident, $n:ident| $from:expr;)*) => { $(
        struct $name;

        impl<const N: usize> Swizzle<N> for $name {
            const INDEX: [usize; N] = {
                let (mut places, mut $k) = ([0; N], 0);
                let $n = N;
                // A vector of one lane stays as it is.
                while $k < $n && $n > 1 {
                    places[$k] = $from;
                    $k += 1;
                }
                places
            };
        }
    )* };
}

movements! {
    Zipped = |k, n| k / 2 + k % 2 * (n / 2);
    Unzipped = |k, n| if k < n / 2 { 2 * k } else { 2 * (k - n / 2) + 1 };
    Twice = |k, n| k / 2;
    Repeated = |k, n| k % 2;
}

/// The lanes of the two halves interleaved.
#[inline(always)]
pub(crate) fn zipped<T: SimdElement, const N: usize>(x: Simd<T, N>) -> Simd<T, N> {
    Zipped::swizzle(x)
}

/// Even lanes, then odd lanes: the inverse of [`zipped`].
#[inline(always)]
pub(crate) fn unzipped<T: SimdElement, const N: usize>(x: Simd<T, N>) -> Simd<T, N> {
    Unzipped::swizzle(x)
}

/// Each lane of the first half twice.
#[inline(always)]
pub(crate) fn twice<T: SimdElement, const N: usize>(x: Simd<T, N>) -> Simd<T, N> {
    Twice::swizzle(x)
}

/// Two numbers, alternating.
#[inline(always)]
pub(crate) fn repeated<T: SimdElement, const N: usize>(pair: [T; 2]) -> Simd<T, N> {
    Repeated::swizzle(Simd::from_array(pair))
}

/// The number of elements in 16 bytes, a quarter of the widest register.
const fn piece<T>() -> usize {
    16 / size_of::<T>()
}

/// The lanes of two vectors interleaved within each 16 bytes, from their first (0) or second (1) halves.
const fn in_pieces<const N: usize>(piece: usize, half: usize) -> [usize; N] {
    let (mut places, mut k) = ([0; N], 0);
    while k < N && piece <= N {
        let (start, lane) = (k / piece * piece, k % piece);
        places[k] = start + half * (piece / 2) + lane / 2 + lane % 2 * N;
        k += 1;
    }
    places
}

struct InPieces<const PIECE: usize, const HALF: usize>;

impl<const PIECE: usize, const HALF: usize, const N: usize> Swizzle<N> for InPieces<PIECE, HALF> {
    const INDEX: [usize; N] = in_pieces(PIECE, HALF);
}

/// The lanes of both interleaved within each 16 bytes: those from the first halves, and those from the second halves.
#[inline(always)]
pub(crate) fn interleaved_pieces<T: SimdElement, const N: usize>(x: Simd<T, N>, y: Simd<T, N>) -> [Simd<T, N>; 2] {
    if piece::<T>() == 4 {
        [InPieces::<4, 0>::concat_swizzle(x, y), InPieces::<4, 1>::concat_swizzle(x, y)]
    } else {
        [InPieces::<2, 0>::concat_swizzle(x, y), InPieces::<2, 1>::concat_swizzle(x, y)]
    }
}
