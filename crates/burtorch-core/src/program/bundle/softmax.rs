//! Softmaxes of few numbers: each takes as many lanes as it has operands, rounded up to a power of two.
//!
//! In words: exponentials in all lanes, their sum in every lane of the softmax, quotients in all lanes; the same for
//! the reverse pass. So one vector holds two softmaxes of four, one exponential and one division serve both, and a
//! program with few ready units wastes little.
//!
//! Promises: the bits of separate exponentials, sum and quotients. Knows slots, not programs.
#![allow(unsafe_code)]

use super::memory::{Body, Bundle, InLanes, Lanes, Memory};

/// The number of lanes of a softmax of `n`.
pub(super) const fn width(n: u16) -> u32 {
    (n as u32).next_power_of_two()
}

/// Values in order: exponentials, sums, quotients.
pub(super) struct Softmax;
impl<S: InLanes, L: Lanes<S>> Body<S, L> for Softmax {
    #[inline(always)]
    unsafe fn run(b: &Bundle<S>, at: Memory<S, L>) {
        // SAFETY: by the contract of the trait, as in every body here.
        unsafe {
            let m = Memory::<S, L>::STRIDE;
            let e = at.operand(at.v, b, 0).exp();
            let total = sums(b, e);
            at.store(at.v, b.values, e);
            at.store(at.v, b.values + m, total);
            at.store(at.v, b.values + 2 * m, e / total);
        }
    }
}

/// The same, plus the partial of each quotient by the sum: a division for which the reverse pass need not wait.
pub(super) struct SoftmaxWithPartials;
impl<S: InLanes, L: Lanes<S>> Body<S, L> for SoftmaxWithPartials {
    #[inline(always)]
    unsafe fn run(b: &Bundle<S>, at: Memory<S, L>) {
        // SAFETY: as above.
        unsafe {
            let m = Memory::<S, L>::STRIDE;
            let e = at.operand(at.v, b, 0).exp();
            let total = sums(b, e);
            let y = e / total;
            at.store(at.v, b.values, e);
            at.store(at.v, b.values + m, total);
            at.store(at.v, b.values + 2 * m, y);
            at.store(at.v, b.values + 3 * m, -y / total);
        }
    }
}

/// The contributions of the quotients to the exponents.
pub(super) struct PullSoftmax;
impl<S: InLanes, L: Lanes<S>> Body<S, L> for PullSoftmax {
    #[inline(always)]
    unsafe fn run(b: &Bundle<S>, at: Memory<S, L>) {
        // SAFETY: as above.
        unsafe {
            let m = Memory::<S, L>::STRIDE;
            let (e, total) = (at.load(at.v, b.values), at.load(at.v, b.values + m));
            let by_total = at.load(at.v, b.values + 3 * m);
            let g = at.adjoint(b, b.adjoints);
            // The eager backward pass processes the last quotient first.
            let to_total = match b.n {
                4 => (g * by_total).sums_of_groups_backwards(4, 4),
                n => (g * by_total).sums_of_groups_backwards(width(n) as usize, usize::from(n)),
            };
            at.store(at.d, b.to, (g / total + to_total) * e);
        }
    }
}

/// The tangents of quotients.
pub(super) struct PushSoftmax;
impl<S: InLanes, L: Lanes<S>> Body<S, L> for PushSoftmax {
    #[inline(always)]
    unsafe fn run(b: &Bundle<S>, at: Memory<S, L>) {
        // SAFETY: as above.
        unsafe {
            let m = Memory::<S, L>::STRIDE;
            let (e, total) = (at.load(at.v, b.values), at.load(at.v, b.values + m));
            let y = at.load(at.v, b.values + 2 * m);
            let t = at.operand(at.d, b, 0) * e;
            at.store(at.d, b.values + 2 * m, t / total + sums(b, t) * (-y / total));
        }
    }
}

/// The sum over each softmax, in all its lanes.
#[inline(always)]
fn sums<S: InLanes, L: Lanes<S>>(b: &Bundle<S>, x: L) -> L {
    match b.n {
        4 => x.sums_of_groups(4, 4),
        n => x.sums_of_groups(width(n) as usize, usize::from(n)),
    }
}
