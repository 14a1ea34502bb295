//! Pairs of neighbouring numbers in rows, separated into two columns and joined again.
//!
//! Two rows at a time: two loads, two shuffles, two stores, which every CPU level has. Reading one column after the other
//! takes about three times as long.
//!
//! Promises: copies without changing a bit. Does not know the meaning of the rows.
#![allow(unsafe_code)]

use super::F64x2;
use std::simd::simd_swizzle;

/// Writes the numbers at `from`, `from + stride`, ... to `x`, and those directly after them to `y`; strides in bytes.
///
/// # Safety
/// `x.len()` pairs can be read; `y` has the same length.
pub unsafe fn split(from: *const u8, stride: isize, x: &mut [f64], y: &mut [f64]) {
    debug_assert!(x.len() == y.len());
    // SAFETY: by the contract of this function.
    let pair = |k: usize| unsafe { from.offset(k as isize * stride).cast::<F64x2>().read_unaligned() };
    let n = x.len().min(y.len());
    let (xs, ys) = (x[..n].chunks_exact_mut(2), y[..n].chunks_exact_mut(2));
    for (k, (x, y)) in xs.zip(ys).enumerate() {
        let (a, b) = (pair(2 * k), pair(2 * k + 1));
        x.copy_from_slice(simd_swizzle!(a, b, [0, 2]).as_array());
        y.copy_from_slice(simd_swizzle!(a, b, [1, 3]).as_array());
    }
    if n % 2 == 1 {
        (x[n - 1], y[n - 1]) = (pair(n - 1)[0], pair(n - 1)[1]);
    }
}

/// Writes `x` to `to`, `to + stride`, ..., and `y` directly after.
///
/// # Safety
/// `x.len()` pairs may be written; `y` has the same length.
pub unsafe fn join(to: *mut u8, stride: isize, x: &[f64], y: &[f64]) {
    debug_assert!(x.len() == y.len());
    // SAFETY: by the contract of this function.
    let put = |k: usize, pair: F64x2| unsafe { to.offset(k as isize * stride).cast::<F64x2>().write_unaligned(pair) };
    let n = x.len().min(y.len());
    for (k, (x, y)) in x[..n].chunks_exact(2).zip(y[..n].chunks_exact(2)).enumerate() {
        let (x, y) = (F64x2::from_slice(x), F64x2::from_slice(y));
        put(2 * k, simd_swizzle!(x, y, [0, 2]));
        put(2 * k + 1, simd_swizzle!(x, y, [1, 3]));
    }
    if n % 2 == 1 {
        put(n - 1, F64x2::from_array([x[n - 1], y[n - 1]]));
    }
}
