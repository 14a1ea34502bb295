//! Work on blocks: the operations of a chain on each block, in order.
//!
//! Promises: no operation writes a block that it reads. Does not know how blocks are computed.

use std::collections::{HashMap, HashSet};

use super::super::expansion::MathOp;
use super::math::{BlockOp, arity};
use crate::kernels::{OneOfTwo, Two};
use crate::ops::Function;
use crate::simd::twins::Twins;

/// Numbers that an operation reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Arg {
    Block(usize),
    Stream(usize),
    /// The part of a buffer that this chain has written.
    Buffer(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Compute {
        op: BlockOp,
        to: usize,
        of: [Arg; 3],
    },
    /// The same into a buffer.
    Keep {
        op: BlockOp,
        buffer: usize,
        of: [Arg; 3],
    },
    /// Two functions of the same numbers that share most of their work.
    Twins {
        twins: Twins,
        functions: [Function; 2],
        of: Arg,
        to: [Arg; 2],
    },
    Gather {
        stream: usize,
        to: usize,
    },
    /// One number for each row of so many numbers of the block.
    GatherRows {
        stream: usize,
        row: usize,
        to: usize,
    },
    /// Numbers of a short array by place.
    Lookup {
        stream: usize,
        places: usize,
        to: usize,
    },
    /// What the largest numbers of rows receive of adjoints of these, or the smallest ones: adjoint and extreme for each row.
    Shares {
        of: [Arg; 3],
        row: usize,
        to: usize,
    },
    Store {
        of: Arg,
        buffer: usize,
    },
    /// Writes every `step`-th number of a buffer, from `first` on.
    Spread {
        of: Arg,
        buffer: usize,
        first: usize,
        step: usize,
    },
    /// Adds to numbers of a short array by place.
    Scatter {
        of: Arg,
        places: usize,
        buffer: usize,
    },
    Reduce {
        of: Arg,
        reducer: usize,
        buffer: usize,
    },
}

impl Work {
    /// The block that it writes.
    fn to(&mut self) -> Option<&mut usize> {
        match self {
            Work::Compute { to, .. } | Work::Gather { to, .. } | Work::GatherRows { to, .. } => Some(to),
            Work::Lookup { to, .. } | Work::Shares { to, .. } => Some(to),
            Work::Keep { .. }
            | Work::Twins { .. }
            | Work::Store { .. }
            | Work::Spread { .. }
            | Work::Scatter { .. }
            | Work::Reduce { .. } => None,
        }
    }

    /// What it reads.
    fn of(&mut self) -> &mut [Arg] {
        match self {
            Work::Compute { op, of, .. } | Work::Keep { op, of, .. } => &mut of[..arity(*op)],
            Work::Shares { of, .. } => of,
            Work::Gather { .. } | Work::GatherRows { .. } | Work::Lookup { .. } => &mut [],
            Work::Store { of, .. }
            | Work::Twins { of, .. }
            | Work::Spread { of, .. }
            | Work::Scatter { of, .. }
            | Work::Reduce { of, .. } => std::slice::from_mut(of),
        }
    }
}

/// The work, with its numbers, without operations whose blocks nothing reads; and which of it reads a block last.
pub(super) fn live(work: Vec<Work>, blocks: usize) -> (Vec<(usize, Work)>, Vec<Option<usize>>) {
    let mut last = vec![None; blocks];
    let mut kept = Vec::with_capacity(work.len());
    for (at, mut work) in work.into_iter().enumerate().rev() {
        if work.to().is_some_and(|to| last[*to].is_none()) {
            continue;
        }
        for arg in work.of() {
            if let Arg::Block(k) = arg {
                last[*k].get_or_insert(at);
            }
        }
        kept.push((at, work));
    }
    kept.reverse();
    (kept, last)
}

/// How often each block is read.
fn reads(work: &[Work], blocks: usize) -> Vec<usize> {
    let mut count = vec![0; blocks];
    for mut work in work.iter().copied() {
        for arg in work.of() {
            if let Arg::Block(k) = arg {
                count[*k] += 1;
            }
        }
    }
    count
}

/// The same work with two operations in one pass, where nothing but the second reads the result of the first: half of the blocks are
/// neither written nor read.
pub(super) fn in_pairs(mut work: Vec<Work>, blocks: usize) -> Vec<Work> {
    let count = reads(&work, blocks);
    let mut made: HashMap<usize, (usize, OneOfTwo, [Arg; 2])> = HashMap::new();
    let mut is_gone = vec![false; work.len()];
    for (at, work) in work.iter_mut().enumerate() {
        let Work::Compute { op, to, of } = *work else { continue };
        let first = (0..arity(op).min(2)).find_map(|side| match of[side] {
            Arg::Block(k) if count[k] == 1 => made.get(&k).map(|first| (side, *first)),
            _ => None,
        });
        if let (Some(second), Some((side, (gone, first, [x, y])))) = (as_second(op), first) {
            is_gone[gone] = true;
            let two = BlockOp::Two(Two { first, second, to_right: side == 1 });
            *work = Work::Compute { op: two, to, of: [x, y, of[1 - side]] };
        } else if let Some(first) = as_first(op) {
            made.insert(to, (at, first, [of[0], of[arity(op) - 1]]));
        }
    }
    let mut is_gone = is_gone.into_iter();
    work.retain(|_| is_gone.next() != Some(true));
    work
}

