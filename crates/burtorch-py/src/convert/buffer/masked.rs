//! Masked arrays: their buffers contain numbers that must not be read.
//!
//! Promises: costs one read of a flag for every array whose class is not written in Python. NumPy is not imported.
#![allow(unsafe_code)]

use crate::convert::signals::quietly;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Whether this is a masked array of NumPy.
pub fn is_masked(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a living object under the GIL has a living type.
    let class = unsafe { &*ffi::Py_TYPE(object.as_ptr()) };
    // Objects of a class written in Python have a `__dict__`; array.array, a heap type too, has none.
    // SAFETY: as above.
    let is_heap_type = unsafe { ffi::PyType_HasFeature(ffi::Py_TYPE(object.as_ptr()), ffi::Py_TPFLAGS_HEAPTYPE) } != 0;
    let may_be = is_heap_type && class.tp_dictoffset != 0;
    may_be && quietly(object.py(), || is_instance(object)).unwrap_or(false)
}

fn is_instance(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    // Without this module no array is masked.
    let Some(module) = modules.get_item("numpy.ma")? else { return Ok(false) };
    object.is_instance(&module.getattr("MaskedArray")?)
}

/// Refuses a masked array.
pub fn refuse_masked(object: &Bound<'_, PyAny>) -> PyResult<()> {
    if is_masked(object) {
        let message =
            "expected numbers, found a masked array, whose mask would be lost; use x.filled(value) or x.compressed()";
        return Err(PyTypeError::new_err(message));
    }
    Ok(())
}

/// The buffer of an object that is not masked.
pub fn buffer_of(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    refuse_masked(object)?;
    PyUntypedBuffer::get(object).map_err(|error| {
        // A buffer without dimensions has no shape, and PyO3 refuses it for that.
        let is_refused = error.is_instance_of::<PyBufferError>(object.py());
        let n_dimensions = || object.getattr("ndim").and_then(|n| n.extract::<usize>());
        match is_refused.then(n_dimensions) {
            Some(Ok(0)) => {
                PyTypeError::new_err("expected an array of numbers, found one without dimensions; use x.reshape(1)")
            }
            _ => error,
        }
    })
}
