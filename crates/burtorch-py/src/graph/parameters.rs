//! Parameters for the ops and backward passes of a graph.
//!
//! Promises: all parameters of one call are locked together and released at its end; a graph keeps exactly those alive that its
//! nodes read.

use burtorch_core::{DType, Error, NodeId, Slice};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::convert::errors::IntoPython;
use crate::graph::cell::Cell;
use crate::params::{AnyParameters, PyParameters, with_params};

/// Runs `f` with the parameters. A single one, the usual case, costs no memory.
pub fn with_gradients<R>(
    py: Python<'_>,
    parameters: &[Py<PyParameters>],
    f: impl FnOnce(&mut [&mut AnyParameters]) -> R,
) -> PyResult<R> {
    if let [only] = parameters {
        return Ok(f(&mut [&mut *only.get().enter(py)?]));
    }
    let mut guards = parameters.iter().map(|p| p.get().enter(py)).collect::<PyResult<Vec<_>>>()?;
    Ok(f(&mut guards.iter_mut().map(|guard| &mut **guard).collect::<Vec<_>>()))
}

/// As [`with_gradients`], with the position of `owner` among the parameters, where it is added if no node reads it.
pub fn with_gradients_of<R>(
    py: Python<'_>,
    parameters: &[Py<PyParameters>],
    owner: &Py<PyParameters>,
    f: impl FnOnce(&mut [&mut AnyParameters], usize) -> R,
) -> PyResult<R> {
    match parameters.iter().position(|p| p.is(owner)) {
        Some(place) => with_gradients(py, parameters, |all| f(all, place)),
        None => {
            let all: Vec<_> = parameters.iter().chain([owner]).map(|p| p.clone_ref(py)).collect();
            with_gradients(py, &all, |all| f(all, parameters.len()))
        }
    }
}

/// Runs `f` with read access to the parameters, which several threads may have at once.
pub fn with_values<R>(
    py: Python<'_>,
    parameters: &[Py<PyParameters>],
    f: impl FnOnce(&[&AnyParameters]) -> R,
) -> PyResult<R> {
    if let [only] = parameters {
        return Ok(f(&[&*only.get().look(py)?]));
    }
    let guards = parameters.iter().map(|p| p.get().look(py)).collect::<PyResult<Vec<_>>>()?;
    Ok(f(&guards.iter().map(|guard| &**guard).collect::<Vec<_>>()))
}

/// Refuses parameters that a graph of this element type cannot read.
pub fn check_dtype<'a>(wanted: DType, given: impl IntoIterator<Item = &'a Py<PyParameters>>) -> PyResult<()> {
    match given.into_iter().map(|p| p.get().dtype_of()).find(|&found| found != wanted) {
        Some(found) => Err(wrong_dtype(wanted.name(), found.name())),
        None => Ok(()),
    }
}

/// Keeps parameters alive that nodes of the graph are about to read, all of one call; drops those that no node reads any more.
pub fn attach<'a, I>(py: Python<'_>, cell: &mut Cell, new: I) -> PyResult<()>
where
    I: IntoIterator<Item = &'a Py<PyParameters>, IntoIter: Clone>,
{
    let new = new.into_iter();
    let is_there = |cell: &Cell, new: &Py<PyParameters>| cell.parameters.iter().any(|p| p.is(new));
    if new.clone().all(|new| is_there(cell, new)) {
        return Ok(());
    }
    check_dtype(cell.graph.scalar_type().elem, new.clone())?;
    let read = cell.graph.stores().to_vec();
    let identity = |p: &Py<PyParameters>| p.get().look(py).map(|any| with_params!(&*any, p => p.id()));
    let identities = cell.parameters.iter().map(identity).collect::<PyResult<Vec<_>>>()?;
    let mut still_read = identities.iter().map(|id| read.contains(id));
    cell.parameters.retain(|old| still_read.next().unwrap_or(true) || new.clone().any(|new| new.is(old)));
    for new in new {
        if !is_there(cell, new) {
            cell.parameters.push(new.clone_ref(py));
        }
    }
    cell.collect_soon_if_many_parameters();
    Ok(())
}

/// Appends a node for each number of a slice.
pub fn parameter_nodes(
    py: Python<'_>,
    cell: &mut Cell,
    owner: &Py<PyParameters>,
    slice: Slice,
) -> PyResult<Vec<NodeId>> {
    attach(py, cell, [owner])?;
    let parameters = std::slice::from_ref(owner);
    let graph = &mut cell.graph;
    with_values(py, parameters, |params| match params {
        [params, ..] => graph.parameters(params, slice),
        [] => Err(Error::MissingParameters),
    })?
    .or_raise(py)
}

/// The error of a graph that is to read Parameters of another dtype.
pub fn wrong_dtype(wanted: &str, found: &str) -> PyErr {
    PyTypeError::new_err(format!("a {wanted} graph cannot read {found} Parameters; make both of one dtype"))
}

/// `Graph.parameters`: the Parameters that nodes read, in the order of their slots.
pub fn parameters_read(py: Python<'_>, cell: &Cell) -> PyResult<Vec<Py<PyParameters>>> {
    let stores = cell.graph.stores().to_vec();
    let identity = |p: &Py<PyParameters>| p.get().with(py, |any| with_params!(any, p => p.id()));
    let known = cell.parameters.iter().map(|p| Ok((identity(p)?, p))).collect::<PyResult<Vec<_>>>()?;
    let find = |store: &u64| known.iter().find(|(id, _)| id == store).map(|(_, p)| p.clone_ref(py));
    Ok(stores.iter().filter_map(find).collect())
}
