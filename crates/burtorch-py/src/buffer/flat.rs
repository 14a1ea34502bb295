//! `FlatArray`: numbers that never move, shared with Python without a copy.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use burtorch_core::DType;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyList, PyMemoryView, PySlice};

use super::read_numbers;
use super::view::Exported;
use crate::params::PyParameters;

/// Flat numbers that never move, shared without a copy.
///
/// The values or gradients of Parameters, or of one tensor of them. Supports `len`, indexing by int and by slices of
/// step 1, iteration, and the buffer protocol (format "f" or "d", writable), so `memoryview(a)` and `numpy.asarray(a)`
/// copy nothing. While an array is held, its Parameters stay where they are.
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
            DType::Float32 => 4,
            DType::Float64 => 8,
        };
        FlatArray { parent, start, len: len as isize, item_size, dtype }
    }

    fn format(&self) -> &'static CStr {
        match self.dtype {
            DType::Float32 => c"f",
            DType::Float64 => c"d",
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
    unsafe fn read(&self, at: usize) -> f64 {
        // SAFETY: the caller guarantees that the number exists; the memory is aligned and initialised.
        unsafe {
            match self.dtype {
                DType::Float32 => f64::from(self.start.cast::<f32>().add(at).read_volatile()),
                DType::Float64 => self.start.cast::<f64>().add(at).read_volatile(),
            }
        }
    }

    /// # Safety
    /// `at` is below the length.
    unsafe fn write(&self, at: usize, x: f64) {
        // SAFETY: as in `read`.
        unsafe {
            match self.dtype {
                DType::Float32 => self.start.cast::<f32>().add(at).write_volatile(x as f32),
                DType::Float64 => self.start.cast::<f64>().add(at).write_volatile(x),
            }
        }
    }
}

#[pymethods]
impl FlatArray {
    fn __len__(&self) -> usize {
        self.len as usize
    }

    /// "float32" or "float64".
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
        Ok(PyFloat::new(py, unsafe { self.read(at) }).into_any())
    }

    fn __setitem__(&self, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(slice) = index.cast::<PySlice>() else {
            let at = self.place(index.extract()?)?;
            let value = value.extract()?;
            // SAFETY: `place` gives indices below the length.
            unsafe { self.write(at, value) };
            return Ok(());
        };
        let (start, len) = self.span(slice)?;
        let mut numbers = Vec::new();
        if let Ok(value) = value.extract::<f64>() {
            numbers.resize(len, value);
        } else {
            read_numbers(value, &mut numbers, "values")?;
        }
        if numbers.len() != len {
            return Err(PyValueError::new_err(format!("{} numbers do not fit a slice of {len}", numbers.len())));
        }
        for (k, &x) in numbers.iter().enumerate() {
            // SAFETY: the span lies inside this array.
            unsafe { self.write(start + k, x) };
        }
        Ok(())
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyMemoryView::from(slf.as_any())?.try_iter()?.into_any())
    }

    /// The numbers as a list of floats.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        // SAFETY: all indices are below the length.
        PyList::new(py, (0..self.len as usize).map(|k| unsafe { self.read(k) }))
    }

    fn __repr__(&self) -> String {
        // SAFETY: all indices are below the length.
        let first = (0..(self.len as usize).min(4)).map(|k| unsafe { self.read(k) }.to_string());
        let dots = if self.len > 4 { ", ..." } else { "" };
        format!(
            "FlatArray([{}{dots}], n={}, dtype={})",
            first.collect::<Vec<_>>().join(", "),
            self.len,
            self.dtype.name()
        )
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let array = slf.get();
        let memory = Exported {
            start: array.start.as_ptr().cast(),
            item_size: array.item_size,
            format: array.format(),
            shape: std::slice::from_ref(&array.len),
            strides: std::slice::from_ref(&array.item_size),
            read_only: false,
        };
        // SAFETY: Python passes a view to fill; shape and strides live in `slf`, which the view keeps alive.
        unsafe { memory.fill(slf.clone().into_any(), view, flags) }
    }
}
