//! `FlatArray`: numbers that never move, shared with Python without a copy.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use burtorch_core::{DType, bf16, f16};
use pyo3::exceptions::{PyBufferError, PyIndexError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMemoryView, PySlice};

use super::read_numbers;
use super::view::Exported;
use crate::params::PyParameters;
use crate::scalars::{Given, ScalarType, object_of};

/// Flat numbers that never move, shared without a copy.
///
/// The values or gradients of Parameters, or of one tensor of them. Supports `len`, indexing by int and by slices of
/// step 1, iteration, and the buffer protocol (format "f", "d" or "e", writable), so `memoryview(a)` and `numpy.asarray(a)`
/// copy nothing; for bfloat16 and float128, which it has no format for, use `list(a)`. While an array is held, its Parameters stay where they are.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters()
///     >>> w = params.tensor((2, 2), init=0.5)
///     >>> params.values[1] = 3.0
///     >>> list(w.values)
///     [0.5, 3.0, 0.5, 0.5]
#[pyclass(frozen, name = "FlatArray", module = "burtorch")]
pub struct FlatArray {
    parent: Py<PyParameters>,
    start: NonNull<u8>,
    /// For the buffer protocol, which wants addresses of both.
    len: isize,
    item_size: isize,
    dtype: DType,
}

// SAFETY: the memory belongs to `parent`, which outlives this and does not move it while `n_arrays` counts this; as with
// every writable buffer, that two threads do not write one number at once is up to those who hold it.
unsafe impl Send for FlatArray {}
// SAFETY: as above.
unsafe impl Sync for FlatArray {}

impl Drop for FlatArray {
    fn drop(&mut self) {
        self.parent.get().n_arrays.fetch_sub(1, Ordering::AcqRel);
    }
}

impl FlatArray {
    /// An array over numbers of `parent`, which `start` points into.
    pub fn new(parent: Py<PyParameters>, start: NonNull<u8>, len: usize, dtype: DType) -> Self {
        parent.get().n_arrays.fetch_add(1, Ordering::AcqRel);
        let item_size = match dtype {
            DType::Float16 | DType::BFloat16 => 2,
            DType::Float32 => 4,
            DType::Float64 => 8,
            DType::Float128 => 16,
        };
        FlatArray { parent, start, len: len as isize, item_size, dtype }
    }

    /// How the buffer protocol calls the numbers, if it has a name for them.
    fn format(&self) -> Option<&'static CStr> {
        match self.dtype {
            DType::Float16 => Some(c"e"),
            DType::Float32 => Some(c"f"),
            DType::Float64 => Some(c"d"),
            DType::BFloat16 | DType::Float128 => None,
        }
    }

    fn place(&self, index: isize) -> PyResult<usize> {
        let at = if index < 0 { index + self.len } else { index };
        if (0..self.len).contains(&at) {
            return Ok(at as usize);
        }
        Err(PyIndexError::new_err(format!("index {index} is out of range for an array of {} numbers", self.len)))
    }

    /// Start and length of a slice of step 1.
    fn span(&self, slice: &Bound<'_, PySlice>) -> PyResult<(usize, usize)> {
        let indices = slice.indices(self.len)?;
        if indices.step == 1 {
            return Ok((indices.start.max(0) as usize, indices.slicelength));
        }
        Err(PyValueError::new_err("a FlatArray is cut in steps of 1; use numpy.asarray(a)[i:j:k] for other steps"))
    }

    /// # Safety
    /// `at` is below the length.
    unsafe fn read<'py>(&self, py: Python<'py>, at: usize) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the caller guarantees that the number exists; the memory is aligned and initialised.
        unsafe {
            match self.dtype {
                DType::Float32 => object_of(py, self.start.cast::<f32>().add(at).read_volatile()),
                DType::Float64 => object_of(py, self.start.cast::<f64>().add(at).read_volatile()),
                DType::Float16 => object_of(py, self.start.cast::<f16>().add(at).read_volatile()),
                DType::BFloat16 => object_of(py, self.start.cast::<bf16>().add(at).read_volatile()),
                DType::Float128 => object_of(py, self.start.cast::<f128>().add(at).read_volatile()),
            }
        }
    }

    /// # Safety
    /// `at` is below the length.
    unsafe fn write(&self, at: usize, x: &Given) {
        // SAFETY: as in `read`.
        unsafe {
            match self.dtype {
                DType::Float32 => self.start.cast::<f32>().add(at).write_volatile(x.scalar()),
                DType::Float64 => self.start.cast::<f64>().add(at).write_volatile(x.scalar()),
                DType::Float16 => self.start.cast::<f16>().add(at).write_volatile(x.scalar()),
                DType::BFloat16 => self.start.cast::<bf16>().add(at).write_volatile(x.scalar()),
                DType::Float128 => self.start.cast::<f128>().add(at).write_volatile(x.scalar()),
            }
        }
    }

    /// A number as an entry takes it.
    fn entry(&self, object: &Bound<'_, PyAny>) -> PyResult<Given> {
        if self.dtype == DType::Float128 {
            return Given::expect(object, ScalarType { elem: self.dtype, lanes: 1 });
        }
        object.extract().map(Given::All)
    }

    /// Numbers for a slice.
    fn entries(&self, object: &Bound<'_, PyAny>, len: usize) -> PyResult<Vec<Given>> {
        if let Ok(one) = self.entry(object) {
            return Ok(vec![one; len]);
        }
        if self.dtype == DType::Float128 {
            return Given::read_many(object, ScalarType { elem: self.dtype, lanes: 1 });
        }
        let mut numbers = Vec::new();
        read_numbers(object, &mut numbers, "values")?;
        Ok(numbers.into_iter().map(Given::All).collect())
    }

    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        // SAFETY: all indices are below the length.
        let all = (0..self.len as usize).map(|k| unsafe { self.read(py, k) });
        PyList::new(py, all.collect::<PyResult<Vec<_>>>()?)
    }
}

