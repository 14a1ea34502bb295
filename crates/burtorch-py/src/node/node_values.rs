//! The numbers of a graph by node index, and of a run of its nodes, as arrays: shared where memory never moves, else
//! copied.
//!
//! Promises: an array never reads memory that has moved; adjoints are read-only, because a backward pass resets only those
//! written by the last one.
#![allow(unsafe_code)]

use std::ffi::c_int;

use burtorch_core::erased::AnyNumbers;
use burtorch_core::{NodeId, Range};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};

use crate::convert::buffer::FlatArray;
use crate::convert::errors::{IntoPython, instead};
use crate::convert::gc::collected;
use crate::convert::numbers;
use crate::convert::signals::ask_at;
use crate::graph::PyGraph;
use crate::graph::cell::Cell;
use crate::node::numbers as of_node;

/// The data, or the gradients, of a run of nodes as one array, shared if the graph never moves its memory; `None` if
/// no array format exists (lanes, float128), or if the nodes are leaves and others mixed.
pub fn shared(graph: &Bound<'_, PyGraph>, cell: &mut Cell, range: Range, of_grads: bool) -> Option<FlatArray> {
    let (start, read_only) = cell.graph.memory_of_run(range, of_grads)?;
    let elem = cell.graph.scalar_type().elem;
    let array = FlatArray::unmoved(graph.clone().into_any().unbind(), start, range.len(), elem, read_only);
    // Adjoints are read-only, gradients of leaves are not, and lie elsewhere.
    graph.get().shared.extend(if of_grads { 1 + usize::from(read_only) } else { 0 }, array.addresses());
    Some(array)
}

/// The data, or the gradients, of nodes as a new array, in the graph's type (float64 for bfloat16, which has no
/// buffer format); `None` if no array format exists.
pub fn copied(py: Python<'_>, cell: &Cell, ranges: &[Range], of_grads: bool) -> PyResult<Option<FlatArray>> {
    let numbers = cell.graph.numbers(ranges, of_grads).or_raise(py)?;
    Ok(numbers.map(|numbers| match numbers {
        AnyNumbers::F16(numbers) => FlatArray::copied(&numbers),
        AnyNumbers::F32(numbers) => FlatArray::copied(&numbers),
        AnyNumbers::F64(numbers) => FlatArray::copied(&numbers),
    }))
}

/// The data of all nodes of a graph, by index.
///
/// Made by Graph.values. `values[i]` is a number; `values[i:j]` is a FlatArray, shared with graphs whose memory never moves
/// (fixed, or in a caller's buffer) and a copy otherwise. Assigning writes the data of nodes. The buffer protocol and
/// DLPack include all nodes present at that moment.
///
/// Example:
///     >>> import burtorch as bt
///     >>> graph = bt.Graph(capacity=8, fixed=True)
///     >>> x = graph.vector([1.0, 2.0, 3.0])
///     >>> y = x * 2
///     >>> part = graph.values[4:7]
///     >>> list(part), part.is_copy
///     ([2.0, 4.0, 6.0], False)
#[pyclass(frozen, name = "NodeValues", module = "burtorch")]
pub struct NodeValues {
    pub graph: Py<PyGraph>,
}
collected!(NodeValues: graph);

impl NodeValues {
    /// The numbers of nodes `start..start + len`, which exist.
    fn run<'py>(&self, py: Python<'py>, range: Range) -> PyResult<Bound<'py, PyAny>> {
        let graph = self.graph.bind(py);
        let read = graph.get().with(py, |cell| {
            if let Some(array) = shared(graph, cell, range, false) {
                return Ok(Ok(array));
            }
            if let Some(array) = copied(py, cell, &[range], false)? {
                return Ok(Ok(array));
            }
            let numbers = range.nodes().map(|node| cell.graph.number(node, false));
            Ok(Err(numbers.collect::<burtorch_core::Result<Vec<_>>>().or_raise(py)?))
        })?;
        match read {
            Ok(array) => Ok(Bound::new(py, array)?.into_any()),
            Err(numbers) => {
                let objects = numbers.into_iter().enumerate().map(|(k, number)| {
                    ask_at(py, k)?;
                    numbers::into_python(py, number)
                });
                Ok(PyTuple::new(py, objects.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
        }
    }

    fn len(&self, py: Python<'_>) -> PyResult<usize> {
        crate::convert::refusals::refuse_reading(".values of a graph")?;
        self.graph.get().with(py, |cell| Ok(cell.graph.len()))
    }

    /// The nodes given by an index or a slice, and whether it is a slice.
    fn nodes(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<(Range, bool)> {
        let n = self.len(py)?;
        if let Ok(slice) = index.cast::<PySlice>() {
            let at = slice.indices(n as isize)?;
            if at.step != 1 {
                return Err(PyValueError::new_err("a slice of values must have step 1; use numpy.asarray(part)[::k]"));
            }
            let start = NodeId::from_index(at.start.max(0) as u32);
            return Ok((Range::new(start, at.slicelength as u32), true));
        }
        let k: isize = index
            .extract()
            .map_err(|error| instead(py, error, PyTypeError::new_err("node indices must be integers or slices")))?;
        match usize::try_from(if k < 0 { k + n as isize } else { k }) {
            Ok(k) if k < n => Ok((Range::new(NodeId::from_index(k as u32), 1), false)),
            _ => Err(PyIndexError::new_err(format!("node {k} of a graph of {n}"))),
        }
    }

    /// All nodes.
    fn whole<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let n = self.len(py)? as u32;
        self.run(py, Range::new(NodeId::from_index(0), n))
    }
}

#[pymethods]
impl NodeValues {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.len(py)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.nodes(py, index)? {
            (range, true) => self.run(py, range),
            (range, false) => {
                let number = |cell: &mut Cell| cell.graph.number(range.first(), false).or_raise(py);
                numbers::into_python(py, self.graph.get().with(py, number)?)
            }
        }
    }

    fn __setitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let into = self.graph.get().scalar_type(py)?;
        let one = of_node::read(data, into);
        let (range, is_slice) = self.nodes(py, index)?;
        let data = match one {
            Ok(Some(one)) => vec![one; range.len()],
            _ if is_slice => of_node::read_many(data, into)?,
            Ok(None) => vec![of_node::expect(data, into)?],
            Err(error) => return Err(error),
        };
        if data.len() != range.len() {
            return Err(PyValueError::new_err(format!("expected {} numbers, found {}", range.len(), data.len())));
        }
        self.graph.get().with(py, |cell| {
            // Reading may have run Python code that changed the graph.
            for (node, given) in range.nodes().zip(&data) {
                cell.graph.set_number(node, given, false).or_raise(py)?;
            }
            Ok(())
        })
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.whole(py)?.try_iter()?.into_any())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<values of {} nodes>", self.len(py)?))
    }

    /// (1, 0): these numbers are in the memory of the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    /// A DLPack capsule; see FlatArray.
    #[pyo3(signature = (**keywords))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        keywords: Option<&Bound<'py, pyo3::types::PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.whole(py)?.call_method("__dlpack__", (), keywords)
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let whole = slf.get().whole(slf.py())?;
        // SAFETY: the interpreter passes a view to fill; the array that fills it is what the view will own.
        match unsafe { ffi::PyObject_GetBuffer(whole.as_ptr(), view, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
