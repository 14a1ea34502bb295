//! Many operands of a node: one run, a list of views, or a list of ids, packed into two numbers.
//!
//! Promises: a contiguous run needs no list; a list of views stands for their concatenation and copies nothing.

use super::{Graph, NodeId, PerSlot, Range};
use crate::error::{Error, Result};
use crate::params::{Parameters, Slice};
use crate::scalar::Scalar;

/// Contiguous scalars that an op may read: nodes of the graph, or numbers of a `Parameters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Nodes of the graph.
    Nodes(Range),
    /// Numbers of a `Parameters`.
    Parameters(Slice),
}

impl View {
    /// The number of scalars.
    pub fn len(&self) -> usize {
        match self {
            View::Nodes(range) => range.len(),
            View::Parameters(slice) => slice.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Range> for View {
    fn from(range: Range) -> Self {
        View::Nodes(range)
    }
}

impl From<NodeId> for View {
    fn from(node: NodeId) -> Self {
        View::Nodes(Range { start: node.0, len: 1 })
    }
}

impl From<Slice> for View {
    fn from(slice: Slice) -> Self {
        View::Parameters(slice)
    }
}

/// One run of operands as a node stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandRun {
    /// 0 for nodes of the graph, otherwise one more than the slot of the parameters.
    pub(crate) source: u32,
    /// The first node, or the index of the first number in the parameters.
    pub(crate) start: u32,
    /// The number of scalars.
    pub(crate) len: u32,
}

impl OperandRun {
    /// The nodes, if these are nodes of the graph.
    pub fn nodes(self) -> Option<Range> {
        (self.source == 0).then_some(Range { start: self.start, len: self.len })
    }

    /// Slot, first index and number of the parameters, if these are parameters.
    pub fn parameters(self) -> Option<(usize, usize, usize)> {
        (self.source > 0).then(|| (self.source as usize - 1, self.start as usize, self.len as usize))
    }

    #[inline(always)]
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// Operands encoded in two numbers. The two top bits of the second give the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoded(pub(crate) u32, pub(crate) u32);

const RUN: u32 = 0;
const VIEWS: u32 = 1 << 30;
const LIST: u32 = 2 << 30;
const COUNT: u32 = VIEWS - 1;

impl Encoded {
    /// Whether the top bits give a valid encoding.
    pub(crate) fn is_known(self) -> bool {
        self.1 >> 30 < 3
    }

    /// `count` views from `at` in the operand lists.
    pub(crate) fn views(at: u32, count: u32) -> Self {
        Encoded(at, VIEWS | count)
    }

    /// The operands as one range of nodes, if they are contiguous.
    #[inline(always)]
    pub(crate) fn contiguous(self) -> Option<Range> {
        (self.1 & !COUNT == RUN).then_some(Range { start: self.0, len: self.1 })
    }

    /// Calls `f` with each range, in order.
    #[inline(always)]
    pub(crate) fn for_each_run(self, extra: &[u32], mut f: impl FnMut(OperandRun)) {
        let (at, count) = (self.0 as usize, (self.1 & COUNT) as usize);
        match self.1 & !COUNT {
            RUN => f(OperandRun { source: 0, start: self.0, len: self.1 }),
            VIEWS => {
                for view in extra[at..at + 3 * count].as_chunks::<3>().0 {
                    f(OperandRun { source: view[0], start: view[1], len: view[2] });
                }
            }
            _ => {
                for &node in &extra[at..at + count] {
                    f(OperandRun { source: 0, start: node, len: 1 });
                }
            }
        }
    }

    /// Range `k`, in the order of [`Encoded::for_each_run`].
    pub(crate) fn run(self, k: usize, extra: &[u32]) -> Option<OperandRun> {
        let (at, count) = (self.0 as usize, (self.1 & COUNT) as usize);
        match self.1 & !COUNT {
            RUN => (k == 0).then_some(OperandRun { source: 0, start: self.0, len: self.1 }),
            _ if k >= count => None,
            VIEWS => {
                let view = extra[at + 3 * k..].first_chunk::<3>()?;
                Some(OperandRun { source: view[0], start: view[1], len: view[2] })
            }
            _ => Some(OperandRun { source: 0, start: extra[at + k], len: 1 }),
        }
    }

    /// The length of these operands in the operand lists.
    pub(crate) fn stored_len(self) -> usize {
        let count = (self.1 & COUNT) as usize;
        match self.1 & !COUNT {
            RUN => 0,
            VIEWS => 3 * count,
            _ => count,
        }
    }

    /// Renumbers the nodes and slots in a copy of the stored numbers.
    pub(crate) fn renumber(self, stored: &mut [u32], new: impl Fn(u32) -> u32, slots: &[u32]) {
        if self.1 & !COUNT == LIST {
            stored.iter_mut().for_each(|node| *node = new(*node));
        } else {
            for view in stored.as_chunks_mut::<3>().0 {
                match view[0] {
                    0 => view[1] = new(view[1]),
                    source => view[0] = slots[source as usize - 1] + 1,
                }
            }
        }
    }

    /// The number of scalars.
    #[inline(always)]
    pub(crate) fn count(self, extra: &[u32]) -> usize {
        match self.1 & !COUNT {
            VIEWS => {
                let mut n = 0;
                self.for_each_run(extra, |run| n += run.len as usize);
                n
            }
            _ => (self.1 & COUNT) as usize,
        }
    }

    /// Copies the operands' values into `out`, whose length is their count; `store` gives the parameters of a slot.
    #[inline(always)]
    pub(crate) fn gather<'s, S: Scalar>(
        self,
        extra: &[u32],
        nodes: &[S],
        store: impl Fn(usize) -> &'s [S::Elem],
        out: &mut [S],
    ) {
        let mut at = 0;
        self.for_each_run(extra, |run| {
            let out = &mut out[at..at + run.len as usize];
            if run.source == 0 {
                out.copy_from_slice(&nodes[run.range()]);
            } else {
                let numbers = &store(run.source as usize - 1)[run.range()];
                for (o, &x) in out.iter_mut().zip(numbers) {
                    *o = S::splat(x);
                }
            }
            at += run.len as usize;
        });
    }
}

/// The operands of an inner product, as a record in the operand lists: x, w and the bias node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InnerOperands {
    pub(crate) x: Encoded,
    pub(crate) w: Encoded,
    pub(crate) bias: u32,
}

impl InnerOperands {
    pub(crate) const LEN: usize = 5;

