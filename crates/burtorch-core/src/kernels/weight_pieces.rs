//! The weight gradient of a dense layer for parts of the weights: whole rows, parts of rows, single weights.
//!
//! Promises: each number has the bits of the whole gradient. Cost: that of the requested numbers, and some nanoseconds for each
//! part; with lanes, a call of the kernel for each.
#![allow(unsafe_code)]

use std::ops::Range;

use super::affine::weight_grad_step;
use super::float::KernelFloat;
use super::levels::{Target, columns, leveled};
use super::{Mode, Working};
use crate::scalar::Scalar;
use crate::simd::{Real, Simd, SimdFloat, SimdUint, array_of};
use crate::sync::stop::Pace;

/// Weights with partly requested gradients.
#[derive(Clone, Debug)]
pub struct WeightParts<'a> {
    /// The weights among the parameters.
    pub weights: Range<usize>,
    /// The ranges not requested, ascending: every range overlaps the weights.
    pub skipped: &'a [Range<u32>],
}

impl WeightParts<'_> {
    /// The requested parts: the start of each among the weights, the start of its gradient (in memory for all weights
    /// or, if `compact`, only for the requested ones), and its length.
    #[inline(always)]
    fn each(&self, compact: bool) -> Each<'_> {
        Each { parts: self, compact, next: 0, at: self.weights.start, before: 0 }
    }
}

/// See [`WeightParts::each`]. An iterator, because a closure would not be compiled with the level's instructions.
struct Each<'a> {
    parts: &'a WeightParts<'a>,
    compact: bool,
    /// The first skipped range that has not been passed.
    next: usize,
    at: usize,
    /// Skipped weights so far, if gradients are compact.
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

/// Single weights computed together.
const TOGETHER: usize = 8;

impl Each<'_> {
    /// Passes the next parts, if each of them is a single weight: returns the index of the first one's gradient, and
    /// the rows and columns of all in a matrix of `n_in` columns. Gradients are contiguous. Otherwise returns the
    /// number of parts before the next attempt is worthwhile.
    #[inline(always)]
    fn singles(&mut self, n_in: usize) -> Result<(usize, [[u32; TOGETHER]; 2]), usize> {
        let Some(gaps) = self.parts.skipped.get(self.next..).and_then(|gaps| gaps.first_chunk::<TOGETHER>()) else {
            return Err(usize::MAX);
        };
        let mut behind = [0; TOGETHER];
        let (mut before, mut others) = (self.at as u32, 0u32);
        for (k, gap) in gaps.iter().enumerate() {
            behind[k] = gap.start;
            others |= u32::from(gap.start.wrapping_sub(before) != 1) << k;
            before = gap.end;
        }
        if others != 0 {
            return Err(TOGETHER - (others << (32 - TOGETHER)).leading_zeros() as usize);
        }
        let to = self.at - self.parts.weights.start - self.before;
        self.next += TOGETHER;
        self.before += before as usize - self.at - TOGETHER;
        self.at = before as usize;
        let at = Simd::from_array(behind) - Simd::splat(self.parts.weights.start as u32 + 1);
        // Adding one half keeps the quotient at least 1 / 2 n_in away from an integer, which float64 distinguishes.
        let row = (at.cast::<f64>() + Simd::splat(0.5)) * Simd::splat(1.0 / n_in as f64);
        // SAFETY: there are fewer rows than weights, whose indices have 32 bits.
        let row = unsafe { row.to_int_unchecked::<u32>() };
        Ok((to, [row.to_array(), (at - row * Simd::splat(n_in as u32)).to_array()]))
    }
}

/// One weight: its row and column, and where its gradient goes.
#[derive(Clone, Copy, Debug)]
pub struct OneWeight {
    /// Its output.
    pub row: u32,
    /// Its input.
    pub column: u32,
    /// Where its gradient goes.
    pub to: u32,
}

