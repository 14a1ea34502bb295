//! Filling the interpreter's buffer views.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The properties of a buffer view.
pub struct Exported<'a> {
    /// First item.
    pub start: *mut c_void,
    /// Bytes of an item.
    pub item_size: isize,
    /// As the struct module writes it.
    pub format: &'static CStr,
    /// Items along each dimension.
    pub shape: &'a [isize],
    /// Bytes between items along each dimension.
    pub strides: &'a [isize],
    /// Whether it is read-only.
    pub read_only: bool,
}

impl Exported<'_> {
    /// Fills a view that the interpreter has passed to `__getbuffer__`.
    ///
    /// # Safety
    /// `view` is null or may be written; memory, shape and strides stay where they are while `owner` lives.
    pub unsafe fn fill(self, owner: Bound<'_, PyAny>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        if self.read_only && flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("these token ids are read-only; copy them to change them"));
        }
        let wants = |flag| flags & flag == flag;
        let n: isize = self.shape.iter().product();
        // SAFETY: by the contract of this function.
        unsafe {
            (*view).buf = self.start;
            (*view).len = n * self.item_size;
            (*view).readonly = c_int::from(self.read_only);
            (*view).itemsize = self.item_size;
            (*view).format =
                if wants(ffi::PyBUF_FORMAT) { self.format.as_ptr().cast_mut() } else { std::ptr::null_mut() };
            (*view).ndim = self.shape.len() as c_int;
            (*view).shape = if wants(ffi::PyBUF_ND) { self.shape.as_ptr().cast_mut() } else { std::ptr::null_mut() };
            (*view).strides =
                if wants(ffi::PyBUF_STRIDES) { self.strides.as_ptr().cast_mut() } else { std::ptr::null_mut() };
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
            (*view).obj = owner.into_ptr();
        }
        Ok(())
    }
}
