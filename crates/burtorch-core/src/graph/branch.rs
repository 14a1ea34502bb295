//! Branches: threads that append to one graph at the same time, without a lock and without an atomic.
//!
//! Each branch is a private graph that may read the frozen nodes of its parent. Joining appends the branches to the
//! parent in the order of their numbers, so the parent does not depend on which thread was faster. Promises: appending
//! to a branch costs as much as appending to a graph; a branch that is not joined has no effect; a branch reads its parent and
//! no other branch, which the borrow checker enforces. A node of the parent is read through a proxy, which is appended to
//! the branch once and removed by joining.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use super::columns::Columns;
use super::mark::RewindLog;
use super::memory::{Origin, Stack};
use super::splice::MANY;
use super::{Graph, Joined, NodeId, Range};
use crate::error::{Error, Result};
use crate::memory::list_for;
use crate::ops::Op;
use crate::scalar::Scalar;
use crate::sync;

/// The proxies that another graph has of nodes of a frozen graph, so that each is made once.
#[derive(Debug, Default)]
pub struct Imports {
    /// The first proxy of each range, with its epoch.
    seen: HashMap<(u32, u32), (u32, u64)>,
}

impl Imports {
    /// Nodes of `own` that represent `range` of `frozen`: existing ones, or new ones. A proxy has the value that the
    /// node had when the proxy was made; its gradient is the contribution of a backward pass of `own` to the node.
    pub fn read<S: Scalar>(&mut self, own: &mut Graph<'_, S>, frozen: &Graph<'_, S>, range: Range) -> Result<Range> {
        frozen.check_range(range)?;
        if let Some(found) = self.seen.get_mut(&(range.start, range.len)) {
            let made = Range { start: found.0, ..range };
            // A rewind or a compaction of the branch may have removed or moved the proxies.
            if found.1 == own.epoch || own.are_proxies(made, range.start) {
                found.1 = own.epoch;
                return Ok(made);
            }
        }
        let bytes = size_of::<((u32, u32), (u32, u64))>();
        self.seen.try_reserve(1).map_err(|_| Error::OutOfMemory { bytes, what: "proxies of a branch" })?;
        let made = own.append_proxies(frozen, range)?;
        self.seen.insert((range.start, range.len), (made.start, own.epoch));
        Ok(made)
    }
}

impl<S: Scalar> Graph<'_, S> {
    #[optimize(size)]
    fn append_proxies(&mut self, frozen: &Graph<'_, S>, range: Range) -> Result<Range> {
        let n = self.room_for(range.len())?;
        self.has_proxies = true;
        let start = self.columns.push_many_reserved(Op::Imported, n, true, true);
        for k in 0..n {
            self.columns.set_node(start + k, Op::Imported, range.start + k, 0);
        }
        self.columns.values_mut()[start as usize..].copy_from_slice(&frozen.values()[range.indices()]);
        Ok(Range { start, len: n })
    }

    /// The frozen node that a proxy of this branch represents; `None` for any other node.
    pub fn proxied(&self, node: NodeId) -> Option<NodeId> {
        let is_proxy = self.check_exists(node).is_ok() && self.columns.op(node.0) == Op::Imported;
        is_proxy.then(|| NodeId(self.columns.operands(node.0)[0]))
    }

    /// Whether the nodes are proxies of the frozen nodes from `first`.
    fn are_proxies(&self, made: Range, first: u32) -> bool {
        self.check_range(made).is_ok()
            && made.indices().zip(first..).all(|(own, frozen)| {
                self.columns.op(own as u32) == Op::Imported && self.columns.operands(own as u32)[0] == frozen
            })
    }
}

/// The branches of a graph, which is frozen while they exist. Dropped without [`Branches::join`], they append
/// nothing.
///
/// ```
/// use burtorch_core::{Graph, Op};
/// let mut graph = Graph::<f64>::new();
/// let x = graph.leaf(3.0).unwrap();
/// let mut branches = graph.branches(4).unwrap();
/// let found: Vec<_> = std::thread::scope(|scope| {
///     let threads: Vec<_> = branches
///         .iter_mut()
///         .map(|mut branch| {
///             scope.spawn(move || {
///                 let x = branch.read(x)?;
///                 let c = branch.number() as f64;
///                 let y = branch.with_constant::<burtorch_core::ops::MulByConstant>(x, c)?;
///                 branch.unary_op(Op::Sqr, y)
///             })
///         })
///         .collect();
///     threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
/// });
/// let joined = branches.join().unwrap();
/// let y = joined.node(3, found[3]).unwrap();
/// graph.backward(y).unwrap();
/// assert_eq!((graph.value(y), graph.grad(x)), (Ok(81.0), Ok(54.0)));
/// ```
#[derive(Debug)]
pub struct Branches<'p, 'm, S: Scalar> {
    parent: &'p mut Graph<'m, S>,
    segments: Vec<Segment<S>>,
}

