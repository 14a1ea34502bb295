//! Renumbered operands: for reclaim within one graph, and for joining a branch to its parent.
//!
//! Promises: every kind of operand is renumbered here and nowhere else. Nodes, slots and side arrays are given by the caller,
//! which renumbers leaves itself.

use super::PerSlot;
use super::block::{Field, Layout, block_layout};
use super::operands::{Encoded, InnerOperands};
use crate::ops::{Arity, Op};

/// New numbers of slots.
pub(super) type Slots = PerSlot<u32>;

/// The largest number of operand lists in a record.
const MAX_LISTS: usize = 8;

/// The new number of each node.
pub(super) trait Numbers {
    /// Whether contiguous nodes may become separate.
    const PARTS_RUNS: bool;

    /// The new number of a node.
    fn node(&self, old: u32) -> u32;

    /// The new number of the first of contiguous nodes, if they are contiguous in the new numbers too.
    fn run(&self, start: u32, len: u32) -> Option<u32>;

    /// The first of contiguous nodes of a block, which must stay contiguous.
    fn block_run(&self, start: u32) -> u32 {
        self.node(start)
    }

    /// The new number of each slot of parameters.
    fn slots(&self) -> &[u32];
}

/// Operand lists that are read in one place and written in another; the two may be one array, written behind the part
/// still to be read.
pub(super) trait Lists {
    /// The error if the lists do not fit.
    type Refused;

    /// The source.
    fn old(&self) -> &[u32];

    /// The start of the target among the lists of the graph.
    fn base(&self) -> usize {
        0
    }

    /// Copies `n` numbers to the end of the target. Returns their new place in it.
    fn bring(&mut self, from: usize, n: usize) -> Result<usize, Self::Refused>;

    /// The target.
    fn new_mut(&mut self) -> &mut [u32];

    /// Appends new numbers, and returns their place: runs that are no longer contiguous.
    fn append(&mut self, numbers: [u32; 3]) -> Result<usize, Self::Refused>;
}

/// The operands of a node, other than a leaf, in new numbers; of a graph with this many lanes.
#[inline(always)]
pub(super) fn operands<L: Lists>(
    op: Op,
    [a, b]: [u32; 2],
    lanes: usize,
    numbers: &impl Numbers,
    lists: &mut L,
) -> Result<[u32; 2], L::Refused> {
    match op.info().arity {
        Arity::Unary => Ok([numbers.node(a), 0]),
        Arity::Binary | Arity::WithConstant => Ok([numbers.node(a), numbers.node(b)]),
        _ => other_operands(op, [a, b], lanes, numbers, lists),
    }
}

/// For ops with a variable number of operands; compiled once for all scalar types.
#[inline(never)]
fn other_operands<L: Lists>(
    op: Op,
    [a, b]: [u32; 2],
    lanes: usize,
    numbers: &impl Numbers,
    lists: &mut L,
) -> Result<[u32; 2], L::Refused> {
    Ok(match op.info().arity {
        Arity::Reduction => {
            let moved = encoded(Encoded(a, b), numbers, lists)?;
            [moved.0, moved.1]
        }
        Arity::InnerProduct => {
            let inner = InnerOperands::read(lists.old(), a);
            let moved = InnerOperands {
                x: encoded(inner.x, numbers, lists)?,
                w: encoded(inner.w, numbers, lists)?,
                bias: if op != Op::InnerProduct { numbers.node(inner.bias) } else { 0 },
            };
            let at = lists.bring(a as usize, InnerOperands::LEN)?;
            lists.new_mut()[at..at + InnerOperands::LEN].copy_from_slice(&moved.write());
            [(lists.base() + at) as u32, 0]
        }
        Arity::Block => [record(block_layout(lists.old(), op, a, lanes), a as usize, numbers, lists)?, 0],
        _ => match op {
            Op::Param | Op::FrozenParam => [a, numbers.slots()[b as usize]],
            _ => [a, b],
        },
    })
}

/// Operands that are a list or a range.
fn encoded<N: Numbers, L: Lists>(operands: Encoded, numbers: &N, lists: &mut L) -> Result<Encoded, L::Refused> {
    if N::PARTS_RUNS {
        let mut stays = true;
        operands.for_each_run(lists.old(), |run| {
            stays = stays && (run.source > 0 || run.len == 1 || numbers.run(run.start, run.len).is_some());
        });
        if !stays {
            return in_pieces(operands, numbers, lists);
        }
    }
    if let Some(run) = operands.contiguous() {
        return Ok(Encoded(numbers.node(run.start), operands.1));
    }
    let n = operands.stored_len();
    let at = lists.bring(operands.0 as usize, n)?;
    operands.renumber(&mut lists.new_mut()[at..at + n], |node| numbers.node(node), numbers.slots());
    Ok(Encoded((lists.base() + at) as u32, operands.1))
}

/// The operands as a list of views, one per range that is contiguous in the new numbers.
#[cold]
fn in_pieces<L: Lists>(operands: Encoded, numbers: &impl Numbers, lists: &mut L) -> Result<Encoded, L::Refused> {
    let (mut first, mut n_views) = (0, 0);
    let mut push = |lists: &mut L, view: [u32; 3]| {
        let at = lists.append(view)?;
        first = if n_views == 0 { lists.base() + at } else { first };
        n_views += 1;
        Ok(())
    };
    let mut runs = 0..;
    while let Some(run) = runs.next().and_then(|k| operands.run(k, lists.old())) {
        if run.source > 0 {
            push(lists, [numbers.slots()[run.source as usize - 1] + 1, run.start, run.len])?;
            continue;
        }
        let mut start = run.start;
        while start < run.start + run.len {
            let mut n = 1;
            while start + n < run.start + run.len && numbers.node(start + n) == numbers.node(start) + n {
                n += 1;
            }
            push(lists, [0, numbers.node(start), n])?;
            start += n;
        }
    }
    Ok(Encoded::views(first as u32, n_views))
}

/// A block's record, at `at` in the old lists. Returns its new position.
fn record<L: Lists>(layout: Layout, at: usize, numbers: &impl Numbers, lists: &mut L) -> Result<u32, L::Refused> {
    let mut moved = [Encoded(0, 0); MAX_LISTS];
    // Lists lie before the record, so writing never overtakes reading.
    for (field, moved) in layout.lists().zip(&mut moved) {
        let operands = Encoded(lists.old()[at + field], lists.old()[at + field + 1]);
        *moved = encoded(operands, numbers, lists)?;
    }
    let to = lists.bring(at, layout.len)?;
    let record = &mut lists.new_mut()[to..to + layout.len];
    for (field, moved) in layout.lists().zip(moved) {
        (record[field], record[field + 1]) = (moved.0, moved.1);
    }
    for field in layout.fields {
        match *field {
            // The first number of a record is the block's own first output.
            Field::Node(0) => record[0] = numbers.node(record[0]),
            Field::Node(k) => record[k] = numbers.block_run(record[k]),
            Field::Slot(k) => record[k] = numbers.slots()[record[k] as usize],
            Field::Source(k) if record[k] > 0 => record[k] = numbers.slots()[record[k] as usize - 1] + 1,
            Field::Source(_) | Field::Operands(_) | Field::Op(_) => {}
            Field::Runs { count, from } => {
                let n = record[count] as usize;
                for run in record[from..from + 3 * n].as_chunks_mut::<3>().0 {
                    match run[0] {
                        0 => run[1] = numbers.block_run(run[1]),
                        source => run[0] = numbers.slots()[source as usize - 1] + 1,
                    }
                }
            }
        }
    }
    Ok((lists.base() + to) as u32)
}
