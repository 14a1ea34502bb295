//! Derivatives of a traced function beyond one gradient.

use std::sync::Arc;

use burtorch_core::Program;
use burtorch_core::interrupt::Work;
use burtorch_core::program::derive::{
    self, Against, Along, HessianAlong, HessianColumns, Jacobian, columns, row_alone,
};
use burtorch_core::program::sparsity::{Pattern, hessian_pattern, jacobian_pattern};
use burtorch_core::program::{Build, Replay};
use pyo3::exceptions::{PyImportError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyTuple};

use super::arguments::Arguments;
use super::calls::with_program;
use super::gradients::shaped;
use super::object::Call;
use super::out::{self, Out, call_into, fill_sparse};
use super::pytree::{GivenArguments, Tree};
use super::state::Path;
use super::transform::Argnums;
use super::transforms::call_derived;
use crate::convert::arrays::{Kind, filled};
use crate::convert::errors::{IntoPython, derived};
use crate::convert::signals::asked;

/// Runs `f` on the path for these arguments; it must return one Value.
fn with_scalar<T>(
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
fn ready<T>(place: &mut Option<T>, make: impl FnOnce() -> burtorch_core::Result<T>) -> burtorch_core::Result<&mut T> {
    if place.is_none() {
        *place = Some(make()?);
    }
    place.as_mut().ok_or(burtorch_core::Error::Interrupted)
}

/// Arguments, then a direction for each: `f.jvp(x, v)`, `f.jvp(x, y, vx, vy)`.
fn with_direction<'py>(call: &Call<'py>, method: &str) -> PyResult<Option<(Arguments<'py>, Vec<f64>)>> {
    let n = call.positional.len();
    if n == 0 || !n.is_multiple_of(2) {
        let message = format!("{method}() takes the arguments followed by as many directions, found {n} in total");
        return Err(PyTypeError::new_err(message));
    }
    let Some(arguments) = Arguments::unless_arrays(call, &call.positional[..n / 2], method)? else { return Ok(None) };
    let Some(direction) = Arguments::unless_arrays(call, &call.positional[n / 2..], method)? else { return Ok(None) };
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
    let GivenArguments::Numbers(_) = found else {
        return Err(PyTypeError::new_err("the weights of vjp() must be numbers"));
    };
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
pub fn hvp<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
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
        let columns = ready(&mut path.hessian_columns, || HessianColumns::new(&path.program))?;
        derive::hessian(&path.program, columns, &x, &mut entries)?;
        Ok(entries)
    })?;
    out::filled(filled(call.py(), &[n, n], Kind::F64, &entries)?, out)
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
    out::filled(filled(py, extents, Kind::F64, &entries)?, out)
}

/// A scipy.sparse matrix in rows.
fn sparse<'py>(py: Python<'py>, pattern: &Pattern, n: usize, data: &[f64]) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import("scipy.sparse").map_err(|error| {
        if !error.is_instance_of::<PyImportError>(py) {
            return error;
        }
        let new = PyImportError::new_err("sparse matrices need SciPy: pip install scipy");
        new.set_cause(py, Some(error));
        new
    })?;
    let entries = filled(py, &[data.len()], Kind::F64, data)?;
    let numpy = py.import("numpy")?;
    if i32::try_from(data.len()).is_err() {
        let message = format!("a sparse matrix has at most 2**31 - 1 entries, found {}", data.len());
        return Err(PyValueError::new_err(message));
    }
    let indices = |len: usize, of: &dyn Fn(usize) -> u32| {
        let bytes = PyByteArray::new_with(py, 4 * len, |bytes| {
            bytes.as_chunks_mut::<4>().0.iter_mut().enumerate().for_each(|(k, to)| *to = of(k).to_ne_bytes());
            Ok(())
        })?;
        numpy.call_method1("frombuffer", (bytes, "int32"))
    };
    let columns = indices(pattern.columns.len(), &|k| pattern.columns[k])?;
    let starts = indices(pattern.starts.len(), &|k| pattern.starts[k] as u32)?;
    let parts = PyTuple::new(py, [entries, columns, starts])?;
    module.call_method1("csr_matrix", (parts, (pattern.n_rows(), n)))
}

/// Runs `f` on a copy of the path's program.
fn program_at(call: &Call<'_>, arguments: &Arguments<'_>) -> PyResult<(Program, Vec<f64>, bool)> {
    with_program(call, arguments, |path| {
        (path.program.clone(), path.inputs(&arguments.numbers), matches!(path.results, Tree::Number))
    })
}

/// `f.jacobian_sparsity(x)`
pub fn jacobian_sparsity<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let arguments = Arguments::numbers_only(&call, &call.positional, "jacobian_sparsity")?;
    let (program, ..) = program_at(&call, &arguments)?;
    let pattern = asked(|| jacobian_pattern(&program)).or_raise(call.py())?;
    sparse(call.py(), &pattern, arguments.numbers.len(), &vec![1.0; pattern.columns.len()])
}

