//! Gradients of batches that end early when a token is set.
//!
//! Promises: the samples that count are the first ones of the batch; parameters do not change. Does not know clocks.

use super::batch::Batch;
use super::lanes::{LaneFloat, LaneModel};
use super::{Interrupted, Oracle, Overrides, Total, check};
use crate::error::{Error, Result};
use crate::params::{Parameters, Selection, WantedSet};
use crate::sync::Stop;
use crate::sync::stop::Watch;

/// When a pass ends early, and what becomes of it then.
#[derive(Clone, Copy, Debug)]
pub struct Until<'a> {
    /// What ends it.
    pub stop: &'a Stop,
    /// Whether the samples that have finished are kept; else nothing is, and a pass that ends early fails with
    /// [`Error::Interrupted`].
    pub keeps: bool,
    /// The probability that a sample finishes, above 0 and at most 1, if what is kept is divided by it: each sample that
    /// finished then counts as in the whole batch, times its inverse. Without, the mean is that of what has finished.
    pub probability: Option<f64>,
    /// Whether the gradient is unspecified after a pass that ends early and keeps nothing, rather than 0: setting a million
    /// numbers to 0 takes 40 to 180 microseconds, for which the caller of such a pass waits.
    pub leaves: bool,
}

/// What a pass has finished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    /// The loss, reduced as the gradient is; NaN for the mean of no sample.
    pub loss: f64,
    /// How many samples, from the first.
    pub n: usize,
}

impl<E: LaneFloat> Oracle<E> {
    /// As [`Oracle::gradient_elsewhere`], or [`Oracle::gradient_of_some`] where a set is given, which `out` is then for, until
    /// a token is set. A sweep that has begun comes to its end where what has finished is kept; else a pass ends before the
    /// next block op.
    ///
    /// ```
    /// use burtorch_core::nn::{Activation, Input, Label, Mlp};
    /// use burtorch_core::oracle::Until;
    /// use burtorch_core::sync::Stop;
    /// use burtorch_core::{Batch, Oracle, Overrides, Parameters};
    /// let mut params = Parameters::<f64>::new(0);
    /// let model = Mlp::new(&mut params, &[2, 8, 1], true, Activation::Tanh, None).unwrap();
    /// let batch = Batch::new(Input::Numbers(&[0.5, 1.0]), Label::Numbers(&[1.0]), 1).unwrap();
    /// let stop = Stop::new();
    /// let until = Until { stop: &stop, keeps: true, probability: None, leaves: false };
    /// let mut oracle = Oracle::new();
    /// let mut pass = || oracle.gradient_until(&model, &mut params, batch, None, Overrides::default(), until, None);
    /// assert_eq!(pass().unwrap().n, 1);
    /// stop.set();
    /// assert_eq!(pass().unwrap().n, 0);
    /// ```
    #[allow(clippy::too_many_arguments, reason = "what a call of an oracle takes, and when it ends")]
    pub fn gradient_until<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        wanted: Option<&WantedSet>,
        mut elsewhere: Overrides<'_, E>,
        until: Until<'_>,
        interrupted: Interrupted<'_>,
    ) -> Result<Finished> {
        check(model, params, batch)?;
        if let Some(p) = until.probability.filter(|p| !(*p > 0.0 && *p <= 1.0)) {
            let (expected, found) = ("above 0 and at most 1".into(), p.to_string());
            return Err(Error::BadArgument { what: "the probability of finishing", expected, found });
        }
        let watch =
            Watch { stop: until.stop.clone(), ends_sweeps: !until.keeps, ends_all: false, leaves: until.leaves };
        let mut losses = Vec::new();
        losses
            .try_reserve_exact(batch.len())
            .map_err(|_| Error::OutOfMemory { bytes: batch.len() * size_of::<f64>(), what: "the losses of samples" })?;
        let each = &mut |_, loss: E| losses.push(loss.to_f64());
        let watching = (each as &mut dyn FnMut(usize, E), Some(&watch));
        let (whole, n_all) = (self.total, batch.len());
        let scale = |n: usize| match until.probability {
            _ if n == n_all && until.probability.is_none() => None,
            Some(p) => Some(1.0 / p),
            None if n == 0 || whole == Total::Sum => None,
            None => Some(n_all as f64 / n as f64),
        };
        let scaled = |n: usize, grads: &mut [E]| {
            if let Some(factor) = scale(n) {
                grads.iter_mut().for_each(|g| *g = *g * E::lit(factor));
            }
        };
        let n = match (wanted, elsewhere.out.take()) {
            (Some(wanted), Some(out)) => {
                let at = elsewhere.at;
                let n = self.some_watching(model, params, batch, (at, wanted, &mut *out), interrupted, watching)?;
                scaled(n, out);
                n
            }
            (_, out) => params.with_arrays(elsewhere.at, out, |params| {
                let n = self.gradient_watching(model, params, batch, interrupted, watching)?;
                if let Some(factor) = scale(n) {
                    params.scale_grads(&Selection::ALL, E::lit(factor));
                }
                Ok(n)
            })??,
        };
        let sum: f64 = losses[..n.min(losses.len())].iter().sum();
        let loss = match (until.probability, self.total) {
            (Some(p), _) => self.reduce(sum, n_all) / p,
            (None, Total::Mean) => sum / n as f64,
            (None, Total::Sum) => sum,
        };
        Ok(Finished { loss, n })
    }
}
