//! NumPy with Values and Vectors: operators with arrays, object arrays, and ufuncs, without importing NumPy first.
#![allow(unsafe_code)]

use pyo3::basic::CompareOp;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyTuple};

use super::elementwise::is_many;
use super::{PyVector, Symbol, finish};
use crate::array::of_graph::{of_lists, stacked};
use crate::array::operators::comparable;
use crate::convert::buffer::type_name;
use crate::convert::entry::entered;
use crate::convert::errors::is_final;
use crate::convert::numbers::{has_dtype, number_of};
use crate::convert::refusals::{is_tracing, needs_arrays};
use crate::convert::signals::{quietly, text_of};
use crate::node::tensor_items::is_of_arrays;
use crate::node::value;
use crate::params::PyTensor;

/// The end of an error about a NumPy function, if the number may be meant.
pub const NUMBER_ALONE: &str = ", or float(v) for the number alone";

/// The dimensions of an array; 0 for a NumPy scalar and for objects that are not arrays.
pub fn n_dims(x: &Bound<'_, PyAny>) -> usize {
    quietly(x.py(), || read_dims(x)).unwrap_or(0)
}

/// As [`n_dims`], but an interrupt ends the call.
pub fn read_dims(x: &Bound<'_, PyAny>) -> PyResult<usize> {
    if x.is_instance_of::<PyFloat>() || !has_dtype(x)? {
        return Ok(0);
    }
    x.getattr(pyo3::intern!(x.py(), "ndim"))?.extract()
}

/// Whether this is an array (not a NumPy scalar): it has a dtype and dimensions.
pub fn is_array(x: &Bound<'_, PyAny>) -> bool {
    n_dims(x) > 0
}

/// Whether an array holds real numbers.
pub fn holds_numbers(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(matches!(kind(x)?.as_str(), "f" | "i" | "u" | "b"))
}

/// Whether an array is of float32.
pub fn is_float32(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(kind(x)? == "f" && x.getattr("dtype")?.getattr("itemsize")?.extract::<usize>()? == 4)
}

/// The letter of an array's or NumPy scalar's kind of numbers.
fn kind(x: &Bound<'_, PyAny>) -> PyResult<String> {
    x.getattr("dtype")?.getattr("kind")?.extract()
}

/// For an object array beside a Value: the operator elementwise, as an object array of the same shape.
pub fn object_array<'py>(
    symbol: Symbol,
    x: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let is_vector = |a: &Bound<'py, PyAny>| a.is_instance_of::<PyVector>();
    if is_vector(x) || is_vector(y) {
        return Ok(None); // elements are paired with elements
    }
    let holds_objects = |a: &Bound<'py, PyAny>| -> PyResult<bool> { Ok(is_array(a) && kind(a)? == "O") };
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
        Symbol::FloorOver => "floordiv",
        Symbol::Modulo => "mod",
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

/// A ufunc called with a Value or Vector: operators and ops of the table are computed, others are refused by name.
pub fn ufunc<'py>(
    py: Python<'py>,
    arguments: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    if arguments.len() < 3 {
        return Err(PyTypeError::new_err("__array_ufunc__() takes a ufunc, a method and inputs"));
    }
    let function = arguments.get_item(0)?;
    let name: String = function.getattr("__name__")?.extract()?;
    let method: String = arguments.get_item(1)?.extract()?;
    let inputs = arguments.get_slice(2, arguments.len());
    // Tensors with axes, or in a function that is traced with Arrays.
    if is_of_arrays(&inputs.iter().collect::<Vec<_>>())? {
        return py.import("burtorch._numpy")?.getattr("ufunc_of_parameters")?.call(arguments, keywords);
    }
    let out = output(&name, keywords)?;
    let result = if method == "__call__" && is_comparison(&name) {
        compared(&function, &name, &inputs)
    } else {
        match by_name(py, &name, &method, &inputs) {
            // A function that only Arrays have.
            Err(error)
                if error.is_instance_of::<PyTypeError>(py) && !is_tracing() && inputs.iter().any(|x| is_many(&x)) =>
            {
                let of_arrays = py.import("burtorch._numpy")?.getattr("ufunc_of_parameters")?;
                return of_arrays.call(arguments, keywords).map_err(|of_arrays| {
                    let is_known = !text_of(of_arrays.value(py)).contains("burtorch has no such function");
                    if is_known || is_final(py, &of_arrays) { of_arrays } else { error }
                });
            }
            found => found,
        }
    }?;
    match out {
        Some(out) => {
            out.set_item(py.Ellipsis(), &result)?;
            Ok(out)
        }
        None => Ok(result),
    }
}

