//! Reading and writing nodes of a graph of any scalar type.

use std::ptr::NonNull;

use super::append::no_memory;
use super::number::{AnyNumber, AnyNumbers, ScalarType};
use crate::error::Result;
use crate::graph::{Graph, NodeId, OperandRun, Range};
use crate::ops::Op;
use crate::scalar::{DType, Float, RowMath, Scalar, f16};

/// The result of [`ErasedNodes::find_nonfinite`].
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The node.
    pub node: NodeId,
    /// Its op.
    pub op: Op,
    /// The values that it was computed from.
    pub inputs: Vec<AnyNumber>,
}

of_any_scalar! {
    /// The nodes of [`super::ErasedGraph`].
    ErasedNodes: ;

    /// The op of a node.
    fn op(&self, node: NodeId) -> Result<Op> {
        Graph::op(self, node)
    }

    /// The current epoch, if a handle of the given epoch is still valid.
    fn check(&self, node: NodeId, epoch: u64) -> Result<u64> {
        Graph::check(self, node, epoch)
    }

    /// The nodes that a node was computed from, without parameters.
    fn operands(&self, node: NodeId) -> Vec<NodeId> {
        self.topology().operand_nodes(node)
    }

    /// The frozen node that a proxy of a branch stands for.
    fn proxied(&self, node: NodeId) -> Option<NodeId> {
        Graph::proxied(self, node)
    }

    /// The op that computed a node: for an output of a block, the block's op; for a map, the mapped op.
    fn computed_by(&self, node: NodeId) -> Result<Op> {
        Graph::computed_by(self, node)
    }

    /// The nodes that no other node reads.
    fn sinks(&self) -> Result<Vec<NodeId>> {
        Graph::sinks(self)
    }

    /// An upper bound of the number of nodes that a backward pass from this root visits.
    fn n_computed(&self, root: NodeId) -> usize {
        Graph::n_computed(self, root)
    }

    /// A line of text about a node.
    fn describe(&self, node: NodeId) -> Result<String> {
        Graph::describe(self, node)
    }

    /// The label of a node, if it has one.
    #[cfg(feature = "labels")]
    fn label(&self, node: NodeId) -> Option<&str> {
        Graph::label(self, node)
    }

    /// Gives a node a label.
    #[cfg(feature = "labels")]
    fn set_label(&mut self, node: NodeId, label: &str) -> Result<()> {
        Graph::set_label(self, node, label)
    }

    /// The first node with this label.
    #[cfg(feature = "labels")]
    fn labelled(&self, text: &str) -> Option<NodeId> {
        Graph::labelled(self, text)
    }

    /// The value of a node, or its gradient.
    fn number(&self, node: NodeId, of_grad: bool) -> Result<AnyNumber> {
        read(self, node, of_grad).map(AnyNumber::of)
    }

    /// Lane 0 of the value of a node, or of its gradient.
    fn float(&self, node: NodeId, of_grad: bool) -> Result<f64> {
        read(self, node, of_grad).map(|x| x.lane(0).to_f64())
    }

    /// Whether every lane of a node's value is zero.
    fn is_zero(&self, node: NodeId) -> Result<bool> {
        self.value(node).map(RowMath::all_zero)
    }

    /// Lane 0 of the values or gradients of ranges of nodes.
    fn floats(&self, runs: &[Range], of_grad: bool) -> Result<Vec<f64>> {
        collected(self, runs, of_grad, Float::to_f64)
    }

    /// The same in the graph's own type; `None` if no array has that type.
    fn numbers(&self, runs: &[Range], of_grad: bool) -> Result<Option<AnyNumbers>> {
        if !ScalarType::of::<S>().fits_float() {
            return Ok(None);
        }
        let numbers = match S::Elem::DTYPE {
            DType::Float16 => AnyNumbers::F16(collected(self, runs, of_grad, |x| f16::from_f64(x.to_f64()))?),
            DType::Float32 => AnyNumbers::F32(collected(self, runs, of_grad, |x| x.to_f64() as f32)?),
            _ => AnyNumbers::F64(collected(self, runs, of_grad, Float::to_f64)?),
        };
        Ok(Some(numbers))
    }

    /// The memory of the values or gradients of a range, and whether it is read-only. `None` if no array type fits, if
    /// the memory may move, or if leaves and other nodes are mixed.
    fn memory_of_run(&mut self, range: Range, of_grads: bool) -> Option<(NonNull<u8>, bool)> {
        if S::LANES > 1 || !self.is_fixed() || matches!(S::Elem::DTYPE, DType::BFloat16 | DType::Float128) {
            return None;
        }
        let (numbers, read_only) = match of_grads {
            true => self.grads_of_run(range)?,
            false => (self.values_mut().get_mut(range.indices())?, false),
        };
        Some((NonNull::from(numbers).cast(), read_only))
    }

    /// Overwrites the value of a node, or its gradient.
    fn set_number(&mut self, node: NodeId, x: &AnyNumber, of_grad: bool) -> Result<()> {
        let x = x.scalar();
        if of_grad { self.set_grad(node, x) } else { self.set_value(node, x) }
    }

    /// The first node with a non-finite value.
    fn find_nonfinite(&self) -> Option<Found> {
        let found = Graph::find_nonfinite(self)?;
        let nodes = found.inputs.iter().filter_map(|run: &OperandRun| run.nodes()).flat_map(Range::nodes);
        let inputs = nodes.filter_map(|node| self.value(node).ok()).map(AnyNumber::of).collect();
        Some(Found { node: found.node, op: found.op, inputs })
    }

    /// The nodes from `first` to `last`, the last included.
    fn nodes_between(&self, first: u32, last: u32) -> Result<Range> {
        Graph::nodes_between(self, first, last)
    }
}

fn read<S: Scalar>(graph: &Graph<'static, S>, node: NodeId, of_grad: bool) -> Result<S> {
    if of_grad { graph.grad(node) } else { graph.value(node) }
}

fn collected<S: Scalar, T>(
    graph: &Graph<'static, S>,
    runs: &[Range],
    of_grad: bool,
    convert: impl Fn(S::Elem) -> T,
) -> Result<Vec<T>> {
    let n = runs.iter().map(|run| run.len()).sum();
    let mut all = Vec::new();
    all.try_reserve_exact(n).map_err(|_| no_memory::<T>(n))?;
    for node in runs.iter().flat_map(|run| run.nodes()) {
        all.push(convert(read(graph, node, of_grad)?.lane(0)));
    }
    Ok(all)
}
