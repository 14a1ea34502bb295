//! Appending of every operation on Arrays to the innermost trace among its operands.
//!
//! Promises: a refused operation leaves the program unchanged, except for unused constants. Python code runs
//! only while operands are read, before anything is appended.

use std::sync::Arc;

use burtorch_core::array::{ArrayBuilder, ArrayOp, ArrayProgram, Dims, Rules, Shared, Type, ValueId};
use pyo3::prelude::*;

use super::array::PyArray;
use super::array_trial::count_single;
use super::eager::{current_graph, home_of};
use super::graph_values::lifted_operands;
use super::operands::{Operand, are_integers, given_for, is_read};
use super::trace::{ArrayTrace, around_loops, current, inside_body};
use crate::convert::errors::IntoPython;
use crate::convert::refusals::{error_here, is_tracing, needs_arrays};
use crate::params::PyParameters;

/// A function from operand values, in order, to an operation. By reference, so that the code that reads operands, evaluates and
/// wraps results is compiled once and not for each operation.
pub type Build<'b> = &'b mut dyn FnMut(&mut ArrayBuilder, &[ValueId]) -> burtorch_core::Result<Vec<ValueId>>;

/// A closure that is called once, in the form that a reference can call.
fn once(
    build: impl FnOnce(&mut ArrayBuilder, &[ValueId]) -> burtorch_core::Result<Vec<ValueId>>,
) -> impl FnMut(&mut ArrayBuilder, &[ValueId]) -> burtorch_core::Result<Vec<ValueId>> {
    let mut build = Some(build);
    move |b, values| build.take().map_or_else(|| Ok(Vec::new()), |build| build(b, values))
}

/// Appends an operation with one result. `None` if an operand is not supported by Arrays, so that an operator
/// may return `NotImplemented`. `build` receives the operands' values, in order.
pub fn append<'py>(
    py: Python<'py>,
    operands: &[Bound<'py, PyAny>],
    build: impl FnOnce(&mut ArrayBuilder, &[ValueId]) -> burtorch_core::Result<ValueId>,
) -> PyResult<Option<Bound<'py, PyArray>>> {
    let all = append_all(py, operands, |b, values| Ok(vec![build(b, values)?]))?;
    Ok(all.and_then(|mut all| all.pop()))
}

/// The same for any number of operands.
pub fn append_of<'py, const N: usize>(
    py: Python<'py>,
    operands: [&Bound<'py, PyAny>; N],
    build: impl FnOnce(&mut ArrayBuilder, [ValueId; N]) -> burtorch_core::Result<ValueId>,
) -> PyResult<Option<Bound<'py, PyArray>>> {
    append(py, &operands.map(Bound::clone), |b, values| match values.try_into() {
        Ok(values) => build(b, values),
        Err(_) => Err(burtorch_core::Error::LengthMismatch { op: "array", left: N, right: values.len() }),
    })
}

/// The same for an operation with several results.
pub fn append_all<'py>(
    py: Python<'py>,
    operands: &[Bound<'py, PyAny>],
    build: impl FnOnce(&mut ArrayBuilder, &[ValueId]) -> burtorch_core::Result<Vec<ValueId>>,
) -> PyResult<Option<Vec<Bound<'py, PyArray>>>> {
    append_innermost(py, operands, &mut once(build))
}

fn append_innermost<'py>(
    py: Python<'py>,
    operands: &[Bound<'py, PyAny>],
    build: Build<'_>,
) -> PyResult<Option<Vec<Bound<'py, PyArray>>>> {
    let trace = match innermost(py, operands) {
        Some(trace) => trace,
        None if is_tracing() && operands.iter().any(is_read) => {
            return Err(needs_arrays(py, "an operation on a Tensor"));
        }
        // Only Parameters, numbers and arrays of them.
        None => home_of(&current_graph(py)?)?,
    };
    append_in(&trace, operands, build)
}

fn as_it_is(_: &mut ArrayBuilder, values: &[ValueId]) -> burtorch_core::Result<Vec<ValueId>> {
    Ok(values.to_vec())
}

/// The same in this trace, which is at least as deep as those of the operands.
pub fn append_to<'py>(
    trace: &Bound<'py, ArrayTrace>,
    operands: &[Bound<'py, PyAny>],
    build: impl FnOnce(&mut ArrayBuilder, &[ValueId]) -> burtorch_core::Result<Vec<ValueId>>,
) -> PyResult<Option<Vec<Bound<'py, PyArray>>>> {
    append_in(trace, operands, &mut once(build))
}

