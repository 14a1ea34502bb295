//! Means, variances, softmax and its relatives, normalisation and attention, as methods of the builder.
//!
//! Promises: functions composed of others have their order of operations: `mean` is a sum over a count. Does not know
//! derivatives.

use super::build::ArrayBuilder;
use super::dims::{Axes, bad};
use super::instr::{Comparison, Element, Reduce, Slice, ValueId};
use crate::error::{Error, Result};
use crate::ops::Op;

impl ArrayBuilder {
    /// The mean over axes.
    pub fn mean(&mut self, x: ValueId, axes: Option<&[isize]>, keepdims: bool) -> Result<ValueId> {
        self.whole(|b| {
            let x = b.convert(x, Element::Float)?;
            let count = b.count(x, axes)?;
            let sum = b.reduce(Reduce::Sum, x, axes, keepdims)?;
            b.row_with(Op::DivByConstant, sum, count as f64)
        })
    }

    /// How many numbers a reduction over axes makes one of.
    fn count(&self, x: ValueId, axes: Option<&[isize]>) -> Result<usize> {
        Ok(Axes::of(&self.dims(x), axes)?.iter().map(|axis| self.dims(x)[axis]).product())
    }

    /// The distances from the mean over axes. Measured from the first number of each row, so that those of equal numbers
    /// are exactly 0 and large offsets cost no digits.
    fn centred(&mut self, x: ValueId, axes: Option<&[isize]>) -> Result<ValueId> {
        let mut x = self.convert(x, Element::Float)?;
        if self.count(x, axes)? > 0 {
            let (dims, axes) = (self.dims(x), Axes::of(&self.dims(x), axes)?);
            let slices: Vec<_> = (0..dims.rank())
                .map(|axis| Slice { start: 0, step: 1, count: if axes.has(axis) { 1 } else { dims[axis] } })
                .collect();
            let origin = self.slice(x, &slices)?;
            x = self.row(Op::Sub, &[x, origin])?;
        }
        let mean = self.mean(x, axes, true)?;
        self.row(Op::Sub, &[x, mean])
    }

    /// The sum of squares over a divisor.
    fn square_share(&mut self, x: ValueId, axes: Option<&[isize]>, divisor: f64, keepdims: bool) -> Result<ValueId> {
        let square = self.row(Op::Sqr, &[x])?;
        let sum = self.reduce(Reduce::Sum, square, axes, keepdims)?;
        self.row_with(Op::DivByConstant, sum, divisor)
    }

    /// The variance over axes, of `count - ddof` degrees of freedom, in two passes.
    pub fn var(&mut self, x: ValueId, axes: Option<&[isize]>, ddof: f64, keepdims: bool) -> Result<ValueId> {
        self.whole(|b| {
            b.check(x)?;
            let distance = b.centred(x, axes)?;
            // As in NumPy, too few numbers leave nothing to divide by.
            let divisor = (b.count(x, axes)? as f64 - ddof).max(0.0);
            b.square_share(distance, axes, divisor, keepdims)
        })
    }

    /// The standard deviation: the square root of the variance.
    pub fn std(&mut self, x: ValueId, axes: Option<&[isize]>, ddof: f64, keepdims: bool) -> Result<ValueId> {
        self.whole(|b| {
            let var = b.var(x, axes, ddof, keepdims)?;
            b.row(Op::Sqrt, &[var])
        })
    }

    /// Quantiles along an axis, along a new first axis: for `q` from 0 to 1 the weighted mean of the two sorted elements around
    /// place `q (n - 1)`. NaN where a row holds one.
    pub fn quantiles(&mut self, x: ValueId, q: &[f64], axis: isize) -> Result<ValueId> {
        self.whole(|b| {
            let (x, last, n) = b.sorted_first(x, axis, "quantile")?;
            let has_nan = b.compare(Comparison::IsNan, &[last])?;
            let mut found = Vec::with_capacity(q.len());
            for &q in q {
                if !(0.0..=1.0).contains(&q) {
                    return Err(bad("q", "from 0 to 1".into(), q.to_string()));
                }
                let place = q * (n - 1) as f64;
                let (below, share) = (place.floor() as usize, place - place.floor());
                let low = b.index(x, below)?;
                let quantile = if share == 0.0 {
                    low
                } else {
                    let high = b.index(x, below + 1)?;
                    let step = b.row(Op::Sub, &[high, low])?;
                    // From the nearer one.
                    let (from, op, part) =
                        if share < 0.5 { (low, Op::Add, share) } else { (high, Op::Sub, 1.0 - share) };
                    let step = b.row_with(Op::MulByConstant, step, part)?;
                    b.row(op, &[from, step])?
                };
                found.push(b.where_(has_nan, last, quantile)?);
            }
            b.stack(&found, 0)
        })
    }

    /// The median along an axis: the middle one of the sorted elements, or the mean of the two in the middle. NaN where a row
    /// holds one.
    pub fn median(&mut self, x: ValueId, axis: isize) -> Result<ValueId> {
        self.whole(|b| {
            let (x, last, n) = b.sorted_first(x, axis, "median")?;
            let mut middle = b.index(x, n / 2)?;
            if n % 2 == 0 {
                let low = b.index(x, n / 2 - 1)?;
                let sum = b.row(Op::Add, &[low, middle])?;
                middle = b.row_with(Op::DivByConstant, sum, 2.0)?;
            }
            let has_nan = b.compare(Comparison::IsNan, &[last])?;
            b.where_(has_nan, last, middle)
        })
    }

