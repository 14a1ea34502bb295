//! What a `Value` is as a Python number: text, hash, comparison, truth, float and int.
//!
//! Promises: everything here reads the data and nothing else, so the gradient is dropped.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use burtorch_core::Float;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::attributes::{get_data, get_grad, read};
use super::number::{Number, number};
use super::object::{checked, is_value, raise_python};
use crate::cell::with_graph;

/// `round(v, ndigits)`: the data, rounded as a float is.
pub unsafe extern "C" fn round(
    value: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: `n` living objects under the interpreter lock.
    unsafe {
        let py = Python::assume_attached();
        let arguments = (0..n.max(0) as usize).map(|k| Bound::from_borrowed_ptr(py, *arguments.add(k)));
        let x = Bound::from_owned_ptr_or_opt(py, get_data(value, ptr::null_mut()));
        let Some(x) = x else { return ptr::null_mut() };
        match PyTuple::new(py, arguments.collect::<Vec<_>>()).and_then(|a| x.call_method1("__round__", a)) {
            Ok(result) => result.into_ptr(),
            Err(error) => raise_python(error),
        }
    }
}

/// `format(v, spec)`: the data, formatted as a float is.
pub unsafe extern "C" fn format(value: *mut ffi::PyObject, spec: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living Value and a living object under the interpreter lock.
    unsafe {
        if ffi::PyUnicode_Check(spec) == 0 {
            return raise_python(PyTypeError::new_err("__format__() expects a str"));
        }
        let length = ffi::PyObject_Length(spec);
        if length < 0 {
            return ptr::null_mut();
        }
        if length == 0 {
            return ffi::PyObject_Str(value);
        }
        let x = get_data(value, ptr::null_mut());
        if x.is_null() {
            return ptr::null_mut();
        }
        let text = ffi::PyObject_Format(x, spec);
        ffi::Py_DECREF(x);
        text
    }
}

/// `repr(v)`, as micrograd prints it.
pub unsafe extern "C" fn repr(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        let py = Python::assume_attached();
        let data = Bound::from_owned_ptr_or_opt(py, get_data(value, ptr::null_mut()));
        let Some(data) = data else {
            // A stale value still has a text: repr must not fail while an error is being shown.
            ffi::PyErr_Clear();
            return "<stale Value>".into_pyobject(py).map_or(ptr::null_mut(), |text| text.into_ptr());
        };
        let grad = Bound::from_owned_ptr_or_opt(py, get_grad(value, ptr::null_mut()));
        let Some(grad) = grad else {
            return ptr::null_mut();
        };
        match std::format!("Value(data={data}, grad={grad})").into_pyobject(py) {
            Ok(text) => text.into_ptr(),
            Err(_) => ptr::null_mut(),
        }
    }
}

/// `hash(v)`: by node, the same for all its handles, also when reclaim renumbers it.
pub unsafe extern "C" fn hash(value: *mut ffi::PyObject) -> ffi::Py_hash_t {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        let Some((cell, node)) = checked(value.cast()) else {
            return -1;
        };
        let graph = with_graph!(&cell.graph, g => g.id());
        let mixed = cell.serial(node.index()).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ graph;
        let hash = mixed as ffi::Py_hash_t;
        if hash == -1 { -2 } else { hash }
    }
}

/// Comparison by data, with values and numbers; not with anything else, not even if the value is stale.
pub unsafe extern "C" fn compare(a: *mut ffi::PyObject, b: *mut ffi::PyObject, how: c_int) -> *mut ffi::PyObject {
    // SAFETY: living objects under the interpreter lock, the first a Value.
    unsafe {
        let y = if is_value(b) {
            match data_of(b) {
                Some(y) => y,
                None => return ptr::null_mut(),
            }
        } else if ffi::PyLong_Check(b) != 0 {
            return compare_with_int(a, b, how);
        } else {
            match number(b) {
                Number::Is(y) => y,
                Number::Failed => return ptr::null_mut(),
                Number::IsNot => {
                    ffi::Py_INCREF(ffi::Py_NotImplemented());
                    return ffi::Py_NotImplemented();
                }
            }
        };
        let Some(x) = data_of(a) else {
            return ptr::null_mut();
        };
        let holds = match how {
            ffi::Py_LT => x < y,
            ffi::Py_LE => x <= y,
            ffi::Py_EQ => x == y,
            ffi::Py_NE => x != y,
            ffi::Py_GT => x > y,
            _ => x >= y,
        };
        ffi::PyBool_FromLong(holds.into())
    }
}

/// Integers are compared exactly, also those that no float holds, as Python compares a float with them.
unsafe fn compare_with_int(a: *mut ffi::PyObject, b: *mut ffi::PyObject, how: c_int) -> *mut ffi::PyObject {
    // SAFETY: a living Value and a living int under the interpreter lock.
    unsafe {
        let x = get_data(a, ptr::null_mut());
        if x.is_null() {
            return x;
        }
        let result = ffi::PyObject_RichCompare(x, b, how);
        ffi::Py_DECREF(x);
        result
    }
}

/// The number a Value holds, or `None` with an error set.
///
/// # Safety
/// `value` is a living Value; the interpreter lock is held.
#[inline(always)]
unsafe fn data_of(value: *mut ffi::PyObject) -> Option<f64> {
    // SAFETY: by the contract of this function.
    unsafe { read(value, |cell, node| with_graph!(&cell.graph, g => g.value(node).map(Float::to_f64))) }
}

/// `bool(v)`
pub unsafe extern "C" fn truth(value: *mut ffi::PyObject) -> c_int {
    // SAFETY: a living Value under the interpreter lock.
    match unsafe { read(value, |cell, node| with_graph!(&cell.graph, g => g.value(node).map(Float::to_f64))) } {
        Some(x) => (x != 0.0).into(),
        None => -1,
    }
}

/// `float(v)`: the data; the gradient is dropped.
pub unsafe extern "C" fn float(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the interpreter lock.
    unsafe { get_data(value, ptr::null_mut()) }
}

/// `int(v)`: the data, towards zero.
pub unsafe extern "C" fn int(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        match read(value, |cell, node| with_graph!(&cell.graph, g => g.value(node).map(Float::to_f64))) {
            Some(x) => ffi::PyLong_FromDouble(x),
            None => ptr::null_mut(),
        }
    }
}
