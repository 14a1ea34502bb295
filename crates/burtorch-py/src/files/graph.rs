//! Graphs as files: the raw format, the checkpoint format, pickles, and the Value of a loaded node.
#![allow(unsafe_code)]

use burtorch_core::erased::{Room, load_graph as load_graph_of, scalar_type_of};
use burtorch_core::interrupt::{BYTES, PIECE};
use burtorch_core::io::{self, Contents, Nodes};
use burtorch_core::{NodeId, Range};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyTuple};

use super::{Source, contents_named, path_of};
use crate::convert::arguments::Count;
use crate::convert::buffer::{overwrite, writable};
use crate::convert::errors::IntoPython;
use crate::convert::refusals::refuse_reading;
use crate::convert::signals::asked;
use crate::graph::cell::AnyGraph;
use crate::graph::parameters::{attach, check_dtype, parameters_read, with_values};
use crate::graph::{LONG, PyGraph};
use crate::params::PyParameters;

/// The nodes selected by an argument.
enum Chosen {
    Run(Range),
    List(Vec<NodeId>),
}

impl Chosen {
    fn nodes(&self) -> Nodes<'_> {
        match self {
            Chosen::Run(range) => Nodes::Run(*range),
            Chosen::List(list) => Nodes::List(list),
        }
    }
}

/// The nodes from `first` to `last`, inclusive, or a sequence of Values.
fn chosen(graph: &Bound<'_, PyGraph>, first: Option<&Bound<'_, PyAny>>, last: Option<u32>) -> PyResult<Chosen> {
    let py = graph.py();
    if let Some(list) = first.filter(|first| !first.is_instance_of::<PyInt>()) {
        if last.is_some() {
            return Err(PyTypeError::new_err("give first and last as integers, or a sequence of Values alone"));
        }
        let values = list.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let nodes =
            values.iter().map(|value| crate::node::of_graph::node_of(py, graph, value)).collect::<PyResult<_>>()?;
        return Ok(Chosen::List(nodes));
    }
    let first = first.map_or(Ok(0), |first| first.extract::<u32>())?;
    graph.get().with(py, |cell| {
        let last = last.unwrap_or((cell.graph.len() as u32).saturating_sub(1));
        cell.graph.nodes_between(first, last).map(Chosen::Run).or_raise(py)
    })
}

/// `Graph.save_raw`; returns the bytes if there is no target.
pub fn save_raw<'py>(
    graph: &Bound<'py, PyGraph>,
    target: Option<&Bound<'py, PyAny>>,
    (first, last): (Option<&Bound<'py, PyAny>>, Option<u32>),
    what: &str,
    atomic: bool,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    refuse_reading("the file of a graph")?;
    let py = graph.py();
    let contents = contents_named(what)?;
    let nodes = chosen(graph, first, last)?;
    // The target is read before the numbers, because its Python code may change the graph.
    let buffer = match target {
        Some(target) if !target.is_instance_of::<pyo3::types::PyString>() => writable(target, "the target")?,
        _ => None,
    };
    let path = match (&target, &buffer) {
        (Some(target), None) => Some(path_of(target, "a writable buffer")?),
        _ => None,
    };
    let is_long = |_| nodes.nodes().len() >= PIECE;
    let bytes = graph.get().at_length(py, is_long, |graph| graph.to_raw(nodes.nodes(), contents))?;
    match (path, buffer) {
        (_, Some(buffer)) => overwrite(&buffer, &bytes, "the target").map(|()| None),
        (None, None) => Ok(Some(PyBytes::new(py, &bytes))),
        (Some(path), None) => {
            let write = || match atomic {
                true => io::save(&path, &bytes, io::Durability::Cached),
                false => io::write_over(&path, &bytes),
            };
            let written = py.detach(|| asked(write));
            written.or_raise(py).map(|()| None)
        }
    }
}

