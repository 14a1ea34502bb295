//! Reductions: n-ary ops over a contiguous slice of values, forward and backward.
//!
//! Promises: one fixed order of summation, so that equal inputs give equal bits; two passes for variances; products of
//! the others without dividing. Knows nothing of graphs: the caller gathers operands and scatters contributions.

use super::Op;
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
        )
        .then_some(Reduction(op))
    }

    /// The opcode.
    #[inline]
    pub fn op(self) -> Op {
        self.0
    }

    /// The value over `xs`, which is not empty.
    #[inline]
    pub fn forward<S: Scalar>(self, xs: &[S]) -> S {
        let n = || S::lit(xs.len() as f64);
        match self.0 {
            Op::ReduceSum => sum(xs),
            Op::ReduceMean => sum(xs) / n(),
            Op::ReduceNegativeMean => -(sum(xs) / n()),
            Op::ReduceSub => xs[0] - if xs.len() > 1 { sum(&xs[1..]) } else { S::lit(0.0) },
            Op::ReduceMul => xs[1..].iter().fold(xs[0], |p, &x| p * x),
            Op::ReduceSumOfSquares => sum_by(xs, |x| x * x),
            Op::ReduceMeanSquares => sum_by(xs, |x| x * x) / n(),
            Op::VarianceBiased => variance_of(xs, n()),
            Op::Variance => variance_of(xs, S::lit(xs.len() as f64 - 1.0)),
            _ => unreachable!("not a reduction"),
        }
    }

    /// Writes into `out[i]` what the adjoint `g` contributes to `xs[i]`.
    #[inline]
    pub fn pull<S: Scalar>(self, g: S, xs: &[S], out: &mut [S]) {
        let n = S::lit(xs.len() as f64);
        let two = S::lit(2.0);
        match self.0 {
            Op::ReduceSum => out.fill(g),
            Op::ReduceMean => out.fill(g / n),
            Op::ReduceNegativeMean => out.fill(-(g / n)),
            Op::ReduceSub => {
                out.fill(-g);
                out[0] = g;
            }
            Op::ReduceSumOfSquares => each(xs, out, |x| g * (two * x)),
            Op::ReduceMeanSquares => each(xs, out, |x| g * (two * x / n)),
            Op::ReduceMul => products_of_others(g, xs, out),
            Op::VarianceBiased => {
                let m = mean_of(xs);
                each(xs, out, |x| g * (two * (x - m) / n));
            }
            Op::Variance => {
                let m = mean_of(xs);
                let less = n - S::lit(1.0);
                each(xs, out, |x| g * (two * (x - m) / less));
            }
            _ => unreachable!("not a reduction"),
        }
    }
}

/// Applies `f` to each input.
#[inline(always)]
fn each<S: Scalar>(xs: &[S], out: &mut [S], f: impl Fn(S) -> S) {
    for (o, &x) in out.iter_mut().zip(xs) {
        *o = f(x);
    }
}

/// The sum, from eight running sums that are added pairwise: short chains for the CPU, one fixed order for the reader.
#[inline]
fn sum<S: Scalar>(xs: &[S]) -> S {
    sum_by(xs, |x| x)
}

#[inline(always)]
fn sum_by<S: Scalar>(xs: &[S], f: impl Fn(S) -> S) -> S {
    if xs.len() < 16 {
        let mut total = f(xs[0]);
        for &x in &xs[1..] {
            total = total + f(x);
        }
        return total;
    }
    // From -0.0, which added to anything leaves it as it is.
    let mut sums = [S::UNREACHED; 8];
    let mut chunks = xs.chunks_exact(8);
    for chunk in &mut chunks {
        for k in 0..8 {
            sums[k] = sums[k] + f(chunk[k]);
        }
    }
    for (k, &x) in chunks.remainder().iter().enumerate() {
        sums[k] = sums[k] + f(x);
    }
    ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))
}

/// The mean, measured from the first value: exact for equal inputs and safe for large offsets.
#[inline]
pub(crate) fn mean_of<S: Scalar>(xs: &[S]) -> S {
    let origin = xs[0];
    let first_guess = origin + sum_by(xs, |x| x - origin) / S::lit(xs.len() as f64);
    // For values of very different sign or size the shifted sum can overflow where the plain one does not.
    if first_guess.all_finite() {
        return first_guess;
    }
    // Infinities and NaN times zero are NaN.
    let is_finite = (first_guess * S::lit(0.0)).equal(S::lit(0.0));
    S::select(is_finite, first_guess, sum(xs) / S::lit(xs.len() as f64))
}

/// The sum of squared deviations from the mean over `divisor`, in two passes.
#[inline]
pub fn variance_of<S: Scalar>(xs: &[S], divisor: S) -> S {
    let m = mean_of(xs);
    sum_by(xs, |x| (x - m) * (x - m)) / divisor
}

/// `out[i] = g` times the product of all inputs but the i-th: suffix products first, then a running prefix.
fn products_of_others<S: Scalar>(g: S, xs: &[S], out: &mut [S]) {
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
