//! The new numbers of the nodes of a joined graph, and the copies before blocks whose operands are split.

use super::{Spliced, WHAT};
use crate::error::{Error, Result};
use crate::graph::block::Field;
use crate::graph::renumber::{Numbers, Slots};
use crate::graph::{BlockHeader, Range, Topology};
use crate::memory::{list_for, reserve_in};
use crate::ops::{Arity, Op};

/// The plan for joining the nodes of one graph.
pub(super) struct SplicePlan {
    pub(super) new: Spliced,
    /// Blocks that read a range which is split: they read a copy.
    pub(super) copies: Vec<Copies>,
    /// The length after joining.
    pub(super) end: u32,
}

/// The copies that precede a block.
pub(super) struct Copies {
    /// The block's first output.
    pub(super) first: u32,
    /// The copied ranges.
    pub(super) runs: Vec<Range>,
    /// The node number of the first copy.
    pub(super) at: u32,
}

impl Copies {
    /// The ranges, and the start of the copy of each, at its 1.
    pub(super) fn places(&self) -> impl Iterator<Item = (&Range, u32)> {
        self.runs.iter().scan(self.at, |at, run| {
            let place = *at;
            *at += 1 + run.len;
            Some((run, place))
        })
    }
}

impl SplicePlan {
    /// Plans nodes from `first` on; proxies stand for nodes below `frozen`.
    pub(super) fn of(graph: Topology<'_>, has_proxies: bool, first: u32, frozen: u32) -> Result<SplicePlan> {
        let ops = graph.ops;
        let mut new = Spliced { first, len: ops.len() as u32, map: Vec::new() };
        let mut copies = Vec::new();
        if !has_proxies {
            let end = first + new.len;
            return Ok(SplicePlan { new, copies, end });
        }
        new.map = list_for(ops.len(), WHAT)?;
        let mut end = first;
        let mut starts_block = true;
        for (old, &op) in ops.iter().enumerate() {
            if op == Op::Imported {
                let [node, _] = graph.operands[old];
                if node >= frozen {
                    return Err(Error::NoSuchNode { index: node, len: frozen });
                }
                new.map.push(node);
                starts_block = true;
                continue;
            }
            if starts_block && (op == Op::Part || op.info().arity == Arity::Block) {
                let runs = parted_runs(graph, old as u32, &new)?;
                if !runs.is_empty() {
                    reserve_in(&mut copies, 1, WHAT)?;
                    let n: u32 = runs.iter().map(|run| 1 + run.len).sum();
                    copies.push(Copies { first: old as u32, runs, at: end });
                    end = end.checked_add(n).ok_or(Error::IndexExhausted { limit: u32::MAX })?;
                }
            }
            starts_block = op != Op::Part;
            new.map.push(end);
            end += 1;
        }
        Ok(SplicePlan { new, copies, end })
    }
}

/// The ranges that the block with this first output needs contiguous and that are split in the new numbers.
fn parted_runs(graph: Topology<'_>, first: u32, new: &Spliced) -> Result<Vec<Range>> {
    let mut parted: Vec<Range> = Vec::new();
    let mut is_noted = Ok(());
    let Some(tail) = graph.block_tail(first) else { return Ok(parted) };
    let (op, at) = (graph.op(tail), graph.operands[tail as usize][0]);
    debug_assert_eq!(BlockHeader::read(graph.extra, at).first, first);
    let layout = graph.block_layout(op, at);
    let record = &graph.extra[at as usize..at as usize + layout.len];
    graph.for_each_operand_of_any(tail, &mut |run| {
        let is_named = layout.fields.iter().any(|f| matches!(*f, Field::Node(k) if k > 0 && record[k] == run.start));
        if run.source == 0 && is_named && new.contiguous(run.start, run.len).is_none() {
            match parted.iter_mut().find(|other| other.start == run.start) {
                Some(other) => other.len = other.len.max(run.len),
                None if is_noted.is_err() => {}
                None => match reserve_in(&mut parted, 1, WHAT) {
                    Ok(()) => parted.push(Range { start: run.start, len: run.len }),
                    refused => is_noted = refused,
                },
            }
        }
    });
    is_noted.map(|()| parted)
}

/// The new numbers of joined nodes.
pub(super) struct Moved<'a> {
    pub(super) new: &'a Spliced,
    pub(super) slots: &'a Slots,
    /// The copies that the current block reads.
    pub(super) copied: Option<&'a Copies>,
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
        let mut copies = self.copied.into_iter().flat_map(Copies::places);
        let copy = copies.find(|(run, _)| run.start == start);
        copy.map_or_else(|| self.node(start), |(_, at)| at + 1)
    }

    fn slots(&self) -> &[u32] {
        self.slots
    }
}
