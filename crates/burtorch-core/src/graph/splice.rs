//! Joining: graphs that were built beside a frozen one become part of it, one after another.
//!
//! Promises: an error appends nothing; proxies vanish, whoever read one reads the node it stood for; values, leaf
//! gradients and the order of operands stay as they were. Sums of the operands of a node keep their order, so a joined
//! graph has the bits of one that was built in a single piece.

use super::block::Field;
use super::memory::Stack;
use super::renumber::{self, Lists, Numbers, Slots};
use super::{BlockHeader, Graph, MAX_STORES, NodeId, Range};
use crate::error::{Error, Result};
use crate::ops::{Arity, Op};
use crate::scalar::Scalar;

/// Where the nodes of several graphs went that were joined to one.
#[derive(Debug)]
pub struct Joined {
    parts: Vec<Spliced>,
}

impl Joined {
    /// Where node `node` of graph (or branch) `number` is now.
    pub fn node(&self, number: usize, node: NodeId) -> Option<NodeId> {
        self.parts.get(number)?.node(node)
    }

    /// Where contiguous nodes of graph `number` are now, if they still are contiguous: they are but for runs that mix
    /// proxies with nodes of the branch.
    pub fn range(&self, number: usize, range: Range) -> Option<Range> {
        self.parts.get(number)?.range(range)
    }

    /// The nodes of each graph.
    pub fn parts(&self) -> &[Spliced] {
        &self.parts
    }
}

/// Where the nodes of one graph went.
#[derive(Debug)]
pub struct Spliced {
    /// New number of node 0 if all nodes moved alike.
    first: u32,
    /// How many nodes there were.
    len: u32,
    /// The new number of each node, unless all moved alike.
    map: Vec<u32>,
}

impl Spliced {
    /// Where a node is now.
    pub fn node(&self, node: NodeId) -> Option<NodeId> {
        (node.0 < self.len).then(|| NodeId(self.number(node.0)))
    }

    /// Where contiguous nodes are now, if they still are contiguous.
    pub fn range(&self, range: Range) -> Option<Range> {
        let exists = u64::from(range.start) + u64::from(range.len) <= u64::from(self.len);
        if !exists || range.is_empty() {
            return None;
        }
        self.contiguous(range.start, range.len).map(|start| Range { start, ..range })
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

/// What one graph adds to another.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    nodes: usize,
    lists: usize,
    leaves: usize,
    scratch: usize,
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends other graphs, in this order. Their proxies, which [`Imports`](super::Imports) made, stand for nodes that
    /// this graph has now. On an error nothing is appended.
    pub fn splice<'a>(&mut self, graphs: impl Iterator<Item = &'a Graph<'static, S>> + Clone) -> Result<Joined> {
        let (nodes, lists, leaves) = (self.columns.len(), self.extra.len(), self.leaves.len());
        let stores = self.n_stores;
        let joined = self.try_splice(graphs);
        if joined.is_err() {
            self.columns.truncate(nodes);
            self.extra.truncate(lists);
            self.leaves.truncate(leaves);
            self.n_stores = stores;
            #[cfg(feature = "labels")]
            self.drop_labels_from(nodes);
        }
        joined
    }

