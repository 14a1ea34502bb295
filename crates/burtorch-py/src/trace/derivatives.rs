//! Derivatives of a traced function beyond one gradient.

use burtorch_core::program::derive::{Against, Along, HessianAlong, Jacobian, row_alone};
use burtorch_core::program::sparse::Hessian;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::arguments::Arguments;
use super::calls::with_program;
use super::gradients::shaped;
use super::into_arrays::{self, Out, call_into};
use super::object::Call;
use super::pytree::{GivenArguments, Tree};
use super::state::Path;
use super::transform::Argnums;
use super::transforms::call_derived;
use crate::convert::arrays::{Array, Kind, filled};
use crate::convert::errors::{IntoPython, derived};

/// Runs `f` on the path for these arguments; it must return one Value.
pub(super) fn with_scalar<T>(
    call: &Call<'_>,
    arguments: &Arguments<'_>,
    method: &str,
    f: impl FnOnce(&mut Path) -> burtorch_core::Result<T>,
) -> PyResult<T> {
    let py = call.py();
    let found = with_program(call, arguments, |path| match path.results {
        Tree::Number => Ok(f(path)),
        _ => Err(path.results.text(py)),
    })?;
    match found {
        Ok(result) => result.or_raise(py),
        Err(shape) => {
            let name = call.with(|state| state.name.clone())?;
            let message = format!("{method}() needs a function that returns one Value; {name} returned {shape}");
            Err(derived(py, "TraceError", message))
        }
    }
}

/// The value of an option, created at first use.
pub(super) fn ready<T>(
    place: &mut Option<T>,
    make: impl FnOnce() -> burtorch_core::Result<T>,
) -> burtorch_core::Result<&mut T> {
    if place.is_none() {
        *place = Some(make()?);
    }
    place.as_mut().ok_or(burtorch_core::Error::Interrupted)
}

/// Arguments, then a direction for each: `f.jvp(x, v)`, `f.jvp(x, y, vx, vy)`.
fn with_direction<'py>(call: &Call<'py>, method: &str) -> PyResult<Option<(Arguments<'py>, Vec<f64>)>> {
    let [positional, along] = Argnums::All.with_directions(method, &call.positional)?;
    let Some(arguments) = Arguments::unless_arrays(call, positional, method)? else { return Ok(None) };
    let Some(direction) = Arguments::unless_arrays(call, along, method)? else { return Ok(None) };
    if let Some(place) = arguments.tree.differs(call.py(), &direction.tree) {
        let message = format!(
            "{method}() takes a direction with the structure of the arguments, {}, found {}, which differs at argument {place}",
            arguments.tree.text(call.py()),
            direction.tree.text(call.py())
        );
        return Err(derived(call.py(), "TraceError", message));
    }
    if direction.numbers.len() != arguments.numbers.len() {
        return Err(PyValueError::new_err(format!(
            "{method}() was given a direction of {} numbers for arguments of {}",
            direction.numbers.len(),
            arguments.numbers.len()
        )));
    }
    Ok(Some((arguments, direction.numbers)))
}

/// `f.jvp(x, v)`: values, and their derivative along v.
pub fn jvp<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let Some((arguments, direction)) = with_direction(&call, "jvp")? else {
        return call_derived(&call, "jvp", Argnums::All);
    };
    let (values, tangents, results) = with_program(&call, &arguments, |path| {
        let (mut values, mut tangents) =
            (vec![0.0; path.program.outputs().len()], vec![0.0; path.program.outputs().len()]);
        let x = path.inputs(&arguments.numbers);
        let along = ready(&mut path.along, || Along::new(&path.program))?;
        along.run(&x, &direction, &mut values, &mut tangents);
        Ok((values, tangents, path.results.copy(py)))
    })?
    .or_raise(py)?;
    let both = (results.build(py, &mut &values[..])?, results.build(py, &mut &tangents[..])?);
    Ok(both.into_pyobject(py)?.into_any())
}

