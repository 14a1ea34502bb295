//! Numbers from Python and for Python: floats, NumPy scalars, buffers of floats, and the scalar types beyond float64 and float32.
//!
//! Promises: half-precision numbers are Python floats; lanes are a tuple of floats; float128 is a `Decimal` that converts
//! back to the same number.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use burtorch_core::DType;
use burtorch_core::erased::{AnyNumber, ScalarType};
use burtorch_core::scalar::{f128_from_decimal, f128_to_decimal};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyIterator, PyList, PyString, PyTuple};

use crate::convert::buffer::{is_masked, refuse_masked, type_name};
use crate::convert::entry::attached;
use crate::convert::errors::{if_any, numpy};

/// A number from Python other than a Value.
pub enum Number {
    /// The number.
    Is(f64),
    /// Not a number that values accept as an operand.
    IsNot,
    /// Reading it failed; the Python error is set.
    Failed,
}

/// Reads a Python int, float, bool or NumPy scalar.
///
/// # Safety
/// `object` is a living object; the GIL is held.
#[inline(always)]
pub unsafe fn number(object: *mut ffi::PyObject) -> Number {
    // SAFETY: by the contract of this function.
    unsafe {
        if ffi::PyFloat_CheckExact(object) != 0 {
            return Number::Is(ffi::PyFloat_AS_DOUBLE(object));
        }
        number_slow(object)
    }
}

#[inline(never)]
unsafe fn number_slow(object: *mut ffi::PyObject) -> Number {
    // SAFETY: by the contract of `number`.
    unsafe {
        // Integers first, because recognising them needs no call.
        if ffi::PyLong_Check(object) != 0 {
            let x = ffi::PyLong_AsDouble(object);
            return if x == -1.0 && !ffi::PyErr_Occurred().is_null() { Number::Failed } else { Number::Is(x) };
        }
        if ffi::PyFloat_Check(object) != 0 {
            return Number::Is(ffi::PyFloat_AS_DOUBLE(object));
        }
        match is_numpy_scalar(object) {
            Ok(true) => {}
            Ok(false) => return Number::IsNot,
            Err(error) => {
                attached(|py| error.restore(py));
                return Number::Failed;
            }
        }
        let x = ffi::PyFloat_AsDouble(object);
        if x == -1.0 && !ffi::PyErr_Occurred().is_null() { Number::Failed } else { Number::Is(x) }
    }
}

/// An array of another library, whose dtype has no kind, as a NumPy array over the same memory; others unchanged.
pub fn as_numpy<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    if is_ndarray(object) {
        return Ok(object.clone());
    }
    let has_kind = object.getattr(pyo3::intern!(py, "dtype"))?.hasattr(pyo3::intern!(py, "kind"))?;
    if has_kind || !object.hasattr(pyo3::intern!(py, "__dlpack__"))? {
        return Ok(object.clone());
    }
    let shared = numpy(py)?.call_method1("from_dlpack", (object,))?;
    Ok(shared)
}

/// Whether an object has a dtype, as those of NumPy do. The most frequent types are known to have none: a failed attribute
/// lookup costs half a microsecond.
pub fn has_dtype(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_builtin = object.cast_exact::<PyList>().is_ok()
        || object.cast_exact::<PyTuple>().is_ok()
        || object.cast_exact::<PyDict>().is_ok();
    if is_builtin {
        return Ok(false);
    }
    if is_ndarray(object) {
        return Ok(true);
    }
    // Classes written in Python have a name without a dot here. The dtypes of Graphs and Parameters are strings.
    let name = type_name_of(object);
    if name == c"array.array" || name.to_bytes().starts_with(b"burtorch.") && name != c"burtorch.Array" {
        return Ok(false);
    }
    object.hasattr(pyo3::intern!(object.py(), "dtype"))
}

/// NumPy's class of arrays, once it has been seen. It is static, so no other class ever has its address.
static NDARRAY: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(ptr::null_mut());

/// Whether an object is a NumPy array, of exactly that class.
pub fn is_ndarray(object: &Bound<'_, PyAny>) -> bool {
    let class = object.get_type_ptr();
    if class == NDARRAY.load(Ordering::Relaxed) {
        return true;
    }
    let is_array = type_name_of(object) == c"numpy.ndarray";
    // SAFETY: a living object's type.
    if is_array && unsafe { ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) } == 0 {
        NDARRAY.store(class, Ordering::Relaxed);
    }
    is_array
}

/// The C name of an object's type.
fn type_name_of<'a>(object: &'a Bound<'_, PyAny>) -> &'a CStr {
    // SAFETY: a type's name is a C string that lives as long as the type.
    unsafe { CStr::from_ptr((*ffi::Py_TYPE(object.as_ptr())).tp_name) }
}

