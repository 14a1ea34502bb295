//! The state of a Python `Graph`: a core graph of some dtype, its live handles, marks and names, and whether it is in use.
//!
//! Promises: the graph's fast path is open exactly while it is not in use, or in use for a trace, and has nothing to
//! reclaim, so an operator makes one check. Guarded by the GIL; while a call has released the GIL the cell is busy and refuses
//! others. `reclaim` implements reclaim.

use std::any::Any;
use std::ops::{Deref, DerefMut};

use burtorch_core::erased::{
    ErasedGraph, Room, ScalarType, erased_f32, erased_f32_mut, erased_f64, erased_f64_mut, make_graph,
};
use burtorch_core::graph::UNEVALUATED;
use burtorch_core::{DType, Graph, Mark, NodeId, Result, Scalar, Unevaluated};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::convert::gc::{HoldsObjects, Visitor};
use crate::graph::Branching;
use crate::graph::by_node::ByNode;
use crate::graph::handle::{Handle, LiveHandles};
use crate::graph::objects::Objects;
use crate::graph::reclaim::Generations;

/// A graph of one of Python's dtypes. The two with fast operators are stored directly; all other operations on a graph use
/// [`ErasedGraph`], which the core compiles for every type.
#[derive(Debug)]
pub enum AnyGraph {
    /// float64
    F64(Graph<'static, f64>),
    /// float32
    F32(Graph<'static, f32>),
    /// Another type.
    Other(Box<dyn ErasedGraph>),
}

impl AnyGraph {
    /// An empty graph of this type.
    pub fn make(of: ScalarType, room: Room) -> burtorch_core::Result<Self> {
        make_graph(of, room).map(Self::from)
    }

    /// The same, if graphs of the type exist: it grows as needed.
    pub fn growing(of: ScalarType) -> Self {
        Self::make(of, Room::Growing).unwrap_or_else(|_| AnyGraph::F64(Graph::new()))
    }

    /// The current epoch.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        match self {
            AnyGraph::F64(g) => g.epoch(),
            AnyGraph::F32(g) => g.epoch(),
            AnyGraph::Other(g) => g.epoch(),
        }
    }

    /// Number of nodes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match self {
            AnyGraph::F64(g) => g.len(),
            AnyGraph::F32(g) => g.len(),
            AnyGraph::Other(g) => g.len(),
        }
    }

    /// The data of a node, in its first lane.
    #[inline(always)]
    pub fn float(&self, node: NodeId) -> burtorch_core::Result<f64> {
        match self {
            AnyGraph::F64(g) => g.value(node),
            AnyGraph::F32(g) => g.value(node).map(f64::from),
            AnyGraph::Other(g) => g.float(node, false),
        }
    }
}

impl From<Box<dyn ErasedGraph>> for AnyGraph {
    fn from(graph: Box<dyn ErasedGraph>) -> Self {
        match graph.scalar_type().name() {
            "float64" => plain(graph, AnyGraph::F64),
            "float32" => plain(graph, AnyGraph::F32),
            _ => AnyGraph::Other(graph),
        }
    }
}

/// Moves a graph out of its box.
fn plain<S: Scalar>(graph: Box<dyn ErasedGraph>, of: fn(Graph<'static, S>) -> AnyGraph) -> AnyGraph {
    match (graph as Box<dyn Any>).downcast::<Graph<'static, S>>() {
        Ok(graph) => of(*graph),
        Err(_) => AnyGraph::F64(Graph::new()),
    }
}

impl Deref for AnyGraph {
    type Target = dyn ErasedGraph;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            AnyGraph::F64(g) => erased_f64(g),
            AnyGraph::F32(g) => erased_f32(g),
            AnyGraph::Other(g) => &**g,
        }
    }
}

impl DerefMut for AnyGraph {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            AnyGraph::F64(g) => erased_f64_mut(g),
            AnyGraph::F32(g) => erased_f32_mut(g),
            AnyGraph::Other(g) => &mut **g,
        }
    }
}

/// Marks by their number. Every rewind looks one up; internal numbers need no hash that resists attacks.
pub type Marks = FxHashMap<u64, Mark>;

/// See the module.
pub struct Cell {
    /// The graph.
    pub graph: AnyGraph,
    /// Values and Vectors that are alive.
    pub handles: LiveHandles,
    /// Marks that are alive, by their number.
    pub marks: Marks,
    next_mark: u64,
    /// Identities of hashed nodes, which are stable under renumbering.
    pub serials: ByNode<u64>,
    next_serial: u64,
    /// The object of each node.
    pub objects: Objects,
    /// Reclaim when the graph exceeds this number of nodes.
    limit: u32,
    /// The generations of nodes and handles.
    pub generations: Generations,
    /// Whether the graph is in use, which closes its fast path unless a function is traced on it.
    busy: bool,
    /// Whether the graph is out of the cell, in use without the GIL: its placeholder must not be touched.
    pub is_away: bool,
    /// Whether each lane holds a sample, so that Python code must take one way for all lanes.
    pub holds_samples: bool,
    /// The state of a trace besides the nodes.
    pub trace: Option<Box<crate::graph::trace::Trace>>,
    /// Nodes appended without a value since the last evaluation of all nodes.
    pub n_unevaluated: usize,
    /// The parameters that nodes read.
    pub parameters: Vec<pyo3::Py<crate::params::PyParameters>>,
    /// Its branches, or the graph that it is a branch of, if any.
    pub branching: Option<Box<Branching>>,
}

