//! Formulas that need the largest operand first: max and min of many, log-sum-exp, softmax and its logarithm, the
//! Euclidean norm.
//!
//! Promises: no overflow and no harmful underflow inside, whatever the sign and size of the operands; at a kink, and
//! where infinities tie, the minimum-norm choice among the limits; half-precision numbers are rounded once. Operands are not
//! empty. Does not know graphs.

use super::map::map_forward;
use super::sums::{each, is_narrow, sum_apart, sum_by};
use super::{BinaryOp, Max, Min, Op};
use crate::interrupt::pieces;
use crate::kernels::row_kernels;
use crate::scalar::{DType, Float, RowMath, Scalar};

/// The largest operand; NaN if any is NaN.
#[inline(never)]
pub(super) fn largest<S: Scalar>(xs: &[S]) -> S::Compute {
    match row_kernels::<S>(xs.len()) {
        Some(kernels) => of_eight(kernels.larger_of_eight, f64::NEG_INFINITY, Max::forward, xs),
        None => xs[1..].iter().fold(xs[0].widen(), |top, x| Max::forward(top, x.widen())),
    }
}

/// The smallest operand; NaN if any is NaN.
#[inline(never)]
pub(super) fn smallest<S: Scalar>(xs: &[S]) -> S::Compute {
    match row_kernels::<S>(xs.len()) {
        Some(kernels) => of_eight(kernels.smaller_of_eight, f64::INFINITY, Min::forward, xs),
        None => xs[1..].iter().fold(xs[0].widen(), |low, x| Min::forward(low, x.widen())),
    }
}

/// The extreme of the eight that a kernel finds.
fn of_eight<S: Scalar>(
    kernel: fn(&[S], &mut [S]),
    start: f64,
    two: fn(S::Compute, S::Compute) -> S::Compute,
    xs: &[S],
) -> S::Compute {
    let mut tops = [S::lit(start); 8];
    kernel(xs, &mut tops);
    tops[1..].iter().fold(tops[0].widen(), |top, x| two(top, x.widen()))
}

/// The contribution of the adjoint of the extreme `y`: equal shares for all operands that attain it, 0 for the others.
pub(super) fn pull_extreme<S: Scalar>(g: S::Compute, y: S::Compute, xs: &[S], out: &mut [S]) {
    if let Some(kernels) = row_kernels::<S>(xs.len()) {
        return (kernels.extreme_shares)(S::narrow(g), xs, S::narrow(y), S::lit(0.0), out);
    }
    let share = g / count_equal(xs, y);
    each(xs, out, |x| choose(y.nan_mask(), y, choose(x.equal(y), share, S::Compute::lit(0.0))));
}

#[inline(always)]
fn choose<C: Scalar>(mask: C::Mask, yes: C, no: C) -> C {
    C::select(mask, yes, no)
}

/// The number of operands equal to `y`, per lane.
#[inline(never)]
fn count_equal<S: Scalar>(xs: &[S], y: S::Compute) -> S::Compute {
    sum_by(xs, |x| choose(x.equal(y), S::Compute::lit(1.0), S::Compute::lit(0.0)))
}

/// The difference to the largest operand: 0 for the largest itself, even if infinite. With dual numbers its tangent is
/// kept on ties.
#[inline(always)]
fn below<C: Scalar>(x: C, top: C) -> C {
    let gap = x - top;
    let tie = choose(top.abs().equal(C::lit(f64::INFINITY)), C::lit(0.0), gap);
    choose(x.equal(top), tie, gap)
}

/// The logarithm of the sum of exponentials of operands shifted by the largest of them, `top`.
///
/// The largest contributes exactly 1, so this computes log(1 + rest): a rest far below 1 is not lost.
#[inline(never)]
fn log_sum_shifted<S: Scalar>(xs: &[S], top: S::Compute) -> S::Compute {
    let rest = sum_by(xs, |x| choose(x.equal(top), S::Compute::lit(0.0), (x - top).exp()));
    choose(top.nan_mask(), top, (rest + (count_equal(xs, top) - S::Compute::lit(1.0))).log1p())
}

/// The sum of exponentials of operands shifted by the largest.
#[inline(never)]
fn sum_of_exponentials<S: Scalar>(xs: &[S], top: S::Compute) -> S::Compute {
    sum_by(xs, |x| below(x, top).exp())
}

/// `log(sum exp x_i)`.
pub(super) fn log_sum_exp<S: Scalar>(xs: &[S]) -> S::Compute {
    if let Some(kernels) = row_kernels::<S>(xs.len()) {
        return (kernels.log_sum_exp)(xs, &mut [])[0].widen();
    }
    let top = largest(xs);
    top + log_sum_shifted(xs, top)
}

/// Writes `g softmax(x)_i`.
pub(super) fn pull_log_sum_exp<S: Scalar>(g: S::Compute, xs: &[S], out: &mut [S]) {
    if let Some(kernels) = row_kernels::<S>(xs.len()) {
        let [_, total] = (kernels.log_sum_exp)(xs, out).map(Scalar::widen);
        return out.iter_mut().for_each(|o| *o = S::narrow(g * (o.widen() / total)));
    }
    let top = largest(xs);
    let total = sum_of_exponentials(xs, top);
    each(xs, out, |x| g * (below(x, top).exp() / total));
}

