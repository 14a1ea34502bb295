//! Gradients returned in parts while the rest is computed.
//!
//! Promises: each number is returned once, with the bits of the whole gradient, in an order that the model decides. Does not
//! know the receiver.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::lanes::{LaneFloat, LaneModel, Pass};
use super::sink::{Asked, Sink};
use super::team::Chunks;
use super::{Batch, Interrupted, Oracle, Overrides, check};
use crate::backward::Consume;
use crate::error::{Error, Result};
use crate::nn::Model;
use crate::params::overrides::Sum;
use crate::params::{Parameters, Skipped};

/// Is told a range of parameters and its gradient, which is final; `false` ends the pass.
pub type Emit<'a, E> = dyn FnMut(Range<usize>, &[E]) -> bool + 'a;

impl<E: LaneFloat> Oracle<E> {
    /// As [`Oracle::gradient_elsewhere`], with the gradient of each tensor given to `emit` as soon as it is final: when the sweep of
    /// the last samples has passed the last node that reads it. So the last layers of a model come first, in the same order for
    /// every batch; parameters that nothing reads come at the end. Each parameter comes once, and the gradient stays where it was
    /// written. If `emit` ends the pass, it fails with [`Error::Interrupted`] and the gradient is 0.
    ///
    /// ```
    /// use burtorch_core::nn::{Activation, Input, Label, Mlp};
    /// use burtorch_core::{Batch, Oracle, Overrides, Parameters};
    /// let mut params = Parameters::<f64>::new(0);
    /// let model = Mlp::new(&mut params, &[2, 8, 1], true, Activation::Tanh, None).unwrap();
    /// let batch = Batch::new(Input::Numbers(&[0.5, 1.0]), Label::Numbers(&[1.0]), 1).unwrap();
    /// let mut oracle = Oracle::new();
    /// let mut came = Vec::new();
    /// let emit = &mut |range: std::ops::Range<usize>, gradient: &[f64]| {
    ///     assert_eq!(range.len(), gradient.len());
    ///     came.push(range);
    ///     true
    /// };
    /// oracle.gradient_streamed(&model, &mut params, batch, Overrides::default(), emit, None).unwrap();
    /// assert_eq!(came, [32..33, 24..32, 16..24, 0..16]);
    /// ```
    pub fn gradient_streamed<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        elsewhere: Overrides<'_, E>,
        emit: &mut Emit<'_, E>,
        interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        check(model, params, batch)?;
        let (seed, chunks) = (self.seed(batch.len()), Chunks::of::<E, M>(model, self.lanes, batch.len()));
        let (skips_losses, n_threads) = (self.skips_losses, self.team.n_threads);
        let mut sum = 0.0;
        let each = &mut |_, loss: E| sum += loss.to_f64();
        let consume: &mut Consume<'_, E> = &mut |range, gradient| emit(range, gradient);
        let consumer = Some(consume);
        params.with_arrays(elsewhere.at, elsewhere.out, |params| {
            let mut pass = Pass { skips_losses, consumer, ..Pass::new(model, batch, interrupted, each, n_threads) };
            let swept = catch_unwind(AssertUnwindSafe(|| match chunks.is_one() {
                true => self.workspace.gradient(self.lanes, &mut pass, &mut Sink::Own(params), 0..batch.len(), seed),
                false => self.team.gradient(self.lanes, &mut pass, params, chunks, seed),
            }));
            if !matches!(swept, Ok(Ok(()))) {
                params.zero_grad();
            }
            swept.unwrap_or_else(|panic| resume_unwind(panic))
        })??;
        Ok(self.reduce(sum, batch.len()))
    }

    /// As [`Oracle::gradient_streamed`], with no gradient left anywhere: what `emit` is given is overwritten afterwards, and the
    /// gradients of `params` stay as they are. A batch of samples that are computed at once (one of a GPT, up to 64 of others)
    /// takes the memory of the ranges that are in flight at once, if nothing is frozen; others that of a gradient.
    pub fn gradient_passed_on<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        at: Option<&[E]>,
        emit: &mut Emit<'_, E>,
        interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        check(model, params, batch)?;
        let (seed, chunks) = (self.seed(batch.len()), Chunks::of::<E, M>(model, self.lanes, batch.len()));
        let (skips_losses, n_threads) = (self.skips_losses, self.team.n_threads);
        let mut sum = 0.0;
        let each = &mut |_, loss: E| sum += loss.to_f64();
        let consume: &mut Consume<'_, E> = &mut |range, gradient| emit(range, gradient);
        let consumer = Some(consume);
        params.with_arrays(at, None, |params| {
            let params = &*params;
            let samples = 0..batch.len();
            let mut pass = Pass { skips_losses, consumer, ..Pass::new(model, batch, interrupted, each, n_threads) };
            if chunks.is_one()
                && self.lanes.are_at_once::<E>(batch.len(), <M as Model<E>>::fills_lanes_itself(model))
                && params.frozen().is_empty()
            {
                let Oracle { workspace, in_flight, .. } = self;
                return workspace.gradient(
                    self.lanes,
                    &mut pass,
                    &mut Sink::InFlight(params, in_flight),
                    samples,
                    seed,
                );
            }
            let mut all = self.all_gradients(params)?;
            let asked = Asked { skipped: Skipped::in_place(params.frozen()), untouched: &[] };
            let swept = match chunks.is_one() {
                true => self.workspace.gradient(
                    self.lanes,
                    &mut pass,
                    &mut Sink::Apart(params, &mut all, asked),
                    samples,
                    seed,
                ),
                false => self.team.sum(self.lanes, &mut pass, (params, asked, Sum::of(&mut all)), chunks, seed),
            };
            self.all = all;
            swept
        })??;
        Ok(self.reduce(sum, batch.len()))
    }

    /// Memory for a gradient of all parameters, to be put back.
    pub(super) fn all_gradients(&mut self, params: &Parameters<'_, E>) -> Result<Vec<E>> {
        let mut all = std::mem::take(&mut self.all);
        let more = params.len().saturating_sub(all.len());
        let bytes = more * size_of::<E>();
        all.try_reserve_exact(more).map_err(|_| Error::OutOfMemory { bytes, what: "a gradient" })?;
        all.resize(params.len(), E::lit(0.0));
        Ok(all)
    }
}
