//! Gradients with a randomly sampled reverse pass.
//!
//! Promises: the mean over draws is the gradient; neither threads nor lanes change what is kept. Does not know draws.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::batch::Batch;
use super::lanes::{LaneFloat, LaneModel, Pass};
use super::sampler::Random;
use super::sink::Sink;
use super::team::Chunks;
use super::{Interrupted, Oracle, Overrides, check};
use crate::draw::Draw;
use crate::error::{Error, Result};
use crate::params::Parameters;

impl<E: LaneFloat> Oracle<E> {
    /// As [`Oracle::gradient_elsewhere`], with weight gradients of dense layers that take each input, of each sample and token, with
    /// probability `p`, above 0 and at most 1, and then divide it by `p`: without bias (Oktay, McGreivy, Aduol, Beatson and Adams 2021,
    /// "Randomized automatic differentiation"). All else is exact. Returns the loss and the variance of the gradient,
    /// `E|g - E g|^2`: `1/p - 1` times the sum of `(dy_i x_j)^2` over weights, samples and tokens, with adjoints `dy` of outputs as
    /// they are scaled by [`Total`](crate::Total).
    ///
    /// Input `j` of a layer is kept as the `j`-th number of [`Draw::part`] of the sample and the layer says. Given numbers are the same
    /// for each of them. A layer that a sample's graph applies twice keeps the same inputs both times; the variance is then that of
    /// independent draws. With `p = 1` the bits are those of the gradient.
    ///
    /// ```
    /// use burtorch_core::draw::{Draw, Purpose};
    /// use burtorch_core::nn::{Activation, Input, Label, Mlp};
    /// use burtorch_core::{Batch, Oracle, Overrides, Parameters};
    /// let mut params = Parameters::<f64>::new(0);
    /// let model = Mlp::new(&mut params, &[2, 8, 1], true, Activation::Tanh, None).unwrap();
    /// let batch = Batch::new(Input::Numbers(&[0.5, 1.0]), Label::Numbers(&[1.0]), 1).unwrap();
    /// let draw = Draw::new(1, 0, 0, Purpose::Backward);
    /// let mut oracle = Oracle::new();
    /// let exact = oracle.loss(&model, &params, batch, None).unwrap();
    /// let (loss, variance) =
    ///     oracle.gradient_at_random(&model, &mut params, batch, Overrides::default(), (0.5, &draw), None).unwrap();
    /// assert!(loss == exact && variance > 0.0);
    /// ```
    pub fn gradient_at_random<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        elsewhere: Overrides<'_, E>,
        (p, draw): (f64, &Draw<'_>),
        interrupted: Interrupted<'_>,
    ) -> Result<(f64, f64)> {
        if !(p > 0.0 && p <= 1.0) {
            let (expected, found) = ("above 0 and at most 1".into(), p.to_string());
            return Err(Error::BadArgument { what: "random_backward, a probability", expected, found });
        }
        if p == 1.0 {
            return Ok((self.gradient_elsewhere(model, params, batch, elsewhere, interrupted)?, 0.0));
        }
        check(model, params, batch)?;
        let (seed, chunks) = (self.seed(batch.len()), Chunks::of::<E, M>(model, self.lanes, batch.len()));
        let mut sum = 0.0;
        let variance = params.with_arrays(elsewhere.at, elsewhere.out, |params| {
            let each = &mut |_, loss: E| sum += loss.to_f64();
            let random = Random::new(p, draw);
            let mut pass =
                Pass { random: Some(random), ..Pass::new(model, batch, interrupted, each, self.team.n_threads) };
            let swept = catch_unwind(AssertUnwindSafe(|| match chunks.is_one() {
                true => self.workspace.gradient(self.lanes, &mut pass, &mut Sink::Own(params), 0..batch.len(), seed),
                false => self.team.gradient(self.lanes, &mut pass, params, chunks, seed),
            }));
            if !matches!(swept, Ok(Ok(()))) {
                params.zero_grad();
            }
            swept
                .unwrap_or_else(|panic| resume_unwind(panic))
                .map(|()| pass.random.map_or(0.0, |random| random.variance))
        })??;
        Ok((self.reduce(sum, batch.len()), variance))
    }
}
