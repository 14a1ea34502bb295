//! Tensors in the safetensors format.

use burtorch_core::Tensor;
use burtorch_core::io::{TensorFile, tensors_to_bytes};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::Source;
use crate::convert::errors::IntoPython;
use crate::convert::signals::asked;
use crate::params::{PyParameters, PyTensor, with_params};

type Named = Vec<(String, Py<PyTensor>)>;
/// Tensors of the core, and the Parameters that contain all of them.
type Owned = (Py<PyParameters>, Vec<(String, Tensor)>);

/// Collects tensors of the core, which refuses tensors of different Parameters.
fn owned(py: Python<'_>, named: &Named) -> PyResult<Owned> {
    let Some((_, first)) = named.first() else {
        return Err(PyValueError::new_err("expected at least one tensor"));
    };
    let tensors = named.iter().map(|(name, tensor)| (name.clone(), tensor.get().whole())).collect();
    Ok((first.get().owner().clone_ref(py), tensors))
}

/// Tensors of one Parameters, with metadata, as a safetensors file.
#[pyfunction]
fn _tensors_to_bytes<'py>(py: Python<'py>, named: Named, about: &str) -> PyResult<Bound<'py, PyBytes>> {
    let (params, tensors) = owned(py, &named)?;
    let bytes = params.get().with(py, |params| with_params!(params, p => tensors_to_bytes(p, &tensors, about)))?;
    Ok(PyBytes::new(py, &bytes.or_raise(py)?))
}

/// The metadata of a safetensors file; None if burtorch did not write it.
#[pyfunction]
fn _tensors_about(py: Python<'_>, data: &[u8]) -> PyResult<Option<String>> {
    Ok(TensorFile::open(data).or_raise(py)?.about().map(str::to_string))
}

/// Overwrites tensors of one Parameters with those of a safetensors file; with `check` only checks that they fit.
#[pyfunction]
#[pyo3(signature = (data, named, check=false))]
fn _load_tensors(py: Python<'_>, data: &[u8], named: Named, check: bool) -> PyResult<()> {
    let (params, tensors) = owned(py, &named)?;
    let file = TensorFile::open(data).or_raise(py)?;
    if check {
        return params.get().with(py, |params| with_params!(params, p => file.check(p, &tensors)))?.or_raise(py);
    }
    params.get().with(py, |params| with_params!(params, p => file.load(p, &tensors)))?.or_raise(py)
}

/// Replaces a file by bytes, completely or not at all.
#[pyfunction]
#[pyo3(signature = (path, data, durable=true))]
fn _save_bytes(py: Python<'_>, path: &Bound<'_, PyAny>, data: &Bound<'_, PyAny>, durable: bool) -> PyResult<()> {
    match Source::of(data)? {
        Source::Bytes(bytes) => super::save(py, path, &bytes, durable),
        Source::Path(_) => Err(pyo3::exceptions::PyTypeError::new_err("expected bytes, found text")),
    }
}

/// Named pieces of bytes as one checkpoint file: a training checkpoint.
#[pyfunction]
fn _bundle<'py>(py: Python<'py>, pieces: Vec<(String, Vec<u8>)>) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = asked(|| burtorch_core::io::bundle(&pieces)).or_raise(py)?;
    Ok(PyBytes::new(py, &bytes))
}

/// The pieces of a checkpoint, by name; the source is a path or bytes.
#[pyfunction]
fn _unbundle<'py>(py: Python<'py>, source: &Bound<'py, PyAny>) -> PyResult<Vec<(String, Bound<'py, PyBytes>)>> {
    let bytes = Source::of(source)?.checked(py)?;
    let pieces = asked(|| burtorch_core::io::unbundle(&bytes)).or_raise(py)?;
    Ok(pieces.into_iter().map(|(name, piece)| (name.to_string(), PyBytes::new(py, piece))).collect())
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_tensors_to_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(_tensors_about, m)?)?;
    m.add_function(wrap_pyfunction!(_load_tensors, m)?)?;
    m.add_function(wrap_pyfunction!(_save_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(_bundle, m)?)?;
    m.add_function(wrap_pyfunction!(_unbundle, m)?)
}
