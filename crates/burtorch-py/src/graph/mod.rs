//! `Graph` for Python: making, marking, sweeping, reclaiming, measuring.
//!
//! `cell` holds its state, `branches` are for several threads, `current` knows the graph of each thread, `marks` are positions
//! to rewind to, `sweep` runs backward passes, `inspect` returns sizes and counts. Methods about Values, files and pictures
//! are in the layers above.
#![allow(unsafe_code)]

pub mod branches;
mod by_node;
pub mod cell;
pub mod critical_section;
mod current;
pub mod handle;
mod inspect;
mod marks;
pub mod no_grad;
mod nogil;
pub mod objects;
pub mod parallel;
pub mod parameters;
pub mod reclaim;
mod sweep;
pub mod trace;

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use burtorch_core::Mark;
use burtorch_core::array::Tape;
use burtorch_core::erased::{Room, ScalarType, bytes_for};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};

use crate::convert::arguments::{Count, DtypeName};
use crate::convert::buffer::{CallerMemory, Shared};
use crate::convert::errors::IntoPython;
use crate::convert::gc::traverse;
use crate::convert::numbers::type_named;
use crate::graph::cell::{AnyGraph, Cell};
use crate::graph::critical_section::locked_self;

pub use branches::{Branching, forget, remember};
#[cfg(Py_GIL_DISABLED)]
pub use current::current_if_any;
pub use current::{current, current_graph, enter, leave, leave_all_above};
use marks::{PyMark, PyScope};
pub use no_grad::wants_no_grad;
pub use nogil::{LONG, interruptible, unlocked};
use parameters::parameters_read;
pub use sweep::{Sweep, sweep};

/// A graph of scalar operations.
///
/// `Value` and `Vector` append to the current graph, which `with graph:` sets for this thread; operators append to
/// the graph of their operands. Nodes that no Python object can reach are reclaimed automatically, so a loop that never
/// rewinds runs in constant memory.
///
/// Args:
///     dtype: "float64" (default), "float32", "float16", "bfloat16", "float128", or lanes, with several numbers per
///         node: "float32x4", "float32x8", "float32x16", "float64x2", "float64x4", "float64x8".
///     capacity: the number of nodes to allocate at once. Required for a fixed graph.
///     fixed: whether to raise GraphFullError instead of growing. Memory never moves.
///     buffer: caller memory to use (NumPy, shared or mapped memory, a bytearray ...): writable, contiguous. It is kept
///         alive; no other code may write it meanwhile. Such a graph is fixed; bytes_needed() returns the size.
///     reclaim: whether to remove unreachable nodes automatically. With False, indices are strictly sequential.
///
/// Raises:
///     ValueError: unknown dtype, or a fixed graph without capacity.
///     BusyError: another Graph or Parameters use the buffer, or a part of it.
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
    /// The memory shared with arrays.
    pub shared: Shared,
    /// The Arrays of this graph, once there are some.
    pub arrays: PyOnceLock<Arrays>,
    /// Declared after the fields that point into it, so dropped after them.
    _memory: Option<CallerMemory>,
}

// SAFETY: the cell is only accessed under the GIL, or by the single call that has marked it busy.
unsafe impl Sync for PyGraph {}

/// The Arrays of a graph.
pub struct Arrays {
    /// The record of how they were computed.
    pub tape: Arc<Tape>,
    /// The object that owns them.
    pub home: Py<PyAny>,
}

impl PyGraph {
    /// The record of how Arrays were computed, if there are any.
    pub fn tape(&self, py: Python<'_>) -> Option<&Tape> {
        self.arrays.get(py).map(|arrays| &*arrays.tape)
    }

    /// A Python graph around a core one.
    pub fn around(graph: AnyGraph, reclaim: bool) -> Self {
        PyGraph {
            cell: UnsafeCell::new(Cell::new(graph, reclaim)),
            shared: Shared::default(),
            arrays: PyOnceLock::new(),
            _memory: None,
        }
    }

