//! What an optimiser moves: the numbers of `Parameters`, or the data of a list of Values.
//!
//! Promises: Values are checked and read before a step and written after it, so a step that fails changes none of them.
//! An optimiser sees `Parameters` in both cases, and knows nothing of Values.

#![allow(unsafe_code)]

use burtorch_core::{Float, NodeId, Op, Scalar};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::cell::{Cell, with_graph};
use crate::errors::IntoPython;
use crate::params::{PyParameters, params_of, with_params};
use crate::scalars::{self, Given};
use crate::value;

/// What an optimiser moves.
pub struct Trained {
    /// The parameters, or what the numbers of the Values are kept in during a step.
    pub params: Py<PyParameters>,
    values: Vec<Py<PyAny>>,
}

impl Trained {
    /// Reads Parameters, a model of them, or a list of Values.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let refused = match params_of(object) {
            Ok(params) => return Ok(Trained { params, values: Vec::new() }),
            Err(error) => error,
        };
        let py = object.py();
        let Ok(items) = object.try_iter() else { return Err(refused) };
        let mut values = Vec::new();
        for item in items {
            let item = item?;
            if !is_value(&item) {
                let found = item.get_type().name()?;
                let message = format!("an optimiser takes Parameters, a model, or a list of Values; found {found}");
                return Err(PyTypeError::new_err(message));
            }
            values.push(item.unbind());
        }
        if values.is_empty() {
            return Err(PyValueError::new_err("an optimiser needs at least one Value"));
        }
        let params = py.get_type::<PyParameters>().call1(("float64",))?;
        params.call_method1("tensor", (values.len(), py.None(), 0.0))?;
        let trained = Trained { params: params.cast_into::<PyParameters>()?.unbind(), values };
        trained.gather(py)?;
        Ok(trained)
    }

    /// Reads the data and gradients of the Values. An error says which of them is no leaf, or gone.
    pub fn gather(&self, py: Python<'_>) -> PyResult<()> {
        let mut numbers = Vec::with_capacity(self.values.len());
        for value in &self.values {
            numbers.push(with_node(value.bind(py), |cell, node| {
                let op = with_graph!(&cell.graph, g => g.op(node)).or_raise(py)?;
                let read = |of_grad| scalars::plain(&cell.graph, node, of_grad).or_raise(py);
                match (op, read(false)?, read(true)?) {
                    (Op::Leaf, Some(x), Some(g)) => Ok((x, g)),
                    (Op::Leaf, ..) => Err(PyTypeError::new_err("an optimiser takes Values that hold one float each")),
                    _ => Err(PyValueError::new_err(format!(
                        "an optimiser moves leaves, found the result of {}",
                        op.name()
                    ))),
                }
            })?);
        }
        if numbers.is_empty() {
            return Ok(());
        }
        self.params.get().with(py, |params| {
            with_params!(params, p => {
                p.values_mut().iter_mut().zip(&numbers).for_each(|(to, &(x, _))| *to = Scalar::lit(x));
                p.grads_mut().iter_mut().zip(&numbers).for_each(|(to, &(_, g))| *to = Scalar::lit(g));
            });
        })
    }

    /// Writes what a step has made of the data of the Values.
    pub fn scatter(&self, py: Python<'_>) -> PyResult<()> {
        if self.values.is_empty() {
            return Ok(());
        }
        let moved = self.params.get().with(
            py,
            |params| with_params!(params, p => p.values().iter().map(|x| x.to_f64()).collect::<Vec<f64>>()),
        )?;
        for (value, x) in self.values.iter().zip(moved) {
            with_node(value.bind(py), |cell, node| {
                scalars::assign(&mut cell.graph, node, &Given::All(x), false).or_raise(py)
            })?;
        }
        Ok(())
    }

    /// Sets all gradients to 0, or none where a Value is gone.
    pub fn zero_grad(&self, py: Python<'_>) -> PyResult<()> {
        for value in &self.values {
            with_node(value.bind(py), |_, _| Ok(()))?;
        }
        for value in &self.values {
            with_node(value.bind(py), |cell, node| {
                scalars::assign(&mut cell.graph, node, &Given::All(0.0), true).or_raise(py)
            })?;
        }
        self.params.get().with(py, |params| with_params!(params, p => p.zero_grad()))
    }
}

fn is_value(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a living object under the interpreter lock.
    unsafe { value::is_value(object.as_ptr()) }
}

/// Runs `f` on the node of a Value, after checking it.
fn with_node<T>(value: &Bound<'_, PyAny>, f: impl FnOnce(&mut Cell, NodeId) -> PyResult<T>) -> PyResult<T> {
    // SAFETY: a living Value under the interpreter lock; `f` runs no Python code.
    match unsafe { value::checked(value.as_ptr().cast()) } {
        Some((cell, node)) => f(cell, node),
        None => Err(PyErr::fetch(value.py())),
    }
}
