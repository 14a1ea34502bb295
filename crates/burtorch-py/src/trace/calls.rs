//! The general path of calls of a traced function: any arguments, any path, tracing if there is none.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pyo3::exceptions::{PyAttributeError, PyIndexError, PyRuntimeWarning, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use super::arguments::{Arguments, same_statics};
use super::bound_call::PyBound;
use super::object::Call;
use super::program::PyProgram;
use super::pytree::Others;
use super::record::{Traced, record, record_path};
use super::recorded::call_body_with_arrays;
use super::search::Search;
use super::state::{FunctionState, Needs, Options, Path, Stats, Variant};
use super::{array_calls, audit, inline, keywords, primitive, states};
use crate::array::array::PyArray;
use crate::convert::errors::{IntoPython, derived};
use crate::convert::refusals::may_need_arrays;
use crate::convert::signals::{asked, quietly, text_of};

/// Moves the variant for these arguments to the front; returns whether there is one.
fn find_variant(call: &Call<'_>, arguments: &Arguments<'_>) -> PyResult<bool> {
    let py = call.py();
    let found = find(call, arguments.statics.as_ref(), |state, k| match state.variants.get(k) {
        Some(variant) => Some(variant.arguments.same(py, &arguments.tree).then_some(&variant.statics)),
        None => None,
    })?;
    call.with(|state| match found {
        Some(k) if k < state.variants.len() => {
            state.variants[..=k].rotate_right(1);
            true
        }
        _ => false,
    })
}

/// The number of the first variant with these static arguments. `at` returns the static arguments of each variant that is not
/// ruled out, and ends.
pub fn find(
    call: &Call<'_>,
    statics: Option<&Bound<'_, PyDict>>,
    at: impl Fn(&FunctionState, usize) -> Option<Option<&Option<Py<PyDict>>>>,
) -> PyResult<Option<usize>> {
    let py = call.py();
    for k in 0.. {
        // Comparing static arguments may run Python code: look at one variant at a time.
        let is_it = call.with(|state| {
            at(state, k).map(|same| same.map(|statics| statics.as_ref().map(|statics| statics.clone_ref(py))))
        })?;
        let Some(is_it) = is_it else { break };
        let same = match (is_it, statics) {
            (None, _) => false,
            (Some(None), None) => true,
            (Some(Some(a)), Some(b)) => same_statics(a.bind(py), b)?,
            _ => false,
        };
        if same {
            return Ok(Some(k));
        }
    }
    Ok(None)
}

fn warn(py: Python<'_>, message: String) -> PyResult<()> {
    let category = py.get_type::<PyRuntimeWarning>();
    PyErr::warn(py, &category, &std::ffi::CString::new(message).unwrap_or_default(), 1)
}

/// A unique number for a variant.
pub fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Traces the function at these arguments, beside its other traces.
pub fn record_beside(call: &Call<'_>, arguments: &Arguments<'_>) -> PyResult<Traced<Path>> {
    let Arguments { tree, numbers, statics } = arguments;
    let traced = recorded(call, statics.as_ref(), |body, name, options, search| {
        record_path(body, name, options, (tree, numbers), statics.as_ref(), search)
    });
    if let Err(error) = &traced
        && (tree.has_numpy() && is_of_a_wrong_type(call.py(), error) || is_of_numpy(call.py(), error))
    {
        may_need_arrays();
    }
    traced
}

/// Whether a function of NumPy has refused a Value, a Vector, or an array of Values, a Value was asked for an attribute or an
/// entry that Arrays have, or an op has no program of Values.
fn is_of_numpy(py: Python<'_>, error: &PyErr) -> bool {
    let text = text_of(error.value(py));
    let of_objects =
        ["of type burtorch.Value", "from dtype('O')", "found ndarray", "'burtorch.Value' object is not subscriptable"];
    if error.is_instance_of::<PyTypeError>(py) && of_objects.iter().any(|part| text.contains(part)) {
        return true;
    }
    // Such as one that reads Parameters; what differs in length may broadcast.
    if text.contains("an op of a traced function must be") || text.contains("expects operands of equal length") {
        return true;
    }
    let missing =
        text.strip_prefix("'burtorch.Value' object has no attribute '").map(|name| name.trim_end_matches('\''));
    let has = |name: &str| quietly(py, || py.get_type::<PyArray>().hasattr(name)).unwrap_or(false);
    text.starts_with("numpy.") || error.is_instance_of::<PyAttributeError>(py) && missing.is_some_and(has)
}

