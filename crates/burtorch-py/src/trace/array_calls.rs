//! Calls of a traced function with arrays: reading arguments, finding or tracing a path, running it.
//!
//! Promises the same as `calls`, by the same means: constants are watched, guards checked, the number of paths and
//! variants is bounded. While a path runs it is outside the state, so Python code may run.

use std::mem::{replace, take};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use burtorch_core::DType;
use burtorch_core::array::Type;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arguments::{argument_name, statics};
use super::array_path::{ArrayPath, ArrayVariant, Signature, record_arrays};
use super::audit;
use super::calls::{added, call_body, find, next_id, recorded, told};
use super::containers::Nest;
use super::object::Call;
use super::pytree::{described, holds_values, is_of_graph};
use super::record::Traced;
use super::recorded;
use super::transform::Transform;
use crate::array::arguments::Given;
use crate::array::array_trial;
use crate::array::trace::{Source, current, wanted_dtype};
use crate::convert::errors::derived;
use crate::convert::refusals::{is_tracing, needs_arrays};

/// Whether a call uses arrays whatever its arguments are: the body uses transforms, the call is part of a trace with arrays, or
/// it is tried with them.
pub fn is_meant(call: &Call<'_>) -> PyResult<bool> {
    Ok(call.with_arrays || current(call.py()).is_some() || call.with(|state| state.uses_arrays)?)
}

/// Split arguments.
struct Arguments<'py> {
    signature: Signature,
    given: Vec<Given<'py>>,
    objects: Vec<Bound<'py, PyAny>>,
    statics: Option<Bound<'py, PyDict>>,
    /// The dtype of tensors among them.
    dtype: Option<DType>,
}

/// Splits the arguments of a call; `None` if there are Arrays or Values among them.
fn read<'py>(call: &Call<'py>) -> PyResult<Option<Arguments<'py>>> {
    let py = call.py();
    let mut objects = Vec::with_capacity(call.positional.len());
    let mut items = Vec::with_capacity(call.positional.len());
    let mut ends = Vec::with_capacity(call.positional.len());
    for x in &call.positional {
        items.push(Nest::of(x, &mut objects)?);
        ends.push(objects.len());
    }
    let mut given = Vec::with_capacity(objects.len());
    let mut dtype = None;
    for (k, object) in objects.iter().enumerate() {
        if is_of_graph(object) {
            return Ok(None);
        }
        match Given::of(object)? {
            Some(Given::Traced(_)) => return Ok(None),
            Some(found) => {
                if let Given::Tensor(params, ..) = &found {
                    dtype = dtype.or(Some(params.get().dtype_of()));
                }
                given.push(found);
            }
            None if holds_values(object)? => return Ok(None),
            None => {
                let at = ends.iter().position(|&end| k < end).unwrap_or(0);
                let place = items[at].place(py, k - at.checked_sub(1).map_or(0, |before| ends[before]));
                let found = described(object)?;
                let message = format!(
                    "{}{place}: expected a real number, an array, or a list, tuple or dict of them, found {found}; pass \
                     other arguments by keyword",
                    argument_name(call, at)
                );
                return Err(derived(py, "TraceError", message));
            }
        }
    }
    let kinds = given.iter().map(Given::float_kind).collect();
    let types: Vec<Type> = given.iter().map(Given::type_of).collect();
    let nest = Nest::Sequence { is_tuple: true, class: None, items };
    let signature = Signature { nest, types, kinds };
    Ok(Some(Arguments { signature, given, objects, statics: statics(call)?, dtype }))
}

/// Moves the variant of this signature to the front; returns whether there is one.
fn find_variant(call: &Call<'_>, signature: &Signature, statics: Option<&Bound<'_, PyDict>>) -> PyResult<bool> {
    let py = call.py();
    let found = find(call, statics, |state, k| {
        let variant = state.arrays.get(k)?;
        Some(variant.signature.same(py, signature).then_some(&variant.statics))
    })?;
    call.with(|state| match found {
        Some(k) if k < state.arrays.len() => {
            state.arrays[..=k].rotate_right(1);
            true
        }
        _ => false,
    })
}