/// `f.vjp(x, w)`: values, and the gradient of their sum weighted by w.
pub fn vjp<'py>(mut call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let Some(weights) = call.positional.pop() else {
        return Err(PyTypeError::new_err("vjp() takes the arguments followed by weights with the shape of the result"));
    };
    let Some(arguments) = Arguments::unless_arrays(&call, &call.positional, "vjp")? else {
        call.positional.push(weights);
        return call_derived(&call, "vjp", Argnums::All);
    };
    let mut seeds = Vec::new();
    let found = Tree::of(&weights, &mut seeds, 0).map_err(|wrong| wrong.into_python(py, "the weights of vjp()"))?;
    // Integers, or of several axes.
    let array = if matches!(found, GivenArguments::Numbers(_)) { None } else { Array::of(&weights) };
    match (found, array) {
        (GivenArguments::Numbers(_), _) => {}
        (_, Some(array)) => seeds = array.floats(),
        _ => return Err(PyTypeError::new_err("the weights of vjp() must be numbers")),
    }
    let found = with_program(&call, &arguments, |path| {
        let n = path.program.outputs().len();
        if seeds.len() != n {
            return Ok(Err(n));
        }
        let (mut values, mut gradient) = (vec![0.0; n], vec![0.0; arguments.numbers.len()]);
        let x = path.inputs(&arguments.numbers);
        let against = ready(&mut path.against, || Against::new(&path.program))?;
        against.values(&x, &mut values);
        against.pull(&seeds, &mut gradient);
        Ok(Ok((values, gradient, path.results.copy(py))))
    })?
    .or_raise(py)?;
    let (values, gradient, results) = found.map_err(|n| {
        PyValueError::new_err(format!("vjp() was given {} weights for a result of {n} numbers", seeds.len()))
    })?;
    let both = (results.build(py, &mut &values[..])?, shaped(py, &arguments.tree, &gradient, &Argnums::All)?);
    Ok(both.into_pyobject(py)?.into_any())
}

/// `f.hvp(x, v)`: the Hessian times v.
pub fn hvp<'py>(mut call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    if let Some(which) = call.take("argnums") {
        return call_derived(&call, "hvp", Argnums::of(Some(&which))?);
    }
    let Some((arguments, direction)) = with_direction(&call, "hvp")? else {
        return call_derived(&call, "hvp", Argnums::All);
    };
    let product = with_scalar(&call, &arguments, "hvp", |path| {
        let x = path.inputs(&arguments.numbers);
        let (mut gradient, mut product) = (vec![0.0; direction.len()], vec![0.0; direction.len()]);
        let along = ready(&mut path.hessian_along, || HessianAlong::new(&path.program))?;
        along.run(&x, &direction, &mut gradient, &mut product);
        Ok(product)
    })?;
    shaped(call.py(), &arguments.tree, &product, &Argnums::All)
}

/// `f.hessian(x)`
pub fn hessian<'py>(mut call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let (which, out) = (call.take("argnums"), Out::take(&mut call)?);
    if let Some(which) = which {
        return call_into(&call, "hessian", Argnums::of(Some(&which))?, out, false);
    }
    let Some(arguments) = Arguments::unless_arrays(&call, &call.positional, "hessian")? else {
        return call_into(&call, "hessian", Argnums::All, out, false);
    };
    let n = arguments.numbers.len();
    let entries = with_scalar(&call, &arguments, "hessian", |path| {
        let x = path.inputs(&arguments.numbers);
        let mut entries = vec![0.0; n * n];
        ready(&mut path.hessian, || Hessian::new(&path.program))?.dense(&path.program, &x, &mut entries)?;
        Ok(entries)
    })?;
    into_arrays::filled(filled(call.py(), &[n, n], Kind::F64, &entries)?, out)
}

/// `f.jacobian(x)`
pub fn jacobian<'py>(mut call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let (which, out) = (call.take("argnums"), Out::take(&mut call)?);
    if let Some(which) = which {
        return call_into(&call, "jacobian", Argnums::of(Some(&which))?, out, false);
    }
    let py = call.py();
    let Some(arguments) = Arguments::unless_arrays(&call, &call.positional, "jacobian")? else {
        return call_into(&call, "jacobian", Argnums::All, out, false);
    };
    let n = arguments.numbers.len();
    let (entries, m, is_scalar) = with_program(&call, &arguments, |path| {
        let m = path.program.outputs().len();
        let x = path.inputs(&arguments.numbers);
        let mut entries = vec![0.0; m * n];
        let jacobian = ready(&mut path.jacobian, || Jacobian::new(&path.program))?;
        if !jacobian.run(&x, &mut entries)? {
            // A zero seed may have met an infinite partial: each row computed separately decides.
            for (k, row) in entries.chunks_exact_mut(n).enumerate() {
                row_alone(&path.program, k, &x, row)?;
            }
        }
        Ok((entries, m, matches!(path.results, Tree::Number)))
    })?
    .or_raise(py)?;
    let extents = if is_scalar { &[n][..] } else { &[m, n] };
    into_arrays::filled(filled(py, extents, Kind::F64, &entries)?, out)
}
