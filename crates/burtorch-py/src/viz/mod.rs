//! Pictures of graphs and plotting scripts for Python.
#![allow(unsafe_code)]

mod graph;

use burtorch_core::NodeId;
use burtorch_core::viz::{Options, Picture, scripts};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::convert::buffer::type_name;
use crate::convert::critical_section::locked;
use crate::convert::errors::{IntoPython, instead};
use crate::convert::numbers::argument_number;
use crate::convert::signals::asked;
use crate::graph::parameters::with_values;
use crate::graph::{LONG, PyGraph};
use crate::node::of_graph::node_of;
use crate::node::value;

/// The largest number of roots drawn if none is given.
const MOST_ROOTS: usize = 64;

/// The roots given by an argument: a Value or several; by default all nodes that no other node reads.
fn roots(graph: &Bound<'_, PyGraph>, root: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<NodeId>> {
    let py = graph.py();
    let Some(root) = root.filter(|root| !root.is_none()) else {
        let mut sinks = graph.get().at_length(py, |n| n > LONG, |graph| graph.sinks())?;
        // The last nodes are most likely the results.
        return Ok(sinks.split_off(sinks.len().saturating_sub(MOST_ROOTS)));
    };
    // SAFETY: a living object under the GIL.
    if unsafe { value::is_value(root.as_ptr()) } {
        return Ok(vec![node_of(py, graph, root)?]);
    }
    let values = root.try_iter().map_err(|error| {
        let message = format!("expected a Value or several, found {}", type_name(root));
        instead(py, error, PyTypeError::new_err(message))
    })?;
    let values = values.collect::<PyResult<Vec<_>>>()?;
    values.iter().map(|value| node_of(py, graph, value)).collect()
}

/// The picture for `root`, optionally with times.
pub fn picture(
    graph: &Bound<'_, PyGraph>,
    root: Option<&Bound<'_, PyAny>>,
    max_nodes: usize,
    timed: bool,
) -> PyResult<Picture> {
    crate::convert::refusals::refuse_reading("the picture of a graph")?;
    let py = graph.py();
    if max_nodes == 0 {
        return Err(PyValueError::new_err("max_nodes must be at least 1, found 0"));
    }
    let options = Options { max_parts: max_nodes };
    locked(graph, || {
        let roots = roots(graph, root)?;
        // Many boxes, or a large graph above few, take time.
        graph.get().released(py, |graph, parameters| {
            with_values(py, parameters, |params| asked(|| graph.picture(&roots, params, &options, timed)))?.or_raise(py)
        })
    })
}

/// A picture in one of the formats, written while other Python threads may run.
pub fn written(
    py: Python<'_>,
    picture: &Picture,
    write: impl FnOnce(&Picture) -> burtorch_core::Result<String> + Send,
) -> PyResult<String> {
    py.detach(|| asked(|| write(picture))).or_raise(py)
}

/// A script that draws rows of numbers as a heat map.
#[pyfunction]
fn _heat_map_script(rows: Vec<Vec<f64>>, labels: Vec<String>) -> PyResult<String> {
    let columns = rows.first().map_or(0, Vec::len);
    if columns == 0 || rows.iter().any(|row| row.len() != columns) {
        return Err(PyValueError::new_err("a heat map needs at least one number, and rows of equal length"));
    }
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let item = |i: usize, j: usize| rows.get(i).and_then(|row| row.get(j)).copied().unwrap_or(f64::NAN);
    Ok(scripts::heat_map_script(rows.len(), columns, item, &labels))
}

/// A script that draws a line through points.
#[pyfunction]
fn _plot_points_script(xs: Vec<f64>, ys: Vec<f64>) -> PyResult<String> {
    match xs.len() == ys.len() && !xs.is_empty() {
        true => Ok(scripts::plot_points_script(&xs, &ys)),
        false => Err(PyValueError::new_err(format!("{} points on x, {} on y", xs.len(), ys.len()))),
    }
}

/// `n` points from `start` to `end`.
#[pyfunction]
fn _points(
    #[pyo3(from_py_with = argument_number)] start: f64,
    #[pyo3(from_py_with = argument_number)] end: f64,
    n: usize,
) -> PyResult<Vec<f64>> {
    match n {
        0 => Err(PyValueError::new_err("a plot needs at least one point")),
        n if n > 1 << 24 => Err(PyValueError::new_err(format!("{n} points are too many for a plot"))),
        n => Ok(scripts::points(start, end, n)),
    }
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_heat_map_script, m)?)?;
    m.add_function(wrap_pyfunction!(_plot_points_script, m)?)?;
    m.add_function(wrap_pyfunction!(_points, m)?)
}
