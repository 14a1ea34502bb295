//! What can be done with a graph of any scalar type.

use std::any::Any;
use std::fmt::Debug;
use std::path::Path;
use std::ptr::NonNull;

use super::blocks::ErasedBlocks;
use super::number::{AnyNumber, AnyNumbers, ScalarType};
use super::params::{AnyParameters, Erasable, GradientTarget, typed, with_gradients};
use crate::backward::SweepOptions;
use crate::error::{Error, Result};
use crate::graph::{
    Graph, Imports, Joined, Mark, Memory, NodeId, OperandRun, Operands, Range, Renumbering, Unevaluated,
};
use crate::interrupt;
use crate::io::{Contents, Nodes};
use crate::ops::Op;
use crate::oracle::OracleMemory;
use crate::params::Slice;
use crate::scalar::{DType, Float, Scalar, bf16, f16};
use crate::simd::{F32x4, F32x8, F32x16, F32x64, F64x2, F64x4, F64x8};
use crate::viz::{Options, Picture};

/// A scalar type of which there are erased graphs.
pub(super) trait Growable: Scalar<Elem: Erasable> {
    /// The block ops of a graph, if this type has them.
    fn blocks<'a>(graph: &'a mut Graph<'static, Self>) -> Option<&'a mut dyn ErasedBlocks>;
}

macro_rules! growable {
    ($($t:ty)*, $graph:ident => $blocks:expr) => { $(
        impl Growable for $t {
            fn blocks<'a>($graph: &'a mut Graph<'static, Self>) -> Option<&'a mut dyn ErasedBlocks> {
                $blocks
            }
        }
    )* };
}
growable!(f32 f64 F32x4 F32x8 F32x16 F32x64 F64x2 F64x4 F64x8, graph => Some(graph));
growable!(f16 bf16 f128, _graph => None);

/// What a sweep starts from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seed {
    /// The root's adjoint.
    pub adjoint: f64,
    /// How many lanes have it; 0 in the others. `None` for all.
    pub lanes: Option<usize>,
}

/// What [`ErasedGraph::find_nonfinite`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The node.
    pub node: NodeId,
    /// Its op.
    pub op: Op,
    /// The values that it was computed from.
    pub inputs: Vec<AnyNumber>,
}

/// Calls its argument with each range of living nodes.
pub type ForEachLive<'a> = &'a dyn Fn(&mut dyn FnMut(Range));

