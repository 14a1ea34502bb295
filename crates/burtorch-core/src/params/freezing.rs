//! Frozen numbers: ranges of a `Parameters` without a gradient.

use std::ops::Range;

use super::skipped::Skipped;
use super::tensor::Slice;
use super::{Parameters, out_of_memory, selection};
use crate::error::Result;
use crate::scalar::Float;

impl<E: Float> Parameters<'_, E> {
    /// Freezes numbers: no gradient, no gradient memory, no work. Freezing twice changes nothing.
    pub fn freeze(&mut self, slice: Slice) -> Result<()> {
        self.freeze_all(&[slice])
    }

    /// Freezes the numbers of all slices or, on an error, of none.
    pub fn freeze_all(&mut self, slices: &[Slice]) -> Result<()> {
        self.prepare(slices)?;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            self.frozen.push(slice.start..slice.start + slice.len);
            self.grads.discard(slice.range(), self.n);
        }
        selection::join_touching(&mut self.frozen);
        Ok(())
    }

    /// Makes numbers trainable again.
    pub fn unfreeze(&mut self, slice: Slice) -> Result<()> {
        self.unfreeze_all(&[slice])
    }

    /// Makes the numbers of all slices trainable again or, on an error, of none.
    pub fn unfreeze_all(&mut self, slices: &[Slice]) -> Result<()> {
        self.prepare(slices)?;
        slices.iter().filter(|slice| !slice.is_empty()).for_each(|&slice| self.thaw(slice));
        Ok(())
    }

    /// Checks slices, and reserves memory for one more frozen range each.
    fn prepare(&mut self, slices: &[Slice]) -> Result<()> {
        slices.iter().try_for_each(|&slice| self.check_slice(slice))?;
        self.frozen.try_reserve(slices.len()).map_err(|_| out_of_memory::<Range<u32>>(slices.len()))
    }

    fn thaw(&mut self, slice: Slice) {
        let (from, to) = (slice.start, slice.start + slice.len);
        let around = self.frozen.iter_mut().enumerate().find(|(_, r)| r.start < from && to < r.end);
        if let Some((k, range)) = around {
            let above = to..std::mem::replace(&mut range.end, from);
            self.frozen.insert(k + 1, above);
            return;
        }
        for range in &mut self.frozen {
            if range.start < from {
                range.end = range.end.min(from);
            } else if range.start < to {
                range.start = to.min(range.end);
            }
        }
        self.frozen.retain(|r| !r.is_empty());
    }

    /// Frozen ranges, ascending.
    pub fn frozen(&self) -> &[Range<u32>] {
        &self.frozen
    }

    /// Whether the number at `index` is trainable.
    #[inline]
    pub fn is_trainable(&self, index: usize) -> bool {
        self.any_trainable(index..index + 1)
    }

    /// Whether any number of the range is trainable.
    #[inline]
    pub fn any_trainable(&self, range: Range<usize>) -> bool {
        Skipped::in_place(&self.frozen).leaves_any(range)
    }

    /// Whether all numbers of the range are trainable.
    #[inline]
    pub fn all_trainable(&self, range: Range<usize>) -> bool {
        Skipped::in_place(&self.frozen).leaves_all(range)
    }
}

/// Calls `f` with the gaps between the frozen ranges in `0..n`.
pub(super) fn for_each_gap(frozen: &[Range<u32>], n: usize, mut f: impl FnMut(Range<usize>)) {
    let mut from = 0;
    for range in frozen {
        if from < range.start as usize {
            f(from..range.start as usize);
        }
        from = range.end as usize;
    }
    if from < n {
        f(from..n);
    }
}