/// The object array to write to, if one was given. Arrays of numbers cannot hold Values.
fn output<'py>(name: &str, keywords: Option<&Bound<'py, PyDict>>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(keywords) = keywords.filter(|keywords| !keywords.is_empty()) else { return Ok(None) };
    let refused = || {
        let message =
            format!("numpy.{name} of Values takes no keywords except an object array as out=; write x = x + v");
        PyTypeError::new_err(message)
    };
    let out = keywords.get_item("out")?.filter(|_| keywords.len() == 1).ok_or_else(refused)?;
    let out = if out.is_instance_of::<PyTuple>() { out.get_item(0)? } else { out };
    if kind(&out)? == "O" { Ok(Some(out)) } else { Err(refused()) }
}

fn is_comparison(name: &str) -> bool {
    matches!(name, "less" | "less_equal" | "greater" | "greater_equal" | "equal" | "not_equal")
}

/// A comparison: of a Value and one number as by their operator, which a traced function records; otherwise elementwise.
fn compared<'py>(
    function: &Bound<'py, PyAny>,
    name: &str,
    inputs: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    // SAFETY: living objects under the GIL.
    let is_value = |x: &Bound<'py, PyAny>| unsafe { value::is_value(x.as_ptr()) };
    let (x, y) = (inputs.get_item(0)?, inputs.get_item(1)?);
    let number = match (is_value(&x), is_value(&y)) {
        (true, false) => crate::convert::numbers::number_of(&y)?,
        (false, true) => crate::convert::numbers::number_of(&x)?,
        _ => None,
    };
    if let Some(number) = number {
        let number = number.into_pyobject(py)?.into_any();
        let (x, y) = if is_value(&x) { (x, number) } else { (number, y) };
        let how = match name {
            "less" => CompareOp::Lt,
            "less_equal" => CompareOp::Le,
            "greater" => CompareOp::Gt,
            "greater_equal" => CompareOp::Ge,
            "equal" => CompareOp::Eq,
            _ => CompareOp::Ne,
        };
        return x.rich_compare(y, how);
    }
    function.call1(PyTuple::new(py, inputs.iter().map(|x| data_of(&x)).collect::<PyResult<Vec<_>>>()?)?)
}

/// A Vector or Tensor compared with another object: a mask of NumPy beside numbers; two of them are equal if they are one object. A
/// trace with Values is repeated with Arrays.
pub fn compared_with<'py>(x: &Bound<'py, PyAny>, y: &Bound<'py, PyAny>, how: CompareOp) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let has_lists = of_lists(y)?;
    let y = if has_lists { y.clone() } else { comparable(y)? };
    // SAFETY: a living object under the GIL.
    let is_number = unsafe { value::is_value(y.as_ptr()) } || number_of(&y)?.is_some();
    let is_many = is_many(&y);
    if !(is_number || is_many || is_array(&y) || has_lists) {
        return Ok(py.NotImplemented().into_bound(py));
    }
    let is_equality = matches!(how, CompareOp::Eq | CompareOp::Ne);
    if is_of_arrays(&[x.clone(), y.clone()])? {
        return crate::array::operators::compared(x, &y, how);
    }
    if is_tracing() {
        return Err(needs_arrays(py, "a comparison of a Vector"));
    }
    if has_lists {
        return compared_with(x, stacked(&y)?.as_any(), how);
    }
    if is_equality && is_many {
        return Ok(py.NotImplemented().into_bound(py));
    }
    data_of(x)?.rich_compare(data_of(&y)?, how)
}

/// The operands of a comparison: the data of Values and Vectors, other objects unchanged.
fn data_of<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: a living object under the GIL.
    if unsafe { value::is_value(x.as_ptr()) } {
        x.getattr("data")
    } else if x.is_instance_of::<PyVector>() {
        x.py().import("numpy")?.call_method1("asarray", (x.getattr("data")?,))
    } else if x.is_instance_of::<PyTensor>() {
        x.py().import("numpy")?.call_method1("asarray", (x.getattr("values")?,))
    } else {
        Ok(x.clone())
    }
}

