//! Parameters as files and pickles.

use burtorch_core::io::{self, Contents, Reader};
use burtorch_core::{DType, Parameters};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::Source;
use crate::convert::errors::IntoPython;
use crate::convert::refusals::refuse_reading;
use crate::convert::signals::asked;
use crate::params::{AnyParameters, PyParameters, with_params};

/// The meaning of "values", "grads" or "both".
pub fn contents_named(what: &str) -> PyResult<Contents> {
    Contents::from_name(what)
        .ok_or_else(|| PyValueError::new_err(format!("what must be \"values\", \"grads\" or \"both\", found {what:?}")))
}

/// The checkpoint format of parameters.
pub fn checkpoint_bytes(py: Python<'_>, params: &PyParameters, what: &str) -> PyResult<Vec<u8>> {
    refuse_reading("the file of Parameters")?;
    let contents = contents_named(what)?;
    if contents == Contents::Gradients {
        return Err(PyValueError::new_err("Parameters are saved with \"values\" or \"both\", not \"grads\" alone"));
    }
    params.with(py, |params| asked(|| with_params!(params, p => p.to_bytes(contents))))?.or_raise(py)
}

/// `Parameters.load`.
pub fn load(py: Python<'_>, params: &PyParameters, source: &Bound<'_, PyAny>) -> PyResult<()> {
    let bytes = Source::of(source)?.checked(py)?;
    params.with(py, |params| asked(|| with_params!(params, p => p.load_bytes(&bytes))))?.or_raise(py)
}

fn make(py: Python<'_>, bytes: &[u8]) -> PyResult<PyParameters> {
    let made = asked(|| {
        Ok(match Reader::open(bytes, io::Kind::PARAMETERS)?.header().dtype {
            Some(DType::Float64) => AnyParameters::F64(Parameters::from_bytes(bytes)?),
            Some(DType::Float16) => AnyParameters::F16(Parameters::from_bytes(bytes)?),
            Some(DType::BFloat16) => AnyParameters::BF16(Parameters::from_bytes(bytes)?),
            Some(DType::Float128) => AnyParameters::F128(Parameters::from_bytes(bytes)?),
            _ => AnyParameters::F32(Parameters::from_bytes(bytes)?),
        })
    });
    made.or_raise(py).map(PyParameters::around)
}

/// New Parameters from a file written by Parameters.save, or from bytes of Parameters.to_bytes.
///
/// Values, names, shapes and frozen numbers are those that were saved, and gradients if they were saved; tensors appended
/// later get the same random values as without saving.
///
/// Raises:
///     FormatError: not a complete, undamaged file of Parameters; `offset` and `reason` say where and why.
///     OSError: the file cannot be read.
///     MemoryError: not enough memory.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters(seed=1)
///     >>> w = params.tensor((2, 3), name="w")
///     >>> again = bt.load_parameters(params.to_bytes())
///     >>> again.named("w").shape, list(again.values) == list(params.values)
///     ((2, 3), True)
#[pyfunction]
fn load_parameters(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<PyParameters> {
    make(py, &Source::of(source)?.checked(py)?)
}

/// The function that unpickles Parameters.
#[pyfunction]
fn _unpickle_parameters(py: Python<'_>, data: &[u8]) -> PyResult<PyParameters> {
    make(py, data)
}

/// `Parameters.__reduce__`.
pub fn pickled<'py>(py: Python<'py>, params: &PyParameters) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
    let bytes = checkpoint_bytes(py, params, "both")?;
    let make = py.import("burtorch._core")?.getattr("_unpickle_parameters")?;
    Ok((make, (PyBytes::new(py, &bytes),)))
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(load_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(_unpickle_parameters, m)?)
}
