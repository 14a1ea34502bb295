//! `bt.grad` and the other transforms, and the array methods of Functions.
//!
//! Promises: each returns a Function, traced with arrays; a Function keeps its derivatives, so each is traced once.

use burtorch_core::array::OverRows;
use burtorch_core::{Float, Parameters};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::object::Call;
use super::object_type::{made, options_of};
use super::state::FunctionState;
use super::transform::{Argnums, Derived, Rule, Transform};
use crate::array::append::innermost_of;
use crate::array::trace::current;
use crate::convert::arrays::Array;
use crate::convert::buffer::type_name;
use crate::params::{PyParameters, with_params};

/// A Function whose body is a transform, traced as `f` is.
pub(super) fn function<'py>(f: &Bound<'py, PyAny>, transform: Transform) -> PyResult<Bound<'py, PyAny>> {
    let py = f.py();
    let body = Bound::new(py, transform)?.into_any();
    let mut state = FunctionState::new(&body, options_of(f).unwrap_or_default());
    state.uses_arrays = true;
    made(py, state)
}

/// A transform of `f`, which must be a function.
pub(super) fn transform(
    f: &Bound<'_, PyAny>,
    name: &'static str,
    rule: Rule,
    argnums: Argnums,
    has_aux: bool,
) -> PyResult<Transform> {
    if !f.is_callable() {
        let found = type_name(f);
        return Err(PyTypeError::new_err(format!("{name}() takes a function, found {found}")));
    }
    Ok(Transform::new(name, rule, f.clone().unbind(), argnums, has_aux))
}

/// A transform of the gradient.
fn of_gradient(
    f: &Bound<'_, PyAny>,
    name: &'static str,
    rule: Rule,
    argnums: Argnums,
    has_aux: bool,
) -> PyResult<Transform> {
    let gradient = transform(f, name, Rule::Grad { with_value: false }, argnums.clone(), has_aux)?;
    let gradient = Bound::new(f.py(), gradient)?.into_any();
    transform(&gradient, name, rule, argnums, has_aux)
}

/// A transform: the cached one of a Function, so that it is traced only once, else a new one.
fn kept_or<'py>(
    f: &Bound<'py, PyAny>,
    name: &'static str,
    (argnums, has_aux): (Argnums, bool),
    make: impl FnOnce(Argnums) -> PyResult<Transform>,
) -> PyResult<Bound<'py, PyAny>> {
    if options_of(f).is_some() && !has_aux {
        return function_for(&Call::of(f.clone()), name, argnums);
    }
    function(f, make(argnums)?)
}

fn argnums_of(argnums: Option<&Bound<'_, PyAny>>) -> PyResult<Argnums> {
    argnums.map_or(Ok(Argnums::One(0)), |which| Argnums::of(Some(which)))
}

/// The gradient of a function that returns one float, as a function of the same arguments.
///
/// Args:
///     f: a function of numbers, arrays, and lists, tuples and dicts of them; or a Function or a transform.
///     argnums: the argument to differentiate with respect to, or several, for a tuple of gradients.
///     has_aux: f returns (result, auxiliary data), and the result is (gradient, auxiliary data).
///
/// Raises, when called:
///     TypeError: an argument of argnums contains integers.
///     TraceError: f does not return a single float of shape ().
///
/// The gradient has the structure of its argument. f is traced once for each combination of shapes and dtypes; keyword
/// arguments are static. Transforms nest in any order.
///
/// Example:
///     >>> import burtorch as bt
///     >>> bt.grad(lambda x: x**3)(2.0)
///     12.0
///     >>> bt.grad(bt.grad(lambda x: x**3))(2.0)
///     12.0
#[pyfunction]
#[pyo3(signature = (f, argnums=None, has_aux=false), text_signature = "(f, argnums=0, has_aux=False)")]
fn grad<'py>(f: &Bound<'py, PyAny>, argnums: Option<&Bound<'py, PyAny>>, has_aux: bool) -> PyResult<Bound<'py, PyAny>> {
    kept_or(f, "grad", (argnums_of(argnums)?, has_aux), |argnums| {
        transform(f, "grad", Rule::Grad { with_value: false }, argnums, has_aux)
    })
}