/// The operator or op of a ufunc, or an error that names it.
fn by_name<'py>(
    py: Python<'py>,
    name: &str,
    method: &str,
    inputs: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let operator = match name {
        "add" => Some("add"),
        "subtract" => Some("sub"),
        "multiply" => Some("mul"),
        "divide" | "true_divide" => Some("truediv"),
        "power" | "float_power" => Some("pow"),
        "floor_divide" => Some("floordiv"),
        "remainder" | "mod" => Some("mod"),
        "negative" => Some("neg"),
        "positive" => Some("pos"),
        "absolute" => Some("abs"),
        "matmul" => Some("matmul"),
        _ => None,
    };
    if let Some(operator) = operator.filter(|_| method == "__call__") {
        return by_operator(py, operator, inputs);
    }
    let ours = match name {
        "arctan2" => "atan2",
        "arcsin" => "asin",
        "arccos" => "acos",
        "arctan" => "atan",
        "arcsinh" => "asinh",
        "arccosh" => "acosh",
        "arctanh" => "atanh",
        "rint" => "round",
        "maximum" => "max",
        "minimum" => "min",
        "square" => "sqr",
        "reciprocal" => "inv",
        // SciPy's.
        "gammaln" => "lgamma",
        "psi" => "digamma",
        "expit" => "sigmoid",
        other => other,
    };
    if method == "__call__" && burtorch_core::Op::from_name(ours).is_some() {
        let inputs = inputs.iter().map(|x| without_numpy_scalar(&x)).collect::<PyResult<Vec<_>>>()?;
        return py.import("burtorch._core")?.getattr(ours)?.call1(PyTuple::new(py, inputs)?);
    }
    let special = py.import("burtorch._numpy_ufuncs")?.getattr("SPECIAL")?;
    if method == "__call__" && special.contains(name)? {
        return special.get_item(name)?.call1(inputs);
    }
    let form = if method == "__call__" { String::new() } else { format!(".{method}") };
    let message = format!("numpy.{name}{form} does not take Values; burtorch has no op of that name{NUMBER_ALONE}");
    Err(PyTypeError::new_err(message))
}

/// Runs an operator with NumPy scalars turned into floats, so that NumPy is not called again.
fn by_operator<'py>(py: Python<'py>, operator: &str, inputs: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let inputs: Vec<Bound<'py, PyAny>> = inputs.iter().map(|x| without_numpy_scalar(&x)).collect::<PyResult<_>>()?;
    let symbol = match operator {
        "add" => Some(Symbol::Plus),
        "sub" => Some(Symbol::Minus),
        "mul" => Some(Symbol::Times),
        "truediv" => Some(Symbol::Over),
        "pow" => Some(Symbol::Power),
        "floordiv" => Some(Symbol::FloorOver),
        "mod" => Some(Symbol::Modulo),
        _ => None,
    };
    if let [x, y] = &inputs[..]
        && (is_array(x) || is_array(y))
    {
        let result = match symbol {
            Some(symbol) => super::elementwise::operator(symbol, x, y)?,
            None => super::functions::product(x, y)?,
        };
        if !result.is(py.NotImplemented()) {
            return Ok(result);
        }
    }
    if inputs.iter().any(is_array) {
        return Err(PyTypeError::new_err(format!(
            "operator {operator} does not take this array and a Value or Vector"
        )));
    }
    py.import("operator")?.getattr(operator)?.call1(PyTuple::new(py, inputs)?)
}

/// A NumPy scalar or 0-d array as a Python object; other objects unchanged.
fn without_numpy_scalar<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if let Some(number) = crate::convert::numbers::number_of(x)? {
        return Ok(number.into_pyobject(py)?.into_any());
    }
    if !x.hasattr("dtype")? || is_array(x) {
        return Ok(x.clone());
    }
    if kind(x)? == "O" {
        return x.call_method0("item");
    }
    let found = type_name(x);
    Err(PyTypeError::new_err(format!("expected a real number beside a Value or Vector, found {found}")))
}

/// `Value.__array_ufunc__`.
///
/// # Safety
/// Called by the interpreter: a Value, a tuple, a dict or null, under its lock.
pub unsafe extern "C" fn array_ufunc(
    value: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    entered(|py| {
        // SAFETY: living objects under the GIL.
        let (arguments, keywords) = unsafe {
            debug_assert!(value::is_value(value));
            (Bound::from_borrowed_ptr(py, arguments), Bound::from_borrowed_ptr_or_opt(py, keywords))
        };
        let keywords = keywords.and_then(|keywords| keywords.cast_into::<PyDict>().ok());
        finish(
            arguments
                .cast_into::<PyTuple>()
                .map_err(PyErr::from)
                .and_then(|arguments| ufunc(py, &arguments, keywords.as_ref())),
        )
    })
}

/// `Value.__array_function__`.
///
/// # Safety
/// As [`array_ufunc`].
pub unsafe extern "C" fn array_function(
    value: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    entered(|py| {
        // SAFETY: living objects under the GIL.
        let arguments = unsafe {
            debug_assert!(value::is_value(value));
            Bound::from_borrowed_ptr(py, arguments)
        };
        let answered = || {
            let table = py.import(pyo3::intern!(py, "burtorch._numpy_values"))?;
            table.getattr("function_of_values")?.call1(arguments.cast_into::<PyTuple>()?)
        };
        finish(answered())
    })
}