impl HoldsObjects for Cell {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.parameters.visit(visit);
        self.objects.visit(visit);
        for held in self.branching.iter() {
            held.visit(visit);
        }
        for held in self.trace.iter() {
            held.visit(visit);
        }
    }
}

impl Cell {
    /// A cell around a new graph.
    pub fn new(graph: AnyGraph, reclaim: bool) -> Self {
        let reclaim = reclaim && !graph.is_fixed();
        let generations = Generations::new(reclaim);
        let limit = generations.first_limit();
        let mut cell = Cell {
            graph,
            handles: LiveHandles::default(),
            marks: Marks::default(),
            next_mark: 0,
            serials: ByNode::default(),
            next_serial: 0,
            objects: Objects::default(),
            limit,
            generations,
            busy: false,
            is_away: false,
            holds_samples: false,
            trace: None,
            n_unevaluated: 0,
            parameters: Vec::new(),
            branching: None,
        };
        cell.set_limit(limit);
        cell
    }

    /// Makes this equal to a new cell around the graph, without automatic reclaim.
    pub fn reset(&mut self) {
        // Names all fields, so that none is forgotten.
        let Cell {
            graph: _,
            handles,
            marks,
            next_mark,
            serials,
            next_serial,
            objects,
            limit,
            generations,
            busy,
            is_away,
            holds_samples,
            trace,
            n_unevaluated,
            parameters,
            branching,
        } = self;
        debug_assert_eq!(handles.len(), 0, "nobody has Values of it");
        handles.forget_seen();
        objects.clear();
        marks.clear();
        *serials = ByNode::default();
        parameters.clear();
        (*next_mark, *next_serial, *n_unevaluated, *busy, *is_away, *trace) = (0, 0, 0, false, false, None);
        *holds_samples = false;
        *generations = Generations::new(false);
        *limit = generations.first_limit();
        if let Some(branching) = branching {
            **branching = Branching::default();
        }
        self.open_quick_path();
    }

    /// Whether a call has released the GIL while it uses the graph; also while branches are open or a
    /// function is traced on it (`trace` tells), and for ever after a trace.
    #[inline(always)]
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// Refuses a block op if it has no kernels: on graphs of half types and of float128.
    pub fn need_kernels(&self, block: &str) -> PyResult<()> {
        let found = self.graph.scalar_type();
        if matches!(found.elem, DType::Float32 | DType::Float64) {
            return Ok(());
        }
        Err(PyTypeError::new_err(format!(
            "{block} is a block op: these take float32 and float64 graphs (and lanes of them), found {}; scalar ops and reductions \
             take all",
            found.name()
        )))
    }

    /// Sets whether the graph is in use. The graph itself must be in its place. During a trace operators are its use,
    /// so the fast path stays open; call this again when the trace is over.
    pub fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
        self.open_quick_path();
    }

    /// Reclaim is due when there are more nodes than this.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets when reclaim is due.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        self.open_quick_path();
    }

    fn open_quick_path(&mut self) {
        let is_closed = self.busy && !self.is_traced();
        let until = if is_closed { 0 } else { self.limit.saturating_add(1) };
        self.graph.pause_quick(until);
    }

    /// Whether a function is being traced on this graph.
    #[cold]
    pub fn is_traced(&self) -> bool {
        self.trace.as_ref().is_some_and(|trace| trace.is_active)
    }

    /// Evaluates every existing node without a value.
    pub fn settle_all(&mut self) {
        let Cell { graph, handles, .. } = self;
        handles.for_each(|handle| {
            // The handle of a node removed by a rewind stays unchanged, so that its next use reports it.
            let _ = settle(graph, handle);
        });
        self.n_unevaluated = 0;
    }

    /// Removes all nodes and marks all handles stale, if there is no memory to record removals.
    pub fn forget_all(&mut self) {
        self.handles.for_each(Handle::kill);
        let start = self.graph.start();
        self.graph.take_back(start);
    }

    /// Remembers a mark until it is forgotten.
    pub fn add_mark(&mut self, mark: Mark) -> u64 {
        self.next_mark += 1;
        self.marks.insert(self.next_mark, mark);
        self.next_mark
    }

    /// A number that is equal for all handles of a node and constant while the node lives.
    pub fn serial(&mut self, node: u32) -> u64 {
        if let Some(serial) = self.serials.get(node) {
            return *serial;
        }
        self.serials.insert(node, self.next_serial + 1);
        self.next_serial += 1;
        self.next_serial
    }
}

/// Evaluates the node of an unevaluated handle, which then becomes an ordinary handle.
#[cold]
#[inline(never)]
pub fn settle(graph: &mut AnyGraph, handle: &mut Handle) -> Result<()> {
    if handle.epoch & UNEVALUATED == 0 {
        return Ok(());
    }
    let node = NodeId::from_index(handle.start);
    let epoch = graph.check(node, handle.epoch & !UNEVALUATED)?;
    graph.evaluate_now(Unevaluated::from_index(handle.start))?;
    handle.epoch = epoch;
    Ok(())
}
