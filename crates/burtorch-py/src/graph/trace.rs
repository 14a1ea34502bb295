//! The state of a trace on a graph: guards, detached copies, parameters, calls of primitives.
//!
//! Promises: it costs ordinary graphs nothing: they are not busy, and busy is checked first. Objects of
//! layers above are stored without their type.

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
    /// Whether the trace is in progress.
    pub is_active: bool,
    /// The function's name and the place of its definition.
    pub function: String,
    /// The guards so far.
    pub guards: Vec<(usize, Comparison, NodeId, NodeId, bool)>,
    /// Constants that copy other nodes.
    pub detached: Vec<(NodeId, NodeId)>,
    /// Leaves that represent `bt.parameter` objects.
    pub parameters: Vec<(Py<PyAny>, NodeId)>,
    /// Nodes computed by primitives.
    pub calls: Vec<(NodeId, Called)>,
    /// These primitives, which the calls refer to weakly.
    pub primitives: Vec<Py<PyAny>>,
}

impl Trace {
    /// An empty trace.
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

/// The reason why a graph refuses during or after a trace.
pub fn refusal(py: Python<'_>, trace: &Trace) -> PyErr {
    if trace.is_active {
        return not_in_a_trace(py, "this");
    }
    let name = &trace.function;
    let message = format!("this Value was kept from the trace of {name}, which is over; return it from the function");
    error_here(py, &message)
}

/// The error for a full graph, or any other error during a trace.
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