/// Whether `object` is a real NumPy scalar or 0-d array. Judged by the attributes of its class, without importing
/// NumPy.
unsafe fn is_numpy_scalar(object: *mut ffi::PyObject) -> PyResult<bool> {
    let kind = |py: Python<'_>| -> PyResult<bool> {
        // SAFETY: a living object under the GIL, by the contract of `number`.
        let object = unsafe { Bound::from_borrowed_ptr(py, object) };
        // An Array of a trace has a dtype but no number.
        let is_array = type_name_of(&object) == c"burtorch.Array";
        if is_array
            || !has_dtype(&object)?
            || !is_ndarray(&object) && !object.hasattr(pyo3::intern!(py, "__array__"))?
        {
            return Ok(false);
        }
        let n_dims: usize = object.getattr(pyo3::intern!(py, "ndim"))?.extract()?;
        if n_dims > 0 || is_masked(&object) {
            return Ok(false);
        }
        let kind: String = object.getattr(pyo3::intern!(py, "dtype"))?.getattr(pyo3::intern!(py, "kind"))?.extract()?;
        Ok(matches!(kind.as_str(), "f" | "i" | "u" | "b"))
    };
    attached(|py| if_any(py, kind(py)).map(|found| found.unwrap_or(false)))
}

/// The number in a Python or NumPy scalar, if it is one.
pub fn number_of(object: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    // SAFETY: a living object under the GIL.
    match unsafe { number(object.as_ptr()) } {
        Number::Is(x) => Ok(Some(x)),
        Number::IsNot => Ok(None),
        Number::Failed => Err(PyErr::fetch(object.py())),
    }
}

/// An argument that is a real number.
pub fn argument_number(object: &Bound<'_, PyAny>) -> PyResult<f64> {
    real(object, "expected a real number")
}

/// The same, or None.
pub fn optional_number(object: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if object.is_none() { Ok(None) } else { argument_number(object).map(Some) }
}

/// A real number: a Python or NumPy number, or another object that converts itself to a float. Text, bytes, complex numbers,
/// dates, durations and Values, some of which `float()` accepts, are a TypeError.
pub fn real(object: &Bound<'_, PyAny>, expected: &str) -> PyResult<f64> {
    if let Some(x) = number_of(object)? {
        return Ok(x);
    }
    let refused = || {
        let found = type_name(object);
        let hint =
            if matches!(&*found, "Value" | "Array") { "; use its .data, the number without a gradient" } else { "" };
        PyTypeError::new_err(format!("{expected}, found {found}{hint}"))
    };
    let dtype = if has_dtype(object)? {
        if_any(object.py(), object.getattr(pyo3::intern!(object.py(), "dtype")))?
    } else {
        None
    };
    let kind = dtype.map(|dtype| if_any(object.py(), dtype.getattr(pyo3::intern!(object.py(), "kind")))).transpose()?;
    let is_number = match kind.flatten() {
        Some(kind) => matches!(kind.extract::<&str>().unwrap_or(""), "f" | "i" | "u" | "b"),
        None => !is_text(object) && !matches!(type_name_of(object).to_bytes(), b"burtorch.Value" | b"burtorch.Array"),
    };
    if !is_number {
        return Err(refused());
    }
    object.extract().map_err(|error: PyErr| match error.is_instance_of::<PyTypeError>(object.py()) {
        true => refused(),
        false => error,
    })
}

