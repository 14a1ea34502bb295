//! Numbers, indices and features in arguments of problems and methods.

use burtorch_core::opt::Rows;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::convert::arrays::Array;
use crate::convert::buffer::{Dims, read_numbers, read_token_ids};

/// Numbers of an array or a sequence.
pub fn numbers(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<f64>> {
    let mut all = Vec::new();
    read_numbers(object, &mut all, what)?;
    Ok(all)
}

/// Numbers of one dimension, `n` of them if that is known.
pub fn row(object: &Bound<'_, PyAny>, what: &str, n: Option<usize>) -> PyResult<Vec<f64>> {
    let mut all = Vec::new();
    of_row(object, what, n, read_numbers(object, &mut all, what))?;
    Ok(all)
}

/// Indices of an array or a sequence of one dimension.
pub fn indices(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u32>> {
    let mut all = Vec::new();
    of_row(object, what, None, read_token_ids(object, &mut all, what))?;
    Ok(all)
}

/// Refuses what was read unless it has one dimension.
fn of_row(object: &Bound<'_, PyAny>, what: &str, n: Option<usize>, read: PyResult<Dims>) -> PyResult<()> {
    let found = match read {
        Ok(dims) if dims.row().is_some_and(|found| n.is_none_or(|n| n == found)) => return Ok(()),
        Ok(dims) => dims.text(),
        // Readers know two dimensions.
        Err(error) => match Array::of(object).filter(|array| array.shape().len() > 2) {
            Some(array) => shape_text(array.shape()),
            None => return Err(error),
        },
    };
    Err(not_a_row(what, n, &found))
}

/// The error for an array of another shape than (n,).
pub fn not_a_row(what: &str, n: Option<usize>, found: &str) -> PyErr {
    let n = n.map_or_else(|| "n".to_string(), |n| n.to_string());
    PyValueError::new_err(format!("{what} must have the shape ({n},), found {found}"))
}

/// A shape as Python writes it.
pub fn shape_text(shape: &[usize]) -> String {
    let sizes: Vec<_> = shape.iter().map(usize::to_string).collect();
    format!("({}{})", sizes.join(", "), if shape.len() == 1 { "," } else { "" })
}

/// The start positions of sparse rows.
fn starts_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let starts = Array::converted(object)?.integers()?;
    let whole =
        |start| usize::try_from(start).map_err(|_| PyValueError::new_err("starts of sparse rows are 0 or more"));
    starts.into_iter().map(whole).collect()
}

/// Features: a matrix, or starts, columns and values of sparse rows with their length.
pub fn rows_of(features: &Bound<'_, PyAny>) -> PyResult<burtorch_core::Result<Rows>> {
    let py = features.py();
    if let Ok((starts, columns, values, d)) =
        features.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>, usize)>()
    {
        let (starts, columns) = (starts_of(&starts)?, indices(&columns, "columns")?);
        let values = numbers(&values, "values")?;
        return Ok(py.detach(|| Rows::sparse(starts, columns, values, d)));
    }
    let mut all = Vec::new();
    let dims = read_numbers(features, &mut all, "features")?;
    let Some((_, d)) = dims.matrix() else {
        return Err(PyValueError::new_err(format!("features must be a matrix, found the shape {}", dims.text())));
    };
    Ok(py.detach(|| Rows::dense(all, d)))
}
