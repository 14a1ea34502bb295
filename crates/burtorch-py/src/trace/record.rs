//! Recording: the body runs once on Values of a graph of its own, which becomes a program.
//!
//! Promises: whatever happens in the body, the earlier current graph is current again afterwards; Values that the body kept
//! are refused from then on. Holds no reference into the function's state while Python code runs.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use burtorch_core::program::{Recording, passes};
use burtorch_core::{DType, Error, Graph, NodeId, Program};
use pyo3::PyTypeCheck;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::invalidate::Watch;
use super::observe::observed;
use super::primitive::PyPrimitive;
use super::pytree::Tree;
use super::search::{Search, Unwatched};
use super::state::{Options, Path};
use crate::convert::errors::{IntoPython, derived};
use crate::convert::signals::{asked, quietly, text_of};
use crate::graph::cell::AnyGraph;
use crate::graph::trace::Trace;
use crate::graph::{self, PyGraph};
use crate::node::no_grad::OutsideNoGrad;
use crate::node::parameter::PyParameter;

/// The result of a trace.
pub struct Traced<P> {
    /// The program.
    pub path: P,
    /// Its constants.
    pub watch: Watch,
    /// Its unwatched sources.
    pub unwatched: Vec<Unwatched>,
    /// The functions that ran besides the body itself.
    pub executed: Vec<Py<PyAny>>,
    /// Whether a second run of the body changes nothing but the time.
    pub may_run_again: bool,
}

