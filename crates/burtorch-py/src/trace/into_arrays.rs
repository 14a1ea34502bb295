//! `out=`: results of derivatives written into the caller's arrays.
//!
//! Promises: all results are computed before the first number is written, so arrays may share memory with arguments; structure,
//! shapes and types are checked first, so a refused call writes nothing.

use burtorch_core::program::sparsity::Pattern;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::array_calls::call_with;
use super::array_path::ArrayPath;
use super::containers::Nest;
use super::object::Call;
use super::transform::Argnums;
use super::transforms::{call_derived, function_for};
use crate::array::append::innermost_of;
use crate::array::trace::current;
use crate::convert::arrays::{Array, Kind, write_all};
use crate::convert::buffer::type_name;
use crate::convert::errors::if_any;

/// Arrays for results, in the containers of those results.
pub struct Out<'py> {
    given: Bound<'py, PyAny>,
    nest: Nest,
    arrays: Vec<Array>,
    shapes: Vec<Vec<usize>>,
}

/// A writable array of floats and its shape. An array without axes has no buffer with a shape: it is viewed with one axis.
fn writable(leaf: &Bound<'_, PyAny>, what: &str) -> PyResult<(Array, Vec<usize>)> {
    let is_number = if_any(leaf.py(), leaf.getattr("shape"))?.is_some_and(|shape| shape.len().is_ok_and(|n| n == 0));
    if is_number && leaf.hasattr("__array_interface__")? {
        return Ok((Array::writable(&leaf.call_method1("reshape", (1,))?, what)?, Vec::new()));
    }
    let array = Array::writable(leaf, what)?;
    let shape = array.shape().to_vec();
    Ok((array, shape))
}

/// The error for arrays of the wrong shape or type.
fn misfit(py: Python<'_>, nest: &Nest, k: usize, expected: &[usize], found: &[usize]) -> PyErr {
    let place = nest.place(py, k);
    PyValueError::new_err(format!("out{place} must have the shape {}, found {}", shape(expected), shape(found)))
}

fn shape(extents: &[usize]) -> String {
    match extents {
        [only] => format!("({only},)"),
        all => format!("({})", all.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

impl<'py> Out<'py> {
    /// The arrays of `out=`, if a call has it.
    pub fn take(call: &mut Call<'py>) -> PyResult<Option<Self>> {
        match call.take("out") {
            Some(out) if !out.is_none() => Self::of(&out).map(Some),
            _ => Ok(None),
        }
    }

    /// Flattens the given arrays.
    pub fn of(out: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = out.py();
        let mut leaves = Vec::new();
        let nest = Nest::of(out, &mut leaves)?;
        let name = |k| format!("out{}", nest.place(py, k));
        let found = leaves.iter().enumerate().map(|(k, leaf)| writable(leaf, &name(k)));
        let (arrays, shapes): (Vec<_>, _) = found.collect::<PyResult<Vec<_>>>()?.into_iter().unzip();
        refuse_overlap(py, &leaves.iter().collect::<Vec<_>>(), &arrays.iter().collect::<Vec<_>>())?;
        Ok(Out { given: out.clone(), nest, arrays, shapes })
    }

    /// The same with dicts in the order of the results, if theirs is another one.
    fn ordered(&self, py: Python<'py>, results: &Nest) -> PyResult<Option<Self>> {
        if self.nest.same(py, results) {
            return Ok(None);
        }
        let ordered = Self::of(&results.ordered(&self.given)?)?;
        if ordered.nest.same(py, results) {
            return Ok(Some(ordered));
        }
        let (n, m) = (results.len(), self.nest.len());
        let message = format!("out must have the containers of the result, with {n} arrays, found {m}");
        Err(PyValueError::new_err(message))
    }

    /// Copies a result of numbers and NumPy arrays.
    pub fn fill(&self, result: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = result.py();
        let mut leaves = Vec::new();
        let ordered = self.ordered(py, &Nest::of(result, &mut leaves)?)?;
        let Out { nest, arrays, shapes, .. } = ordered.as_ref().unwrap_or(self);
        let mut numbers = Vec::with_capacity(leaves.len());
        for (k, (leaf, shape)) in leaves.iter().zip(shapes).enumerate() {
            let (extents, own) = match Array::of(leaf) {
                Some(found) => (found.shape().to_vec(), found.floats()),
                None => (Vec::new(), vec![leaf.extract::<f64>()?]),
            };
            if *shape != extents {
                return Err(misfit(py, nest, k, &extents, shape));
            }
            numbers.push(own);
        }
        for (array, numbers) in arrays.iter().zip(numbers) {
            array.write(&numbers);
        }
        Ok(self.given.clone())
    }

    /// Copies the results of a finished path; of a pair only the second part.
    fn fill_from(&self, py: Python<'py>, path: &mut ArrayPath, is_pair: bool) -> PyResult<Bound<'py, PyAny>> {
        let results = path.parts().results;
        let (first, nest) = match results.items() {
            [value, gradient] if is_pair => (value.len(), gradient),
            _ => (0, results),
        };
        let ordered = self.ordered(py, nest)?;
        let Out { nest, arrays, shapes, .. } = ordered.as_ref().unwrap_or(self);
        let types = path.program.output_types();
        for (k, (shape, ty)) in shapes.iter().zip(&types[first..]).enumerate() {
            if *shape != ty.dims[..] {
                return Err(misfit(py, nest, k, &ty.dims, shape));
            }
            if !path.is_float(first + k) {
                let place = nest.place(py, k);
                return Err(PyTypeError::new_err(format!("out{place} is for a result that is not an array of floats")));
            }
        }
        for (k, array) in arrays.iter().enumerate() {
            path.write(first + k, array);
        }
        let object = self.given.clone();
        if !is_pair {
            return Ok(object);
        }
        let value = path.results(py)?.get_item(0)?;
        Ok(PyTuple::new(py, [value, object])?.into_any())
    }
}

/// A result, or the arrays that it was written to.
pub fn filled<'py>(result: Bound<'py, PyAny>, out: Option<Out<'py>>) -> PyResult<Bound<'py, PyAny>> {
    out.map_or(Ok(result.clone()), |out| out.fill(&result))
}

/// A method of a Function for arrays, whose result is written to `out` if given; of a pair only the second part.
pub fn call_into<'py>(
    call: &Call<'py>,
    name: &'static str,
    argnums: Argnums,
    out: Option<Out<'py>>,
    is_pair: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    let Some(out) = out else { return call_derived(call, name, argnums) };
    super::keywords::check(call)?;
    if current(py).is_some() || innermost_of(py, &call.positional).is_some() {
        return Err(PyTypeError::new_err("out= is for calls with numbers: Arrays are immutable"));
    }
    let made = Call {
        positional: call.positional.clone(),
        named: call.named.clone(),
        ..Call::of(function_for(call, name, argnums)?)
    };
    call_with(&made, &mut |path| out.fill_from(py, path, is_pair))
}

/// Refuses two results in the same memory.
pub fn refuse_overlap(py: Python<'_>, objects: &[&Bound<'_, PyAny>], arrays: &[&Array]) -> PyResult<()> {
    for (k, (a, x)) in arrays.iter().zip(objects).enumerate() {
        let mut steps = a.shape().iter().zip(a.strides());
        if a.len() > 1 && steps.any(|(&n, &stride)| n > 1 && stride == 0) {
            return Err(PyValueError::new_err("several entries of out share memory; use an array without overlaps"));
        }
        for (b, y) in arrays.iter().zip(objects).skip(k + 1) {
            // Interleaved arrays do not overlap: NumPy decides exactly.
            let share = || py.import("numpy")?.call_method1("shares_memory", (as_array(x)?, as_array(y)?))?.is_truthy();
            if a.may_overlap(b) && share()? {
                return Err(PyValueError::new_err("two arrays of out overlap; use separate memory"));
            }
        }
    }
    Ok(())
}

/// A NumPy array over the memory of any buffer.
fn as_array<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    object.py().import("numpy")?.call_method1("asarray", (object,))
}

/// A SciPy matrix for sparse rows.
pub struct SparseOut<'py>(Bound<'py, PyAny>);

