//! A `Value` as a Python number: text, hash, comparison, truth, float and int.
//!
//! Promises: everything here reads only the data, so the gradient is dropped.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use burtorch_core::ops;
use burtorch_core::program::Comparison;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyTuple};

use super::attributes::{get_data, get_grad, peek, read};
use super::check::checked;
use super::guards;
use super::methods::unary_method;
use super::object::{ValueObject, cell_of, is_value};
use super::samples;
use crate::convert::entry::{attached, raise_python};
use crate::convert::numbers::{self, Number, number};
use crate::convert::refusals;
use crate::convert::signals::{quietly, text_of};
use crate::node::critical_section::slot;
use crate::node::numbers as of_node;

/// `round(v)` and `round(v, ndigits)`: Values, whose derivative is 0.
pub unsafe extern "C" fn round(
    value: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: the interpreter passes a living Value and `n` living objects under its lock.
        unsafe {
            match n {
                0 => unary_method::<ops::Round>(value, ptr::null_mut()),
                1 if *arguments == ffi::Py_None() => unary_method::<ops::Round>(value, ptr::null_mut()),
                1 => attached(|py| {
                    let (value, digits) =
                        (Bound::from_borrowed_ptr(py, value), Bound::from_borrowed_ptr(py, *arguments));
                    to_digits(&value, &digits).map_or_else(raise_python, Bound::into_ptr)
                }),
                _ => raise_python(PyTypeError::new_err("__round__() takes the number of digits")),
            }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// The Value rounded to this many decimal digits. Numbers so large that they have no such digits stay as they are.
fn to_digits<'py>(value: &Bound<'py, PyAny>, digits: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let digits: i64 = digits.extract()?;
    let power: f64 = std::format!("1e{}", digits.unsigned_abs().min(308)).parse().unwrap_or(1.0);
    if digits < 0 {
        return value.div(power)?.call_method0("round")?.mul(power);
    }
    let scaled = value.mul(power)?;
    // SAFETY: living Values under the GIL. What a trace finds at its numbers need not hold at others.
    let is_beyond = unsafe {
        let number = |v: &Bound<'py, PyAny>| peek(v.as_ptr(), |cell, node| of_node::plain(&cell.graph, node, false));
        let pair = if is_traced(value.as_ptr()) { (None, None) } else { (number(value), number(&scaled)) };
        matches!(pair, (Some(Some(x)), Some(Some(y))) if x.is_finite() && !y.is_finite())
    };
    if is_beyond { value.call_method0("detach") } else { scaled.call_method0("round")?.div(power) }
}

/// `format(v, spec)`: the data, formatted like a float.
pub unsafe extern "C" fn format(value: *mut ffi::PyObject, spec: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: a living Value and a living object under the GIL.
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
            attached(|py| {
                let spec = Bound::from_borrowed_ptr(py, spec);
                with_number(py, value, |x| x.call_method1("__format__", (spec,)))
            })
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// `f` of the data, as a float or a Decimal; lanes are a ValueError.
unsafe fn with_number<'py>(
    py: Python<'py>,
    value: *mut ffi::PyObject,
    f: impl FnOnce(Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the GIL.
    unsafe {
        let scalar_type = of_node::type_of(value);
        if scalar_type.lanes > 1 && !samples::holds_samples(value) {
            return raise_python(numbers::refuse_lanes(scalar_type));
        }
        let data = Bound::from_owned_ptr_or_opt(py, get_data(value, ptr::null_mut()));
        let Some(data) = data else { return ptr::null_mut() };
        f(data).map_or_else(raise_python, Bound::into_ptr)
    }
}

/// Whether a function is being traced on the value's graph.
///
/// # Safety
/// `value` is a living Value; the GIL is held.
#[inline(always)]
unsafe fn is_traced(value: *mut ffi::PyObject) -> bool {
    // SAFETY: by the contract of this function.
    let cell = unsafe { cell_of((*value.cast::<ValueObject>()).owner) };
    cell.is_busy() && cell.is_traced()
}

/// `repr(v)`, as micrograd prints it.
pub unsafe extern "C" fn repr(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: a living Value under the GIL.
        attached(|py| unsafe {
            // Without the number, which would be fixed at the trace.
            if is_traced(value) || crate::convert::refusals::is_tracing() {
                return "Value(traced)".into_pyobject(py).map_or(ptr::null_mut(), |text| text.into_ptr());
            }
            let Some(data) = Bound::from_owned_ptr_or_opt(py, get_data(value, ptr::null_mut())) else {
                // A stale value still has a text: repr must not fail while an error is being shown.
                ffi::PyErr_Clear();
                return "<stale Value>".into_pyobject(py).map_or(ptr::null_mut(), |text| text.into_ptr());
            };
            let grad = Bound::from_owned_ptr_or_opt(py, get_grad(value, ptr::null_mut()));
            let Some(grad) = grad else {
                return ptr::null_mut();
            };
            match std::format!("Value(data={}, grad={})", text_of(&data), text_of(&grad)).into_pyobject(py) {
                Ok(text) => text.into_ptr(),
                Err(_) => ptr::null_mut(),
            }
        })
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// `hash(v)`: by node, the same for all its handles, also when reclaim renumbers it.
pub unsafe extern "C" fn hash(value: *mut ffi::PyObject) -> ffi::Py_hash_t {
    let run = || {
        // SAFETY: a living Value under the GIL.
        unsafe {
            match samples::hash_of_data(value) {
                Ok(Some(hash)) => return hash,
                Ok(None) => {}
                Err(error) => {
                    raise_python(error);
                    return -1;
                }
            }
            let Some((cell, node)) = checked(value.cast()) else {
                return -1;
            };
            let graph = cell.graph.id();
            let mixed = cell.serial(node.index()).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ graph;
            let hash = mixed as ffi::Py_hash_t;
            if hash == -1 { -2 } else { hash }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// Comparison by data, with values and numbers; not with other objects, not even if the value is stale. Lanes are equal
/// if all of them are; they have no order. Samples of an oracle are compared one by one.
pub unsafe extern "C" fn compare(a: *mut ffi::PyObject, b: *mut ffi::PyObject, how: c_int) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: living objects under the GIL, the first a Value.
        unsafe {
            let fits_float = |x| of_node::type_of(x).fits_float();
            let mut comparison = comparison_of(how);
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
                match attached(|py| guards::with_int(&Bound::from_borrowed_ptr(py, b), comparison)) {
                    Ok(Some((about_floor, floor))) => {
                        comparison = about_floor;
                        floor
                    }
                    Ok(None) => return ffi::PyBool_FromLong((how == ffi::Py_NE).into()),
                    Err(error) => return raise_python(error),
                }
            } else {
                match number(b) {
                    Number::Is(y) => y,
                    Number::Failed => return ptr::null_mut(),
                    Number::IsNot => return not_implemented(),
                }
            };
            let Some(x) = data_of(a) else {
                return ptr::null_mut();
            };
            let holds = comparison.holds(x, y);
            if is_traced(a) || is_value(b) && is_traced(b) {
                let other = is_value(b).then_some(b.cast());
                if let Err(error) = guards::compared(a.cast(), other, y, comparison, holds) {
                    return raise_python(error);
                }
            } else if let Err(error) = refusals::refuse_reading("a comparison of a Value of another graph") {
                return raise_python(error);
            }
            ffi::PyBool_FromLong(holds.into())
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[a, b], run) }
}

/// The comparison that Python asks for by number.
#[inline(always)]
fn comparison_of(how: c_int) -> Comparison {
    match how {
        ffi::Py_LT => Comparison::Less,
        ffi::Py_LE => Comparison::LessEqual,
        ffi::Py_EQ => Comparison::Equal,
        ffi::Py_NE => Comparison::NotEqual,
        ffi::Py_GT => Comparison::Greater,
        _ => Comparison::GreaterEqual,
    }
}

/// The result of an operator for an unsupported operand.
fn not_implemented() -> *mut ffi::PyObject {
    // SAFETY: the interpreter's own object; the caller gets a reference.
    unsafe { ffi::Py_NewRef(ffi::Py_NotImplemented()) }
}

/// Integers are compared exactly, also those that no float holds, as Python compares a float with them.
unsafe fn compare_with_int(a: *mut ffi::PyObject, b: *mut ffi::PyObject, how: c_int) -> *mut ffi::PyObject {
    // SAFETY: a living Value and a living int under the GIL.
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
    // SAFETY: living objects under the GIL, the first a Value.
    attached(|py| unsafe {
        let with_value = is_value(b);
        let has_lanes = |x| of_node::type_of(x).lanes > 1;
        let other = match number_as_object(py, a, b) {
            Ok(Some(other)) => Some(other),
            Ok(None) if with_value => None,
            Ok(None) => return not_implemented(),
            Err(error) => return raise_python(error),
        };
        if samples::holds_samples(a) || with_value && samples::holds_samples(b) {
            let holds = samples::compared(a, b, other.as_ref(), operator_of(how));
            return holds.map_or_else(raise_python, |holds| ffi::PyBool_FromLong(holds.into()));
        }
        if (has_lanes(a) || with_value && has_lanes(b)) && how != ffi::Py_EQ && how != ffi::Py_NE {
            return raise_python(PyValueError::new_err("lanes have no order; compare their .data, number by number"));
        }
        let Some(x) = Bound::from_owned_ptr_or_opt(py, get_data(a, ptr::null_mut())) else { return ptr::null_mut() };
        let y = other.or_else(|| Bound::from_owned_ptr_or_opt(py, get_data(b, ptr::null_mut())));
        let Some(y) = y else { return ptr::null_mut() };
        let compare = || one_or_lanes(x)?.rich_compare(one_or_lanes(y)?, operator_of(how));
        compare().map_or_else(raise_python, Bound::into_ptr)
    })
}

/// The operand of a comparison with a Value whose data is not a float: ints, floats, NumPy scalars; decimals for float128.
/// `None` for other objects, including Values.
unsafe fn number_as_object<'py>(
    py: Python<'py>,
    value: *mut ffi::PyObject,
    other: *mut ffi::PyObject,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    // SAFETY: a living Value and a living object under the GIL.
    unsafe {
        if is_value(other) {
            return Ok(None);
        }
        let other = Bound::from_borrowed_ptr(py, other);
        if ffi::PyLong_Check(other.as_ptr()) != 0 {
            return Ok(Some(other));
        }
        match number(other.as_ptr()) {
            Number::Is(x) => Ok(Some(PyFloat::new(py, x).into_any())),
            Number::Failed => Err(PyErr::fetch(py)),
            Number::IsNot if of_node::type_of(value).lanes > 1 => Ok(None),
            Number::IsNot => {
                let is_decimal = other.is_instance(&py.import("decimal")?.getattr("Decimal")?)?;
                Ok(is_decimal.then_some(other))
            }
        }
    }
}

/// The operator that Python asks for by number.
fn operator_of(how: c_int) -> CompareOp {
    CompareOp::from_raw(how).unwrap_or(CompareOp::Eq)
}

/// Equal lanes compare like their number, so that `Value(2.0) == 2.0` on every graph.
fn one_or_lanes(x: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let Ok(lanes) = x.cast::<PyTuple>() else { return Ok(x) };
    let first = lanes.get_item(0)?;
    let all_the_same = lanes.iter().all(|lane| quietly(x.py(), || lane.eq(&first)).unwrap_or(false));
    Ok(if all_the_same { first } else { x })
}

/// The number a Value holds, rounded to a float, or `None` with an error set; lanes are a ValueError.
///
/// # Safety
/// `value` is a living Value; the GIL is held.
#[inline(always)]
unsafe fn data_of(value: *mut ffi::PyObject) -> Option<f64> {
    // SAFETY: by the contract of this function.
    unsafe {
        match peek(value, |cell, node| of_node::plain(&cell.graph, node, false))? {
            Some(x) => Some(x),
            None => rounded(value),
        }
    }
}

/// The float nearest to a float128, or `None` with an error set for lanes.
#[cold]
#[inline(never)]
unsafe fn rounded(value: *mut ffi::PyObject) -> Option<f64> {
    // SAFETY: a living Value under the GIL.
    unsafe {
        let scalar_type = of_node::type_of(value);
        if samples::holds_samples(value) {
            return samples::number(value, false, "float() of a Value").map_err(raise_python).ok();
        }
        if scalar_type.lanes > 1 {
            raise_python(numbers::refuse_lanes(scalar_type));
            return None;
        }
        peek(value, |cell, node| cell.graph.float(node))
    }
}

/// `bool(v)`
pub unsafe extern "C" fn truth(value: *mut ffi::PyObject) -> c_int {
    let run = || {
        // SAFETY: a living Value under the GIL.
        unsafe {
            match peek(value, |cell, node| of_node::plain(&cell.graph, node, false)) {
                Some(Some(x)) => {
                    let remembered = if is_traced(value) {
                        guards::compared(value.cast(), None, 0.0, Comparison::NotEqual, x != 0.0)
                    } else {
                        refusals::refuse_reading("bool() of a Value of another graph")
                    };
                    if let Err(error) = remembered {
                        raise_python(error);
                        return -1;
                    }
                    (x != 0.0).into()
                }
                Some(None) if of_node::type_of(value).lanes == 1 => {
                    // A float128 may be too small for a float and still differ from 0.
                    peek(value, |cell, node| cell.graph.is_zero(node).map(|is_zero| !is_zero)).map_or(-1, c_int::from)
                }
                Some(None) if samples::holds_samples(value) => match samples::truth(value) {
                    Ok(holds) => holds.into(),
                    Err(error) => {
                        raise_python(error);
                        -1
                    }
                },
                Some(None) => {
                    raise_python(numbers::refuse_lanes(of_node::type_of(value)));
                    -1
                }
                None => -1,
            }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// `float(v)`: the data; the gradient is dropped.
pub unsafe extern "C" fn float(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: a living Value under the GIL.
        unsafe {
            if is_traced(value) {
                return raise_python(refusals::reading_refused());
            }
            if let Err(error) = refusals::refuse_reading("float() of a Value of another graph") {
                return raise_python(error);
            }
            data_of(value).map_or(ptr::null_mut(), |x| ffi::PyFloat_FromDouble(x))
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// `int(v)`: the data, towards zero.
pub unsafe extern "C" fn int(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: a living Value under the GIL.
        unsafe {
            match read(value, |cell, node| of_node::plain(&cell.graph, node, false)) {
                Some(Some(x)) => ffi::PyLong_FromDouble(x),
                Some(None) => attached(|py| with_number(py, value, |x| x.call_method0("__int__"))),
                None => ptr::null_mut(),
            }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}