    fn try_splice<'a>(&mut self, graphs: impl Iterator<Item = &'a Graph<'static, S>> + Clone) -> Result<Joined> {
        let mut room = Room::default();
        for graph in graphs.clone() {
            room.nodes += graph.len();
            room.lists += graph.extra.len();
            room.leaves += graph.leaves.len() as usize;
            room.scratch = room.scratch.max(graph.scratch.len());
        }
        self.room_for(room.nodes)?;
        self.extra.reserve(room.lists)?;
        self.leaves.reserve(room.leaves)?;
        self.reserve_scratch(room.scratch)?;
        let frozen = self.columns.len();
        let parts: Vec<Spliced> = graphs.clone().map(|graph| self.splice_one(graph, frozen)).collect::<Result<_>>()?;
        #[cfg(feature = "labels")]
        for (graph, part) in graphs.zip(&parts) {
            self.join_labels(graph, part)?;
        }
        Ok(Joined { parts })
    }

    fn splice_one(&mut self, graph: &Graph<'static, S>, frozen: u32) -> Result<Spliced> {
        let mut slots = [0; MAX_STORES];
        for (slot, &store) in slots.iter_mut().zip(graph.stores()) {
            *slot = self.slot_of(store)?;
        }
        let plan = Plan::of(graph, self.columns.len(), frozen)?;
        let n = plan.end - self.columns.len();
        self.columns.reserve(n)?;
        let leaves = self.leaves.len();
        // Where all nodes move alike, parts of blocks, which are most of a model's nodes, need no look of their own.
        let moves_whole = plan.new.map.is_empty();
        let first =
            self.columns.push_many_reserved(if moves_whole { Op::Part } else { Op::Constant }, n, true) as usize;
        if moves_whole {
            self.columns.values_mut()[first..].copy_from_slice(graph.values());
        }
        let mut moved = Moved { new: &plan.new, slots: &slots, copied: Vec::new() };
        let mut lists = Across { old: graph.extra.as_slice(), new: &mut self.extra };
        let mut copies = plan.copies.iter().peekable();
        let mut scratch = 0;
        for (old, &op) in graph.columns.ops().iter().enumerate() {
            if op == Op::Imported || moves_whole && op == Op::Part {
                continue;
            }
            if let Some(copy) = copies.next_if(|copy| copy.first == old as u32) {
                moved.copied.clear();
                for (&run, at) in copy.runs.iter().zip(copy.places()) {
                    self.columns.copy_of_run(run, at, &plan.new);
                    moved.copied.push((run.start, at + 1));
                }
            }
            let operands = graph.columns.operands(old as u32);
            let [a, b] = match op {
                Op::Leaf => [leaves + operands[0], 0],
                _ => renumber::operands::<S, _>(op, operands, &moved, &mut lists)?,
            };
            let new = plan.new.number(old as u32);
            self.columns.set_node(new, op, a, b);
            if moves_whole {
                continue;
            }
            self.columns.set_value(new, graph.columns.value(old as u32));
            if !matches!(op.info().arity, Arity::Nullary | Arity::Unary | Arity::Binary) {
                // A run that parts is gathered by sweeps.
                graph.for_each_operand(NodeId(old as u32), |run| scratch = scratch.max(2 * run.len as usize));
            }
        }
        self.leaves.extend(&graph.leaves, |node| plan.new.number(node))?;
        self.reserve_scratch(scratch)?;
        Ok(plan.new)
    }
}

impl<S: Scalar> super::columns::Columns<S> {
    /// Fills the places from `at` with a 1 and the products of a run with it, and so with the run's values: a copy
    /// through which gradients flow.
    fn copy_of_run(&mut self, run: Range, at: u32, new: &Spliced) {
        self.set_node(at, Op::Constant, 0, 0);
        self.set_value(at, S::lit(1.0));
        for k in 0..run.len {
            let x = new.number(run.start + k);
            self.set_node(at + 1 + k, Op::MulByConstant, x, at);
            self.set_value(at + 1 + k, self.value(x));
        }
    }
}

/// What becomes of the nodes of one graph.
struct Plan {
    new: Spliced,
    /// Blocks that read a run which parts: they read a copy.
    copies: Vec<Copies>,
    /// The new length.
    end: u32,
}

/// The copies that stand before a block.
struct Copies {
    /// The block's first output.
    first: u32,
    /// What is copied.
    runs: Vec<Range>,
    /// Where the copies begin.
    at: u32,
}

impl Copies {
    /// Where the copy of each run begins: with the 1.
    fn places(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().scan(self.at, |at, run| {
            let place = *at;
            *at += 1 + run.len;
            Some(place)
        })
    }
}