/// Traces the function for this signature, in the float type of its Parameters.
fn record_beside(
    call: &Call<'_>,
    signature: &Signature,
    statics: Option<&Bound<'_, PyDict>>,
    dtype: Option<DType>,
    source: impl Fn() -> Source,
) -> PyResult<Traced<ArrayPath>> {
    let options = call.with(|state| state.options)?;
    let record = |dtype| {
        recorded(call, statics, |body, name, _, search| {
            record_arrays(body, name, dtype, (signature, source()), statics, search)
        })
    };
    let first = dtype.filter(|_| !options.has_dtype).unwrap_or(options.dtype);
    wanted_dtype();
    let traced = record(first);
    let traced = match wanted_dtype() {
        Some(wanted) if wanted != first && !options.has_dtype && dtype.is_none() => record(wanted),
        _ => traced,
    }?;
    let limit = options.max_nodes as usize;
    if traced.path.program.instrs().len() > limit {
        let name = call.with(|state| state.name.clone())?;
        let message = format!(
            "{name} needs more than {limit} operations on arrays; shorten its loops, use bt.scan or bt.fori_loop, or raise \
             max_nodes= of bt.function"
        );
        return Err(derived(call.py(), "TraceError", message));
    }
    Ok(traced)
}

/// Adds a trace to the state.
fn add(
    call: &Call<'_>,
    signature: &Signature,
    statics: Option<&Bound<'_, PyDict>>,
    traced: Traced<ArrayPath>,
    took: std::time::Duration,
) -> PyResult<()> {
    let py = call.py();
    let is_there = find_variant(call, signature, statics)?;
    let empty = ArrayVariant {
        id: next_id(),
        signature: signature.copy(py),
        statics: statics.cloned().map(Bound::unbind),
        is_trial: array_trial::is_on(),
        paths: Vec::with_capacity(1),
    };
    added(call, traced, took, |state, path, stats| {
        // All allocations first: a path without its watched constants would become stale.
        let mut dropped = (Vec::with_capacity(1), Vec::with_capacity(1));
        state.arrays.reserve(1);
        if !is_there || state.arrays.is_empty() {
            state.arrays.insert(0, empty);
        }
        let (most_paths, most) = (state.options.max_paths, state.options.max_variants);
        let paths = &mut state.arrays[0].paths;
        paths.insert(0, path);
        if paths.len() > most_paths {
            dropped.0.extend(paths.pop());
            stats.dropped += 1;
        }
        if state.arrays.len() > most {
            dropped.1.extend(state.arrays.pop());
            stats.dropped += 1;
        }
        dropped
    })
}

/// Processes the path that was right, after it has run.
type Taken<'a, T> = &'a mut dyn FnMut(&mut ArrayPath) -> PyResult<T>;

