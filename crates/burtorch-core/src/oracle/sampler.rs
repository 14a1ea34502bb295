//! The sampled inputs of dense layers.
//!
//! Promises: the sample is a function of the draw, the batch's sample and the layer, identified by its first weight. Does not
//! know how weight gradients are computed.

use crate::draw::Draw;
use crate::error::Result;
use crate::graph::{Application, InputSampler, NodeId};
use crate::scalar::{Float, Scalar};

/// What a pass keeps, and what comes of it.
#[derive(Clone, Debug)]
pub(super) struct Random<'d> {
    p: f64,
    draw: Draw<'d>,
    /// The variance of the gradient so far.
    pub(super) variance: f64,
    /// Whether enough numbers were given.
    outcome: Result<()>,
}

impl<'d> Random<'d> {
    pub(super) fn new(p: f64, draw: &Draw<'d>) -> Self {
        Random { p, draw: draw.clone(), variance: 0.0, outcome: Ok(()) }
    }

    /// The same for other samples.
    pub(super) fn again(&self) -> Self {
        Self::new(self.p, &self.draw)
    }

    /// Whether enough numbers were given so far.
    pub(super) fn check(&self) -> Result<()> {
        self.outcome.clone()
    }
}

/// Chooses inputs of the layers of a graph.
pub(super) struct Sampler<'r, 'd, S> {
    random: &'r mut Random<'d>,
    /// The losses of groups of samples.
    roots: &'r [(NodeId, S)],
    /// The first sample.
    first: usize,
    sampled: &'r mut Vec<S>,
}

impl<'r, 'd, S: Scalar> Sampler<'r, 'd, S> {
    pub(super) fn new(
        random: &'r mut Random<'d>,
        roots: &'r [(NodeId, S)],
        first: usize,
        sampled: &'r mut Vec<S>,
    ) -> Self {
        Sampler { random, roots, first, sampled }
    }

    /// The first sample of the group that has a node.
    fn sample(&self, node: u32) -> usize {
        self.first + self.roots.partition_point(|(root, _)| root.0 < node) * S::LANES
    }
}

impl<S: Scalar> InputSampler<S> for Sampler<'_, '_, S> {
    fn begin(&mut self) {
        self.sampled.clear();
    }

    fn add(&mut self, layer: Application<'_, S>) {
        let (sample, part) = (self.sample(layer.node), layer.weights.start as u32);
        let Random { p, ref draw, .. } = *self.random;
        let from = self.sampled.len();
        self.sampled.resize(from + layer.x.len(), S::lit(0.0));
        let scale = S::Elem::from_f64(1.0 / p);
        for lane in 0..S::LANES {
            let mut draw = draw.part((sample + lane) as u64, part);
            for (to, x) in self.sampled[from..].iter_mut().zip(layer.x) {
                if draw.happens(p) {
                    *to = to.with_lane(lane, x.lane(lane) * scale);
                }
            }
            if let Err(error) = draw.check() {
                self.random.outcome = Err(error);
            }
        }
        self.random.variance += (1.0 / p - 1.0) * layer.sum_squares();
    }

    fn sampled(&self) -> &[S] {
        self.sampled
    }
}