    /// The cell of a graph object.
    ///
    /// # Safety
    /// `object` is a living `Graph`; the GIL is held; no other reference into the cell is in use.
    #[inline(always)]
    pub unsafe fn cell_of_object<'a>(object: *mut ffi::PyObject) -> &'a mut Cell {
        // SAFETY: by the contract of this function; the object outlives the call that holds the reference.
        unsafe {
            let py = Python::assume_attached();
            let object = pyo3::Borrowed::from_ptr(py, object);
            &mut *object.cast_unchecked::<PyGraph>().get().cell.get()
        }
    }

    /// Runs `f` on the cell, unless the graph is busy; its nodes are constants if gradients are off in this thread.
    pub fn with<T>(&self, py: Python<'_>, f: impl FnOnce(&mut Cell) -> PyResult<T>) -> PyResult<T> {
        if !wants_no_grad() {
            return self.with_as_is(py, f);
        }
        self.with_as_is(py, |cell| {
            if cell.is_busy() {
                return Err(crate::convert::refusals::no_grad_refused());
            }
            let before = cell.graph.set_no_grad(true);
            let only = ConstantsOnly { cell, before };
            f(only.cell)
        })
    }

    /// The type of its scalars.
    pub fn scalar_type(&self, py: Python<'_>) -> PyResult<ScalarType> {
        self.look(py, |cell| Ok(cell.graph.scalar_type()))
    }

    /// `TraceError` if a function is being traced on this graph: there `what` has no meaning, or none that a
    /// replay could reproduce.
    pub fn not_traced(&self, py: Python<'_>, what: &str) -> PyResult<()> {
        let is_traced = self.end_of_trace(|cell| cell.is_busy() && cell.is_traced());
        if is_traced { Err(crate::convert::refusals::not_in_a_trace(py, what)) } else { Ok(()) }
    }

    /// Runs `f` on the cell and the trace, if a function is being traced on this graph.
    pub fn if_traced<T>(
        &self,
        f: impl FnOnce(&mut Cell, &mut crate::graph::trace::Trace) -> PyResult<T>,
    ) -> PyResult<Option<T>> {
        locked_self(self, || {
            // SAFETY: under the GIL; `f` is internal and calls no Python code.
            let cell = unsafe { &mut *self.cell.get() };
            let trace = cell.trace.take_if(|trace| trace.is_active);
            let mut out = TraceOut { cell, trace };
            match &mut out.trace {
                Some(trace) => f(out.cell, trace).map(Some),
                None => Ok(None),
            }
        })
    }

    /// The cell of an unreachable graph, or of a trace that is over.
    pub fn end_of_trace<T>(&self, f: impl FnOnce(&mut Cell) -> T) -> T {
        // SAFETY: under the GIL; `f` is internal and calls no Python code.
        locked_self(self, || f(unsafe { &mut *self.cell.get() }))
    }

    /// Removes nodes that were appended after a mark and have no handles.
    pub fn take_back(&self, mark: Mark) {
        locked_self(self, || {
            // SAFETY: under the GIL, for this statement.
            let cell = unsafe { &mut *self.cell.get() };
            cell.graph.take_back(mark);
        });
    }

    /// Evaluates the nodes that have no value yet, before nodes are read without their Values.
    pub fn settle(&self, py: Python<'_>) -> PyResult<()> {
        locked_self(self, || {
            // SAFETY: under the GIL; evaluating runs no Python code, and the reference ends here.
            let cell = unsafe { &mut *self.cell.get() };
            if cell.n_unevaluated == 0 {
                return Ok(());
            }
            if cell.is_busy() {
                return Err(cell.refusal(py));
            }
            cell.settle_all();
            Ok(())
        })
    }

    /// Runs `f` on the cell, unless the graph is busy.
    pub fn with_as_is<T>(&self, py: Python<'_>, f: impl FnOnce(&mut Cell) -> PyResult<T>) -> PyResult<T> {
        locked_self(self, || {
            // SAFETY: under the GIL, and `f` is internal: if it may run Python code it marks the cell busy.
            let cell = unsafe { &mut *self.cell.get() };
            if cell.is_busy() && !cell.is_traced() {
                return Err(cell.refusal(py));
            }
            f(cell)
        })
    }