/// The value and the gradient of a function that returns one float, as a function of the same arguments.
///
/// As `grad`, with the value first: (value, gradient), or ((value, auxiliary data), gradient) with has_aux.
///
/// Example:
///     >>> import burtorch as bt
///     >>> bt.value_and_grad(lambda x, y: x * y, argnums=(0, 1))(2.0, 3.0)
///     (6.0, (3.0, 2.0))
#[pyfunction]
#[pyo3(signature = (f, argnums=None, has_aux=false), text_signature = "(f, argnums=0, has_aux=False)")]
fn value_and_grad<'py>(
    f: &Bound<'py, PyAny>,
    argnums: Option<&Bound<'py, PyAny>>,
    has_aux: bool,
) -> PyResult<Bound<'py, PyAny>> {
    kept_or(f, "value_and_grad", (argnums_of(argnums)?, has_aux), |argnums| {
        transform(f, "value_and_grad", Rule::Grad { with_value: true }, argnums, has_aux)
    })
}

/// The Jacobian of a function, as a function of the same arguments: for each result and each argument of argnums, an array of
/// the result's shape followed by the argument's.
///
/// Uses forward mode if the arguments contain no more numbers than the results, else reverse mode; all columns,
/// or all rows, at once, which needs the memory of as many calls.
///
/// Example:
///     >>> import burtorch as bt
///     >>> bt.jacobian(lambda x: [x * x, 3.0 * x])(2.0)
///     [4.0, 3.0]
#[pyfunction]
#[pyo3(signature = (f, argnums=None, has_aux=false), text_signature = "(f, argnums=0, has_aux=False)")]
fn jacobian<'py>(
    f: &Bound<'py, PyAny>,
    argnums: Option<&Bound<'py, PyAny>>,
    has_aux: bool,
) -> PyResult<Bound<'py, PyAny>> {
    kept_or(f, "jacobian", (argnums_of(argnums)?, has_aux), |argnums| {
        transform(f, "jacobian", Rule::Jacobian, argnums, has_aux)
    })
}

/// The Hessian of a function that returns one float, as a function of the same arguments: the Jacobian of its gradient,
/// forward mode over reverse mode.
///
/// Example:
///     >>> import burtorch as bt
///     >>> bt.hessian(lambda x: x**3)(2.0)
///     12.0
#[pyfunction]
#[pyo3(signature = (f, argnums=None, has_aux=false), text_signature = "(f, argnums=0, has_aux=False)")]
fn hessian<'py>(
    f: &Bound<'py, PyAny>,
    argnums: Option<&Bound<'py, PyAny>>,
    has_aux: bool,
) -> PyResult<Bound<'py, PyAny>> {
    kept_or(f, "hessian", (argnums_of(argnums)?, has_aux), |argnums| {
        of_gradient(f, "hessian", Rule::Jacobian, argnums, has_aux)
    })
}

/// Result and directional derivative: `jvp(f)(x, ..., v, ...)` is (f(x, ...), derivative along v, ...), where the arguments are
/// followed by one direction each.
///
/// `jvp(f, primals, tangents)`, with tuples of arguments and of directions, is an immediate call, as in JAX. With has_aux the
/// auxiliary data are the last of three.
///
/// Example:
///     >>> import burtorch as bt
///     >>> bt.jvp(lambda x: x**3)(2.0, 1.0)
///     (8.0, 12.0)
///     >>> bt.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.0))
///     (6.0, 3.0)
#[pyfunction]
#[pyo3(signature = (f, primals=None, tangents=None, has_aux=false))]
fn jvp<'py>(
    f: &Bound<'py, PyAny>,
    primals: Option<&Bound<'py, PyAny>>,
    tangents: Option<&Bound<'py, PyAny>>,
    has_aux: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let along = kept_or(f, "jvp", (Argnums::All, has_aux), |argnums| {
        transform(f, "jvp", Rule::Jvp { with_value: true }, argnums, has_aux)
    })?;
    at_once(along, "jvp", primals, tangents)
}

