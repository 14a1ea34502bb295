//! What Functions have in common with functions of Python: copies, methods, docstrings.
//!
//! Promises: a copy, or the Function of a method, is one of Python code, never one of traces alone.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::containers::Nest;
use super::object::Call;
use super::object_type::{made, options_of};
use super::state::FunctionState;
use super::transform::Transform;
use crate::node::parameter::{PyParameter, value_of};

/// `f.__copy__()`: the Function.
pub fn copy<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(call.function.clone())
}

/// `f.__deepcopy__(memo)`: a Function of the copied body, which differs for methods of what is copied, or else the Function.
pub fn deepcopy<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let [memo] = &call.positional[..] else {
        return Err(PyTypeError::new_err("__deepcopy__() takes a memo"));
    };
    let (body, options) = call.with(|state| (state.body.clone_ref(py), state.options))?;
    let body = body.bind(py);
    if body.is_instance_of::<Transform>() {
        return Ok(call.function.clone());
    }
    let copied = py.import("copy")?.call_method1("deepcopy", (body, memo))?;
    if copied.is(body) {
        return Ok(call.function.clone());
    }
    // The copied body may refer to the Function, whose copy is known then.
    let known = memo.call_method1("get", (call.function.as_ptr() as usize,))?;
    if known.is_none() { made(py, FunctionState::new(&copied, options)) } else { Ok(known) }
}

/// A Function of another body with the options of this one.
#[pyfunction]
fn function_like<'py>(function: &Bound<'py, PyAny>, body: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let options = options_of(function).ok_or_else(|| PyTypeError::new_err("function_like() takes a Function"))?;
    made(body.py(), FunctionState::new(body, options))
}

/// `function.__get__(instance)`: the Function of a method.
pub fn of_instance<'py>(function: &Bound<'py, PyAny>, instance: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    function.py().import("burtorch._function")?.getattr("of_instance")?.call1((function, instance))
}

/// A Function and the positional arguments of a call.
pub type Called<'py> = (Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>);

/// The same call if its first argument is the instance of a method, or parameters are among the arguments: of the Function of the
/// instance, and with numbers, Values or Arrays for parameters. `None` for other calls.
pub fn other_call<'py>(
    function: &Bound<'py, PyAny>,
    positional: &[Bound<'py, PyAny>],
) -> PyResult<Option<Called<'py>>> {
    let py = function.py();
    if let [instance, rest @ ..] = positional {
        let found = py.import("burtorch._function")?.getattr("of_class")?.call1((function, instance))?;
        if !found.is_none() {
            return Ok(Some((found, rest.to_vec())));
        }
    }
    let mut has_parameters = false;
    let mut all = Vec::with_capacity(positional.len());
    for argument in positional {
        let mut leaves = Vec::new();
        let nest = Nest::of(argument, &mut leaves)?;
        for leaf in &mut leaves {
            if let Ok(parameter) = leaf.cast::<PyParameter>() {
                *leaf = value_of(parameter)?;
                has_parameters = true;
            }
        }
        all.push(nest.build(py, &mut leaves.into_iter())?);
    }
    Ok(has_parameters.then(|| (function.clone(), all)))
}

/// `__doc__` of Functions: the docstring of the body; of the class its own.
#[pyclass(frozen)]
pub struct Docstring(pub Py<PyAny>);

#[pymethods]
impl Docstring {
    fn __get__<'py>(&self, function: &Bound<'py, PyAny>, _class: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match function.is_none() {
            true => Ok(self.0.bind(function.py()).clone()),
            false => function.getattr("__wrapped__")?.getattr("__doc__"),
        }
    }
}

/// Adds the function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(function_like, m)?)
}
