//! Dense layers whose weight gradients are deferred until several groups of samples have been swept, so that one pass over the
//! weights serves all of them.
//!
//! Promises: deferred work is done in the order of nodes, and so of samples, whatever the order of its arrival; all of a pass
//! waits, so the order does not depend on which layers of a pass are deferred. Memory is reused by the next pass. Does not know
//! batches, or how gradients are computed.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::kernels::PANEL;
use crate::memory::reserve_in;
use crate::scalar::Scalar;

/// Samples whose weight gradients are computed at once; activations of more would not fit the second-level cache.
const BLOCK: usize = 64;

/// The largest number of groups in one pass over the weights: 64 samples in the narrowest lanes.
pub(crate) const MAX_GROUPS: usize = BLOCK / 2;

/// Weights and biases of a dense layer, by slot and start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DenseLayer {
    pub(crate) n_in: u32,
    pub(crate) n_out: u32,
    pub(crate) w_slot: u32,
    pub(crate) w_start: u32,
    /// Slot of the bias plus one, 0 for none.
    pub(crate) bias_source: u32,
    pub(crate) bias_start: u32,
}

impl DenseLayer {
    /// The range of the weights among the values of their slot.
    pub(crate) fn weights(&self) -> Range<usize> {
        let start = self.w_start as usize;
        start..start + self.n_out as usize * self.n_in as usize
    }

    /// The slot and the range of the bias.
    pub(crate) fn bias(&self) -> Option<(usize, Range<usize>)> {
        let start = self.bias_start as usize;
        (self.bias_source > 0).then(|| (self.bias_source as usize - 1, start..start + self.n_out as usize))
    }
}

/// An application of a layer: its first input and its first output.
pub(crate) type Application = (u32, u32);

/// Dense layers whose weight gradients have not been added yet.
#[derive(Debug)]
pub(crate) struct Deferred<S> {
    waiting: Vec<(DenseLayer, Application)>,
    /// The kernel's workspace.
    pub(crate) panel: Vec<S>,
}

impl<S: Scalar> Deferred<S> {
    pub(crate) fn new() -> Self {
        Deferred { waiting: Vec::new(), panel: Vec::new() }
    }

    /// Allocates memory for so many layers, and the workspace; no layer is deferred afterwards.
    pub(crate) fn prepare(&mut self, n_layers: usize) -> Result<()> {
        let what = "the working memory of weight gradients";
        self.waiting.clear();
        reserve_in(&mut self.waiting, n_layers, what)?;
        let need = PANEL * Self::groups();
        let more = need - self.panel.len();
        let bytes = more * size_of::<S>();
        self.panel.try_reserve_exact(more).map_err(|_| Error::OutOfMemory { bytes, what })?;
        self.panel.resize(need, S::lit(0.0));
        Ok(())
    }

    /// Bytes of both.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<(DenseLayer, Application)>() + self.panel.capacity() * size_of::<S>()
    }

    const fn groups() -> usize {
        let n = BLOCK / S::LANES;
        if n < MAX_GROUPS { n } else { MAX_GROUPS }
    }

    /// Defers a layer.
    pub(crate) fn push(&mut self, layer: DenseLayer, at: Application) {
        debug_assert!(self.waiting.len() < self.waiting.capacity());
        self.waiting.push((layer, at));
    }

    /// The weights of the next layer, with all its deferred applications in node order, up to the capacity of one pass.
    /// They are removed from the list.
    pub(crate) fn take(
        &mut self,
        places: &mut [Application; MAX_GROUPS],
        is_asked_for: impl Fn(&DenseLayer) -> bool,
    ) -> Option<(DenseLayer, usize)> {
        let first = self.waiting.iter().rev().find(|(layer, _)| is_asked_for(layer))?.0;
        let (mut kept, mut found) = (self.waiting.len(), 0);
        // Later layers come first, so the end of the list has the lowest nodes. The remaining entries slide to the end.
        for k in (0..self.waiting.len()).rev() {
            let (layer, at) = self.waiting[k];
            if found < Self::groups() && layer == first {
                places[found] = at;
                found += 1;
            } else {
                kept -= 1;
                self.waiting[kept] = (layer, at);
            }
        }
        self.waiting.drain(..kept);
        Some((first, found))
    }
}