/// Runs a path; returns whether every guard had the same outcome.
pub type Running<'a> = &'a mut dyn FnMut(&mut ArrayPath, &[Given<'_>]) -> PyResult<bool>;

/// Runs the paths of the first variant until one is right; returns `take` of it.
fn run_paths<T>(
    call: &Call<'_>,
    given: &[Given<'_>],
    run: Running<'_>,
    take_from: Taken<'_, T>,
) -> PyResult<Option<T>> {
    let first = call.with(|state| state.arrays.first_mut().map(|variant| (variant.id, take(&mut variant.paths))))?;
    let Some((id, mut paths)) = first else { return Ok(None) };
    let mut misses = 0;
    let ran = catch_unwind(AssertUnwindSafe(|| {
        for k in 0..paths.len() {
            if run(&mut paths[k], given)? {
                paths[..=k].rotate_right(1);
                return take_from(&mut paths[0]).map(Some);
            }
            misses += 1;
        }
        Ok(None)
    }));
    // Put back, even after a refused allocation; paths made meanwhile are dropped.
    let made = call.with(|state| {
        state.stats.guard_misses += misses;
        match state.arrays.iter_mut().find(|variant| variant.id == id) {
            Some(variant) => replace(&mut variant.paths, paths),
            None => paths,
        }
    })?;
    drop(made);
    ran.unwrap_or_else(|panic| resume_unwind(panic))
}

/// `f(x, ...)` with arrays.
pub fn call<'py>(call: &Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    // Inside a trace the body becomes part of it.
    if current(call.py()).is_some() {
        return call_body(call);
    }
    let py = call.py();
    // With Tensors the body appends to the current graph, as with Arrays; transforms take their numbers.
    let is_transform = call.with(|state| state.body.bind(py).is_instance_of::<Transform>())?;
    match read(call)?.filter(|arguments| is_transform || arguments.dtype.is_none()) {
        Some(arguments) => {
            let mut home = None;
            let found = run(call, &arguments, &mut |path, given| path.run(py, given), &mut |path| {
                home = recorded::home_for(call, &arguments.given, path)?;
                path.results(py)
            })?;
            match home {
                Some(home) => recorded::again(call, &home, found),
                None => Ok(found),
            }
        }
        None if is_transform => call_body(call),
        None => recorded::call_body_with_arrays(call),
    }
}

/// Finds or traces the path for these arguments. It runs only if its guards have to be decided.
pub fn record(call: &Call<'_>) -> PyResult<()> {
    if current(call.py()).is_some() {
        return call_body(call).map(drop);
    }
    match read(call)? {
        Some(arguments) => {
            let py = call.py();
            let mut decide = |path: &mut ArrayPath, given: &[Given<'_>]| {
                if path.answers.is_empty() { Ok(true) } else { path.run(py, given) }
            };
            run(call, &arguments, &mut decide, &mut |_| Ok(()))
        }
        None => call_body(call).map(drop),
    }
}

/// The same with numbers and arrays, without result objects: `take` reads the path that has run.
pub fn call_with<T>(call: &Call<'_>, take_from: Taken<'_, T>) -> PyResult<T> {
    let py = call.py();
    call_by(call, &mut |path, given| path.run(py, given), take_from)
}

/// The same with another way to run paths.
pub fn call_by<T>(call: &Call<'_>, by: Running<'_>, take_from: Taken<'_, T>) -> PyResult<T> {
    match read(call)? {
        Some(arguments) => run(call, &arguments, by, take_from),
        None => Err(derived(call.py(), "TraceError", "expected numbers and arrays".into())),
    }
}

fn run<T>(call: &Call<'_>, arguments: &Arguments<'_>, by: Running<'_>, take_from: Taken<'_, T>) -> PyResult<T> {
    let py = call.py();
    // In a trace with Values the results would be constants, although Parameters may change.
    let is_inside = is_tracing();
    let take_from: Taken<'_, T> = &mut |path| match is_inside && path.reads_state() {
        true => Err(needs_arrays(py, "a function that reads Parameters")),
        false => take_from(path),
    };
    drop(call.with(|state| state.look(py))?);
    call.with(|state| state.is_of_arrays = true)?;
    let Arguments { signature, given, objects, statics, dtype } = arguments;
    let is_there = find_variant(call, signature, statics.as_ref())?;
    if is_there && let Some(results) = run_paths(call, given, by, take_from)? {
        if !audit::is_due(call)? || audit_first(call)? {
            return Ok(results);
        }
    } else {
        let numbers = || Source::Numbers(objects.iter().map(|object| object.clone().unbind()).collect());
        let (traced, took) =
            told(call, !is_there, || record_beside(call, signature, statics.as_ref(), *dtype, numbers))?;
        add(call, signature, statics.as_ref(), traced, took)?;
    }
    match run_paths(call, given, by, take_from)? {
        Some(results) => Ok(results),
        None => {
            let message = "the function gives different results at the same numbers; it must depend only on \
                           anything but its arguments";
            Err(derived(py, "TraceError", message.into()))
        }
    }
}

/// Audits the last path if there is time; returns whether it was right.
fn audit_first(call: &Call<'_>) -> PyResult<bool> {
    let has_time = audit::has_time(call, |_| ())?;
    Ok(!has_time || compare(call, 0)?)
}

/// Traces the first path of a variant again, with the outcomes of its guards, and compares; returns whether they agree.
fn compare(call: &Call<'_>, at: usize) -> PyResult<bool> {
    let py = call.py();
    let found = call.with(|state| {
        let variant = state.arrays.get(at)?;
        let path = variant.paths.first()?;
        let statics = variant.statics.as_ref().map(|statics| statics.bind(py).clone());
        let about = (variant.signature.copy(py), path.answers.clone(), path.program.dtype());
        Some((variant.id, statics, variant.is_trial, about))
    })?;
    let Some((id, statics, is_trial, (signature, answers, dtype))) = found else { return Ok(true) };
    let record = || record_beside(call, &signature, statics.as_ref(), Some(dtype), || Source::Answers(answers.clone()));
    audit::compared(
        call,
        || array_trial::within(is_trial, record),
        |state, now| state.arrays.iter().find(|variant| variant.id == id)?.paths.first()?.difference(now),
        |traced, took| array_trial::within(is_trial, || add(call, &signature, statics.as_ref(), traced, took)),
    )
}

/// A variant to trace again: its signature, keyword arguments, element type, and the outcomes of each path's guards.
pub struct Traceable {
    pub signature: Signature,
    pub statics: Option<Py<PyDict>>,
    pub dtype: DType,
    pub is_trial: bool,
    pub answers: Vec<Vec<bool>>,
}

/// The last used variant; if there is no trace of the function itself, or the last call was one of a gradient with arrays, that of the
/// gradient, which has the same arguments.
pub fn first_variant(call: &Call<'_>) -> PyResult<Option<Traceable>> {
    let py = call.py();
    let (has_traces, gradients) = call.with(|state| {
        let gradients = state.derived.iter().filter(|(rule, _)| matches!(rule.0, "grad" | "value_and_grad"));
        let gradients = gradients.map(|(_, function)| function.bind(py).clone()).collect::<Vec<_>>();
        (!state.arrays.is_empty() || !state.variants.is_empty() && !state.is_of_arrays, gradients)
    })?;
    if has_traces {
        return variant_of(call);
    }
    let found = gradients.into_iter().find_map(|function| variant_of(&Call::of(function)).transpose());
    found.transpose()
}

fn variant_of(call: &Call<'_>) -> PyResult<Option<Traceable>> {
    let py = call.py();
    call.with(|state| {
        let variant = state.arrays.first()?;
        Some(Traceable {
            signature: variant.signature.copy(py),
            statics: variant.statics.as_ref().map(|statics| statics.clone_ref(py)),
            dtype: variant.paths.first()?.program.dtype(),
            is_trial: variant.is_trial,
            answers: variant.paths.iter().rev().map(|path| path.answers.clone()).collect(),
        })
    })
}

/// Traces a variant if there is no trace, or all have been forgotten since.
pub fn restore(call: &Call<'_>, variant: Option<Traceable>) -> PyResult<()> {
    if call.with(|state| state.arrays.is_empty())? { trace(call, variant) } else { Ok(()) }
}

/// Traces every path of a variant.
pub fn trace(call: &Call<'_>, variant: Option<Traceable>) -> PyResult<()> {
    let py = call.py();
    let Some(Traceable { signature, statics, dtype, is_trial, answers }) = variant else { return Ok(()) };
    let statics = statics.as_ref().map(|statics| statics.bind(py));
    for answers in answers {
        let source = || Source::Answers(answers.clone());
        array_trial::within(is_trial, || {
            let (traced, took) = told(call, false, || record_beside(call, &signature, statics, Some(dtype), source))?;
            add(call, &signature, statics, traced, took)
        })?;
    }
    Ok(())
}

/// Audits every variant; returns whether all were right.
pub fn audit(call: &Call<'_>) -> PyResult<bool> {
    let mut is_right = true;
    for at in 0..call.with(|state| state.arrays.len())? {
        is_right &= compare(call, at)?;
    }
    Ok(is_right)
}
