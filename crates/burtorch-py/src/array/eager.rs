//! Arrays of a graph: every operation on them is evaluated at once, with the same instructions as in a traced function.
//!
//! Promises: a refused operation leaves nothing; a refused or interrupted backward pass adds to no gradient. While one runs,
//! changes of gradients are a `BusyError`. Knows no operation.

use std::sync::Arc;

use burtorch_core::array::{
    ArrayBuilder, ArrayOp, Data, Dims, Element, Floats, Handle, Keep, OfParameters, OperandOfTape, Tape, ValueId,
};
use burtorch_core::sync::{Raised, Shared};
use burtorch_core::{DType, Error, Float, Parameters};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::append::Build;
use super::array::PyArray;
use super::graph_values::hand_on;
use super::numpy::NO_NUMBERS;
use super::operands::{Operand, are_integers};
use super::trace::{ArrayTrace, Eager};
use crate::convert::errors::{IntoPython, busy, derived, to_python};
use crate::convert::refusals::error_here;
use crate::convert::signals::asked;
use crate::graph::parameters::{check_dtype, with_gradients};
use crate::graph::{Arrays, PyGraph, wants_no_grad};
use crate::params::{AnyParameters, PyParameters, with_params};

/// The current graph of this thread.
pub fn current_graph(py: Python<'_>) -> PyResult<Bound<'_, PyGraph>> {
    Ok(crate::graph::current_graph(py)?.into_bound(py).cast_into()?)
}

/// The owner of the Arrays of a graph.
pub fn home_of<'py>(graph: &Bound<'py, PyGraph>) -> PyResult<Bound<'py, ArrayTrace>> {
    let py = graph.py();
    let made = graph.get().arrays.get_or_try_init(py, || {
        let (scalar, is_fixed, no_grad) = graph.get().with_as_is(py, |cell| {
            let before = cell.graph.set_no_grad(false);
            cell.graph.set_no_grad(before);
            Ok((cell.graph.scalar_type(), cell.graph.is_fixed(), before))
        })?;
        if !matches!(scalar.name(), "float64" | "float32") || is_fixed {
            let found = if is_fixed { "a fixed graph" } else { scalar.name() };
            let message = format!("Arrays need a growing graph of float64 or float32, found {found}");
            return Err(PyTypeError::new_err(message));
        }
        let tape = Arc::new(Tape::new(scalar.elem));
        tape.set_no_grad(no_grad);
        let home = Py::new(py, ArrayTrace::of_graph(tape.clone()))?.into_any();
        Ok::<_, PyErr>(Arrays { tape, home })
    })?;
    Ok(made.home.bind(py).clone().cast_into()?)
}

/// Numbers of this float type.
pub(super) fn floats(numbers: Vec<f64>, dtype: DType) -> Data {
    match dtype {
        DType::Float32 => Data::F32(numbers.into_iter().map(|x| x as f32).collect()),
        _ => Data::F64(numbers),
    }
}

/// Floats as an Array of a graph without a gradient.
pub fn constant<'py>(home: &Bound<'py, ArrayTrace>, dims: Dims, data: Data) -> PyResult<Bound<'py, PyArray>> {
    let py = home.py();
    let Some(eager) = home.get().eager() else { return Err(error_here(py, NO_NUMBERS)) };
    let data = match data {
        Data::F64(x) => floats(x, eager.tape.dtype()),
        other => other,
    };
    PyArray::of_graph(home, eager.tape.leaf(dims, data, false).or_raise(py)?)
}

impl Eager {
    /// Refuses an Array removed by a rewind.
    pub(super) fn check(&self, py: Python<'_>, handle: &Handle) -> PyResult<()> {
        if !self.tape.is_stale(handle) {
            return Ok(());
        }
        let message = "this Array was removed by a rewind or a clear of its graph";
        Err(derived(py, "StaleValueError", message.into()))
    }

