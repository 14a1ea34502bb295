//! Reclaim: nodes that nothing alive can reach are removed, the others slide down in order.
//!
//! Promises: no value, gradient or structure changes, only numbers of nodes; cost is linear in the nodes there are and
//! nothing is allocated once the buffers have their size. The caller says what is alive and renames its handles.

use super::block::Field;
use super::operands::{Encoded, InnerOperands};
use super::reach::NodeSet;
use super::{Graph, MAX_STORES, Mark, NodeId, Range};
use crate::error::Result;
use crate::ops::{Arity, Op};
use crate::scalar::Scalar;

/// New numbers of slots.
type Slots = [u32; MAX_STORES];

/// The new numbers of nodes after a compaction.
#[derive(Debug)]
pub struct Renumbering<'a> {
    kept: &'a NodeSet,
    epoch: u64,
}

impl Renumbering<'_> {
    /// The new index of a node that was alive.
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
    /// Removes every node that is not reachable from what `for_each_live` names, then calls `rename` so that the caller
    /// can renumber its handles; `marks` are renumbered here, but for those that are stale or of another graph. Handles
    /// and marks that are not renamed are stale afterwards. Returns how many nodes are left.
    pub fn compact(
        &mut self,
        for_each_live: impl FnOnce(&mut dyn FnMut(Range)),
        marks: &mut [Mark],
        rename: impl FnOnce(&Renumbering<'_>),
    ) -> Result<usize> {
        let mut kept = std::mem::take(&mut self.reached);
        let prepared = kept.reset(self.columns.len() as usize).and_then(|()| self.rewinds.make_room());
        if let Err(error) = prepared {
            self.reached = kept;
            return Err(error);
        }
        for_each_live(&mut |range| {
            if self.check_range(range).is_ok() {
                kept.insert_range(range.start, range.len);
            }
        });
        self.mark_reachable(&mut kept);
        let n_kept = kept.count();
        for mark in marks.iter_mut() {
            if self.check_mark(*mark).is_ok() {
                mark.epoch = self.epoch;
            }
        }
        let slots = self.compact_slots(&kept, marks);
        self.slide(&kept, &slots, marks);
        self.epoch += 1;
        self.rewinds.restart(self.epoch);
        rename(&Renumbering { kept: &kept, epoch: self.epoch });
        self.reached = kept;
        Ok(n_kept as usize)
    }

    /// Forgets parameters that no kept node reads. Returns the new number of each slot; the order stays.
    fn compact_slots(&mut self, kept: &NodeSet, marks: &mut [Mark]) -> Slots {
        let n = self.n_stores as usize;
        let mut new = [0; MAX_STORES];
        if n == 0 {
            return new;
        }
        let mut is_read = [false; MAX_STORES];
        kept.for_each(|node| {
            // A block's operands are told by its last output.
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
            mark.stores = is_read[..mark.stores as usize].iter().map(|&r| u8::from(r)).sum();
        }
        self.n_stores = n_read as u8;
        new
    }

    /// Moves what is kept down, in order, and renumbers operands, side arrays, marks and the dirty span.
    fn slide(&mut self, kept: &NodeSet, slots: &Slots, marks: &mut [Mark]) {
        let adjust_dirty = |at: u32| kept.rank(at);
        self.dirty = (adjust_dirty(self.dirty.0), adjust_dirty(self.dirty.1));
        let (mut n_leaves, mut n_extra, mut to) = (0, 0, 0);
        let mut lowest_mark = self.place_marks(marks, 0, 0, 0, 0);
        kept.for_each(|node| {
            if lowest_mark.is_some_and(|len| node >= len) {
                lowest_mark = self.place_marks(marks, node, to, n_extra, n_leaves);
            }
            let op = self.columns.op(node);
            let [a, b] = self.columns.operands(node);
            let renamed = self.renumber_operands(kept, slots, op, [a, b], &mut n_extra, &mut n_leaves, to);
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
        // A valid mark has the present epoch until it is placed, and the next one from then on.
        let waits = |m: &Mark| m.graph == id && m.epoch == epoch;
        for mark in marks.iter_mut().filter(|m| waits(m) && m.len <= node) {
            *mark = Mark { len: to, extra: n_extra, leaves: n_leaves, epoch: epoch + 1, ..*mark };
        }
        marks.iter().filter(|m| waits(m)).map(|m| m.len).min()
    }

    /// The operands of a node in new numbers. Lists and records slide down in the operand lists, leaves in theirs.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn renumber_operands(
        &mut self,
        kept: &NodeSet,
        slots: &Slots,
        op: Op,
        [a, b]: [u32; 2],
        n_extra: &mut u32,
        n_leaves: &mut u32,
        to: u32,
    ) -> [u32; 2] {
        match op.info().arity {
            Arity::Nullary => {
                match op {
                    Op::Leaf => {}
                    Op::Param | Op::FrozenParam => return [a, slots[b as usize]],
                    _ => return [a, b],
                }
                let new = *n_leaves;
                self.leaves.move_leaf(a, new, to);
                *n_leaves += 1;
                [new, 0]
            }
            Arity::Unary => [kept.rank(a), 0],
            Arity::Binary | Arity::WithConstant => [kept.rank(a), kept.rank(b)],
            Arity::Reduction => {
                let moved = self.slide_encoded(kept, slots, Encoded(a, b), n_extra);
                [moved.0, moved.1]
            }
            Arity::InnerProduct => {
                let inner = InnerOperands::read(self.extra.as_slice(), a);
                let moved = InnerOperands {
                    x: self.slide_encoded(kept, slots, inner.x, n_extra),
                    w: self.slide_encoded(kept, slots, inner.w, n_extra),
                    bias: if op == Op::InnerProductWithBias { kept.rank(inner.bias) } else { 0 },
                };
                [self.put_record(&moved.write(), n_extra), 0]
            }
            Arity::Block => [self.slide_block(kept, slots, op, a, n_extra), 0],
        }
    }

    /// Writes a record at the end of what has been kept of the operand lists. It never passes what is still to be read.
    fn put_record(&mut self, record: &[u32], n_extra: &mut u32) -> u32 {
        let at = *n_extra;
        self.extra.as_mut_slice()[at as usize..at as usize + record.len()].copy_from_slice(record);
        *n_extra += record.len() as u32;
        at
    }

    fn slide_encoded(&mut self, kept: &NodeSet, slots: &Slots, operands: Encoded, n_extra: &mut u32) -> Encoded {
        if let Some(run) = operands.contiguous() {
            return Encoded(kept.rank(run.start), operands.1);
        }
        let (from, n) = (operands.0 as usize, operands.stored_len());
        let at = *n_extra as usize;
        let extra = self.extra.as_mut_slice();
        extra.copy_within(from..from + n, at);
        operands.renumber(&mut extra[at..at + n], |node| kept.rank(node), slots);
        *n_extra += n as u32;
        Encoded(at as u32, operands.1)
    }

    fn slide_block(&mut self, kept: &NodeSet, slots: &Slots, op: Op, at: u32, n_extra: &mut u32) -> u32 {
        let layout = self.block_layout(op, at);
        let at = at as usize;
        // Lists lie before the record, so what is written here never passes what is still to be read.
        for field in layout.fields {
            if let &Field::Operands(k) = field {
                let operands = Encoded(self.extra.as_slice()[at + k], self.extra.as_slice()[at + k + 1]);
                let moved = self.slide_encoded(kept, slots, operands, n_extra);
                self.extra.as_mut_slice()[at + k..at + k + 2].copy_from_slice(&[moved.0, moved.1]);
            }
        }
        let to = *n_extra as usize;
        *n_extra += layout.len as u32;
        let extra = self.extra.as_mut_slice();
        extra.copy_within(at..at + layout.len, to);
        let record = &mut extra[to..to + layout.len];
        for field in layout.fields {
            match *field {
                Field::Node(k) => record[k] = kept.rank(record[k]),
                Field::Slot(k) => record[k] = slots[record[k] as usize],
                Field::Source(k) if record[k] > 0 => record[k] = slots[record[k] as usize - 1] + 1,
                Field::Source(_) | Field::Operands(_) | Field::Op(_) => {}
                Field::Runs { count, from } => {
                    let n = record[count] as usize;
                    for run in record[from..from + 3 * n].as_chunks_mut::<3>().0 {
                        match run[0] {
                            0 => run[1] = kept.rank(run[1]),
                            source => run[0] = slots[source as usize - 1] + 1,
                        }
                    }
                }
            }
        }
        to as u32
    }
}
