//! Checks of a graph's structure: operands, lists and parameters, each only where a node may have them.
//!
//! Promises: a list is used once, in the order of nodes, without gaps. Does not know ops; an error completes "node k ...".

use super::operands::Encoded;
use super::slots::PerSlot;
use crate::error::Result;
use crate::kernels::slices::slice_kernels;
use crate::ops::Op;
use crate::scalar::Scalar;

/// The error in a node; completes "node k ...".
pub(crate) type Fault = String;
/// The result of a check.
pub(crate) type Checked<T = ()> = std::result::Result<T, Fault>;

/// Checks nodes in order.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    /// Stored ops by their number.
    names: &'a [Op],
    /// The operand lists; stored ops are translated as their nodes are checked.
    pub(super) extra: &'a mut [u32],
    /// Lanes per scalar.
    pub(super) lanes: usize,
    n_stores: usize,
    /// Whether scalars of the graph's type have kernels.
    has_kernels: bool,
    /// The first number of the operand lists that no node has used yet.
    next: usize,
    /// Parts since the last node of another kind.
    pub(super) n_parts: u32,
    /// Consecutive constants up to here, or up to the parts that follow them.
    pub(super) n_constants: u32,
    pub(super) n_leaves: u32,
    extents: PerSlot<u64>,
    temporaries: usize,
}

/// Requirements of a structure besides its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Needs {
    /// For each slot, how many parameters are read.
    pub(crate) extents: PerSlot<u64>,
    /// The number of leaves.
    pub(super) n_leaves: u32,
    pub(super) temporaries: usize,
}

impl<'a> Check<'a> {
    pub(crate) fn new<S: Scalar>(names: &'a [Op], extra: &'a mut [u32], n_stores: usize) -> Result<Self> {
        let extents = PerSlot::of(0, n_stores)?;
        let (n_parts, n_constants, n_leaves) = (0, 0, 0);
        let (lanes, has_kernels) = (S::LANES, slice_kernels::<S>().is_some());
        Ok(Check {
            names,
            extra,
            lanes,
            n_stores,
            has_kernels,
            next: 0,
            n_parts,
            n_constants,
            n_leaves,
            extents,
            temporaries: 0,
        })
    }

    /// Checks that `len` nodes from `start` lie below `limit`, at least one.
    pub(super) fn run(&self, start: u32, len: u32, limit: u32) -> Checked {
        if len > 0 && u64::from(start) + u64::from(len) <= u64::from(limit) {
            return Ok(());
        }
        Err(format!("reads {len} nodes from {start}, expected at least one, all below {limit}"))
    }

    /// Records that `len` parameters of a slot are read from `start`.
    pub(super) fn parameters(&mut self, slot: u32, start: u64, len: u64) -> Checked {
        if slot as usize >= self.n_stores {
            return Err(format!("reads parameters number {slot} of {}", self.n_stores));
        }
        let extent = &mut self.extents[slot as usize];
        *extent = (*extent).max(start + len);
        Ok(())
    }

    /// Records the needed size of temporaries.
    pub(super) fn temporaries(&mut self, n: usize) {
        self.temporaries = self.temporaries.max(n);
    }

    /// Checks operands that lie below `limit`, at least one, and their list, which must be the next. Returns their
    /// number.
    pub(super) fn operands(&mut self, operands: Encoded, limit: u32) -> Checked<u64> {
        let mut n = 0u64;
        if !operands.is_known() {
            return Err("lists its operands in an unknown way".into());
        }
        if operands.contiguous().is_none() {
            self.record(operands.0, operands.stored_len())?;
        }
        let mut fault = None;
        let mut extents = std::mem::replace(&mut self.extents, PerSlot::few(0));
        operands.for_each_run(self.extra, |run| {
            n += u64::from(run.len);
            let found = match run.parameters() {
                None => self.run(run.start, run.len, limit),
                Some((slot, ..)) if slot >= self.n_stores => {
                    Err(format!("reads parameters number {slot} of {}", self.n_stores))
                }
                Some((slot, start, len)) => {
                    extents[slot] = extents[slot].max(start as u64 + len as u64);
                    Ok(())
                }
            };
            fault = fault.take().or(found.err());
        });
        self.extents = extents;
        match fault {
            Some(fault) => Err(fault),
            None if n == 0 || n > u64::from(u32::MAX) => Err(format!("has {n} operands")),
            None => Ok(n),
        }
    }

    /// Checks that `len` numbers exist from `at` on.
    pub(super) fn numbers(&self, at: u32, len: usize) -> Checked {
        if at as usize + len <= self.extra.len() {
            return Ok(());
        }
        Err(format!("has a list of {len} from {at}, the lists end at {}", self.extra.len()))
    }

    /// Marks `len` numbers from `at` as used; they must be the next: lists lie in the order of their nodes, without
    /// gaps.
    pub(super) fn record(&mut self, at: u32, len: usize) -> Checked<std::ops::Range<usize>> {
        self.numbers(at, len)?;
        if at as usize != self.next {
            return Err(format!("has a list from {at}, expected {}", self.next));
        }
        self.next += len;
        Ok(at as usize..at as usize + len)
    }

    /// Converts the stored op at a place of the lists to one of this version.
    pub(super) fn translate(&mut self, at: usize) -> Checked<Op> {
        let stored = self.extra[at];
        let op = self
            .names
            .get(stored as usize)
            .ok_or_else(|| format!("names op number {stored} of {}", self.names.len()))?;
        self.extra[at] = *op as u32;
        Ok(*op)
    }

    /// Checks that everything was used.
    pub(crate) fn finish(self) -> Checked<Needs> {
        if self.n_parts > 0 {
            return Err("is a part of a block that has no end".into());
        }
        if self.next != self.extra.len() {
            return Err(format!("has {} unused numbers in its lists", self.extra.len() - self.next));
        }
        Ok(Needs { extents: self.extents, n_leaves: self.n_leaves, temporaries: self.temporaries })
    }

    /// Refuses a block if scalars of this type have no kernels for it.
    pub(super) fn kernels(&self, op: Op) -> Checked {
        if self.has_kernels { Ok(()) } else { Err(format!("is {}, which graphs of this dtype cannot hold", op.name())) }
    }
}
