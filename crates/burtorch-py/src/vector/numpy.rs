//! NumPy beside Values and Vectors: operators with arrays, object arrays, and ufuncs, without importing NumPy first.
#![allow(unsafe_code)]

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{PyVector, Symbol, finish};
use crate::value;

/// Whether this is an array (not a NumPy scalar): it has a dtype and dimensions.
pub fn is_array(x: &Bound<'_, PyAny>) -> bool {
    let n_dims = || -> PyResult<usize> {
        x.getattr(pyo3::intern!(x.py(), "dtype"))?;
        x.getattr(pyo3::intern!(x.py(), "ndim"))?.extract()
    };
    n_dims().is_ok_and(|n| n > 0)
}

/// For an object array beside a Value: the operator element by element, as an object array of the same shape.
pub fn object_array<'py>(
    symbol: Symbol,
    x: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let holds_objects = |a: &Bound<'py, PyAny>| -> PyResult<bool> {
        Ok(is_array(a) && a.getattr("dtype")?.getattr("kind")?.extract::<String>()? == "O")
    };
    let array = if holds_objects(x)? {
        x
    } else if holds_objects(y)? {
        y
    } else {
        return Ok(None);
    };
    let py = x.py();
    let operator = py.import("operator")?;
    let function = operator.getattr(match symbol {
        Symbol::Plus => "add",
        Symbol::Minus => "sub",
        Symbol::Times => "mul",
        Symbol::Over => "truediv",
        Symbol::Power => "pow",
    })?;
    let results = py.import("numpy")?.call_method1("empty", (array.getattr("shape")?, "O"))?;
    let flat = results.getattr("flat")?;
    for (k, element) in array.getattr("flat")?.try_iter()?.enumerate() {
        let element = element?;
        let result = if array.is(x) { function.call1((element, y)) } else { function.call1((x, element)) }?;
        flat.set_item(k, result)?;
    }
    Ok(Some(results))
}

/// A ufunc that met a Value or Vector: operators are done here, others are refused by name.
pub fn ufunc<'py>(py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let name: String = arguments.get_item(0)?.getattr("__name__")?.extract()?;
    let method: String = arguments.get_item(1)?.extract()?;
    let inputs = arguments.get_slice(2, arguments.len());
    let operator = match name.as_str() {
        "add" => Some("add"),
        "subtract" => Some("sub"),
        "multiply" => Some("mul"),
        "divide" | "true_divide" => Some("truediv"),
        "power" | "float_power" => Some("pow"),
        "negative" => Some("neg"),
        "positive" => Some("pos"),
        "absolute" => Some("abs"),
        "less" => Some("lt"),
        "less_equal" => Some("le"),
        "greater" => Some("gt"),
        "greater_equal" => Some("ge"),
        "equal" => Some("eq"),
        "not_equal" => Some("ne"),
        "matmul" => Some("matmul"),
        _ => None,
    };
    if let Some(operator) = operator.filter(|_| method == "__call__") {
        return by_operator(py, operator, &inputs);
    }
    let ours = match name.as_str() {
        "arctan2" => "atan2",
        "maximum" => "max",
        "minimum" => "min",
        "square" => "sqr",
        "reciprocal" => "inv",
        other => other,
    };
    let has_op = burtorch_core::Op::from_name(ours).is_some();
    let hint = if has_op { format!("use bt.{ours}(...)") } else { "burtorch has no op of that name".to_string() };
    Err(PyTypeError::new_err(format!("numpy.{name} does not take Values; {hint}, or float(v) for the number alone")))
}

/// Runs an operator with NumPy scalars turned into floats, so that NumPy is not asked again.
fn by_operator<'py>(py: Python<'py>, operator: &str, inputs: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let inputs: Vec<Bound<'py, PyAny>> = inputs
        .iter()
        .map(|input| match super::arguments::number_of(&input)? {
            Some(x) => Ok(x.into_pyobject(py)?.into_any()),
            None => Ok(input),
        })
        .collect::<PyResult<_>>()?;
    let symbol = match operator {
        "add" => Some(Symbol::Plus),
        "sub" => Some(Symbol::Minus),
        "mul" => Some(Symbol::Times),
        "truediv" => Some(Symbol::Over),
        "pow" => Some(Symbol::Power),
        _ => None,
    };
    if let (Some(symbol), [x, y]) = (symbol, &inputs[..])
        && (is_array(x) || is_array(y) || x.is_instance_of::<PyVector>() || y.is_instance_of::<PyVector>())
    {
        let result = super::elementwise::operator(symbol, x, y)?;
        if !result.is(py.NotImplemented()) {
            return Ok(result);
        }
    }
    if inputs.iter().any(is_array) {
        return Err(PyTypeError::new_err(format!("operator {operator} does not take an array and a Value")));
    }
    py.import("operator")?.getattr(operator)?.call1(PyTuple::new(py, inputs)?)
}

/// `Value.__array_ufunc__`.
///
/// # Safety
/// Called by the interpreter: a Value, a tuple, a dict or null, under its lock.
pub unsafe extern "C" fn array_ufunc(
    value: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
    _keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: living objects under the interpreter lock.
    let (py, arguments) = unsafe {
        debug_assert!(value::is_value(value));
        let py = Python::assume_attached();
        (py, Bound::from_borrowed_ptr(py, arguments))
    };
    finish(arguments.cast_into::<PyTuple>().map_err(PyErr::from).and_then(|arguments| ufunc(py, &arguments)))
}