    pub(crate) fn read(extra: &[u32], at: u32) -> Self {
        let record = &extra[at as usize..at as usize + 5];
        InnerOperands { x: Encoded(record[0], record[1]), w: Encoded(record[2], record[3]), bias: record[4] }
    }

    pub(crate) fn write(self) -> [u32; 5] {
        [self.x.0, self.x.1, self.w.0, self.w.1, self.bias]
    }
}

/// The values of the parameters in a graph, by slot.
pub(crate) type StoreValues<'a, E> = PerSlot<&'a [E]>;

impl<S: Scalar> Graph<'_, S> {
    /// Finds the parameters of each slot among `given`; a slot without given parameters is empty: building the node
    /// refused to read it, or the backward pass will.
    pub(crate) fn store_values<'p>(&self, given: &[&'p Parameters<'_, S::Elem>]) -> Result<StoreValues<'p, S::Elem>> {
        let mut values: StoreValues<'p, S::Elem> = PerSlot::of(&[][..], self.stores().len())?;
        for (slot, &store) in self.stores().iter().enumerate() {
            if let Some(found) = given.iter().find(|p| p.id() == store) {
                values[slot] = found.values();
            }
        }
        Ok(values)
    }

    /// Checks views and appends them to the operand lists; nothing is appended on an error.
    pub(crate) fn encode_views(
        &mut self,
        views: impl Iterator<Item = View> + Clone,
        given: &[&Parameters<'_, S::Elem>],
    ) -> Result<Encoded> {
        let mut n_views = 0;
        for view in views.clone() {
            self.check_view(view, given)?;
            n_views += 1;
        }
        if n_views == 1
            && let Some(View::Nodes(range)) = views.clone().next()
            && range.len <= COUNT
        {
            return Ok(Encoded(range.start, range.len));
        }
        if n_views > COUNT as usize {
            return Err(Error::IndexExhausted { limit: COUNT });
        }
        self.extra.reserve(3 * n_views)?;
        let at = self.extra.len() as u32;
        for view in views {
            let [source, start, len] = match view {
                View::Nodes(range) => [0, range.start, range.len],
                View::Parameters(slice) => [self.slot_of(slice.store)? + 1, slice.start, slice.len],
            };
            self.extra.push_reserved(source);
            self.extra.push_reserved(start);
            self.extra.push_reserved(len);
        }
        Ok(Encoded(at, VIEWS | n_views as u32))
    }

    /// Checks ids and appends them to the operand lists, unless they are contiguous.
    pub(crate) fn encode_list(&mut self, nodes: &[NodeId]) -> Result<Encoded> {
        for &node in nodes {
            self.check_exists(node)?;
        }
        if nodes.len() > COUNT as usize {
            return Err(Error::IndexExhausted { limit: COUNT });
        }
        if let Some(first) = nodes.first()
            && nodes.iter().enumerate().all(|(k, n)| n.0 as usize == first.0 as usize + k)
        {
            return Ok(Encoded(first.0, nodes.len() as u32));
        }
        self.extra.reserve(nodes.len())?;
        let at = self.extra.len() as u32;
        for node in nodes {
            self.extra.push_reserved(node.0);
        }
        Ok(Encoded(at, LIST | nodes.len() as u32))
    }

    /// Whether the nodes exist, or the parameters are given, agree with the slice, and fit the graph's slots.
    pub(crate) fn check_view(&self, view: View, given: &[&Parameters<'_, S::Elem>]) -> Result<()> {
        match view {
            View::Nodes(range) => self.check_range(range),
            View::Parameters(slice) => {
                let params = given.iter().find(|p| p.id() == slice.store).ok_or(Error::MissingParameters)?;
                params.check_slice(slice)
            }
        }
    }
}
