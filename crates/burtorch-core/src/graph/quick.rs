//! Appending without checks: all checks have been made at once.
//!
//! Promises: a [`Quick`] exists only for a recording graph with capacity for two more nodes, so that appending cannot fail;
//! values and structure are those of the methods of [`Graph`] with the same names. For callers that check handles
//! themselves and count instructions.
#![allow(unsafe_code)]

use super::build::Exponent;
use super::{Graph, NodeId};
use crate::ops::{BinaryOp, DivByConstant, MulByConstant, Op, Pow3, PowConstant, Sqr, UnaryOp};
use crate::scalar::Scalar;

/// A graph that accepts one more op, with a constant operand, without checks.
#[derive(Debug)]
pub struct Quick<'g, 'm, S: Scalar> {
    graph: &'g mut Graph<'m, S>,
}

impl<'m, S: Scalar> Graph<'m, S> {
    /// The graph for one quick append, unless fewer than two nodes fit, recording is off, or it pauses.
    #[inline(always)]
    pub fn quick<'g>(&'g mut self) -> Option<Quick<'g, 'm, S>> {
        if self.columns.is_unasked() { Some(Quick { graph: self }) } else { None }
    }

    /// From `len` nodes on [`Graph::quick`] returns `None`, so that a caller with further checks (is it time to
    /// reclaim? is the graph in use?) needs only one. It has no other effect.
    pub fn pause_quick(&mut self, len: u32) {
        self.columns.set_pause(len);
    }
}

impl<S: Scalar> Quick<'_, '_, S> {
    /// Whether a leaf needs no allocation.
    #[inline(always)]
    pub fn has_room_for_leaf(&self) -> bool {
        self.graph.leaves.has_room()
    }

    /// Appends a leaf.
    ///
    /// # Safety
    /// [`Quick::has_room_for_leaf`].
    #[inline(always)]
    pub unsafe fn leaf(self, value: S) -> NodeId {
        debug_assert!(self.has_room_for_leaf());
        // SAFETY: there is room for the node, and by the contract of this function for the leaf.
        unsafe { self.graph.push_leaf(value) }
    }

    /// Appends `O(x)`.
    ///
    /// # Safety
    /// `x` is a node of this graph, as after [`Graph::check`] has accepted a handle of this graph.
    #[inline(always)]
    pub unsafe fn unary<O: UnaryOp>(self, x: NodeId) -> NodeId {
        debug_assert!(self.graph.check_exists(x).is_ok());
        // SAFETY: by the contract of this function, and there is room.
        unsafe {
            let value = O::forward(self.graph.columns.value_unchecked(x.0));
            NodeId(self.graph.columns.push_reserved(O::OP, x.0, 0, value))
        }
    }

    /// Appends `O(x, y)`.
    ///
    /// # Safety
    /// As for [`Quick::unary`], for both.
    #[inline(always)]
    pub unsafe fn binary<O: BinaryOp>(self, x: NodeId, y: NodeId) -> NodeId {
        debug_assert!(self.graph.check_exists(x).is_ok() && self.graph.check_exists(y).is_ok());
        // SAFETY: by the contract of this function, and there is room.
        unsafe {
            let columns = &mut self.graph.columns;
            let value = O::forward(columns.value_unchecked(x.0), columns.value_unchecked(y.0));
            NodeId(columns.push_reserved(O::OP, x.0, y.0, value))
        }
    }

    /// Appends `O(x, c)` and the constant.
    ///
    /// # Safety
    /// As for [`Quick::unary`].
    #[inline(always)]
    pub unsafe fn with_constant<O: BinaryOp>(self, x: NodeId, c: S) -> NodeId {
        debug_assert!(self.graph.check_exists(x).is_ok());
        // SAFETY: by the contract of this function, and there is room.
        unsafe {
            let value = O::forward(self.graph.columns.value_unchecked(x.0), c);
            NodeId(self.graph.columns.push_both_reserved(c, false, O::OP, x.0, value))
        }
    }

    /// Appends `O(c, x)` and the constant.
    ///
    /// # Safety
    /// As for [`Quick::unary`].
    #[inline(always)]
    pub unsafe fn constant_with<O: BinaryOp>(self, c: S, x: NodeId) -> NodeId {
        debug_assert!(self.graph.check_exists(x).is_ok());
        // SAFETY: by the contract of this function, and there is room.
        unsafe {
            let value = O::forward(c, self.graph.columns.value_unchecked(x.0));
            NodeId(self.graph.columns.push_both_reserved(c, true, O::OP, x.0, value))
        }
    }

    /// Appends `x/c`, as [`Graph::div_constant`] does.
    ///
    /// # Safety
    /// As for [`Quick::unary`].
    #[inline(always)]
    pub unsafe fn div_constant(self, x: NodeId, c: S) -> NodeId {
        debug_assert!(self.graph.check_exists(x).is_ok());
        // SAFETY: by the contract of this function.
        unsafe {
            if c.has_exact_inverse() {
                self.with_constant::<MulByConstant>(x, S::lit(1.0) / c)
            } else {
                self.with_constant::<DivByConstant>(x, c)
            }
        }
    }

    /// Appends `x` raised to `c`, as [`Graph::pow_constant`] does.
    ///
    /// # Safety
    /// As for [`Quick::unary`].
    #[inline(always)]
    pub unsafe fn pow_constant(self, x: NodeId, c: S) -> NodeId {
        debug_assert!(self.graph.check_exists(x).is_ok());
        // SAFETY: by the contract of this function.
        unsafe {
            match Exponent::of(c) {
                Exponent::Two => self.unary::<Sqr>(x),
                Exponent::Three => self.unary::<Pow3>(x),
                Exponent::Other => self.with_constant::<PowConstant>(x, c),
            }
        }
    }

    /// Appends a copy of the value of `x` through which no gradient flows.
    ///
    /// # Safety
    /// As for [`Quick::unary`].
    #[inline(always)]
    pub unsafe fn detach(self, x: NodeId) -> NodeId {
        debug_assert!(self.graph.check_exists(x).is_ok());
        // SAFETY: by the contract of this function, and there is room.
        unsafe {
            let value = self.graph.columns.value_unchecked(x.0);
            NodeId(self.graph.columns.push_reserved(Op::Constant, 0, 0, value))
        }
    }
}