/// Whether this is the failure of a body that uses a Vector in a way only Arrays support.
pub fn is_of_a_wrong_type(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyAttributeError>(py)
        || error.is_instance_of::<PyIndexError>(py)
        || error.is_instance_of::<PyValueError>(py)
}

/// Traces the function with `run`, which receives the body, its name and options, and returns whether the body wrote.
pub fn recorded<'py, P>(
    call: &Call<'py>,
    own: Option<&Bound<'py, PyDict>>,
    run: impl FnOnce(&Bound<'py, PyAny>, &str, &Options, &mut Search) -> PyResult<(P, bool)>,
) -> PyResult<Traced<P>> {
    let py = call.py();
    let (body, name, options) = call.with(|s| (s.body.clone_ref(py), s.name.clone(), s.options))?;
    let (mut statics, known) = call.with(|state| {
        let others = state.statics().map(|statics| statics.bind(py).clone());
        let known: Vec<_> = state.executed.iter().map(|held| held.clone_ref(py)).collect();
        (others.collect::<Vec<_>>(), known)
    })?;
    statics.extend(own.cloned());
    let body = body.into_bound(py);
    record(&body, &statics, &known, |search| run(&body, &name, &options, search))
}

/// Records the function at these arguments and adds the path.
fn record_at(call: &Call<'_>, arguments: &Arguments<'_>, is_new: bool) -> PyResult<()> {
    let (traced, took) = told(call, is_new, || record_beside(call, arguments))?;
    add(call, arguments, traced, took)
}

/// A trace, its duration, and its warnings.
pub fn told<P>(
    call: &Call<'_>,
    is_new: bool,
    record: impl FnOnce() -> PyResult<Traced<P>>,
) -> PyResult<(Traced<P>, Duration)> {
    let py = call.py();
    if let Some(error) = primitive::interrupted() {
        return Err(error);
    }
    keywords::check(call)?;
    let (name, options) = call.with(|s| (s.name.clone(), s.options))?;
    let started = std::time::Instant::now();
    let traced = record()?;
    let took = started.elapsed();
    audit::say_unwatched(call, &traced.unwatched)?;
    if is_new {
        let n_made = call.with(|state| {
            state.stats.variants += 1;
            state.stats.variants
        })?;
        if n_made == options.max_variants as u64 + 1 && !options.is_quiet {
            let message = format!(
                "{name} has been traced for more than {} shapes or static arguments; the oldest are dropped. \
                 Pass changing values as numbers, or raise max_variants=",
                options.max_variants
            );
            warn(py, message)?;
        }
    }
    Ok((traced, took))
}

/// Adds a trace to the state.
pub fn add(call: &Call<'_>, arguments: &Arguments<'_>, traced: Traced<Path>, took: Duration) -> PyResult<()> {
    let py = call.py();
    // Tracing ran Python code, so the state may have changed: look for the variant again.
    let is_there = find_variant(call, arguments)?;
    let empty = Variant {
        id: next_id(),
        arguments: arguments.tree.copy(py),
        statics: arguments.statics.clone().map(Bound::unbind),
        paths: Vec::with_capacity(1),
    };
    added(call, traced, took, |state, path, stats| {
        // All allocations first: a path without its watched constants would become stale.
        let mut dropped = Vec::with_capacity(1);
        state.variants.reserve(1);
        if let Some(variant) = state.variants.first_mut() {
            variant.paths.reserve(1);
        }
        if !is_there {
            state.variants.insert(0, empty);
            while state.variants.len() > state.options.max_variants {
                dropped.extend(state.variants.pop());
                stats.dropped += 1;
            }
        }
        let options = state.options;
        state.variants[0].add(path, &options, stats);
        dropped
    })
}

/// Adds a trace, which `put` stores among the variants, and adds its constants to those of the function.
pub fn added<P, D>(
    call: &Call<'_>,
    traced: Traced<P>,
    took: Duration,
    put: impl FnOnce(&mut FunctionState, P, &mut Stats) -> D,
) -> PyResult<()> {
    // Dropped objects may run Python code, so they are dropped when the state is no longer in use.
    let dropped = call.with(|state| {
        let Traced { path, watch, unwatched, executed, may_run_again } = traced;
        let mut stats = state.stats;
        let dropped = put(state, path, &mut stats);
        stats.traced += 1;
        state.stats = stats;
        let options = state.options;
        state.audit.plan(&options, !unwatched.is_empty(), may_run_again, took);
        let before = std::mem::replace(&mut state.watch, watch);
        let executed = std::mem::replace(&mut state.executed, executed);
        state.watch.audit_in = state.audit.next();
        state.note_quick();
        (dropped, before, executed)
    })?;
    drop(dropped);
    Ok(())
}

