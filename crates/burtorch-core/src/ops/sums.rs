//! Sums over slices, and elementwise functions of a slice.
//!
//! Promises: one fixed order of summation for any length. Does not know ops.

use crate::interrupt::pieces;
use crate::scalar::Scalar;

/// Whether ops on this type are computed in a wider one.
pub(super) const fn is_narrow<S: Scalar>() -> bool {
    size_of::<S>() < size_of::<S::Compute>()
}

/// Applies `f` to each input.
#[inline(always)]
pub(super) fn each<S: Scalar>(xs: &[S], out: &mut [S], f: impl Fn(S::Compute) -> S::Compute) {
    for piece in pieces(xs.len().min(out.len())) {
        for (o, x) in out[piece.clone()].iter_mut().zip(&xs[piece]) {
            *o = S::narrow(f(x.widen()));
        }
    }
}

/// The sum, as eight running sums that are added pairwise: short dependency chains, and one fixed order.
#[inline]
pub(super) fn sum<S: Scalar>(xs: &[S]) -> S::Compute {
    sum_by(xs, |x| x)
}

/// The same; one copy per type.
#[inline(never)]
pub(super) fn sum_apart<S: Scalar>(xs: &[S]) -> S::Compute {
    sum(xs)
}

#[inline(always)]
pub(super) fn sum_by<S: Scalar>(xs: &[S], f: impl Fn(S::Compute) -> S::Compute) -> S::Compute {
    if xs.len() < 16 {
        let mut total = f(xs[0].widen());
        for x in &xs[1..] {
            total = total + f(x.widen());
        }
        return total;
    }
    // Starts at -0.0, the neutral element of addition.
    let mut sums = [S::Compute::UNREACHED; 8];
    // Pieces are multiples of eight, so number i is added to sum i % 8.
    for piece in pieces(xs.len()) {
        let mut chunks = xs[piece].chunks_exact(8);
        for chunk in &mut chunks {
            for k in 0..8 {
                sums[k] = sums[k] + f(chunk[k].widen());
            }
        }
        for (k, x) in chunks.remainder().iter().enumerate() {
            sums[k] = sums[k] + f(x.widen());
        }
    }
    ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))
}