/// The nodes of a branch, and its proxies.
#[derive(Debug, Default)]
struct Segment<S: Scalar> {
    own: Graph<'static, S>,
    imports: Imports,
}

/// A branch: a graph to append to, besides the frozen one that it may read. It moves to the thread that builds it.
#[derive(Debug)]
pub struct Branch<'b, 'm, S: Scalar> {
    parent: &'b Graph<'m, S>,
    segment: &'b mut Segment<S>,
    number: usize,
}

impl<'m, S: Scalar> Graph<'m, S> {
    /// Freezes the graph and makes `n` branches of it, at least one. A branch builds constants if this graph does.
    #[optimize(size)]
    pub fn branches(&mut self, n: usize) -> Result<Branches<'_, 'm, S>> {
        if n == 0 {
            return Err(Error::BadArgument {
                what: "the number of branches",
                expected: "at least 1".to_string(),
                found: "0".to_string(),
            });
        }
        let mut segments = list_for(n, "branches")?;
        segments.extend(self.new_branches(n)?.into_iter().map(|own| Segment { own, imports: Imports::default() }));
        Ok(Branches { parent: self, segments })
    }
}

/// The lengths of the branches joined last. If the branches before them had the same lengths, the next ones get
/// reserved regions of these sizes, and are joined without copying if they fill them.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    of_last: Vec<u32>,
    /// Whether reserved regions of these sizes pay off.
    are_likely: bool,
}

impl Sizes {
    /// Records the sizes of joined branches; `reserved` if they had regions of the recorded sizes.
    pub(super) fn learn(&mut self, sizes: Vec<u32>, reserved: bool) {
        self.are_likely = self.of_last == sizes || self.of_last.is_empty() && !reserved;
        self.of_last = sizes;
    }

    /// Discards the sizes after a join whose nodes did not all move by the same distance.
    pub(super) fn forget(&mut self) {
        self.of_last.clear();
    }

    /// The expected sizes of `n` branches, if they are large enough to matter.
    fn expected(&self, n: usize) -> Option<&[u32]> {
        let total = self.of_last.iter().map(|&size| u64::from(size)).sum::<u64>();
        (self.are_likely && self.of_last.len() == n && total >= MANY.into()).then_some(&self.of_last)
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Empty graphs to build branches in, as [`Graph::renew`] makes them; in memory given to [`Graph::recycle`], if there
    /// is any.
    #[optimize(size)]
    pub fn new_branches(&mut self, n: usize) -> Result<Vec<Graph<'static, S>>> {
        let mut branches = list_for(n, "branches")?;
        // Each branch gets the memory of the earlier branch with its number.
        branches.extend(self.spares.drain(..n.min(self.spares.len())));
        branches.resize_with(n, Graph::new);
        self.renew(branches.iter_mut());
        Ok(branches)
    }

    /// Empties graphs for new branches, gives each its own identity, and makes them build constants if this graph does.
    /// They keep their memory; if the last branches had the same lengths as those before, they get reserved regions of
    /// this graph's memory.
    #[optimize(size)]
    pub fn renew<'b>(&mut self, branches: impl ExactSizeIterator<Item = &'b mut Graph<'static, S>>)
    where
        S: 'b,
    {
        // A failure only means that there are no reserved regions, and joining is slower.
        let places = self.sizes.expected(branches.len());
        let places = places.and_then(|sizes| self.columns.reserve_regions(sizes).unwrap_or_default());
        let mut places = places.into_iter().flatten();
        let is_off = !self.records_gradients();
        for branch in branches {
            *branch = std::mem::take(branch).emptied();
            if let Some(place) = places.next() {
                branch.columns = place;
            }
            branch.set_no_grad(is_off);
        }
    }

