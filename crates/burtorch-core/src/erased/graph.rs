//! Operations on a graph of any scalar type.

use std::any::Any;
use std::fmt::Debug;
use std::path::Path;

use super::append::ErasedAppend;
use super::growable::Growable;
use super::nodes::ErasedNodes;
use super::number::ScalarType;
use super::params::{AnyNumbersMut, AnyParameters, Erasable, GradientTarget, typed, with_gradients};
use crate::backward::SweepOptions;
use crate::error::{Error, Result};
use crate::graph::{Graph, Imports, Joined, Mark, Memory, NodeId, Range, Renumbering};
use crate::io::{Contents, Nodes};
use crate::oracle::OracleMemory;
use crate::scalar::{Float, Scalar};
use crate::viz::{Options, Picture};

/// The seed of a backward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seed {
    /// The root's adjoint.
    pub adjoint: f64,
    /// The number of lanes with this adjoint; it is 0 in the others. `None` for all lanes.
    pub lanes: Option<usize>,
}

fn adjoint_of<S: Scalar>(seed: Seed) -> S {
    match seed.lanes {
        None => S::lit(seed.adjoint),
        Some(n) => {
            let elem = S::Elem::from_f64(seed.adjoint);
            (0..n.min(S::LANES)).fold(S::lit(0.0), |all, lane| all.with_lane(lane, elem))
        }
    }
}

/// Calls its argument with each range of living nodes.
pub type ForEachLive<'a> = &'a dyn Fn(&mut dyn FnMut(Range));

