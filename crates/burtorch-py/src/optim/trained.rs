//! The numbers that an optimiser updates: those of `Parameters`, or the data of a list of Values.
//!
//! Promises: Values are checked and read before a step and written after it, so a step that fails changes none of them.
//! An optimiser sees `Parameters` in both cases, and knows nothing of Values.

#![allow(unsafe_code)]

use std::collections::HashSet;

use burtorch_core::erased::AnyNumber;
use burtorch_core::optim::Selection;
use burtorch_core::{Float, Init, NodeId, Op, RowMath};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::convert::errors::IntoPython;
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::graph::cell::Cell;
use crate::node::numbers as of_node;
use crate::node::value;
use crate::optim::trainable::Trainable;
use crate::params::{PyParameters, PyTensor, with_params};

/// The part of Values to write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The Values' data.
    Data,
    /// The Values' gradients.
    Gradients,
}

/// The numbers that an optimiser updates.
pub struct Trained {
    /// The parameters; for Values, those that hold their numbers during a step.
    pub params: Py<PyParameters>,
    /// The selected numbers.
    pub numbers: Selection,
    values: Vec<Py<PyAny>>,
}

impl HoldsObjects for Trained {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.params.visit(visit);
        self.values.visit(visit);
    }
}

impl Trained {
    /// Reads any argument of [`Trainable`].
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let values = match Trainable::of(object)? {
            Trainable::Parameters(params) => {
                return Ok(Trained { params, numbers: Selection::ALL, values: Vec::new() });
            }
            Trainable::Slices(params, slices) => {
                let select = |params: &mut _| with_params!(params, p => Selection::of(p, &slices));
                let numbers = params.get().with(py, select)?.or_raise(py)?;
                return Ok(Trained { params, numbers, values: Vec::new() });
            }
            Trainable::Values(values) => each_once(py, values)?,
        };
        let params = py.get_type::<PyParameters>().call1(("float64",))?;
        params.call_method1("tensor", (values.len(), py.None(), 0.0))?;
        let params = params.cast_into::<PyParameters>()?.unbind();
        let trained = Trained { params, numbers: Selection::ALL, values };
        trained.gather(py)?;
        Ok(trained)
    }

    /// Reads the data and gradients of the Values. An error names a Value that is stale or not a leaf.
    pub fn gather(&self, py: Python<'_>) -> PyResult<()> {
        let mut numbers = Vec::with_capacity(self.values.len());
        for value in &self.values {
            numbers.push(with_node(value.bind(py), |cell, node| {
                let op = cell.graph.op(node).or_raise(py)?;
                let read = |of_grad| of_node::plain(&cell.graph, node, of_grad).or_raise(py);
                match (op, read(false)?, read(true)?) {
                    (Op::Leaf, Some(x), Some(g)) => Ok((x, g)),
                    (Op::Leaf, ..) => Err(PyTypeError::new_err("an optimiser takes Values that hold one float each")),
                    _ => Err(PyValueError::new_err(format!(
                        "an optimiser updates leaves, found the result of {}",
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
                p.values_mut().iter_mut().zip(&numbers).for_each(|(to, &(x, _))| *to = RowMath::lit(x));
                p.grads_mut().iter_mut().zip(&numbers).for_each(|(to, &(_, g))| *to = RowMath::lit(g));
            });
        })
    }

    /// Writes the results of a step to the data or the gradients of the Values.
    pub fn scatter(&self, py: Python<'_>, kind: Kind) -> PyResult<()> {
        if self.values.is_empty() {
            return Ok(());
        }
        let of_grad = kind == Kind::Gradients;
        let numbers = self.params.get().with(py, |params| {
            with_params!(params, p => {
                let numbers = if of_grad { p.grads() } else { p.values() };
                numbers.iter().map(|x| x.to_f64()).collect::<Vec<f64>>()
            })
        })?;
        for (value, x) in self.values.iter().zip(numbers) {
            with_node(value.bind(py), |cell, node| {
                cell.graph.set_number(node, &AnyNumber::One(x), of_grad).or_raise(py)
            })?;
        }
        Ok(())
    }

    /// What the optimiser was made for, for a copy: the Parameters, or Tensors of the selected numbers.
    pub fn made_for<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if !self.values.is_empty() {
            return Err(PyTypeError::new_err("an optimiser of Values cannot be copied or pickled without their graph"));
        }
        let Some(ranges) = self.numbers.ranges() else { return Ok(self.params.bind(py).clone().into_any()) };
        let found = |params: &mut _| {
            with_params!(params, p => {
                let one = |r: std::ops::Range<usize>| p.again(r.start, |p| p.tensor(&[r.len()], None, Init::Constant(0.0), true));
                ranges.map(one).collect::<burtorch_core::Result<Vec<_>>>()
            })
        };
        let tensors = self.params.get().with(py, found)?.or_raise(py)?;
        let tensors = tensors.into_iter().map(|tensor| PyTensor::new(self.params.clone_ref(py), tensor, None));
        tensors.collect::<Vec<_>>().into_pyobject(py)
    }

    /// Sets all gradients to 0, or none if a Value is stale.
    pub fn zero_grad(&self, py: Python<'_>) -> PyResult<()> {
        for value in &self.values {
            with_node(value.bind(py), |_, _| Ok(()))?;
        }
        for value in &self.values {
            with_node(value.bind(py), |cell, node| {
                cell.graph.set_number(node, &AnyNumber::One(0.0), true).or_raise(py)
            })?;
        }
        self.params.get().with(py, |params| with_params!(params, p => p.zero_grad_of(&self.numbers)))
    }
}

/// Whether an object is a Value.
pub fn is_value(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a living object under the GIL.
    unsafe { value::is_value(object.as_ptr()) }
}

/// The Values without repetitions of a node.
fn each_once(py: Python<'_>, mut values: Vec<Py<PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
    let mut seen = HashSet::new();
    let mut result = Ok(());
    values.retain(|value| {
        let node = with_node(value.bind(py), |cell, node| Ok((std::ptr::from_mut(cell), node)));
        match node {
            Ok(node) => seen.insert(node),
            Err(error) => {
                result = Err(error);
                false
            }
        }
    });
    result.map(|()| values)
}

/// Runs `f` on the node of a Value, after checking it.
fn with_node<T>(value: &Bound<'_, PyAny>, f: impl FnOnce(&mut Cell, NodeId) -> PyResult<T>) -> PyResult<T> {
    // SAFETY: a living Value under the GIL; `f` runs no Python code.
    match unsafe { value::checked(value.as_ptr().cast()) } {
        Some((cell, node)) => f(cell, node),
        None => Err(PyErr::fetch(value.py())),
    }
}
