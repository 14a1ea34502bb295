//! The node columns: opcode, two operands, value, adjoint, one entry per node.
//!
//! Promises: all columns have the same length and capacity; an appended node's adjoint is "not reached"; every stored
//! operand is below its node (the graph checks ids before it pushes). Only the sweep reads without bounds checks.
#![allow(unsafe_code)]

mod read;
mod reserved;

use std::mem::MaybeUninit;

use super::memory::{Column, Origin};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::scalar::Scalar;
pub(crate) use read::Recorded;
use reserved::ReservedRegion;

/// Bytes of one node in the four columns.
pub(crate) const fn bytes_per_node<S>() -> usize {
    size_of::<Op>() + size_of::<[u32; 2]>() + 2 * size_of::<S>()
}

#[derive(Debug)]
pub(crate) struct Columns<S: Scalar> {
    ops: Column<Op>,
    operands: Column<[u32; 2]>,
    values: Column<S>,
    adjoints: Column<S>,
    /// The number of nodes; entries below it are initialised in every column.
    len: u32,
    /// Entries of `values`, `operands` and `adjoints` below this are initialised too, even if there are fewer nodes
    /// now.
    once_filled: u32,
    cap: u32,
    /// Below this length a node is appended without checks: `cap`, or 0 while recording is off.
    quick_below: u32,
    /// Below this length an op and its constant are appended without checks, including the one for `pause`.
    unasked_below: u32,
    /// From this length on a caller has requested a check.
    pause: u32,
    /// Whether new nodes take part in sweeps; otherwise they become constants.
    recording: bool,
    origin: Origin,
    /// The largest number of nodes: ids are 32 bits wide (tests use less).
    limit: u32,
    /// The memory shared with branches, if any.
    place: Option<ReservedRegion<S>>,
}

impl<S: Scalar> Columns<S> {
    pub(crate) const fn new(origin: Origin, limit: u32) -> Self {
        Columns {
            ops: Column::empty(),
            operands: Column::empty(),
            values: Column::empty(),
            adjoints: Column::empty(),
            len: 0,
            once_filled: 0,
            cap: 0,
            quick_below: 0,
            unasked_below: 0,
            pause: u32::MAX,
            recording: true,
            origin,
            limit,
            place: None,
        }
    }

    pub(crate) fn over(ops: Column<Op>, operands: Column<[u32; 2]>, values: Column<S>, adjoints: Column<S>) -> Self {
        let cap = ops.capacity().min(operands.capacity()).min(values.capacity()).min(adjoints.capacity());
        let cap = u32::try_from(cap).unwrap_or(u32::MAX);
        Columns {
            ops,
            operands,
            values,
            adjoints,
            len: 0,
            once_filled: 0,
            cap,
            quick_below: cap,
            unasked_below: cap.saturating_sub(1),
            pause: u32::MAX,
            recording: true,
            origin: Origin::Foreign,
            limit: u32::MAX,
            place: None,
        }
    }

    /// Space for exactly `cap` nodes, for a graph that will not grow, or a first size for one that does.
    pub(crate) fn preallocate(&mut self, cap: u32) -> Result<()> {
        if self.place.is_some() {
            return self.leave(cap);
        }
        let n = cap as usize;
        // Only nodes are moved.
        self.once_filled = self.once_filled.min(self.len);
        self.ops.grow(n, "opcodes")?;
        self.operands.grow(n, "operands")?;
        self.values.grow(n, "values")?;
        self.adjoints.grow(n, "adjoints")?;
        self.cap = self.cap.max(cap);
        self.set_recording(self.recording);
        Ok(())
    }

    /// Whether new nodes take part in sweeps.
    #[inline(always)]
    pub(crate) fn is_tracing(&self) -> bool {
        self.recording
    }

    /// Sets whether new nodes take part in sweeps. Returns the setting before.
    pub(crate) fn set_recording(&mut self, on: bool) -> bool {
        self.quick_below = if on { self.cap } else { 0 };
        self.unasked_below = self.quick_below.saturating_sub(1).min(self.pause);
        std::mem::replace(&mut self.recording, on)
    }

    /// Sets the length from which [`Columns::is_unasked`] is false regardless of the capacity.
    pub(crate) fn set_pause(&mut self, len: u32) {
        self.pause = len;
        self.set_recording(self.recording);
    }

    /// Whether two more nodes fit, new nodes are recorded, and no check is requested: one comparison.
    #[inline(always)]
    pub(crate) fn is_unasked(&self) -> bool {
        self.len < self.unasked_below
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.cap
    }

    /// Whether the columns never move.
    pub(crate) fn is_fixed(&self) -> bool {
        self.origin != Origin::Growing
    }

