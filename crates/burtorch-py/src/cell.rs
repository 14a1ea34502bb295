//! What a Python `Graph` holds: a core graph of some dtype, its live handles and marks, and when to reclaim.
//!
//! Promises: nodes that no handle can reach are removed now and then, at the entry of an operation, so a loop that never
//! rewinds stays in constant memory; handles, marks and labels follow. Guarded by the interpreter lock; while a call
//! has released the lock the cell is busy and refuses others.

use std::collections::{BTreeMap, HashMap};

use burtorch_core::graph::UNEVALUATED;
use burtorch_core::simd::{F32x4, F32x8, F32x16, F64x2, F64x4, F64x8};
use burtorch_core::{Graph, Mark, NodeId, Range, Result, Scalar, bf16, f16};

use crate::graph::Branching;
use crate::handle::{Handle, LiveHandles};
use crate::scalars::ScalarType;

/// Below this many nodes a graph never reclaims.
const RECLAIM_ABOVE: u32 = 512;

/// A graph of one of the dtypes that Python can name.
#[derive(Debug)]
pub enum AnyGraph {
    /// float64
    F64(Graph<'static, f64>),
    /// float32
    F32(Graph<'static, f32>),
    /// float16
    F16(Graph<'static, f16>),
    /// bfloat16
    BF16(Graph<'static, bf16>),
    /// float128
    F128(Graph<'static, f128>),
    /// float32x4
    F32x4(Graph<'static, F32x4>),
    /// float32x8
    F32x8(Graph<'static, F32x8>),
    /// float32x16
    F32x16(Graph<'static, F32x16>),
    /// float64x2
    F64x2(Graph<'static, F64x2>),
    /// float64x4
    F64x4(Graph<'static, F64x4>),
    /// float64x8
    F64x8(Graph<'static, F64x8>),
}

/// Runs an expression on the graph inside an [`AnyGraph`], whatever its dtype.
macro_rules! with_graph {
    ($any:expr, $graph:ident => $body:expr) => {
        match $any {
            // What converts to f64 elsewhere is one here.
            #[allow(clippy::useless_conversion)]
            $crate::cell::AnyGraph::F64($graph) => $body,
            $crate::cell::AnyGraph::F32($graph) => $body,
            $crate::cell::AnyGraph::F16($graph) => $body,
            $crate::cell::AnyGraph::BF16($graph) => $body,
            $crate::cell::AnyGraph::F128($graph) => $body,
            $crate::cell::AnyGraph::F32x4($graph) => $body,
            $crate::cell::AnyGraph::F32x8($graph) => $body,
            $crate::cell::AnyGraph::F32x16($graph) => $body,
            $crate::cell::AnyGraph::F64x2($graph) => $body,
            $crate::cell::AnyGraph::F64x4($graph) => $body,
            $crate::cell::AnyGraph::F64x8($graph) => $body,
        }
    };
}
pub(crate) use with_graph;

impl AnyGraph {
    /// An empty graph of this type.
    pub fn growing(scalar_type: ScalarType) -> Self {
        use burtorch_core::DType::{BFloat16, Float16, Float32, Float128};
        match (scalar_type.elem, scalar_type.lanes) {
            (Float32, 1) => AnyGraph::F32(Graph::new()),
            (Float16, _) => AnyGraph::F16(Graph::new()),
            (BFloat16, _) => AnyGraph::BF16(Graph::new()),
            (Float128, _) => AnyGraph::F128(Graph::new()),
            (Float32, 4) => AnyGraph::F32x4(Graph::new()),
            (Float32, 8) => AnyGraph::F32x8(Graph::new()),
            (Float32, _) => AnyGraph::F32x16(Graph::new()),
            (_, 2) => AnyGraph::F64x2(Graph::new()),
            (_, 4) => AnyGraph::F64x4(Graph::new()),
            (_, 8) => AnyGraph::F64x8(Graph::new()),
            _ => AnyGraph::F64(Graph::new()),
        }
    }

    /// The type of its scalars.
    pub fn scalar_type(&self) -> ScalarType {
        fn of<S: Scalar>(_: &Graph<'static, S>) -> ScalarType {
            ScalarType::of::<S>()
        }
        with_graph!(self, g => of(g))
    }
}

/// See the module.
pub struct Cell {
    /// The graph.
    pub graph: AnyGraph,
    /// Values and Vectors that are alive.
    pub handles: LiveHandles,
    /// Marks that are alive, by their number.
    pub marks: HashMap<u64, Mark>,
    next_mark: u64,
    /// Names of nodes.
    pub labels: BTreeMap<u32, String>,
    /// Identities of nodes whose hash was asked for: stable when nodes are renumbered.
    serials: BTreeMap<u32, u64>,
    next_serial: u64,
    /// Reclaim when there are more nodes than this.
    pub limit: u32,
    /// Whether reclaim happens by itself.
    reclaim: bool,
    /// Whether a call has released the interpreter lock while it works on the graph.
    /// Also set while a function is recorded on this graph (`trace` says so), and ever after.
    pub busy: bool,
    /// What a recording knows besides the nodes.
    pub trace: Option<Box<crate::recorded::Trace>>,
    /// Nodes reclaimed so far.
    pub n_reclaimed: u64,
    /// Nodes that were appended without a value since all were evaluated last.
    pub n_unevaluated: usize,
    /// The parameters that nodes read.
    pub parameters: Vec<pyo3::Py<crate::params::PyParameters>>,
    /// What the graph has to do with branches, if anything.
    pub branching: Option<Box<Branching>>,
}

impl Cell {
    /// A cell around a new graph.
    pub fn new(graph: AnyGraph, reclaim: bool) -> Self {
        let reclaim = reclaim && !with_graph!(&graph, g => g.is_fixed());
        Cell {
            graph,
            handles: LiveHandles::default(),
            marks: HashMap::new(),
            next_mark: 0,
            labels: BTreeMap::new(),
            serials: BTreeMap::new(),
            next_serial: 0,
            limit: if reclaim { RECLAIM_ABOVE } else { u32::MAX },
            reclaim,
            busy: false,
            trace: None,
            n_reclaimed: 0,
            n_unevaluated: 0,
            parameters: Vec::new(),
            branching: None,
        }
    }

    /// Whether a function is being recorded on this graph.
    #[cold]
    pub fn is_traced(&self) -> bool {
        self.trace.as_ref().is_some_and(|trace| trace.is_active)
    }

    /// Whether reclaim happens by itself.
    pub fn reclaims(&self) -> bool {
        self.reclaim
    }

    /// Removes what no handle reaches and sets when to do so next. Returns how many nodes are gone.
    #[cold]
    #[inline(never)]
    pub fn collect(&mut self) -> Result<usize> {
        if with_graph!(&self.graph, g => g.is_fixed()) {
            return Ok(0);
        }
        let before = with_graph!(&self.graph, g => g.len());
        let left = with_graph!(&mut self.graph, g => {
            let (handles, marks) = (&self.handles, &mut self.marks);
            let (labels, serials) = (&mut self.labels, &mut self.serials);
            compact(g, handles, marks, labels, serials)?
        });
        if self.reclaim {
            self.limit = RECLAIM_ABOVE.max(u32::try_from(2 * left).unwrap_or(u32::MAX));
        }
        self.n_reclaimed += (before - left) as u64;
        Ok(before - left)
    }

    /// Removes what no handle reaches if there are enough nodes to look.
    #[inline]
    pub fn collect_if_due(&mut self) -> Result<()> {
        if with_graph!(&self.graph, g => g.len()) as u32 > self.limit {
            self.collect()?;
        }
        Ok(())
    }

    /// Evaluates every node that has no value yet and is still there.
    pub fn settle_all(&mut self) {
        let Cell { graph, handles, .. } = self;
        handles.for_each(|handle| {
            // The handle of a node that a rewind removed stays as it is, to say so when it is used.
            let _ = crate::value::settle(graph, handle);
        });
        self.n_unevaluated = 0;
    }

    /// Remembers a mark until it is forgotten.
    pub fn add_mark(&mut self, mark: Mark) -> u64 {
        self.next_mark += 1;
        self.marks.insert(self.next_mark, mark);
        self.next_mark
    }

    /// A number that is the same for all handles of a node and stays while the node lives.
    pub fn serial(&mut self, node: u32) -> u64 {
        *self.serials.entry(node).or_insert_with(|| {
            self.next_serial += 1;
            self.next_serial
        })
    }

    /// Forgets names and identities of nodes that a rewind removed. Costs nothing for those that stay.
    pub fn after_rewind(&mut self) {
        let len = with_graph!(&self.graph, g => g.len()) as u32;
        while self.labels.last_key_value().is_some_and(|(&node, _)| node >= len) {
            self.labels.pop_last();
        }
        while self.serials.last_key_value().is_some_and(|(&node, _)| node >= len) {
            self.serials.pop_last();
        }
    }
}

/// Compacts a graph and renames everything that names its nodes.
fn compact<S: Scalar>(
    graph: &mut Graph<'static, S>,
    handles: &LiveHandles,
    marks: &mut HashMap<u64, Mark>,
    labels: &mut BTreeMap<u32, String>,
    serials: &mut BTreeMap<u32, u64>,
) -> Result<usize> {
    handles.for_each(|handle| {
        if graph.check(NodeId::from_index(last_node(handle)), handle.epoch & !UNEVALUATED).is_err() {
            handle.kill();
        }
    });
    let mut numbers: Vec<u64> = marks.keys().copied().collect();
    numbers.retain(|number| {
        let valid = graph.check_mark(marks[number]).is_ok();
        if !valid {
            marks.remove(number);
        }
        valid
    });
    let mut in_order: Vec<Mark> = numbers.iter().map(|number| marks[number]).collect();
    let mut is_kept: HashMap<u32, u32> = HashMap::new();
    let left = graph.compact(
        |live| {
            handles.for_each(|handle| {
                if handle.start != u32::MAX {
                    live(Range::new(NodeId::from_index(handle.start), handle.len));
                }
            });
        },
        &mut in_order,
        |renumbering| {
            handles.for_each(|handle| {
                if handle.start != u32::MAX {
                    handle.start = renumbering.index(handle.start);
                    handle.epoch = renumbering.epoch() | handle.epoch & UNEVALUATED;
                }
            });
            for &node in labels.keys().chain(serials.keys()) {
                if let Some(new) = renumbering.kept(node) {
                    is_kept.insert(node, new);
                }
            }
        },
    )?;
    for (number, mark) in numbers.into_iter().zip(in_order) {
        marks.insert(number, mark);
    }
    *labels =
        std::mem::take(labels).into_iter().filter_map(|(node, label)| Some((*is_kept.get(&node)?, label))).collect();
    *serials =
        std::mem::take(serials).into_iter().filter_map(|(node, serial)| Some((*is_kept.get(&node)?, serial))).collect();
    Ok(left)
}

/// The last node of a handle: if it is still there, so are the others.
#[inline(always)]
pub fn last_node(handle: &Handle) -> u32 {
    handle.start.saturating_add(handle.len.saturating_sub(1))
}
