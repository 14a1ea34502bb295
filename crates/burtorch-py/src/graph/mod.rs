//! `Graph` for Python: making, marking, sweeping, reclaiming, measuring.
//!
//! `current` knows which graph a thread builds on, `marks` holds the places to rewind to, `sweep` runs backward passes.
#![allow(unsafe_code)]

mod branches;
mod current;
mod marks;
mod released;
mod sweep;
mod values;

use std::cell::UnsafeCell;

use burtorch_core::{DType, Graph, NodeId, Scalar};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::buffer::CallerMemory;
use crate::cell::{AnyGraph, Cell, with_graph};
use crate::errors::{IntoPython, derived, to_python};
use crate::files::graph as files;
use crate::scalars::{self, Given, ScalarType};
use crate::value;
use crate::vector::{PyVector, numbers};
use crate::viz;

pub use branches::{Branching, common, forget, gather, import, is_foreign, remember};
use current::PyNoGrad;
pub use current::{current, current_graph, enter, leave, no_grad_somewhere, wants_no_grad};
use marks::{PyMark, PyScope};
pub use released::{LONG, unlocked};
pub use sweep::{Sweep, sweep};
pub use values::{copied, shared};

/// A graph of scalar operations.
///
/// `Value` and `Vector` append to the current graph, which `with graph:` sets for this thread; operators append to
/// the graph of their operands. Nodes that no Python object can reach are reclaimed by themselves, so a loop that never
/// rewinds stays in constant memory.
///
/// Args:
///     dtype: "float64" (default), "float32", "float16", "bfloat16", "float128", or lanes of numbers, of which every
///         node carries as many: "float32x4", "float32x8", "float32x16", "float64x2", "float64x4", "float64x8".
///     capacity: nodes to make room for at once. Required for a fixed graph.
///     fixed: never grow; raise GraphFullError instead. Memory never moves.
///     buffer: memory of yours to work in (NumPy, shared or mapped memory, a bytearray ...): writable, contiguous. Kept
///         alive; nobody else may write it meanwhile. Such a graph is fixed; bytes_needed() tells how much it takes.
///     reclaim: remove unreachable nodes by itself. With False, indices are strictly sequential.
///
/// Raises:
///     ValueError: unknown dtype, or a fixed graph without capacity.
///     MemoryError: no memory for the capacity.
///
/// Example:
///     >>> import burtorch as bt
///     >>> with bt.Graph(dtype="float32") as graph:
///     ...     x = bt.Value(3.0)
///     ...     y = x * x
///     >>> y.backward()
///     >>> x.grad, len(graph)
///     (6.0, 2)
#[pyclass(frozen, name = "Graph", module = "burtorch", weakref)]
pub struct PyGraph {
    cell: UnsafeCell<Cell>,
    /// Declared after what points into it, so dropped after it.
    _memory: Option<CallerMemory>,
}

// SAFETY: the cell is only touched under the interpreter lock, or by the one call that has marked it busy.
unsafe impl Sync for PyGraph {}

impl PyGraph {
    /// A Python graph around a core one.
    pub fn around(graph: AnyGraph, reclaim: bool) -> Self {
        PyGraph { cell: UnsafeCell::new(Cell::new(graph, reclaim)), _memory: None }
    }

    /// The cell of a graph object.
    ///
    /// # Safety
    /// `object` is a living `Graph`; the interpreter lock is held; no other reference into the cell is in use.
    #[inline(always)]
    pub unsafe fn cell_of_object<'a>(object: *mut ffi::PyObject) -> &'a mut Cell {
        // SAFETY: by the contract of this function; the object outlives the call that holds the reference.
        unsafe {
            let py = Python::assume_attached();
            let object = pyo3::Borrowed::from_ptr(py, object);
            &mut *object.cast_unchecked::<PyGraph>().get().cell.get()
        }
    }

    /// Runs `f` on the cell, unless the graph is busy; what it builds are constants where this thread wants no gradients.
    pub fn with<T>(&self, py: Python<'_>, f: impl FnOnce(&mut Cell) -> PyResult<T>) -> PyResult<T> {
        if !wants_no_grad() {
            return self.with_as_is(py, f);
        }
        self.with_as_is(py, |cell| {
            if cell.busy {
                return Err(crate::recorded::no_grad_refused());
            }
            let before = with_graph!(&mut cell.graph, g => g.set_no_grad(true));
            let result = f(cell);
            with_graph!(&mut cell.graph, g => g.set_no_grad(before));
            result
        })
    }

