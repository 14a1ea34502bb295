//! Appending scalar nodes: leaves, unary and binary ops, reductions and inner products.
//!
//! Promises: a node's value is computed when it is appended; an error appends nothing. Where a caller has just checked
//! a handle, `..._unchecked` spares the question whether its node exists.
#![allow(unsafe_code)]

use super::operands::{Encoded, InnerOperands, StoreValues, View};
use super::{Graph, NodeId, Range};
use crate::error::{Error, Result};
use crate::kernels::slices;
use crate::ops::{AddConstant, DivByConstant, Max, Min, Pow3, Sqr};
use crate::ops::{BinaryOp, MulByConstant, Op, PowConstant, Reduction, UnaryOp, forward_binary, forward_unary};
use crate::params::{Parameters, Slice};
use crate::scalar::Scalar;

/// The operands of an n-ary op.
#[derive(Clone, Copy, Debug)]
pub enum Operands<'a> {
    /// Contiguous nodes; nothing is listed.
    Run(Range),
    /// The concatenation of views; nothing is copied.
    Views(&'a [View]),
    /// Any nodes, in this order.
    List(&'a [NodeId]),
}

impl Operands<'_> {
    /// How many scalars.
    pub fn len(&self) -> usize {
        match self {
            Operands::Run(range) => range.len(),
            Operands::Views(views) => views.iter().map(View::len).sum(),
            Operands::List(nodes) => nodes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether one of them is a number of some parameters.
    fn any_parameters(&self) -> bool {
        matches!(self, Operands::Views(views) if views.iter().any(|view| matches!(view, View::Parameters(_))))
    }
}

impl From<Range> for Operands<'_> {
    fn from(range: Range) -> Self {
        Operands::Run(range)
    }
}

impl<'a> From<&'a [View]> for Operands<'a> {
    fn from(views: &'a [View]) -> Self {
        Operands::Views(views)
    }
}

impl<'a> From<&'a [NodeId]> for Operands<'a> {
    fn from(nodes: &'a [NodeId]) -> Self {
        Operands::List(nodes)
    }
}

