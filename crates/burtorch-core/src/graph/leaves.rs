//! The leaves of a graph: their nodes, ascending, the gradient that each has accumulated over sweeps, and their
//! construction.
//!
//! Promises: both columns have one length and one capacity; every entry below the length is initialised; appending within
//! the capacity costs two stores. Does not know ops.
#![allow(unsafe_code)]

use super::memory::{Column, Origin};
use super::{Graph, NodeId, Range};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::scalar::Scalar;

#[derive(Debug)]
pub(crate) struct Leaves<S: Scalar> {
    nodes: Column<u32>,
    grads: Column<S>,
    /// The number of leaves.
    len: u32,
    /// The capacity of both columns.
    cap: u32,
    origin: Origin,
}

impl<S: Scalar> Leaves<S> {
    pub(crate) const fn new(origin: Origin) -> Self {
        Leaves { nodes: Column::empty(), grads: Column::empty(), len: 0, cap: 0, origin }
    }

    pub(crate) fn over(nodes: Column<u32>, grads: Column<S>) -> Self {
        let cap = u32::try_from(nodes.capacity().min(grads.capacity())).unwrap_or(u32::MAX);
        Leaves { nodes, grads, len: 0, cap, origin: Origin::Foreign }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.cap
    }

    /// Space for exactly `cap` leaves in all.
    pub(crate) fn preallocate(&mut self, cap: u32) -> Result<()> {
        self.nodes.grow(cap as usize, "leaves")?;
        self.grads.grow(cap as usize, "leaf gradients")?;
        self.cap = self.cap.max(cap);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.len < self.cap
    }

    /// Reserves `more` leaves, or returns an error.
    #[cold]
    #[inline(never)]
    pub(crate) fn reserve(&mut self, more: usize) -> Result<()> {
        let need = (self.len as usize).saturating_add(more);
        if need <= self.cap as usize {
            return Ok(());
        }
        let Ok(need) = u32::try_from(need) else {
            return Err(Error::IndexExhausted { limit: u32::MAX });
        };
        if self.origin != Origin::Growing {
            return Err(Error::GraphFull { column: "leaves", need: need as usize, have: self.cap as usize });
        }
        self.preallocate(need.max(self.cap.saturating_mul(2)).max(64))
    }

    /// Appends a leaf whose gradient is zero.
    ///
    /// # Safety
    /// It fits.
    #[inline(always)]
    pub(crate) unsafe fn push_reserved(&mut self, node: u32) {
        debug_assert!(self.has_room());
        // SAFETY: by the contract of this function the place is below the capacity of both columns.
        unsafe {
            self.nodes.ptr().add(self.len as usize).write(node);
            self.grads.ptr().add(self.len as usize).write(S::lit(0.0));
        }
        self.len += 1;
    }

    /// Appends the leaves of another graph with their gradients; `renamed` gives the new number of a node.
    pub(crate) fn extend(&mut self, others: &Leaves<S>, renamed: impl Fn(u32) -> u32) -> Result<()> {
        self.reserve(others.len as usize)?;
        for (&node, &grad) in others.nodes().iter().zip(others.grads()) {
            // SAFETY: there is room for all of them.
            unsafe { self.push_reserved(renamed(node)) }
            if let Some(last) = self.grads_mut().last_mut() {
                *last = grad;
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn truncate(&mut self, len: u32) {
        self.len = self.len.min(len);
    }

    /// The nodes that are leaves.
    #[inline(always)]
    pub(crate) fn nodes(&self) -> &[u32] {
        // SAFETY: entries below `len` are initialised.
        unsafe { std::slice::from_raw_parts(self.nodes.ptr(), self.len as usize) }
    }

    /// The gradient of each leaf.
    #[inline(always)]
    pub(crate) fn grads(&self) -> &[S] {
        // SAFETY: entries below `len` are initialised.
        unsafe { std::slice::from_raw_parts(self.grads.ptr(), self.len as usize) }
    }

    /// The gradient of each leaf, to be overwritten.
    #[inline(always)]
    pub(crate) fn grads_mut(&mut self) -> &mut [S] {
        // SAFETY: entries below `len` are initialised; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.grads.ptr(), self.len as usize) }
    }

    /// Moves leaf `from` to leaf number `to`, which is node `node` now.
    #[inline]
    pub(crate) fn move_leaf(&mut self, from: u32, to: u32, node: u32) {
        assert!(from < self.len && to < self.len);
        // SAFETY: both places are below the length.
        unsafe {
            self.nodes.ptr().add(to as usize).write(node);
            *self.grads.ptr().add(to as usize) = *self.grads.ptr().add(from as usize);
        }
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// How many nodes up to `root` are not leaves: the largest work of a sweep from `root`.
    pub fn n_computed(&self, root: NodeId) -> usize {
        root.0 as usize + 1 - self.leaves.nodes().partition_point(|&leaf| leaf <= root.0)
    }

    /// A leaf: a number of the caller whose gradient accumulates. A constant under `no_grad`.
    #[inline(always)]
    pub fn leaf(&mut self, value: S) -> Result<NodeId> {
        if self.columns.is_quick() && self.leaves.has_room() {
            // SAFETY: there is room for the node and for the leaf.
            return Ok(unsafe { self.push_leaf(value) });
        }
        self.leaf_slow(value)
    }

    #[cold]
    #[inline(never)]
    fn leaf_slow(&mut self, value: S) -> Result<NodeId> {
        if !self.columns.is_tracing() {
            return self.constant(value);
        }
        self.columns.reserve(1)?;
        self.leaves.reserve(1)?;
        // SAFETY: there is room for the node and for the leaf now.
        Ok(unsafe { self.push_leaf(value) })
    }

    /// # Safety
    /// A node and a leaf fit.
    #[inline(always)]
    pub(crate) unsafe fn push_leaf(&mut self, value: S) -> NodeId {
        debug_assert!(self.leaves.has_room());
        // SAFETY: by the contract of this function.
        unsafe {
            let index = self.columns.push_reserved(Op::Leaf, self.leaves.len(), 0, value);
            self.leaves.push_reserved(index);
            NodeId(index)
        }
    }

    /// Contiguous leaves (constants under `no_grad`), one per value.
    pub fn vector(&mut self, values: &[S]) -> Result<Range> {
        let n = self.room_for(values.len())?;
        if self.columns.is_tracing() {
            self.leaves.reserve(values.len())?;
        }
        let start = self.columns.len();
        for &value in values {
            self.leaf(value)?;
        }
        Ok(Range { start, len: n })
    }
}