    /// The type of its scalars.
    pub fn scalar_type(&self, py: Python<'_>) -> PyResult<ScalarType> {
        self.look(py, |cell| Ok(cell.graph.scalar_type()))
    }

    /// `TraceError` where a function is being recorded on this graph: there `what` has no meaning, or none that a
    /// replay would know of.
    pub fn not_traced(&self, py: Python<'_>, what: &str) -> PyResult<()> {
        let is_traced = self.end_of_trace(|cell| cell.busy && cell.is_traced());
        if is_traced { Err(crate::recorded::not_in_a_trace(py, what)) } else { Ok(()) }
    }

    /// A new leaf, and the Value for it.
    pub fn leaf<'py>(slf: &Bound<'py, Self>, x: f64) -> PyResult<(NodeId, Bound<'py, PyAny>)> {
        let node = slf.get().with_as_is(slf.py(), |cell| {
            with_graph!(&mut cell.graph, g => g.leaf(Scalar::lit(x))).or_raise(slf.py())
        })?;
        Ok((node, crate::vector::wrap(slf, node)?))
    }

    /// The node of a Value of this graph, or of a new constant for a number; `None` for anything else.
    pub fn node_or_constant(slf: &Bound<'_, Self>, x: &Bound<'_, PyAny>) -> PyResult<Option<NodeId>> {
        let py = slf.py();
        // SAFETY: a living object under the interpreter lock.
        if unsafe { value::is_value(x.as_ptr()) } {
            return node_of(py, slf, x).map(Some);
        }
        let x = match x.cast::<crate::recorded::PyParameter>() {
            Ok(parameter) => return node_of(py, slf, &crate::recorded::value_of(parameter)?).map(Some),
            Err(_) => crate::vector::number_of(x)?,
        };
        let constant = |x: f64| {
            slf.get().with_as_is(py, |cell| with_graph!(&mut cell.graph, g => g.constant(Scalar::lit(x))).or_raise(py))
        };
        x.map(constant).transpose()
    }

    /// Runs `f` on the cell and the recording, if a function is being recorded on this graph.
    pub fn if_traced<T>(
        &self,
        f: impl FnOnce(&mut Cell, &mut crate::recorded::Trace) -> PyResult<T>,
    ) -> PyResult<Option<T>> {
        // SAFETY: under the interpreter lock; `f` is ours and calls no Python code.
        let cell = unsafe { &mut *self.cell.get() };
        let Some(mut trace) = cell.trace.take_if(|trace| trace.is_active) else { return Ok(None) };
        let result = f(cell, &mut trace);
        cell.trace = Some(trace);
        result.map(Some)
    }

    /// The cell of a graph that nobody else can reach any more, or of a recording that is over.
    pub fn end_of_trace<T>(&self, f: impl FnOnce(&mut Cell) -> T) -> T {
        // SAFETY: under the interpreter lock; `f` is ours and calls no Python code.
        f(unsafe { &mut *self.cell.get() })
    }

    /// Evaluates the nodes that have no value yet, before somebody reads others than by their Values.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: under the interpreter lock; evaluating runs no Python code, and the reference ends here.
        let cell = unsafe { &mut *self.cell.get() };
        if cell.n_unevaluated == 0 {
            return Ok(());
        }
        if cell.busy {
            return Err(cell.refusal(py));
        }
        cell.settle_all();
        Ok(())
    }

    /// Runs `f` on the cell, unless the graph is busy.
    fn with_as_is<T>(&self, py: Python<'_>, f: impl FnOnce(&mut Cell) -> PyResult<T>) -> PyResult<T> {
        // SAFETY: under the interpreter lock, and `f` is ours: where it may run Python code it marks the cell busy.
        let cell = unsafe { &mut *self.cell.get() };
        if cell.busy && !cell.is_traced() {
            return Err(cell.refusal(py));
        }
        f(cell)
    }

    /// Runs `f`, which only reads nodes, on the cell: also while branches are open.
    pub fn look<T>(&self, py: Python<'_>, f: impl FnOnce(&mut Cell) -> PyResult<T>) -> PyResult<T> {
        // SAFETY: as in `with_as_is`.
        let cell = unsafe { &mut *self.cell.get() };
        if cell.busy && !cell.is_frozen() && !cell.is_traced() {
            return Err(cell.refusal(py));
        }
        f(cell)
    }
}

