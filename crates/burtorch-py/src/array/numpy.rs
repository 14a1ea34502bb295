//! NumPy's functions of Arrays: NumPy calls the two methods here, which look the function up in the table of
//! `python/burtorch/_numpy.py`.

use burtorch_core::array::Handle;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::array::PyArray;
use super::of_graph::numbers_of;
use super::{guard, index};

pub(super) const NO_NUMBERS: &str = "a traced Array has a shape and a dtype but no numbers: compute with the Array itself, with bt or \
                          NumPy functions, and return the results; index a known array with bt.take(table, i, axis=0); \
                          and sparse matrices are arguments";

fn table<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("burtorch._numpy")?.getattr(name)
}

#[pymethods]
impl PyArray {
    #[pyo3(signature = (*arguments, **keywords))]
    fn __array_ufunc__<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        table(slf.py(), "ufunc")?.call(arguments, keywords)
    }

    fn __array_function__<'py>(
        slf: &Bound<'py, Self>,
        function: &Bound<'py, PyAny>,
        types: &Bound<'py, PyAny>,
        arguments: &Bound<'py, PyTuple>,
        keywords: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        table(slf.py(), "function")?.call1((function, types, arguments, keywords))
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(copy) = copy
            && !copy.is_none()
            && !copy.is_truthy()?
        {
            return Err(PyValueError::new_err("the numbers of an Array are copied; give copy=None or True"));
        }
        // NumPy calls this for the items of lists as well, whose results would have no gradient.
        if slf.get().handle().is_some_and(Handle::moves) {
            return Err(PyTypeError::new_err(
                "an array of NumPy has no gradient: use x.data for the numbers alone, bt.array([x, y]) or numpy.stack for an Array of \
                 several, and functions of NumPy on Arrays instead of lists of them",
            ));
        }
        let numbers = numbers_of(slf)?;
        match dtype {
            Some(dtype) if !dtype.is_none() => numbers.call_method1("astype", (dtype,)),
            _ => Ok(numbers),
        }
    }

    fn __float__(slf: &Bound<'_, Self>) -> PyResult<f64> {
        numbers_of(slf)?.call_method0("item")?.extract()
    }

    fn __int__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Ok(numbers_of(slf)?.call_method0("__int__")?.unbind())
    }

    fn __complex__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        numbers_of(slf)?.call_method0("__complex__")
    }

    /// The number of an Array of a graph in this format; the Array's text for an empty one.
    fn __format__(slf: &Bound<'_, Self>, spec: &str) -> PyResult<String> {
        if spec.is_empty() {
            return slf.str()?.extract();
        }
        let dims = slf.get().type_of().dims;
        if dims.rank() > 0 {
            return Err(PyTypeError::new_err(format!(
                "format {spec:?} is of one number, found an Array of shape {dims}; format its elements, or use numpy.array2string(x.data)"
            )));
        }
        numbers_of(slf)?.call_method0("item")?.call_method1("__format__", (spec,))?.extract()
    }

    /// The only number of an Array of a graph, or the one at an index. A TraceError for a traced Array.
    #[pyo3(signature = (*index))]
    fn item<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        numbers_of(slf)?.call_method1("item", index)
    }

    /// The numbers of an Array of a graph as nested lists. A TraceError for a traced Array.
    fn tolist<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        numbers_of(slf)?.call_method0("tolist")
    }

    fn __bool__(slf: &Bound<'_, Self>) -> PyResult<bool> {
        guard::truth(slf)
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        index::item(slf, index)
    }

    fn __setitem__(&self, _index: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an Array is immutable: join parts with bt.concatenate, or choose elements with bt.where",
        ))
    }

    fn __len__(&self) -> PyResult<usize> {
        let dims = self.type_of().dims;
        dims.first().copied().ok_or_else(|| PyTypeError::new_err("len() of unsized object"))
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let Some(&n) = slf.get().type_of().dims.first() else {
            return Err(PyTypeError::new_err("iteration over a 0-d array"));
        };
        let rows = (0..n).map(|k| index::item(slf, k.into_pyobject(py)?.as_any())).collect::<PyResult<Vec<_>>>()?;
        Ok(pyo3::types::PyList::new(py, rows)?.try_iter()?.into_any())
    }
}
