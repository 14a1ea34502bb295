//! Appending nodes to a graph of any scalar type.

use super::blocks::ErasedBlocks;
use super::number::{AnyNumber, ScalarType};
use super::params::{AnyParameters, Erasable, typed};
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, Operands, Range, Unevaluated};
use crate::interrupt;
use crate::ops::Op;
use crate::params::Slice;
use crate::scalar::Float;

of_any_scalar! {
    /// The appending half of [`super::ErasedGraph`].
    ErasedAppend: ;

    /// A leaf, or a constant.
    fn append_number(&mut self, x: &AnyNumber, is_constant: bool) -> Result<NodeId> {
        if is_constant { self.constant(x.scalar()) } else { self.leaf(x.scalar()) }
    }

    /// Contiguous leaves.
    fn leaves(&mut self, numbers: &[f64]) -> Result<Range> {
        let values = converted(numbers, |&x| S::lit(x))?;
        self.vector(&values)
    }

    /// Contiguous leaves.
    fn leaves_of(&mut self, numbers: &[AnyNumber]) -> Result<Range> {
        let values = converted(numbers, AnyNumber::scalar)?;
        self.vector(&values)
    }

    /// Contiguous constants.
    fn constants(&mut self, numbers: &[f64]) -> Result<Range> {
        let values = converted(numbers, |&x| S::lit(x))?;
        Graph::constants(self, &values)
    }

    /// Contiguous constants with a number for each lane: all of lane 0, then of lane 1, ...
    fn constants_of_lanes(&mut self, numbers: &[f64]) -> Result<Range> {
        let values = converted(numbers, |&x| S::Elem::from_f64(x))?;
        Graph::constants_of_lanes(self, &values)
    }

    /// A unary op.
    fn unary_op(&mut self, op: Op, x: NodeId) -> Result<NodeId> {
        Graph::unary_op(self, op, x)
    }

    /// A binary op.
    fn binary_op(&mut self, op: Op, x: NodeId, y: NodeId) -> Result<NodeId> {
        Graph::binary_op(self, op, x, y)
    }

    /// A binary op on `n` pairs of nodes; one side may be a single node for all. Checks periodically for an early end;
    /// the caller then removes what was appended.
    fn pairwise(&mut self, op: Op, xs: &[NodeId], ys: &[NodeId], n: usize) -> Result<Option<Range>> {
        let pick = |nodes: &[NodeId], k: usize| if nodes.len() == 1 { nodes[0] } else { nodes[k] };
        let mut first = None;
        for k in 0..n {
            interrupt::ask_at(k)?;
            let node = Graph::binary_op(self, op, pick(xs, k), pick(ys, k))?;
            first.get_or_insert(node);
        }
        Ok(first.map(|first| Range::new(first, n as u32)))
    }

    /// An op with a constant.
    fn with_constant_op(&mut self, op: Op, x: NodeId, c: &AnyNumber) -> Result<NodeId> {
        Graph::with_constant_op(self, op, x, c.scalar())
    }

    /// An op with a constant on its left.
    fn constant_with_op(&mut self, op: Op, c: &AnyNumber, x: NodeId) -> Result<NodeId> {
        Graph::constant_with_op(self, op, c.scalar(), x)
    }

    /// `x op c` for the op of a Python operator, by the cheapest equivalent op.
    fn operator_right(&mut self, op: Op, x: NodeId, c: &AnyNumber) -> Result<NodeId> {
        let c: S = c.scalar();
        match op {
            Op::SUM => self.add_constant(x, c),
            Op::DIFFERENCE => self.add_constant(x, -c),
            Op::PRODUCT => Graph::with_constant_op(self, Op::SCALED, x, c),
            Op::QUOTIENT => self.div_constant(x, c),
            Op::POWER => self.pow_constant(x, c),
            _ => Graph::with_constant_op(self, op, x, c),
        }
    }

    /// `c op x` for the op of a Python operator.
    fn operator_left(&mut self, op: Op, c: &AnyNumber, x: NodeId) -> Result<NodeId> {
        match op {
            Op::SUM => self.add_constant(x, c.scalar()),
            Op::PRODUCT => Graph::with_constant_op(self, Op::SCALED, x, c.scalar()),
            _ => Graph::constant_with_op(self, op, c.scalar(), x),
        }
    }

    /// A copy without gradient.
    fn detach(&mut self, x: NodeId) -> Result<NodeId> {
        Graph::detach(self, x)
    }

    /// An op without its value.
    fn append_unevaluated(&mut self, op: Op, x: NodeId, y: Option<NodeId>) -> Result<Unevaluated> {
        Graph::append_unevaluated(self, op, x, y)
    }

    /// Computes a value that was omitted.
    fn evaluate_now(&mut self, node: Unevaluated) -> Result<NodeId> {
        Graph::evaluate_now(self, node)
    }

    /// A reduction.
    fn reduce(&mut self, op: Op, x: Operands<'_>, params: &[&AnyParameters]) -> Result<NodeId> {
        typed(params, |params| Graph::reduce(self, op, x, params))
    }

    /// A reduction without its value.
    fn reduce_unevaluated(&mut self, op: Op, x: Operands<'_>, params: &[&AnyParameters]) -> Result<Unevaluated> {
        typed(params, |params| Graph::reduce_unevaluated(self, op, x, params))
    }

    /// The mean and the mean of squares.
    fn reduce_mean_and_mean_squares(&mut self, x: Range) -> Result<(NodeId, NodeId)> {
        Graph::reduce_mean_and_mean_squares(self, x)
    }

    /// An inner product.
    fn inner_product(
        &mut self,
        x: Operands<'_>,
        w: Operands<'_>,
        bias: Option<NodeId>,
        params: &[&AnyParameters],
    ) -> Result<NodeId> {
        typed(params, |params| Graph::inner_product(self, x, w, bias, params))
    }

    /// An inner product without its value.
    fn inner_product_unevaluated(
        &mut self,
        x: Operands<'_>,
        w: Operands<'_>,
        bias: Option<NodeId>,
        params: &[&AnyParameters],
    ) -> Result<Unevaluated> {
        typed(params, |params| Graph::inner_product_unevaluated(self, x, w, bias, params))
    }

    /// A unary op of each node.
    fn map(&mut self, op: Op, x: Range) -> Result<Range> {
        Graph::map(self, op, x)
    }

    /// Softmax, or its logarithm.
    fn softmax(&mut self, op: Op, x: Operands<'_>, params: &[&AnyParameters]) -> Result<Range> {
        typed(params, |params| Graph::softmax(self, op, x, params))
    }

    /// A node for each number of a slice of parameters.
    fn parameters(&mut self, params: &AnyParameters, slice: Slice) -> Result<Vec<NodeId>> {
        let params = S::Elem::params(params).ok_or(Error::MissingParameters)?;
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(slice.len()).map_err(|_| no_memory::<NodeId>(slice.len()))?;
        for k in 0..slice.len() {
            nodes.push(self.parameter(params, slice, k)?);
        }
        Ok(nodes)
    }

    /// The block ops, which exist for float32, float64 and lanes of them.
    fn blocks(&mut self) -> Result<&mut dyn ErasedBlocks> {
        S::blocks(self).ok_or_else(|| Error::BadArgument {
            what: "the scalar type of a graph with block ops",
            expected: "float32, float64 or lanes of them".into(),
            found: ScalarType::of::<S>().name().into(),
        })
    }
}

pub(super) fn no_memory<T>(n: usize) -> Error {
    Error::OutOfMemory { bytes: n.saturating_mul(size_of::<T>()), what: "numbers of nodes" }
}

fn converted<'a, T, U>(numbers: &'a [T], convert: impl FnMut(&'a T) -> U) -> Result<Vec<U>> {
    let mut all = Vec::new();
    all.try_reserve_exact(numbers.len()).map_err(|_| no_memory::<U>(numbers.len()))?;
    all.extend(numbers.iter().map(convert));
    Ok(all)
}