/// What find_nonfinite() found: op, index, inputs.
type NonFinite<'py> = (&'static str, u32, Vec<Bound<'py, PyAny>>);

/// The node and its checked graph behind a Value argument.
pub fn node_of(py: Python<'_>, graph: &Bound<'_, PyGraph>, value: &Bound<'_, PyAny>) -> PyResult<NodeId> {
    // SAFETY: living objects under the interpreter lock.
    unsafe {
        if !value::is_value(value.as_ptr()) {
            return Err(PyTypeError::new_err(format!("expected a Value, found {}", value.get_type().name()?)));
        }
        let object = value.as_ptr().cast::<value::ValueObject>();
        if (*object).owner != graph.as_ptr() {
            return Err(to_python(py, burtorch_core::Error::GraphMismatch { what: "the value" }));
        }
        match value::checked(object) {
            Some((_, node)) => Ok(node),
            None => Err(PyErr::fetch(py)),
        }
    }
}

#[pymethods]
impl PyGraph {
    #[new]
    #[pyo3(signature = (dtype="float64", capacity=None, fixed=false, *, reclaim=true, buffer=None))]
    fn new(
        py: Python<'_>,
        dtype: &str,
        capacity: Option<u32>,
        fixed: bool,
        reclaim: bool,
        buffer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        fn make<S: Scalar>(
            py: Python<'_>,
            capacity: Option<u32>,
            fixed: bool,
            memory: Option<&CallerMemory>,
        ) -> PyResult<Graph<'static, S>> {
            if let Some(memory) = memory {
                let bytes = memory.numbers::<u8>();
                let capacity = capacity.unwrap_or_else(|| most_nodes::<S>(bytes.len()));
                // SAFETY: writable and contiguous, as checked, and kept alive beside the graph. That nobody else uses
                // the bytes meanwhile is up to their owner, as the docstring says.
                return unsafe { Graph::in_memory(bytes.cast(), bytes.len(), capacity) }.or_raise(py);
            }
            match (capacity, fixed) {
                (None, true) => {
                    Err(PyValueError::new_err("a fixed graph needs a capacity: Graph(capacity=n, fixed=True)"))
                }
                (Some(n), true) => Graph::fixed(n).or_raise(py),
                (Some(n), false) => Graph::with_capacity(n).or_raise(py),
                (None, false) => Ok(Graph::new()),
            }
        }
        let memory = buffer.map(|buffer| CallerMemory::bytes(buffer, "buffer")).transpose()?;
        macro_rules! of_type {
            ($scalar_type:expr; $($elem:ident $lanes:literal $Variant:ident)*) => {
                match ($scalar_type.elem, $scalar_type.lanes) {
                    $( (DType::$elem, $lanes) => AnyGraph::$Variant(make(py, capacity, fixed, memory.as_ref())?), )*
                    _ => return Err(PyValueError::new_err("no graph has scalars of this type")),
                }
            };
        }
        let graph = of_type! {
            ScalarType::named(dtype)?;
            Float64 1 F64 Float32 1 F32 Float16 1 F16 BFloat16 1 BF16 Float128 1 F128
            Float32 4 F32x4 Float32 8 F32x8 Float32 16 F32x16 Float64 2 F64x2 Float64 4 F64x4 Float64 8 F64x8
        };
        Ok(PyGraph { _memory: memory, ..Self::around(graph, reclaim) })
    }

    /// Make this the current graph of the thread until the block ends.
    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        branches::enter(slf)?;
        if let Err(error) = enter(slf) {
            branches::leave(slf, false);
            return Err(error);
        }
        Ok(slf.clone())
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(slf: &Bound<'_, Self>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        leave(slf)?;
        branches::leave(slf, exception.get_item(0).is_ok_and(|class| !class.is_none()));
        Ok(())
    }

    /// Freeze this graph and make n branches of it, each a Graph for one thread to build on.
    ///
    /// `with branch:` makes a branch the current graph of a thread: what is built there, also from Values of this graph,
    /// goes to the branch. A branch reads everything that was there before it, and no other open branch. An exception in
    /// the block removes what the branch has built. Meanwhile this graph only reads: BusyError otherwise. join() ends it.
    ///
    /// Plain operators hold the interpreter's lock, so threads take turns; block ops and models release it.
    ///
    /// Raises:
    ///     ValueError: n is 0.
    ///     BusyError: this graph has open branches already.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> with bt.Graph() as graph:
    ///     ...     x = bt.Value(3.0)
    ///     >>> found = []
    ///     >>> for branch in graph.branches(2):
    ///     ...     with branch:
    ///     ...         found.append(x * len(found))
    ///     >>> graph.join()
    ///     >>> (found[0] + found[1]).backward()
    ///     >>> x.grad
    ///     1.0
    fn branches<'py>(slf: &Bound<'py, Self>, n: usize) -> PyResult<Vec<Bound<'py, Self>>> {
        slf.get().not_traced(slf.py(), "branches()")?;
        branches::open(slf, n)
    }

    /// Append the open branches to this graph, by number; their Values and Vectors are this graph's from now on.
    ///
    /// Linear in the nodes appended. Which thread was faster does not show.
    ///
    /// Raises:
    ///     ValueError: no branches are open.
    ///     BusyError: a thread is still in one of them, or one has open branches of its own.
    ///     GraphFullError, MemoryError: no room; nothing was appended, the branches are still open.
    fn join(slf: &Bound<'_, Self>) -> PyResult<()> {
        branches::join(slf)
    }

    /// Drop the open branches: nothing is appended, and their Values are stale.
    ///
    /// Raises ValueError where none are open, BusyError while a thread is in one of them.
    fn drop_branches(slf: &Bound<'_, Self>) -> PyResult<()> {
        branches::discard(slf)
    }

    /// The type of its scalars, such as "float64" or "float32x8".
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.look(py, |cell| Ok(cell.graph.scalar_type().name()))
    }

    /// Whether the graph never grows and its memory never moves.
    #[getter]
    fn fixed(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py, |cell| Ok(with_graph!(&cell.graph, g => g.is_fixed())))
    }

    /// The data of all nodes by index: `graph.values[i:j]` shares memory that never moves, and copies else.
    #[getter]
    fn values(slf: &Bound<'_, Self>) -> PyResult<values::NodeValues> {
        slf.get().settle(slf.py())?;
        Ok(values::NodeValues { graph: slf.clone().unbind() })
    }

    /// Nodes there is room for.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<usize> {
        self.look(py, |cell| Ok(with_graph!(&cell.graph, g => g.capacity())))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.look(py, |cell| Ok(with_graph!(&cell.graph, g => g.len())))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, |cell| {
            let n = with_graph!(&cell.graph, g => g.len());
            Ok(format!("<Graph of {n} {} nodes>", cell.graph.scalar_type().name()))
        })
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// Pickles and copies are whole: structure, values, gradients, labels, and the Parameters that nodes read. Values stay
    /// with the graph they belong to; the copy's are Graph.node(index).
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        slf.get().settle(slf.py())?;
        files::pickled(slf)
    }

    /// Save the numbers of nodes and nothing else, little-endian, without header or checksum: seven doubles are 56 bytes.
    ///
    /// Args:
    ///     target: a path, or a writable buffer of exactly the length.
    ///     first, last: the nodes from `first` to `last`, the last one included, as in the paper; all by default. Or a
    ///         sequence of Values as `first`.
    ///     what: "values", "grads", or "both": all values, then all gradients.
    ///     atomic: write a second file that takes the place of the first, so that a kill leaves one of the two. Otherwise a
    ///         file is overwritten in place, which is fastest.
    ///
    /// Raises OSError where the system refuses, ValueError for a range outside or a buffer of another length.
    ///
    /// Source: F.7 and Table 4 of the paper.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> with bt.Graph() as graph:
    ///     ...     x = bt.Value(1.0), bt.Value(2.0)
    ///     >>> memory = bytearray(16)
    ///     >>> graph.save_raw(memory, 0, 1)
    ///     >>> x[1].data = 5.0
    ///     >>> graph.load_raw(memory, 0, 1)
    ///     >>> x[1].data
    ///     2.0
    #[pyo3(signature = (target, first=None, last=None, what="values", *, atomic=false))]
    fn save_raw<'py>(
        slf: &Bound<'py, Self>,
        target: &Bound<'py, PyAny>,
        first: Option<&Bound<'py, PyAny>>,
        last: Option<u32>,
        what: &str,
        atomic: bool,
    ) -> PyResult<()> {
        slf.get().settle(slf.py())?;
        files::save_raw(slf, Some(target), (first, last), what, atomic).map(|_| ())
    }

    /// The bytes that save_raw would write.
    #[pyo3(signature = (first=None, last=None, what="values"))]
    fn raw_bytes<'py>(
        slf: &Bound<'py, Self>,
        first: Option<&Bound<'py, PyAny>>,
        last: Option<u32>,
        what: &str,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        slf.get().settle(slf.py())?;
        files::save_raw(slf, None, (first, last), what, false)
    }

    /// Overwrite the numbers of nodes from what save_raw wrote.
    ///
    /// Args:
    ///     source: a path, or bytes: anything with a buffer.
    ///     first, last, what: as for save_raw. The source must have exactly their length.
    ///     mmap: map the file privately instead of reading it. No other process may shorten it meanwhile.
    ///
    /// Nodes that were computed from these keep their data; Graph.recompute evaluates them again.
    ///
    /// Raises FormatError for another length, OSError where the system refuses. Then nothing has changed.
    #[pyo3(signature = (source, first=None, last=None, what="values", *, mmap=false))]
    fn load_raw(
        slf: &Bound<'_, Self>,
        source: &Bound<'_, PyAny>,
        first: Option<&Bound<'_, PyAny>>,
        last: Option<u32>,
        what: &str,
        mmap: bool,
    ) -> PyResult<()> {
        files::load_raw(slf, source, (first, last), what, mmap)
    }

    /// Save the graph in the checked form: structure, values, labels, and gradients if asked.
    ///
    /// Args:
    ///     path: the file. It holds the old content or the new at any moment, also after a kill; its permissions stay.
    ///     first, last: save the numbers of these nodes only, the last one included, without structure.
    ///     what: "values" or "both"; for a range "grads" as well.
    ///     durable: wait until the disk has it, so that it survives a loss of power.
    ///
    /// Parameters that nodes read are not part of it; see Parameters.save.
    ///
    /// Raises OSError where the system refuses: the old file is still there then.
    ///
    /// Cost: linear in the number of nodes, and as much memory as the file is long.
    #[pyo3(signature = (path, first=None, last=None, what="values", *, durable=true))]
    fn save(
        slf: &Bound<'_, Self>,
        path: &Bound<'_, PyAny>,
        first: Option<u32>,
        last: Option<u32>,
        what: &str,
        durable: bool,
    ) -> PyResult<()> {
        slf.get().settle(slf.py())?;
        let bytes = files::checked_bytes(slf, (first, last), what)?;
        crate::files::save(slf.py(), path, &bytes, durable)
    }

    /// The bytes that save would write.
    #[pyo3(signature = (first=None, last=None, what="values"))]
    fn to_bytes<'py>(
        slf: &Bound<'py, Self>,
        first: Option<u32>,
        last: Option<u32>,
        what: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        slf.get().settle(slf.py())?;
        Ok(PyBytes::new(slf.py(), &files::checked_bytes(slf, (first, last), what)?))
    }

    /// Overwrite numbers from what save wrote: of a graph of equal structure, or of a range that this graph has.
    ///
    /// Handles stay valid. bt.load_graph makes a new graph instead.
    ///
    /// Args:
    ///     source: a path, or bytes.
    ///
    /// Raises FormatError for a damaged file or another structure, with `offset` and `reason`; OSError where the system
    /// refuses. Then nothing has changed.
    fn load(slf: &Bound<'_, Self>, source: &Bound<'_, PyAny>) -> PyResult<()> {
        files::load(slf, source)
    }

    /// The Parameters that nodes read, in the order in which the first node read each.
    #[getter]
    fn parameters(&self, py: Python<'_>) -> PyResult<Vec<Py<crate::params::PyParameters>>> {
        self.with(py, |cell| files::parameters_read(py, cell))
    }

    /// The graph in the language of Graphviz: label, op, data, gradient and index of each node, roots, leaves and parameters
    /// in colours of their own.
    ///
    /// Args:
    ///     root: a Value, or several; what they depend on is drawn. By default what no node reads.
    ///     max_nodes: boxes drawn at most; the others are one box with their count. Blocks and long runs are one box each.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> a = bt.Value(3.0, label="a", graph=bt.Graph())
    ///     >>> '{ a | leaf | data 3 | grad 0 | node 0 }' in a.graph.to_dot(a * a)
    ///     True
    #[pyo3(signature = (root=None, max_nodes=150))]
    fn to_dot(slf: &Bound<'_, Self>, root: Option<&Bound<'_, PyAny>>, max_nodes: usize) -> PyResult<String> {
        slf.get().settle(slf.py())?;
        Ok(viz::picture(slf, root, max_nodes, false)?.to_dot())
    }

    /// The graph as an SVG image, laid out here: no other program is needed. Arguments as for to_dot.
    #[pyo3(signature = (root=None, max_nodes=150))]
    fn to_svg(slf: &Bound<'_, Self>, root: Option<&Bound<'_, PyAny>>, max_nodes: usize) -> PyResult<String> {
        slf.get().settle(slf.py())?;
        Ok(viz::picture(slf, root, max_nodes, false)?.to_svg())
    }

    /// The graph as one HTML page without links to anything else: a click on a box shows value, gradient, formula and the
    /// time of one evaluation, measured now. Other arguments as for to_dot.
    #[pyo3(signature = (root=None, max_nodes=150, title="burtorch graph"))]
    fn to_html(
        slf: &Bound<'_, Self>,
        root: Option<&Bound<'_, PyAny>>,
        max_nodes: usize,
        title: &str,
    ) -> PyResult<String> {
        slf.get().settle(slf.py())?;
        Ok(viz::picture(slf, root, max_nodes, true)?.to_html(title))
    }

    /// The picture that notebooks show.
    fn _repr_svg_(slf: &Bound<'_, Self>) -> PyResult<String> {
        Self::to_svg(slf, None, 150)
    }

    /// The picture that notebooks show, in a frame that scrolls.
    fn _repr_html_(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(format!("<div style=\"overflow:auto\">{}</div>", Self::to_svg(slf, None, 150)?))
    }

    /// A Value for the node with this index. Raises IndexError if there is none.
    fn node<'py>(slf: &Bound<'py, Self>, index: u32) -> PyResult<Bound<'py, PyAny>> {
        slf.get().settle(slf.py())?;
        files::node_value(slf, index)
    }

    /// A Value for the node with this label, the lowest of several. Raises KeyError if there is none.
    fn labelled<'py>(slf: &Bound<'py, Self>, label: &str) -> PyResult<Bound<'py, PyAny>> {
        slf.get().settle(slf.py())?;
        files::labelled(slf, label)
    }

    /// A leaf on this graph: the same as Value(data, graph=self).
    fn value<'py>(slf: &Bound<'py, Self>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let keywords = PyDict::new(slf.py());
        keywords.set_item("graph", slf)?;
        // SAFETY: the type object exists once the module is loaded.
        let class = unsafe { Bound::from_borrowed_ptr(slf.py(), value::value_type().cast()) };
        class.call((data,), Some(&keywords))
    }

    /// A number that receives no gradient, as a Value.
    fn constant<'py>(slf: &Bound<'py, Self>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().with_as_is(slf.py(), |cell| Ok(cell.busy))? {
            // To a recorded function every leaf that is no argument is a constant.
            return Self::value(slf, data);
        }
        let before = slf.get().set_no_grad(slf.py(), true)?;
        let value = Self::value(slf, data);
        slf.get().set_no_grad(slf.py(), before)?;
        value
    }

    /// Contiguous leaves from a sequence, buffer or array of numbers, flattened by rows.
    ///
    /// Raises TypeError for anything but real numbers, ValueError for an empty sequence.
    fn vector(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<Py<PyVector>> {
        let scalar_type = slf.get().scalar_type(slf.py())?;
        if scalar_type.fits_float() {
            return PyVector::leaves(slf, &numbers(data)?);
        }
        PyVector::special_leaves(slf, &Given::read_many(data, scalar_type)?)
    }

    /// Remember the present length, to rewind to. Costs the same at any size.
    fn mark(slf: &Bound<'_, Self>) -> PyResult<PyMark> {
        let number = slf.get().with(slf.py(), |cell| {
            let mark = with_graph!(&cell.graph, g => g.mark());
            Ok(cell.add_mark(mark))
        })?;
        Ok(PyMark { graph: slf.clone().unbind(), number })
    }

    /// Remove every node appended after the mark; their Values become stale. Costs the same at any size.
    ///
    /// Raises StaleValueError for a mark that an earlier rewind undid, GraphMismatchError for one of another graph.
    fn rewind(slf: &Bound<'_, Self>, mark: &Bound<'_, PyMark>) -> PyResult<()> {
        let py = slf.py();
        let mark = mark.get();
        if mark.graph.as_ptr() != slf.as_ptr() {
            return Err(to_python(py, burtorch_core::Error::GraphMismatch { what: "the mark" }));
        }
        slf.get().not_traced(py, "rewind()")?;
        slf.get().with(py, |cell| {
            let Some(&place) = cell.marks.get(&mark.number) else {
                return Err(derived(
                    py,
                    "StaleValueError",
                    "this mark was undone by an earlier rewind; take a new one".into(),
                ));
            };
            with_graph!(&mut cell.graph, g => g.rewind(place)).or_raise(py)?;
            cell.after_rewind();
            Ok(())
        })
    }

    /// Remove all nodes. Memory is kept for what is built next.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.not_traced(py, "clear()")?;
        self.with(py, |cell| {
            with_graph!(&mut cell.graph, g => g.clear()).or_raise(py)?;
            cell.after_rewind();
            Ok(())
        })
    }

    /// A context manager that rewinds to where it was entered.
    fn scope(slf: &Bound<'_, Self>) -> PyScope {
        PyScope::of(slf.clone().unbind())
    }

    /// Add seed times the gradient of `root` to the leaves and parameters it depends on.
    ///
    /// With skip_zero_adjoints, nodes whose adjoint is exactly 0 are passed over, so 0 * inf below them never happens.
    #[pyo3(signature = (root, seed=1.0, *, skip_zero_adjoints=false))]
    fn backward(slf: &Bound<'_, Self>, root: &Bound<'_, PyAny>, seed: f64, skip_zero_adjoints: bool) -> PyResult<()> {
        let root = node_of(slf.py(), slf, root)?;
        slf.get().not_traced(slf.py(), "backward()")?;
        slf.get().sweep(slf.py(), Sweep { root, seed, skip_zero_adjoints })
    }

    /// Set the gradients of all nodes to 0.
    fn zero_grad(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cell| {
            with_graph!(&mut cell.graph, g => g.zero_grad());
            Ok(())
        })
    }

    /// Evaluate again what `root` depends on, from the present data of leaves and parameters, and return its data.
    fn recompute<'py>(slf: &Bound<'py, Self>, root: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        slf.get().not_traced(py, "recompute()")?;
        let root = node_of(py, slf, root)?;
        slf.get().with(py, |cell| {
            let parameters = &cell.parameters;
            with_graph!(&mut cell.graph, g => {
                crate::parameters::with_values(py, parameters, |given| g.recompute(root, given))?.or_raise(py)?;
                scalars::object_of(py, g.value(root).or_raise(py)?)
            })
        })
    }

    /// The first node whose data or gradient is infinite or NaN, as (op, index, inputs), or None.
    ///
    /// Linear in the number of nodes.
    fn find_nonfinite<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<NonFinite<'py>>> {
        let py = slf.py();
        slf.get().not_traced(py, "find_nonfinite()")?;
        slf.get().look(py, |cell| {
            with_graph!(&cell.graph, g => g.find_nonfinite().map(|found| {
                let nodes = found.inputs.iter().filter_map(|run| run.nodes());
                let nodes = nodes.flat_map(|range| (0..range.len()).filter_map(move |k| range.get(k)));
                let inputs = nodes.filter_map(|node| g.value(node).ok()).map(|x| scalars::object_of(py, x));
                Ok((found.op.name(), found.node.index(), inputs.collect::<PyResult<Vec<_>>>()?))
            }).transpose())
        })
    }

    /// Remove nodes that no Value, Vector or operand list can reach, now. Returns how many.
    fn collect(&self, py: Python<'_>) -> PyResult<usize> {
        self.not_traced(py, "collect()")?;
        self.with(py, |cell| cell.collect().or_raise(py))
    }

    /// Bytes by column, nodes live and reclaimed, handles alive.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.look(py, |cell| {
            let memory = with_graph!(&cell.graph, g => g.memory());
            let table = PyDict::new(py);
            for (name, n) in [
                ("nodes", memory.nodes),
                ("opcodes", memory.opcodes),
                ("operands", memory.operands),
                ("values", memory.values),
                ("adjoints", memory.adjoints),
                ("operand_lists", memory.operand_lists),
                ("leaves", memory.leaves),
                ("temporaries", memory.temporaries),
                ("reserved", memory.reserved),
                ("handles", cell.handles.len()),
            ] {
                table.set_item(name, n)?;
            }
            table.set_item("reclaimed", cell.n_reclaimed)?;
            table.set_item("reclaims", cell.reclaims())?;
            Ok(table)
        })
    }

    /// Start (True) or stop building constants only; returns the setting before. Prefer `with bt.no_grad():`.
    fn set_no_grad(&self, py: Python<'_>, on: bool) -> PyResult<bool> {
        self.not_traced(py, "no_grad()")?;
        self.with_as_is(py, |cell| Ok(with_graph!(&mut cell.graph, g => g.set_no_grad(on))))
    }
}

