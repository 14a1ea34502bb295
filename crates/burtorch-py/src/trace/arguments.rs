//! Splitting the arguments of a call: numbers in their containers, and static arguments.
//!
//! Promises: an object that cannot be an argument is refused with its name and position; static arguments are the same only if
//! equal in value, type and text. Knows no programs.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyDict, PyFloat, PyTuple};

use super::containers::Nest;
use super::object::Call;
use super::pytree::{GivenArguments, Others, Tree, is_of_graph};
use super::{array_calls, attributes, keywords};
use crate::array::functions::array_of;
use crate::convert::arrays::Array;
use crate::convert::errors::instead;
use crate::convert::signals::quietly;

/// The body's name, and the place of its definition.
pub fn name_of(body: &Bound<'_, PyAny>) -> String {
    let py = body.py();
    let name = quietly(py, || Ok(body.getattr("__qualname__")?.str()?.to_string_lossy().into_owned()));
    let name = name.unwrap_or_else(|| "the function".into());
    let place = || -> PyResult<String> {
        let code = body.getattr("__code__")?;
        let (file, line): (String, u32) =
            (code.getattr("co_filename")?.extract()?, code.getattr("co_firstlineno")?.extract()?);
        Ok(format!("{name} ({file}:{line})"))
    };
    quietly(py, place).unwrap_or(name)
}

/// The function, and the name or number of its argument `k`.
pub fn argument_name(call: &Call<'_>, k: usize) -> String {
    let py = call.py();
    let Ok((body, name)) = call.with(|state| (state.body.clone_ref(py), state.name.clone())) else {
        return format!("argument {k}");
    };
    let body = body.bind(py);
    let parameter = || -> PyResult<Option<String>> {
        let code = body.getattr("__code__")?;
        let at = k + usize::from(body.hasattr("__self__")?);
        if at >= code.getattr("co_argcount")?.extract()? {
            return Ok(None);
        }
        code.getattr("co_varnames")?.get_item(at)?.extract().map(Some)
    };
    match quietly(py, parameter).flatten() {
        Some(parameter) => format!("{name}: argument {parameter}"),
        None => format!("{name}: argument {k}"),
    }
}

/// Arguments with Arrays of their graph for Values and Vectors.
pub fn without_values<'py>(py: Python<'py>, positional: &[Bound<'py, PyAny>]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let array = |leaf: Bound<'py, PyAny>| match is_of_graph(&leaf) {
        true => Ok(array_of(leaf, &PyTuple::empty(py))?.into_any()),
        false => Ok(leaf),
    };
    let of = |argument| {
        let mut leaves = Vec::new();
        let nest = Nest::of(argument, &mut leaves)?;
        nest.build(py, &mut leaves.into_iter().map(array).collect::<PyResult<Vec<_>>>()?.into_iter())
    };
    positional.iter().map(of).collect()
}

/// Whether there are Values or Vectors among arguments.
pub fn hold_values(positional: &[Bound<'_, PyAny>]) -> PyResult<bool> {
    let mut leaves = Vec::new();
    positional.iter().try_for_each(|argument| Nest::of(argument, &mut leaves).map(drop))?;
    Ok(leaves.iter().any(is_of_graph))
}

/// Split arguments.
pub struct Arguments<'py> {
    /// The tuple's shape.
    pub tree: Tree,
    /// Its numbers.
    pub numbers: Vec<f64>,
    /// Keyword arguments.
    pub statics: Option<Bound<'py, PyDict>>,
}