/// Lanes of the widest scalar.
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

    /// Contiguous constants that differ by lane: `values` holds all numbers of lane 0, then of lane 1, ..., equally many
    /// for each.
    pub fn constants_of_lanes(&mut self, values: &[S::Elem]) -> Result<Range> {
        if !values.len().is_multiple_of(S::LANES) {
            let (op, right) = ("constants (lanes and numbers)", values.len());
            return Err(Error::LengthMismatch { op, left: S::LANES, right });
        }
        let n = self.room_for(values.len() / S::LANES)?;
        let start = self.columns.push_many_reserved(Op::Constant, n, true, true);
        if n > 0 {
            // Lanes are rows of one number block, so this is a table of which each lane takes its own row.
            let rows: [u32; MAX_LANES] = std::array::from_fn(|lane| lane as u32);
            slices::gather(values, &rows[..S::LANES], &mut self.columns.values_mut()[start as usize..]);
        }
        Ok(Range { start, len: n })
    }

    /// Room for `n` nodes, and `n` as a 32-bit number.
    pub(crate) fn room_for(&mut self, n: usize) -> Result<u32> {
        let n32 = u32::try_from(n).map_err(|_| Error::IndexExhausted { limit: u32::MAX })?;
        self.columns.reserve(n32)?;
        Ok(n32)
    }

    /// A node that reads number `index` of `slice`: its gradient goes to the parameters.
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
        // SAFETY: it exists.
        unsafe { self.unary_unchecked::<O>(x) }
    }

    /// Appends `O(x, y)`.
    #[inline(always)]
    pub fn binary<O: BinaryOp>(&mut self, x: NodeId, y: NodeId) -> Result<NodeId> {
        self.check_exists(x)?;
        self.check_exists(y)?;
        // SAFETY: both exist.
        unsafe { self.binary_unchecked::<O>(x, y) }
    }

    /// Appends `O(x, c)` with a constant `c`, for which a node of its own is appended first.
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

    /// As [`Graph::unary`], without asking whether the node exists.
    ///
    /// # Safety
    /// `x` is a node of this graph, as it is when [`Graph::check`] accepts a handle that this graph's building made.
    #[inline(always)]
    pub(crate) unsafe fn unary_unchecked<O: UnaryOp>(&mut self, x: NodeId) -> Result<NodeId> {
        debug_assert!(self.check_exists(x).is_ok());
        // SAFETY: by the contract of this function.
        let value = O::forward(unsafe { self.columns.value_unchecked(x.0) });
        self.push_scalar(O::OP, x.0, 0, value)
    }

    /// As [`Graph::binary`], without asking whether the nodes exist.
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
    fn push_scalar(&mut self, op: Op, a: u32, b: u32, value: S) -> Result<NodeId> {
        self.columns.push(op, a, b, value).map(NodeId)
    }

    /// Appends `x^c` for a constant exponent: `sqr` for 2, `pow3` for 3, else the general power.
    #[inline]
    pub fn pow_constant(&mut self, x: NodeId, c: S) -> Result<NodeId> {
        match Exponent::of(c) {
            Exponent::Two => self.unary::<Sqr>(x),
            Exponent::Three => self.unary::<Pow3>(x),
            Exponent::Other => self.with_constant::<PowConstant>(x, c),
        }
    }

    /// Appends `x/c` for a constant divisor; where `1/c` is exact, as a multiplication with the same bits.
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
        // What has no order, a NaN among them, is no pair of bounds.
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

    /// Appends a reduction over at least one operand.
    pub fn reduce(&mut self, op: Op, operands: Operands<'_>, params: &[&Parameters<'_, S::Elem>]) -> Result<NodeId> {
        self.append_reduction(op, operands, params, true)
    }

    pub(super) fn append_reduction(
        &mut self,
        op: Op,
        operands: Operands<'_>,
        params: &[&Parameters<'_, S::Elem>],
        evaluate: bool,
    ) -> Result<NodeId> {
        let reduction = Reduction::new(op).ok_or_else(|| wrong_kind("a reduction", op))?;
        if operands.is_empty() {
            return Err(Error::EmptyReduction { op: op.name() });
        }
        self.atomically(|graph| graph.try_reduce(reduction, operands, params, evaluate))
    }

    fn try_reduce(
        &mut self,
        op: Reduction,
        operands: Operands<'_>,
        params: &[&Parameters<'_, S::Elem>],
        evaluate: bool,
    ) -> Result<NodeId> {
        self.columns.reserve(1)?;
        let n = operands.len();
        let waits = !evaluate && self.records_gradients() && !operands.any_parameters();
        let encoded = self.encode(operands, params)?;
        // A sweep keeps contributions, and values where they are not contiguous.
        self.reserve_scratch(if encoded.contiguous().is_some() { n } else { 2 * n })?;
        if waits {
            return self.push_scalar(op.op(), encoded.0, encoded.1, S::lit(0.0));
        }
        let stores = self.store_values(params)?;
        let value = if let Some(run) = encoded.contiguous() {
            op.forward(&self.columns.values()[run.indices()])
        } else {
            let xs = &mut self.scratch.as_mut_slice()[..n];
            encoded.gather(self.extra.as_slice(), self.columns.values(), |slot| stores[slot], xs);
            op.forward(xs)
        };
        self.push_scalar(op.op(), encoded.0, encoded.1, value)
    }

    /// Appends `sum x_i w_i`, plus the node `bias` if there is one. `x` and `w` have the same length, at least one.
    pub fn inner_product(
        &mut self,
        x: Operands<'_>,
        w: Operands<'_>,
        bias: Option<NodeId>,
        params: &[&Parameters<'_, S::Elem>],
    ) -> Result<NodeId> {
        self.append_inner_product(x, w, bias, params, true)
    }

    pub(super) fn append_inner_product(
        &mut self,
        x: Operands<'_>,
        w: Operands<'_>,
        bias: Option<NodeId>,
        params: &[&Parameters<'_, S::Elem>],
        evaluate: bool,
    ) -> Result<NodeId> {
        let op = if bias.is_some() { Op::InnerProductWithBias } else { Op::InnerProduct };
        if x.len() != w.len() {
            return Err(Error::LengthMismatch { op: op.name(), left: x.len(), right: w.len() });
        }
        if x.is_empty() {
            return Err(Error::EmptyReduction { op: op.name() });
        }
        bias.map_or(Ok(()), |b| self.check_exists(b))?;
        self.atomically(|graph| graph.try_inner_product(op, x, w, bias, params, evaluate))
    }

    fn try_inner_product(
        &mut self,
        op: Op,
        x: Operands<'_>,
        w: Operands<'_>,
        bias: Option<NodeId>,
        params: &[&Parameters<'_, S::Elem>],
        evaluate: bool,
    ) -> Result<NodeId> {
        let n = x.len();
        self.columns.reserve(1)?;
        let waits = !evaluate && self.records_gradients() && !x.any_parameters() && !w.any_parameters();
        let bias_node = bias.map_or(0, |b| b.0);
        let inner = InnerOperands { x: self.encode(x, params)?, w: self.encode(w, params)?, bias: bias_node };
        let in_place = inner.x.contiguous().is_some() && inner.w.contiguous().is_some();
        self.reserve_scratch(if in_place { n } else { 2 * n })?;
        self.extra.reserve(5)?;
        let value = if waits {
            S::lit(0.0)
        } else {
            let stores = self.store_values(params)?;
            let scratch = self.scratch.as_mut_slice();
            let (xs, ws) = inner_values(inner, n, self.extra.as_slice(), self.columns.values(), &stores, scratch);
            match bias {
                None => slices::dot(xs, ws),
                Some(b) => slices::dot_and_bias(xs, ws, self.columns.value(b.0)),
            }
        };
        let at = self.extra.len() as u32;
        for number in inner.write() {
            self.extra.push_reserved(number);
        }
        self.push_scalar(op, at, 0, value)
    }

    /// Appends a number that was computed elsewhere from `x`, with its partial derivatives by each: a sweep hands its
    /// adjoint on times the partials, which are constants, as the value is. See [`crate::program::primitive`].
    pub fn linearised(&mut self, x: &[NodeId], partials: &[S], value: S) -> Result<NodeId> {
        let op = Op::Linearised;
        if x.len() != partials.len() {
            return Err(Error::LengthMismatch { op: op.name(), left: x.len(), right: partials.len() });
        }
        if x.is_empty() {
            return Err(Error::EmptyReduction { op: op.name() });
        }
        self.atomically(|graph| {
            let first = graph.constant(partials[0])?;
            for &partial in &partials[1..] {
                graph.constant(partial)?;
            }
            let bias = graph.constant(value)?.0;
            graph.columns.reserve(1)?;
            let w = Operands::Run(Range::new(first, partials.len() as u32));
            let inner = InnerOperands { x: graph.encode(Operands::List(x), &[])?, w: graph.encode(w, &[])?, bias };
            graph.reserve_scratch(2 * x.len())?;
            graph.extra.reserve(InnerOperands::LEN)?;
            let at = graph.extra.len() as u32;
            for number in inner.write() {
                graph.extra.push_reserved(number);
            }
            graph.push_scalar(op, at, 0, value)
        })
    }

    pub(super) fn encode(&mut self, operands: Operands<'_>, params: &[&Parameters<'_, S::Elem>]) -> Result<Encoded> {
        match operands {
            Operands::Run(range) => self.encode_views(std::iter::once(View::Nodes(range)), params),
            Operands::Views(views) => self.encode_views(views.iter().copied(), params),
            Operands::List(nodes) => self.encode_list(nodes),
        }
    }

    /// Makes the temporaries at least `n` scalars long.
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

/// The operands of an inner product as slices: in place where contiguous, else gathered into `scratch`, which is `n`
/// long, or `2 n` unless both are contiguous.
#[inline]
pub(crate) fn inner_values<'a, S: Scalar>(
    inner: InnerOperands,
    n: usize,
    extra: &[u32],
    nodes: &'a [S],
    stores: &StoreValues<'_, S::Elem>,
    scratch: &'a mut [S],
) -> (&'a [S], &'a [S]) {
    let (for_x, for_w) = scratch.split_at_mut(n);
    let slice = |encoded: Encoded, room: &'a mut [S]| -> &'a [S] {
        if let Some(run) = encoded.contiguous() {
            &nodes[run.indices()]
        } else {
            let room = &mut room[..n];
            encoded.gather(extra, nodes, |slot| stores[slot], room);
            room
        }
    };
    (slice(inner.x, for_x), slice(inner.w, for_w))
}

/// Which op a constant exponent calls for.
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

fn wrong_kind(expected: &str, op: Op) -> Error {
    Error::BadArgument { what: "the op", expected: expected.to_string(), found: op.name().to_string() }
}
