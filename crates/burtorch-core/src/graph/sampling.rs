//! Randomly sampled inputs of dense layers for weight gradients.
//!
//! Promises: a sweep requests the inputs once for each application of a layer whose weights receive a gradient. Does not know
//! how they are drawn.

use std::ops::Range;

use crate::params::Skipped;
use crate::scalar::{Float, Scalar};

/// A dense layer in a sweep.
pub(crate) struct Application<'a, S> {
    /// The first output.
    pub(crate) node: u32,
    /// Neighbouring tokens in a group; 1 without tokens.
    pub(crate) along: usize,
    pub(crate) n_in: usize,
    /// Inputs, group by group, and the adjoints of the outputs.
    pub(crate) x: &'a [S],
    pub(crate) dy: &'a [S],
    /// Outputs, if those at or below 0 propagate nothing.
    pub(crate) cut: Option<&'a [S]>,
    pub(crate) weights: Range<usize>,
    pub(crate) skipped: Skipped<'a>,
}

/// Chooses inputs.
pub(crate) trait InputSampler<S: Scalar> {
    /// Begins a list.
    fn begin(&mut self);
    /// Samples the inputs of a layer and adds them to the list: omitted ones as 0.
    fn add(&mut self, layer: Application<'_, S>);
    /// The list.
    fn sampled(&self) -> &[S];
}

impl<S: Scalar> Application<'_, S> {
    /// The sum of squares of the weight gradients of each sample and token: `sum (dy_i x_j)^2` over the requested
    /// weights.
    pub(crate) fn sum_squares(&self) -> f64 {
        let Application { along, n_in, x, dy, cut, ref weights, skipped, .. } = *self;
        let n_out = weights.len() / n_in;
        let square = |x: S::Elem| x.to_f64() * x.to_f64();
        let mut sum = 0.0;
        for place in 0..x.len() / n_in {
            let (group, token) = (place / along, place % along);
            let output = |i: usize| (group * n_out + i) * along + token;
            for lane in 0..S::LANES {
                let input = |j: usize| square(x[(group * n_in + j) * along + token].lane(lane));
                let adjoint = |i: usize| match cut {
                    Some(y) if y[output(i)].lane(lane).to_f64() <= 0.0 => 0.0,
                    _ => square(dy[output(i)].lane(lane)),
                };
                if skipped.leaves_all(weights.clone()) {
                    sum += (0..n_in).map(input).sum::<f64>() * (0..n_out).map(adjoint).sum::<f64>();
                } else {
                    let asked = skipped.pieces(weights.clone()).flat_map(|(_, piece)| piece);
                    let of_weight = |k: usize| adjoint((k - weights.start) / n_in) * input((k - weights.start) % n_in);
                    sum += asked.map(of_weight).sum::<f64>();
                }
            }
        }
        sum
    }
}
