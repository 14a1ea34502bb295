//! One entry for each slot of parameters: stored in place for as few as most graphs read, so that a sweep allocates nothing.
//!
//! Promises: as many entries as there are slots, or more.

use std::ops::{Deref, DerefMut};

use crate::error::Result;
use crate::memory::reserve_in;

/// Entries stored in place.
const FEW: usize = 8;

/// See the module header.
#[derive(Clone, Debug)]
pub(crate) struct PerSlot<T> {
    few: [T; FEW],
    /// All entries, if there are more than fit in place.
    more: Vec<T>,
}

impl<T: Copy> PerSlot<T> {
    /// The same entry for each of `n` slots.
    #[inline]
    pub(crate) fn of(entry: T, n: usize) -> Result<Self> {
        let mut all = PerSlot::few(entry);
        if n > FEW {
            reserve_in(&mut all.more, n, "parameters of a graph")?;
            all.more.resize(n, entry);
        }
        Ok(all)
    }

    /// The same entry for each of a few slots.
    #[inline(always)]
    pub(crate) const fn few(entry: T) -> Self {
        PerSlot { few: [entry; FEW], more: Vec::new() }
    }
}

impl<T> Deref for PerSlot<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        if self.more.is_empty() { &self.few } else { &self.more }
    }
}

impl<T> DerefMut for PerSlot<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        if self.more.is_empty() { &mut self.few } else { &mut self.more }
    }
}

/// The identities of the parameters that a graph reads, by slot.
#[derive(Clone, Debug)]
pub(crate) struct Stores {
    all: PerSlot<u64>,
    n: usize,
}

impl Stores {
    pub(crate) const fn new() -> Self {
        Stores { all: PerSlot::few(0), n: 0 }
    }

    pub(crate) fn push(&mut self, store: u64) -> Result<()> {
        let PerSlot { few, more } = &mut self.all;
        if more.is_empty() && self.n < FEW {
            few[self.n] = store;
        } else {
            reserve_in(more, self.n + 1 - self.n.min(more.len()), "parameters of a graph")?;
            if more.is_empty() {
                more.extend_from_slice(few);
            }
            more.truncate(self.n);
            more.push(store);
        }
        self.n += 1;
        Ok(())
    }

    pub(crate) fn truncate(&mut self, n: usize) {
        self.n = self.n.min(n);
    }
}

impl Deref for Stores {
    type Target = [u64];

    #[inline(always)]
    fn deref(&self) -> &[u64] {
        &self.all[..self.n]
    }
}

impl DerefMut for Stores {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.all[..self.n]
    }
}
