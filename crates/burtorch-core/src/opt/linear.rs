//! Terms that depend on a sample through one product a_i x: regression and classification by linear models.
//!
//! Promises: slopes of a group are computed together, in vectors; each row is read once for its products with both points and,
//! while it is in the first-level cache, once for its gradient. Does not know regularisers.

use super::rows::{Rows, check_finite};
use super::terms::{Samples, Terms};
use crate::error::{Error, Result};
use crate::kernels;
use crate::memory;
use crate::simd::slices;

/// The value as a function of the product z and the label b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// `log(1 + e^(-b z))`, with labels -1 and 1.
    Logistic,
    /// `(z - b)^2 / 2`.
    Squares,
    /// `log(1 + (z - b)^2 / 2)`: the Cauchy loss, which is not convex.
    Robust,
}

impl Loss {
    /// The largest absolute second derivative: 1/4, 1 and 1.
    pub fn curvature(self) -> f64 {
        if self == Loss::Logistic { 0.25 } else { 1.0 }
    }

    /// Replaces products by slopes; there are as many labels.
    fn slopes(self, z: &mut [f64], labels: &[f64], scratch: &mut [f64]) {
        match self {
            Loss::Logistic => {
                scratch.iter_mut().zip(&*z).zip(labels).for_each(|((s, z), b)| *s = -b * z);
                slices::sigmoid(scratch, z);
                z.iter_mut().zip(labels).for_each(|(z, b)| *z *= -b);
            }
            Loss::Squares => z.iter_mut().zip(labels).for_each(|(z, b)| *z -= b),
            Loss::Robust => z.iter_mut().zip(labels).for_each(|(z, b)| {
                let r = *z - b;
                let q = 1.0 + 0.5 * r * r;
                *z = if q == f64::INFINITY { 2.0 / r } else { r / q };
            }),
        }
    }

    /// Replaces products by values.
    fn values(self, z: &mut [f64], labels: &[f64], scratch: &mut [f64]) {
        let pairs = scratch.iter_mut().zip(&*z).zip(labels);
        match self {
            Loss::Logistic => {
                pairs.for_each(|((s, z), b)| *s = -b * z);
                slices::softplus(scratch, z);
            }
            Loss::Squares => {
                pairs.for_each(|((s, z), b)| *s = z - b);
                z.iter_mut().zip(&*scratch).for_each(|(z, r)| *z = 0.5 * r * r);
            }
            Loss::Robust => {
                // Where the square overflows, the negative of its root, whose logarithm is taken below.
                pairs.for_each(|((s, z), b)| {
                    let square = 0.5 * (z - b) * (z - b);
                    *s = if square == f64::INFINITY { -(z - b).abs() } else { square };
                });
                slices::log1p(scratch, z);
                for (z, s) in z.iter_mut().zip(&*scratch).filter(|(_, s)| **s < 0.0) {
                    let mut log = [0.0];
                    slices::log(&[-s], &mut log);
                    *z = 2.0 * log[0] - std::f64::consts::LN_2;
                }
            }
        }
    }
}

/// A linear model of samples with a number as label.
#[derive(Clone, Debug)]
pub struct Linear {
    rows: Rows,
    labels: Vec<f64>,
    loss: Loss,
}

impl Linear {
    /// Rows and a label for each: -1 or 1 for [`Loss::Logistic`].
    pub fn new(rows: Rows, labels: Vec<f64>, loss: Loss) -> Result<Self> {
        if labels.len() != rows.n() {
            return Err(Error::LengthMismatch { op: "a linear model", left: rows.n(), right: labels.len() });
        }
        check_finite(&labels, "labels")?;
        if let Some(b) = labels.iter().find(|&&b| loss == Loss::Logistic && b.abs() != 1.0) {
            let expected = "-1 or 1 for the logistic loss".into();
            return Err(Error::BadArgument { what: "labels", expected, found: b.to_string() });
        }
        Ok(Linear { rows, labels, loss })
    }

    /// Prefetches the data of the first samples.
    fn ask_for(&self, indices: &[u32]) {
        kernels::ask_for_rows(&self.labels, indices, 1);
        self.rows.ask_for(indices);
    }

    /// Prefetches the labels of samples after the first `ASKED`, as many as are being processed: they are as far apart
    /// as rows, and would be waited for separately.
    fn ask_for_labels(&self, rows: &[u32], n: usize) {
        let later = rows.get(ASKED..).unwrap_or_default();
        kernels::ask_for_rows(&self.labels, &later[..n.min(later.len())], 1);
    }

