//! Appending scalar nodes: leaves, unary and binary ops.
//!
//! Promises: a node's value is computed when it is appended; an error appends nothing. For callers that have just checked
//! a handle, `..._unchecked` skips the check that its node exists.
#![allow(unsafe_code)]

use super::{Graph, NodeId, Range};
use crate::error::{Error, Result};
use crate::kernels::slices;
use crate::ops::{AddConstant, DivByConstant, Max, Min, Pow3, Sqr};
use crate::ops::{BinaryOp, MulByConstant, Op, PowConstant, UnaryOp, forward_binary, forward_unary};
use crate::params::{Parameters, Slice};
use crate::scalar::Scalar;

/// Lanes of the widest scalar type.
const MAX_LANES: usize = 64;

impl<S: Scalar> Graph<'_, S> {
    /// A number that receives no gradient.
    #[inline(always)]
    pub fn constant(&mut self, value: S) -> Result<NodeId> {
        self.columns.push(Op::Constant, 0, 0, value).map(NodeId)
    }

    /// Contiguous constants, one per value.
    pub fn constants(&mut self, values: &[S]) -> Result<Range> {
        let n = self.room_for(values.len())?;
        let start = self.columns.push_many_reserved(Op::Constant, n, true, true);
        self.columns.values_mut()[start as usize..].copy_from_slice(values);
        Ok(Range { start, len: n })
    }

    /// Contiguous constants that differ by lane: `values` contains all numbers of lane 0, then of lane 1, ..., the same
    /// number for each.
    pub fn constants_of_lanes(&mut self, values: &[S::Elem]) -> Result<Range> {
        if !values.len().is_multiple_of(S::LANES) {
            let (op, right) = ("constants (lanes and numbers)", values.len());
            return Err(Error::LengthMismatch { op, left: S::LANES, right });
        }
        let n = self.room_for(values.len() / S::LANES)?;
        let start = self.columns.push_many_reserved(Op::Constant, n, true, true);
        if n > 0 {
            // Lanes are rows of one number, so this is a table from which each lane takes its own row.
            let rows: [u32; MAX_LANES] = std::array::from_fn(|lane| lane as u32);
            slices::gather(values, &rows[..S::LANES], &mut self.columns.values_mut()[start as usize..]);
        }
        Ok(Range { start, len: n })
    }

    /// Reserves `n` nodes and returns `n` as a 32-bit number.
    pub(crate) fn room_for(&mut self, n: usize) -> Result<u32> {
        let n32 = u32::try_from(n).map_err(|_| Error::IndexExhausted { limit: u32::MAX })?;
        self.columns.reserve(n32)?;
        Ok(n32)
    }

    /// A node that reads number `index` of `slice`: its gradient is added to the parameters.
    pub fn parameter(&mut self, params: &Parameters<'_, S::Elem>, slice: Slice, index: usize) -> Result<NodeId> {
        if slice.store != params.id() {
            return Err(Error::MissingParameters);
        }
        params.check_slice(slice)?;
        if index >= slice.len() {
            return Err(Error::OutOfRange {
                what: "a parameter index",
                found: index as u64,
                max: (slice.len() as u64).saturating_sub(1),
            });
        }
        let at = slice.start + index as u32;
        self.columns.reserve(1)?;
        let value = S::splat(params.values()[at as usize]);
        if !self.columns.is_tracing() {
            return self.constant(value);
        }
        let op = if params.is_trainable(at as usize) { Op::Param } else { Op::FrozenParam };
        let slot = self.slot_of(slice.store)?;
        self.columns.push(op, at, slot, value).map(NodeId)
    }

    /// A copy of the value of `x` through which no gradient flows.
    pub fn detach(&mut self, x: NodeId) -> Result<NodeId> {
        let value = self.value(x)?;
        self.constant(value)
    }

    /// Appends `O(x)`.
    #[inline(always)]
    pub fn unary<O: UnaryOp>(&mut self, x: NodeId) -> Result<NodeId> {
        self.check_exists(x)?;
        // SAFETY: checked above.
        unsafe { self.unary_unchecked::<O>(x) }
    }

    /// Appends `O(x, y)`.
    #[inline(always)]
    pub fn binary<O: BinaryOp>(&mut self, x: NodeId, y: NodeId) -> Result<NodeId> {
        self.check_exists(x)?;
        self.check_exists(y)?;
        // SAFETY: both were checked above.
        unsafe { self.binary_unchecked::<O>(x, y) }
    }

    /// Appends `O(x, c)` with a constant `c`, which is appended first as its own node.
    #[inline(always)]
    pub fn with_constant<O: BinaryOp>(&mut self, x: NodeId, c: S) -> Result<NodeId> {
        let value = O::forward(self.value(x)?, c);
        self.columns.push_with_constant(c, false, O::OP, x.0, value).map(NodeId)
    }

    /// Appends the binary `O(c, x)` with a constant on the left.
    #[inline(always)]
    pub fn constant_with<O: BinaryOp>(&mut self, c: S, x: NodeId) -> Result<NodeId> {
        let value = O::forward(c, self.value(x)?);
        self.columns.push_with_constant(c, true, O::OP, x.0, value).map(NodeId)
    }

    /// As [`Graph::unary`], without a check that the node exists.
    ///
    /// # Safety
    /// `x` is a node of this graph, as after [`Graph::check`] has accepted a handle of this graph.
    #[inline(always)]
    pub(crate) unsafe fn unary_unchecked<O: UnaryOp>(&mut self, x: NodeId) -> Result<NodeId> {
        debug_assert!(self.check_exists(x).is_ok());
        // SAFETY: by the contract of this function.
        let value = O::forward(unsafe { self.columns.value_unchecked(x.0) });
        self.push_scalar(O::OP, x.0, 0, value)
    }

    /// As [`Graph::binary`], without a check that the nodes exist.
    ///
    /// # Safety
    /// As for [`Graph::unary_unchecked`], for both.
    #[inline(always)]
    pub(crate) unsafe fn binary_unchecked<O: BinaryOp>(&mut self, x: NodeId, y: NodeId) -> Result<NodeId> {
        debug_assert!(self.check_exists(x).is_ok() && self.check_exists(y).is_ok());
        // SAFETY: by the contract of this function.
        let value = unsafe { O::forward(self.columns.value_unchecked(x.0), self.columns.value_unchecked(y.0)) };
        self.push_scalar(O::OP, x.0, y.0, value)
    }

    #[inline(always)]
    pub(super) fn push_scalar(&mut self, op: Op, a: u32, b: u32, value: S) -> Result<NodeId> {
        self.columns.push(op, a, b, value).map(NodeId)
    }

    /// Appends `x^c` for a constant exponent: `sqr` for 2, `pow3` for 3, otherwise the general power.
    #[inline]
    pub fn pow_constant(&mut self, x: NodeId, c: S) -> Result<NodeId> {
        match Exponent::of(c) {
            Exponent::Two => self.unary::<Sqr>(x),
            Exponent::Three => self.unary::<Pow3>(x),
            Exponent::Other => self.with_constant::<PowConstant>(x, c),
        }
    }

    /// Appends `x/c` for a constant divisor; if `1/c` is exact, as a multiplication with the same bits.
    #[inline(always)]
    pub fn div_constant(&mut self, x: NodeId, c: S) -> Result<NodeId> {
        if c.has_exact_inverse() {
            self.with_constant::<MulByConstant>(x, S::lit(1.0) / c)
        } else {
            self.with_constant::<DivByConstant>(x, c)
        }
    }

    /// Appends `min(max(x, low), high)`, where `low` is at most `high` in every lane: 1/2 of the gradient passes at a bound.
    pub fn clamp(&mut self, x: NodeId, low: S, high: S) -> Result<NodeId> {
        use crate::scalar::Float;
        let bounds = |k| (low.lane(k).to_f64(), high.lane(k).to_f64());
        // Bounds must be ordered, which excludes NaN.
        let is_pair = |(low, high): (f64, f64)| low <= high;
        if let Some((low, high)) = (0..S::LANES).map(bounds).find(|&pair| !is_pair(pair)) {
            return Err(Error::BadArgument {
                what: "the bounds of clamp",
                expected: "low <= high".into(),
                found: format!("{low} and {high}"),
            });
        }
        self.atomically(|graph| {
            let y = graph.with_constant::<Max>(x, low)?;
            graph.with_constant::<Min>(y, high)
        })
    }

    /// Appends `x + c` for a constant.
    #[inline(always)]
    pub fn add_constant(&mut self, x: NodeId, c: S) -> Result<NodeId> {
        self.with_constant::<AddConstant>(x, c)
    }

    /// Appends a unary op chosen at run time.
    pub fn unary_op(&mut self, op: Op, x: NodeId) -> Result<NodeId> {
        let value = forward_unary(op, self.value(x)?).ok_or_else(|| wrong_kind("a unary op", op))?;
        self.push_scalar(op, x.0, 0, value)
    }

    /// Appends a binary op chosen at run time.
    pub fn binary_op(&mut self, op: Op, x: NodeId, y: NodeId) -> Result<NodeId> {
        let value = forward_binary(op, self.value(x)?, self.value(y)?).ok_or_else(|| wrong_kind("a binary op", op))?;
        self.push_scalar(op, x.0, y.0, value)
    }

    /// Appends a binary op chosen at run time, or an op with a constant, of `x` and a constant; see [`Graph::with_constant`].
    pub fn with_constant_op(&mut self, op: Op, x: NodeId, c: S) -> Result<NodeId> {
        let value = forward_binary(op, self.value(x)?, c).ok_or_else(|| wrong_kind("a binary op", op))?;
        self.columns.push_with_constant(c, false, op, x.0, value).map(NodeId)
    }

    /// Appends a binary op chosen at run time with a constant on the left.
    pub fn constant_with_op(&mut self, op: Op, c: S, x: NodeId) -> Result<NodeId> {
        let value = forward_binary(op, c, self.value(x)?).ok_or_else(|| wrong_kind("a binary op", op))?;
        self.columns.push_with_constant(c, true, op, x.0, value).map(NodeId)
    }

    /// Extends the temporaries to at least `n` scalars.
    pub(crate) fn reserve_scratch(&mut self, n: usize) -> Result<()> {
        let have = self.scratch.len();
        if have < n {
            self.scratch.reserve(n - have)?;
            for _ in have..n {
                self.scratch.push_reserved(S::lit(0.0));
            }
        }
        Ok(())
    }
}

/// The op for a power with a constant exponent.
pub(crate) enum Exponent {
    Two,
    Three,
    Other,
}

impl Exponent {
    #[inline(always)]
    pub(crate) fn of<S: Scalar>(c: S) -> Self {
        use crate::scalar::Float;
        let first = c.lane(0);
        let uniform = (1..S::LANES).all(|k| c.lane(k) == first);
        match first.to_f64() {
            2.0 if uniform => Exponent::Two,
            3.0 if uniform => Exponent::Three,
            _ => Exponent::Other,
        }
    }
}

pub(super) fn wrong_kind(expected: &str, op: Op) -> Error {
    Error::BadArgument { what: "the op", expected: expected.to_string(), found: op.name().to_string() }
}
