//! DLPack: arrays passed to NumPy, PyTorch and others without a copy.
//!
//! Promises: an exported array lives until the consumer frees it. The layouts are those of the DLPack header, version
//! 1.0 and, for consumers without a version, the one before.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};

use burtorch_core::DType;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::FlatArray;
use crate::convert::entry::caught;

/// Device type and number of the CPU.
pub const CPU: (i32, i32) = (1, 0);

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: (i32, i32),
    n_dims: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// The structure for consumers without a version.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

const READ_ONLY: u64 = 1;

/// A tensor with its memory. The tensor comes first, so that a pointer to it is also a pointer to the capsule.
#[repr(C)]
struct Capsule<T> {
    managed: T,
    array: Option<Py<FlatArray>>,
    shape: [i64; 1],
    strides: [i64; 1],
}

/// Frees a tensor.
///
/// # Safety
/// `held` comes from `capsule` and is freed once.
unsafe extern "C" fn free<T>(held: *mut T) {
    debug_assert!(!held.is_null());
    caught(|| {
        // SAFETY: `capsule` leaked it as a `Capsule<T>`, whose first field is the tensor.
        let mut held = unsafe { Box::from_raw(held.cast::<Capsule<T>>()) };
        // Consumers may free without the GIL; after the interpreter's end the array is leaked.
        Python::try_attach(|_| drop(held.array.take()));
        std::mem::forget(held.array.take());
    })
}

/// Frees the tensor of an unused capsule.
unsafe extern "C" fn drop_capsule<T>(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter passes one of our capsules; a consumed capsule has another name.
    caught(|| unsafe {
        for name in [NAME, VERSIONED_NAME] {
            if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 1 {
                free::<T>(ffi::PyCapsule_GetPointer(capsule, name.as_ptr()).cast());
                return;
            }
        }
    })
}

const NAME: &CStr = c"dltensor";
const VERSIONED_NAME: &CStr = c"dltensor_versioned";

/// A capsule over the array's memory.
pub fn capsule<'py>(array: &Bound<'py, FlatArray>, versioned: bool) -> PyResult<Bound<'py, PyAny>> {
    let (start, n, dtype, read_only) = array.get().parts();
    let (code, bits) = match dtype {
        DType::Float16 => (2, 16),
        DType::Float32 => (2, 32),
        DType::Float64 => (2, 64),
        DType::BFloat16 => (4, 16),
        DType::Float128 => return Err(PyBufferError::new_err("DLPack has no float128; use list(array)")),
    };
    if read_only && !versioned {
        let message = "DLPack before version 1 has no read-only arrays; pass max_version=(1, 0), or copy=True";
        return Err(PyBufferError::new_err(message));
    }
    let null = std::ptr::null_mut();
    let (data, shape, strides) = (start.as_ptr().cast(), null, null);
    let tensor = Tensor { data, device: CPU, n_dims: 1, code, bits, lanes: 1, shape, strides, byte_offset: 0 };
    let array_of = || Some(array.clone().unbind());
    let py = array.py();
    if versioned {
        let flags = if read_only { READ_ONLY } else { 0 };
        let managed = Versioned { version: [1, 0], context: null.cast(), deleter: Some(free), flags, tensor };
        let held = Box::new(Capsule { managed, array: array_of(), shape: [n as i64], strides: [1] });
        leak(py, held, VERSIONED_NAME, |managed| &mut managed.tensor)
    } else {
        let managed = Managed { tensor, context: null.cast(), deleter: Some(free) };
        let held = Box::new(Capsule { managed, array: array_of(), shape: [n as i64], strides: [1] });
        leak(py, held, NAME, |managed| &mut managed.tensor)
    }
}

fn leak<'py, T>(
    py: Python<'py>,
    mut held: Box<Capsule<T>>,
    name: &'static CStr,
    tensor: impl FnOnce(&mut T) -> &mut Tensor,
) -> PyResult<Bound<'py, PyAny>> {
    // The box does not move, so its pointers into itself stay valid.
    let (shape, strides) = (held.shape.as_mut_ptr(), held.strides.as_mut_ptr());
    let tensor = tensor(&mut held.managed);
    (tensor.shape, tensor.strides) = (shape, strides);
    let held = Box::into_raw(held);
    // SAFETY: the name is static; the destructor frees the leaked pointer once.
    unsafe {
        let capsule = ffi::PyCapsule_New(held.cast(), name.as_ptr(), Some(drop_capsule::<T>));
        if capsule.is_null() {
            free::<T>(held.cast());
        }
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}