impl Plan {
    /// Nodes from `first` on; proxies stand for nodes below `frozen`.
    fn of<S: Scalar>(graph: &Graph<'static, S>, first: u32, frozen: u32) -> Result<Plan> {
        let ops = graph.columns.ops();
        let mut new = Spliced { first, len: ops.len() as u32, map: Vec::new() };
        let mut copies = Vec::new();
        if !ops.contains(&Op::Imported) {
            let end = first + new.len;
            return Ok(Plan { new, copies, end });
        }
        let refused = |_| Error::OutOfMemory { bytes: ops.len() * 4, what: "numbers of joined nodes" };
        new.map.try_reserve_exact(ops.len()).map_err(refused)?;
        let mut end = first;
        let mut starts_block = true;
        for (old, &op) in ops.iter().enumerate() {
            if op == Op::Imported {
                let [node, _] = graph.columns.operands(old as u32);
                if node >= frozen {
                    return Err(Error::NoSuchNode { index: node, len: frozen });
                }
                new.map.push(node);
                starts_block = true;
                continue;
            }
            if starts_block && (op == Op::Part || op.info().arity == Arity::Block) {
                let runs = graph.parted_runs(old as u32, &new);
                if !runs.is_empty() {
                    let n: u32 = runs.iter().map(|run| 1 + run.len).sum();
                    copies.push(Copies { first: old as u32, runs, at: end });
                    end = end.checked_add(n).ok_or(Error::IndexExhausted { limit: u32::MAX })?;
                }
            }
            starts_block = op != Op::Part;
            new.map.push(end);
            end += 1;
        }
        Ok(Plan { new, copies, end })
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// The runs that the block with this first output needs contiguous and that are not in the new numbers.
    fn parted_runs(&self, first: u32, new: &Spliced) -> Vec<Range> {
        let mut parted: Vec<Range> = Vec::new();
        let Some(tail) = self.block_tail(first) else { return parted };
        let (op, at) = (self.columns.op(tail), self.columns.operands(tail)[0]);
        debug_assert_eq!(BlockHeader::read(self.extra.as_slice(), at).first, first);
        let layout = Self::block_layout(self.extra.as_slice(), op, at);
        let record = &self.extra.as_slice()[at as usize..at as usize + layout.len];
        self.for_each_operand(NodeId(tail), |run| {
            let is_named =
                layout.fields.iter().any(|f| matches!(*f, Field::Node(k) if k > 0 && record[k] == run.start));
            if run.source == 0 && is_named && new.contiguous(run.start, run.len).is_none() {
                match parted.iter_mut().find(|other| other.start == run.start) {
                    Some(other) => other.len = other.len.max(run.len),
                    None => parted.push(Range { start: run.start, len: run.len }),
                }
            }
        });
        parted
    }
}

/// The numbers of joined nodes.
struct Moved<'a> {
    new: &'a Spliced,
    slots: &'a Slots,
    /// For the block in hand: the first node of a run, and that of its copy.
    copied: Vec<(u32, u32)>,
}

impl Numbers for Moved<'_> {
    const PARTS_RUNS: bool = true;

    #[inline(always)]
    fn node(&self, old: u32) -> u32 {
        self.new.number(old)
    }

    #[inline]
    fn run(&self, start: u32, len: u32) -> Option<u32> {
        self.new.contiguous(start, len)
    }

    fn block_run(&self, start: u32) -> u32 {
        let copy = self.copied.iter().find(|(run, _)| *run == start);
        copy.map_or_else(|| self.node(start), |&(_, copy)| copy)
    }

    fn slots(&self) -> &Slots {
        self.slots
    }
}

/// Operand lists that go from one graph to another.
struct Across<'a> {
    old: &'a [u32],
    new: &'a mut Stack<u32>,
}

impl Across<'_> {
    fn extend(&mut self, numbers: &[u32]) -> Result<usize> {
        let at = self.new.len();
        self.new.reserve(numbers.len())?;
        for &number in numbers {
            self.new.push_reserved(number);
        }
        Ok(at)
    }
}

impl Lists for Across<'_> {
    type Refused = Error;

    fn old(&self) -> &[u32] {
        self.old
    }

    fn bring(&mut self, from: usize, n: usize) -> Result<usize> {
        let old = self.old;
        self.extend(&old[from..from + n])
    }

    fn new_mut(&mut self) -> &mut [u32] {
        self.new.as_mut_slice()
    }

    fn append(&mut self, numbers: [u32; 3]) -> Result<usize> {
        self.extend(&numbers)
    }
}
