//! Appending nodes with any number of operands: reductions, inner products, numbers computed elsewhere.
//!
//! Promises: as in `build`.

use super::build::wrong_kind;
use super::operands::{Encoded, InnerOperands, StoreValues, View};
use super::{Graph, NodeId, Range};
use crate::error::{Error, Result};
use crate::kernels::slices;
use crate::ops::{Op, Reduction};
use crate::params::Parameters;
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
    /// The number of scalars.
    pub fn len(&self) -> usize {
        match self {
            Operands::Run(range) => range.len(),
            Operands::Views(views) => views.iter().map(View::len).sum(),
            Operands::List(nodes) => nodes.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any operand is a parameter.
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

impl<S: Scalar> Graph<'_, S> {
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
        // A backward pass needs room for contributions, and for values that are not contiguous.
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

    /// Appends a number that was computed elsewhere from `x`, with its partial derivatives by each operand: a sweep multiplies
    /// its adjoint by the partials, which are constants, as is the value. See [`crate::program::primitive`].
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
}

/// The operands of an inner product as slices: in place if contiguous, otherwise gathered into `scratch`, which has length
/// `n`, or `2 n` unless both are contiguous.
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
