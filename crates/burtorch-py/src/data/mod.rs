//! Datasets for Python: files, synthetic data, and their division among clients.

use std::path::PathBuf;

use burtorch_core::data::{Dataset, Division, LibsvmOptions, SyntheticOptions, Target, divide, read_libsvm, synthetic};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::convert::arguments::Count;
use crate::convert::arrays::{Array, Kind, copied, of_integers};
use crate::convert::errors::IntoPython;
use crate::convert::numbers::argument_number;
use crate::convert::signals::asked;

/// (features, labels): features as a matrix, or as (starts, columns, values, shape).
fn arrays<'py>(
    py: Python<'py>,
    samples: &Dataset,
    is_dense: bool,
    dtype: &str,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let kind = match dtype {
        "float32" => Kind::F32,
        "float64" => Kind::F64,
        other => {
            let message = format!("dtype must be \"float32\" or \"float64\", found {other:?}");
            return Err(PyValueError::new_err(message));
        }
    };
    let features = &samples.features;
    let shape = [features.n_rows(), features.n_columns];
    let labels = copied(py, &shape[..1], kind, &samples.labels)?;
    if is_dense {
        let dense = asked(|| features.dense()).or_raise(py)?;
        return Ok((copied(py, &shape, kind, &dense)?, labels));
    }
    let starts: Vec<_> = features.starts.iter().map(|&start| start as i64).collect();
    let columns: Vec<_> = features.columns.iter().map(|&column| i64::from(column)).collect();
    let starts = of_integers(py, &[starts.len()], &starts)?;
    let columns = of_integers(py, &[columns.len()], &columns)?;
    let values = copied(py, &[features.values.len()], kind, &features.values)?;
    Ok(((starts, columns, values, (shape[0], shape[1])).into_pyobject(py)?.into_any(), labels))
}

/// Reads a LIBSVM file: (features, labels). See `burtorch.opt.load_libsvm`.
#[pyfunction]
#[pyo3(signature = (path, n_features=None, labels=None, dense=false, dtype="float64", zero_based=false))]
fn read_samples<'py>(
    py: Python<'py>,
    path: PathBuf,
    n_features: Option<Count>,
    labels: Option<(f64, f64)>,
    dense: bool,
    dtype: &str,
    zero_based: bool,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let n_features = n_features.map(|n| n.within("n_features", 1..=u32::MAX as usize)).transpose()?;
    let options = LibsvmOptions { n_features, labels, zero_based, is_single: dtype == "float32" };
    let samples = py.detach(|| asked(|| read_libsvm(&path, options))).or_raise(py)?;
    arrays(py, &samples, dense, dtype)
}

/// Draws samples: (features, labels). See `burtorch.opt.make_logistic` and `make_least_squares`.
#[pyfunction]
#[pyo3(signature = (target, n, d, condition, density, noise, seed, dense, dtype))]
#[expect(clippy::too_many_arguments, reason = "its Python caller has defaults for them")]
fn draw_samples<'py>(
    py: Python<'py>,
    target: &str,
    n: Count,
    d: Count,
    #[pyo3(from_py_with = argument_number)] condition: f64,
    #[pyo3(from_py_with = argument_number)] density: f64,
    #[pyo3(from_py_with = argument_number)] noise: f64,
    seed: Count,
    dense: bool,
    dtype: &str,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let target = if target == "logistic" { Target::Logistic } else { Target::Linear };
    let (n_samples, n_features) = (n.positive("n")?, d.within("d", 1..=u32::MAX as usize)?);
    let seed = seed.of_draws("seed")?;
    let options = SyntheticOptions { n_samples, n_features, condition, density, noise, seed };
    let samples = py.detach(|| asked(|| synthetic(target, options))).or_raise(py)?;
    arrays(py, &samples, dense, dtype)
}

/// The samples of each client, a list of arrays of int64. See `burtorch.opt.split`.
#[pyfunction]
#[pyo3(signature = (labels, n_clients, how, concentration, seed))]
fn divide_samples<'py>(
    py: Python<'py>,
    labels: &Bound<'py, PyAny>,
    n_clients: Count,
    how: &str,
    #[pyo3(from_py_with = argument_number)] concentration: f64,
    seed: Count,
) -> PyResult<Bound<'py, PyList>> {
    let division = match how {
        "iid" => Division::Random,
        "sorted" => Division::Sorted,
        "dirichlet" => Division::Dirichlet(concentration),
        other => {
            let message = format!("how must be \"iid\", \"sorted\" or \"dirichlet\", found {other:?}");
            return Err(PyValueError::new_err(message));
        }
    };
    let seed = seed.of_draws("seed")?;
    let labels = Array::converted(labels)?;
    if labels.shape().len() != 1 {
        return Err(PyValueError::new_err(format!("labels must have one dimension, found {}", labels.shape().len())));
    }
    let (labels, n_clients) = (labels.floats(), n_clients.within("n_clients", 1..=usize::MAX)?);
    let parts = py.detach(|| asked(|| divide(&labels, n_clients, division, seed))).or_raise(py)?;
    let parts = parts.iter().map(|part| {
        let part: Vec<_> = part.iter().map(|&k| i64::from(k)).collect();
        of_integers(py, &[part.len()], &part)
    });
    PyList::new(py, parts.collect::<PyResult<Vec<_>>>()?)
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(read_samples, m)?)?;
    m.add_function(wrap_pyfunction!(draw_samples, m)?)?;
    m.add_function(wrap_pyfunction!(divide_samples, m)?)
}
