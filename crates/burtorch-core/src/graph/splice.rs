//! Joining: graphs built on a frozen one become part of it, in sequence.
//!
//! Promises: an error appends nothing; proxies disappear, and their readers read the original node; values, leaf
//! gradients and the order of operands stay the same. Sums of the operands of a node keep their order, so a joined
//! graph has the bits of one that was built in a single piece.

mod lists;
mod plan;

use lists::{Across, Region};
use plan::{Moved, SplicePlan};

use super::columns::Columns;
use super::in_place::{Move, WHAT, lock};
use super::memory::Stack;
use super::parallel_append::{Places, Start};
use super::renumber::{self, Lists, Slots};
use super::{Graph, NodeId, PerSlot, Range};
use crate::error::{Error, Result};
use crate::memory::list_for;
use crate::ops::{Arity, Op};
use crate::scalar::Scalar;
use crate::sync::Mutex;

/// The new places of the nodes of several joined graphs.
#[derive(Debug)]
pub struct Joined {
    parts: Vec<Spliced>,
}

impl Joined {
    /// The present number of node `node` of graph (or branch) `number`.
    pub fn node(&self, number: usize, node: NodeId) -> Option<NodeId> {
        self.parts.get(number)?.node(node)
    }

    /// The present place of contiguous nodes of graph `number`, if they are still contiguous: only runs that mix proxies
    /// with nodes of the branch are not.
    pub fn range(&self, number: usize, range: Range) -> Option<Range> {
        self.parts.get(number)?.range(range)
    }

    /// The nodes of each graph.
    pub fn parts(&self) -> &[Spliced] {
        &self.parts
    }
}

/// The new places of the nodes of one graph.
#[derive(Debug)]
pub struct Spliced {
    /// New number of node 0 if all nodes moved by the same distance.
    first: u32,
    /// The previous number of nodes.
    len: u32,
    /// The new number of each node, unless all moved by the same distance.
    map: Vec<u32>,
}

impl Spliced {
    /// The present number of a node.
    pub fn node(&self, node: NodeId) -> Option<NodeId> {
        (node.0 < self.len).then(|| NodeId(self.number(node.0)))
    }

    /// The present place of contiguous nodes, if they are still contiguous.
    pub fn range(&self, range: Range) -> Option<Range> {
        let exists = u64::from(range.start) + u64::from(range.len) <= u64::from(self.len);
        if !exists || range.is_empty() {
            return None;
        }
        self.contiguous(range.start, range.len).map(|start| Range { start, ..range })
    }

    /// The new numbers of nodes that all moved by the same distance.
    fn whole(&self) -> Spliced {
        Spliced { first: self.first, len: self.len, map: Vec::new() }
    }

    #[inline(always)]
    fn number(&self, old: u32) -> u32 {
        if self.map.is_empty() { self.first + old } else { self.map[old as usize] }
    }

    #[inline]
    fn contiguous(&self, start: u32, len: u32) -> Option<u32> {
        let first = self.number(start);
        let stays = self.map.is_empty() || (1..len).all(|k| self.number(start + k) == first + k);
        stays.then_some(first)
    }
}

/// Nodes in one wide comparison.
const CHUNK: usize = 64;

/// Without an early exit, so that it compiles to one wide comparison.
fn is_all(ops: &[Op], op: Op) -> bool {
    ops.iter().fold(true, |all, &other| all & (other == op))
}

/// From this number of nodes on, several threads write them.
pub(super) const MANY: u32 = 1 << 14;

