//! `TokenIdArray`: token ids as a read-only array.
#![allow(unsafe_code)]

use std::ffi::c_int;

use pyo3::exceptions::PyIndexError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMemoryView, PyTuple};

use super::read::Dims;
use super::view::Exported;

/// TokenIds, as `WordContexts` hands them out: a read-only array of uint32 of shape (n,) or (n, context).
///
/// Supports `len`, indexing by the first dimension, iteration, `tolist()` and the buffer protocol (format "I"), so that
/// `numpy.asarray(a)` copies nothing.
#[pyclass(frozen, name = "TokenIdArray", module = "burtorch")]
pub struct TokenIdArray {
    pub(super) symbols: Box<[u32]>,
    shape: [isize; 2],
    strides: [isize; 2],
    n_dims: usize,
}

impl TokenIdArray {
    /// A row of symbols.
    pub fn row(symbols: Vec<u32>) -> Self {
        let shape = [symbols.len() as isize, 1];
        TokenIdArray { symbols: symbols.into(), shape, strides: [4, 4], n_dims: 1 }
    }

    /// Rows of `width` symbols.
    pub fn rows(symbols: Vec<u32>, width: usize) -> Self {
        let shape = [(symbols.len() / width.max(1)) as isize, width as isize];
        TokenIdArray { symbols: symbols.into(), shape, strides: [4 * width as isize, 4], n_dims: 2 }
    }

    /// Its dimensions.
    pub fn dims(&self) -> Dims {
        match self.n_dims {
            1 => Dims::one(self.shape[0] as usize),
            _ => Dims::two(self.shape[0] as usize, self.shape[1] as usize),
        }
    }
}

#[pymethods]
impl TokenIdArray {
    fn __len__(&self) -> usize {
        self.shape[0] as usize
    }

    /// (n,) or (n, context).
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape.iter().take(self.n_dims))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let n = self.shape[0];
        let at = if index < 0 { index + n } else { index };
        let width = if self.n_dims == 1 { 1 } else { self.shape[1] as usize };
        let row = usize::try_from(at).ok().and_then(|at| self.symbols.get(at * width..(at + 1) * width));
        match row {
            Some([symbol]) if self.n_dims == 1 => Ok(symbol.into_pyobject(py)?.into_any()),
            Some(row) => Ok(PyList::new(py, row)?.into_any()),
            None => Err(PyIndexError::new_err(format!("index {index} is out of range for {n} entries"))),
        }
    }

    /// The symbols as a (nested) list of ints.
    fn tolist<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        PyMemoryView::from(slf.as_any())?.call_method0("tolist")
    }

    fn __repr__(&self) -> String {
        match self.n_dims {
            1 => format!("TokenIdArray(shape=({},))", self.shape[0]),
            _ => format!("TokenIdArray(shape=({}, {}))", self.shape[0], self.shape[1]),
        }
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let array = slf.get();
        let memory = Exported {
            start: array.symbols.as_ptr().cast_mut().cast(),
            item_size: 4,
            format: c"I",
            shape: array.shape.get(..array.n_dims).unwrap_or(&[]),
            strides: array.strides.get(..array.n_dims).unwrap_or(&[]),
            read_only: true,
        };
        // SAFETY: Python passes a view to fill; memory, shape and strides live in `slf`, which the view keeps alive.
        unsafe { memory.fill(slf.clone().into_any(), view, flags) }
    }
}
