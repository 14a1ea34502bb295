//! Reductions: n-ary ops over a contiguous slice of values, forward and backward.
//!
//! Promises: one fixed order of summation, so that equal inputs give equal bits; two passes for variances; products of
//! the others without dividing. Knows nothing of graphs: the caller gathers operands and scatters contributions.

use super::{Op, peak};
use crate::interrupt::pieces;
use crate::scalar::Scalar;

/// A reduction op chosen at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction(Op);

impl Reduction {
    /// The reduction with this opcode, if it is one.
    #[inline]
    pub fn new(op: Op) -> Option<Self> {
        matches!(
            op,
            Op::ReduceSum
                | Op::ReduceSub
                | Op::ReduceMul
                | Op::ReduceMean
                | Op::ReduceSumOfSquares
                | Op::ReduceMeanSquares
                | Op::ReduceNegativeMean
                | Op::VarianceBiased
                | Op::Variance
                | Op::ReduceMax
                | Op::ReduceMin
                | Op::LogSumExp
                | Op::Norm2
        )
        .then_some(Reduction(op))
    }

    /// The opcode.
    #[inline]
    pub fn op(self) -> Op {
        self.0
    }

    /// The value over `xs`, which is not empty; rounded once for half numbers.
    #[inline]
    pub fn forward<S: Scalar>(self, xs: &[S]) -> S {
        let n = || S::Compute::lit(xs.len() as f64);
        S::narrow(match self.0 {
            Op::ReduceSum => sum(xs),
            Op::ReduceMean => sum(xs) / n(),
            Op::ReduceNegativeMean => -(sum(xs) / n()),
            Op::ReduceSub => xs[0].widen() - if xs.len() > 1 { sum(&xs[1..]) } else { S::Compute::lit(0.0) },
            Op::ReduceMul => xs[1..].iter().fold(xs[0].widen(), |p, x| p * x.widen()),
            Op::ReduceSumOfSquares => sum_by(xs, |x| x * x),
            Op::ReduceMeanSquares => sum_by(xs, |x| x * x) / n(),
            Op::VarianceBiased => variance_of(xs, n()),
            Op::Variance => variance_of(xs, S::Compute::lit(xs.len() as f64 - 1.0)),
            Op::ReduceMax => peak::largest(xs),
            Op::ReduceMin => peak::smallest(xs),
            Op::LogSumExp => peak::log_sum_exp(xs),
            Op::Norm2 => peak::norm2(xs),
            _ => unreachable!("not a reduction"),
        })
    }

    /// Writes into `out[i]` what the adjoint `g` contributes to `xs[i]`.
    #[inline]
    pub fn pull<S: Scalar>(self, g: S, xs: &[S], out: &mut [S]) {
        let n = S::Compute::lit(xs.len() as f64);
        // Doubled last: twice an operand may leave the range although twice its share does not.
        let two = S::Compute::lit(2.0);
        let wide = g.widen();
        match self.0 {
            Op::ReduceSum => out.fill(g),
            Op::ReduceMean => out.fill(S::narrow(wide / n)),
            Op::ReduceNegativeMean => out.fill(S::narrow(-(wide / n))),
            Op::ReduceSub => {
                out.fill(-g);
                out[0] = g;
            }
            Op::ReduceSumOfSquares => each(xs, out, |x| wide * (two * x)),
            Op::ReduceMeanSquares => each(xs, out, |x| wide * (two * (x / n))),
            Op::ReduceMul if is_narrow::<S>() => products_of_others_in_blocks(wide, xs, out),
            Op::ReduceMul => products_of_others(g, xs, out),
            Op::VarianceBiased => {
                let m = mean_of(xs);
                each(xs, out, |x| wide * (two * ((x - m) / n)));
            }
            Op::Variance => {
                let m = mean_of(xs);
                let less = n - S::Compute::lit(1.0);
                each(xs, out, |x| wide * (two * ((x - m) / less)));
            }
            Op::ReduceMax => peak::pull_extreme(wide, peak::largest(xs), xs, out),
            Op::ReduceMin => peak::pull_extreme(wide, peak::smallest(xs), xs, out),
            Op::LogSumExp => peak::pull_log_sum_exp(wide, xs, out),
            Op::Norm2 => peak::pull_norm2(wide, xs, out),
            _ => unreachable!("not a reduction"),
        }
    }
}

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

/// The sum, from eight running sums that are added pairwise: short chains for the CPU, one fixed order for the reader.
#[inline]
fn sum<S: Scalar>(xs: &[S]) -> S::Compute {
    sum_by(xs, |x| x)
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
    // From -0.0, which added to anything leaves it as it is.
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

/// The mean, measured from the first value: exact for equal inputs and safe for large offsets.
#[inline]
pub(crate) fn mean_of<S: Scalar>(xs: &[S]) -> S::Compute {
    let origin = xs[0].widen();
    let n = S::Compute::lit(xs.len() as f64);
    let first_guess = origin + sum_by(xs, |x| x - origin) / n;
    // For values of very different sign or size the shifted sum can overflow where the plain one does not.
    if first_guess.all_finite() {
        return first_guess;
    }
    // Infinities and NaN times zero are NaN.
    let zero = S::Compute::lit(0.0);
    let is_finite = (first_guess * zero).equal(zero);
    S::Compute::select(is_finite, first_guess, sum(xs) / n)
}

/// The sum of squared deviations from the mean over `divisor`, in two passes. The deviations of a rounded mean do not add
/// up to 0; what they add up to is taken out again.
#[inline]
pub fn variance_of<S: Scalar>(xs: &[S], divisor: S::Compute) -> S::Compute {
    let m = mean_of(xs);
    let squares = sum_by(xs, |x| (x - m) * (x - m));
    let rest = sum_by(xs, |x| x - m);
    let excess = rest * (rest / S::Compute::lit(xs.len() as f64));
    // Where deviations overflow, so do their squares.
    S::Compute::select(excess.less(squares), squares - excess, squares) / divisor
}

/// `out[i] = g` times the product of all inputs but the i-th: suffix products first, then a running prefix.
#[inline(always)]
pub(crate) fn products_of_others<S: Scalar>(g: S, xs: &[S], out: &mut [S]) {
    let mut suffix = S::lit(1.0);
    for (o, &x) in out.iter_mut().zip(xs).rev() {
        *o = suffix;
        suffix = suffix * x;
    }
    let mut prefix = S::lit(1.0);
    for (o, &x) in out.iter_mut().zip(xs) {
        *o = g * (prefix * *o);
        prefix = prefix * x;
    }
}

/// The same for numbers too narrow to keep suffix products in: they are kept, unrounded, for a block at a time.
fn products_of_others_in_blocks<S: Scalar>(g: S::Compute, xs: &[S], out: &mut [S]) {
    const BLOCK: usize = 64;
    let one = S::Compute::lit(1.0);
    let mut prefix = one;
    for (k, (block, out)) in xs.chunks(BLOCK).zip(out.chunks_mut(BLOCK)).enumerate() {
        let behind = &xs[(k * BLOCK + block.len())..];
        let mut suffix = behind.iter().fold(one, |p, x| p * x.widen());
        let mut suffixes = [one; BLOCK];
        for (kept, x) in suffixes.iter_mut().zip(block).rev() {
            *kept = suffix;
            suffix = suffix * x.widen();
        }
        for ((o, &suffix), x) in out.iter_mut().zip(&suffixes).zip(block) {
            *o = S::narrow(g * (prefix * suffix));
            prefix = prefix * x.widen();
        }
    }
}
