//! Adjoints that need not be set to "not reached" before a sweep, because its first contribution overwrites them all.
//!
//! Promises: the results of a sweep are the same. This applies to rows of a table that only a dense layer reads:
//! 256 KB for 64 samples of the character model, which would be written, read and written again.

use std::ops::Range;

use super::scalars::Way;
use crate::graph::{AffineRecord, BlockHeader, Graph, NodeId, Sweep, Topology};
use crate::ops::{Arity, Op};
use crate::scalar::Scalar;

/// Blocks above the rows that are looked through, at most.
const MOST_BLOCKS: usize = 16;

impl<S: Scalar> Graph<'_, S> {
    /// Makes every adjoint "not reached" before a sweep from `root`, but for those of the nodes that it returns, which the
    /// sweep will overwrite.
    #[inline(always)]
    pub(super) fn ready_adjoints(&mut self, root: u32) -> Range<u32> {
        if self.dirty.0 < self.dirty.1 { self.ready_dirty(root) } else { 0..0 }
    }

    /// The same before a sweep from several roots.
    pub(super) fn ready_adjoints_of(&mut self, roots: &[(NodeId, S)]) -> Range<u32> {
        if let [(root, _)] = roots {
            return self.ready_adjoints(root.0);
        }
        self.reset_adjoints();
        0..0
    }

    #[inline(never)]
    fn ready_dirty(&mut self, root: u32) -> Range<u32> {
        let (from, to) = self.dirty;
        let ends_in_block = self.topology().op(root).info().arity == Arity::Block;
        let fresh = if from == 0 && ends_in_block { overwritten_below(self.topology(), root) } else { 0..0 };
        if fresh.end > to {
            // What lies outside of the dirty span is "not reached" already.
            self.reset_adjoints();
            return 0..0;
        }
        self.reset_adjoints_but(fresh.clone());
        fresh
    }
}

/// The first nodes of the graph, if they are rows of a table which between them and `root` one dense layer reads, all of
/// them in order, and nothing else does; else none.
fn overwritten_below(graph: Topology<'_>, root: u32) -> Range<u32> {
    let extra = graph.extra;
    let (mut node, mut overwritten, mut lowest_else) = (root, 0..0, root);
    for _ in 0..MOST_BLOCKS {
        let op = graph.op(node);
        if op == Op::Part || op.info().arity != Arity::Block {
            break;
        }
        let record = graph.operands[node as usize][0];
        let first = BlockHeader::read(extra, record).first;
        if first == 0 {
            let alone = op == Op::Gather && overwritten == (0..node + 1) && lowest_else > node;
            return if alone { overwritten } else { 0..0 };
        }
        let inputs = if op == Op::Affine { AffineRecord::read(extra, record).x.contiguous() } else { None };
        match inputs.filter(|x| x.start == 0 && overwritten.is_empty()) {
            Some(x) => overwritten = 0..x.len,
            None => graph.for_each_operand(node, |run| {
                if run.source == 0 {
                    lowest_else = lowest_else.min(run.start);
                }
            }),
        }
        node = first - 1;
    }
    0..0
}

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Takes the nodes from `end` down to those whose adjoints are to be overwritten, and returns where to go on.
    pub(super) fn descend_to_fresh(&mut self, way: Way, end: u32) -> u32 {
        if self.fresh.is_empty() {
            return end;
        }
        let end = self.descend_as(way, end, self.fresh.end.max(self.floor));
        self.mark_fresh();
        end
    }
}