of_any_scalar! {
    /// A graph of any scalar type. Methods do the same as those of [`Graph`] of the same name, unless stated otherwise.
    ErasedGraph: Any, Debug, Send, Sync, ErasedNodes, ErasedAppend;

    /// The type of the scalars.
    fn scalar_type(&self) -> ScalarType {
        ScalarType::of::<S>()
    }

    /// The graph's identity in this process.
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

    /// The capacity in nodes.
    fn capacity(&self) -> usize {
        Graph::capacity(self)
    }

    /// Whether the memory never moves or grows.
    fn is_fixed(&self) -> bool {
        Graph::is_fixed(self)
    }

    /// Bytes in use, by column.
    fn memory(&self) -> Memory {
        Graph::memory(self)
    }

    /// The memory that an oracle needs for the graph.
    fn oracle_memory(&self) -> OracleMemory {
        Graph::oracle_memory(self)
    }

    /// The identities of the parameters that nodes read, by slot.
    fn stores(&self) -> &[u64] {
        Graph::stores(self)
    }

    /// Whether new nodes take part in backward passes.
    fn records_gradients(&self) -> bool {
        Graph::records_gradients(self)
    }

    /// With `on`, new nodes become constants. Returns the previous setting.
    fn set_no_grad(&mut self, on: bool) -> bool {
        Graph::set_no_grad(self, on)
    }

    /// Disables the fast path from this many nodes on.
    fn pause_quick(&mut self, len: u32) {
        Graph::pause_quick(self, len);
    }

    /// The current length, to rewind to.
    fn mark(&self) -> Mark {
        Graph::mark(self)
    }

    /// The mark before the first node.
    fn start(&self) -> Mark {
        Graph::start(self)
    }

    /// Checks that a mark is still valid.
    fn check_mark(&self, mark: Mark) -> Result<()> {
        Graph::check_mark(self, mark)
    }

    /// Removes the nodes appended after the mark.
    fn rewind(&mut self, mark: Mark) -> Result<()> {
        Graph::rewind(self, mark)
    }

    /// Removes nodes that have no handles; it cannot fail.
    fn take_back(&mut self, mark: Mark) {
        Graph::take_back(self, mark)
    }

    /// Removes all nodes.
    fn clear(&mut self) -> Result<()> {
        Graph::clear(self)
    }

    /// Removes nodes above `base` that no live handle reaches. Returns how many are left.
    fn compact_above(
        &mut self,
        base: Mark,
        for_each_live: ForEachLive<'_>,
        marks: &mut [Mark],
        rename: &mut dyn FnMut(&Renumbering<'_>),
    ) -> Result<usize> {
        Graph::compact_above(self, base, for_each_live, marks, rename)
    }

    /// Sets all gradients to zero.
    fn zero_grad(&mut self) {
        Graph::zero_grad(self);
    }

    /// A backward pass. Calls `interrupted` periodically; if it ends early, no leaf has changed.
    fn sweep(
        &mut self,
        root: NodeId,
        seed: Seed,
        params: &mut [&mut AnyParameters],
        target: GradientTarget<'_>,
        options: SweepOptions,
        interrupted: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<()> {
        let (adjoint, mut interrupted) = (adjoint_of(seed), interrupted);
        with_gradients(params, target, &mut |gradients| {
            self.backward_polled(root, adjoint, gradients, options, interrupted.take())
        })
    }

    /// A backward pass that passes on the gradients of `params`, the only ones that the graph reads, without storing
    /// them.
    fn sweep_passing_on(
        &mut self,
        root: NodeId,
        seed: Seed,
        params: &AnyParameters,
        take: &mut dyn FnMut(std::ops::Range<usize>, AnyNumbersMut<'_>) -> bool,
    ) -> Result<()> {
        typed(&[params], |params| {
            let [params] = params else { return Err(Error::MissingParameters) };
            let mut take = |range, numbers: &mut [S::Elem]| Erasable::erased(numbers).is_some_and(|any| take(range, any));
            self.backward_passed_on(root, adjoint_of(seed), params, &mut take)
        })
    }

    /// One step of a backward pass: the contributions of a node to its operands.
    fn backward_step(&mut self, node: NodeId, params: &mut [&mut AnyParameters]) -> Result<()> {
        with_gradients(params, GradientTarget::Added, &mut |gradients| Graph::backward_step(self, node, gradients))
    }

    /// Recomputes the values that `root` depends on.
    fn recompute(&mut self, root: NodeId, params: &[&AnyParameters]) -> Result<()> {
        typed(params, |params| Graph::recompute(self, root, params))
    }

    /// Empties graphs of the same type for use as branches of this one.
    fn renew(&mut self, branches: &mut [&mut dyn ErasedGraph]) {
        let mut own: Vec<&mut Self> = branches.iter_mut().filter_map(|branch| same(&mut **branch)).collect();
        Graph::renew(self, own.iter_mut().map(|branch| &mut **branch));
    }

    /// Appends the nodes of branches.
    fn splice(&mut self, branches: &mut [&mut dyn ErasedGraph], n_threads: usize) -> Result<Joined> {
        let mut own: Vec<&mut Self> = branches.iter_mut().filter_map(|branch| same(&mut **branch)).collect();
        Graph::splice(self, &mut own, n_threads)
    }

    /// Gives temporaries to a branch, or takes them back.
    fn lend_temporaries(&mut self, branch: &mut dyn ErasedGraph, lends: bool) {
        let Some(branch) = same(branch) else { return };
        if lends { Graph::lend_temporaries(self, branch) } else { self.take_temporaries(branch) }
    }

    /// The nodes of this branch that represent nodes of a frozen graph.
    fn import(&mut self, imports: &mut Imports, frozen: &dyn ErasedGraph, range: Range) -> Result<Range> {
        let frozen: Option<&Self> = (frozen as &dyn Any).downcast_ref();
        imports.read(self, frozen.ok_or(Error::GraphMismatch { what: "a value" })?, range)
    }

    /// Removes every node and frees their memory.
    fn give_back(&mut self) {
        Graph::give_back(self);
    }

    /// Size in bytes of the raw file of `n_nodes` nodes.
    fn raw_bytes(&self, n_nodes: usize, contents: Contents) -> usize {
        Graph::raw_bytes(self, n_nodes, contents)
    }

    /// The contents of a raw file.
    fn to_raw(&self, nodes: Nodes<'_>, contents: Contents) -> Result<Vec<u8>> {
        Graph::to_raw(self, nodes, contents)
    }

    /// Overwrites numbers from a raw file.
    fn read_raw(&mut self, nodes: Nodes<'_>, contents: Contents, bytes: &[u8]) -> Result<()> {
        Graph::read_raw(self, nodes, contents, bytes)
    }

    /// Overwrites numbers from a memory-mapped raw file.
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

    /// The computation of the roots as boxes, optionally with times.
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

fn same<S: Growable>(graph: &mut dyn ErasedGraph) -> Option<&mut Graph<'static, S>> {
    (graph as &mut dyn Any).downcast_mut()
}

// As for models: never inlined, as the coercion would compile the methods again in the caller's crate.
macro_rules! erased {
    ($($float:ident: $of:ident, $of_mut:ident);*) => {$(
        #[doc = concat!("A graph of `", stringify!($float), "` behind the interface.")]
        #[inline(never)]
        pub fn $of<'a>(graph: &'a Graph<'static, $float>) -> &'a dyn ErasedGraph {
            graph
        }

        #[doc = concat!("A graph of `", stringify!($float), "` behind the interface, to be changed.")]
        #[inline(never)]
        pub fn $of_mut<'a>(graph: &'a mut Graph<'static, $float>) -> &'a mut dyn ErasedGraph {
            graph
        }
    )*};
}
erased!(f32: erased_f32, erased_f32_mut; f64: erased_f64, erased_f64_mut);
