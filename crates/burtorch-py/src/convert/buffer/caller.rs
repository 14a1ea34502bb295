//! Memory of the caller that a graph or Parameters work in.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use burtorch_core::DType;
use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::claims::Claim;
use super::masked::buffer_of;
use super::read::{element_type, is_buffer, type_name};
use crate::convert::gc::{HoldsObjects, Visitor};

/// Memory of the caller for numbers of `dtype`, which it keeps alive: writable, contiguous, aligned.
pub struct CallerMemory {
    buffer: PyUntypedBuffer,
    /// For memory used for longer than a call.
    claim: Option<Claim>,
}

impl HoldsObjects for CallerMemory {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.buffer.visit(visit);
    }
}

impl CallerMemory {
    /// Memory of an object with the buffer protocol.
    pub fn of(object: &Bound<'_, PyAny>, dtype: DType, what: &str) -> PyResult<Self> {
        if !is_buffer(object) {
            return Err(PyTypeError::new_err(format!(
                "{what} must support the buffer protocol, found {}",
                type_name(object)
            )));
        }
        let buffer = buffer_of(object)?;
        let bytes = match dtype {
            DType::Float16 => 2,
            DType::Float32 => 4,
            DType::Float64 => 8,
            DType::BFloat16 | DType::Float128 => {
                let name = dtype.name();
                return Err(PyTypeError::new_err(format!("no array holds {name} numbers; leave out {what}")));
            }
        };
        let refuse = |expected: String| Err(PyValueError::new_err(format!("{what} must be {expected}")));
        if element_type(&buffer, what)? != (ElementType::Float { bytes }) {
            return refuse(format!("{} numbers", dtype.name()));
        }
        if buffer.readonly() {
            return refuse("writable".into());
        }
        if !buffer.is_c_contiguous() {
            return refuse("contiguous".into());
        }
        if buffer.item_count() == 0 || buffer.buf_ptr().is_null() {
            return refuse("of at least one number".into());
        }
        if !(buffer.buf_ptr() as usize).is_multiple_of(bytes) {
            return refuse(format!("aligned to {bytes} bytes"));
        }
        Ok(CallerMemory { buffer, claim: None })
    }

    /// Memory of an object with the buffer protocol, of any element type, to be used as bytes.
    pub fn bytes(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        if !is_buffer(object) {
            let found = type_name(object);
            return Err(PyTypeError::new_err(format!("{what} must support the buffer protocol, found {found}")));
        }
        let buffer = PyUntypedBuffer::get(object)?;
        if buffer.readonly() || !buffer.is_c_contiguous() || buffer.buf_ptr().is_null() {
            return Err(PyValueError::new_err(format!("{what} must be writable and contiguous")));
        }
        Ok(CallerMemory { buffer, claim: None })
    }

    /// Claims the memory until this is dropped; `BusyError` if it is claimed.
    pub fn claim(&mut self, py: Python<'_>, what: &str) -> PyResult<()> {
        let start = self.buffer.buf_ptr() as usize;
        self.claim = Some(Claim::of(py, start..start + self.buffer.len_bytes(), what)?);
        Ok(())
    }

    /// Where it is, as numbers of type `E`.
    pub fn numbers<E>(&self) -> NonNull<[E]> {
        let start = NonNull::new(self.buffer.buf_ptr().cast::<E>()).unwrap_or(NonNull::dangling());
        NonNull::slice_from_raw_parts(start, self.buffer.len_bytes() / size_of::<E>())
    }

    /// The numbers, to read. `E` is the type that the memory was checked for.
    pub fn slice<E>(&self) -> &[E] {
        assert_eq!(self.buffer.item_size(), size_of::<E>());
        // SAFETY: the buffer is contiguous, aligned and of this type, as checked when it was acquired, and kept alive;
        // as with every buffer, the Python caller ensures that no other code writes to it meanwhile.
        unsafe { self.numbers::<E>().as_ref() }
    }

    /// The numbers, to write. `E` is the type that the memory was checked for.
    pub fn slice_mut<E>(&mut self) -> &mut [E] {
        assert_eq!(self.buffer.item_size(), size_of::<E>());
        // SAFETY: as above, and the buffer is writable.
        unsafe { self.numbers::<E>().as_mut() }
    }

    /// Whether some of the numbers lie in this memory.
    pub fn overlaps_numbers<E>(&self, numbers: &[E]) -> bool {
        let (start, end) = (self.buffer.buf_ptr() as usize, self.buffer.buf_ptr() as usize + self.buffer.len_bytes());
        let range = numbers.as_ptr_range();
        start < range.end as usize && (range.start as usize) < end
    }

    /// Whether two pieces of memory share bytes.
    pub fn overlaps(&self, other: &CallerMemory) -> bool {
        let span = |m: &CallerMemory| (m.buffer.buf_ptr() as usize, m.buffer.buf_ptr() as usize + m.buffer.len_bytes());
        let (a, b) = (span(self), span(other));
        a.0 < b.1 && b.0 < a.1
    }
}
