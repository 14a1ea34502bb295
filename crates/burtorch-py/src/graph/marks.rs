//! `Mark` and `Scope`: positions in a graph to rewind to, and rewinding.
//!
//! Promises: a mark is forgotten when its object is dropped; a mark undone by a rewind is a `StaleValueError`.

use burtorch_core::array::Tape;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::PyGraph;
use crate::convert::errors::{IntoPython, derived, to_python};
use crate::convert::gc::{collected, traverse};

/// A position in a graph to rewind to; made by Graph.mark().
#[pyclass(frozen, name = "Mark", module = "burtorch")]
pub struct PyMark {
    pub(super) graph: Py<PyGraph>,
    pub(super) number: u64,
    /// The position among Arrays.
    arrays: u64,
}
collected!(PyMark: graph);

impl Drop for PyMark {
    fn drop(&mut self) {
        let number = self.number;
        // Possible at any time, because marks are stored separately. Returns no error, which would need memory.
        Python::try_attach(|_| self.graph.get().end_of_trace(|cell| cell.marks.remove(&number)));
    }
}

#[pymethods]
impl PyMark {
    /// Raises TypeError: a mark is a position in one graph of this process.
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("a Mark cannot be pickled or copied; it is a position in one graph of this process"))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.graph.get().with(py, |cell| {
            Ok(match cell.marks.get(&self.number) {
                Some(mark) => format!("<Mark at {} nodes>", mark.len()),
                None => "<stale Mark>".to_string(),
            })
        })
    }
}

/// `with graph.scope():` makes the graph current and rewinds it at the end of the block; made by Graph.scope().
#[pyclass(frozen, name = "Scope", module = "burtorch")]
pub struct PyScope {
    graph: Py<PyGraph>,
    /// One mark per active block of the scope.
    marks: std::sync::Mutex<Vec<Py<PyMark>>>,
}

impl PyScope {
    /// A scope without active blocks.
    pub fn of(graph: Py<PyGraph>) -> Self {
        PyScope { graph, marks: std::sync::Mutex::new(Vec::new()) }
    }
}

#[pymethods]
impl PyScope {
    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        traverse(&self.graph, visit)?;
        // If the list is borrowed, the scope is in use.
        self.marks.try_lock().map_or(Ok(()), |marks| traverse(&*marks, visit))
    }

    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyGraph>> {
        let graph = self.graph.bind(py);
        let mark = Py::new(py, PyGraph::mark(graph)?)?;
        PyGraph::__enter__(graph)?;
        if let Ok(mut marks) = self.marks.lock() {
            marks.push(mark);
        }
        Ok(graph.clone())
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let graph = self.graph.bind(py);
        PyGraph::__exit__(graph, exception)?;
        let mark = self.marks.lock().ok().and_then(|mut marks| marks.pop());
        let rewound = mark.map_or(Ok(()), |mark| PyGraph::rewind(graph, mark.bind(py)));
        // An exception from the block is more important than the error that the block has cleared the graph.
        let failed = exception.get_item(0).is_ok_and(|class| !class.is_none());
        if failed { Ok(()) } else { rewound }
    }
}

impl PyGraph {
    fn rewind_arrays(&self, py: Python<'_>, to: u64) {
        if let Some(tape) = self.tape(py) {
            tape.rewind(to);
        }
    }
}

#[pymethods]
impl PyGraph {
    /// Remember the current length, to rewind to. Constant time.
    pub(super) fn mark(slf: &Bound<'_, Self>) -> PyResult<PyMark> {
        let number = slf.get().with(slf.py(), |cell| {
            let mark = cell.graph.mark();
            Ok(cell.add_mark(mark))
        })?;
        let arrays = slf.get().tape(slf.py()).map_or(0, Tape::position);
        Ok(PyMark { graph: slf.clone().unbind(), number, arrays })
    }

    /// Remove every node appended after the mark; their Values become stale. Constant time.
    ///
    /// Raises StaleValueError for a mark undone by an earlier rewind, GraphMismatchError for a mark of another graph.
    pub(super) fn rewind(slf: &Bound<'_, Self>, mark: &Bound<'_, PyMark>) -> PyResult<()> {
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
            cell.graph.rewind(place).or_raise(py)?;
            cell.after_rewind();
            Ok(())
        })?;
        slf.get().rewind_arrays(py, mark.arrays);
        Ok(())
    }

    /// Remove all nodes. Their memory is reused.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.not_traced(py, "clear()")?;
        self.with(py, |cell| {
            cell.graph.clear().or_raise(py)?;
            cell.after_rewind();
            Ok(())
        })?;
        self.rewind_arrays(py, 0);
        Ok(())
    }

    /// A context manager that rewinds to the state at its entry.
    fn scope(slf: &Bound<'_, Self>) -> PyScope {
        PyScope::of(slf.clone().unbind())
    }
}