#[pymethods]
impl FlatArray {
    fn __len__(&self) -> usize {
        self.len as usize
    }

    /// The type of the numbers, such as "float32".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let (start, len) = self.span(slice)?;
            // SAFETY: the span lies inside this array, and an array's start may be its end.
            let first = unsafe { self.start.add(start * self.item_size as usize) };
            let part = FlatArray::new(self.parent.clone_ref(py), first, len, self.dtype);
            return Ok(Bound::new(py, part)?.into_any());
        }
        let at = self.place(index.extract()?)?;
        // SAFETY: `place` gives indices below the length.
        unsafe { self.read(py, at) }
    }

    fn __setitem__(&self, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(slice) = index.cast::<PySlice>() else {
            let at = self.place(index.extract()?)?;
            let value = self.entry(value)?;
            // SAFETY: `place` gives indices below the length.
            unsafe { self.write(at, &value) };
            return Ok(());
        };
        let (start, len) = self.span(slice)?;
        let numbers = self.entries(value, len)?;
        if numbers.len() != len {
            return Err(PyValueError::new_err(format!("{} numbers do not fit a slice of {len}", numbers.len())));
        }
        for (k, x) in numbers.iter().enumerate() {
            // SAFETY: the span lies inside this array.
            unsafe { self.write(start + k, x) };
        }
        Ok(())
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        // A memoryview reads what the module struct has letters for, but half numbers only of late.
        match slf.get().dtype {
            DType::Float32 | DType::Float64 => Ok(PyMemoryView::from(slf.as_any())?.try_iter()?.into_any()),
            _ => Ok(slf.get().list(slf.py())?.try_iter()?.into_any()),
        }
    }

    /// The numbers as a list of floats; of Decimals for float128.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        // SAFETY: all indices are below the length.
        let first = (0..(self.len as usize).min(4)).map(|k| Ok(unsafe { self.read(py, k) }?.to_string()));
        let first = first.collect::<PyResult<Vec<_>>>()?.join(", ");
        let dots = if self.len > 4 { ", ..." } else { "" };
        Ok(format!("FlatArray([{first}{dots}], n={}, dtype={})", self.len, self.dtype.name()))
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let array = slf.get();
        let Some(format) = array.format() else {
            let name = array.dtype.name();
            return Err(PyBufferError::new_err(format!("arrays of {name} have no buffer format; use list(array)")));
        };
        let memory = Exported {
            start: array.start.as_ptr().cast(),
            item_size: array.item_size,
            format,
            shape: std::slice::from_ref(&array.len),
            strides: std::slice::from_ref(&array.item_size),
            read_only: false,
        };
        // SAFETY: Python passes a view to fill; shape and strides live in `slf`, which the view keeps alive.
        unsafe { memory.fill(slf.clone().into_any(), view, flags) }
    }
}