/// Finds or records the path for these arguments, with its values computed, and runs `f` on it.
pub fn with_path<T>(call: &Call<'_>, arguments: &Arguments<'_>, f: impl FnOnce(&mut Path) -> T) -> PyResult<T> {
    with_right_path(call, arguments, Needs::Values, f)
}

/// The same with values for a gradient by some of the arguments' numbers.
pub fn with_path_by<T>(
    call: &Call<'_>,
    arguments: &Arguments<'_>,
    wanted: &[bool],
    f: impl FnOnce(&mut Path) -> T,
) -> PyResult<T> {
    with_right_path(call, arguments, Needs::Gradient(wanted), f)
}

/// The same without values: they are computed only if guards need them. `f` may take long, and checks
/// whether to end early.
pub fn with_program<T>(call: &Call<'_>, arguments: &Arguments<'_>, f: impl FnOnce(&mut Path) -> T) -> PyResult<T> {
    with_right_path(call, arguments, Needs::Program, f)
}

fn with_right_path<T>(
    call: &Call<'_>,
    arguments: &Arguments<'_>,
    needs: Needs<'_>,
    f: impl FnOnce(&mut Path) -> T,
) -> PyResult<T> {
    let py = call.py();
    drop(call.with(|state| {
        state.is_of_arrays = false;
        state.look(py)
    })?);
    let is_there = find_variant(call, arguments)?;
    let select = || {
        let mut stats = call.with(|state| state.stats)?;
        let found = apart(call, false, |variants| {
            variants.first_mut().map_or(Ok(false), |v| v.select(&arguments.numbers, &mut stats, needs))
        })?;
        call.with(|state| {
            state.stats = stats;
            state.note_quick();
        })?;
        found.or_raise(py)
    };
    let is_right = is_there && select()?;
    // An audit that finds a difference replaces all traces by the new one.
    if is_right && audit::is_due(call)? && !audit::at_call(call, arguments)? && !select()? {
        return Err(derived(py, "TraceError", "the function gives different results each time it runs".into()));
    }
    if !is_right {
        record_at(call, arguments, !is_there)?;
        if !select()? {
            return Err(derived(
                py,
                "TraceError",
                "the function gives different results at the same numbers; it must depend only on \
                 anything but its arguments"
                    .into(),
            ));
        }
    }
    // A path abandoned because a primitive failed is dropped, because another one is right.
    drop(primitive::raised());
    apart(call, needs == Needs::Program, |variants| variants.first_mut().and_then(|v| v.paths.first_mut()).map(f))?
        .ok_or_else(|| PyTypeError::new_err("this Function is being destroyed"))
}

/// Runs `f` on the variants. If that takes long, or a path of the first variant does, `f` may check whether to end
/// early, and Python code may run, including this function: the variants are then taken out of the state, and
/// those made by that call are dropped.
fn apart<T>(call: &Call<'_>, takes_long: bool, f: impl FnOnce(&mut Vec<Variant>) -> T) -> PyResult<T> {
    let runs_python = |v: &Variant| takes_long || v.paths.iter().any(Path::takes_long);
    if !call.with(|state| state.variants.first().is_some_and(runs_python))? {
        return call.with(|state| f(&mut state.variants));
    }
    let mut variants = call.with(|state| std::mem::take(&mut state.variants))?;
    // They are put back even after a refused allocation.
    let result = catch_unwind(AssertUnwindSafe(|| asked(|| Ok(f(&mut variants)))));
    let made = call.with(|state| std::mem::replace(&mut state.variants, variants))?;
    drop(made);
    result.unwrap_or_else(|panic| resume_unwind(panic)).or_raise(call.py())
}