/// `f.hessian_sparsity(x)`
pub fn hessian_sparsity<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let arguments = Arguments::numbers_only(&call, &call.positional, "hessian_sparsity")?;
    let program = with_scalar(&call, &arguments, "hessian_sparsity", |path| Ok(path.program.clone()))?;
    let pattern = asked(|| hessian_pattern(&program)).or_raise(call.py())?;
    sparse(call.py(), &pattern, arguments.numbers.len(), &vec![1.0; pattern.columns.len()])
}

/// Numbers that can be computed in the time of one look-up of an entry.
const ENTRY: usize = 16;

/// A pattern, and the direction of each of its entries: computed once per path.
pub struct Colouring {
    pattern: Arc<Pattern>,
    colours: Vec<u32>,
    n_colours: usize,
    /// The entries of each row by ascending colour.
    order: Vec<usize>,
}

impl Colouring {
    fn of(pattern: Pattern, n: usize) -> burtorch_core::Result<Self> {
        let (colours, n_colours) = pattern.colours(n)?;
        let mut order: Vec<_> = (0..pattern.columns.len()).collect();
        let mut work = Work::default();
        for row in pattern.starts.windows(2) {
            work.add(ENTRY * (row[1] - row[0]))?;
            order[row[0]..row[1]].sort_unstable_by_key(|&at| colours[pattern.columns[at] as usize]);
        }
        Ok(Colouring { pattern: Arc::new(pattern), colours, n_colours, order })
    }

    fn direction(&self, colour: usize, column: usize) -> f64 {
        f64::from(u8::from(self.colours[column] as usize == colour))
    }

    /// Places an entry of a row and a colour. Entries of a row come by ascending colour.
    fn put(&self) -> impl FnMut(&mut [f64], usize, usize, f64) + '_ {
        let mut next = self.pattern.starts.clone();
        move |data, row, colour, entry| {
            let Some(&at) = self.order[..self.pattern.starts[row + 1]].get(next[row]) else { return };
            if self.colours[self.pattern.columns[at] as usize] as usize == colour {
                data[at] = entry;
                next[row] += 1;
            }
        }
    }
}

/// `f.sparse_jacobian(x)`
pub fn sparse_jacobian<'py>(mut call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let out = call.take("out").filter(|out| !out.is_none());
    let arguments = Arguments::numbers_only(&call, &call.positional, "sparse_jacobian")?;
    let n = arguments.numbers.len();
    let (pattern, data) = with_program(&call, &arguments, |path| {
        let x = path.inputs(&arguments.numbers);
        let colouring = ready(&mut path.colourings[0], || Colouring::of(jacobian_pattern(&path.program)?, n))?;
        let data = entries_of_jacobian(&path.program, colouring, &x, n)?;
        Ok((colouring.pattern.clone(), data))
    })?
    .or_raise(py)?;
    match out {
        Some(out) => fill_sparse(&out, &pattern, n, &data),
        None => sparse(py, &pattern, n, &data),
    }
}

/// The entries of a Jacobian at `x`.
fn entries_of_jacobian(
    program: &Program,
    colouring: &Colouring,
    x: &[f64],
    n: usize,
) -> burtorch_core::Result<Vec<f64>> {
    let mut data = vec![0.0; colouring.pattern.columns.len()];
    let mut replay = Replay::new(program, Build::Tangent)?;
    let mut work = Work::default();
    let mut goes_on = Ok(());
    let mut put = colouring.put();
    columns(
        &mut replay,
        x,
        colouring.n_colours,
        |colour, column| colouring.direction(colour, column),
        |row, colour, entry| {
            if goes_on.is_ok() {
                goes_on = work.add(ENTRY);
                put(&mut data, row, colour, entry);
            }
        },
    )?;
    goes_on?;
    for row in 0..colouring.pattern.n_rows() {
        work.add(ENTRY)?;
        let span = colouring.pattern.starts[row]..colouring.pattern.starts[row + 1];
        if data[span.clone()].iter().any(|x| !x.is_finite()) {
            let mut alone = vec![0.0; n];
            row_alone(program, row, x, &mut alone)?;
            for at in span {
                data[at] = alone[colouring.pattern.columns[at] as usize];
            }
        }
    }
    Ok(data)
}

/// `f.sparse_hessian(x)`
pub fn sparse_hessian<'py>(mut call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let out = call.take("out").filter(|out| !out.is_none());
    let arguments = Arguments::numbers_only(&call, &call.positional, "sparse_hessian")?;
    let n = arguments.numbers.len();
    let (pattern, data) = with_scalar(&call, &arguments, "sparse_hessian", |path| {
        let x = path.inputs(&arguments.numbers);
        let colouring = ready(&mut path.colourings[1], || Colouring::of(hessian_pattern(&path.program)?, n))?;
        let columns = ready(&mut path.hessian_columns, || HessianColumns::new(&path.program))?;
        let mut data = vec![0.0; colouring.pattern.columns.len()];
        let mut put = colouring.put();
        columns.run(
            &x,
            colouring.n_colours,
            |colour, column| colouring.direction(colour, column),
            |colour, row, entry| put(&mut data, row, colour, entry),
        )?;
        Ok((colouring.pattern.clone(), data))
    })?;
    match out {
        Some(out) => fill_sparse(&out, &pattern, n, &data),
        None => sparse(py, &pattern, n, &data),
    }
}