/// The largest number of nodes that a graph in this many bytes can hold.
fn most_nodes<S: Scalar>(bytes: usize) -> u32 {
    let fits = |n: u32| burtorch_core::bytes_needed::<S>(n).is_ok_and(|need| need <= bytes);
    let (mut low, mut high) = (0, u32::try_from(bytes).unwrap_or(u32::MAX));
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// How many bytes Graph(buffer=...) needs for this many nodes, whatever they are.
///
/// Example:
///     >>> import burtorch as bt
///     >>> memory = bytearray(bt.bytes_needed(100))
///     >>> graph = bt.Graph(buffer=memory)
///     >>> graph.capacity, graph.fixed
///     (100, True)
#[pyfunction]
#[pyo3(signature = (n_nodes, dtype="float64"))]
fn bytes_needed(py: Python<'_>, n_nodes: u32, dtype: &str) -> PyResult<usize> {
    let scalar_type = ScalarType::named(dtype)?;
    // A lane of a vector takes as much as the number alone; what matters is the size of the whole.
    let size = scalar_type.lanes
        * match scalar_type.elem {
            DType::Float16 | DType::BFloat16 => 2,
            DType::Float32 => 4,
            DType::Float64 => 8,
            DType::Float128 => 16,
        };
    match size {
        2 => burtorch_core::bytes_needed::<burtorch_core::f16>(n_nodes),
        4 => burtorch_core::bytes_needed::<f32>(n_nodes),
        8 => burtorch_core::bytes_needed::<f64>(n_nodes),
        16 => burtorch_core::bytes_needed::<f128>(n_nodes),
        32 => burtorch_core::bytes_needed::<burtorch_core::simd::F64x4>(n_nodes),
        _ => burtorch_core::bytes_needed::<burtorch_core::simd::F64x8>(n_nodes),
    }
    .or_raise(py)
}

/// Adds the classes and functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGraph>()?;
    m.add_class::<values::NodeValues>()?;
    m.add_class::<PyMark>()?;
    m.add_class::<PyScope>()?;
    m.add_class::<PyNoGrad>()?;
    m.add_function(wrap_pyfunction!(bytes_needed, m)?)?;
    m.add_function(wrap_pyfunction!(current::current_graph, m)?)
}