/// `f(x, ...)` in full.
pub fn call<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    if array_calls::is_meant(&call)? {
        return array_calls::call(&call);
    }
    let arguments = match Arguments::read(&call, &call.positional)? {
        Ok(arguments) => arguments,
        Err(Others::Arrays) => return array_calls::call(&call),
        Err(_) => {
            // While another function is traced the body, if there is one, runs, so that its sources are seen.
            let has_body = call.with(|state| !state.body.bind(py).is_instance_of::<PyCFunction>())?;
            if !(has_body && crate::convert::refusals::is_tracing())
                && let Some(results) = inline::call(&call)?
            {
                return Ok(results);
            }
            // The body itself appends to the graph of its arguments.
            return call_body_with_arrays(&call);
        }
    };
    let (values, results) = with_path(&call, &arguments, |path| (path.values(), path.results.copy(py)))?;
    results.build(py, &mut &values[..])
}

/// Calls the body with unchanged arguments.
pub fn call_body<'py>(call: &Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.py();
    keywords::check(call)?;
    let body = call.with(|state| state.body.clone_ref(py))?;
    let named = PyDict::new(py);
    for (name, value) in &call.named {
        named.set_item(name, value)?;
    }
    body.bind(py).call(PyTuple::new(py, &call.positional)?, Some(&named))
}

/// `f.bind(x_buffer, grad_buffer=None)`
pub fn bind<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    PyBound::new(call)
}

/// `f.trace(x, ...)`
pub fn record_now<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    match Arguments::unless_arrays(&call, &call.positional, "trace")? {
        Some(arguments) => with_path(&call, &arguments, |_| ())?,
        None => array_calls::record(&call)?,
    }
    Ok(call.function.clone())
}

/// `f.compile(x, ...)`
pub fn compile<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    match Arguments::unless_arrays(&call, &call.positional, "compile")? {
        Some(arguments) => with_path(&call, &arguments, Path::plan)?.or_raise(call.py())?,
        // Their programs are planned as soon as they are traced.
        None => array_calls::record(&call)?,
    }
    Ok(call.function.clone())
}

/// `f.stats()`
pub fn stats<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    keywords::check_none(&call)?;
    let (stats, n_variants, n_paths, bytes, unwatched) = call.with(|state| {
        let paths = || state.variants.iter().flat_map(|v| &v.paths);
        let array_paths = || state.arrays.iter().flat_map(|v| &v.paths);
        let bytes: usize = paths().map(Path::bytes).chain(array_paths().map(super::array_path::ArrayPath::bytes)).sum();
        let unwatched: Vec<String> = state.unwatched.iter().map(|found| found.text.clone()).collect();
        (
            state.stats,
            state.variants.len() + state.arrays.len(),
            paths().count() + array_paths().count(),
            bytes,
            unwatched,
        )
    })?;
    let table = PyDict::new(call.py());
    for (name, n) in [
        ("traced", stats.traced),
        ("variants", n_variants as u64),
        ("paths", n_paths as u64),
        ("dropped", stats.dropped),
        ("guard_misses", stats.guard_misses),
        ("invalidated", stats.invalidated),
        ("bytes", bytes as u64),
    ] {
        table.set_item(name, n)?;
    }
    table.set_item("unwatched", unwatched)?;
    Ok(table.into_any())
}

/// `f.program`: that of the last used path.
pub fn program<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    array_calls::restore(&call, array_calls::first_variant(&call)?)?;
    let arrays = call.with(|state| {
        let path = state
            .arrays
            .first()
            .and_then(|v| v.paths.first())
            .filter(|_| state.is_of_arrays || state.variants.is_empty());
        path.map(|path| (path.program.without_calls(), path.answers.len()))
    })?;
    if let Some((program, n_guards)) = arrays {
        return Ok(Bound::new(call.py(), PyProgram::of_arrays(program.or_raise(call.py())?, n_guards))?.into_any());
    }
    let found = call.with(|state| {
        let path = state.variants.first().and_then(|v| v.paths.first());
        let primitives = |path: &Path| path.primitives.iter().map(|primitive| primitive.clone_ref(call.py())).collect();
        path.map(|path| (path.program.clone(), primitives(path)))
    })?;
    match found {
        Some((program, primitives)) => Ok(Bound::new(call.py(), PyProgram::new(program, primitives))?.into_any()),
        None => {
            let message = "nothing has been traced yet; call the function, or f.trace(...)";
            Err(derived(call.py(), "TraceError", message.into()))
        }
    }
}

/// `f.forget()`
pub fn forget<'py>(call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    keywords::check_none(&call)?;
    drop(call.with(FunctionState::forget)?);
    states::forget_others(&call.function);
    Ok(call.py().None().into_bound(call.py()))
}
