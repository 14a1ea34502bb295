//! Weight gradients that wait until several groups of samples have been swept, so that one pass over the weights serves
//! all of them.
//!
//! Promises: what waits is taken in the order of nodes, and so of samples, whatever the order in which it came; the memory
//! is of one size, allocated once. Knows nothing of batches.

use super::Gradients;
use super::sweep::Sweep;
use crate::error::{Error, Result};
use crate::graph::AffineRecord;
use crate::kernels::{Mode, PANEL};
use crate::scalar::Scalar;

/// Samples whose weight gradients are taken at once: activations of more would not stay in the second-level cache.
const BLOCK: usize = 64;

/// Layers that can wait.
const CAPACITY: usize = 64;

/// Groups that one pass over the weights takes, at most: 64 samples in the narrowest lanes.
const MAX_GROUPS: usize = BLOCK / 2;

/// Dense layers whose weight gradients are still to be added.
#[derive(Debug)]
pub(crate) struct Deferred<S> {
    records: [AffineRecord; CAPACITY],
    n: usize,
    /// Working memory of the kernel.
    panel: Vec<S>,
}

impl<S: Scalar> Deferred<S> {
    pub(crate) fn new() -> Self {
        Deferred { records: [AffineRecord::NONE; CAPACITY], n: 0, panel: Vec::new() }
    }

    /// Makes sure of the working memory; nothing waits afterwards.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        self.n = 0;
        let need = PANEL * Self::groups();
        let more = need - self.panel.len();
        let what = "the working memory of weight gradients";
        let bytes = more * size_of::<S>();
        self.panel.try_reserve_exact(more).map_err(|_| Error::OutOfMemory { bytes, what })?;
        self.panel.resize(need, S::lit(0.0));
        Ok(())
    }

    /// Bytes of the working memory.
    pub(crate) fn bytes(&self) -> usize {
        self.panel.capacity() * size_of::<S>()
    }

    const fn groups() -> usize {
        let n = BLOCK / S::LANES;
        if n < MAX_GROUPS { n } else { MAX_GROUPS }
    }

    /// The next layer's weights with the places of all that wait for them, in the order of nodes, up to the number that
    /// one pass takes. They wait no more.
    fn take(&mut self, places: &mut [(u32, u32); MAX_GROUPS]) -> Option<(AffineRecord, usize)> {
        let first = self.records[..self.n].last().copied()?;
        let (mut kept, mut found) = (self.n, 0);
        // Later layers were met first, so the end of the list has the lowest nodes. What stays slides to the end.
        for k in (0..self.n).rev() {
            let record = self.records[k];
            if found < Self::groups() && record.same_parameters(&first) {
                places[found] = (record.x.0, record.header.first);
                found += 1;
            } else {
                kept -= 1;
                self.records[kept] = record;
            }
        }
        self.records.copy_within(kept..self.n, 0);
        self.n -= kept;
        Some((first, found))
    }
}

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Adds what the weights and biases of a layer receive, now or later.
    pub(super) fn weight_grad(&mut self, record: AffineRecord) {
        if let Some(deferred) = &mut self.deferred {
            deferred.records[deferred.n] = record;
            deferred.n += 1;
            if deferred.n == CAPACITY {
                self.add_deferred();
            }
            return;
        }
        let mut panel = [S::UNREACHED; PANEL];
        self.weight_grad_of(record, &[(record.x.0, record.header.first)], &mut panel);
    }

    /// Adds all that waits.
    pub(super) fn add_deferred(&mut self) {
        let Some(deferred) = self.deferred.take() else {
            return;
        };
        let mut places = [(0, 0); MAX_GROUPS];
        while let Some((record, n)) = deferred.take(&mut places) {
            self.weight_grad_of(record, &places[..n], &mut deferred.panel);
        }
        self.deferred = Some(deferred);
    }

    /// Adds what weights and biases receive from all `places`: first input and first output of each group.
    fn weight_grad_of(&mut self, record: AffineRecord, places: &[(u32, u32)], panel: &mut [S]) {
        let (n_in, n_out) = (record.n_in as usize, record.header.n_out as usize);
        let mut x: [&[S]; MAX_GROUPS] = [&[]; MAX_GROUPS];
        let mut dy: [&[S]; MAX_GROUPS] = [&[]; MAX_GROUPS];
        for (k, &(input, output)) in places.iter().enumerate() {
            x[k] = &self.recorded.values[input as usize..][..n_in];
            dy[k] = &self.adjoints[(output - self.base) as usize..][..n_out];
        }
        let store = &mut self.params[self.places[record.w_slot as usize] as usize];
        let bias = record.bias().map(|(_, at)| at).filter(|at| store.any_trainable(at.clone()));
        let (mode, dw, db) = store.grads_of_layer(record.weights(), bias);
        S::affine_weight_grad(&dy[..places.len()], &x[..places.len()], dw, db, mode, panel);
    }
}

impl<E: crate::scalar::Float> Gradients<'_, E> {
    /// The gradients of weights and biases, which do not overlap, and whether to overwrite both.
    fn grads_of_layer(
        &mut self,
        weights: std::ops::Range<usize>,
        bias: Option<std::ops::Range<usize>>,
    ) -> (Mode, &mut [E], Option<&mut [E]>) {
        let mut mode = self.mode(weights.clone());
        let Some(bias) = bias else {
            return (mode, &mut self.grads[weights], None);
        };
        let bias_mode = self.mode(bias.clone());
        if mode != bias_mode {
            let fresh = if mode == Mode::Set { &weights } else { &bias };
            self.grads[fresh.clone()].fill(E::lit(0.0));
            mode = Mode::Add;
        }
        let (dw, db) = apart(self.grads, weights, bias);
        (mode, dw, Some(db))
    }
}

/// Two ranges of a slice that do not overlap.
pub(super) fn apart<E>(
    all: &mut [E],
    first: std::ops::Range<usize>,
    second: std::ops::Range<usize>,
) -> (&mut [E], &mut [E]) {
    if second.start >= first.end {
        let (low, high) = all.split_at_mut(second.start);
        return (&mut low[first], &mut high[..second.len()]);
    }
    let (low, high) = all.split_at_mut(first.start);
    (&mut high[..first.len()], &mut low[second])
}