    /// Runs `f`, which only reads nodes, on the cell: also while branches are open.
    pub fn look<T>(&self, py: Python<'_>, f: impl FnOnce(&mut Cell) -> PyResult<T>) -> PyResult<T> {
        locked_self(self, || {
            // SAFETY: as in `with_as_is`.
            let cell = unsafe { &mut *self.cell.get() };
            if cell.is_busy() && !cell.is_frozen() && !cell.is_traced() {
                return Err(cell.refusal(py));
            }
            f(cell)
        })
    }
}

/// A cell that builds only constants until this is dropped, even if memory was refused.
struct ConstantsOnly<'a> {
    cell: &'a mut Cell,
    before: bool,
}

impl Drop for ConstantsOnly<'_> {
    fn drop(&mut self) {
        self.cell.graph.set_no_grad(self.before);
    }
}

/// A trace taken out of its cell, and put back when this is dropped.
struct TraceOut<'a> {
    cell: &'a mut Cell,
    trace: Option<Box<trace::Trace>>,
}

impl Drop for TraceOut<'_> {
    fn drop(&mut self) {
        if let Some(trace) = self.trace.take() {
            self.cell.trace = Some(trace);
        }
    }
}

#[pymethods]
impl PyGraph {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        traverse(&self._memory, visit)?;
        // SAFETY: under the GIL.
        let arrays = self.arrays.get(unsafe { Python::assume_attached() });
        arrays.map_or(Ok(()), |arrays| visit.call(&arrays.home))?;
        // SAFETY: the collector runs under the GIL; visiting changes nothing and runs no Python code.
        traverse(unsafe { &*self.cell.get() }, visit)
    }

    /// Drops the objects that the graph has acquired since its creation. The graph is unreachable, and refuses calls
    /// from now on.
    fn __clear__(&self) {
        let held = self.end_of_trace(|cell| {
            cell.set_busy(true);
            cell.is_away = true;
            (
                std::mem::take(&mut cell.parameters),
                std::mem::take(&mut cell.objects),
                cell.branching.take(),
                cell.trace.take(),
            )
        });
        // Dropped objects may run code, so they are dropped when the cell is no longer in use.
        drop(held);
    }

    #[new]
    #[pyo3(
        signature = (dtype=DtypeName::new("float64"), capacity=None, fixed=false, *, reclaim=true, buffer=None),
        text_signature = "(dtype='float64', capacity=None, fixed=False, *, reclaim=True, buffer=None)"
    )]
    fn new(
        py: Python<'_>,
        dtype: DtypeName,
        capacity: Option<Count>,
        fixed: bool,
        reclaim: bool,
        buffer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let capacity = capacity.map(|n| n.of_nodes("capacity")).transpose()?;
        let mut memory = buffer.map(|buffer| CallerMemory::bytes(buffer, "buffer")).transpose()?;
        memory.iter_mut().try_for_each(|memory| memory.claim(py, "buffer"))?;
        let of = type_named(dtype.name())?;
        let room = match (capacity, fixed, &memory) {
            (_, _, Some(memory)) => {
                let bytes = memory.numbers::<MaybeUninit<u8>>();
                // SAFETY: writable and contiguous, as checked, and kept alive beside the graph, which is dropped first. Its
                // owner must not use the bytes meanwhile, as the docstring says.
                Room::In(unsafe { &mut *bytes.as_ptr() }, capacity)
            }
            (None, true, None) => {
                return Err(PyValueError::new_err("a fixed graph needs a capacity: Graph(capacity=n, fixed=True)"));
            }
            (Some(n), true, None) => Room::Fixed(n),
            (Some(n), false, None) => Room::AtLeast(n),
            (None, false, None) => Room::Growing,
        };
        let graph = AnyGraph::make(of, room).or_raise(py)?;
        Ok(PyGraph { _memory: memory, ..Self::around(graph, reclaim) })
    }

    /// Make this the current graph of the thread until the block ends.
    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        enter_block(slf)?;
        Ok(slf.clone())
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(slf: &Bound<'_, Self>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        leave_block(slf, exception.get_item(0).is_ok_and(|class| !class.is_none()))
    }

    /// Freeze this graph and make n branches of it, each a Graph for one thread to build on.
    ///
    /// `with branch:` makes a branch the current graph of a thread: new nodes, also those of Values of this graph,
    /// go to the branch. A branch reads all nodes that existed before it, but no other open branch. An exception in
    /// the block removes the nodes of the branch. Meanwhile this graph is read-only (BusyError). join() ends this.
    ///
    /// Plain operators hold the GIL, so threads alternate; block ops and models release it.
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
    fn branches<'py>(slf: &Bound<'py, Self>, n: Count) -> PyResult<Vec<Bound<'py, Self>>> {
        let n = n.positive("n")?;
        slf.get().not_traced(slf.py(), "branches()")?;
        branches::open(slf, n)
    }

    /// The type of its scalars, such as "float64" or "float32x8".
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.look(py, |cell| Ok(cell.graph.scalar_type().name()))
    }

    /// Whether the graph never grows and its memory never moves.
    #[getter]
    fn fixed(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py, |cell| Ok(cell.graph.is_fixed()))
    }

    /// The number of nodes that fit without growing.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<usize> {
        self.look(py, |cell| Ok(cell.graph.capacity()))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.look(py, |cell| Ok(cell.graph.len()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, |cell| {
            let n = cell.graph.len();
            Ok(format!("<Graph of {n} {} nodes>", cell.graph.scalar_type().name()))
        })
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// The Parameters that nodes read, in the order of first use.
    #[getter]
    fn parameters(&self, py: Python<'_>) -> PyResult<Vec<Py<crate::params::PyParameters>>> {
        self.with(py, |cell| parameters_read(py, cell))
    }

    /// Start (True) or stop building only constants; returns the previous setting. Prefer `with bt.no_grad():`.
    pub fn set_no_grad(&self, py: Python<'_>, on: bool) -> PyResult<bool> {
        self.not_traced(py, "no_grad()")?;
        if let Some(tape) = self.tape(py) {
            tape.set_no_grad(on);
        }
        self.with_as_is(py, |cell| Ok(cell.graph.set_no_grad(on)))
    }
}

