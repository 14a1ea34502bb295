//! Nodes of a graph for Python objects, and objects for its nodes.
#![allow(unsafe_code)]

use burtorch_core::NodeId;
use burtorch_core::erased::AnyNumber;
use pyo3::exceptions::{PyIndexError, PyKeyError, PyTypeError};
use pyo3::prelude::*;

use super::parameter::{PyParameter, value_of};
use super::value;
use super::vector::wrap;
use crate::convert::buffer::type_name;
use crate::convert::critical_section::locked;
use crate::convert::errors::{IntoPython, to_python};
use crate::convert::numbers::number_of;
use crate::graph::PyGraph;
use crate::graph::cell::Cell;

/// A new leaf, and the Value for it.
pub fn leaf<'py>(graph: &Bound<'py, PyGraph>, x: f64) -> PyResult<(NodeId, Bound<'py, PyAny>)> {
    locked(graph, || {
        let node = graph
            .get()
            .with_as_is(graph.py(), |cell| cell.graph.append_number(&AnyNumber::One(x), false).or_raise(graph.py()))?;
        Ok((node, wrap(graph, node)?))
    })
}

/// The node of a Value of this graph, or of a new constant for a number; `None` for other objects.
pub fn node_or_constant(graph: &Bound<'_, PyGraph>, x: &Bound<'_, PyAny>) -> PyResult<Option<NodeId>> {
    let py = graph.py();
    // SAFETY: a living object under the GIL.
    if unsafe { value::is_value(x.as_ptr()) } {
        return node_of(py, graph, x).map(Some);
    }
    let x = match x.cast::<PyParameter>() {
        Ok(parameter) => return node_of(py, graph, &value_of(parameter)?).map(Some),
        Err(_) => number_of(x)?,
    };
    let constant =
        |x: f64| graph.get().with_as_is(py, |cell| cell.graph.append_number(&AnyNumber::One(x), true).or_raise(py));
    x.map(constant).transpose()
}

/// The node behind a Value argument. Hold the lock of the graph while the node is used.
pub fn node_of(py: Python<'_>, graph: &Bound<'_, PyGraph>, value: &Bound<'_, PyAny>) -> PyResult<NodeId> {
    node_as(py, graph, value, value::checked)
}

/// The node of a Value of this graph as the root of a backward pass: it need not have a value, and gets none.
pub fn root_of(py: Python<'_>, graph: &Bound<'_, PyGraph>, value: &Bound<'_, PyAny>) -> PyResult<NodeId> {
    node_as(py, graph, value, value::checked_for_sweep)
}

/// How to look up a Value's node.
type Check = unsafe fn(*mut value::ValueObject) -> Option<(&'static mut Cell, NodeId)>;

fn node_as(py: Python<'_>, graph: &Bound<'_, PyGraph>, value: &Bound<'_, PyAny>, check: Check) -> PyResult<NodeId> {
    // SAFETY: living objects under the GIL.
    unsafe {
        if !value::is_value(value.as_ptr()) {
            return Err(PyTypeError::new_err(format!("expected a Value, found {}", type_name(value))));
        }
        let object = value.as_ptr().cast::<value::ValueObject>();
        if !value::graph_of(py, object).is(graph) {
            return Err(to_python(py, burtorch_core::Error::GraphMismatch { what: "the value" }));
        }
        locked(graph, || check(object).map(|(_, node)| node)).ok_or_else(|| PyErr::fetch(py))
    }
}

/// A Value for an existing node.
pub fn node_value<'py>(graph: &Bound<'py, PyGraph>, index: u32) -> PyResult<Bound<'py, PyAny>> {
    locked(graph, || node_value_locked(graph, index))
}

fn node_value_locked<'py>(graph: &Bound<'py, PyGraph>, index: u32) -> PyResult<Bound<'py, PyAny>> {
    let py = graph.py();
    let epoch = graph.get().with(py, |cell| {
        let (n, epoch) = (cell.graph.len(), cell.graph.epoch());
        match (index as usize) < n {
            true => Ok(epoch),
            false => Err(PyIndexError::new_err(format!("node {index} does not exist in a graph of {n} nodes"))),
        }
    })?;
    // SAFETY: a living graph under the GIL, which is not busy, as `with` has just found; no reference into the
    // cell is in use.
    unsafe {
        let cell = PyGraph::cell_of_object(graph.as_ptr());
        Bound::from_owned_ptr_or_err(py, value::new_object(graph.as_ptr(), cell, index, epoch))
    }
}

/// The Value with this label: the first, if several have it.
pub fn labelled<'py>(graph: &Bound<'py, PyGraph>, label: &str) -> PyResult<Bound<'py, PyAny>> {
    locked(graph, || match graph.get().with(graph.py(), |cell| Ok(cell.graph.labelled(label)))? {
        Some(node) => node_value(graph, node.index()),
        None => Err(PyKeyError::new_err(label.to_string())),
    })
}
