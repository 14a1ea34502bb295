//! Guards: a truth value of an Array in a body is decided by the numbers of the call, and the outcome becomes part of
//! the program.
//!
//! In words: a guard in a nested trace is computed by a call of its dependencies in the outer trace, until
//! the outermost one is reached, whose arguments have numbers. Promises: only the instructions that the outcome needs run,
//! once, so many guards cost time in proportion to the trace; large arrays are recomputed for each. Does not know the use of
//! the outcomes.

use std::sync::Arc;

use burtorch_core::array::{Cone, Data, Dims, Element, Given as Known, Shared, Type, ValueId, View};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::append::{append_call, innermost_of};
use super::arguments::Given;
use super::array::PyArray;
use super::of_graph::{numbers_hold, to_numpy};
use super::run::{AnyRunner, Read};
use super::trace::{ArrayTrace, Recording, Source};
use crate::convert::errors::IntoPython;
use crate::convert::refusals::error_here;

/// The most numbers of a value that is kept for the next guard, and of all of them.
const MOST: usize = 1 << 12;
const MOST_OF_ALL: usize = 1 << 22;

/// `bool(x)`: for the numbers of this call.
pub fn truth(array: &Bound<'_, PyArray>) -> PyResult<bool> {
    let py = array.py();
    array.get().check(py)?;
    let Type { dims, .. } = array.get().type_of();
    if dims.size() != 1 {
        let message =
            format!("the truth value of an Array of shape {dims} is ambiguous; use x.any() or x.all(), or bt.where");
        return Err(PyValueError::new_err(message));
    }
    if array.get().handle().is_some() {
        return Ok(numbers_hold(array));
    }
    let trace = array.get().trace(py).clone();
    let value = array.get().value(py)?;
    let mut content = trace.get().lock();
    let Some(recording) = &mut *content else { return Err(trace.get().ended(py)) };
    let b = &mut recording.builder;
    let mask = b.convert(value, Element::Mask).and_then(|v| b.view(v, View::Reshape(Dims::SCALAR)));
    drop(content);
    match source_of(trace, mask.or_raise(py)?)? {
        Found::Graph(array) => Ok(numbers_hold(&array)),
        Found::Numbers(trace, value, objects) => {
            asked_before(&trace, value).map_or_else(|| evaluated(&trace, value, &objects), Ok)
        }
        Found::Answers(answer) => Ok(answer),
    }
}

/// The numbers of integers or of a mask in a trace whose program runs once, at these arguments: they have no derivative.
/// Nothing in other traces, whose programs run again at other numbers.
pub fn known_once<'py>(array: &Bound<'py, PyArray>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = array.py();
    let Type { element, dims } = array.get().type_of();
    if !matches!(element, Element::Int | Element::Mask) || !runs_once(array.get().trace(py).clone()) {
        return Ok(None);
    }
    match source_of(array.get().trace(py).clone(), array.get().value(py)?)? {
        Found::Numbers(trace, value, objects) => {
            let (runner, _) = run_needed(&trace, value, &objects)?;
            to_numpy(py, &runner.data(py, 0)?, &dims).map(Some)
        }
        Found::Graph(_) | Found::Answers(_) => Ok(None),
    }
}

/// Whether the program around a trace runs once, and this trace in it with the same arguments.
fn runs_once(mut trace: Bound<'_, ArrayTrace>) -> bool {
    let py = trace.py();
    loop {
        let outer = match trace.get().source() {
            Source::Once(_) => return true,
            Source::Operands(_, are_mapped) if !are_mapped.contains(&true) => trace.get().outer(),
            _ => return false,
        };
        let Some(outer) = outer else { return false };
        trace = outer.bind(py).clone();
    }
}

/// Where the numbers that a value depends on are known.
enum Found<'py> {
    Numbers(Bound<'py, ArrayTrace>, ValueId, Vec<Bound<'py, PyAny>>),
    Graph(Bound<'py, PyArray>),
    Answers(bool),
}

fn source_of<'py>(mut trace: Bound<'py, ArrayTrace>, mut value: ValueId) -> PyResult<Found<'py>> {
    let py = trace.py();
    loop {
        let next = match trace.get().source() {
            Source::Operands(objects, are_mapped) => {
                let message = "a comparison of Arrays differs from row to row under vmap, so no branch can be taken for \
                               all; use bt.where(condition, a, b)";
                outside(&trace, value, objects, are_mapped, message)?
            }
            &(Source::Body(n) | Source::Rule(n)) => {
                let message = match trace.get().source() {
                    Source::Body(_) => {
                        "a comparison of Arrays differs from step to step of a loop, so no branch can be taken for all; use \
                         bt.cond(condition, f, g, ...) or bt.where(condition, a, b)"
                    }
                    _ => {
                        "a comparison of Arrays in a derivative rule has no outcome yet; use bt.cond(condition, f, g, ...) \
                         or bt.where(condition, a, b)"
                    }
                };
                let zero = 0.0_f64.into_pyobject(py)?.into_any();
                let objects: Vec<_> = (0..n).map(|_| zero.clone().unbind()).collect();
                outside(&trace, value, &objects, &vec![true; n], message)?
            }
            Source::Graph(_) => return Err(trace.get().ended(py)),
            Source::Numbers(objects) | Source::Once(objects) => {
                let objects = objects.iter().map(|object| object.bind(py).clone()).collect();
                return Ok(Found::Numbers(trace, value, objects));
            }
            Source::Answers(answers) => {
                if let Some(answer) = asked_before(&trace, value) {
                    return Ok(Found::Answers(answer));
                }
                let mut content = trace.get().lock();
                let Some(recording) = &mut *content else { return Err(trace.get().ended(py)) };
                // A body with more guards than before is another body.
                let answer = answers.get(recording.guards.len()).copied().unwrap_or(false);
                recording.guards.push((value, answer));
                return Ok(Found::Answers(answer));
            }
        };
        if next.get().handle().is_some() {
            return Ok(Found::Graph(next));
        }
        (trace, value) = (next.get().trace(py).clone(), next.get().value(py)?);
    }
}