impl<S: Scalar> Graph<'_, S> {
    /// Appends other graphs, in this order, on at most `n_threads` threads. Their proxies, made by
    /// [`Imports`](super::Imports), represent nodes of this graph. On an error nothing is appended. Graphs built in
    /// reserved regions of this one are empty afterwards.
    #[optimize(size)]
    pub fn splice(&mut self, graphs: &mut [&mut Graph<'static, S>], n_threads: usize) -> Result<Joined> {
        let (nodes, lists, leaves) = (self.columns.len(), self.extra.len(), self.leaves.len());
        let stores = self.stores.len();
        let joined = self.try_splice(graphs, n_threads);
        if joined.is_err() {
            self.columns.truncate(nodes);
            self.extra.truncate(lists);
            self.leaves.truncate(leaves);
            self.stores.truncate(stores);
            #[cfg(feature = "labels")]
            self.drop_labels_from(nodes);
        }
        joined
    }

    #[optimize(size)]
    fn try_splice(&mut self, graphs: &mut [&mut Graph<'static, S>], n_threads: usize) -> Result<Joined> {
        let frozen = self.columns.len();
        let parts = self.plan(graphs)?;
        let mut spliced = list_for(parts.len(), WHAT)?;
        let n_leaves = parts.iter().map(|part| part.graph.leaves.len() as usize).sum();
        self.leaves.reserve(n_leaves)?;
        let temporaries = parts.iter().map(|part| &part.graph.scratch).chain(&self.spare_temporaries);
        self.reserve_scratch(temporaries.map(Stack::len).max().unwrap_or(0))?;
        let n_nodes = parts.last().map_or(0, |part| part.plan.end - frozen);
        let n_threads = if n_nodes < MANY { 1 } else { n_threads };
        let (are_whole, were_lent) = (parts.iter().all(Incoming::moves_whole), self.columns.is_shared());
        let are_in_place = are_whole && self.columns.are_back(parts.iter().map(|part| &part.graph.columns));
        if !are_in_place {
            self.append_parts(&parts, n_nodes, n_threads)?;
        }
        #[cfg(feature = "labels")]
        self.drop_labels_from(frozen);
        for part in &parts {
            self.leaves.extend(&part.graph.leaves, |node| part.plan.new.number(node))?;
            #[cfg(feature = "labels")]
            self.join_labels(part.graph, &part.plan.new)?;
        }
        let mut sizes = list_for(parts.len(), WHAT)?;
        sizes.extend(parts.iter().map(|part| part.plan.new.len));
        if are_in_place {
            let mut moves = list_for(parts.len(), WHAT)?;
            spliced.extend(parts.iter().map(|part| part.plan.new.whole()));
            moves.extend(parts.into_iter().map(Incoming::into_move));
            self.take_in(graphs, &moves, n_threads)?;
        } else {
            spliced.extend(parts.into_iter().map(|part| part.plan.new));
        }
        if are_whole {
            self.sizes.learn(sizes, were_lent)
        } else {
            self.sizes.forget()
        }
        Ok(Joined { parts: spliced })
    }

    /// The new position of each graph, in sequence.
    #[optimize(size)]
    fn plan<'a>(&mut self, graphs: &'a [&mut Graph<'static, S>]) -> Result<Vec<Incoming<'a, S>>> {
        let frozen = self.columns.len();
        let (mut first, mut leaves, mut lists) = (frozen, self.leaves.len(), self.extra.len());
        let mut parts = list_for(graphs.len(), WHAT)?;
        for graph in graphs {
            let graph: &'a Graph<'static, S> = graph;
            let mut slots = PerSlot::of(0, graph.stores().len())?;
            for (slot, &store) in slots.iter_mut().zip(graph.stores()) {
                *slot = self.slot_of(store)?;
            }
            let plan = SplicePlan::of(graph.topology(), graph.has_proxies, first, frozen)?;
            let part = Incoming { graph, slots, leaves, lists, first, plan };
            first = part.plan.end;
            leaves += graph.leaves.len();
            lists += part.n_lists();
            parts.push(part);
        }
        Ok(parts)
    }

    /// Appends the nodes of all parts; parts whose lists have reserved space are processed in parallel.
    #[optimize(size)]
    fn append_parts(&mut self, parts: &[Incoming<'_, S>], n_nodes: u32, n_threads: usize) -> Result<()> {
        if self.columns.is_shared() && !self.columns.take_back() {
            // Its reserved regions may lie where other graphs are to go.
            self.columns
                .leave(self.columns.len().checked_add(n_nodes).ok_or(Error::IndexExhausted { limit: u32::MAX })?)?;
        }
        let mut starts = list_for(parts.len(), WHAT)?;
        starts.extend(parts.iter().map(Incoming::start));
        let mut lists = self.extra.append_copies(0, parts.iter().map(Incoming::n_lists).sum())?;
        let mut regions = list_for(parts.len(), WHAT)?;
        for part in parts {
            let (region, others) = lists.split_at_mut(part.n_lists());
            regions.push(Mutex::new((region, false)));
            lists = others;
        }
        self.columns.append_pieces(n_threads, &starts, &|k, mut places| {
            let (region, is_done) = &mut *lock(&regions[k]);
            if parts[k].is_beside() {
                let mut lists =
                    Region { old: parts[k].graph.extra.as_slice(), new: region, base: parts[k].lists, len: 0 };
                *is_done = parts[k].renumber(&mut places, &mut lists).is_ok();
            }
        })?;
        let mut scratch = 0;
        // The borrow of the graph's lists ends once offsets replace them.
        let mut left = list_for(parts.len(), WHAT)?;
        left.extend(parts.iter().zip(regions).filter_map(|(part, region)| (!lock(&region).1).then_some(part)));
        for part in left {
            let mut lists = Across { old: part.graph.extra.as_slice(), new: &mut self.extra };
            part.renumber(&mut self.columns, &mut lists)?;
            scratch = scratch.max(part.widest_run());
        }
        // The backward pass gathers a range that is split.
        self.reserve_scratch(2 * scratch)
    }
}

/// A graph that is being joined.
struct Incoming<'a, S: Scalar> {
    graph: &'a Graph<'static, S>,
    plan: SplicePlan,
    slots: Slots,
    /// The number of its first node, first leaf and first operand list in the joined graph.
    first: u32,
    leaves: u32,
    lists: usize,
}

impl<S: Scalar> Incoming<'_, S> {
    /// Whether all nodes move by the same distance, so that operand lists keep their lengths.
    fn moves_whole(&self) -> bool {
        self.plan.new.map.is_empty()
    }

    /// Whether the length of its operand lists is known.
    fn is_beside(&self) -> bool {
        self.moves_whole() || self.graph.extra.len() == 0
    }

    /// The renumbering that remains if its nodes stay in place.
    fn into_move(self) -> Move {
        Move { by: self.first, slots: self.slots, leaves: self.leaves, lists: self.lists }
    }

    fn n_lists(&self) -> usize {
        if self.is_beside() { self.graph.extra.len() } else { 0 }
    }

    /// If all nodes move by the same distance, parts of blocks, i.e. most of a model's nodes, need no renumbering.
    fn start(&self) -> Start<'_, S> {
        let (op, values) = if self.moves_whole() { (Op::Part, self.graph.values()) } else { (Op::Constant, &[][..]) };
        Start { len: self.plan.end - self.first, op, values }
    }

    /// Sets the nodes' operands, and their values if they do not all move by the same distance.
    fn renumber<L: Lists>(&self, nodes: &mut impl Nodes<S>, lists: &mut L) -> std::result::Result<(), L::Refused> {
        let (graph, plan, whole) = (self.graph, &self.plan, self.moves_whole());
        let mut moved = Moved { new: &plan.new, slots: &self.slots, copied: None };
        let mut copies = plan.copies.iter().peekable();
        let ops = graph.columns.ops().chunks(CHUNK).enumerate();
        // If all nodes move by the same distance, chunks of parts are skipped.
        let ops = ops.filter(|(_, chunk)| !(whole && is_all(chunk, Op::Part)));
        let ops = ops.flat_map(|(k, chunk)| chunk.iter().enumerate().map(move |(i, &op)| (k * CHUNK + i, op)));
        for (old, op) in ops {
            if op == Op::Imported || whole && op == Op::Part {
                continue;
            }
            if let Some(copy) = copies.next_if(|copy| copy.first == old as u32) {
                for (&run, at) in copy.places() {
                    self.copy_run(nodes, run, at);
                }
                moved.copied = Some(copy);
            }
            let operands = graph.columns.operands(old as u32);
            let [a, b] = match op {
                Op::Leaf => [self.leaves + operands[0], 0],
                _ => renumber::operands(op, operands, S::LANES, &moved, lists)?,
            };
            let new = plan.new.number(old as u32);
            nodes.set_node(new, op, a, b);
            if !whole {
                nodes.set_value(new, graph.columns.value(old as u32));
            }
        }
        Ok(())
    }

    /// Fills entries from `at` on with a 1 and the products of a range with it: a copy that propagates gradients.
    #[optimize(size)]
    fn copy_run(&self, nodes: &mut impl Nodes<S>, run: Range, at: u32) {
        nodes.set_node(at, Op::Constant, 0, 0);
        nodes.set_value(at, S::lit(1.0));
        for k in 0..run.len {
            nodes.set_node(at + 1 + k, Op::SCALED, self.plan.new.number(run.start + k), at);
            nodes.set_value(at + 1 + k, self.graph.columns.value(run.start + k));
        }
    }

    /// The length of the longest range that a reduction reads.
    #[optimize(size)]
    fn widest_run(&self) -> usize {
        let mut widest = 0;
        for (old, op) in self.graph.columns.ops().iter().enumerate() {
            if !matches!(op.info().arity, Arity::Nullary | Arity::Unary | Arity::Binary) {
                self.graph.for_each_operand(NodeId(old as u32), |run| widest = widest.max(run.len as usize));
            }
        }
        widest
    }
}

/// Nodes whose operands and values are being set.
trait Nodes<S> {
    fn set_node(&mut self, at: u32, op: Op, a: u32, b: u32);
    fn set_value(&mut self, at: u32, value: S);
}

impl<S: Scalar> Nodes<S> for Places<'_, S> {
    #[inline(always)]
    fn set_node(&mut self, at: u32, op: Op, a: u32, b: u32) {
        Places::set_node(self, at, op, a, b);
    }

    #[inline(always)]
    fn set_value(&mut self, at: u32, value: S) {
        Places::set_value(self, at, value);
    }
}

impl<S: Scalar> Nodes<S> for Columns<S> {
    fn set_node(&mut self, at: u32, op: Op, a: u32, b: u32) {
        Columns::set_node(self, at, op, a, b);
    }

    fn set_value(&mut self, at: u32, value: S) {
        Columns::set_value(self, at, value);
    }
}
