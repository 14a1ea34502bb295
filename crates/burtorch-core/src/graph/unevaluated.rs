//! Gradients without values: nodes that are appended but not evaluated, as roots of sweeps.
//!
//! Promises: an op whose derivative reads its own output is refused, at compile time if the op is a type. An unevaluated
//! node has no `NodeId`, so nothing can read it before it is evaluated. Its entry among the values is 0 until then.

use super::operands::Encoded;
use super::{Graph, NodeId, Operands, PerSlot};
use crate::error::{Error, Result};
use crate::ops::{Arity, BinaryOp, Op, Reduction, UnaryOp, forward_binary, forward_unary};
use crate::params::Parameters;
use crate::scalar::Scalar;

/// A node whose value has not been computed (the paper's F.9): only a root for sweeps, until it is evaluated.
///
/// ```
/// use burtorch_core::{Graph, ops};
/// let mut graph = Graph::<f64>::new();
/// let x = graph.leaf(3.0).unwrap();
/// let root = graph.unary_unevaluated::<ops::Sqr>(x).unwrap();
/// graph.backward_unevaluated(root, 1.0).unwrap();
/// assert_eq!(graph.grad(x), Ok(6.0));
/// let root = graph.evaluate_now(root).unwrap();
/// assert_eq!(graph.value(root), Ok(9.0));
/// ```
///
/// The derivative of tanh needs the value, so this does not compile:
///
/// ```compile_fail
/// use burtorch_core::{Graph, ops};
/// let mut graph = Graph::<f64>::new();
/// let x = graph.leaf(3.0).unwrap();
/// graph.unary_unevaluated::<ops::Tanh>(x).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unevaluated(NodeId);

impl Unevaluated {
    /// The number of the node.
    pub const fn index(self) -> u32 {
        self.0.index()
    }

    /// The unevaluated node with this number. Evaluating or sweeping another node by it is harmless.
    pub const fn from_index(index: u32) -> Self {
        Unevaluated(NodeId::from_index(index))
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends `O(x)` without evaluating it. Does not compile for an op whose derivative reads the value.
    pub fn unary_unevaluated<O: UnaryOp>(&mut self, x: NodeId) -> Result<Unevaluated> {
        const { assert!(!O::READS_OUTPUT, "the derivative of this op reads its value: append it evaluated") };
        self.append_unevaluated(O::OP, x, None)
    }

    /// Appends `O(x, y)` without evaluating it. Does not compile for an op whose derivative reads the value.
    pub fn binary_unevaluated<O: BinaryOp>(&mut self, x: NodeId, y: NodeId) -> Result<Unevaluated> {
        const { assert!(!O::READS_OUTPUT, "the derivative of this op reads its value: append it evaluated") };
        self.append_unevaluated(O::OP, x, Some(y))
    }

    /// Appends a unary or binary op chosen at run time without evaluating it. An op whose derivative reads the value is
    /// an error. Under `no_grad` the value is computed, because only values exist.
    pub fn append_unevaluated(&mut self, op: Op, x: NodeId, y: Option<NodeId>) -> Result<Unevaluated> {
        let refuse = |expected: &str| {
            Err(Error::BadArgument { what: "an unevaluated op", expected: expected.into(), found: op.name().into() })
        };
        let arity = if y.is_some() { Arity::Binary } else { Arity::Unary };
        if op.info().arity != arity {
            return refuse(if y.is_some() { "a binary op" } else { "a unary op" });
        }
        if op.info().reads_output {
            return refuse("one whose derivative does not read its value");
        }
        self.check_exists(x)?;
        y.map_or(Ok(()), |y| self.check_exists(y))?;
        let node = match y {
            _ if self.records_gradients() => {
                self.columns.push(op, x.0, y.map_or(0, NodeId::index), S::lit(0.0)).map(NodeId::from_index)
            }
            Some(y) => self.binary_op(op, x, y),
            None => self.unary_op(op, x),
        };
        node.map(Unevaluated)
    }

    /// Appends a reduction without evaluating it. If an operand is a parameter, the value is computed at once, as are all
    /// values under `no_grad`.
    pub fn reduce_unevaluated(
        &mut self,
        op: Op,
        operands: Operands<'_>,
        params: &[&Parameters<'_, S::Elem>],
    ) -> Result<Unevaluated> {
        self.append_reduction(op, operands, params, false).map(Unevaluated)
    }

    /// Appends an inner product without evaluating it, as [`Graph::reduce_unevaluated`] does a reduction.
    pub fn inner_product_unevaluated(
        &mut self,
        x: Operands<'_>,
        w: Operands<'_>,
        bias: Option<NodeId>,
        params: &[&Parameters<'_, S::Elem>],
    ) -> Result<Unevaluated> {
        self.append_inner_product(x, w, bias, params, false).map(Unevaluated)
    }

    /// Whether a node reads parameters.
    pub(super) fn reads_parameters(&self, node: NodeId) -> bool {
        let mut reads = false;
        self.for_each_operand(node, |run| reads |= run.parameters().is_some());
        reads
    }

    /// From now on softmax cross-entropies compute only the probabilities that gradients need, and NaN for their losses;
    /// false: also their losses, the default.
    pub fn skip_losses(&mut self, skip: bool) {
        self.skips_losses = skip;
    }

    /// A mean of squares whose value is not read.
    pub(crate) fn mean_squares_without_value(&mut self, x: super::Range) -> Result<NodeId> {
        let node = self.append_reduction(Op::MEAN_SQUARE, x.into(), &[], false)?;
        self.columns.set_value(node.0, S::lit(f64::NAN));
        Ok(node)
    }

    /// Whether losses are skipped; see [`Graph::skip_losses`].
    pub fn skips_losses(&self) -> bool {
        self.skips_losses
    }

    /// Computes the value of an unevaluated node from the present values of its operands.
    pub fn evaluate_now(&mut self, node: Unevaluated) -> Result<NodeId> {
        self.check_exists(node.0)?;
        let op = self.columns.op(node.0.0);
        let [a, b] = self.columns.operands(node.0.0);
        let value = match op.info().arity {
            Arity::Unary => forward_unary(op, self.columns.value(a)),
            Arity::Binary => forward_binary(op, self.columns.value(a), self.columns.value(b)),
            // Nodes that read parameters were evaluated when they were appended.
            Arity::Reduction | Arity::InnerProduct if self.reads_parameters(node.0) => None,
            Arity::Reduction => Reduction::new(op).map(|r| self.reduced(r, Encoded(a, b), &PerSlot::few(&[]))),
            Arity::InnerProduct => Some(self.inner(op, a, &PerSlot::few(&[]))),
            _ => None,
        };
        if let Some(value) = value {
            self.columns.set_value(node.0.0, value);
        }
        Ok(node.0)
    }

    /// Adds `seed` times the gradient of an unevaluated root to its leaves. For graphs that read no parameters.
    pub fn backward_unevaluated(&mut self, root: Unevaluated, seed: S) -> Result<()> {
        self.backward_with(root.0, seed, &mut [])
    }
}