fn asked_before(trace: &Bound<'_, ArrayTrace>, value: ValueId) -> Option<bool> {
    let content = trace.get().lock();
    content.as_ref()?.guards.iter().find(|guard| guard.0 == value).map(|guard| guard.1)
}

/// The outcome in an outermost trace at these arguments.
fn evaluated(trace: &Bound<'_, ArrayTrace>, value: ValueId, objects: &[Bound<'_, PyAny>]) -> PyResult<bool> {
    let (runner, numbers) = run_needed(trace, value, objects)?;
    let answer = runner.holds(trace.py(), 0)?;
    with_recording(trace, |recording| {
        let answered = &mut recording.answered;
        for (v, data) in numbers {
            if answered.n_numbers < MOST_OF_ALL {
                answered.n_numbers += recording.builder.type_of(v).dims.size();
                answered.numbers.insert(v, data);
            }
        }
        recording.guards.push((value, answer));
        Ok(answer)
    })
}

/// Values with their numbers.
type Numbers = Vec<(ValueId, Shared<Data>)>;

/// Runs what a value of an outermost trace needs, at these arguments: its numbers are the first result. Also returns numbers to
/// keep for the next time.
fn run_needed(
    trace: &Bound<'_, ArrayTrace>,
    value: ValueId,
    objects: &[Bound<'_, PyAny>],
) -> PyResult<(AnyRunner, Numbers)> {
    let py = trace.py();
    let cone = with_recording(trace, |recording| {
        let numbers = &recording.answered.numbers;
        recording.builder.cone_of(value, MOST, |v| numbers.get(&v).cloned().map(Known::Numbers))
    })?;
    let Cone { program, computed, .. } = cone;
    let given = objects.iter().map(|object| Ok(Given::of(object)?.unwrap_or(Given::Number(f64::NAN))));
    let given = given.collect::<PyResult<Vec<_>>>()?;
    let mut runner = AnyRunner::new(py, &program)?;
    let (sets, numbers) = (trace.get().sets(py), trace.get().numbers(py));
    runner.run(py, &given, Read { sets: &sets, numbers: &numbers })?;
    let numbers = computed.iter().enumerate().map(|(k, &v)| Ok((v, Shared(Arc::new(runner.data(py, k + 1)?)))));
    let numbers = numbers.collect::<PyResult<Vec<_>>>()?;
    Ok((runner, numbers))
}

/// Reads the trace so far.
fn with_recording<T>(
    trace: &Bound<'_, ArrayTrace>,
    look: impl FnOnce(&mut Recording) -> burtorch_core::Result<T>,
) -> PyResult<T> {
    let py = trace.py();
    let mut content = trace.get().lock();
    let Some(recording) = &mut *content else { return Err(trace.get().ended(py)) };
    let found = look(recording);
    drop(content);
    found.or_raise(py)
}

/// The same value in the enclosing trace, as the result of a call.
fn outside<'py>(
    trace: &Bound<'py, ArrayTrace>,
    value: ValueId,
    objects: &[Py<PyAny>],
    are_mapped: &[bool],
    refusal: &str,
) -> PyResult<Bound<'py, PyArray>> {
    let py = trace.py();
    let (cone, captures, known) = with_recording(trace, |recording| {
        let outside = &recording.answered.outside;
        let is_known = |v| outside.contains_key(&v).then_some(Known::Argument);
        let cone = recording.builder.cone_of(value, usize::MAX, is_known)?;
        let captures: Vec<_> = recording.captures.iter().map(|(_, array)| array.bind(py).as_any().clone()).collect();
        let known: Vec<_> = cone.arguments.iter().map(|v| outside[v].bind(py).as_any().clone()).collect();
        Ok((cone, captures, known))
    })?;
    let Cone { program, computed, .. } = cone;
    let mapped: Vec<_> = (0..are_mapped.len()).filter(|&k| are_mapped[k]).collect();
    if program.outputs_that_read(&mapped)[0] {
        return Err(error_here(py, refusal));
    }
    let zero = 0.0_f64.into_pyobject(py)?.into_any();
    // A value with another axis there is not read.
    let own = objects.iter().zip(are_mapped);
    let own = own.map(|(object, &is_mapped)| if is_mapped { zero.clone() } else { object.bind(py).clone() });
    let operands: Vec<_> = own.chain(captures).chain(known).collect();
    let target = match innermost_of(py, &operands).or_else(|| trace.get().outer().map(|outer| outer.bind(py).clone())) {
        Some(target) => target,
        None => return Err(trace.get().ended(py)),
    };
    let mut called = append_call(&target, program, &operands)?.into_iter();
    let answer = called.next().ok_or_else(|| trace.get().ended(py))?;
    with_recording(trace, |recording| {
        let others = computed.into_iter().zip(called.map(Bound::unbind));
        recording.answered.outside.insert(value, answer.clone().unbind());
        recording.answered.outside.extend(others);
        Ok(())
    })?;
    Ok(answer)
}