/// Begins a `with graph:` block of this thread.
pub fn enter_block(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    branches::enter(graph)?;
    match catch_unwind(AssertUnwindSafe(|| enter(graph))) {
        Ok(Ok(())) => Ok(()),
        failed => {
            branches::leave(graph, false);
            failed.unwrap_or_else(|panic| resume_unwind(panic))
        }
    }
}

/// Ends it; after an exception the nodes of a branch are removed.
pub fn leave_block(graph: &Bound<'_, PyGraph>, failed: bool) -> PyResult<()> {
    leave(graph)?;
    branches::leave(graph, failed);
    Ok(())
}

/// The number of bytes that Graph(buffer=...) needs for this many nodes of any kind.
///
/// Example:
///     >>> import burtorch as bt
///     >>> memory = bytearray(bt.bytes_needed(100))
///     >>> graph = bt.Graph(buffer=memory)
///     >>> graph.capacity, graph.fixed
///     (100, True)
#[pyfunction]
#[pyo3(signature = (n_nodes, dtype=DtypeName::new("float64")), text_signature = "(n_nodes, dtype='float64')")]
fn bytes_needed(py: Python<'_>, n_nodes: Count, dtype: DtypeName) -> PyResult<usize> {
    bytes_for(type_named(dtype.name())?, n_nodes.of_nodes("n_nodes")?).or_raise(py)
}

/// Adds the classes and functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGraph>()?;
    #[cfg(Py_GIL_DISABLED)]
    critical_section::prepare(m.py());
    m.add_class::<PyMark>()?;
    m.add_class::<PyScope>()?;
    m.add_function(wrap_pyfunction!(bytes_needed, m)?)?;
    m.add_function(wrap_pyfunction!(current::current_graph, m)?)
}