    fn shared(&self, py: Python<'_>) -> PyResult<Shared<'_>> {
        self.in_use.share().ok_or_else(|| busy(py, "the Arrays of this graph"))
    }

    /// Refuses other uses until the guard is dropped.
    pub(super) fn alone(&self, py: Python<'_>) -> PyResult<Raised<'_>> {
        self.in_use.raise().ok_or_else(|| busy(py, "the Arrays of this graph"))
    }

    /// Evaluates the operation built from the operands.
    pub(super) fn append<'py>(
        &self,
        home: &Bound<'py, ArrayTrace>,
        operands: Vec<Operand<'py>>,
        build: Build<'_>,
    ) -> PyResult<Vec<Bound<'py, PyArray>>> {
        let (py, dtype) = (home.py(), self.tape.dtype());
        let with_integers = are_integers(&operands);
        let mut b = ArrayBuilder::new(dtype).or_raise(py)?;
        let mut given = Vec::with_capacity(operands.len());
        let mut values = Vec::with_capacity(operands.len());
        let mut arrays: Vec<(ValueId, Bound<'py, PyArray>)> = Vec::with_capacity(operands.len());
        let mut params: Vec<((u32, usize, Dims), ValueId)> = Vec::new();
        for operand in operands {
            let mut input = |data: Data, dims: Dims, element| {
                given.push(OperandOfTape::Data(data));
                b.input(&dims, element).or_raise(py)
            };
            values.push(match operand {
                Operand::Number(_, Some(k)) if with_integers => b.push(ArrayOp::Integer(k), &[]).or_raise(py)?,
                Operand::Number(x, _) => input(floats(vec![x], dtype), Dims::SCALAR, Element::Float)?,
                Operand::Data(dims, data, _) => {
                    let element = match data {
                        Data::Int(_) => Element::Int,
                        Data::Mask(_) => Element::Mask,
                        Data::F64(_) | Data::F32(_) => Element::Float,
                    };
                    input(data, dims, element)?
                }
                Operand::Param(set, start, dims) => {
                    check_dtype(dtype, [&set])?;
                    let key = (home.get().set(py, &set)?, start, dims);
                    match params.iter().find(|(known, _)| *known == key) {
                        Some(&(_, value)) => value,
                        None => {
                            let value = b.param(key.0, start, &dims).or_raise(py)?;
                            params.push((key, value));
                            value
                        }
                    }
                }
                Operand::Array(array) => match arrays.iter().find(|(_, known)| known.get().is_same(&array)) {
                    Some(&(value, _)) => value,
                    None => {
                        let Some(handle) = array.get().handle() else { return Err(error_here(py, NO_NUMBERS)) };
                        if !self.tape.has(handle) {
                            return Err(to_python(py, Error::GraphMismatch { what: "an Array" }));
                        }
                        given.push(OperandOfTape::Array(handle.clone()));
                        let ty = array.get().type_of();
                        let value = b.input(&ty.dims, ty.element).or_raise(py)?;
                        arrays.push((value, array));
                        value
                    }
                },
            });
        }
        let results = build(&mut b, &values).or_raise(py)?;
        let same = |value: &ValueId| arrays.iter().find(|(known, _)| known == value).map(|(_, array)| array.clone());
        if let Some(same) = results.iter().map(same).collect::<Option<Vec<_>>>() {
            return Ok(same);
        }
        let program = b.finish(&results).or_raise(py)?;
        let _in_use = self.shared(py)?;
        let records = self.tape.records() && !wants_no_grad();
        let mut keeps: Vec<Keep> = Vec::new();
        for k in program.sets() {
            keeps.push(Box::new(self.set_of(py, k as usize)));
        }
        let made = self.with_parameters(py, !keeps.is_empty(), |numbers| {
            asked(|| self.tape.append(program, given, (numbers, keeps), records))
        })?;
        made.or_raise(py)?.into_iter().map(|handle| PyArray::of_graph(home, handle)).collect()
    }

    /// Runs `f` with the numbers of Parameters by number, if it reads any.
    fn with_parameters<T>(&self, py: Python<'_>, reads: bool, f: impl FnOnce(&[Floats<'_>]) -> T) -> PyResult<T> {
        let n = if reads { self.n_sets() } else { 0 };
        let sets: Vec<_> = (0..n).map(|k| self.set_of(py, k)).collect();
        let guards = sets.iter().map(|set| set.as_ref().map(|set| set.get().look(py)).transpose());
        let guards = guards.collect::<PyResult<Vec<_>>>()?;
        let numbers: Vec<_> =
            guards.iter().map(|guard| guard.as_ref().map_or(Floats::F64(&[]), |any| floats_of(any))).collect();
        Ok(f(&numbers))
    }

    /// Adds the contributions to an Array with these adjoints to the gradients of leaves and Parameters.
    pub(super) fn backward(&self, py: Python<'_>, root: &Handle, seed: Data) -> PyResult<()> {
        let _in_use = self.alone(py)?;
        let swept = self.with_parameters(py, true, |numbers| asked(|| self.tape.backward(root, seed, numbers)))?;
        let swept = swept.or_raise(py)?;
        hand_on(py, &swept)?;
        let mut sets: Vec<Py<PyParameters>> = Vec::new();
        let mut places = Vec::with_capacity(swept.parameters.len());
        for of in &swept.parameters {
            let Some(set) = self.set_of(py, of.set as usize) else { continue };
            let known = sets.iter().position(|known| known.is(&set));
            places.push((known.unwrap_or(sets.len()), of));
            if known.is_none() {
                sets.push(set);
            }
        }
        with_gradients(py, &sets, |all| {
            self.tape.add(&swept)?;
            for (place, of) in places {
                if let Some(params) = all.get_mut(place) {
                    with_params!(&mut **params, p => add_gradient(p, of));
                }
            }
            Ok(())
        })?
        .or_raise(py)
    }
}

fn floats_of(params: &AnyParameters) -> Floats<'_> {
    match params {
        AnyParameters::F64(params) => Floats::F64(params.values()),
        AnyParameters::F32(params) => Floats::F32(params.values()),
        _ => Floats::F64(&[]),
    }
}

/// Adds to the gradients of trainable numbers.
fn add_gradient<E: Float>(params: &mut Parameters<'_, E>, of: &OfParameters) {
    let gradient = |k: usize| match &of.gradient {
        Data::F64(x) => x.get(k).copied(),
        Data::F32(x) => x.get(k).map(|&x| x.into()),
        _ => None,
    };
    let mut ranges = Vec::new();
    params.for_each_trainable(|range| ranges.push(range));
    let grads = params.grads_mut();
    for range in ranges {
        for at in range.start.max(of.start)..range.end {
            let Some(x) = gradient(at - of.start) else { break };
            if let Some(to) = grads.get_mut(at) {
                *to = E::from_f64(to.to_f64() + x);
            }
        }
    }
}
