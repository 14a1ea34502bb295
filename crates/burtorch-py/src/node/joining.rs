//! How branches end: joined, by number, or dropped.
//!
//! Promises: what a branch has built becomes part of its graph whole, and its Values and Vectors become the graph's; or
//! nothing of it stays. On an error nothing has changed.
#![allow(unsafe_code)]

use std::collections::HashSet;

use burtorch_core::erased::ErasedGraph;
use burtorch_core::graph::Spliced;
use burtorch_core::{Imports, NodeId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::critical_section::locked_value;
use crate::convert::errors::{IntoPython, derived};
use crate::graph::PyGraph;
use crate::graph::branches::{Branching, branching, cell_of};
use crate::graph::cell::{AnyGraph, Cell};
use crate::graph::critical_section::locked_graph;
use crate::graph::handle::{self, Handle};
use crate::node::value::ValueObject;
use crate::node::vector::PyVector;

/// The open branches, which none of their own freezes and no other thread is in.
fn ready_to_end<'py>(graph: &Bound<'py, PyGraph>) -> PyResult<Vec<Bound<'py, PyGraph>>> {
    let py = graph.py();
    // SAFETY: under the interpreter lock, for this statement.
    let open = unsafe { cell_of(graph) }.branching.as_ref().map(|b| b.open.iter().map(|b| b.clone_ref(py)).collect());
    let open: Vec<Py<PyGraph>> = open.unwrap_or_default();
    if open.is_empty() {
        return Err(PyValueError::new_err("this graph has no open branches"));
    }
    for (number, branch) in open.iter().enumerate() {
        // SAFETY: as above.
        let cell = unsafe { cell_of(branch.bind(py)) };
        // Nobody uses a branch that nobody is in.
        let why = match cell.branching.as_ref() {
            _ if cell.is_away => "is still in use by a thread",
            Some(b) if !b.open.is_empty() => "has open branches of its own",
            Some(b) if b.entered.is_some() => "is still in use by a thread",
            _ => continue,
        };
        let message = format!("branch {number} {why}; wait until its `with` block has ended, and join them first");
        return Err(derived(py, "BusyError", message));
    }
    Ok(open.into_iter().map(|branch| branch.into_bound(py)).collect())
}

/// Appends all open branches to their graph, by number.
pub fn join(graph: &Bound<'_, PyGraph>, n_threads: usize) -> PyResult<()> {
    // SAFETY: a living graph.
    unsafe { locked_graph(graph.as_ptr(), || join_locked(graph, n_threads)) }
}

fn join_locked(graph: &Bound<'_, PyGraph>, n_threads: usize) -> PyResult<()> {
    let py = graph.py();
    let branches = ready_to_end(graph)?;
    // SAFETY: under the interpreter lock; the cells are those of different graphs, and nothing here runs Python code.
    let cell = unsafe { cell_of(graph) };
    // SAFETY: as above.
    let mut cells: Vec<&mut Cell> = branches.iter().map(|branch| unsafe { cell_of(branch) }).collect();
    crate::graph::parameters::attach(py, cell, cells.iter().flat_map(|part| &part.parameters))?;
    let joined = splice(&mut cell.graph, &mut cells, n_threads).or_raise(py)?;
    thaw(cell);
    let epoch = cell.graph.epoch();
    for ((part, spliced), branch) in cells.iter_mut().zip(joined.parts()).zip(&branches) {
        let go = || {
            rehome(graph, cell, part, spliced, epoch);
            // The graph has them too.
            part.parameters.clear();
            end(part, "joined");
        };
        // SAFETY: a living graph.
        unsafe { locked_graph(branch.as_ptr(), go) }
    }
    let joined = branches.into_iter().map(Bound::unbind).collect();
    // Objects that go may run Python code, so they go when the cell is not in use any more.
    drop(std::mem::replace(&mut branching(cell).joined, joined));
    Ok(())
}

fn splice(
    graph: &mut AnyGraph,
    cells: &mut [&mut Cell],
    n_threads: usize,
) -> burtorch_core::Result<burtorch_core::Joined> {
    let mut graphs: Vec<&mut dyn ErasedGraph> = cells.iter_mut().map(|cell| &mut *cell.graph).collect();
    graph.splice(&mut graphs, n_threads)
}

/// Lets a frozen graph build again.
fn thaw(cell: &mut Cell) {
    branching(cell).open.clear();
    cell.set_busy_if_frozen();
}

/// Marks a branch as over; nodes that are still in it are gone.
fn end(cell: &mut Cell, how: &'static str) {
    let Branching { trunk, ended, vectors, imports, .. } = branching(cell);
    (*trunk, *ended, *imports) = (None, Some(how), Imports::default());
    vectors.clear();
    cell.handles.forget_seen();
    cell.objects.clear();
    cell.set_busy(true);
}

/// Makes the Values and Vectors of a joined branch those of its graph.
fn rehome(graph: &Bound<'_, PyGraph>, cell: &mut Cell, part: &mut Cell, spliced: &Spliced, epoch: u64) {
    let py = graph.py();
    let mut of_vectors = HashSet::new();
    let vectors = std::mem::take(&mut branching(part).vectors);
    if cell.is_branch() {
        // A branch of a branch: the graph has to find its new Vectors when it is joined itself.
        branching(cell).vectors.extend(&vectors);
    }
    for address in vectors {
        // SAFETY: a Vector takes its address out when it goes.
        let vector = unsafe { &*(address as *const PyVector) };
        vector.handles().for_each(|handle| _ = of_vectors.insert(handle as usize));
        vector.set_owner(graph.clone().unbind());
    }
    part.handles.forget_seen();
    let mut moved: Vec<*mut Handle> = Vec::with_capacity(part.handles.len());
    part.handles.for_each(|handle| moved.push(handle));
    for handle in moved {
        // SAFETY: a handle is valid while in the list; it is taken out of one list and put into the other.
        unsafe {
            handle::unlink(handle);
            let last = NodeId::from_index((*handle).last());
            let is_there = (*handle).start != u32::MAX && part.graph.check(last, (*handle).epoch).is_ok();
            match spliced.range((*handle).range()).filter(|_| is_there) {
                Some(new) => ((*handle).start, (*handle).epoch) = (new.first().index(), epoch),
                None => {
                    (*handle).kill();
                    // No graph has this epoch, so none takes the handle for a living one.
                    (*handle).epoch = u64::MAX;
                }
            }
            cell.handles.add(handle);
            if !of_vectors.contains(&(handle as usize)) {
                let object = handle.byte_sub(std::mem::offset_of!(ValueObject, handle)).cast::<ValueObject>();
                let replace = || std::mem::replace(&mut (*object).owner, graph.clone().into_ptr());
                drop(Bound::from_owned_ptr(py, locked_value(object.cast(), replace)));
            }
        }
    }
}

/// Drops all open branches: nothing is appended, their Values are stale.
pub fn discard(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    // SAFETY: a living graph.
    unsafe { locked_graph(graph.as_ptr(), || discard_locked(graph)) }
}

fn discard_locked(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    let branches = ready_to_end(graph)?;
    // SAFETY: under the interpreter lock, as in `join`.
    thaw(unsafe { cell_of(graph) });
    branches.iter().try_for_each(|branch| {
        let go = || {
            // SAFETY: as above.
            let cell = unsafe { cell_of(branch) };
            cell.graph.clear().map(|()| cell.graph.give_back()).or_raise(graph.py())?;
            cell.handles.for_each(Handle::kill);
            end(cell, "dropped");
            Ok(())
        };
        // SAFETY: a living graph.
        unsafe { locked_graph(branch.as_ptr(), go) }
    })
}
