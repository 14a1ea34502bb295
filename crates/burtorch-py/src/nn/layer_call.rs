//! Calls of Python layers that a model makes for each sample, without Python code when there is nothing to decide.
//!
//! Promises the documented results of `nn.Linear` and `nn.Embedding`: on a Vector it is `affine`, on TokenIds `gather`; for
//! other operands the Python class decides. Does not know where a layer's tensors come from.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use burtorch_core::nn::Activation;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::convert::arguments::activation_named;
use crate::convert::gc::{HoldsObjects, Visitor, traverse};
use crate::node::blocks::{affine_of, gather};
use crate::node::token_ids::PyTokenIds;
use crate::node::vector::PyVector;
use crate::params::PyTensor;

/// Base of `nn.Linear`: a call on a Vector goes directly to `affine`; other calls, and the first one, to `_apply` of the
/// subclass.
#[pyclass(frozen, subclass, name = "DenseCall", module = "burtorch._core")]
#[derive(Default)]
pub struct PyDenseCall {
    parts: OnceLock<Parts>,
    /// Whether an attribute was assigned afterwards.
    is_stale: AtomicBool,
}

/// The arguments of `affine` besides its input.
struct Parts {
    weight: Py<PyTensor>,
    bias: Option<Py<PyTensor>>,
    activation: Activation,
}

impl PyDenseCall {
    fn parts(&self) -> Option<&Parts> {
        self.parts.get().filter(|_| !self.is_stale.load(Ordering::Relaxed))
    }
}

impl HoldsObjects for Parts {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.weight.visit(visit);
        self.bias.visit(visit);
    }
}

#[pymethods]
impl PyDenseCall {
    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        self.parts.get().map_or(Ok(()), |parts| traverse(parts, visit))
    }

    /// Accepts the arguments of a subclass.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    /// The layer's outputs for `x`.
    fn __call__<'py>(slf: &Bound<'py, Self>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match slf.get().parts() {
            Some(parts) if x.is_exact_instance_of::<PyVector>() => {
                let bias = parts.bias.as_ref().map(|bias| bias.bind(py));
                affine_of(parts.weight.bind(py), x, bias, parts.activation)
            }
            _ => slf.call_method1(intern!(py, "_apply"), (x,)),
        }
    }

    /// Uses these tensors in later calls on a Vector.
    #[pyo3(signature = (weight, bias, activation))]
    fn _keep(
        &self,
        py: Python<'_>,
        weight: Py<PyTensor>,
        bias: Option<Py<PyTensor>>,
        activation: Option<&str>,
    ) -> PyResult<()> {
        let activation = activation_named(py, activation)?;
        // Another thread may have stored the same parts.
        let _ = self.parts.set(Parts { weight, bias, activation });
        Ok(())
    }

    /// Makes later calls use `_apply`, if an attribute was assigned after `_keep`.
    fn _forget(&self) {
        if self.parts.get().is_some() {
            self.is_stale.store(true, Ordering::Relaxed);
        }
    }
}

/// Base of `nn.Embedding`: rows of TokenIds go directly to `gather`, other operands to `_rows` of the subclass.
#[pyclass(frozen, subclass, name = "RowsCall", module = "burtorch._core")]
pub struct PyRowsCall;

#[pymethods]
impl PyRowsCall {
    /// Accepts the arguments of a subclass.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        PyRowsCall
    }

    /// The rows of `tokens` as joined operands of Linear: the rows themselves, without a copy, or, for TokenIds of an
    /// Oracle, which select other rows in each lane, a Vector.
    ///
    /// Raises IndexError for an unknown symbol.
    fn rows<'py>(slf: &Bound<'py, Self>, tokens: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if tokens.is_exact_instance_of::<PyTokenIds>() {
            return gather(slf.getattr(intern!(py, "weight"))?.cast::<PyTensor>()?, tokens);
        }
        slf.call_method1(intern!(py, "_rows"), (tokens,))
    }
}

/// Adds the classes to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyRowsCall>()?;
    m.add_class::<PyDenseCall>()
}