impl<'py> Arguments<'py> {
    /// Splits the arguments of a call; returns other kinds if there are more than numbers.
    pub fn read(call: &Call<'py>, positional: &[Bound<'py, PyAny>]) -> PyResult<Result<Self, Others>> {
        let mut numbers = Vec::new();
        let mut items = Vec::with_capacity(positional.len());
        let mut others = None;
        for (k, x) in positional.iter().enumerate() {
            let found = Tree::of(x, &mut numbers, 0).map_err(|wrong| {
                let what = argument_name(call, k);
                wrong.into_python(call.py(), &what)
            })?;
            match found {
                GivenArguments::Numbers(tree) => items.push(tree),
                GivenArguments::Others(found) => others = others.max(Some(found)),
            }
        }
        if let Some(others) = others {
            return Ok(Err(others));
        }
        let statics = statics(call)?;
        Ok(Ok(Arguments { tree: Tree::Sequence { is_tuple: true, items }, numbers, statics }))
    }

    /// As `read`, for methods that handle Arrays, or arrays that are traced as such, elsewhere: `None`.
    pub fn unless_arrays(call: &Call<'py>, positional: &[Bound<'py, PyAny>], method: &str) -> PyResult<Option<Self>> {
        if array_calls::is_meant(call)? {
            return Ok(None);
        }
        match Self::read(call, positional)? {
            Ok(arguments) => Ok(Some(arguments)),
            Err(Others::Values) if crate::convert::refusals::is_tracing() => {
                Err(crate::convert::refusals::needs_arrays(call.py(), &format!("{method}()")))
            }
            Err(Others::Values) => Err(no_numbers(method, Others::Values)),
            Err(_) => Ok(None),
        }
    }

    /// As `read`, for methods that take only numbers.
    pub fn numbers_only(call: &Call<'py>, positional: &[Bound<'py, PyAny>], method: &str) -> PyResult<Self> {
        Self::read(call, positional)?.map_err(|others| no_numbers(method, others))
    }
}

/// The error of a method that takes only numbers.
pub fn no_numbers(method: &str, others: Others) -> PyErr {
    PyTypeError::new_err(match others {
        Others::Values => format!("{method}() takes numbers; call the function itself with Values, then backward()"),
        _ => format!("{method}() takes numbers and arrays of one dimension"),
    })
}

/// The keyword arguments of a call, for the body.
pub fn statics<'py>(call: &Call<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
    Ok(if call.named.is_empty() {
        None
    } else {
        let dict = PyDict::new(call.py());
        for (name, value) in &call.named {
            if let Err(error) = value.hash() {
                let is_array = Array::of(value).is_some();
                let or = if is_array { ": pass arrays by position" } else { "" };
                let message =
                    format!("the static argument {name} must be hashable, because each value is traced separately{or}");
                let refusal = keywords::check(call).err().unwrap_or_else(|| PyTypeError::new_err(message));
                return Err(instead(call.py(), error, refusal));
            }
            dict.set_item(name, value)?;
        }
        Some(dict)
    })
}

/// Whether static arguments are equal, and of equal types: 1, 1.0 and True are not the same.
pub fn same_statics(a: &Bound<'_, PyDict>, b: &Bound<'_, PyDict>) -> PyResult<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (name, x) in a.iter() {
        match b.get_item(name)? {
            Some(y) if same_static(&x, &y, 0)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether two static arguments are the same, even inside tuples and sets: 0.0 and -0.0 are not, nor are (1,) and (1.0,).
fn same_static(x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>, depth: usize) -> PyResult<bool> {
    if x.is(y) {
        return Ok(true);
    }
    if !x.get_type().is(y.get_type()) {
        return Ok(false);
    }
    if let (Ok(x), Ok(y)) = (x.cast::<PyFloat>(), y.cast::<PyFloat>())
        && x.value().to_bits() != y.value().to_bits()
    {
        return Ok(false);
    }
    if let (Ok(x), Ok(y)) = (x.cast::<PyTuple>(), y.cast::<PyTuple>()) {
        if x.len() != y.len() || depth > 32 {
            return Ok(false);
        }
        for (x, y) in x.iter().zip(y.iter()) {
            if !same_static(&x, &y, depth + 1)? {
                return Ok(false);
            }
        }
    }
    // Equal objects may have different texts, such as zeros and integers inside them.
    let is_same_text = || -> PyResult<bool> { Ok(x.repr()?.to_cow()? == y.repr()?.to_cow()?) };
    let is_exact = attributes::is_plain(x) && !x.is_instance_of::<PyComplex>();
    Ok(x.eq(y)? && (is_exact || x.cast_exact::<PyTuple>().is_ok() || is_same_text()?))
}
