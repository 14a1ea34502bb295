//! The structure of a graph without its numbers: ops, operands, operand lists.
//!
//! Promises: code that reads only structure is compiled once, not for each scalar type. Does not know scalar types.

use super::block::{Layout, block_layout, for_each_block_operand};
use super::operands::{Encoded, InnerOperands, OperandRun};
use super::{BlockHeader, Graph, NodeId, NodeSet};
use crate::error::Result;
use crate::interrupt;
use crate::ops::{Arity, Op};
use crate::scalar::Scalar;

/// The operands of all nodes of a graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Topology<'a> {
    pub(crate) ops: &'a [Op],
    pub(crate) operands: &'a [[u32; 2]],
    pub(crate) extra: &'a [u32],
    /// Lanes of the scalars; the records of some blocks depend on it.
    pub(crate) lanes: usize,
}

impl<S: Scalar> Graph<'_, S> {
    /// The structure.
    #[inline(always)]
    pub(crate) fn topology(&self) -> Topology<'_> {
        let (ops, operands) = (self.columns.ops(), self.columns.all_operands());
        Topology { ops, operands, extra: self.extra.as_slice(), lanes: S::LANES }
    }

    /// Calls `f` with every run of operands that `node` was computed from. For a part of a block, that is the block.
    pub fn for_each_operand(&self, node: NodeId, mut f: impl FnMut(OperandRun)) {
        self.topology().for_each_operand_of_any(node.0, &mut f);
    }

    /// As [`Topology::mark_reachable`].
    pub(crate) fn mark_reachable(&self, set: &mut NodeSet) -> Result<()> {
        self.topology().mark_reachable(set)
    }

    /// The last output of the block that `part` belongs to.
    pub(crate) fn block_tail(&self, part: u32) -> Option<u32> {
        self.topology().block_tail(part)
    }
}

impl Topology<'_> {
    pub(crate) fn op(self, node: u32) -> Op {
        self.ops[node as usize]
    }

    pub(crate) fn block_tail(self, part: u32) -> Option<u32> {
        self.ops[part as usize..].iter().position(|&op| op != Op::Part).map(|k| part + k as u32)
    }

    pub(crate) fn block_layout(self, op: Op, at: u32) -> Layout {
        block_layout(self.extra, op, at, self.lanes)
    }

    /// As [`Graph::for_each_operand`].
    #[inline(never)]
    pub(crate) fn for_each_operand_of_any(self, node: u32, f: &mut dyn FnMut(OperandRun)) {
        self.for_each_operand(node, f);
    }

    /// As `for_each_operand_of_any`, but inlined.
    #[inline]
    pub(crate) fn for_each_operand(self, node: u32, mut f: impl FnMut(OperandRun)) {
        let op = self.op(node);
        let [a, b] = self.operands[node as usize];
        let one = |node| OperandRun { source: 0, start: node, len: 1 };
        match op.info().arity {
            Arity::Nullary => match op {
                Op::Part => {
                    if let Some(tail) = self.block_tail(node) {
                        self.for_each_operand_of_any(tail, &mut f);
                    }
                }
                Op::Param | Op::FrozenParam => f(OperandRun { source: b + 1, start: a, len: 1 }),
                _ => {}
            },
            Arity::Unary => f(one(a)),
            Arity::Binary | Arity::WithConstant => {
                f(one(a));
                f(one(b));
            }
            Arity::Reduction => Encoded(a, b).for_each_run(self.extra, f),
            Arity::InnerProduct => {
                let inner = InnerOperands::read(self.extra, a);
                inner.x.for_each_run(self.extra, &mut f);
                inner.w.for_each_run(self.extra, &mut f);
                if op != Op::InnerProduct {
                    f(one(inner.bias));
                }
            }
            Arity::Block => for_each_block_operand(self.extra, op, a, &mut f),
        }
    }

    /// The nodes that a node was computed from, without parameters.
    #[cfg(feature = "erased")]
    pub(crate) fn operand_nodes(self, node: NodeId) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        self.for_each_operand_of_any(node.0, &mut |run| {
            nodes.extend(run.nodes().into_iter().flat_map(super::Range::nodes))
        });
        nodes
    }
}

impl Topology<'_> {
    /// Adds to `set`, which holds roots, everything that they were computed from. One downward pass to the set's base,
    /// which skips empty words of 64 nodes; blocks are added whole. Checks periodically for an early end.
    pub(crate) fn mark_reachable(self, set: &mut NodeSet) -> Result<()> {
        for k in (0..set.words.len()).rev() {
            interrupt::ask_at(64 * k)?;
            // Operands lie below their node, so only bits below the current one can still be set in this word.
            let mut not_taken = u64::MAX;
            loop {
                let bits = set.words[k] & not_taken;
                if bits == 0 {
                    break;
                }
                let bit = 63 - bits.leading_zeros();
                not_taken = (1 << bit) - 1;
                self.mark_operands(set.base + k as u32 * 64 + bit, set);
            }
        }
        Ok(())
    }

    #[inline]
    fn mark_operands(self, node: u32, set: &mut NodeSet) {
        let mut tail = node;
        let mut op = self.op(node);
        if op == Op::Part {
            // If the next output is in the set, the block was added whole with it.
            if set.contains(node + 1) {
                return;
            }
            tail = self.block_tail(node).unwrap_or(node);
            op = self.op(tail);
        }
        if op.info().arity == Arity::Block {
            let header = BlockHeader::read(self.extra, self.operands[tail as usize][0]);
            set.insert_range(header.first, header.n_out);
        }
        self.for_each_operand(tail, |run| {
            if let Some(range) = run.nodes() {
                set.insert_range(range.start, range.len);
            }
        });
    }
}
