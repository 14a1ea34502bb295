//! Nodes by number, and contiguous ones.

/// The number of a node in its graph, in building order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The plain number.
    #[inline(always)]
    pub const fn index(self) -> u32 {
        self.0
    }

    /// The id with this number. Using it on a graph without such a node is an error, and memory-safe.
    #[inline(always)]
    pub const fn from_index(index: u32) -> Self {
        NodeId(index)
    }
}

/// Contiguous nodes of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Range {
    /// The nodes from `first`, `len` of them.
    pub const fn new(first: NodeId, len: u32) -> Self {
        Range { start: first.0, len }
    }

    /// The first node.
    pub const fn first(self) -> NodeId {
        NodeId(self.start)
    }

    /// The number of nodes.
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Whether it is empty.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Node `k` of the range, if it exists.
    pub fn get(self, k: usize) -> Option<NodeId> {
        (k < self.len as usize).then(|| NodeId(self.start + k as u32))
    }

    /// The nodes `from..to` of the range, if they exist.
    pub fn slice(self, from: usize, to: usize) -> Option<Range> {
        (from <= to && to <= self.len as usize)
            .then(|| Range { start: self.start + from as u32, len: (to - from) as u32 })
    }

    /// The nodes, in order.
    pub fn nodes(self) -> impl Iterator<Item = NodeId> {
        (self.start..self.start + self.len).map(NodeId)
    }

    /// The indices of the nodes.
    pub fn indices(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}
