//! The bounds of tensors.
//!
//! Promises: bounds ascend. Does not know names; consecutive single numbers count as one tensor, so that
//! a million of them take no memory.

use std::ops::Range;

use super::out_of_memory;
use crate::error::Result;

/// The boundaries of tensors with several numbers, if they are recorded.
#[derive(Debug)]
pub(super) struct Bounds(Option<Vec<u32>>);

impl Bounds {
    pub(super) fn new() -> Self {
        Bounds(Some(Vec::new()))
    }

    /// Treats all numbers as one tensor: for parameters that must not allocate.
    pub(super) fn none() -> Self {
        Bounds(None)
    }

    /// Reserves room for one more tensor.
    pub(super) fn prepare(&mut self) -> Result<()> {
        self.0.as_mut().map_or(Ok(()), |places| places.try_reserve(2)).map_err(|_| out_of_memory::<u32>(2))
    }

    /// Appends a tensor after all others; there must be room.
    pub(super) fn add(&mut self, tensor: Range<usize>) {
        let Some(places) = self.0.as_mut().filter(|_| tensor.len() > 1) else { return };
        for at in [tensor.start as u32, tensor.end as u32] {
            if places.last().is_none_or(|&last| last < at) {
                places.push(at);
            }
        }
    }

    /// Removes boundaries above `n`.
    pub(super) fn keep_below(&mut self, n: usize) {
        self.0.iter_mut().for_each(|places| places.retain(|&at| at as usize <= n));
    }

    /// The numbers below `n`, tensor by tensor, from last to first.
    pub(super) fn downwards(&self, n: usize) -> impl Iterator<Item = Range<usize>> {
        let inner = self.0.iter().flatten().rev().map(|&at| at as usize).filter(move |&at| 0 < at && at < n);
        let mut end = n;
        inner
            .chain(std::iter::once(0))
            .map(move |start| start..std::mem::replace(&mut end, start))
            .filter(|r| !r.is_empty())
    }
}
