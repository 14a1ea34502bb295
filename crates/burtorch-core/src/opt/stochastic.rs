//! Gradient descent and SGD, with any sampling and proximal operator.

use super::method::{Cost, Env, Method, Part, zeros};
use super::sampling::Sampler;
use crate::error::Result;

/// `x+ = prox(x - step g)`, with g the estimate of the gradient by a batch.
#[derive(Debug)]
pub struct Sgd {
    sampler: Sampler,
    g: Vec<f64>,
}

impl Sgd {
    /// With batches of this sampler; gradient descent takes all samples.
    pub fn new(sampler: Sampler) -> Self {
        Sgd { sampler, g: Vec::new() }
    }
}

/// Draws the batch of a step, or uses the given one. A small batch of the next step is drawn as well, and its rows are
/// prefetched while this step computes: random rows take longer to load than to compute with.
pub(super) fn draw_batch(sampler: &mut Sampler, env: &Env<'_>) -> Result<()> {
    let Some(batch) = env.choices.batch else {
        sampler.draw(env.seed, env.round, 0)?;
        env.problem.terms.ask_for_next(sampler.draw_ahead(env.seed, env.round + 1, 0)?);
        return Ok(());
    };
    sampler.take(batch)
}

impl Method for Sgd {
    fn start(&mut self, _: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        self.g = zeros(x.len())?;
        Ok(Cost::default())
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        draw_batch(&mut self.sampler, env)?;
        let samples = self.sampler.samples();
        env.grad(x, None, samples, &mut self.g)?;
        env.descend(x, &self.g, next)?;
        Ok(Cost { oracle_calls: samples.indices.len() as u64, ..Cost::default() })
    }

    fn commit(&mut self) {}

    fn parts(&mut self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (self.sampler.samples().indices, None)
    }
}
