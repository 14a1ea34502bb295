//! Softmax regression: the cross-entropy of linear scores of several classes.
//!
//! A point contains a row of weights for each class, in order. Does not know regularisers.

use super::linear::scratch_of;
use super::rows::Rows;
use super::terms::{Samples, Terms};
use crate::error::{Error, Result};
use crate::simd::slices;

/// Samples with one of several classes each.
#[derive(Clone, Debug)]
pub struct Softmax {
    rows: Rows,
    classes: Vec<u32>,
    n_classes: usize,
}

impl Softmax {
    /// Rows and the class of each, below `n_classes`, which is at least 2.
    pub fn new(rows: Rows, classes: Vec<u32>, n_classes: usize) -> Result<Self> {
        if classes.len() != rows.n() {
            return Err(Error::LengthMismatch { op: "softmax regression", left: rows.n(), right: classes.len() });
        }
        if n_classes < 2 {
            let found = n_classes.to_string();
            return Err(Error::BadArgument { what: "classes", expected: "at least 2".into(), found });
        }
        match classes.iter().find(|&&c| c as usize >= n_classes) {
            Some(&c) => Err(Error::OutOfRange { what: "class", found: c.into(), max: n_classes as u64 - 1 }),
            None => Ok(Softmax { rows, classes, n_classes }),
        }
    }

    /// The class probabilities of a sample, and its value.
    fn probabilities(&self, i: usize, x: &[f64], p: &mut [f64], scores: &mut [f64]) -> f64 {
        for (score, weights) in scores.iter_mut().zip(x.chunks_exact(self.rows.d())) {
            *score = self.rows.dot(i, weights);
        }
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        scores.iter_mut().for_each(|score| *score -= most);
        let own = scores[self.classes[i] as usize];
        slices::exp(scores, p);
        let mut sum = [p.iter().sum::<f64>()];
        p.iter_mut().for_each(|p| *p /= sum[0]);
        slices::log(&sum.clone(), &mut sum);
        sum[0] - own
    }
}

impl Terms for Softmax {
    fn n(&self) -> usize {
        self.rows.n()
    }

    fn d(&self) -> usize {
        self.rows.d() * self.n_classes
    }

    fn rows(&self) -> Option<&Rows> {
        Some(&self.rows)
    }

    fn labels(&self) -> Option<Vec<f64>> {
        Some(self.classes.iter().map(|&class| class.into()).collect())
    }

    fn ask_for_next(&self, samples: &[u32]) {
        self.rows.ask_for_next(samples);
    }

    fn loss(&self, x: &[f64], samples: Samples<'_>, scratch: &mut Vec<f64>) -> Result<f64> {
        let (p, scores) = scratch_of(scratch, 2 * self.n_classes)?.split_at_mut(self.n_classes);
        Ok(samples.weighted().map(|(i, w)| w * self.probabilities(i, x, p, scores)).sum())
    }

    fn grad(
        &self,
        x: &[f64],
        minus: Option<&[f64]>,
        samples: Samples<'_>,
        scratch: &mut Vec<f64>,
        out: &mut [f64],
    ) -> Result<()> {
        let n = self.n_classes;
        let (p, more) = scratch_of(scratch, 3 * n)?.split_at_mut(n);
        let (q, scores) = more.split_at_mut(n);
        for (i, w) in samples.weighted() {
            self.probabilities(i, x, p, scores);
            match minus {
                Some(minus) => {
                    self.probabilities(i, minus, q, scores);
                    p.iter_mut().zip(&*q).for_each(|(p, q)| *p -= q);
                }
                None => p[self.classes[i] as usize] -= 1.0,
            }
            for (&slope, out) in p.iter().zip(out.chunks_exact_mut(self.rows.d())) {
                self.rows.add(i, w * slope, out);
            }
        }
        Ok(())
    }
}
