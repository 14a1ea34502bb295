//! The graph: nodes in columns, in the order they were built, and their handles.
//!
//! Promises: every operand comes before its node; a handle whose node is gone is refused; an error changes nothing;
//! after the first pass over the same work nothing is allocated. Knows values and structure, not derivatives.

pub(crate) mod columns;
pub(crate) mod memory;

mod block;
mod branch;
mod build;
mod capacity;
mod check;
mod compact;
mod deferred;
mod in_place;
mod inspect;
#[cfg(feature = "labels")]
mod labels;
mod leaves;
mod liveness;
mod mark;
mod nary;
mod node;
mod operands;
mod parallel_append;
mod quick;
mod recompute;
mod renumber;
mod reset;
mod sampling;
mod slots;
mod splice;
mod sweep;
mod topology;
mod unevaluated;
mod validate;

use std::marker::PhantomData;

pub use block::{CrossEntropyTarget, Tokens};
pub use branch::{Branch, Branches, Imports};
pub use capacity::{Capacity, bytes_needed};
pub use compact::Renumbering;
pub use inspect::{Memory, NonFinite};
pub use mark::{Mark, UNEVALUATED};
pub use nary::Operands;
pub use node::{NodeId, Range};
pub use operands::{OperandRun, View};
pub use quick::Quick;
pub use splice::{Joined, Spliced};
pub use unevaluated::Unevaluated;

pub(crate) use block::{AffineRecord, BlockHeader, MapRecord, TokenRecord, is_over_tokens};
pub(crate) use check::{Check, Needs};
pub(crate) use deferred::{Deferred, MAX_GROUPS};
pub(crate) use liveness::NodeSet;
pub(crate) use operands::{Encoded, InnerOperands};
pub(crate) use sampling::{Application, InputSampler};
pub(crate) use slots::PerSlot;
use slots::Stores;
pub(crate) use sweep::Sweep;
pub(crate) use topology::Topology;
pub(crate) use validate::Parts;

use columns::Columns;
use leaves::Leaves;
use mark::RewindLog;
use memory::{Origin, Stack};

use crate::error::{Error, Result};
use crate::ops::Op;
use crate::scalar::Scalar;
use crate::sync::{stop, unique_id};

/// A graph of scalar operations on numbers of type `S`, each evaluated when it is appended.
///
/// `'m` is the lifetime of the caller's memory ([`Graph::in_buffers`]); other graphs are `Graph<'static, S>`.
/// A graph is `Send` and `Sync`: building and sweeping take `&mut self`, so the borrow checker keeps them apart.
///
/// ```
/// use burtorch_core::Graph;
/// let mut graph = Graph::<f64>::new();
/// let t = graph.eager();
/// let (a, b) = (t.leaf(-41.0), t.leaf(2.0));
/// let c = a + b;
/// let d = a * b + b.pow3();
/// let g = (c - d).sqr() / 2.0;
/// g.backward();
/// assert_eq!((g.data(), a.grad(), b.grad()), (612.5, -35.0, 1050.0));
/// ```
#[derive(Debug)]
pub struct Graph<'m, S: Scalar> {
    /// Identifies the graph, so that a handle of another graph is refused.
    id: u64,
    /// Grows by one at every rewind and every compaction.
    epoch: u64,
    pub(crate) columns: Columns<S>,
    /// Operand lists and block records, as plain numbers.
    pub(crate) extra: Stack<u32>,
    /// The nodes that are leaves, and the accumulated gradient of each.
    pub(crate) leaves: Leaves<S>,
    /// Temporaries of block ops and reductions; its length is the largest need so far.
    pub(crate) scratch: Stack<S>,
    /// Rewinds that are needed to check handles.
    rewinds: RewindLog,
    /// Identities of the parameters that nodes read, by slot.
    stores: Stores,
    /// Adjoints outside this span are all "not reached".
    pub(crate) dirty: (u32, u32),
    /// Kept between compactions to avoid allocations.
    reached: liveness::NodeSet,
    /// Threads that share the products of dense layers; see [`Graph::share_products`].
    pub(crate) n_threads: u32,
    /// Whether losses of cross-entropies are skipped; see [`Graph::skip_losses`].
    skips_losses: bool,
    /// Whether only the next backward pass marks the first rows of the graph "not reached"; see [`Graph::mark_later`].
    marks_later: bool,
    #[cfg(feature = "labels")]
    labels: labels::Labels,
    /// Whether there are, or were, proxies.
    has_proxies: bool,
    /// Joined graphs, whose memory the next branches use.
    spares: Vec<Graph<'static, S>>,
    /// Unused temporaries.
    spare_temporaries: Vec<Stack<S>>,
    /// The lengths of the branches joined last.
    sizes: branch::Sizes,
    memory: PhantomData<&'m mut [u8]>,
}

