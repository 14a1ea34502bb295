//! What a graph remembers while a function is traced on it: guards, detached copies, parameters, calls of primitives.
//!
//! Promises: everything here is off the path of ordinary graphs: they are not busy, and busy is asked first. Objects of
//! layers above are held as they are.

use burtorch_core::program::Comparison;
use burtorch_core::program::primitive::Called;
use burtorch_core::{Error, NodeId};
use pyo3::prelude::*;

use super::cell::Cell;
use crate::convert::errors::to_python;
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::convert::refusals::{error_here, not_in_a_trace};

/// See the module.
pub struct Trace {
    /// Whether the trace is still going on.
    pub is_active: bool,
    /// The function's name and where it is defined.
    pub function: String,
    /// The questions asked so far.
    pub guards: Vec<(usize, Comparison, NodeId, NodeId, bool)>,
    /// Constants that are copies of other nodes.
    pub detached: Vec<(NodeId, NodeId)>,
    /// Leaves that stand for `bt.parameter` objects.
    pub parameters: Vec<(Py<PyAny>, NodeId)>,
    /// Nodes that primitives computed.
    pub calls: Vec<(NodeId, Called)>,
    /// Those primitives, which the calls know by weak references.
    pub primitives: Vec<Py<PyAny>>,
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

impl HoldsObjects for Trace {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.parameters.iter().for_each(|(parameter, _)| parameter.visit(visit));
        self.primitives.visit(visit);
    }
}

/// Why a graph on which a function is or was traced refuses.
pub fn refusal(py: Python<'_>, trace: &Trace) -> PyErr {
    if trace.is_active {
        return not_in_a_trace(py, "this");
    }
    let name = &trace.function;
    let message =
        format!("this Value was kept from the trace of {name}, which is over; return what is needed from the function");
    error_here(py, &message)
}

/// The error for a graph that is full, or any other, while tracing.
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