/// The Hessian times a direction: `hvp(f)(x, ..., v, ...)`, where the arguments are followed by one direction each, or by one for
/// each argument of argnums, by which f is then differentiated.
///
/// `hvp(f, primals, tangents)` is an immediate call. Costs a few times as much as the gradient; the Hessian is never formed.
///
/// Example:
///     >>> import burtorch as bt
///     >>> bt.hvp(lambda x: x**3)(2.0, 1.0)
///     12.0
#[pyfunction]
#[pyo3(signature = (f, primals=None, tangents=None, *, argnums=None))]
fn hvp<'py>(
    f: &Bound<'py, PyAny>,
    primals: Option<&Bound<'py, PyAny>>,
    tangents: Option<&Bound<'py, PyAny>>,
    argnums: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let product = kept_or(f, "hvp", (Argnums::of(argnums)?, false), |argnums| {
        of_gradient(f, "hvp", Rule::Jvp { with_value: false }, argnums, false)
    })?;
    at_once(product, "hvp", primals, tangents)
}

fn at_once<'py>(
    function: Bound<'py, PyAny>,
    name: &str,
    primals: Option<&Bound<'py, PyAny>>,
    tangents: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match (primals, tangents) {
        (None, None) => Ok(function),
        (Some(primals), Some(tangents)) => {
            let both = [("primals", primals), ("tangents", tangents)];
            if let Some((which, found)) =
                both.iter().find(|(_, all)| !all.is_instance_of::<PyTuple>() && !all.is_instance_of::<PyList>())
            {
                let found = type_name(found);
                let message =
                    format!("{name}() takes {which} as a tuple with an entry for each argument, found {found}");
                return Err(PyTypeError::new_err(message));
            }
            let all = primals.try_iter()?.chain(tangents.try_iter()?).collect::<PyResult<Vec<_>>>()?;
            function.call1(PyTuple::new(function.py(), all)?)
        }
        _ => Err(PyTypeError::new_err(format!("{name}() takes primals and tangents, or neither"))),
    }
}

/// The result and the gradient of its weighted sum: `vjp(f)(x, ..., w)` is (f(x, ...), gradient), with weights w in the
/// structure of the result; the gradient is that by the only argument, or a tuple by all.
///
/// `burtorch.vjp` calls this and has JAX's signature as well.
#[pyfunction]
#[pyo3(signature = (f, has_aux=false))]
fn vjp<'py>(f: &Bound<'py, PyAny>, has_aux: bool) -> PyResult<Bound<'py, PyAny>> {
    kept_or(f, "vjp", (Argnums::All, has_aux), |argnums| transform(f, "vjp", Rule::Vjp, argnums, has_aux))
}

/// The axes argument: None differs from a missing argument.
struct Axes(Option<Py<PyAny>>);

impl<'a, 'py> FromPyObject<'a, 'py> for Axes {
    type Error = PyErr;
    fn extract(axes: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Axes(Some(axes.to_owned().unbind())))
    }
}

