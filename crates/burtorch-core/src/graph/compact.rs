//! Reclaim: nodes that no live handle can reach are removed, the others move down in order.
//!
//! Promises: no value, gradient or structure changes, only numbers of nodes; the cost is linear in the scanned nodes, and
//! nothing is allocated once the buffers have their size. The caller names the live nodes and renames its handles. Nodes
//! below a mark may be skipped: operands lie below their nodes, so live nodes above are found without them.

use std::convert::Infallible;

use super::liveness::NodeSet;
use super::renumber::{self, Lists, Numbers, Slots};
use super::{Graph, Mark, NodeId, PerSlot, Range};
use crate::error::Result;
use crate::ops::Op;
use crate::scalar::Scalar;

/// The new numbers of nodes after a compaction.
#[derive(Debug)]
pub struct Renumbering<'a> {
    kept: &'a NodeSet,
    epoch: u64,
}

impl Renumbering<'_> {
    /// The new index of a live node.
    #[inline]
    pub fn index(&self, old: u32) -> u32 {
        self.kept.rank(old)
    }

    /// The new index of a node, if it was kept.
    #[inline]
    pub fn kept(&self, old: u32) -> Option<u32> {
        self.kept.contains(old).then(|| self.kept.rank(old))
    }

    /// The epoch in which renamed handles are valid.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Removes every node that is not reachable from those of `for_each_live`, then calls `rename` so that the caller
    /// can renumber its handles; `marks` are renumbered here, except stale ones and those of another graph. Handles
    /// and marks that are not renamed are stale afterwards. Returns the number of remaining nodes.
    pub fn compact(
        &mut self,
        for_each_live: impl FnOnce(&mut dyn FnMut(Range)),
        marks: &mut [Mark],
        rename: impl FnOnce(&Renumbering<'_>),
    ) -> Result<usize> {
        self.compact_above(self.start(), for_each_live, marks, rename)
    }

    /// As [`Graph::compact`], but every node below `base` stays, live or not, with its number: handles and marks below
    /// `base` need no new name. Linear in the nodes above `base`, however many lie below.
    ///
    /// [`crate::Error::StaleMark`] for a `base` that a rewind or a compaction has undone; then nothing has changed.
    pub fn compact_above(
        &mut self,
        base: Mark,
        for_each_live: impl FnOnce(&mut dyn FnMut(Range)),
        marks: &mut [Mark],
        rename: impl FnOnce(&Renumbering<'_>),
    ) -> Result<usize> {
        self.check_mark(base)?;
        let (mut slots, is_read) = (PerSlot::of(0, self.stores.len())?, PerSlot::of(false, self.stores.len())?);
        let mut kept = std::mem::take(&mut self.reached);
        let prepared = kept.reset_above(base.len, self.columns.len() as usize);
        if let Err(error) = prepared.and_then(|()| self.rewinds.make_room(base.len)) {
            self.reached = kept;
            return Err(error);
        }
        for_each_live(&mut |range| {
            if self.check_range(range).is_ok() {
                kept.insert_range(range.start, range.len);
            }
        });
        if let Err(error) = self.mark_reachable(&mut kept) {
            self.reached = kept;
            return Err(error);
        }
        let n_kept = kept.count();
        for mark in marks.iter_mut() {
            if self.check_mark(*mark).is_ok() {
                // Marks that remain get the next epoch at once, and are skipped from then on.
                mark.epoch = self.epoch + u64::from(mark.len < base.len);
            }
        }
        self.compact_slots(&kept, base, marks, &mut slots, is_read);
        #[cfg(feature = "labels")]
        self.drop_stale_labels();
        self.slide(&kept, base, &slots, marks);
        self.epoch += 1;
        // For handles that are not renamed this is a rewind to `base`; there is room, so it cannot fail.
        self.rewinds.push(self.epoch, base.len)?;
        let renumbering = Renumbering { kept: &kept, epoch: self.epoch };
        #[cfg(feature = "labels")]
        Self::renumber_labels(&mut self.labels, base.len, &renumbering);
        rename(&renumbering);
        self.reached = kept;
        Ok(n_kept as usize)
    }

    /// Removes parameters that no kept node reads, except those known at `base`. Writes the new number of each slot to
    /// `new`; the order stays. `is_read` is false for every slot at first.
    fn compact_slots(
        &mut self,
        kept: &NodeSet,
        base: Mark,
        marks: &mut [Mark],
        new: &mut Slots,
        mut is_read: PerSlot<bool>,
    ) {
        let (n, n_below) = (self.stores.len(), base.stores as usize);
        new.iter_mut().zip(0..).for_each(|(new, slot)| *new = slot);
        if n == n_below {
            return;
        }
        is_read[..n_below].fill(true);
        kept.for_each(|node| {
            // The last output of a block reports the operands of the block.
            if self.columns.op(node) != Op::Part {
                self.for_each_operand(NodeId(node), |run| {
                    if let Some((slot, ..)) = run.parameters() {
                        is_read[slot] = true;
                    }
                });
            }
        });
        let mut n_read = 0;
        for slot in 0..n {
            new[slot] = n_read as u32;
            self.stores[n_read] = self.stores[slot];
            n_read += usize::from(is_read[slot]);
        }
        for mark in marks.iter_mut().filter(|m| m.graph == self.id && m.epoch == self.epoch) {
            mark.stores = is_read[..mark.stores as usize].iter().map(|&r| u32::from(r)).sum();
        }
        self.stores.truncate(n_read);
    }

    /// Moves the kept nodes down, in order, and renumbers operands, side arrays, marks and the dirty span.
    fn slide(&mut self, kept: &NodeSet, base: Mark, slots: &Slots, marks: &mut [Mark]) {
        let adjust_dirty = |at: u32| kept.rank(at);
        self.dirty = (adjust_dirty(self.dirty.0), adjust_dirty(self.dirty.1));
        let (mut n_leaves, mut n_extra, mut to) = (base.leaves, base.extra, base.len);
        let mut lowest_mark = self.place_marks(marks, to, to, n_extra, n_leaves);
        kept.for_each(|node| {
            if lowest_mark.is_some_and(|len| node >= len) {
                lowest_mark = self.place_marks(marks, node, to, n_extra, n_leaves);
            }
            let op = self.columns.op(node);
            let old = self.columns.operands(node);
            let renamed = if op == Op::Leaf {
                self.leaves.move_leaf(old[0], n_leaves, to);
                n_leaves += 1;
                [n_leaves - 1, 0]
            } else {
                let mut lists = InPlace { extra: self.extra.as_mut_slice(), n: n_extra as usize };
                let Ok(renamed) = renumber::operands(op, old, S::LANES, &Slid { kept, slots }, &mut lists);
                n_extra = lists.n as u32;
                renamed
            };
            self.columns.move_node(node, to, renamed);
            to += 1;
        });
        let end = self.columns.len();
        self.place_marks(marks, end, to, n_extra, n_leaves);
        self.columns.truncate(to);
        self.extra.truncate(n_extra as usize);
        self.leaves.truncate(n_leaves);
    }

    /// Gives marks with lengths up to `node` their new lengths; returns the next smallest length among the others.
    fn place_marks(&self, marks: &mut [Mark], node: u32, to: u32, n_extra: u32, n_leaves: u32) -> Option<u32> {
        let (id, epoch) = (self.id, self.epoch);
        // A mark is valid in the current epoch until it is moved, and in the next one afterwards.
        let waits = |m: &Mark| m.graph == id && m.epoch == epoch;
        for mark in marks.iter_mut().filter(|m| waits(m) && m.len <= node) {
            *mark = Mark { len: to, extra: n_extra, leaves: n_leaves, epoch: epoch + 1, ..*mark };
        }
        marks.iter().filter(|m| waits(m)).map(|m| m.len).min()
    }
}

/// The new numbers of the kept nodes.
struct Slid<'a> {
    kept: &'a NodeSet,
    slots: &'a Slots,
}

impl Numbers for Slid<'_> {
    const PARTS_RUNS: bool = false;

    #[inline(always)]
    fn node(&self, old: u32) -> u32 {
        self.kept.rank(old)
    }

    #[inline(always)]
    fn run(&self, start: u32, _: u32) -> Option<u32> {
        Some(self.kept.rank(start))
    }

    fn slots(&self) -> &[u32] {
        self.slots
    }
}

/// Operand lists that move down in their array.
struct InPlace<'a> {
    extra: &'a mut [u32],
    /// The kept length; never more than the length already read.
    n: usize,
}

impl Lists for InPlace<'_> {
    type Refused = Infallible;

    fn old(&self) -> &[u32] {
        self.extra
    }

    fn bring(&mut self, from: usize, n: usize) -> std::result::Result<usize, Infallible> {
        let at = self.n;
        self.extra.copy_within(from..from + n, at);
        self.n += n;
        Ok(at)
    }

    fn new_mut(&mut self) -> &mut [u32] {
        self.extra
    }

    fn append(&mut self, _: [u32; 3]) -> std::result::Result<usize, Infallible> {
        unreachable!("what was contiguous stays contiguous when nodes slide down")
    }
}
