//! Products of a few numbers, whose operands stay in registers: in memory they would take twice as long.
//!
//! Written with counting loops, because closures and iterators are compiled without the level's instructions unless
//! they are inlined.
//!
//! Promises: the bits of the op: a product from left to right, and prefix times suffix for the contributions. Knows
//! slots, not programs.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)]

use super::memory::{Body, Bundle, InLanes, Lanes, Memory, partials};
use crate::scalar::Scalar;

/// A product of fewer than sixteen factors; `M` is for more than four.
pub(super) struct Product<M>(M);
impl<S: InLanes, L: Lanes<S>, M: Body<S, L>> Body<S, L> for Product<M> {
    #[inline(always)]
    unsafe fn run(b: &Bundle<S>, at: Memory<S, L>) {
        // SAFETY: by the contract of the trait, as in every body here.
        unsafe {
            match b.n {
                2 => product::<S, L, 2>(b, at),
                3 => product::<S, L, 3>(b, at),
                4 => product::<S, L, 4>(b, at),
                _ => M::run(b, at),
            }
        }
    }
}

/// A product of two to four factors that also stores the product of the others for each factor, so that the reverse
/// pass need not load the factors.
pub(super) struct ProductWithPartials;
impl<S: InLanes, L: Lanes<S>> Body<S, L> for ProductWithPartials {
    #[inline(always)]
    unsafe fn run(b: &Bundle<S>, at: Memory<S, L>) {
        // SAFETY: as above.
        unsafe {
            match b.n {
                2 => product_with_partials::<S, L, 2>(b, at),
                3 => product_with_partials::<S, L, 3>(b, at),
                _ => product_with_partials::<S, L, 4>(b, at),
            }
        }
    }
}

/// The contributions by stored partials.
pub(super) struct PullProductByPartials;
impl<S: InLanes, L: Lanes<S>> Body<S, L> for PullProductByPartials {
    #[inline(always)]
    unsafe fn run(b: &Bundle<S>, at: Memory<S, L>) {
        // SAFETY: as above.
        unsafe {
            let g = at.inner_adjoint(b);
            let first = partials::<S, L>(b);
            for j in (0..u32::from(b.n)).map(|j| j * Memory::<S, L>::STRIDE) {
                at.store(at.d, b.to + j, g * at.load(at.v, first + j));
            }
        }
    }
}

/// # Safety
/// As for a body of a bundle whose units have `N` operands and as many stored partials.
#[inline(always)]
unsafe fn product_with_partials<S: InLanes, L: Lanes<S>, const N: usize>(b: &Bundle<S>, at: Memory<S, L>) {
    debug_assert!(usize::from(b.n) == N);
    // SAFETY: by the contract of this function.
    unsafe {
        let (mut xs, mut out) = ([L::lit(0.0); N], [L::lit(0.0); N]);
        for j in 0..N {
            xs[j] = at.operand(at.v, b, j as u32);
        }
        let mut product = xs[0];
        for x in &xs[1..] {
            product = product * *x;
        }
        at.store_values(b, product);
        products_of_others(&xs, &mut out);
        let first = partials::<S, L>(b);
        for j in 0..N {
            at.store(at.v, first + j as u32 * Memory::<S, L>::STRIDE, out[j]);
        }
    }
}

/// # Safety
/// As for a body.
#[inline(always)]
unsafe fn product<S: InLanes, L: Lanes<S>, const N: usize>(b: &Bundle<S>, at: Memory<S, L>) {
    debug_assert!(usize::from(b.n) == N);
    // SAFETY: by the contract of this function.
    unsafe {
        let mut xs = [L::lit(0.0); N];
        for j in 0..N {
            xs[j] = at.operand(at.v, b, j as u32);
        }
        let mut product = xs[0];
        for x in &xs[1..] {
            product = product * *x;
        }
        at.store_values(b, product);
    }
}

/// For each factor the product of all others, computed as the op does: prefix times suffix.
#[inline(always)]
fn products_of_others<V: Scalar, const N: usize>(xs: &[V; N], out: &mut [V; N]) {
    let mut suffix = V::lit(1.0);
    for j in (0..N).rev() {
        out[j] = suffix;
        suffix = suffix * xs[j];
    }
    let mut prefix = V::lit(1.0);
    for j in 0..N {
        out[j] = prefix * out[j];
        prefix = prefix * xs[j];
    }
}