    /// Reserves `more` nodes, or returns an error.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, more: u32) -> Result<()> {
        if self.cap - self.len >= more { Ok(()) } else { self.reserve_slow(more) }
    }

    #[cold]
    #[inline(never)]
    fn reserve_slow(&mut self, more: u32) -> Result<()> {
        let need = u64::from(self.len) + u64::from(more);
        if need > u64::from(self.limit) {
            return Err(Error::IndexExhausted { limit: self.limit });
        }
        if self.origin != Origin::Growing {
            return Err(Error::GraphFull { column: "nodes", need: need as usize, have: self.cap as usize });
        }
        if self.take_back() && u64::from(self.cap) >= need {
            return Ok(());
        }
        let target = need.max(2 * u64::from(self.cap)).clamp(256.min(u64::from(self.limit)), u64::from(self.limit));
        self.preallocate(target as u32)
    }

    /// Whether one more node fits and new nodes are recorded: one comparison.
    #[inline(always)]
    pub(crate) fn is_quick(&self) -> bool {
        self.len < self.quick_below
    }

    /// As [`Columns::is_quick`], for two nodes.
    #[inline(always)]
    pub(crate) fn is_quick_for_two(&self) -> bool {
        u64::from(self.len) + 1 < u64::from(self.quick_below)
    }

    /// Appends a node, or a constant of the same value while recording is off.
    #[inline(always)]
    pub(crate) fn push(&mut self, op: Op, a: u32, b: u32, value: S) -> Result<u32> {
        if self.is_quick() {
            // SAFETY: it fits.
            return Ok(unsafe { self.push_reserved(op, a, b, value) });
        }
        self.push_slow(op, a, b, value)
    }

    #[cold]
    #[inline(never)]
    fn push_slow(&mut self, op: Op, a: u32, b: u32, value: S) -> Result<u32> {
        self.reserve(1)?;
        let (op, a, b) = if self.recording { (op, a, b) } else { (Op::Constant, 0, 0) };
        // SAFETY: it fits now.
        Ok(unsafe { self.push_reserved(op, a, b, value) })
    }

    /// Appends a constant and a node of which it is an operand, the left one if `on_left`; `x` is the other operand.
    /// While recording is off, appends only a constant of value `value`.
    #[inline(always)]
    pub(crate) fn push_with_constant(&mut self, constant: S, on_left: bool, op: Op, x: u32, value: S) -> Result<u32> {
        if self.is_quick_for_two() {
            // SAFETY: both fit.
            return Ok(unsafe { self.push_both_reserved(constant, on_left, op, x, value) });
        }
        self.push_with_constant_slow(constant, on_left, op, x, value)
    }

    #[cold]
    #[inline(never)]
    fn push_with_constant_slow(&mut self, constant: S, on_left: bool, op: Op, x: u32, value: S) -> Result<u32> {
        if !self.recording {
            return self.push_slow(Op::Constant, 0, 0, value);
        }
        self.reserve(2)?;
        // SAFETY: both fit now.
        Ok(unsafe { self.push_both_reserved(constant, on_left, op, x, value) })
    }

    /// Appends a constant and a node that reads it.
    ///
    /// # Safety
    /// Both fit.
    #[inline(always)]
    pub(crate) unsafe fn push_both_reserved(&mut self, constant: S, on_left: bool, op: Op, x: u32, value: S) -> u32 {
        debug_assert!(self.cap - self.len >= 2);
        // SAFETY: by the contract of this function both places are below the capacity of every column.
        unsafe {
            // Adjacent stores of constants are merged into one.
            let (c, at) = (self.len, self.len as usize);
            self.ops.ptr().add(at).cast::<[Op; 2]>().write([Op::Constant, op]);
            self.operands.ptr().add(at).write([0, 0]);
            self.operands.ptr().add(at + 1).write(if on_left { [c, x] } else { [x, c] });
            self.values.ptr().add(at).write(constant);
            self.values.ptr().add(at + 1).write(value);
            self.adjoints.ptr().add(at).cast::<[S; 2]>().write([S::UNREACHED; 2]);
            self.len = c + 2;
            c + 1
        }
    }

    /// Appends a node.
    ///
    /// # Safety
    /// There is room for it.
    #[inline(always)]
    pub(crate) unsafe fn push_reserved(&mut self, op: Op, a: u32, b: u32, value: S) -> u32 {
        let index = self.len;
        let at = index as usize;
        debug_assert!(index < self.cap);
        // SAFETY: by the contract of this function `at` is below the capacity of every column.
        unsafe {
            self.ops.ptr().add(at).write(op);
            self.operands.ptr().add(at).write([a, b]);
            self.values.ptr().add(at).write(value);
            self.adjoints.ptr().add(at).write(S::UNREACHED);
        }
        self.len = index + 1;
        index
    }

    /// The next `n` uninitialised entries of each column, which must be reserved.
    pub(super) fn spare(&mut self, n: u32) -> Spare<'_, S> {
        debug_assert!(self.cap - self.len >= n);
        let (at, len) = (self.len as usize, n.min(self.cap - self.len) as usize);
        // SAFETY: entries from `at` to `at + len` are below the capacity of every column, and `MaybeUninit` needs no
        // initialisation; `&mut self` makes the access exclusive.
        unsafe {
            Spare {
                first: self.len,
                n_filled: self.once_filled.saturating_sub(self.len).min(n),
                ops: std::slice::from_raw_parts_mut(self.ops.ptr().add(at).cast(), len),
                operands: std::slice::from_raw_parts_mut(self.operands.ptr().add(at).cast(), len),
                values: std::slice::from_raw_parts_mut(self.values.ptr().add(at).cast(), len),
                adjoints: std::slice::from_raw_parts_mut(self.adjoints.ptr().add(at).cast(), len),
            }
        }
    }

    /// Turns the next `n` entries into nodes.
    ///
    /// # Safety
    /// They are reserved and initialised in every column.
    pub(super) unsafe fn adopt(&mut self, n: u32) {
        debug_assert!(self.cap - self.len >= n);
        self.len += n;
        self.once_filled = self.once_filled.max(self.len);
    }

    /// Appends `n` reserved nodes of one opcode; the caller fills in operands and values. Until then values are 0 if
    /// `zeroed`, otherwise arbitrary; operands are 0, or arbitrary for parts of blocks, whose operands are never read.
    /// Adjoints are "not reached" if `marked`, otherwise arbitrary and the caller's responsibility.
    ///
    /// Fills column by column with the widest stores available: a third of the time of node by node.
    pub(crate) fn push_many_reserved(&mut self, op: Op, n: u32, zeroed: bool, marked: bool) -> u32 {
        debug_assert!(self.cap - self.len >= n);
        let first = self.len;
        let n = n.min(self.cap - self.len) as usize;
        let at = first as usize;
        let filled = (self.once_filled.saturating_sub(first) as usize).min(n);
        let kept = if zeroed { 0 } else { filled };
        let kept_operands = if op == Op::Part { filled } else { 0 };
        let kept_adjoints = if marked { 0 } else { filled };
        // SAFETY: entries from `at` to `at + n` are below the capacity of every column, and `MaybeUninit` needs no
        // initialisation; zero bytes are valid operands. Entries that are kept were initialised before, in the same
        // memory.
        unsafe {
            std::slice::from_raw_parts_mut(self.ops.ptr().add(at).cast(), n).fill(MaybeUninit::new(op));
            self.operands.ptr().add(at + kept_operands).write_bytes(0, n - kept_operands);
            std::slice::from_raw_parts_mut(self.values.ptr().add(at + kept).cast(), n - kept)
                .fill(MaybeUninit::new(S::lit(0.0)));
            std::slice::from_raw_parts_mut(self.adjoints.ptr().add(at + kept_adjoints).cast(), n - kept_adjoints)
                .fill(MaybeUninit::new(S::UNREACHED));
        }
        self.len = first + n as u32;
        self.once_filled = self.once_filled.max(self.len);
        first
    }

    #[inline(always)]
    pub(crate) fn truncate(&mut self, len: u32) {
        debug_assert!(len <= self.len);
        self.len = self.len.min(len);
    }

    /// Sets the opcode and operands of node `at`.
    #[inline(always)]
    pub(crate) fn set_node(&mut self, at: u32, op: Op, a: u32, b: u32) {
        assert!(at < self.len);
        // SAFETY: `at` is a node of this graph.
        unsafe {
            self.ops.ptr().add(at as usize).write(op);
            self.operands.ptr().add(at as usize).write([a, b]);
        }
    }

    /// Moves node `from` to the place of node `to`, with new operands.
    #[inline(always)]
    pub(crate) fn move_node(&mut self, from: u32, to: u32, operands: [u32; 2]) {
        assert!(to <= from && from < self.len);
        // SAFETY: both are nodes of this graph.
        unsafe {
            let (from, to) = (from as usize, to as usize);
            *self.ops.ptr().add(to) = *self.ops.ptr().add(from);
            *self.operands.ptr().add(to) = operands;
            *self.values.ptr().add(to) = *self.values.ptr().add(from);
            *self.adjoints.ptr().add(to) = *self.adjoints.ptr().add(from);
        }
    }
}

/// Uninitialised entries of every column.
pub(super) struct Spare<'a, S> {
    /// The node number of the first.
    pub(super) first: u32,
    /// The operands and values of this many entries were initialised before.
    pub(super) n_filled: u32,
    pub(super) ops: &'a mut [MaybeUninit<Op>],
    pub(super) operands: &'a mut [MaybeUninit<[u32; 2]>],
    pub(super) values: &'a mut [MaybeUninit<S>],
    pub(super) adjoints: &'a mut [MaybeUninit<S>],
}