    /// The elements sorted along an axis, which comes first; the last of each row, which is NaN if one of them is; how many.
    fn sorted_first(&mut self, x: ValueId, axis: isize, op: &'static str) -> Result<(ValueId, ValueId, usize)> {
        let x = self.convert(x, Element::Float)?;
        let axis = self.dims(x).axis(axis)?;
        let n = self.dims(x)[axis];
        if n == 0 {
            return Err(Error::EmptyReduction { op });
        }
        let sorted = self.sort(x, axis as isize)?;
        let axes: Vec<_> = [axis].into_iter().chain((0..self.dims(x).rank()).filter(|&k| k != axis)).collect();
        let sorted = self.transpose(sorted, &axes)?;
        Ok((sorted, self.index(sorted, n - 1)?, n))
    }

    /// The logarithm of softmax along an axis, exact also where that is near 0 or 1.
    pub fn log_softmax(&mut self, x: ValueId, axis: isize) -> Result<ValueId> {
        self.whole(|b| {
            let total = b.reduce(Reduce::LogSumExp, x, Some(&[axis]), true)?;
            b.row(Op::Sub, &[x, total])
        })
    }

    /// Exponentials over their sum along an axis, shifted by the largest.
    pub fn softmax(&mut self, x: ValueId, axis: isize) -> Result<ValueId> {
        self.whole(|b| {
            let below = b.log_softmax(x, axis)?;
            b.row(Op::Exp, &[below])
        })
    }

    /// For each row along the last axis of `logits`, minus the logarithm of the softmax at the class that `targets` names.
    pub fn softmax_cross_entropy(&mut self, logits: ValueId, targets: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            b.check(targets)?;
            let logits = b.convert(logits, Element::Float)?;
            let (of, classes) = (b.dims(logits), b.dims(targets));
            if of.rank() == 0 || of[..of.rank() - 1] != classes[..] {
                let expected = format!("that of the logits, {of}, without the last axis");
                return Err(bad("shape of the targets", expected, classes.to_string()));
            }
            let total = b.reduce(Reduce::LogSumExp, logits, Some(&[-1]), false)?;
            let targets = b.reshape(targets, &[&classes[..], &[1]].concat())?;
            let targets = b.from_zero(targets)?;
            let chosen = b.take_along_axis(logits, targets, -1)?;
            let chosen = b.reshape(chosen, &classes)?;
            b.row(Op::Sub, &[total, chosen])
        })
    }

    /// `(x - mean) / sqrt(variance + epsilon)` over axes.
    pub fn layer_norm(&mut self, x: ValueId, axes: Option<&[isize]>, epsilon: f64) -> Result<ValueId> {
        self.whole(|b| {
            b.check(x)?;
            let distance = b.centred(x, axes)?;
            b.over_root(distance, distance, axes, epsilon)
        })
    }

    /// `x / sqrt(mean of x^2 + epsilon)` over axes.
    pub fn rms_norm(&mut self, x: ValueId, axes: Option<&[isize]>, epsilon: f64) -> Result<ValueId> {
        self.whole(|b| {
            let x = b.convert(x, Element::Float)?;
            b.over_root(x, x, axes, epsilon)
        })
    }

    fn over_root(&mut self, x: ValueId, of: ValueId, axes: Option<&[isize]>, epsilon: f64) -> Result<ValueId> {
        let count = self.count(of, axes)?;
        let square = self.square_share(of, axes, count as f64, true)?;
        let square = self.row_with(Op::AddConstant, square, epsilon)?;
        let root = self.row(Op::Sqrt, &[square])?;
        self.row(Op::Div, &[x, root])
    }

    /// `softmax(q k^T / sqrt(d)) v` over the last two axes, with leading axes that broadcast. Where the mask, which broadcasts
    /// to the scores, does not hold, a query does not look at a key.
    pub fn attention(&mut self, q: ValueId, k: ValueId, v: ValueId, mask: Option<ValueId>) -> Result<ValueId> {
        self.whole(|b| {
            for operand in [q, k, v] {
                b.check(operand)?;
                let dims = b.dims(operand);
                if dims.rank() < 2 {
                    return Err(bad("operands of attention", "arrays of two axes or more".into(), dims.to_string()));
                }
            }
            let rank = b.dims(k).rank();
            let mut axes: Vec<_> = (0..rank).collect();
            axes.swap(rank - 2, rank - 1);
            let width = b.dims(q)[b.dims(q).rank() - 1];
            let k = b.transpose(k, &axes)?;
            let mut scores = b.matmul(q, k)?;
            scores = b.row_with(Op::MulByConstant, scores, 1.0 / (width as f64).sqrt())?;
            if let Some(mask) = mask {
                let never = b.literal(f64::NEG_INFINITY)?;
                scores = b.where_(mask, scores, never)?;
            }
            let shares = b.softmax(scores, -1)?;
            b.matmul(shares, v)
        })
    }
}