leveled! {
    /// The requested parts of `dy x^T`, set or added to `out`, which holds a number for each weight, or for each
    /// requested one.
    pub fn affine_weight_grad_parts<E>(dy: &[E], x: &[E], parts: &WeightParts<'_>, out: &mut [E], mode: Mode) = parts_at;

    /// The gradients of single weights over lane groups, as `affine_weight_grad_lanes` takes them, set or added.
    pub fn affine_weight_grad_ones_lanes<E, const L>(
        dy: &[&[E]],
        x: &[&[E]],
        weights: &[OneWeight],
        out: &mut [E],
        mode: Mode,
    ) = ones_at;
}

/// The weight of a single weight in a `Pace`: some nanoseconds.
const ONE: usize = 8 * Pace::FROM_MEMORY;

#[inline(always)]
fn parts_at<E: KernelFloat, T: Target>(dy: &[E], x: &[E], parts: &WeightParts<'_>, out: &mut [E], mode: Mode) {
    match mode {
        Mode::Set => parts_as::<E, T, true>(dy, x, parts, out),
        Mode::Add => parts_as::<E, T, false>(dy, x, parts, out),
    }
}

#[inline(always)]
fn parts_as<E: KernelFloat, T: Target, const SET: bool>(dy: &[E], x: &[E], parts: &WeightParts<'_>, out: &mut [E]) {
    let n_in = x.len();
    assert_eq!(parts.weights.len(), dy.len() * n_in, "a weight matrix must hold n_out x n_in numbers");
    let mut pace = Pace::new();
    let compact = out.len() < parts.weights.len();
    let (mut each, mut one_by_one) = (parts.each(compact), if compact { 0 } else { usize::MAX });
    loop {
        if one_by_one == 0 {
            match each.singles(n_in) {
                Ok((to, places)) if pace.goes_on(TOGETHER * ONE) => {
                    singles_step::<E, T, SET>(dy, x, &places, &mut out[to..]);
                    continue;
                }
                Ok(_) => return,
                Err(n) => one_by_one = n,
            }
        }
        one_by_one -= 1;
        let Some((at, mut to, mut n)) = each.next() else { return };
        let mut row = (at as u32 / n_in as u32) as usize;
        let mut first = at - row * n_in;
        if n == 1 {
            if !pace.goes_on(ONE) {
                return;
            }
            let before = E::V::<1>::splat(if SET { E::default() } else { out[to] });
            out[to] = T::mul_add(E::V::<1>::splat(dy[row]), E::V::<1>::splat(x[first]), before).lane(0);
            n = 0;
        }
        while n > 0 {
            let len = n.min(n_in - first);
            if !pace.goes_on(len * Pace::FROM_MEMORY) {
                return;
            }
            let (factor, x, out) = (dy[row], &x[first..first + len], &mut out[to..to + len]);
            columns!(E, len, weight_grad_step[T, SET](factor, x, out));
            (row, first, to, n) = (row + 1, 0, to + len, n - len);
        }
    }
}

/// Single weights with contiguous gradients.
#[inline(always)]
fn singles_step<E: KernelFloat, T: Target, const SET: bool>(
    dy: &[E],
    x: &[E],
    [rows, columns]: &[[u32; TOGETHER]; 2],
    out: &mut [E],
) {
    let (mut factors, mut inputs) = ([E::default(); TOGETHER], [E::default(); TOGETHER]);
    for k in 0..TOGETHER {
        (factors[k], inputs[k]) = (dy[rows[k] as usize], x[columns[k] as usize]);
    }
    let out = &mut out[..TOGETHER];
    let before = if SET { E::V::<TOGETHER>::splat(E::default()) } else { E::V::<TOGETHER>::load(out) };
    T::mul_add(E::V::<TOGETHER>::load(&factors), E::V::<TOGETHER>::load(&inputs), before).store(out);
}

/// Weights whose sums run side by side.
const SIDE: usize = 8;

/// Simply: for each weight, the sum over samples of `dy[row] x[column]`, in order. Departure: 8 weights at once,
/// because each product of a sum waits for the previous one.
#[inline(always)]
fn ones_at<E: KernelFloat, T: Target, const L: usize>(
    dy: &[&[E]],
    x: &[&[E]],
    weights: &[OneWeight],
    out: &mut [E],
    mode: Mode,
) {
    let (together, rest) = weights.as_chunks::<SIDE>();
    together.iter().for_each(|weights| chains::<E, T, L, SIDE>(dy, x, weights, out, mode));
    rest.iter().for_each(|&weight| chains::<E, T, L, 1>(dy, x, &[weight], out, mode));
}

#[inline(always)]
fn chains<E: KernelFloat, T: Target, const L: usize, const N: usize>(
    dy: &[&[E]],
    x: &[&[E]],
    weights: &[OneWeight; N],
    out: &mut [E],
    mode: Mode,
) {
    let mut sums: [E::V<1>; N] =
        array_of(|k| E::V::<1>::splat(if mode == Mode::Set { E::default() } else { out[weights[k].to as usize] }));
    for (dy, x) in dy.iter().zip(x) {
        let rows: [&[E]; N] = array_of(|k| &dy[weights[k].row as usize * L..][..L]);
        let columns: [&[E]; N] = array_of(|k| &x[weights[k].column as usize * L..][..L]);
        for l in 0..L {
            for k in 0..N {
                sums[k] = T::mul_add(E::V::<1>::splat(rows[k][l]), E::V::<1>::splat(columns[k][l]), sums[k]);
            }
        }
    }
    for k in 0..N {
        out[weights[k].to as usize] = sums[k].lane(0);
    }
}

/// Groups of samples at most.
pub(super) const MAX_GROUPS: usize = 32;

/// See `BlockMath::affine_weight_grad`.
type WeightGrad<S> =
    fn(&[&[S]], &[&[S]], &mut [<S as Scalar>::Elem], Option<&mut [<S as Scalar>::Elem]>, Mode, Working<'_, S>);

/// See `BlockMath::affine_weight_grad_ones`.
type Ones<S> = fn(&[&[S]], &[&[S]], &[OneWeight], &mut [<S as Scalar>::Elem], Mode);

/// The same by a kernel for whole matrices, over several groups of samples, and one for single weights: `dy[g]` belongs
/// to `x[g]`.
pub(super) fn weight_grad_parts_by<S: Scalar>(
    (kernel, ones): (WeightGrad<S>, Ones<S>),
    (dy, x): (&[&[S]], &[&[S]]),
    parts: &WeightParts<'_>,
    (out, mode): (&mut [S::Elem], Mode),
    panel: &mut [S],
) {
    let n_in = x[0].len();
    let mut alone = [OneWeight { row: 0, column: 0, to: 0 }; 8 * SIDE];
    let mut n_alone = 0;
    for (mut at, mut to, mut n) in parts.each(out.len() < parts.weights.len()) {
        while n > 0 {
            let (row, from) = (at / n_in, at % n_in);
            // As many whole rows as possible, or the rest of the current row.
            let rows = if from == 0 { (n / n_in).max(1) } else { 1 };
            let len = n.min(rows * n_in - from);
            if len == 1 {
                alone[n_alone] = OneWeight { row: row as u32, column: from as u32, to: to as u32 };
                n_alone += 1;
                if n_alone == alone.len() {
                    ones(dy, x, &alone, out, mode);
                    n_alone = 0;
                }
            } else {
                let columns = from..from + len / rows;
                sliced(dy, row..row + rows, |dy| {
                    sliced(x, columns, |x| kernel(dy, x, &mut out[to..to + len], None, mode, Working::alone(panel)));
                });
            }
            (at, to, n) = (at + len, to + len, n - len);
        }
    }
    ones(dy, x, &alone[..n_alone], out, mode);
}

/// Single weights, by the kernel for whole matrices.
pub(super) fn weight_grad_ones_by<S: Scalar>(
    kernel: WeightGrad<S>,
    (dy, x): (&[&[S]], &[&[S]]),
    weights: &[OneWeight],
    (out, mode): (&mut [S::Elem], Mode),
    panel: &mut [S],
) {
    for weight in weights {
        let [row, column, to] = [weight.row, weight.column, weight.to].map(|k| k as usize);
        sliced(dy, row..row + 1, |dy| {
            sliced(x, column..column + 1, |x| {
                kernel(dy, x, &mut out[to..to + 1], None, mode, Working::alone(panel));
            });
        });
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

/// Calls `f` with a part of each list.
fn sliced<S>(lists: &[&[S]], part: Range<usize>, f: impl FnOnce(&[&[S]])) {
    let mut parts: [&[S]; MAX_GROUPS] = [&[]; MAX_GROUPS];
    for (to, list) in parts.iter_mut().zip(lists) {
        *to = &list[part.clone()];
    }
    f(&parts[..lists.len()]);
}
