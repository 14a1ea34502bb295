//! Synthetic problems with a chosen condition number.

use super::csr::Csr;
use super::libsvm::Dataset;
use crate::draw::{Draw, Purpose};
use crate::error::{Error, Result};
use crate::interrupt::Work;
use crate::memory::{filled, list_for};

/// The kind of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Least squares: the label is the features times weights, plus noise.
    Linear,
    /// Logistic regression: the label is 1 with the model's probability, otherwise -1.
    Logistic,
}

/// The options of a synthetic problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyntheticOptions {
    /// Samples.
    pub n_samples: usize,
    /// Features.
    pub n_features: usize,
    /// The largest eigenvalue of the covariance of a row over the least.
    pub condition: f64,
    /// The probability that an entry is not 0.
    pub density: f64,
    /// The standard deviation of noise on labels of [`Target::Linear`].
    pub noise: f64,
    /// Decides all.
    pub seed: u64,
}

const WHAT: &str = "synthetic data";

/// Draws samples: rows with independent normal entries, whose variances fall geometrically from 1 to 1/condition over the
/// features; entries are kept with a probability of `density` and divided by its root, so that the covariance stays. Weights
/// are normal, and such that the label's signal has variance 1. Row k depends on the seed and k alone.
pub fn synthetic(target: Target, options: SyntheticOptions) -> Result<Dataset> {
    let SyntheticOptions { n_samples, n_features, condition, density, noise, seed } = options;
    let refuse = |what, expected: &str, found: f64| {
        Err(Error::BadArgument { what, expected: expected.into(), found: found.to_string() })
    };
    if n_samples == 0 || n_features == 0 || u32::try_from(n_features).is_err() {
        return refuse("the number of samples and of features", "1 to 2^32 - 1", n_samples.min(n_features) as f64);
    }
    if !(condition >= 1.0 && condition.is_finite()) {
        return refuse("the condition", "at least 1 and finite", condition);
    }
    if !(density > 0.0 && density <= 1.0) {
        return refuse("the density", "above 0 and at most 1", density);
    }
    if !(noise >= 0.0 && noise.is_finite()) {
        return refuse("the noise", "at least 0 and finite", noise);
    }
    let mut scales = list_for(n_features, WHAT)?;
    let last = (n_features - 1).max(1) as f64;
    scales.extend((0..n_features).map(|j| condition.powf(-0.5 * j as f64 / last)));
    let mut weights = filled(0.0, n_features, WHAT)?;
    let mut draw = Draw::new(seed, 0, 0, Purpose::Data);
    weights.iter_mut().for_each(|w| *w = draw.normal());
    let signal = weights.iter().zip(&scales).map(|(w, scale)| (w * scale).powi(2)).sum::<f64>().sqrt();
    let mut samples = Dataset { features: Csr::new(n_features)?, labels: list_for(n_samples, WHAT)? };
    let mut work = Work::default();
    for row in 0..n_samples {
        let mut draw = Draw::new(seed, 1 + row as u64, 0, Purpose::Data);
        let mut product = 0.0;
        for (j, (scale, weight)) in scales.iter().zip(&weights).enumerate() {
            work.add(16)?;
            if density == 1.0 || draw.happens(density) {
                let x = draw.normal() * scale / density.sqrt();
                product += x * weight / signal;
                samples.features.push(j as u32, x)?;
            }
        }
        samples.features.end_row()?;
        samples.labels.push(match target {
            Target::Linear => product + noise * draw.normal(),
            Target::Logistic => {
                if draw.happens(1.0 / (1.0 + (-product).exp())) {
                    1.0
                } else {
                    -1.0
                }
            }
        });
    }
    Ok(samples)
}
