//! What a graph remembers while a function is recorded on it: guards, detached copies, parameters; and what it refuses.
//!
//! Promises: whatever would take a traced Value for a plain number is either remembered or a `TraceError` that names the
//! line. Everything here is off the path of ordinary graphs: they are not busy, and busy is asked first.
#![allow(unsafe_code)]

use burtorch_core::program::Comparison;
use burtorch_core::program::primitive::Called;
use burtorch_core::{Error, NodeId};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use super::parameter::PyParameter;
use super::primitive::PyPrimitive;
use crate::convert::errors::{derived, to_python};
use crate::convert::gc::{Held, Visitor};
use crate::graph::cell::Cell;
use crate::node::value::{ValueObject, cell_of};

/// See the module.
pub struct Trace {
    /// Whether the recording is still going on.
    pub is_active: bool,
    /// The function's name and where it is defined.
    pub function: String,
    /// The questions asked so far.
    pub guards: Vec<(usize, Comparison, NodeId, NodeId, bool)>,
    /// Constants that are copies of other nodes.
    pub detached: Vec<(NodeId, NodeId)>,
    /// Leaves that stand for `bt.parameter` objects.
    pub parameters: Vec<(Py<PyParameter>, NodeId)>,
    /// Nodes that primitives computed.
    pub calls: Vec<(NodeId, Called)>,
    /// Those primitives, which the calls know by weak references.
    pub primitives: Vec<Py<PyPrimitive>>,
}

impl Trace {
    /// Nothing asked yet.
    pub fn new(function: String) -> Self {
        Trace {
            is_active: true,
            function,
            guards: Vec::new(),
            detached: Vec::new(),
            parameters: Vec::new(),
            calls: Vec::new(),
            primitives: Vec::new(),
        }
    }
}

impl Held for Trace {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.parameters.iter().for_each(|(parameter, _)| parameter.visit(visit));
        self.primitives.visit(visit);
    }
}

/// The file and line that Python is at.
fn line(py: Python<'_>) -> String {
    let frame = || -> PyResult<String> {
        let frame = py.import("sys")?.call_method0("_getframe")?;
        let file: String = frame.getattr("f_code")?.getattr("co_filename")?.extract()?;
        let line: u32 = frame.getattr("f_lineno")?.extract()?;
        Ok(format!("{file}:{line}"))
    };
    frame().unwrap_or_else(|_| "unknown line".into())
}

/// A `TraceError` that ends with the line Python is at.
pub fn error_here(py: Python<'_>, message: &str) -> PyErr {
    derived(py, "TraceError", format!("{message} ({})", line(py)))
}

/// Why a graph on which a function is or was recorded refuses.
pub fn refusal(py: Python<'_>, trace: &Trace) -> PyErr {
    if trace.is_active {
        return not_in_a_trace(py, "this");
    }
    let name = &trace.function;
    let message = format!(
        "this Value was kept from the recording of {name}, which is over; return what is needed from the function"
    );
    error_here(py, &message)
}

/// Reading a traced Value as a number.
pub fn reading_refused() -> PyErr {
    Python::attach(|py| {
        error_here(
            py,
            "float(), int(), round(), math functions and .data of a traced Value would fix it at its present number; \
             compute with the Value itself, with bt.exp(v) instead of math.exp(v), or use v.detach()",
        )
    })
}

/// What makes no sense while a function is recorded.
pub fn not_in_a_trace(py: Python<'_>, what: &str) -> PyErr {
    error_here(py, &format!("{what} is not possible while a function is recorded: a replay would not repeat it"))
}

/// `no_grad` in a recorded function.
pub fn no_grad_refused() -> PyErr {
    Python::attach(|py| {
        error_here(py, "no_grad() inside a recorded function would make constants of what varies; use v.detach()")
    })
}

/// The error for a graph that is full, or any other, while recording.
pub fn too_large(cell: &Cell, error: Error) -> PyErr {
    Python::attach(|py| match (&error, &cell.trace) {
        (Error::IndexExhausted { limit }, Some(trace)) => error_here(
            py,
            &format!(
                "{} needs more than {limit} operations; shorten its loops, or raise max_nodes= of bt.function",
                trace.function
            ),
        ),
        _ => to_python(py, error),
    })
}

/// A comparison with an int as one with a float, exact also where no float holds the int; `None` where it equals no float.
pub fn with_int(x: &Bound<'_, PyAny>, comparison: Comparison) -> PyResult<Option<(Comparison, f64)>> {
    let py = x.py();
    let floor = match x.extract::<f64>() {
        Ok(nearest) if nearest.into_pyobject(py)?.as_any().gt(x)? => nearest.next_down(),
        Ok(nearest) => nearest,
        Err(error) if !error.is_instance_of::<PyOverflowError>(py) => return Err(error),
        Err(_) => {
            if x.gt(0)? {
                f64::MAX
            } else {
                f64::NEG_INFINITY
            }
        }
    };
    let is_exact = floor.into_pyobject(py)?.as_any().eq(x)?;
    Ok(comparison.about_floor(is_exact).map(|comparison| (comparison, floor)))
}

/// The recording of a Value's graph, if there is one, with the Value's node.
unsafe fn traced<'a>(value: *mut ValueObject) -> (&'a mut Cell, NodeId) {
    // SAFETY: callers hold the interpreter lock and a living, checked Value.
    unsafe { (cell_of((*value).owner), NodeId::from_index((*value).handle.start)) }
}

/// Remembers a comparison of `a` with `b` (or with `y`) and its answer.
pub fn compared(
    a: *mut ValueObject,
    b: Option<*mut ValueObject>,
    y: f64,
    mut comparison: Comparison,
    answer: bool,
) -> PyResult<()> {
    // SAFETY: as in `traced`.
    unsafe {
        if b.is_some_and(|b| (*b).owner != (*a).owner) {
            let message = "a traced Value cannot be compared with a Value of another graph; pass that as an argument";
            return Python::attach(|py| Err(error_here(py, message)));
        }
        let (cell, x) = traced(a);
        let other = match b {
            Some(b) => traced(b).1,
            None => {
                // A constant would be rounded to the graph's type, and the question would be another one.
                let floor = cell.graph.scalar_type().elem.floor(y);
                match comparison.about_floor(floor == y || y.is_nan()) {
                    Some(about_floor) => comparison = about_floor,
                    None => return Ok(()),
                }
                match cell.graph.append_number(&burtorch_core::erased::AnyNumber::One(floor), true) {
                    Ok(node) => node,
                    Err(error) => return Err(too_large(cell, error)),
                }
            }
        };
        let len = cell.graph.len();
        if let Some(trace) = &mut cell.trace {
            trace.guards.push((len, comparison, x, other, answer));
        }
    }
    Ok(())
}

/// Remembers that `copy` is a copy of `of` through which no gradient flows.
///
/// # Safety
/// Both are living Values of the graph of `cell`; the interpreter lock is held.
pub unsafe fn detached(cell: &mut Cell, copy: *mut ValueObject, of: *mut ValueObject) {
    debug_assert!(cell.is_busy());
    // SAFETY: by the contract of this function.
    let pair = unsafe { (NodeId::from_index((*copy).handle.start), NodeId::from_index((*of).handle.start)) };
    if let Some(trace) = &mut cell.trace {
        trace.detached.push(pair);
    }
}
