//! The weight gradient of a dense layer where parts of the weights are asked for: whole rows, parts of rows, single weights.
//!
//! Promises: each number has the bits that the whole gradient would have there. Cost: of what is asked for, and some
//! nanoseconds for each part; with lanes, a call of the kernel for each.

use std::ops::Range;

use super::affine::weight_grad_step;
use super::float::KernelFloat;
use super::levels::{Target, columns, leveled};
use super::{Mode, Working};
use crate::scalar::Scalar;
use crate::sync::stop::Pace;

/// Weights of which parts are asked for.
#[derive(Clone, Debug)]
pub struct WeightParts<'a> {
    /// The weights among the parameters.
    pub weights: Range<usize>,
    /// What is not asked for, ascending: every range overlaps the weights.
    pub skipped: &'a [Range<u32>],
}

impl WeightParts<'_> {
    /// The parts that are asked for: where each begins among the weights, where its gradient begins, in memory for all weights
    /// or, if `compact`, for those that are asked for, and how many weights it has.
    #[inline(always)]
    fn each(&self, compact: bool) -> Each<'_> {
        Each { parts: self, compact, next: 0, at: self.weights.start, before: 0 }
    }
}

/// See [`WeightParts::each`]. An iterator, as code in a closure would not be compiled for the level of the kernel.
struct Each<'a> {
    parts: &'a WeightParts<'a>,
    compact: bool,
    /// The first skipped range that has not been passed.
    next: usize,
    at: usize,
    /// Skipped weights before, if gradients lie side by side.
    before: usize,
}

impl Iterator for Each<'_> {
    type Item = (usize, usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let Range { start, end } = self.parts.weights;
        while self.at < end {
            let (at, before) = (self.at, self.before);
            let (stop, go_on) = match self.parts.skipped.get(self.next) {
                Some(gap) => (at.max(gap.start as usize), end.min(gap.end as usize)),
                None => (end, end),
            };
            self.next += 1;
            self.before += if self.compact { go_on - stop } else { 0 };
            self.at = go_on;
            if at < stop {
                return Some((at - start, at - start - before, stop - at));
            }
        }
        None
    }
}

leveled! {
    /// Adds the parts of `dy x^T` that are asked for to `out`, which holds a number for each weight, or for each that is asked
    /// for.
    pub fn affine_weight_grad_parts<E>(dy: &[E], x: &[E], parts: &WeightParts<'_>, out: &mut [E]) = parts_at;
}

#[inline(always)]
fn parts_at<E: KernelFloat, T: Target>(dy: &[E], x: &[E], parts: &WeightParts<'_>, out: &mut [E]) {
    let n_in = x.len();
    assert_eq!(parts.weights.len(), dy.len() * n_in, "a weight matrix must hold n_out x n_in numbers");
    let (mut row, mut row_end, mut pace) = (0, n_in, Pace::new());
    for (mut at, mut to, mut n) in parts.each(out.len() < parts.weights.len()) {
        while n > 0 {
            if at >= row_end {
                row = (at as u32 / n_in as u32) as usize;
                row_end = (row + 1) * n_in;
            }
            let len = n.min(row_end - at);
            if !pace.goes_on(len * Pace::FROM_MEMORY) {
                return;
            }
            let first = at + n_in - row_end;
            let (factor, x, out) = (dy[row], &x[first..first + len], &mut out[to..to + len]);
            columns!(E, len, weight_grad_step[T, false](factor, x, out));
            (at, to, n) = (at + len, to + len, n - len);
        }
    }
}

/// Groups of samples at most.
pub(super) const MAX_GROUPS: usize = 32;

/// See `BlockMath::affine_weight_grad`.
type WeightGrad<S> =
    fn(&[&[S]], &[&[S]], &mut [<S as Scalar>::Elem], Option<&mut [<S as Scalar>::Elem]>, Mode, Working<'_, S>);

/// The same by a kernel for whole matrices, of several groups of samples: `dy[g]` and `x[g]` belong together.
pub(super) fn weight_grad_parts_by<S: Scalar>(
    kernel: WeightGrad<S>,
    (dy, x): (&[&[S]], &[&[S]]),
    parts: &WeightParts<'_>,
    out: &mut [S::Elem],
    panel: &mut [S],
) {
    let n_in = x[0].len();
    for (mut at, mut to, mut n) in parts.each(out.len() < parts.weights.len()) {
        while n > 0 {
            let (row, from) = (at / n_in, at % n_in);
            // As many whole rows as there are, or what is left of this one.
            let rows = if from == 0 { (n / n_in).max(1) } else { 1 };
            let len = n.min(rows * n_in - from);
            let columns = from..from + len / rows;
            sliced(dy, row..row + rows, |dy| {
                sliced(x, columns, |x| kernel(dy, x, &mut out[to..to + len], None, Mode::Add, Working::alone(panel)));
            });
            (at, to, n) = (at + len, to + len, n - len);
        }
    }
}

/// Adds `dy`, summed over all samples, for the outputs of a range.
pub(super) fn bias_grad_part_by<S: Scalar>(
    kernel: WeightGrad<S>,
    dy: &[&[S]],
    outputs: Range<usize>,
    out: &mut [S::Elem],
    panel: &mut [S],
) {
    let none: [&[S]; MAX_GROUPS] = [&[]; MAX_GROUPS];
    sliced(dy, outputs, |dy| kernel(dy, &none[..dy.len()], &mut [], Some(out), Mode::Add, Working::alone(panel)));
}

/// Runs `f` with a part of each list.
fn sliced<S>(lists: &[&[S]], part: Range<usize>, f: impl FnOnce(&[&[S]])) {
    let mut parts: [&[S]; MAX_GROUPS] = [&[]; MAX_GROUPS];
    for (to, list) in parts.iter_mut().zip(lists) {
        *to = &list[part.clone()];
    }
    f(&parts[..lists.len()]);
}