/// The numbers of a buffer of float64 or float32, by rows.
pub fn float_buffer(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<f64>>> {
    refuse_masked(object)?;
    if let Ok(buffer) = PyBuffer::<f64>::get(object)
        && has_native_order(&buffer)
    {
        return buffer.to_vec(object.py()).map(Some);
    }
    if let Ok(buffer) = PyBuffer::<f32>::get(object)
        && has_native_order(&buffer)
    {
        return Ok(Some(buffer.to_vec(object.py())?.into_iter().map(f64::from).collect()));
    }
    Ok(None)
}

/// Whether a buffer's numbers have the native byte order: PyO3 0.30 treats big-endian numbers as native on
/// little-endian machines.
fn has_native_order<T: Element>(buffer: &PyBuffer<T>) -> bool {
    let foreign: &[u8] = if cfg!(target_endian = "little") { b">!" } else { b"<" };
    buffer.format().to_bytes().first().is_some_and(|order| !foreign.contains(order))
}

/// The scalar type called `name`.
pub fn type_named(name: &str) -> PyResult<ScalarType> {
    ScalarType::named(name).ok_or_else(|| {
        PyValueError::new_err(format!(
            "dtype must be \"float64\", \"float32\", \"float16\", \"bfloat16\", \"float128\", \"float32x4\", \
             \"float32x8\", \"float32x16\", \"float64x2\", \"float64x4\" or \"float64x8\", found {name:?}"
        ))
    })
}

/// Whether an object is text, bytes, or a scalar of NumPy that is a date, a duration or bytes: it may have a buffer or items, but
/// no numbers.
pub fn is_text(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || matches!(type_name_of(object).to_bytes(), b"numpy.datetime64" | b"numpy.timedelta64" | b"numpy.void")
}

/// An object from which a float128 gets more digits than a float has: text, a Decimal, an int.
pub fn wide_number(object: &Bound<'_, PyAny>) -> PyResult<Option<f128>> {
    let is_decimal = || object.is_instance(&object.py().import("decimal")?.getattr("Decimal")?);
    if object.is_instance_of::<PyFloat>() {
        return Ok(None);
    }
    let is_given_as_text = object.is_instance_of::<PyString>();
    if !is_given_as_text && !object.is_instance_of::<PyInt>() && !is_decimal()? {
        return Ok(None);
    }
    // Python limits the digits of an int in a conversion to text; hexadecimal has no limit, but such ints are rare.
    let text = object.str()?.to_string_lossy().into_owned();
    let text = if object.is_instance_of::<pyo3::types::PyBool>() {
        if object.is_truthy()? { "1".into() } else { "0".into() }
    } else {
        text
    };
    match f128_from_decimal(&text) {
        Some(x) => Ok(Some(x)),
        None => Err(PyValueError::new_err(format!("cannot read {text:?} as a decimal number"))),
    }
}

/// The number, or numbers, of a node: a float, a tuple of floats, or a Decimal. The caller copies it out of the graph first,
/// because creating objects may run Python code.
pub fn into_python(py: Python<'_>, number: AnyNumber) -> PyResult<Bound<'_, PyAny>> {
    Ok(match number {
        AnyNumber::One(x) => PyFloat::new(py, x).into_any(),
        AnyNumber::Lanes(all) => PyTuple::new(py, all)?.into_any(),
        AnyNumber::Wide(x) => decimal(py, x)?,
    })
}

/// A Decimal that converts back to `x`.
pub fn decimal(py: Python<'_>, x: f128) -> PyResult<Bound<'_, PyAny>> {
    py.import("decimal")?.getattr("Decimal")?.call1((f128_to_decimal(x),))
}

/// The error for lanes where one number is needed.
pub fn refuse_lanes(scalar_type: ScalarType) -> PyErr {
    let (n, name) = (scalar_type.lanes, scalar_type.name());
    PyValueError::new_err(format!("a {name} Value holds {n} numbers, not one; use its .data, a tuple"))
}

/// The outcome that is the same for all samples of a group; a ValueError if they differ. There is at least one.
pub fn agreed<T: PartialEq>(of_samples: impl IntoIterator<Item = PyResult<T>>, what: &str) -> PyResult<T> {
    let mut all = of_samples.into_iter();
    let differ = || {
        PyValueError::new_err(format!(
            "{what}: the samples of this group differ, but Python code runs once for all of them; choose with bt.where(condition, \
             a, b) in an Oracle without lanes=, or compute sample by sample with lanes=1"
        ))
    };
    let first = all.next().unwrap_or_else(|| Err(differ()))?;
    for other in all {
        if other? != first {
            return Err(differ());
        }
    }
    Ok(first)
}

/// Reads one number of this element type; `None` if it is not a number.
pub fn read_one(object: &Bound<'_, PyAny>, elem: DType) -> PyResult<Option<AnyNumber>> {
    if elem == DType::Float128
        && let Some(x) = wide_number(object)?
    {
        return Ok(Some(AnyNumber::Wide(x)));
    }
    Ok(number_of(object)?.map(AnyNumber::One))
}

/// The same, or a TypeError with the expected type.
pub fn expect_one(object: &Bound<'_, PyAny>, elem: DType) -> PyResult<AnyNumber> {
    match read_one(object, elem)? {
        Some(number) => Ok(number),
        None => Err(not_a_number(object, elem.name())),
    }
}

/// The error for an object that is not a number.
pub fn not_a_number(object: &Bound<'_, PyAny>, type_name: &str) -> PyErr {
    match object.get_type().name() {
        Ok(found) => {
            let found = found.to_string_lossy();
            PyTypeError::new_err(format!("expected a number for a {type_name} node, found {found}"))
        }
        Err(error) => error,
    }
}

/// The items of a sequence that is not text.
pub fn items<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    if is_text(object) {
        return Err(PyTypeError::new_err("expected a sequence of numbers, found text"));
    }
    object.try_iter()
}
