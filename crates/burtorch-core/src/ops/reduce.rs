//! Reductions: n-ary ops over a contiguous slice of values, forward and backward.
//!
//! Promises: one fixed order of summation, so that equal inputs give equal bits; two passes for variances; products of the
//! other operands without division. Does not know graphs: the caller gathers operands and scatters contributions.

use super::sums::{each, is_narrow, sum, sum_apart, sum_by};
use super::{Arity, Op, max_shifted};
use crate::scalar::{RowMath, Scalar};

/// A reduction op chosen at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction(Op);

impl Reduction {
    /// The reduction with this opcode, if it is one.
    #[inline]
    pub fn new(op: Op) -> Option<Self> {
        (op.info().arity == Arity::Reduction).then_some(Reduction(op))
    }

    /// The opcode.
    #[inline]
    pub fn op(self) -> Op {
        self.0
    }

    /// The value over `xs`, which is not empty; rounded once for half numbers.
    #[inline]
    pub fn forward<S: Scalar>(self, xs: &[S]) -> S {
        match self.0 {
            Op::ReduceSum | Op::ReduceMean | Op::ReduceNegativeMean => {
                let total = sum(xs);
                let n = || S::Compute::lit(xs.len() as f64);
                S::narrow(match self.0 {
                    Op::ReduceMean => total / n(),
                    Op::ReduceNegativeMean => -(total / n()),
                    _ => total,
                })
            }
            _ => self.forward_apart(xs),
        }
    }

    /// The same for all other ops; one copy per type.
    #[inline(never)]
    fn forward_apart<S: Scalar>(self, xs: &[S]) -> S {
        let n = || S::Compute::lit(xs.len() as f64);
        S::narrow(match self.0 {
            Op::ReduceSub => xs[0].widen() - if xs.len() > 1 { sum_apart(&xs[1..]) } else { S::Compute::lit(0.0) },
            Op::ReduceMul => xs[1..].iter().fold(xs[0].widen(), |p, x| p * x.widen()),
            Op::ReduceSumOfSquares => sum_of_squares(xs),
            Op::ReduceMeanSquares => sum_of_squares(xs) / n(),
            Op::VarianceBiased => variance_of(xs, n()),
            Op::Variance => variance_of(xs, S::Compute::lit(xs.len() as f64 - 1.0)),
            Op::ReduceMax => max_shifted::largest(xs),
            Op::ReduceMin => max_shifted::smallest(xs),
            Op::LogSumExp => max_shifted::log_sum_exp(xs),
            Op::Norm2 => max_shifted::norm2(xs),
            _ => unreachable!("not a reduction"),
        })
    }

    /// Writes the contribution of the adjoint `g` to `xs[i]` into `out[i]`.
    #[inline]
    pub fn pull<S: Scalar>(self, g: S, xs: &[S], out: &mut [S]) {
        match self.0 {
            Op::ReduceSum => out.fill(g),
            _ => self.pull_apart(g, xs, out),
        }
    }

    /// The same for all other ops; one copy per type.
    #[inline(never)]
    fn pull_apart<S: Scalar>(self, g: S, xs: &[S], out: &mut [S]) {
        let n = S::Compute::lit(xs.len() as f64);
        // Doubling comes last: twice an operand may overflow although twice its share does not.
        let two = S::Compute::lit(2.0);
        let wide = g.widen();
        let around_mean = |n: S::Compute, out: &mut [S]| {
            let m = mean_of(xs);
            each(xs, out, |x| wide * (two * ((x - m) / n)));
        };
        match self.0 {
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
            Op::VarianceBiased => around_mean(n, out),
            Op::Variance => around_mean(n - S::Compute::lit(1.0), out),
            Op::ReduceMax => max_shifted::pull_extreme(wide, max_shifted::largest(xs), xs, out),
            Op::ReduceMin => max_shifted::pull_extreme(wide, max_shifted::smallest(xs), xs, out),
            Op::LogSumExp => max_shifted::pull_log_sum_exp(wide, xs, out),
            Op::Norm2 => max_shifted::pull_norm2(wide, xs, out),
            _ => unreachable!("not a reduction"),
        }
    }
}

/// The sum of squares.
#[inline(never)]
fn sum_of_squares<S: Scalar>(xs: &[S]) -> S::Compute {
    sum_by(xs, |x| x * x)
}

/// The sum of differences from `origin`.
#[inline(never)]
fn sum_of_differences<S: Scalar>(xs: &[S], origin: S::Compute) -> S::Compute {
    sum_by(xs, |x| x - origin)
}

/// The mean, computed relative to the first value: exact for equal inputs and accurate for large offsets.
#[inline(never)]
pub(crate) fn mean_of<S: Scalar>(xs: &[S]) -> S::Compute {
    let origin = xs[0].widen();
    let n = S::Compute::lit(xs.len() as f64);
    let first_guess = origin + sum_of_differences(xs, origin) / n;
    // For values of very different sign or size the shifted sum can overflow although the plain one does not.
    if first_guess.all_finite() {
        return first_guess;
    }
    // Infinities and NaN times zero give NaN.
    let zero = S::Compute::lit(0.0);
    let is_finite = (first_guess * zero).equal(zero);
    S::Compute::select(is_finite, first_guess, sum_apart(xs) / n)
}

/// The sum of squared deviations from the mean over `divisor`, in two passes. The deviations from a rounded mean do not
/// sum to 0; their sum is subtracted again.
#[inline(never)]
pub fn variance_of<S: Scalar>(xs: &[S], divisor: S::Compute) -> S::Compute {
    let m = mean_of(xs);
    let squares = sum_by(xs, |x| (x - m) * (x - m));
    let rest = sum_of_differences(xs, m);
    let excess = rest * (rest / S::Compute::lit(xs.len() as f64));
    // If deviations overflow, so do their squares.
    S::Compute::select(excess.less(squares), squares - excess, squares) / divisor
}

/// `out[i]` is `g` times the product of all inputs except the i-th: suffix products first, then a running prefix.
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

/// The same for types too narrow to store suffix products: they are stored unrounded for a block at a time.
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
