//! Loops, branches and checkpoints of numbers whose bodies read Parameters: outside of traces their results are Arrays of the
//! current graph, so that a backward pass reaches the Parameters, as it does through the same operations one by one.
//!
//! Promises: only where the current graph records and has the dtype of the Parameters. Does not know how bodies are traced.

use burtorch_core::array::{Data, Dims};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::array_path::ArrayPath;
use super::calls::call_body;
use super::containers::Nest;
use super::object::Call;
use super::pytree::is_of_graph;
use super::transform::{Rule, Transform};
use crate::array::append::append_to;
use crate::array::arguments::Given;
use crate::array::eager::{constant, current_graph, home_of};
use crate::array::operands::Operand;
use crate::array::trace::ArrayTrace;
use crate::convert::refusals::is_tracing;
use crate::graph::parameters::wrong_dtype;
use crate::graph::wants_no_grad;
use crate::node::vector::read_dims;
use crate::params::PyTensor;

/// The Arrays of the current graph, if a call whose path or arguments read Parameters is to be recorded there.
pub fn home_for<'py>(
    call: &Call<'py>,
    given: &[Given<'py>],
    path: &ArrayPath,
) -> PyResult<Option<Bound<'py, ArrayTrace>>> {
    let py = call.py();
    let reads = !path.sets().is_empty() || given.iter().any(|given| matches!(given, Given::Tensor(..)));
    if !reads || is_tracing() || wants_no_grad() {
        return Ok(None);
    }
    let body = call.with(|state| state.body.clone_ref(py))?;
    // The value of `vjp` is that of a transform.
    let of_steps = |transform: &Bound<'py, Transform>| match transform.get().rule {
        Rule::Control(_) => true,
        Rule::Checkpoint => transform.get().name == "checkpoint",
        _ => false,
    };
    if !body.bind(py).cast::<Transform>().is_ok_and(of_steps) {
        return Ok(None);
    }
    let Ok(home) = home_of(&current_graph(py)?) else { return Ok(None) };
    let (wanted, found) = (home.get().dtype(), path.program.dtype());
    if home.get().records() && wanted != found {
        return Err(wrong_dtype(wanted.name(), found.name()));
    }
    Ok(home.get().records().then_some(home))
}

/// The result of the call with Arrays there; of a checkpoint without arguments, that of its function; else `found`.
pub fn again<'py>(
    call: &Call<'py>,
    home: &Bound<'py, ArrayTrace>,
    found: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(again) = with_arrays(call, home)? {
        return call_body(&again);
    }
    let body = call.with(|state| state.body.clone_ref(call.py()))?.into_bound(call.py());
    match body.cast::<Transform>() {
        Ok(transform) if matches!(transform.get().rule, Rule::Checkpoint) => {
            transform.get().function.bind(call.py()).call(PyTuple::new(call.py(), &call.positional)?, None)
        }
        _ => Ok(found),
    }
}

/// The same call with Arrays for floats and Tensors, or else for integers; `None` if there are none.
fn with_arrays<'py>(call: &Call<'py>, home: &Bound<'py, ArrayTrace>) -> PyResult<Option<Call<'py>>> {
    let found = with_arrays_for(call, home, |data| matches!(data, Data::F64(_) | Data::F32(_)))?;
    if found.is_some() { Ok(found) } else { with_arrays_for(call, home, |data| matches!(data, Data::Int(_))) }
}

/// Whether an object is a Tensor, a Value or a Vector.
fn is_read(x: &Bound<'_, PyAny>) -> bool {
    x.is_instance_of::<PyTensor>() || is_of_graph(x)
}

/// Calls the body with its arguments; with Arrays of the current graph for Tensors, and for Values and Vectors beside arrays of
/// several axes, with which they have no operators.
pub fn call_body_with_arrays<'py>(call: &Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let mut leaves = Vec::new();
    for argument in &call.positional {
        Nest::of(argument, &mut leaves)?;
    }
    let any = |is: &dyn Fn(&Bound<'py, PyAny>) -> bool| leaves.iter().any(is);
    let has_axes = || any(&|x| read_dims(x).is_ok_and(|n| n > 1));
    let is_mixed = any(&|x| x.is_instance_of::<PyTensor>()) || any(&is_of_graph) && has_axes();
    if !is_mixed || is_tracing() {
        return call_body(call);
    }
    let Ok(home) = home_of(&current_graph(call.py())?) else { return call_body(call) };
    match with_arrays(call, &home)? {
        Some(again) => call_body(&again),
        None => call_body(call),
    }
}

fn with_arrays_for<'py>(
    call: &Call<'py>,
    home: &Bound<'py, ArrayTrace>,
    wanted: impl Fn(&Data) -> bool,
) -> PyResult<Option<Call<'py>>> {
    let mut has_arrays = false;
    let mut positional = Vec::with_capacity(call.positional.len());
    for argument in &call.positional {
        let mut leaves = Vec::new();
        let nest = Nest::of(argument, &mut leaves)?;
        for leaf in &mut leaves {
            let (dims, data) = match Operand::of(leaf, home.get().dtype())? {
                Some(Operand::Number(x, None)) => (Dims::SCALAR, Data::F64(vec![x])),
                Some(Operand::Number(_, Some(k))) => (Dims::SCALAR, Data::Int(vec![k])),
                Some(Operand::Data(dims, data, _)) => (dims, data),
                Some(Operand::Param(..)) | None if is_read(leaf) => {
                    let array = append_to(home, std::slice::from_ref(leaf), |_, values| Ok(values.to_vec()))?;
                    if let Some(array) = array.and_then(|mut arrays| arrays.pop()) {
                        *leaf = array.into_any();
                        has_arrays = true;
                    }
                    continue;
                }
                _ => continue,
            };
            if wanted(&data) {
                *leaf = constant(home, dims, data)?.into_any();
                has_arrays = true;
            }
        }
        positional.push(nest.build(call.py(), &mut leaves.into_iter())?);
    }
    let again = Call { positional, named: call.named.clone(), ..Call::of(call.function.clone()) };
    Ok(has_arrays.then_some(again))
}
