//! Products of many small matrices, without blocks: what prepares a tile takes longer than such a product.
//!
//! Promises: the chains of the tiles. Does not know packing.

use super::Finish;
use super::plan::{Job, Origin};
use crate::kernels::float::KernelFloat;
use crate::kernels::levels::Target;
use crate::simd::Real;
use crate::sync::stop::Pace;

/// Rows, columns and terms of a small product, at most; columns also fill no register.
const ROWS: usize = 8;
const COLUMNS: usize = 8;
const TERMS: usize = 32;

/// Whether it computes all products of the job.
#[inline(always)]
pub(super) fn small<E: KernelFloat, T: Target>(job: &Job<E>) -> bool {
    let &Job { m, n, k, c_column: 1, origin: Origin::Number(start), finish, .. } = job else { return false };
    let is_narrow = n <= COLUMNS && (n <= 4 || n < T::Register::<E>::LANES);
    let is_small = job.count > 1 && is_narrow && m <= ROWS && k <= TERMS;
    if !is_small || matches!(finish, Finish::Descend(_)) {
        return false;
    }
    // SAFETY: the steps of a job lead to numbers that may be read or, in C, written.
    unsafe {
        match n {
            1 => columns::<E, T, 1>(job, start),
            2 => columns::<E, T, 2>(job, start),
            3 => columns::<E, T, 3>(job, start),
            4 => columns::<E, T, 4>(job, start),
            5 => columns::<E, T, 5>(job, start),
            6 => columns::<E, T, 6>(job, start),
            7 => columns::<E, T, 7>(job, start),
            _ => columns::<E, T, COLUMNS>(job, start),
        }
    }
    true
}

/// All products of a job with `N` columns.
///
/// # Safety
/// The steps lead to numbers that may be read or, in C, written.
#[inline(always)]
unsafe fn columns<E: KernelFloat, T: Target, const N: usize>(job: &Job<E>, start: E) {
    // SAFETY: as the caller promises.
    unsafe {
        if job.b.outer == 1 { products::<E, T, N, true>(job, start) } else { products::<E, T, N, false>(job, start) }
    }
}

/// # Safety
/// As [`columns`]; `BY_ROWS`: the columns of B are side by side.
#[inline(always)]
unsafe fn products<E: KernelFloat, T: Target, const N: usize, const BY_ROWS: bool>(job: &Job<E>, start: E) {
    let is_reached = job.finish == Finish::Reached;
    let outer = if BY_ROWS { 1 } else { job.b.outer };
    let mut pace = Pace::new();
    let (mut a, mut b, mut c) = (job.a.at, job.b.at, job.c);
    for _ in 0..job.count {
        for i in 0..job.m as isize {
            let mut sums = [start; N];
            for p in 0..job.k as isize {
                // SAFETY: as the caller promises.
                let (x, row) = unsafe { (*a.offset(i * job.a.outer + p * job.a.inner), b.offset(p * job.b.inner)) };
                for (j, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: as the caller promises.
                    let y = unsafe { *row.offset(j as isize * outer) };
                    *sum = if T::FUSED { x.mul_add(y, *sum) } else { x * y + *sum };
                }
            }
            for (j, sum) in sums.into_iter().enumerate() {
                let sum = if is_reached { sum + <E as Real>::of(0.0) } else { sum };
                // SAFETY: as the caller promises.
                unsafe { *c.offset(i * job.c_row + j as isize) = sum };
            }
        }
        if !pace.goes_on(job.m * N * job.k) {
            return;
        }
        (a, b, c) = (a.wrapping_offset(job.a.next), b.wrapping_offset(job.b.next), c.wrapping_offset(job.c_next));
    }
}