/// Runs `run`, which records `body` and returns whether it wrote something, and searches everything that the body reads.
/// `known` ran in earlier traces of it.
pub fn record<P>(
    body: &Bound<'_, PyAny>,
    statics: &[Bound<'_, PyDict>],
    known: &[Py<PyAny>],
    run: impl FnOnce(&mut Search) -> PyResult<(P, bool)>,
) -> PyResult<Traced<P>> {
    let py = body.py();
    let values: Vec<_> = statics.iter().flat_map(|statics| statics.values().iter().collect::<Vec<_>>()).collect();
    let mut search = Search::of(body, known, &values)?;
    let (path, writes) = run(&mut search)?;
    let is_unchanged = search.watch.is_unchanged(py);
    let (watch, unwatched, executed) = search.finish(py)?;
    let may_run_again = is_unchanged && !writes && unwatched.iter().all(|found| found.kind.may_run_again());
    Ok(Traced { path, watch, unwatched, executed, may_run_again })
}

/// Runs `body` at `numbers`, in the shape of `arguments`, and returns what was traced, and whether it wrote something.
pub fn record_path(
    body: &Bound<'_, PyAny>,
    name: &str,
    options: &Options,
    (arguments, numbers): (&Tree, &[f64]),
    statics: Option<&Bound<'_, PyDict>>,
    search: &mut Search,
) -> PyResult<(Path, bool)> {
    let py = body.py();
    let graph = match options.dtype {
        DType::Float32 => AnyGraph::F32(Graph::with_index_limit(options.max_nodes)),
        _ => AnyGraph::F64(Graph::with_index_limit(options.max_nodes)),
    };
    let owner = Bound::new(py, PyGraph::around(graph, false))?;
    owner.get().end_of_trace(|cell| {
        cell.trace = Some(Box::new(Trace::new(name.to_string())));
        cell.set_busy(true);
    });
    // The replacement for the recording after its end, allocated before anything starts.
    let over = Box::new(Trace { is_active: false, ..Trace::new(name.to_string()) });
    let mut inputs = Vec::with_capacity(numbers.len());
    graph::enter(&owner)?;
    // Settings of the caller's own graphs do not apply to the body.
    let outside = OutsideNoGrad::enter();
    let mut outputs = Vec::new();
    let mut writes = false;
    let run = || -> PyResult<Tree> {
        let values = arguments.leaves(&owner, &mut &numbers[..], &mut inputs)?;
        let values = values.cast_into::<PyTuple>()?;
        let (result, wrote) = observed(py, search, || body.call(values, statics));
        writes = wrote;
        let result = result?;
        Tree::of_result(&owner, &result, &mut outputs, arguments.has_numpy(), 0)
    };
    // The following steps run even if an allocation failed.
    let results = catch_unwind(AssertUnwindSafe(run));
    drop(outside);
    let left = graph::leave_all_above(&owner);
    let trace = owner.get().end_of_trace(|cell| {
        let trace = cell.trace.replace(over);
        // The fast path closes.
        cell.set_busy(true);
        trace
    });
    let results = results.unwrap_or_else(|panic| resume_unwind(panic));
    let results = results.map_err(|error| in_words(py, name, error))?;
    left?;
    let Some(trace) = trace else { return Err(derived(py, "TraceError", "the trace was lost".into())) };
    if outputs.is_empty() {
        return Err(derived(py, "TraceError", format!("{name} returned no numbers; return a Value or several")));
    }
    let parameters = trace.parameters.iter().map(|(parameter, _)| as_is::<PyParameter>(py, parameter));
    let parameters = parameters.collect::<PyResult<Vec<_>>>()?;
    let primitives = trace.primitives.iter().map(|primitive| as_is::<PyPrimitive>(py, primitive));
    let primitives = primitives.collect::<PyResult<Vec<_>>>()?;
    let program = program_of(py, &owner, *trace, inputs, outputs, name)?;
    let program = if options.fast {
        asked(|| passes::shared(&program).and_then(|program| passes::chained(&program))).or_raise(py)?
    } else {
        program
    };
    Ok((Path::new(py, program, results, parameters, primitives)?.at(numbers), writes))
}

/// An object that the trace keeps without knowing its class.
fn as_is<T: PyTypeCheck>(py: Python<'_>, object: &Py<PyAny>) -> PyResult<Py<T>> {
    Ok(object.bind(py).cast::<T>()?.clone().unbind())
}

/// The program of the graph's nodes.
fn program_of(
    py: Python<'_>,
    owner: &Bound<'_, PyGraph>,
    trace: Trace,
    mut inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    name: &str,
) -> PyResult<Program> {
    let n_differentiated = inputs.len();
    inputs.extend(trace.parameters.iter().map(|(_, node)| *node));
    let tracing = Recording {
        inputs,
        n_differentiated,
        outputs,
        guards: trace.guards,
        detached: trace.detached,
        calls: trace.calls,
    };
    // Signal handlers cannot reach it meanwhile.
    let graph = owner.get().end_of_trace(|cell| std::mem::replace(&mut cell.graph, AnyGraph::F64(Graph::new())));
    let program = asked(|| match &graph {
        AnyGraph::F32(graph) => tracing.program(graph),
        AnyGraph::F64(graph) => tracing.program(graph),
        _ => Err(Error::Interrupted), // `record` makes no others
    });
    owner.get().end_of_trace(|cell| cell.graph = graph);
    program.map_err(|error| match &error {
        Error::BadArgument { .. } => derived(py, "TraceError", format!("{name}: {error}")),
        _ => crate::convert::errors::to_python(py, error),
    })
}

/// A tracing that is too large fails in the core, and a NumPy function that met a Value does not know of traces;
/// elsewhere errors are the body's own.
fn in_words(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    let text = text_of(error.value(py));
    if error.get_type(py).is(py.get_type::<PyTypeError>()) && text.starts_with("numpy.") {
        // A trace cannot use a number alone.
        let text = text.replace(crate::node::vector::NUMBER_ALONE, "");
        let new = derived(py, "TraceError", format!("{text} ({})", line_of(py, &error)));
        new.set_cause(py, Some(error));
        return new;
    }
    if error.get_type(py).name().is_ok_and(|kind| kind == "GraphMismatchError") {
        let message = format!("{text}; {name} may use only its arguments and plain numbers ({})", line_of(py, &error));
        let new = derived(py, "GraphMismatchError", message);
        new.set_cause(py, Some(error));
        return new;
    }
    let full = || -> PyResult<bool> {
        let is_full = error.get_type(py).name()? == "GraphFullError";
        Ok(is_full && text_of(error.value(py)).contains("holds at most"))
    };
    if quietly(py, full).unwrap_or(false) {
        // Without a line no code of the body has run.
        let place = find_line(py, &error).unwrap_or_else(|| "its arguments alone".into());
        let message = format!(
            "{name} needs more operations than max_nodes= of bt.function allows; shorten its loops or raise it ({place})"
        );
        let new = derived(py, "TraceError", message);
        new.set_cause(py, Some(error));
        return new;
    }
    error
}

/// The file and line that raised an error.
fn line_of(py: Python<'_>, error: &PyErr) -> String {
    find_line(py, error).unwrap_or_else(|| "unknown line".into())
}

fn find_line(py: Python<'_>, error: &PyErr) -> Option<String> {
    let find = || -> PyResult<Option<String>> {
        let Some(first) = error.traceback(py) else { return Ok(None) };
        let mut at = first.into_any();
        loop {
            let next = at.getattr("tb_next")?;
            if next.is_none() {
                break;
            }
            at = next;
        }
        let file: String = at.getattr("tb_frame")?.getattr("f_code")?.getattr("co_filename")?.extract()?;
        let line: u32 = at.getattr("tb_lineno")?.extract()?;
        Ok(Some(format!("{file}:{line}")))
    };
    quietly(py, find).flatten()
}
