//! Parameters as sweeps and evaluations of a graph take them.

use burtorch_core::{Gradients, Parameters, Scalar};
use pyo3::prelude::*;

/// Runs `f` with the gradients of the parameters a graph reads.
pub fn with_gradients<E: Scalar, R>(
    _py: Python<'_>,
    _parameters: &[Py<PyAny>],
    f: impl FnOnce(&mut [Gradients<'_, E>]) -> R,
) -> PyResult<R> {
    Ok(f(&mut []))
}

/// Runs `f` with the parameters a graph reads.
pub fn with_values<E: burtorch_core::Float, R>(
    _py: Python<'_>,
    _parameters: &[Py<PyAny>],
    f: impl FnOnce(&[&Parameters<'_, E>]) -> R,
) -> PyResult<R> {
    Ok(f(&[]))
}