/// `Graph.load_raw`.
pub fn load_raw(
    graph: &Bound<'_, PyGraph>,
    source: &Bound<'_, PyAny>,
    (first, last): (Option<&Bound<'_, PyAny>>, Option<u32>),
    what: &str,
    mmap: bool,
) -> PyResult<()> {
    let py = graph.py();
    let contents = contents_named(what)?;
    let nodes = chosen(graph, first, last)?;
    let source = Source::of(source)?;
    let is_long = |_| nodes.nodes().len() >= PIECE;
    let bytes = match source {
        Source::Bytes(_) if mmap => return Err(PyTypeError::new_err("only a file can be mapped, give its path")),
        Source::Path(path) if mmap => {
            return graph.get().at_length(py, is_long, |graph| graph.load_raw_mapped(&path, nodes.nodes(), contents));
        }
        Source::Bytes(bytes) => bytes,
        Source::Path(path) => {
            let n = nodes.nodes().len();
            let n = graph.get().with(py, |cell| Ok(cell.graph.raw_bytes(n, contents)))?;
            py.detach(|| asked(|| io::read_exactly(&path, n))).or_raise(py)?
        }
    };
    graph.get().at_length(py, is_long, |graph| graph.read_raw(nodes.nodes(), contents, &bytes))
}

/// The checkpoint format of a graph, or of a range if there is one.
pub fn checkpoint_bytes(
    graph: &Bound<'_, PyGraph>,
    (first, last): (Option<u32>, Option<u32>),
    what: &str,
) -> PyResult<Vec<u8>> {
    refuse_reading("the file of a graph")?;
    let py = graph.py();
    let contents = contents_named(what)?;
    let is_whole = first.is_none() && last.is_none();
    if is_whole && contents == Contents::Gradients {
        return Err(PyValueError::new_err("a whole graph is saved with \"values\" or \"both\", not \"grads\""));
    }
    graph.get().at_length(
        py,
        |n| n >= LONG,
        |graph| {
            if is_whole {
                return graph.to_bytes(contents);
            }
            let last = last.unwrap_or((graph.len() as u32).saturating_sub(1));
            let range = graph.nodes_between(first.unwrap_or(0), last)?;
            graph.range_to_bytes(range, contents)
        },
    )
}

/// `Graph.load`.
pub fn load(graph: &Bound<'_, PyGraph>, source: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = graph.py();
    let bytes = Source::of(source)?.checked(py)?;
    let is_long = |n| n >= LONG || bytes.len() >= BYTES;
    graph.get().at_length(py, is_long, |graph| graph.load_bytes(&bytes))
}

/// The options of a loaded graph.
#[derive(Clone, Copy)]
struct Making {
    capacity: Option<u32>,
    fixed: bool,
    reclaim: bool,
}

fn make(py: Python<'_>, bytes: &[u8], parameters: &[Py<PyParameters>], making: Making) -> PyResult<Py<PyGraph>> {
    let room = match (making.capacity, making.fixed) {
        (None, true) => return Err(PyValueError::new_err("a fixed graph needs a capacity")),
        (Some(n), true) => Room::Fixed(n),
        (Some(n), false) => Room::AtLeast(n),
        (None, false) => Room::Growing,
    };
    let of = asked(|| scalar_type_of(bytes)).or_raise(py)?;
    check_dtype(of.elem, parameters)?;
    let loaded = with_values(py, parameters, |given| asked(|| load_graph_of(bytes, room, given)))?;
    let graph = AnyGraph::from(loaded.or_raise(py)?);
    let n = graph.len();
    let made = Py::new(py, PyGraph::around(graph, making.reclaim))?;
    made.get().with(py, |cell| {
        // Prevents a reclaim of loaded nodes before they have Values.
        cell.set_limit(cell.limit().max(u32::try_from(2 * n).unwrap_or(u32::MAX)));
        attach(py, cell, parameters)
    })?;
    Ok(made)
}

/// A new graph from a file written by Graph.save, or from bytes of Graph.to_bytes.
///
/// Args:
///     source: a path, or bytes.
///     parameters: if the graph read Parameters, those to read, in the order of Graph.parameters: one, or a
///         sequence. They have their own files.
///     capacity, fixed, reclaim: as for Graph, except that reclaim is off by default, because no Value holds the nodes yet.
///
/// Graph.node(index) and Graph.labelled(label) return Values of its nodes.
///
/// Raises:
///     FormatError: not a complete, undamaged file of a graph; `offset` and `reason` say where and why.
///     OSError: the file cannot be read.
///     ValueError: a wrong number of Parameters, or one with fewer numbers than the graph reads.
///     GraphFullError: more nodes than the capacity of a fixed graph.
///
/// Example:
///     >>> import burtorch as bt
///     >>> with bt.Graph() as graph:
///     ...     a = bt.Value(3.0, label="a")
///     ...     b = a * a
///     >>> again = bt.load_graph(graph.to_bytes())
///     >>> y = again.node(1)
///     >>> y.backward()
///     >>> y.data, again.labelled("a").grad
///     (9.0, 6.0)
#[pyfunction]
#[pyo3(signature = (source, parameters=None, *, capacity=None, fixed=false, reclaim=false))]
fn load_graph(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    parameters: Option<&Bound<'_, PyAny>>,
    capacity: Option<Count>,
    fixed: bool,
    reclaim: bool,
) -> PyResult<Py<PyGraph>> {
    let capacity = capacity.map(|n| n.of_nodes("capacity")).transpose()?;
    let parameters = match parameters {
        None => Vec::new(),
        Some(one) if one.is_instance_of::<PyParameters>() => vec![one.cast::<PyParameters>()?.clone().unbind()],
        Some(several) => several.extract::<Vec<Py<PyParameters>>>()?,
    };
    let bytes = Source::of(source)?.checked(py)?;
    make(py, &bytes, &parameters, Making { capacity, fixed, reclaim })
}

/// The function that unpickles a graph.
#[pyfunction]
fn _unpickle_graph(
    py: Python<'_>,
    data: &[u8],
    parameters: Vec<Py<PyParameters>>,
    capacity: Option<u32>,
    reclaim: bool,
) -> PyResult<Py<PyGraph>> {
    make(py, data, &parameters, Making { capacity, fixed: capacity.is_some(), reclaim })
}

/// `Graph.__reduce__`.
pub fn pickled<'py>(graph: &Bound<'py, PyGraph>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
    let py = graph.py();
    let bytes = checkpoint_bytes(graph, (None, None), "both")?;
    let (parameters, capacity, reclaim) = graph.get().with(py, |cell| {
        let capacity = cell.graph.is_fixed().then(|| cell.graph.capacity());
        Ok((parameters_read(py, cell)?, capacity, cell.generations.by_itself()))
    })?;
    let make = py.import("burtorch._core")?.getattr("_unpickle_graph")?;
    let parts = (PyBytes::new(py, &bytes), parameters, capacity, reclaim);
    Ok((make, parts.into_pyobject(py)?))
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(load_graph, m)?)?;
    m.add_function(wrap_pyfunction!(_unpickle_graph, m)?)
}