    fn read_labels(&self, indices: &[u32], to: &mut [f64]) {
        to.iter_mut().zip(indices).for_each(|(b, &i)| *b = self.labels[i as usize]);
    }
}

/// Samples whose values are computed together.
const GROUP: usize = 64;
/// The number of labels prefetched at the start.
const ASKED: usize = 64;

/// `n` numbers of scratch; reuses the memory if it is large enough.
pub(super) fn scratch_of(scratch: &mut Vec<f64>, n: usize) -> Result<&mut [f64]> {
    if scratch.len() < n {
        let missing = n - scratch.len();
        memory::reserve_in(scratch, missing, "products of samples")?;
        scratch.resize(n, 0.0);
    }
    Ok(&mut scratch[..n])
}

impl Terms for Linear {
    fn n(&self) -> usize {
        self.rows.n()
    }

    fn d(&self) -> usize {
        self.rows.d()
    }

    fn rows(&self) -> Option<&Rows> {
        Some(&self.rows)
    }

    fn labels(&self) -> Option<Vec<f64>> {
        Some(self.labels.clone())
    }

    fn ask_for_next(&self, samples: &[u32]) {
        kernels::ask_for_next_rows(&self.labels, samples, 1);
        self.rows.ask_for_next(samples);
    }

    fn loss(&self, x: &[f64], samples: Samples<'_>, scratch: &mut Vec<f64>) -> Result<f64> {
        let mut sum = 0.0;
        self.ask_for(samples.indices);
        for (group, rows) in samples.groups(GROUP) {
            let n = group.indices.len();
            self.ask_for_labels(rows, n);
            let (z, more) = scratch_of(scratch, 3 * n)?.split_at_mut(n);
            let (labels, more) = more.split_at_mut(n);
            self.rows.products(rows, x, z);
            self.read_labels(group.indices, labels);
            self.loss.values(z, labels, more);
            sum += group.weighted().zip(&*z).map(|((_, w), value)| w * value).sum::<f64>();
        }
        Ok(sum)
    }

    fn grad(
        &self,
        x: &[f64],
        minus: Option<&[f64]>,
        samples: Samples<'_>,
        scratch: &mut Vec<f64>,
        out: &mut [f64],
    ) -> Result<()> {
        self.ask_for(samples.indices);
        for (group, rows) in samples.groups(self.rows.group()) {
            let n = group.indices.len();
            self.ask_for_labels(rows, n);
            // With two points, the products of the second follow those of the first, so that slopes are computed in one
            // call.
            let both = if minus.is_some() { 2 * n } else { n };
            let all = scratch_of(scratch, 3 * both)?;
            let (z, more) = all.split_at_mut(both);
            let (labels, more) = more.split_at_mut(both);
            let (at_x, at_minus) = z.split_at_mut(n);
            match minus {
                Some(minus) => self.rows.products_at_two(rows, [x, minus], at_x, at_minus),
                None => self.rows.products(rows, x, at_x),
            }
            labels.chunks_exact_mut(n).for_each(|labels| self.read_labels(group.indices, labels));
            self.loss.slopes(z, labels, more);
            let (slopes, others) = z.split_at_mut(n);
            slopes.iter_mut().zip(&*others).for_each(|(z, y)| *z -= y);
            slopes.iter_mut().zip(group.weighted()).for_each(|(slope, (_, w))| *slope *= w);
            self.rows.add_all(group.indices, slopes, out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_rows_have_the_bits_of_single_ones() {
        let number = |k: usize| (k as f64 * 0.37).sin() * 10f64.powi(k as i32 % 5 - 2);
        for d in [1, 7, 33, 130] {
            let n = 150;
            let rows = Rows::dense((0..n * d).map(number).collect(), d).unwrap();
            let linear = Linear::new(rows, (0..n).map(number).collect(), Loss::Robust).unwrap();
            let x: Vec<f64> = (0..d).map(number).collect();
            let y: Vec<f64> = (0..d).map(|j| number(j + 3)).collect();
            for minus in [None, Some(&y[..])] {
                let indices: Vec<u32> = (5..140).collect();
                let (mut block, mut single, mut scratch) = (vec![0.0; d], vec![0.0; d], Vec::new());
                linear.grad(&x, minus, Samples::mean(&indices), &mut scratch, &mut block).unwrap();
                for i in &indices {
                    let one = Samples { scale: 1.0 / 135.0, ..Samples::mean(std::slice::from_ref(i)) };
                    linear.grad(&x, minus, one, &mut scratch, &mut single).unwrap();
                }
                assert_eq!(block, single);
            }
        }
    }
}