/// The operation as the first of two.
pub(super) fn as_first(op: BlockOp) -> Option<OneOfTwo> {
    Some(match op {
        BlockOp::Math(MathOp::Add) => OneOfTwo::Add,
        BlockOp::Math(MathOp::Sub) => OneOfTwo::Sub,
        BlockOp::Math(MathOp::Mul) => OneOfTwo::Mul,
        BlockOp::Math(MathOp::Neg) => OneOfTwo::Neg,
        BlockOp::Product => OneOfTwo::Product,
        _ => return None,
    })
}

/// The operation as the second of two.
pub(super) fn as_second(op: BlockOp) -> Option<OneOfTwo> {
    match op {
        BlockOp::Contribution => Some(OneOfTwo::Contribution),
        BlockOp::Math(MathOp::Neg) => None,
        op => as_first(op),
    }
}

/// The same work with one operation for the product of an adjoint and a factor and the contribution that is made of it, where
/// nothing else reads the product.
pub(super) fn fused(work: Vec<Work>, blocks: usize) -> Vec<Work> {
    let count = reads(&work, blocks);
    let mut result: Vec<Work> = Vec::with_capacity(work.len());
    for work in work {
        if let Work::Compute { op: BlockOp::Contribution, to, of: [g, c, _] } = work
            && let Some(&Work::Compute { op: BlockOp::Math(MathOp::Mul), to: product, of: [x, y, _] }) = result.last()
            && (c, x, count[product]) == (Arg::Block(product), g, 1)
        {
            result.pop();
            result.push(Work::Compute { op: BlockOp::Product, to, of: [g, y, g] });
            continue;
        }
        result.push(work);
    }
    result
}

/// The same work with results computed where they are stored, rather than copied there: not into a buffer that the chain reads.
pub(super) fn kept_in_place(mut work: Vec<Work>, is_read: impl Fn(usize) -> bool) -> Vec<Work> {
    let mut stored: HashMap<usize, usize> = HashMap::new();
    for work in &work {
        if let Work::Store { of: Arg::Block(k), buffer } = *work
            && !is_read(buffer)
        {
            stored.entry(k).or_insert(buffer);
        }
    }
    let computed = work.iter().filter_map(|work| if let Work::Compute { to, .. } = work { Some(*to) } else { None });
    let computed: HashSet<_> = computed.collect();
    stored.retain(|k, _| computed.contains(k));
    work.retain(|work| !matches!(work, Work::Store { of: Arg::Block(k), buffer } if stored.get(k) == Some(buffer)));
    for work in &mut work {
        for arg in work.of() {
            if let Arg::Block(k) = *arg
                && let Some(&buffer) = stored.get(&k)
            {
                *arg = Arg::Buffer(buffer);
            }
        }
        if let Work::Compute { op, to, of } = *work
            && let Some(&buffer) = stored.get(&to)
        {
            *work = Work::Keep { op, buffer, of };
        }
    }
    work
}

/// The same work without operations whose blocks nothing reads, in as few blocks as their lifetimes allow.
pub(super) fn with_few_blocks(
    work: Vec<Work>,
    mut repeated: Vec<(usize, usize)>,
    blocks: usize,
) -> (Vec<Work>, Vec<(usize, usize)>, usize) {
    let (kept, last) = live(work, blocks);
    repeated.retain(|(_, to)| last[*to].is_some());
    // Those that are filled once a run stay.
    let mut new = vec![usize::MAX; blocks];
    for (k, (_, to)) in repeated.iter_mut().enumerate() {
        new[*to] = k;
        *to = k;
    }
    let fixed = repeated.len();
    let mut count = fixed;
    let mut free: Vec<usize> = Vec::new();
    let mut result = Vec::with_capacity(kept.len());
    for (at, mut work) in kept {
        let read = work.of().to_vec();
        // What it gives back: an operand may come twice.
        let mut given = free.len();
        for arg in work.of() {
            if let Arg::Block(k) = arg {
                *k = new[*k];
            }
        }
        if let Some(to) = work.to() {
            // Taken before operands are given back: no operation writes what it reads.
            let block = free.pop().unwrap_or_else(|| {
                count += 1;
                count - 1
            });
            given = free.len();
            new[*to] = block;
            *to = block;
        }
        for arg in read {
            if let Arg::Block(k) = arg
                && last[k] == Some(at)
                && new[k] >= fixed
                && !free[given..].contains(&new[k])
            {
                free.push(new[k]);
            }
        }
        result.push(work);
    }
    (result, repeated, count)
}
