//! Gradients of some parameters.
//!
//! Promises: the requested numbers have the bits of the whole gradient. Does not know models or kernels.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::batch::Batch;
use super::lanes::{LaneFloat, LaneModel, Pass};
use super::sink::{Asked, Sink};
use super::team::Chunks;
use super::{Interrupted, Oracle, check, must_clear};
use crate::error::Result;
use crate::params::overrides::Sum;
use crate::params::{Parameters, WantedSet};
use crate::sync::stop::Watch;

impl<E: LaneFloat> Oracle<E> {
    /// The loss of the batch, and those numbers of its gradient that a set names, which have the same bits. They go to `out`, which
    /// holds a number for each of them, or one for every parameter: then those outside of the set are 0 or their gradients.
    /// The gradients of `params` stay as they are; at another point where one is given.
    ///
    /// A sweep ends where nothing of the set lies below, and layers compute the rows and weights of the set only. Sets of many
    /// small ranges (one for 64 parameters) are computed with what lies between and copied to `out`, if that is not for all.
    /// When interrupted, or out of memory, `out` is 0.
    pub fn gradient_of_some<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        at: Option<&[E]>,
        (wanted, out): (&WantedSet, &mut [E]),
        interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        let mut sum = 0.0;
        let each = &mut |_, loss: E| sum += loss.to_f64();
        self.some_watching(model, params, batch, (at, wanted, out), interrupted, (each, None))?;
        Ok(self.reduce(sum, batch.len()))
    }

    pub(super) fn some_watching<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        (at, wanted, out): (Option<&[E]>, &WantedSet, &mut [E]),
        interrupted: Interrupted<'_>,
        (each, watch): (&mut dyn FnMut(usize, E), Option<&Watch>),
    ) -> Result<usize> {
        check(model, params, batch)?;
        wanted.check_room(params, out)?;
        let is_whole = out.len() == params.len();
        let skips_losses = self.skips_losses;
        let mut pass = Pass { skips_losses, watch, ..Pass::new(model, batch, interrupted, each, self.team.n_threads) };
        let swept = catch_unwind(AssertUnwindSafe(|| {
            params.with_arrays(at, None, |params| {
                if is_whole || wanted.is_sparse() {
                    return self.sweep_some(&mut pass, params, wanted, out);
                }
                let mut all = self.all_gradients(params)?;
                let swept = self.sweep_some(&mut pass, params, wanted, &mut all);
                wanted.pick(&all, out);
                self.all = all;
                swept
            })?
        }));
        if pass.is_to_be_kept(&swept) {
            return Ok(pass.n_finished);
        }
        if must_clear(&swept, watch) {
            out.fill(E::lit(0.0));
        }
        swept.unwrap_or_else(|panic| resume_unwind(panic)).map(|()| pass.n_finished)
    }

    fn sweep_some<M: LaneModel<E> + ?Sized>(
        &mut self,
        pass: &mut Pass<'_, '_, E, M>,
        params: &Parameters<'_, E>,
        wanted: &WantedSet,
        out: &mut [E],
    ) -> Result<()> {
        let is_whole = out.len() == params.len();
        let asked = Asked { skipped: wanted.skipped(is_whole), untouched: &[] };
        let n = pass.batch.len();
        let (chunks, seed) = (Chunks::of::<E, M>(pass.model, self.lanes, n), self.seed(n));
        let swept = match chunks.is_one() {
            true => self.workspace.gradient(self.lanes, pass, &mut Sink::Apart(params, out, asked), 0..n, seed),
            false => self.team.sum(self.lanes, pass, (params, asked, Sum::of(out)), chunks, seed),
        };
        if is_whole {
            wanted.clear_frozen(out);
        }
        swept
    }
}
