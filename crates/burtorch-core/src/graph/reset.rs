//! Reset of adjoints and gradients.

use super::Graph;
use crate::scalar::Scalar;

impl<S: Scalar> Graph<'_, S> {
    /// Sets the gradients of all leaves, and all adjoints, to zero.
    pub fn zero_grad(&mut self) {
        self.leaves.grads_mut().fill(S::lit(0.0));
        self.reset_adjoints();
    }

    /// Makes every adjoint "not reached" again: only the span of the last sweep can hold another.
    #[inline(always)]
    pub(crate) fn reset_adjoints(&mut self) {
        if self.dirty.0 < self.dirty.1 {
            self.reset_dirty();
        }
    }

    #[inline(never)]
    fn reset_dirty(&mut self) {
        let (from, to) = std::mem::take(&mut self.dirty);
        self.columns.split_for_sweep().1[from as usize..to as usize].fill(S::UNREACHED);
    }

    /// As [`Graph::reset_adjoints`], without the nodes in `overwritten`, which lie at the start and may be undefined.
    pub(crate) fn reset_adjoints_but(&mut self, overwritten: std::ops::Range<u32>) {
        debug_assert_eq!(overwritten.start, 0);
        let (from, to) = std::mem::take(&mut self.dirty);
        let from = from.max(overwritten.end).min(to);
        self.columns.split_for_sweep().1[from as usize..to as usize].fill(S::UNREACHED);
    }
}