    /// Gives a branch of this graph unused temporaries. Branches built one after another then share the same ones,
    /// which stay in the cache.
    pub fn lend_temporaries(&mut self, branch: &mut Graph<'static, S>) {
        if branch.scratch.len() == 0
            && let Some(spare) = self.spare_temporaries.pop()
        {
            branch.scratch = spare;
        }
    }

    /// Takes back the temporaries of a finished branch.
    pub fn take_temporaries(&mut self, branch: &mut Graph<'static, S>) {
        if branch.scratch.len() > 0 && self.spare_temporaries.try_reserve(1).is_ok() {
            let none = Stack::new("temporaries", Origin::Growing);
            self.spare_temporaries.push(std::mem::replace(&mut branch.scratch, none));
        }
    }

    /// Removes every node and frees the memory of nodes, unlike [`Graph::clear`]; handles must be dropped.
    #[optimize(size)]
    pub fn give_back(&mut self) {
        self.columns = Columns::new(Origin::Growing, u32::MAX);
        self.extra.truncate(0);
        self.leaves.truncate(0);
        self.stores.truncate(0);
        self.dirty = (0, 0);
    }

    /// Keeps the memory of joined graphs for later branches, and drops older memory: keeps as much as the last branches
    /// used, and as many graphs as the list has capacity for.
    pub fn recycle(&mut self, joined: impl Iterator<Item = Graph<'static, S>>) {
        self.spares.clear();
        for spare in joined {
            if self.spares.try_reserve(1).is_err() {
                break;
            }
            self.spares.push(spare);
        }
    }
}

impl<S: Scalar> Graph<'static, S> {
    /// An empty graph with its own identity, in the memory of this one.
    fn emptied(self) -> Self {
        let Graph { mut columns, mut extra, mut leaves, scratch, .. } = self;
        if columns.is_shared() {
            columns = Columns::new(Origin::Growing, u32::MAX);
        }
        columns.truncate(0);
        columns.set_recording(true);
        extra.truncate(0);
        leaves.truncate(0);
        let rewinds = RewindLog::new(Stack::new("rewinds", Origin::Growing));
        Self::assemble(columns, extra, leaves, scratch, rewinds)
    }
}

impl<'m, S: Scalar> Branches<'_, 'm, S> {
    /// The branches by their numbers, for threads.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = Branch<'_, 'm, S>> + ExactSizeIterator {
        let parent: &Graph<'m, S> = self.parent;
        self.segments.iter_mut().enumerate().map(move |(number, segment)| Branch { parent, segment, number })
    }

    /// The number of branches.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Appends the branches to the graph, in the order of their numbers, and returns the new places of nodes. Linear in the
    /// appended nodes. On an error nothing is appended. The graph keeps the memory of the branches for later ones.
    #[optimize(size)]
    pub fn join(self) -> Result<Joined> {
        self.join_on(sync::n_cores())
    }

    /// As [`Branches::join`], on at most this many threads: the same graph for any number.
    #[optimize(size)]
    pub fn join_on(self, n_threads: usize) -> Result<Joined> {
        let Branches { parent, mut segments } = self;
        let mut graphs = list_for(segments.len(), "branches to join")?;
        graphs.extend(segments.iter_mut().map(|segment| &mut segment.own));
        let joined = parent.splice(&mut graphs, n_threads)?;
        parent.recycle(segments.into_iter().map(|segment| segment.own));
        Ok(joined)
    }
}

impl<S: Scalar> Branch<'_, '_, S> {
    /// This branch's number, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The proxy of a frozen node of the parent in this branch: the same one each time.
    pub fn read(&mut self, node: NodeId) -> Result<NodeId> {
        self.read_range(Range::new(node, 1)).map(Range::first)
    }

    /// Proxies of contiguous frozen nodes of the parent, contiguous in this branch.
    pub fn read_range(&mut self, range: Range) -> Result<Range> {
        let Segment { own, imports } = &mut *self.segment;
        imports.read(own, self.parent, range)
    }

    /// The frozen graph.
    pub fn parent(&self) -> &Graph<'_, S> {
        self.parent
    }
}

impl<S: Scalar> Deref for Branch<'_, '_, S> {
    type Target = Graph<'static, S>;

    fn deref(&self) -> &Self::Target {
        &self.segment.own
    }
}

impl<S: Scalar> DerefMut for Branch<'_, '_, S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.segment.own
    }
}
