//! What a Python `Graph` holds: a core graph of some dtype, its live handles, marks and names, and whether it is in use.
//!
//! Promises: the graph's quick path is open exactly while it is not in use, or in use for a recording, and has nothing to
//! reclaim, so that an operator asks one question. Guarded by the interpreter lock; while a call has released the lock the cell is busy and refuses
//! others. Reclaim itself is `reclaim`.

use std::collections::{BTreeMap, HashMap};

use burtorch_core::simd::{F32x4, F32x8, F32x16, F32x64, F64x2, F64x4, F64x8};
use burtorch_core::{DType, Graph, Mark, Scalar, bf16, f16};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::graph::Branching;
use crate::handle::LiveHandles;
use crate::reclaim::Generations;
use crate::scalars::ScalarType;

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
    /// Blocks of samples in oracles; Python does not name it.
    F32x64(Graph<'static, F32x64>),
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
            $crate::cell::AnyGraph::F32x64($graph) => $body,
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
            (Float32, 64) => AnyGraph::F32x64(Graph::new()),
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
    /// Identities of nodes whose hash was asked for: stable when nodes are renumbered.
    pub serials: BTreeMap<u32, u64>,
    next_serial: u64,
    /// Reclaim when there are more nodes than this.
    limit: u32,
    /// What is old.
    pub generations: Generations,
    /// Whether the graph is in use, which closes its quick path unless a function is recorded on it.
    busy: bool,
    /// What a recording knows besides the nodes.
    pub trace: Option<Box<crate::recorded::Trace>>,
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
        let generations = Generations::new(reclaim);
        let limit = generations.first_limit();
        let mut cell = Cell {
            graph,
            handles: LiveHandles::default(),
            marks: HashMap::new(),
            next_mark: 0,
            serials: BTreeMap::new(),
            next_serial: 0,
            limit,
            generations,
            busy: false,
            trace: None,
            n_unevaluated: 0,
            parameters: Vec::new(),
            branching: None,
        };
        cell.set_limit(limit);
        cell
    }

    /// Makes this what a new cell around the graph would be, which is not to reclaim by itself.
    pub fn reset(&mut self) {
        // All by name, so that none is forgotten.
        let Cell {
            graph: _,
            handles,
            marks,
            next_mark,
            serials,
            next_serial,
            limit,
            generations,
            busy,
            trace,
            n_unevaluated,
            parameters,
            branching,
        } = self;
        debug_assert_eq!(handles.len(), 0, "nobody has Values of it");
        marks.clear();
        serials.clear();
        parameters.clear();
        (*next_mark, *next_serial, *n_unevaluated, *busy, *trace) = (0, 0, 0, false, None);
        *generations = Generations::new(false);
        *limit = generations.first_limit();
        if let Some(branching) = branching {
            **branching = Branching::default();
        }
        self.open_quick_path();
    }

    /// Whether a call has released the interpreter lock while it works on the graph; also while branches are open or a
    /// function is recorded on it (`trace` says so), and ever after.
    #[inline(always)]
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// Refuses a block op where it has no kernels: on graphs of half numbers and of float128.
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

    /// Says whether the graph is in use. The graph itself must be in its place. While a function is recorded on it operators
    /// are what it is in use for, so that its quick path stays open; say so again when the recording is over.
    pub fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
        self.open_quick_path();
    }

    /// Reclaim is due when there are more nodes than this.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Says when reclaim is due.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        self.open_quick_path();
    }

    fn open_quick_path(&mut self) {
        let is_closed = self.busy && !self.is_traced();
        let until = if is_closed { 0 } else { self.limit.saturating_add(1) };
        with_graph!(&mut self.graph, g => g.pause_quick(until));
    }

    /// Whether a function is being recorded on this graph.
    #[cold]
    pub fn is_traced(&self) -> bool {
        self.trace.as_ref().is_some_and(|trace| trace.is_active)
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
}
