//! One array whose rows hold all arguments of a function.
//!
//! Promises: only for a function of several positional arguments, those among its keywords not counted. Does not know how rows are
//! computed.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyTuple};

use super::object::Call;
use crate::convert::arrays::Array;
use crate::convert::errors::if_any;

/// How many numbers a row of the only array has, if its rows hold all arguments of the function: it must have so many.
pub fn of_rows(call: &Call<'_>, method: &str) -> PyResult<Option<usize>> {
    let py = call.py();
    let [only] = &call.positional[..] else { return Ok(None) };
    let body = call.with(|state| state.body.clone_ref(py))?;
    let Some((least, most)) = positional(body.bind(py), &call.named)? else { return Ok(None) };
    let array = if most > 1 { if_any(py, Array::converted(only))? } else { None };
    let Some(array) = array else { return Ok(None) };
    match *array.shape() {
        [_, 0] => Ok(None),
        [_, n] if (least..=most).contains(&n) => Ok(Some(n)),
        [_, n] if least > 1 || n > 1 => Err(PyValueError::new_err(format!(
            "{method}() takes rows with a number for each of the {most} arguments of the function, found rows of {n}"
        ))),
        ref shape if least > 1 => Err(PyTypeError::new_err(format!(
            "{method}() takes an array for each of the {most} arguments of the function, or one of two axes whose rows hold \
             all of them, found one with {} axes",
            shape.len()
        ))),
        _ => Ok(None),
    }
}

/// How many positional arguments a function must and may have, without those given by name; `None` if that is unknown.
fn positional(body: &Bound<'_, PyAny>, named: &[(String, Bound<'_, PyAny>)]) -> PyResult<Option<(usize, usize)>> {
    let py = body.py();
    let Some(code) = if_any(py, body.getattr("__code__"))? else { return Ok(None) };
    let takes_any = code.getattr("co_flags")?.extract::<usize>()? & 4 != 0;
    let count: usize = code.getattr("co_argcount")?.extract()?;
    let names: Vec<String> =
        code.getattr("co_varnames")?.extract::<Bound<'_, PyTuple>>()?.get_slice(0, count).extract()?;
    // The object of a bound method is given already.
    let bound = usize::from(if_any(py, body.getattr("__self__"))?.is_some_and(|object| !object.is_none()));
    let defaults = if_any(py, body.getattr("__defaults__"))?.filter(|all| !all.is_none());
    let defaults = defaults.map_or(Ok(0), |all| all.len())?;
    let is_free = |name: &&String| named.iter().all(|(given, _)| given != *name);
    let most = names[bound.min(count)..].iter().filter(is_free).count();
    let least = names[bound.min(count)..count - defaults.min(count - bound)].iter().filter(is_free).count();
    Ok(if takes_any { None } else { Some((least, most)) })
}

/// The same call with a column of the only array for each argument.
pub fn by_columns<'py>(mut call: Call<'py>, n: usize) -> PyResult<Call<'py>> {
    let py = call.py();
    let array = py.import("numpy")?.call_method1("asarray", (&call.positional[0],))?;
    let column = |k: usize| array.get_item((PySlice::full(py), k));
    call.positional = (0..n).map(column).collect::<PyResult<_>>()?;
    Ok(call)
}

/// Values and gradients by columns, with the gradients as the columns of one array.
pub fn joined<'py>(found: &Bound<'py, PyAny>, out: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    let py = found.py();
    let (values, gradients): (Bound<'py, PyAny>, Bound<'py, PyAny>) = found.extract()?;
    let numpy = py.import("numpy")?;
    let named = PyDict::new(py);
    named.set_item("axis", 1)?;
    let all = PyList::new(py, gradients.try_iter()?.collect::<PyResult<Vec<_>>>()?)?;
    let gradients = numpy.call_method("stack", (all,), Some(&named))?;
    let Some(out) = out else { return Ok(PyTuple::new(py, [values, gradients])?.into_any()) };
    let (to_values, to_gradients): (Bound<'py, PyAny>, Bound<'py, PyAny>) = out.extract()?;
    for (to, from) in [(&to_values, &values), (&to_gradients, &gradients)] {
        if !Array::writable(to, "out")?.shape().iter().eq(Array::converted(from)?.shape()) {
            let (expected, found) = (from.getattr("shape")?, to.getattr("shape")?);
            return Err(PyValueError::new_err(format!("out must have the shape {expected}, found {found}")));
        }
    }
    numpy.call_method1("copyto", (&to_values, values))?;
    numpy.call_method1("copyto", (&to_gradients, gradients))?;
    Ok(out.clone())
}
