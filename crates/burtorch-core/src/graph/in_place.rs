//! Joining without copying: graphs whose nodes were built at their final places, which this graph reserved.
//!
//! Promises: only operands, operand lists and nodes hidden from sweeps change; several graphs at a time. Nothing here fails
//! once the first node has new operands.
#![allow(unsafe_code)]

use super::Graph;
use super::block::BlockHeader;
use super::memory::fill;
use super::renumber::{self, Lists, Numbers, Slots};
use crate::error::{Error, Result};
use crate::memory::list_for;
use crate::ops::{Arity, Op};
use crate::scalar::Scalar;
use crate::sync::{self, Mutex, MutexGuard};

/// Names the memory in the error when a list of a few entries per graph cannot be allocated.
pub(super) const WHAT: &str = "numbers of joined nodes";

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic makes the whole call fail.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<S: Scalar> Graph<'_, S> {
    /// Turns the graphs' nodes, which are at their final place, into nodes of this graph. Afterwards the graphs are
    /// empty.
    pub(super) fn take_in(
        &mut self,
        graphs: &mut [&mut Graph<'static, S>],
        moves: &[Move],
        n_threads: usize,
    ) -> Result<()> {
        let n_numbers = graphs.iter().map(|graph| graph.extra.len()).sum();
        let mut tasks = list_for(moves.len(), WHAT)?;
        let mut lists = self.extra.spare(n_numbers)?;
        for graph in graphs.iter_mut() {
            let (own, others) = lists.split_at_mut(graph.extra.len());
            tasks.push(Mutex::new((&mut **graph, own)));
            lists = others;
        }
        sync::run(n_threads, tasks.len(), &|k| {
            let (graph, lists) = &mut *lock(&tasks[k]);
            moves[k].renumber(graph, fill(lists, 0));
        });
        drop(tasks);
        // SAFETY: each task has filled its part.
        unsafe { self.extra.adopt(n_numbers) };
        let are_in = self.columns.take_in(graphs.iter_mut().map(|graph| &mut graph.columns));
        graphs.iter_mut().for_each(|graph| graph.give_back());
        // The caller has checked the order of the regions.
        if are_in { Ok(()) } else { Err(Error::OutOfMemory { bytes: 0, what: WHAT }) }
    }
}

/// The renumbering of a graph whose nodes all move by the same distance.
pub(super) struct Move {
    /// The new number of node 0.
    pub(super) by: u32,
    pub(super) slots: Slots,
    /// The new number of the first leaf, and of the first number of operand lists.
    pub(super) leaves: u32,
    pub(super) lists: usize,
}

impl Move {
    /// Sets the nodes' operands, and marks all adjoints "not reached".
    fn renumber<S: Scalar>(&self, graph: &mut Graph<'static, S>, lists: &mut [u32]) {
        let dirty = graph.dirty.0 as usize..graph.dirty.1 as usize;
        graph.columns.split_for_sweep().1[dirty].fill(S::UNREACHED);
        let old = graph.extra.as_slice();
        let mut lists = InPlace { old, new: lists, base: self.lists };
        let (ops, operands) = graph.columns.nodes_mut();
        // Backwards, because the last node of a block knows the first.
        let mut at = ops.len();
        while at > 0 {
            if let Some(chunk) = at.checked_sub(CHUNK)
                && ops[chunk..at].iter().fold(true, |all, &op| all & stays(op))
            {
                at = chunk;
                continue;
            }
            at -= 1;
            let op = ops[at];
            if stays(op) {
                continue;
            }
            let [a, b] = operands[at];
            operands[at] = match op {
                Op::Leaf => [self.leaves + a, 0],
                _ => renumber::operands(op, [a, b], S::LANES, self, &mut lists).unwrap_or_else(|never| match never {}),
            };
            if op.info().arity == Arity::Block {
                at = BlockHeader::read(old, a).first as usize;
            }
        }
    }
}

/// Nodes in one wide comparison.
const CHUNK: usize = 32;

/// Whether a node needs no renumbering.
fn stays(op: Op) -> bool {
    op == Op::Part || op == Op::Constant
}

impl Numbers for Move {
    const PARTS_RUNS: bool = false;

    #[inline(always)]
    fn node(&self, old: u32) -> u32 {
        self.by + old
    }

    #[inline]
    fn run(&self, start: u32, _: u32) -> Option<u32> {
        Some(self.by + start)
    }

    fn slots(&self) -> &[u32] {
        &self.slots
    }
}

/// Operand lists that keep their position among the lists of a graph.
struct InPlace<'a> {
    old: &'a [u32],
    new: &'a mut [u32],
    /// The offset in the other graph.
    base: usize,
}

/// Appending in place allocates nothing, so it cannot fail.
enum Never {}

impl Lists for InPlace<'_> {
    type Refused = Never;

    fn old(&self) -> &[u32] {
        self.old
    }

    fn base(&self) -> usize {
        self.base
    }

    fn bring(&mut self, from: usize, n: usize) -> std::result::Result<usize, Never> {
        self.new[from..from + n].copy_from_slice(&self.old[from..from + n]);
        Ok(from)
    }

    fn new_mut(&mut self) -> &mut [u32] {
        self.new
    }

    /// Only for ranges that are split, which does not happen here.
    fn append(&mut self, _: [u32; 3]) -> std::result::Result<usize, Never> {
        unreachable!("all nodes move alike")
    }
}