/// The trait, and that graphs have it, from one list.
macro_rules! erased_graph {
    ($( $(#[$attribute:meta])* fn $name:ident($($arguments:tt)*) $(-> $result:ty)? $body:block )*) => {
        /// A graph of any scalar type. Methods are those of [`Graph`] of the same name where nothing else is said.
        pub trait ErasedGraph: Any + Debug + Send + Sync {
            $( $(#[$attribute])* fn $name($($arguments)*) $(-> $result)?; )*
        }

        impl<S: Growable> ErasedGraph for Graph<'static, S> {
            $( $(#[$attribute])* fn $name($($arguments)*) $(-> $result)? $body )*
        }
    };
}

erased_graph! {
    /// The type of its scalars.
    fn scalar_type(&self) -> ScalarType {
        ScalarType::of::<S>()
    }

    /// Its identity in this process.
    fn id(&self) -> u64 {
        Graph::id(self)
    }

    /// The current epoch.
    fn epoch(&self) -> u64 {
        Graph::epoch(self)
    }

    /// Number of nodes.
    fn len(&self) -> usize {
        Graph::len(self)
    }

    /// Whether there are no nodes.
    fn is_empty(&self) -> bool {
        Graph::is_empty(self)
    }

    /// Nodes there is room for.
    fn capacity(&self) -> usize {
        Graph::capacity(self)
    }

    /// Whether the memory never moves and never grows.
    fn is_fixed(&self) -> bool {
        Graph::is_fixed(self)
    }

    /// Bytes in use, by column.
    fn memory(&self) -> Memory {
        Graph::memory(self)
    }

    /// What the graph is to an oracle.
    fn oracle_memory(&self) -> OracleMemory {
        Graph::oracle_memory(self)
    }

    /// Identities of the parameters that nodes read, by slot.
    fn stores(&self) -> &[u64] {
        Graph::stores(self)
    }

    /// Whether new nodes take part in sweeps.
    fn records_gradients(&self) -> bool {
        Graph::records_gradients(self)
    }

    /// While `on`, what is built are constants. Returns the setting before.
    fn set_no_grad(&mut self, on: bool) -> bool {
        Graph::set_no_grad(self, on)
    }

    /// Closes the quick path from this many nodes on.
    fn pause_quick(&mut self, len: u32) {
        Graph::pause_quick(self, len);
    }

    /// The op of a node.
    fn op(&self, node: NodeId) -> Result<Op> {
        Graph::op(self, node)
    }

    /// The present epoch, if a handle of this epoch is still right.
    fn check(&self, node: NodeId, epoch: u64) -> Result<u64> {
        Graph::check(self, node, epoch)
    }

    /// The nodes that a node was computed from; parameters are left out.
    fn operands(&self, node: NodeId) -> Vec<NodeId> {
        self.topology().operand_nodes(node)
    }

    /// The frozen node that a proxy of a branch stands for.
    fn proxied(&self, node: NodeId) -> Option<NodeId> {
        Graph::proxied(self, node)
    }

    /// The op that computed a node: of an output of a block that of the block, of a map the op it maps.
    fn computed_by(&self, node: NodeId) -> Result<Op> {
        Graph::computed_by(self, node)
    }

    /// The nodes that no other node reads.
    fn sinks(&self) -> Result<Vec<NodeId>> {
        Graph::sinks(self)
    }

    /// How many nodes a sweep from this root computes with at most.
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

    /// The present length, to rewind to.
    fn mark(&self) -> Mark {
        Graph::mark(self)
    }

    /// The mark before the first node.
    fn start(&self) -> Mark {
        Graph::start(self)
    }

    /// Refuses a mark that was undone.
    fn check_mark(&self, mark: Mark) -> Result<()> {
        Graph::check_mark(self, mark)
    }

    /// Removes what was appended after the mark.
    fn rewind(&mut self, mark: Mark) -> Result<()> {
        Graph::rewind(self, mark)
    }

    /// The same for nodes without handles; it cannot fail.
    fn take_back(&mut self, mark: Mark) {
        Graph::take_back(self, mark)
    }

    /// Removes all nodes.
    fn clear(&mut self) -> Result<()> {
        Graph::clear(self)
    }

    /// Removes what nothing alive reaches, above `base`. Returns how many nodes are left.
    fn compact_above(
        &mut self,
        base: Mark,
        for_each_live: ForEachLive<'_>,
        marks: &mut [Mark],
        rename: &mut dyn FnMut(&Renumbering<'_>),
    ) -> Result<usize> {
        Graph::compact_above(self, base, for_each_live, marks, rename)
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
        self.value(node).map(Scalar::all_zero)
    }

    /// Lane 0 of the values of runs of nodes, or of their gradients.
    fn floats(&self, runs: &[Range], of_grad: bool) -> Result<Vec<f64>> {
        collected(self, runs, of_grad, Float::to_f64)
    }

    /// The same in the graph's own type; `None` where no array has it.
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

    /// Where the values of a run lie, or its gradients, and whether they must not be written. `None` where nodes carry what no
    /// array holds, where the memory may move, and for a mixture of leaves and others.
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

    /// The first node that is not finite.
    fn find_nonfinite(&self) -> Option<Found> {
        let found = Graph::find_nonfinite(self)?;
        let nodes = found.inputs.iter().filter_map(|run: &OperandRun| run.nodes()).flat_map(Range::nodes);
        let inputs = nodes.filter_map(|node| self.value(node).ok()).map(AnyNumber::of).collect();
        Some(Found { node: found.node, op: found.op, inputs })
    }

    /// Sets all gradients to zero.
    fn zero_grad(&mut self) {
        Graph::zero_grad(self);
    }

    /// A unary op.
    fn unary_op(&mut self, op: Op, x: NodeId) -> Result<NodeId> {
        Graph::unary_op(self, op, x)
    }

    /// A binary op.
    fn binary_op(&mut self, op: Op, x: NodeId, y: NodeId) -> Result<NodeId> {
        Graph::binary_op(self, op, x, y)
    }

    /// A binary op of each pair of `n` nodes, or of one node of a side with each of the other: a run. Asks now and then
    /// whether to end early; then what it has appended is to be removed.
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

    /// `x op c` for the op of an operator, by the cheapest op that does it.
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

    /// `c op x` for the op of an operator.
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

    /// Computes a value that was left out.
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

    /// A node for each number of a slice.
    fn parameters(&mut self, params: &AnyParameters, slice: Slice) -> Result<Vec<NodeId>> {
        let params = S::Elem::params(params).ok_or(Error::MissingParameters)?;
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(slice.len()).map_err(|_| no_memory::<NodeId>(slice.len()))?;
        for k in 0..slice.len() {
            nodes.push(self.parameter(params, slice, k)?);
        }
        Ok(nodes)
    }

    /// The block ops, which float32 and float64 and lanes of them have.
    fn blocks(&mut self) -> Result<&mut dyn ErasedBlocks> {
        S::blocks(self).ok_or_else(|| Error::BadArgument {
            what: "the scalar type of a graph with block ops",
            expected: "float32, float64 or lanes of them".into(),
            found: ScalarType::of::<S>().name().into(),
        })
    }

    /// A sweep. It asks `interrupted` now and then whether to end early; then no leaf has changed.
    fn sweep(
        &mut self,
        root: NodeId,
        seed: Seed,
        params: &mut [&mut AnyParameters],
        target: GradientTarget<'_>,
        options: SweepOptions,
        interrupted: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<()> {
        let adjoint = match seed.lanes {
            None => S::lit(seed.adjoint),
            Some(n) => {
                let elem = S::Elem::from_f64(seed.adjoint);
                (0..n.min(S::LANES)).fold(S::lit(0.0), |all, lane| all.with_lane(lane, elem))
            }
        };
        with_gradients(params, target, |gradients| self.backward_polled(root, adjoint, gradients, options, interrupted))
    }

    /// One step of a sweep: what a node contributes to its operands.
    fn backward_step(&mut self, node: NodeId, params: &mut [&mut AnyParameters]) -> Result<()> {
        with_gradients(params, GradientTarget::Added, |gradients| Graph::backward_step(self, node, gradients))
    }

    /// Evaluates again what `root` depends on.
    fn recompute(&mut self, root: NodeId, params: &[&AnyParameters]) -> Result<()> {
        typed(params, |params| Graph::recompute(self, root, params))
    }

    /// Empties graphs of the same type to be branches of this one.
    fn renew(&mut self, branches: &mut [&mut dyn ErasedGraph]) {
        let mut own: Vec<&mut Self> = branches.iter_mut().filter_map(|branch| same(&mut **branch)).collect();
        Graph::renew(self, own.iter_mut().map(|branch| &mut **branch));
    }

    /// Appends what branches have built.
    fn splice(&mut self, branches: &mut [&mut dyn ErasedGraph], n_threads: usize) -> Result<Joined> {
        let mut own: Vec<&mut Self> = branches.iter_mut().filter_map(|branch| same(&mut **branch)).collect();
        Graph::splice(self, &mut own, n_threads)
    }

    /// Gives a branch temporaries, or takes them back.
    fn lend_temporaries(&mut self, branch: &mut dyn ErasedGraph, lends: bool) {
        let Some(branch) = same(branch) else { return };
        if lends { Graph::lend_temporaries(self, branch) } else { self.take_temporaries(branch) }
    }

    /// Nodes of this branch that stand for nodes of a frozen graph.
    fn import(&mut self, imports: &mut Imports, frozen: &dyn ErasedGraph, range: Range) -> Result<Range> {
        let frozen: Option<&Self> = (frozen as &dyn Any).downcast_ref();
        imports.read(self, frozen.ok_or(Error::GraphMismatch { what: "a value" })?, range)
    }

    /// Removes every node and frees their memory.
    fn give_back(&mut self) {
        Graph::give_back(self);
    }

    /// The nodes from `first` to `last`, the last included.
    fn nodes_between(&self, first: u32, last: u32) -> Result<Range> {
        Graph::nodes_between(self, first, last)
    }

    /// Bytes of the raw form of so many nodes.
    fn raw_bytes(&self, n_nodes: usize, contents: Contents) -> usize {
        Graph::raw_bytes(self, n_nodes, contents)
    }

    /// The raw form.
    fn to_raw(&self, nodes: Nodes<'_>, contents: Contents) -> Result<Vec<u8>> {
        Graph::to_raw(self, nodes, contents)
    }

    /// Overwrites numbers from the raw form.
    fn read_raw(&mut self, nodes: Nodes<'_>, contents: Contents, bytes: &[u8]) -> Result<()> {
        Graph::read_raw(self, nodes, contents, bytes)
    }

    /// The same from a file that is mapped.
    fn load_raw_mapped(&mut self, path: &Path, nodes: Nodes<'_>, contents: Contents) -> Result<()> {
        Graph::load_raw_mapped(self, path, nodes, contents)
    }

    /// The checkpoint format.
    fn to_bytes(&self, contents: Contents) -> Result<Vec<u8>> {
        Graph::to_bytes(self, contents)
    }

    /// The checkpoint format of a range.
    fn range_to_bytes(&self, range: Range, contents: Contents) -> Result<Vec<u8>> {
        Graph::range_to_bytes(self, range, contents)
    }

    /// Overwrites numbers from the checkpoint format.
    fn load_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        Graph::load_bytes(self, bytes)
    }

    /// What roots were computed from, as boxes, with times where they are asked for.
    fn picture(&mut self, roots: &[NodeId], params: &[&AnyParameters], options: &Options, timed: bool) -> Result<Picture> {
        typed(params, |params| {
            let mut picture = Graph::picture(self, roots, params, options)?;
            if timed {
                self.time_parts(&mut picture, params)?;
            }
            Ok(picture)
        })
    }
}

fn read<S: Scalar>(graph: &Graph<'static, S>, node: NodeId, of_grad: bool) -> Result<S> {
    if of_grad { graph.grad(node) } else { graph.value(node) }
}

fn same<S: Growable>(graph: &mut dyn ErasedGraph) -> Option<&mut Graph<'static, S>> {
    (graph as &mut dyn Any).downcast_mut()
}

fn no_memory<T>(n: usize) -> Error {
    Error::OutOfMemory { bytes: n.saturating_mul(size_of::<T>()), what: "numbers of nodes" }
}

fn converted<'a, T, U>(numbers: &'a [T], convert: impl FnMut(&'a T) -> U) -> Result<Vec<U>> {
    let mut all = Vec::new();
    all.try_reserve_exact(numbers.len()).map_err(|_| no_memory::<U>(numbers.len()))?;
    all.extend(numbers.iter().map(convert));
    Ok(all)
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