/// A function mapped over many rows: each argument has one more axis, along which the function is applied.
///
/// Args:
///     f: the function of one row.
///     in_axes: the axis of every argument, None for arguments shared by all rows, or a tuple with one of these per argument;
///         for lists, tuples and dicts, containers of them.
///     out_axes: likewise the axis of results; None for a result that is the same for all rows.
///     reduce: "sum" or "mean" of the results over the rows, instead of all results.
///
/// Raises, when called:
///     ValueError: axes that do not exist, or of different lengths.
///     TraceError: f uses the truth value of an Array that differs from row to row; use bt.where.
///
/// Row k of a result has the bits of `f` called with row k alone, as an Array, unless matrix products are combined into larger ones.
/// With reduce=, rows are added in blocks, in a fixed order, and so are gradients with respect to shared arguments: no array
/// holds one gradient per row.
///
/// Example:
///     >>> import burtorch as bt, numpy as np
///     >>> bt.vmap(bt.grad(lambda x: x**3))(np.array([1.0, 2.0]))
///     array([ 3., 12.])
///     >>> total = bt.vmap(lambda w, x: w * x, in_axes=(None, 0), reduce="sum")
///     >>> bt.value_and_grad(total)(2.0, np.array([1.0, 2.0, 3.0]))
///     (12.0, 6.0)
#[pyfunction]
#[pyo3(
    signature = (f, in_axes=Axes(None), out_axes=Axes(None), reduce=None),
    text_signature = "(f, in_axes=0, out_axes=0, reduce=None)"
)]
fn vmap<'py>(
    f: &Bound<'py, PyAny>,
    in_axes: Axes,
    out_axes: Axes,
    reduce: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = f.py();
    let zero = || Ok::<_, PyErr>(0_isize.into_pyobject(py)?.into_any().unbind());
    let reduce = match reduce {
        None => None,
        Some("sum") => Some(OverRows::Sum),
        Some("mean") => Some(OverRows::Mean),
        Some(found) => {
            let message = format!("reduce must be \"sum\", \"mean\" or None, found {found:?}");
            return Err(PyValueError::new_err(message));
        }
    };
    if reduce.is_some() && out_axes.0.is_some() {
        return Err(PyValueError::new_err("out_axes is for results of each row; leave it out, or reduce"));
    }
    let in_axes = in_axes.0.map_or_else(zero, Ok)?;
    let rule = Rule::Vmap { in_axes, out_axes: out_axes.0.map_or_else(zero, Ok)?, reduce };
    function(f, transform(f, "vmap", rule, Argnums::All, false)?)
}

/// A method of a Function for arrays: its Function of that name, called with the same arguments.
pub fn call_derived<'py>(call: &Call<'py>, name: &'static str, argnums: Argnums) -> PyResult<Bound<'py, PyAny>> {
    super::keywords::check(call)?;
    let function = function_for(call, name, argnums)?;
    if call.named.is_empty() {
        return function.call1(PyTuple::new(call.py(), &call.positional)?);
    }
    let named = PyDict::new(call.py());
    for (name, value) in &call.named {
        named.set_item(name, value)?;
    }
    function.call(PyTuple::new(call.py(), &call.positional)?, Some(&named))
}

/// The Function of that name derived from the called one.
pub(super) fn function_for<'py>(call: &Call<'py>, name: &'static str, argnums: Argnums) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let key = Derived(name, argnums);
    let known = call.with(|state| {
        state.derived.iter().find(|(known, _)| *known == key).map(|(_, function)| function.clone_ref(py))
    })?;
    if let Some(function) = known {
        return Ok(function.into_bound(py));
    }
    let made = derived(&call.function, &key)?;
    call.with(|state| state.derived.push((key, made.clone().unbind())))?;
    Ok(made)
}

/// `f.value_and_param_grad(x, ...)`: the gradient goes to the Parameters, too.
pub fn value_and_param_grad<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let name = "value_and_param_grad";
    let found = call_derived(&call, name, Argnums::All)?;
    if current(py).is_some() || innermost_of(py, &call.positional).is_some() {
        return Ok(found);
    }
    let (value, gradients): (Bound<'py, PyAny>, Bound<'py, PyAny>) = found.extract()?;
    let made = Call::of(function_for(&call, name, Argnums::All)?);
    let sets = made.with(|state| {
        let path = state.arrays.first().and_then(|variant| variant.paths.first());
        path.map_or_else(Vec::new, |path| path.sets().iter().map(|set| set.clone_ref(py)).collect())
    })?;
    let gradients = match gradients.cast::<PyTuple>() {
        Ok(all) => all.iter().collect(),
        Err(_) => vec![gradients],
    };
    let mut views = Vec::with_capacity(sets.len());
    for (set, gradient) in sets.iter().zip(&gradients) {
        let numbers = Array::of(gradient).map_or_else(Vec::new, |array| array.floats());
        set.get().with(py, |params| with_params!(params, p => write_gradient(p, &numbers)))?;
        views.push(PyParameters::grads_array(set.bind(py))?.into_pyobject(py)?.into_any());
    }
    let views = if let [one] = &views[..] { one.clone() } else { PyTuple::new(py, views)?.into_any() };
    Ok(PyTuple::new(py, [value, views])?.into_any())
}

