//! `Vector` as a Python sequence: length, indexing, slices, text, and the numbers of its nodes.

use burtorch_core::Range;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PySlice;

use super::{Numbers, PyVector, wrap};
use crate::array::trace::refuse_writing;
use crate::convert::errors::instead;
use crate::convert::numbers;
use crate::convert::signals::text_of;
use crate::graph::PyGraph;

#[pymethods]
impl PyVector {
    #[new]
    #[pyo3(signature = (data, *, graph=None))]
    fn new(py: Python<'_>, data: &Bound<'_, PyAny>, graph: Option<Bound<'_, PyGraph>>) -> PyResult<Py<Self>> {
        let graph = match graph {
            Some(graph) => graph,
            None => crate::graph::current_graph(py)?.into_bound(py).cast_into()?,
        };
        PyGraph::vector(&graph, data)
    }

    fn __len__(&self) -> usize {
        self.n()
    }

    /// Raises TypeError: a Vector cannot be pickled without its graph.
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("a Vector cannot be pickled or copied without its graph; use list(vector.data)"))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if crate::convert::refusals::is_tracing() {
            return Ok("Vector(traced)".into());
        }
        let (shown, n): (Vec<String>, usize) = match self.read(py, false)? {
            Numbers::Floats(all) => (all.iter().take(8).map(|x| format!("{x:?}").to_lowercase()).collect(), all.len()),
            Numbers::Special(all) => {
                let n = all.len();
                let shown = all.into_iter().take(8).map(|number| Ok(text_of(&numbers::into_python(py, number)?)));
                (shown.collect::<PyResult<_>>()?, n)
            }
        };
        let rest = if n > 8 { format!(", ... {n} in all") } else { String::new() };
        Ok(format!("Vector([{}{rest}])", shown.join(", ")))
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, vector) = (slf.py(), slf.get());
        let n = vector.n();
        if let Ok(slice) = index.cast::<PySlice>() {
            let at = slice.indices(n as isize)?;
            if at.step == 1 {
                return vector.at_home(py, |home| {
                    let ranges = cut(&vector.ranges(py)?, at.start as usize, at.slicelength);
                    Ok(PyVector::of_runs(home, &ranges)?.into_bound(py).into_any())
                });
            }
            let places = (0..at.slicelength as isize).map(|k| (at.start + k * at.step) as usize);
            return vector.at_home(py, |home| {
                let single = |k| Ok(Range::new(vector.node_at(home, k)?, 1));
                let ranges = places.map(single).collect::<PyResult<Vec<_>>>()?;
                Ok(PyVector::of_runs(home, &ranges)?.into_bound(py).into_any())
            });
        }
        let k: isize = index.extract().map_err(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(py) {
                return PyIndexError::new_err(format!("index out of range for a Vector of {n}"));
            }
            instead(py, error, PyTypeError::new_err("Vector indices must be integers or slices"))
        })?;
        let k = if k < 0 { k + n as isize } else { k };
        if k < 0 || k as usize >= n {
            return Err(PyIndexError::new_err(format!("index {k} of a Vector of {n}")));
        }
        vector.at_home(py, |home| wrap(home, vector.node_at(home, k as usize)?))
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: a living object under the GIL; the iterator indexes it from 0 on.
        unsafe { Bound::from_owned_ptr_or_err(slf.py(), ffi::PySeqIter_New(slf.as_ptr())) }
    }

    /// The numbers of these nodes, as a FlatArray that shares the memory of a fixed graph and is a copy on a growing one
    /// (or if this Vector joins several runs); on graphs of lanes a tuple of tuples, on float128 ones a tuple of
    /// Decimals. Assigning writes them; a single number is broadcast.
    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        crate::convert::refusals::refuse_reading(".data of a Vector")?;
        slf.get().array(slf.py(), false)
    }

    #[setter]
    fn set_data(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        refuse_writing(py, "data", "Vector")?;
        self.write(py, data, false)
    }

    /// Their gradients, likewise. Shared gradients of nodes that are not leaves are read-only, and -0.0 where the last backward
    /// pass did not reach. Assigning writes them.
    #[getter]
    fn grad<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        crate::convert::refusals::refuse_reading(".grad of a Vector")?;
        slf.get().array(slf.py(), true)
    }

    #[setter]
    fn set_grad(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        refuse_writing(py, "grad", "Vector")?;
        self.write(py, data, true)
    }

    /// The Graph of these nodes.
    #[getter]
    fn graph(&self, py: Python<'_>) -> Py<PyGraph> {
        self.home().clone_ref(py)
    }
}

/// The part of a list of runs that begins after `skip` scalars and has `len`.
fn cut(ranges: &[Range], skip: usize, len: usize) -> Vec<Range> {
    let (mut skip, mut len) = (skip, len);
    let mut parts = Vec::new();
    for range in ranges {
        let from = skip.min(range.len());
        let to = (from + len).min(range.len());
        parts.extend(range.slice(from, to).filter(|part| !part.is_empty()));
        skip -= from;
        len -= to - from;
    }
    parts
}
