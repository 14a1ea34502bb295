//! What a `Value` is as a Python number: text, hash, comparison, truth, float and int.
//!
//! Promises: everything here reads the data and nothing else, so the gradient is dropped.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use burtorch_core::{Float, Scalar};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::attributes::{get_data, get_grad, peek, read};
use super::check::checked;
use super::number::{Number, number};
use super::object::{ValueObject, cell_of, is_value, raise_python};
use crate::cell::with_graph;
use crate::locked::locked;
use crate::scalars;

/// `round(v, ndigits)`: the data, rounded as a float is.
pub unsafe extern "C" fn round(
    value: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: `n` living objects under the interpreter lock.
        unsafe {
            let py = Python::assume_attached();
            let arguments = (0..n.max(0) as usize).map(|k| Bound::from_borrowed_ptr(py, *arguments.add(k)));
            let arguments = PyTuple::new(py, arguments.collect::<Vec<_>>());
            with_number(value, |x| x.call_method1("__round__", arguments?))
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { locked(&[value], run) }
}

/// `format(v, spec)`: the data, formatted as a float is.
pub unsafe extern "C" fn format(value: *mut ffi::PyObject, spec: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
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
            let spec = Bound::from_borrowed_ptr(Python::assume_attached(), spec);
            with_number(value, |x| x.call_method1("__format__", (spec,)))
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { locked(&[value], run) }
}

/// What `f` makes of the data, as a float or a Decimal; lanes are a ValueError.
unsafe fn with_number<'py>(
    value: *mut ffi::PyObject,
    f: impl FnOnce(Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        let scalar_type = scalars::type_of(value);
        if scalar_type.lanes > 1 {
            return raise_python(scalars::refuse_lanes(scalar_type));
        }
        let data = Bound::from_owned_ptr_or_opt(Python::assume_attached(), get_data(value, ptr::null_mut()));
        let Some(data) = data else { return ptr::null_mut() };
        f(data).map_or_else(raise_python, Bound::into_ptr)
    }
}

/// Whether a function is being recorded on the value's graph.
///
/// # Safety
/// `value` is a living Value; the interpreter lock is held.
#[inline(always)]
unsafe fn is_traced(value: *mut ffi::PyObject) -> bool {
    // SAFETY: by the contract of this function.
    let cell = unsafe { cell_of((*value.cast::<ValueObject>()).owner) };
    cell.is_busy() && cell.is_traced()
}