impl<S: Scalar> Graph<'static, S> {
    /// An empty graph that grows as needed. Allocates nothing yet.
    pub fn new() -> Self {
        Self::with_index_limit(u32::MAX)
    }

    /// An empty graph that refuses to hold more than `limit` nodes, with [`Error::IndexExhausted`].
    pub fn with_index_limit(limit: u32) -> Self {
        Self::assemble(
            Columns::new(Origin::Growing, limit),
            Stack::new("operand lists", Origin::Growing),
            Leaves::new(Origin::Growing),
            Stack::new("temporaries", Origin::Growing),
            RewindLog::new(Stack::new("rewinds", Origin::Growing)),
        )
    }

    /// A growing graph with space for `nodes` from the start.
    pub fn with_capacity(nodes: u32) -> Result<Self> {
        let mut graph = Self::new();
        graph.columns.preallocate(nodes)?;
        Ok(graph)
    }
}

impl<S: Scalar> Default for Graph<'static, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'m, S: Scalar> Graph<'m, S> {
    pub(crate) fn assemble(
        columns: Columns<S>,
        extra: Stack<u32>,
        leaves: Leaves<S>,
        scratch: Stack<S>,
        rewinds: RewindLog,
    ) -> Self {
        Graph {
            id: unique_id(),
            epoch: 0,
            columns,
            extra,
            leaves,
            scratch,
            rewinds,
            stores: Stores::new(),
            dirty: (0, 0),
            reached: liveness::NodeSet::default(),
            n_threads: 1,
            skips_losses: false,
            marks_later: false,
            #[cfg(feature = "labels")]
            labels: Vec::new(),
            has_proxies: false,
            spares: Vec::new(),
            spare_temporaries: Vec::new(),
            sizes: branch::Sizes::default(),
            memory: PhantomData,
        }
    }

    /// The graph's identity in this process.
    #[inline(always)]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The current epoch. A handle made now stays valid without further checks while the epoch is this one.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number of nodes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.columns.len() as usize
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.columns.len() == 0
    }

    /// The number of nodes that fit before the graph grows, or is full.
    pub fn capacity(&self) -> usize {
        self.columns.capacity() as usize
    }

    /// Whether the memory never moves and never grows.
    pub fn is_fixed(&self) -> bool {
        self.columns.is_fixed()
    }

    /// The op of a node.
    pub fn op(&self, node: NodeId) -> Result<Op> {
        self.check_exists(node)?;
        Ok(self.columns.op(node.0))
    }

    /// The op that computed a node: for an output of a block that of the block, for a map the mapped op.
    pub fn computed_by(&self, node: NodeId) -> Result<Op> {
        self.check_exists(node)?;
        let tail = self.block_tail(node.0).unwrap_or(node.0);
        let (op, [at, _]) = (self.columns.op(tail), self.columns.operands(tail));
        Ok(if op == Op::Map { MapRecord::read(self.extra.as_slice(), at).op } else { op })
    }

    /// The value of a node.
    #[inline(always)]
    pub fn value(&self, node: NodeId) -> Result<S> {
        self.check_exists(node)?;
        Ok(self.columns.value(node.0))
    }

    /// Overwrites the value of one node. Nodes computed from it keep their values; a later sweep uses the new value where a
    /// partial needs it. [`Graph::recompute`] re-evaluates.
    pub fn set_value(&mut self, node: NodeId, value: S) -> Result<()> {
        self.check_exists(node)?;
        self.columns.set_value(node.0, value);
        Ok(())
    }

    /// The gradient of a node: accumulated over sweeps for a leaf, of the last sweep for any other, 0 if not reached.
    #[inline(always)]
    pub fn grad(&self, node: NodeId) -> Result<S> {
        self.check_exists(node)?;
        let adjoint = if self.columns.op(node.0) == Op::Leaf {
            self.leaves.grads()[self.columns.operands(node.0)[0] as usize]
        } else {
            self.columns.adjoint(node.0)
        };
        Ok(if adjoint.is_unreached() { S::lit(0.0) } else { adjoint })
    }

    /// Overwrites the gradient of one node.
    pub fn set_grad(&mut self, node: NodeId, grad: S) -> Result<()> {
        self.check_exists(node)?;
        if self.columns.op(node.0) == Op::Leaf {
            let leaf = self.columns.operands(node.0)[0] as usize;
            self.leaves.grads_mut()[leaf] = grad;
        } else {
            self.columns.set_adjoint(node.0, grad + S::lit(0.0));
            self.add_dirty(node.0..node.0 + 1);
        }
        Ok(())
    }

    /// Records that adjoints of these nodes may be reached from now on.
    pub(crate) fn add_dirty(&mut self, nodes: std::ops::Range<u32>) {
        self.dirty = match self.dirty.0 == self.dirty.1 {
            true => (nodes.start, nodes.end),
            false => (self.dirty.0.min(nodes.start), self.dirty.1.max(nodes.end)),
        };
    }

    /// From now on the adjoints of the graph's first rows are undefined until a backward pass, which saves a pass over
    /// them if the backward pass overwrites them. Only for graphs whose gradients are not read before.
    pub(crate) fn mark_later(&mut self, later: bool) {
        self.marks_later = later;
    }

    /// From now on at most this many threads share each product of a dense layer on 64 lanes.
    pub(crate) fn share_products(&mut self, n_threads: usize) {
        self.n_threads = n_threads.clamp(1, u32::MAX as usize) as u32;
    }

    /// Whether [`Graph::mark_later`] is in effect.
    pub(crate) fn marks_later(&self) -> bool {
        self.marks_later && self.columns.len() == 0
    }

    /// All values, by node index.
    pub fn values(&self) -> &[S] {
        self.columns.values()
    }

    /// All values, to be overwritten.
    pub fn values_mut(&mut self) -> &mut [S] {
        self.columns.values_mut()
    }

    /// Adjoints of the last sweep by node index, with -0.0 for "not reached". A leaf's entry is its share of that sweep.
    pub fn adjoints(&self) -> &[S] {
        self.columns.adjoints()
    }

    /// The accumulated gradients of a range of leaves, or the adjoints of a range of other nodes (-0.0 for "not
    /// reached"), in place, and whether they are read-only: a backward pass resets only the adjoints that it knows of.
    /// `None` for a mixture, or missing nodes.
    pub fn grads_of_run(&mut self, range: Range) -> Option<(&mut [S], bool)> {
        let ops = self.columns.ops().get(range.indices())?;
        let n_leaves = ops.iter().filter(|&&op| op == Op::Leaf).count();
        if n_leaves == 0 {
            return Some((&mut self.columns.split_for_sweep().1[range.indices()], true));
        }
        // Leaves are numbered in building order, so the leaves of a range are consecutive.
        let first = self.columns.operands(range.start)[0] as usize;
        let is_whole = n_leaves == range.len();
        is_whole.then(|| (&mut self.leaves.grads_mut()[first..first + n_leaves], false))
    }

    /// Whether new nodes take part in sweeps; `false` after [`Graph::set_no_grad`].
    pub fn records_gradients(&self) -> bool {
        self.columns.is_tracing()
    }

    /// While `on`, new nodes become constants: no gradient, no gradient memory, no work in a sweep. Returns the
    /// setting before.
    pub fn set_no_grad(&mut self, on: bool) -> bool {
        !self.columns.set_recording(!on)
    }

    /// Whether `node` is in the graph.
    #[inline(always)]
    pub(crate) fn check_exists(&self, node: NodeId) -> Result<()> {
        if node.0 < self.columns.len() {
            Ok(())
        } else {
            Err(Error::NoSuchNode { index: node.0, len: self.columns.len() })
        }
    }

    pub(crate) fn check_range(&self, range: Range) -> Result<()> {
        let end = u64::from(range.start) + u64::from(range.len);
        if end <= u64::from(self.columns.len()) {
            Ok(())
        } else {
            Err(Error::NoSuchNode { index: (end - 1).min(u64::from(u32::MAX)) as u32, len: self.columns.len() })
        }
    }

    /// The slot by which nodes refer to parameters with identity `store`, created if needed.
    pub(crate) fn slot_of(&mut self, store: u64) -> Result<u32> {
        if let Some(slot) = self.stores.iter().position(|&s| s == store) {
            return Ok(slot as u32);
        }
        self.stores.push(store)?;
        Ok(self.stores.len() as u32 - 1)
    }

    /// Runs `build`; if it fails, removes the nodes it appended. Under `no_grad`, where only values are needed, always
    /// removes operand lists and slots of parameters.
    #[inline(always)]
    pub(crate) fn atomically<T>(&mut self, build: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let (nodes, extra, stores) = (self.columns.len(), self.extra.len(), self.stores.len());
        let result = build(self).and_then(|built| stop::check().map(|()| built));
        if result.is_err() {
            self.columns.truncate(nodes);
        }
        if result.is_err() || !self.columns.is_tracing() {
            self.extra.truncate(extra);
            self.stores.truncate(stores);
        }
        result
    }

    /// Identities of the parameters that nodes may read, by slot.
    pub fn stores(&self) -> &[u64] {
        &self.stores
    }
}