/// Replaces the gradients of trainable numbers.
fn write_gradient<E: Float>(params: &mut Parameters<'_, E>, numbers: &[f64]) {
    let mut ranges = Vec::new();
    params.for_each_trainable(|range| ranges.push(range));
    let grads = params.grads_mut();
    for k in ranges.into_iter().flatten() {
        if let (Some(to), Some(&x)) = (grads.get_mut(k), numbers.get(k)) {
            *to = E::from_f64(x);
        }
    }
}

fn derived<'py>(f: &Bound<'py, PyAny>, Derived(name, argnums): &Derived) -> PyResult<Bound<'py, PyAny>> {
    let py = f.py();
    let zero = || Ok::<_, PyErr>(0_isize.into_pyobject(py)?.into_any().unbind());
    let argnums = argnums.clone();
    // The body itself, so that a Function does not refer to itself through these.
    let body = &f.getattr("__wrapped__")?;
    let made = match *name {
        "grad" => transform(body, name, Rule::Grad { with_value: false }, argnums, false)?,
        "value_and_grad" => transform(body, name, Rule::Grad { with_value: true }, argnums, false)?,
        "jacobian" => transform(body, name, Rule::Jacobian, argnums, false)?,
        "hessian" => of_gradient(body, name, Rule::Jacobian, argnums, false)?,
        "sparse_jacobian" => transform(body, name, Rule::Sparse { is_pattern: false }, argnums, false)?,
        "jacobian_sparsity" => transform(body, name, Rule::Sparse { is_pattern: true }, argnums, false)?,
        "sparse_hessian" => of_gradient(body, name, Rule::Sparse { is_pattern: false }, argnums, false)?,
        "hessian_sparsity" => of_gradient(body, name, Rule::Sparse { is_pattern: true }, argnums, false)?,
        "jvp" => transform(body, name, Rule::Jvp { with_value: true }, argnums, false)?,
        "hvp" => of_gradient(body, name, Rule::Jvp { with_value: false }, argnums, false)?,
        "vjp" => transform(body, name, Rule::Vjp, argnums, false)?,
        "value_and_param_grad" => transform(body, name, Rule::ParamGrad, argnums, false)?,
        _ => {
            let rows = Rule::Vmap { in_axes: zero()?, out_axes: zero()?, reduce: None };
            if *name == "map" {
                transform(body, name, rows, argnums, false)?
            } else {
                let both = transform(body, "value_and_grad", Rule::Grad { with_value: true }, argnums, false)?;
                transform(Bound::new(py, both)?.as_any(), name, rows, Argnums::All, false)?
            }
        }
    };
    function(f, made)
}

/// Adds the transforms to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(grad, m)?)?;
    m.add_function(wrap_pyfunction!(value_and_grad, m)?)?;
    m.add_function(wrap_pyfunction!(jacobian, m)?)?;
    m.add_function(wrap_pyfunction!(hessian, m)?)?;
    m.add_function(wrap_pyfunction!(jvp, m)?)?;
    m.add_function(wrap_pyfunction!(hvp, m)?)?;
    m.add_function(wrap_pyfunction!(vjp, m)?)?;
    m.add_function(wrap_pyfunction!(vmap, m)?)
}
