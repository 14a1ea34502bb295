//! Bytes copied out of and into any object with the buffer protocol.
//!
//! Promises: no reference into the caller's memory outlives a call, or is taken while a graph is borrowed, so memory that a
//! graph itself works in may be given.
#![allow(unsafe_code)]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::read::is_buffer;

/// The bytes of a contiguous buffer; `None` for an object without a buffer.
pub fn copied_bytes(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Option<Vec<u8>>> {
    if !is_buffer(object) {
        return Ok(None);
    }
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err(format!("{what} must be contiguous")));
    }
    let n = buffer.len_bytes();
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(n).map_err(|_| pyo3::exceptions::PyMemoryError::new_err(format!("{n} bytes of {what}")))?;
    if n > 0 {
        // SAFETY: a contiguous buffer holds `n` bytes from its start, and the vector has room for them.
        unsafe {
            std::ptr::copy(buffer.buf_ptr().cast::<u8>(), bytes.as_mut_ptr(), n);
            bytes.set_len(n);
        }
    }
    Ok(Some(bytes))
}

/// A writable, contiguous buffer of the caller; `None` for an object without a buffer.
pub fn writable(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Option<PyUntypedBuffer>> {
    if !is_buffer(object) {
        return Ok(None);
    }
    let buffer = PyUntypedBuffer::get(object)?;
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err(format!("{what} must be writable and contiguous")));
    }
    Ok(Some(buffer))
}

/// Copies bytes into a buffer from [`writable`], which must have exactly their length.
pub fn overwrite(buffer: &PyUntypedBuffer, bytes: &[u8], what: &str) -> PyResult<()> {
    let n = buffer.len_bytes();
    if n != bytes.len() {
        return Err(PyValueError::new_err(format!("{what} must have exactly {} bytes, found {n}", bytes.len())));
    }
    if n > 0 {
        // SAFETY: the buffer is writable and contiguous, `n` bytes long, and held while this runs.
        unsafe { std::ptr::copy(bytes.as_ptr(), buffer.buf_ptr().cast::<u8>(), n) }
    }
    Ok(())
}
