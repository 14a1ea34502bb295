//! Marks, rewinds and the check that a handle's node still exists.
//!
//! Promises: mark and rewind cost the same at any size; a handle of a removed node is always refused, a handle of a live one
//! never.

use super::memory::Stack;
use super::{Graph, NodeId};
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// A bit that no epoch has: a handle that adds it to its epoch is refused by [`Graph::check`], as its node has no value.
pub const UNEVALUATED: u64 = 1 << 63;

/// A place in a graph to rewind to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub(super) graph: u64,
    pub(super) epoch: u64,
    pub(super) len: u32,
    pub(super) extra: u32,
    pub(super) leaves: u32,
    pub(super) stores: u32,
}

impl Mark {
    /// Nodes the graph had when the mark was taken.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the graph was empty then.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A rewind: from `epoch` on, nodes of earlier epochs at `len` and above are gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rewind {
    epoch: u64,
    len: u32,
}

/// The rewinds that still apply, with ascending epoch and ascending length: a later rewind to fewer nodes replaces an
/// earlier one to more. Never longer than the longest graph so far.
#[derive(Debug)]
pub(crate) struct RewindLog {
    entries: Stack<Rewind>,
}

impl RewindLog {
    pub(crate) fn new(entries: Stack<Rewind>) -> Self {
        RewindLog { entries }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Ensures that [`RewindLog::push`] of this length allocates nothing.
    pub(super) fn make_room(&mut self, len: u32) -> Result<()> {
        if self.n_below(len) == self.entries.len() { self.entries.reserve(1) } else { Ok(()) }
    }

    /// How many entries remain after a rewind to `len`.
    fn n_below(&self, len: u32) -> usize {
        self.entries.as_slice().iter().rposition(|e| e.len < len).map_or(0, |k| k + 1)
    }

    #[inline(always)]
    pub(super) fn push(&mut self, epoch: u64, len: u32) -> Result<()> {
        // The usual case, a loop that rewinds to the same length: the last entry covers the new one.
        if let Some(last) = self.entries.as_mut_slice().last_mut()
            && last.len == len
        {
            last.epoch = epoch;
            return Ok(());
        }
        self.push_elsewhere(epoch, len)
    }

    #[inline(never)]
    fn push_elsewhere(&mut self, epoch: u64, len: u32) -> Result<()> {
        self.make_room(len)?;
        self.entries.truncate(self.n_below(len));
        self.entries.push_reserved(Rewind { epoch, len });
        Ok(())
    }

    /// The smallest length of any rewind: nodes below it exist whatever their epoch.
    #[inline(always)]
    fn lowest(&self) -> u32 {
        self.entries.as_slice().first().map_or(u32::MAX, |e| e.len)
    }

    /// The smallest length of any rewind after `epoch`.
    #[inline(never)]
    fn low_since(&self, epoch: u64) -> u32 {
        let entries = self.entries.as_slice();
        let k = entries.partition_point(|e| e.epoch <= epoch);
        entries.get(k).map_or(u32::MAX, |e| e.len)
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Marks the present length for [`Graph::rewind`]. O(1).
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark {
            graph: self.id,
            epoch: self.epoch,
            len: self.columns.len(),
            extra: self.extra.len() as u32,
            leaves: self.leaves.len(),
            stores: self.stores.len() as u32,
        }
    }

    /// The mark before the first node, which is always valid.
    #[inline]
    pub fn start(&self) -> Mark {
        Mark { graph: self.id, epoch: self.epoch, len: 0, extra: 0, leaves: 0, stores: 0 }
    }

    /// Whether the graph can be rewound to the mark.
    #[inline]
    pub fn check_mark(&self, mark: Mark) -> Result<()> {
        if mark.graph != self.id {
            return Err(Error::GraphMismatch { what: "the mark" });
        }
        if mark.epoch != self.epoch && self.rewinds.lowest() < mark.len && self.rewinds.low_since(mark.epoch) < mark.len
        {
            return Err(Error::StaleMark { len: mark.len });
        }
        Ok(())
    }

    /// Removes every node appended after the mark. O(1); handles of removed nodes become stale. A mark can be used
    /// again until a rewind goes below it.
    #[inline]
    pub fn rewind(&mut self, mark: Mark) -> Result<()> {
        self.check_mark(mark)?;
        if mark.len == self.columns.len() {
            return Ok(());
        }
        self.rewinds.push(self.epoch + 1, mark.len)?;
        self.epoch += 1;
        self.cut(mark);
        Ok(())
    }

    /// As [`Graph::rewind`], for nodes without handles: it allocates nothing, so it cannot fail.
    pub fn take_back(&mut self, mark: Mark) {
        if self.check_mark(mark).is_ok() && mark.len < self.columns.len() && self.rewind(mark).is_err() {
            self.cut(mark);
        }
    }

    fn cut(&mut self, mark: Mark) {
        self.columns.truncate(mark.len);
        self.extra.truncate(mark.extra as usize);
        self.leaves.truncate(mark.leaves);
        self.stores.truncate(mark.stores as usize);
        if mark.len < self.dirty.1 {
            // The dirty span that remains, often empty.
            self.dirty = if mark.len <= self.dirty.0 { (0, 0) } else { (self.dirty.0, mark.len) };
        }
    }

    /// Removes every node. Memory is kept for new nodes.
    pub fn clear(&mut self) -> Result<()> {
        self.rewind(self.start())
    }

    /// Whether the node with index `node` in `epoch` still exists, and if so the present epoch, in which the
    /// next check is one comparison.
    #[inline(always)]
    pub fn check(&self, node: NodeId, epoch: u64) -> Result<u64> {
        if epoch == self.epoch { Ok(epoch) } else { self.check_older(node, epoch) }
    }

    #[cold]
    #[inline(never)]
    fn check_older(&self, node: NodeId, epoch: u64) -> Result<u64> {
        if epoch & UNEVALUATED != 0 {
            return Err(Error::NotEvaluated { index: node.0 });
        }
        if node.0 < self.rewinds.lowest() || node.0 < self.rewinds.low_since(epoch) {
            Ok(self.epoch)
        } else {
            Err(Error::Stale { index: node.0 })
        }
    }
}