/// Writes `exp(x_i) / sum exp(x)` (for [`Op::Softmax`]) or its logarithm. `room` has the length of the operands.
pub(crate) fn softmax_forward<S: Scalar>(op: Op, xs: &[S], room: &mut [S], out: &mut [S]) {
    let top = largest(xs);
    if op == Op::LogSoftmax {
        let log_total = log_sum_shifted(xs, top);
        each(xs, out, |x| below(x, top) - log_total);
    } else if is_narrow::<S>() {
        let total = sum_of_exponentials(xs, top);
        each(xs, out, |x| below(x, top).exp() / total);
    } else {
        // Without intermediate rounding, exponentials are computed a vector at a time.
        each(xs, room, |x| below(x, top));
        pieces(out.len()).for_each(|piece| map_forward(Op::Exp, &room[piece.clone()], &mut out[piece]));
        let total = sum_apart(out);
        pieces(out.len()).for_each(|piece| out[piece].iter_mut().for_each(|o| *o = S::narrow(o.widen() / total)));
    }
}

/// Writes the contributions of the adjoints `g` of the outputs `y` to `out`, one per operand; `g` may be shorter, and
/// unreached adjoints contribute nothing.
pub(crate) fn softmax_pull<S: Scalar>(op: Op, g: &[S], y: &[S], out: &mut [S]) {
    let zero = S::Compute::lit(0.0);
    let reached = || g.iter().zip(y).filter(|(g, _)| !g.is_unreached()).map(|(g, y)| (g.widen(), y.widen()));
    let own = |k: usize| g.get(k).filter(|g| !g.is_unreached()).map_or(zero, |g| g.widen());
    let is_log = op == Op::LogSoftmax;
    let total = reached().fold(zero, |sum, (g, y)| sum + if is_log { g } else { g * y });
    for (k, (o, y)) in out.iter_mut().zip(y).enumerate() {
        let y = y.widen();
        *o = S::narrow(if is_log { own(k) - y.exp() * total } else { y * (own(k) - total) });
    }
}

/// A power of two within the range of `C`.
fn two_to<C: Scalar>(exponent: i32) -> C {
    let step = C::lit(2f64.powi(1000 * exponent.signum()));
    (0..exponent.abs() / 1000).fold(C::lit(2f64.powi(exponent % 1000)), |power, _| power * step)
}

/// How a norm sums squares: operands are multiplied by a power of two that keeps their squares in range; if there are
/// infinities, signs replace them.
#[derive(Clone, Copy)]
struct Scaling<C> {
    factor: C,
    /// The largest magnitude.
    top: C,
}

impl<C: Scalar<Compute = C>> Scaling<C> {
    fn of<S: Scalar<Compute = C>>(xs: &[S]) -> Self {
        let top = xs[1..].iter().fold(xs[0].widen().abs(), |top, x| Max::forward(top, x.widen().abs()));
        // Above `large`, squares overflow; below `small`, they lose bits.
        let [large, small, down, up] = match <C::Elem as Float>::DTYPE {
            DType::Float128 => [8000, -8000, -9000, 9000],
            DType::Float64 => [500, -450, -600, 600],
            _ => [60, -45, -70, 100],
        }
        .map(two_to::<C>);
        Scaling { factor: choose(large.less(top), down, choose(top.less(small), up, C::lit(1.0))), top }
    }

    #[inline(always)]
    fn apply(self, x: C) -> C {
        let infinity = C::lit(f64::INFINITY);
        let sign = choose(x.less(C::lit(0.0)), C::lit(-1.0), C::lit(1.0));
        let part = choose(x.abs().equal(infinity), sign, C::lit(0.0));
        choose(self.top.equal(infinity), part, x * self.factor)
    }

    fn length<S: Scalar<Compute = C>>(self, xs: &[S]) -> C {
        let square = |x| {
            let scaled = self.apply(x);
            scaled * scaled
        };
        sum_by(xs, square).sqrt()
    }
}

/// `sqrt(sum x_i^2)`.
pub(super) fn norm2<S: Scalar>(xs: &[S]) -> S::Compute {
    if let Some(kernels) = row_kernels::<S>(xs.len()) {
        return (kernels.norm2)(xs).widen();
    }
    let scaling = Scaling::of(xs);
    let length = scaling.length(xs) / scaling.factor;
    choose(scaling.top.equal(S::Compute::lit(f64::INFINITY)), scaling.top, length)
}

/// Writes `g x_i / |x|`; 0 for all at the origin.
pub(super) fn pull_norm2<S: Scalar>(g: S::Compute, xs: &[S], out: &mut [S]) {
    if let Some(kernels) = row_kernels::<S>(xs.len()) {
        return (kernels.norm2_shares)(S::narrow(g), xs, (kernels.norm2)(xs), out);
    }
    let scaling = Scaling::of(xs);
    let length = scaling.length(xs);
    let zero = S::Compute::lit(0.0);
    each(xs, out, |x| choose(scaling.top.equal(zero), zero, g * (scaling.apply(x) / length)));
}