/// `repr(v)`, as micrograd prints it.
pub unsafe extern "C" fn repr(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: a living Value under the interpreter lock.
        unsafe {
            let py = Python::assume_attached();
            let is_traced = is_traced(value);
            let data = if is_traced {
                data_of(value).and_then(|x| Bound::from_owned_ptr_or_opt(py, ffi::PyFloat_FromDouble(x)))
            } else {
                Bound::from_owned_ptr_or_opt(py, get_data(value, ptr::null_mut()))
            };
            let Some(data) = data else {
                // A stale value still has a text: repr must not fail while an error is being shown.
                ffi::PyErr_Clear();
                return "<stale Value>".into_pyobject(py).map_or(ptr::null_mut(), |text| text.into_ptr());
            };
            if is_traced {
                let text = std::format!("Value(data={data}, traced)").into_pyobject(py);
                return text.map_or(ptr::null_mut(), |text| text.into_ptr());
            }
            let grad = Bound::from_owned_ptr_or_opt(py, get_grad(value, ptr::null_mut()));
            let Some(grad) = grad else {
                return ptr::null_mut();
            };
            match std::format!("Value(data={data}, grad={grad})").into_pyobject(py) {
                Ok(text) => text.into_ptr(),
                Err(_) => ptr::null_mut(),
            }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { locked(&[value], run) }
}

/// `hash(v)`: by node, the same for all its handles, also when reclaim renumbers it.
pub unsafe extern "C" fn hash(value: *mut ffi::PyObject) -> ffi::Py_hash_t {
    let run = || {
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
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { locked(&[value], run) }
}

/// Comparison by data, with values and numbers; not with anything else, not even if the value is stale. Lanes are equal
/// if all of them are; they have no order.
pub unsafe extern "C" fn compare(a: *mut ffi::PyObject, b: *mut ffi::PyObject, how: c_int) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: living objects under the interpreter lock, the first a Value.
        unsafe {
            let fits_float = |x| scalars::type_of(x).fits_float();
            let y = if !fits_float(a) || is_value(b) && !fits_float(b) {
                return compare_as_objects(a, b, how);
            } else if is_value(b) {
                match data_of(b) {
                    Some(y) => y,
                    None => return ptr::null_mut(),
                }
            } else if ffi::PyLong_Check(b) != 0 {
                if !is_traced(a) {
                    return compare_with_int(a, b, how);
                }
                match crate::recorded::exact(Bound::from_borrowed_ptr(Python::assume_attached(), b)) {
                    Ok(y) => y,
                    Err(error) => return raise_python(error),
                }
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
            if is_traced(a) || is_value(b) && is_traced(b) {
                let other = is_value(b).then_some(b.cast());
                if let Err(error) = crate::recorded::compared(a.cast(), other, y, how, holds) {
                    return raise_python(error);
                }
            }
            ffi::PyBool_FromLong(holds.into())
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { locked(&[a, b], run) }
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

/// Comparison of Decimals and tuples of lanes, as Python does it.
#[cold]
#[inline(never)]
unsafe fn compare_as_objects(a: *mut ffi::PyObject, b: *mut ffi::PyObject, how: c_int) -> *mut ffi::PyObject {
    // SAFETY: living objects under the interpreter lock, the first a Value.
    unsafe {
        let py = Python::assume_attached();
        let with_value = is_value(b);
        let has_lanes = |x| scalars::type_of(x).lanes > 1;
        if (has_lanes(a) || with_value && has_lanes(b)) && how != ffi::Py_EQ && how != ffi::Py_NE {
            return raise_python(PyValueError::new_err("lanes have no order; compare their .data, number by number"));
        }
        let Some(x) = Bound::from_owned_ptr_or_opt(py, get_data(a, ptr::null_mut())) else { return ptr::null_mut() };
        let y = if with_value {
            Bound::from_owned_ptr_or_opt(py, get_data(b, ptr::null_mut()))
        } else {
            Some(Bound::from_borrowed_ptr(py, b))
        };
        let Some(y) = y else { return ptr::null_mut() };
        let (Ok(x), Ok(y)) = (one_or_lanes(x), one_or_lanes(y)) else { return ptr::null_mut() };
        ffi::PyObject_RichCompare(x.as_ptr(), y.as_ptr(), how)
    }
}

/// Lanes that hold one number are that number, so that `Value(2.0) == 2.0` whatever the graph.
fn one_or_lanes(x: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let Ok(lanes) = x.cast::<PyTuple>() else { return Ok(x) };
    let first = lanes.get_item(0)?;
    let all_the_same = lanes.iter().all(|lane| lane.eq(&first).unwrap_or(false));
    Ok(if all_the_same { first } else { x })
}

/// The number a Value holds, rounded to a float, or `None` with an error set; lanes are a ValueError.
///
/// # Safety
/// `value` is a living Value; the interpreter lock is held.
#[inline(always)]
unsafe fn data_of(value: *mut ffi::PyObject) -> Option<f64> {
    // SAFETY: by the contract of this function.
    unsafe {
        match peek(value, |cell, node| scalars::plain(&cell.graph, node, false))? {
            Some(x) => Some(x),
            None => rounded(value),
        }
    }
}

/// The float nearest to a float128, or `None` with an error set for lanes.
#[cold]
#[inline(never)]
unsafe fn rounded(value: *mut ffi::PyObject) -> Option<f64> {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        let scalar_type = scalars::type_of(value);
        if scalar_type.lanes > 1 {
            raise_python(scalars::refuse_lanes(scalar_type));
            return None;
        }
        peek(value, |cell, node| with_graph!(&cell.graph, g => g.value(node).map(|x| x.lane(0).to_f64())))
    }
}

/// `bool(v)`
pub unsafe extern "C" fn truth(value: *mut ffi::PyObject) -> c_int {
    let run = || {
        // SAFETY: a living Value under the interpreter lock.
        unsafe {
            match peek(value, |cell, node| scalars::plain(&cell.graph, node, false)) {
                Some(Some(x)) => {
                    if is_traced(value)
                        && let Err(error) = crate::recorded::compared(value.cast(), None, 0.0, ffi::Py_NE, x != 0.0)
                    {
                        raise_python(error);
                        return -1;
                    }
                    (x != 0.0).into()
                }
                Some(None) if scalars::type_of(value).lanes == 1 => {
                    // A float128 may be too small for a float and still not be 0.
                    peek(value, |cell, node| with_graph!(&cell.graph, g => g.value(node).map(|x| !x.all_zero())))
                        .map_or(-1, c_int::from)
                }
                Some(None) => {
                    raise_python(scalars::refuse_lanes(scalars::type_of(value)));
                    -1
                }
                None => -1,
            }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { locked(&[value], run) }
}

/// `float(v)`: the data; the gradient is dropped.
pub unsafe extern "C" fn float(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: a living Value under the interpreter lock.
        unsafe {
            if is_traced(value) {
                return raise_python(crate::recorded::reading_refused());
            }
            data_of(value).map_or(ptr::null_mut(), |x| ffi::PyFloat_FromDouble(x))
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { locked(&[value], run) }
}

/// `int(v)`: the data, towards zero.
pub unsafe extern "C" fn int(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: a living Value under the interpreter lock.
        unsafe {
            match read(value, |cell, node| scalars::plain(&cell.graph, node, false)) {
                Some(Some(x)) => ffi::PyLong_FromDouble(x),
                Some(None) => with_number(value, |x| x.call_method0("__int__")),
                None => ptr::null_mut(),
            }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { locked(&[value], run) }
}
