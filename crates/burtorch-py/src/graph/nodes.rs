//! New nodes of a graph for Python, and Values for those that are there.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::PyGraph;
use crate::convert::scalars;
use crate::files::graph as files;
use crate::node::value;
use crate::node::vector::{PyVector, numbers};

#[pymethods]
impl PyGraph {
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
        if slf.get().with_as_is(slf.py(), |cell| Ok(cell.is_busy()))? {
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
    pub(crate) fn vector(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<Py<PyVector>> {
        let scalar_type = slf.get().scalar_type(slf.py())?;
        if scalar_type.fits_float() {
            return PyVector::leaves(slf, &numbers(data)?);
        }
        PyVector::special_leaves(slf, &scalars::read_many(data, scalar_type)?)
    }
}