impl<'py> SparseOut<'py> {
    /// The matrix of `out=`, if a call has it.
    pub fn take(call: &mut Call<'py>) -> PyResult<Option<Self>> {
        Ok(call.take("out").map(SparseOut))
    }

    /// Writes entries, if it has this pattern and `n` columns.
    pub fn fill(&self, pattern: &Pattern, n: usize, entries: &[f64]) -> PyResult<Bound<'py, PyAny>> {
        let out = &self.0;
        if !crate::array::arguments::is_sparse(out)? {
            let found = type_name(out);
            return Err(PyTypeError::new_err(format!("out must be a sparse matrix in the CSR format, found {found}")));
        }
        let has = |name: &str, expected: &dyn Fn(&Array) -> PyResult<bool>| {
            Array::of(&out.getattr(name)?).map_or(Ok(false), |array| expected(&array))
        };
        let extents: (usize, usize) = out.getattr("shape")?.extract()?;
        if extents != (pattern.n_rows(), n)
            || !has("indptr", &|starts| same_integers(starts, &pattern.starts, |&start| start as i64))?
            || !has("indices", &|columns| same_integers(columns, &pattern.columns, |&column| column.into()))?
        {
            let message = "out must have the pattern of the result, such as that of a first call without out=";
            return Err(PyValueError::new_err(message));
        }
        let data = Array::writable(&out.getattr("data")?, "the data of out")?;
        if data.shape() != [entries.len()] {
            return Err(PyValueError::new_err("the data of out must have an entry for each index"));
        }
        write_all(&data, entries);
        Ok(out.clone())
    }
}

/// Whether an array holds these integers.
fn same_integers<T>(array: &Array, expected: &[T], number: impl Fn(&T) -> i64) -> PyResult<bool> {
    if !matches!(array.kind, Kind::Signed(_)) || array.len() != expected.len() {
        return Ok(false);
    }
    match array.in_place::<i32>() {
        Some(found) => Ok(found.iter().zip(expected).fold(true, |all, (&x, y)| all & (i64::from(x) == number(y)))),
        None => Ok(array.integers()?.into_iter().eq(expected.iter().map(number))),
    }
}
