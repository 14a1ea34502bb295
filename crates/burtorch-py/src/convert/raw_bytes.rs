//! The bytes of arrays of any type, for comparisons.
//!
//! Promises: equal bytes mean equal types, shapes and numbers, and that both may be written or neither. Does not interpret numbers.
#![allow(unsafe_code)]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

use super::arrays::Array;
use super::signals::quietly;

use crate::convert::errors::numpy;

/// Calls `f` with the bytes of an object without a shape, such as a ctypes object; `None` if it has none.
fn plain_bytes(object: &Bound<'_, PyAny>, mut f: impl FnMut(&[u8]) -> bool) -> Option<bool> {
    let mut view = std::mem::MaybeUninit::<pyo3::ffi::Py_buffer>::uninit();
    // SAFETY: a living object; the view is filled if the call succeeds, and released once; an error is cleared.
    unsafe {
        if pyo3::ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), pyo3::ffi::PyBUF_SIMPLE) < 0 {
            pyo3::ffi::PyErr_Clear();
            return None;
        }
        let mut view = view.assume_init();
        let n = usize::try_from(view.len).unwrap_or(0);
        let bytes = if n == 0 { &[][..] } else { std::slice::from_raw_parts(view.buf.cast::<u8>(), n) };
        let goes_on = f(bytes);
        pyo3::ffi::PyBuffer_Release(&raw mut view);
        Some(goes_on)
    }
}

/// Calls `f` with the type, the shape and the bytes of an array of any type, row by row, until it returns false.
/// Returns false in that case, and if the object is not an array.
fn pieces(object: &Bound<'_, PyAny>, mut f: impl FnMut(&[u8]) -> bool) -> bool {
    let Ok(buffer) = PyUntypedBuffer::get(object) else {
        if let Some(goes_on) = plain_bytes(object, &mut f) {
            return goes_on;
        }
        // NumPy exports no buffer for dates and similar types; its own method runs no Python code.
        let array = || numpy(object.py())?.getattr("ndarray");
        let py = object.py();
        let is_one = quietly(py, || object.is_instance(&array()?)).unwrap_or(false);
        let copy = || array()?.getattr("tobytes")?.call1((object,))?.extract::<Vec<u8>>();
        return is_one && quietly(py, copy).is_some_and(|bytes| f(&bytes));
    };
    let bytes_of = |numbers: &[usize]| numbers.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>();
    if !f(buffer.format().to_bytes())
        || !f(&bytes_of(&[buffer.item_size(), usize::from(buffer.readonly())]))
        || !f(&bytes_of(buffer.shape()))
    {
        return false;
    }
    if buffer.len_bytes() == 0 {
        return true;
    }
    if buffer.is_c_contiguous() {
        // SAFETY: a contiguous buffer of this many bytes that is held here.
        return f(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) });
    }
    let size = buffer.item_size();
    let array = Array::of_bytes(buffer);
    let mut goes_on = true;
    // SAFETY: `for_each` visits the entries of the buffer, each of this many bytes.
    array.for_each(|at| goes_on = goes_on && f(unsafe { std::slice::from_raw_parts(at, size) }));
    goes_on
}

/// The type, the shape and the bytes of an array of any type; `None` for any other object.
pub fn raw_bytes(object: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let is_array = pieces(object, |piece| {
        all.extend_from_slice(piece);
        true
    });
    is_array.then_some(all)
}

/// Whether `raw_bytes` would give these.
pub fn has_raw_bytes(object: &Bound<'_, PyAny>, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let is_same = pieces(object, |piece| {
        let found = rest.strip_prefix(piece);
        rest = found.unwrap_or_default();
        found.is_some()
    });
    is_same && rest.is_empty()
}
