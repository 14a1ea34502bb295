//! Where tensors begin and end.
//!
//! Promises: bounds ascend. Knows nothing of names; numbers on their own that follow one another count as one tensor, so that
//! a million of them take no memory.

use std::ops::Range;

use super::out_of_memory;
use crate::error::Result;

/// Places where a tensor of several numbers begins or ends.
#[derive(Debug, Default)]
pub(super) struct Bounds(Vec<u32>);

impl Bounds {
    /// Makes room for one more tensor.
    pub(super) fn prepare(&mut self) -> Result<()> {
        self.0.try_reserve(2).map_err(|_| out_of_memory::<u32>(2))
    }

    /// Adds a tensor behind all others, for which there is room.
    pub(super) fn add(&mut self, tensor: Range<usize>) {
        if tensor.len() > 1 {
            for at in [tensor.start as u32, tensor.end as u32] {
                if self.0.last().is_none_or(|&last| last < at) {
                    self.0.push(at);
                }
            }
        }
    }

    /// Forgets what lies above `n`.
    pub(super) fn keep_below(&mut self, n: usize) {
        self.0.retain(|&at| at as usize <= n);
    }

    /// The numbers below `n` tensor by tensor, from the last one to the first.
    pub(super) fn downwards(&self, n: usize) -> impl Iterator<Item = Range<usize>> {
        let inner = self.0.iter().rev().map(|&at| at as usize).filter(move |&at| 0 < at && at < n);
        let mut end = n;
        inner
            .chain(std::iter::once(0))
            .map(move |start| start..std::mem::replace(&mut end, start))
            .filter(|r| !r.is_empty())
    }
}