fn append_in<'py>(
    trace: &Bound<'py, ArrayTrace>,
    operands: &[Bound<'py, PyAny>],
    build: Build<'_>,
) -> PyResult<Option<Vec<Bound<'py, PyArray>>>> {
    let read = operands.iter().map(|object| Operand::of(object, trace.get().dtype()));
    let Some(mut read) = read.collect::<PyResult<Option<Vec<_>>>>()? else {
        return match lifted_operands(trace, operands)? {
            Some((home, all)) => append_in(&home, &all, build),
            None => Ok(None),
        };
    };
    // Bodies of loops do not read Parameters: they capture them from around the loops.
    for (operand, object) in read.iter_mut().zip(operands) {
        if let Operand::Param(..) = operand
            && let Some(around) = around_loops(trace)
            && let Some([array]) = append_in(&around, std::slice::from_ref(object), &mut as_it_is)?.as_deref()
        {
            *operand = Operand::Array(array.clone());
        }
    }
    append_read(trace, read, build).map(Some)
}

/// Numbers of Parameters as an Array, in the trace around all loops that contain this one.
pub fn parameters_at<'py>(
    trace: &Bound<'py, ArrayTrace>,
    params: &Py<PyParameters>,
    start: usize,
    dims: Dims,
) -> PyResult<Bound<'py, PyArray>> {
    let py = trace.py();
    let around = around_loops(trace).unwrap_or_else(|| trace.clone());
    let made = append_read(&around, vec![Operand::Param(params.clone_ref(py), start, dims)], &mut as_it_is)?;
    made.into_iter().next().ok_or_else(|| trace.get().ended(py))
}

fn append_read<'py>(
    trace: &Bound<'py, ArrayTrace>,
    read: Vec<Operand<'py>>,
    build: Build<'_>,
) -> PyResult<Vec<Bound<'py, PyArray>>> {
    let py = trace.py();
    // An outer trace that has ended cannot be captured.
    for array in read.iter().filter_map(Operand::array) {
        array.get().check(py)?;
    }
    if let Some(eager) = trace.get().eager() {
        return eager.append(trace, read, build);
    }
    let with_integers = are_integers(&read);
    let mut content = trace.get().lock();
    let Some(recording) = &mut *content else {
        drop(content);
        return Err(trace.get().ended(py));
    };
    let values = read.into_iter().map(|operand| operand.value(py, trace, recording, with_integers));
    let values = values.collect::<PyResult<Vec<_>>>()?;
    let results = build(&mut recording.builder, &values).or_raise(py)?;
    let typed: Vec<_> = results.iter().map(|&value| (value, recording.builder.type_of(value))).collect();
    drop(content);
    count_single(py, typed.iter().filter(|(_, ty)| ty.dims.rank() == 0).count())?;
    typed.into_iter().map(|(value, ty)| PyArray::new(trace, value, ty)).collect()
}

/// Appends a call of a program to this trace; returns its results. Numbers among the operands are converted to its inputs.
pub fn append_call<'py>(
    trace: &Bound<'py, ArrayTrace>,
    program: ArrayProgram,
    operands: &[Bound<'py, PyAny>],
) -> PyResult<Vec<Bound<'py, PyArray>>> {
    let types = program.input_types();
    append_program(trace, &types, operands, |b, values| b.push_all(ArrayOp::Call(Shared(Arc::new(program))), values))
}

/// The same for a program that derivatives treat as a whole: recomputed, or by these rules.
pub fn append_apart<'py>(
    trace: &Bound<'py, ArrayTrace>,
    program: &ArrayProgram,
    operands: &[Bound<'py, PyAny>],
    rules: Option<Box<dyn Rules>>,
) -> PyResult<Vec<Bound<'py, PyArray>>> {
    append_program(trace, &program.input_types(), operands, |b, values| b.apart(program, values, rules))
}

fn append_program<'py>(
    trace: &Bound<'py, ArrayTrace>,
    types: &[Type],
    operands: &[Bound<'py, PyAny>],
    build: impl FnOnce(&mut ArrayBuilder, &[ValueId]) -> burtorch_core::Result<Vec<ValueId>>,
) -> PyResult<Vec<Bound<'py, PyArray>>> {
    let called = append_to(trace, operands, |b, values| {
        let mut values = values.to_vec();
        for (value, ty) in values.iter_mut().zip(types) {
            *value = b.convert(*value, ty.element)?;
            *value = b.broadcast_to(*value, ty.dims)?;
        }
        build(b, &values)
    })?;
    called.ok_or_else(|| error_here(trace.py(), "this argument has no numbers"))
}

/// The trace of an operation on these: the innermost trace among the Arrays, or the body of a loop or branch inside it that is
/// being traced, or the trace of this thread if there are no Arrays.
pub fn innermost<'py>(py: Python<'py>, operands: &[Bound<'py, PyAny>]) -> Option<Bound<'py, ArrayTrace>> {
    innermost_of(py, operands).map(inside_body).or_else(|| current(py))
}

/// The innermost trace among the Arrays.
pub fn innermost_of<'py>(py: Python<'py>, operands: &[Bound<'py, PyAny>]) -> Option<Bound<'py, ArrayTrace>> {
    let array = |object: &Bound<'py, PyAny>| object.cast::<PyArray>().ok().cloned().or_else(|| given_for(object));
    let deepest = operands.iter().filter_map(array).max_by_key(|array| array.get().trace(py).get().depth());
    deepest.map(|array| array.get().trace(py).clone())
}
