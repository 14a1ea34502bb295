//! Dense layers on Values: results computed from nodes of a graph are nodes of that graph.
//!
//! Promises: the blocks are those that an oracle builds, so the same weights give the same numbers.

use burtorch_core::nn::Linear;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::convert::errors::IntoPython;
use crate::graph::interruptible;
use crate::graph::parameters::{attach, with_values};
use crate::node::vector::{Operand, PyVector, all_views, appended, common_owner, n_scalars, read_by};
use crate::params::PyParameters;

/// The outputs of the layers for `x`, as a Vector on the graph of the Values in it; `None` if `x` contains only numbers.
pub fn outputs<'py>(
    layers: &[Linear],
    params: &Py<PyParameters>,
    x: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = x.py();
    let operands = match Operand::read_all(x) {
        Ok(operands) => operands,
        // The reader of numbers reports other objects.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => return Ok(None),
        Err(error) => return Err(error),
    };
    if operands.iter().all(|operand| matches!(operand, Operand::Numbers(_))) {
        return Ok(None);
    }
    let Some(first) = layers.first() else { return Ok(None) };
    let (wanted, found) = (first.n_in(), n_scalars(&operands));
    if wanted != found {
        return Err(PyValueError::new_err(format!("this model takes {wanted} inputs, found {found}")));
    }
    let owner = common_owner(py, &operands)?;
    let n = layers.iter().map(Linear::n_parameters).sum();
    let range = appended(
        &owner,
        n,
        |cell| {
            attach(py, cell, std::iter::once(params).chain(read_by(&operands)))?;
            all_views(py, cell, &operands)
        },
        |graph, parameters, views| {
            with_values(py, parameters, |given| interruptible(py, n, || graph.blocks()?.dense(given, &views, layers)))?
                .or_raise(py)
        },
    )?;
    range.made(|range| Ok(Some(PyVector::of_runs(&owner, range.as_slice())?.into_bound(py).into_any())))
}
