//! The end of branches: joining by number, or dropping.
//!
//! Promises: the nodes of a branch become part of its graph, and its Values and Vectors become the graph's; or
//! nothing of it stays. On an error nothing has changed.
#![allow(unsafe_code)]

use std::collections::HashSet;

use burtorch_core::erased::ErasedGraph;
use burtorch_core::graph::Spliced;
use burtorch_core::memory::list_for;
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

/// The open branches, none of which is frozen or used by another thread.
fn ready_to_end<'py>(graph: &Bound<'py, PyGraph>) -> PyResult<Vec<Bound<'py, PyGraph>>> {
    let py = graph.py();
    // SAFETY: under the GIL, for this statement.
    let open = unsafe { cell_of(graph) }.branching.as_ref().map(|b| b.open.iter().map(|b| b.clone_ref(py)).collect());
    let open: Vec<Py<PyGraph>> = open.unwrap_or_default();
    if open.is_empty() {
        return Err(PyValueError::new_err("this graph has no open branches"));
    }
    for (number, branch) in open.iter().enumerate() {
        // SAFETY: as above.
        let cell = unsafe { cell_of(branch.bind(py)) };
        // A branch without a thread is not in use.
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
    // SAFETY: under the GIL; the cells are those of different graphs, and nothing here runs Python code.
    let cell = unsafe { cell_of(graph) };
    // SAFETY: as above.
    let mut cells: Vec<&mut Cell> = branches.iter().map(|branch| unsafe { cell_of(branch) }).collect();
    crate::graph::parameters::attach(py, cell, cells.iter().flat_map(|part| &part.parameters))?;
    // All allocations first: after the splice nothing may fail.
    let moving =
        cells.iter_mut().map(|part| Moving::of(part)).collect::<burtorch_core::Result<Vec<_>>>().or_raise(py)?;
    if cell.is_branch() {
        branching(cell).vectors.reserve(moving.iter().map(|moving| moving.vectors.len()).sum());
    }
    let mut ended = list_for(branches.len(), "branches to join").or_raise(py)?;
    let joined = splice(&mut cell.graph, &mut cells, n_threads).or_raise(py)?;
    thaw(cell);
    let epoch = cell.graph.epoch();
    for (((part, spliced), branch), moving) in cells.iter_mut().zip(joined.parts()).zip(&branches).zip(moving) {
        let go = || {
            rehome(graph, cell, part, spliced, epoch, moving);
            // The graph has them too.
            part.parameters.clear();
            end(part, "joined");
        };
        // SAFETY: a living graph.
        unsafe { locked_graph(branch.as_ptr(), go) }
    }
    ended.extend(branches.into_iter().map(Bound::unbind));
    // Dropped objects may run Python code, so they are dropped when the cell is no longer in use.
    drop(std::mem::replace(&mut branching(cell).joined, ended));
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

/// Makes a frozen graph writable again.
fn thaw(cell: &mut Cell) {
    branching(cell).open.clear();
    cell.set_busy_if_frozen();
}

/// Marks a branch as closed; its remaining nodes are removed.
fn end(cell: &mut Cell, how: &'static str) {
    let Branching { trunk, ended, vectors, imports, .. } = branching(cell);
    (*trunk, *ended, *imports) = (None, Some(how), Imports::default());
    vectors.clear();
    cell.handles.forget_seen();
    cell.objects.clear();
    cell.set_busy(true);
}

/// The Values and Vectors of a branch before joining.
struct Moving {
    /// All of them.
    handles: Vec<*mut Handle>,
    /// Those of Vectors, as addresses.
    of_vectors: HashSet<usize>,
    /// Addresses of the Vectors.
    vectors: Vec<usize>,
}

impl Moving {
    fn of(part: &mut Cell) -> burtorch_core::Result<Self> {
        part.handles.forget_seen();
        let mut handles = list_for(part.handles.len(), "Values of a branch")?;
        part.handles.for_each(|handle| handles.push(&raw mut *handle));
        let vectors: Vec<usize> = branching(part).vectors.iter().copied().collect();
        let mut of_vectors = HashSet::new();
        for &address in &vectors {
            // SAFETY: a Vector removes its address when it is dropped.
            let vector = unsafe { &*(address as *const PyVector) };
            of_vectors.extend(vector.handles().map(|handle| handle as usize));
        }
        Ok(Moving { handles, of_vectors, vectors })
    }
}

/// Moves the Values and Vectors of a joined branch to its graph. Needs no memory.
fn rehome(
    graph: &Bound<'_, PyGraph>,
    cell: &mut Cell,
    part: &mut Cell,
    spliced: &Spliced,
    epoch: u64,
    Moving { handles, of_vectors, vectors }: Moving,
) {
    let py = graph.py();
    branching(part).vectors.clear();
    if cell.is_branch() {
        // A branch of a branch: the graph has to find its new Vectors when it is joined itself.
        for &address in &vectors {
            branching(cell).vectors.insert(address);
        }
    }
    for address in vectors {
        // SAFETY: a Vector removes its address when it is dropped.
        unsafe { &*(address as *const PyVector) }.set_owner(graph.clone().unbind());
    }
    for handle in handles {
        // SAFETY: a handle is valid while in the list; it is taken out of one list and put into the other.
        unsafe {
            handle::unlink(handle);
            let last = NodeId::from_index((*handle).last());
            let is_there = (*handle).start != u32::MAX && part.graph.check(last, (*handle).epoch).is_ok();
            match spliced.range((*handle).range()).filter(|_| is_there) {
                Some(new) => ((*handle).start, (*handle).epoch) = (new.first().index(), epoch),
                None => {
                    (*handle).kill();
                    // No graph has this epoch, so none accepts the handle.
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
    // SAFETY: under the GIL, as in `join`.
    thaw(unsafe { cell_of(graph) });
    for branch in &branches {
        let go = || {
            // SAFETY: as above.
            let cell = unsafe { cell_of(branch) };
            // Even without memory to record removed nodes, because they have no handles any more.
            cell.forget_all();
            cell.graph.give_back();
            end(cell, "dropped");
        };
        // SAFETY: a living graph.
        unsafe { locked_graph(branch.as_ptr(), go) }
    }
    Ok(())
}
