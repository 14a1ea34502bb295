//! The end of branches: joining by number, or dropping.
//!
//! Promises: the nodes of a branch become part of its graph, and its Values and Vectors become the graph's; or
//! nothing of it stays. On an error nothing has changed.
#![allow(unsafe_code)]

use burtorch_core::erased::ErasedGraph;
use burtorch_core::graph::Spliced;
use burtorch_core::memory::list_for;
use burtorch_core::{Imports, NodeId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::convert::critical_section::living;
use crate::convert::errors::{IntoPython, derived};
use crate::graph::PyGraph;
use crate::graph::branches::{Branching, branching, cell_of};
use crate::graph::cell::{AnyGraph, Cell};
use crate::graph::critical_section::{locked_graph, section};
use crate::graph::handle::{self, Handle};
use crate::node::value::{ValueObject, object_of};
use crate::node::vector::PyVector;

/// The open branches of a graph while they end: until this is dropped they refuse every use, except that their Values and Vectors
/// may be dropped.
struct Ending<'py>(Vec<Bound<'py, PyGraph>>);

impl<'py> Ending<'py> {
    /// All of them, none of which is frozen or used by another thread.
    fn of(graph: &Bound<'py, PyGraph>) -> PyResult<Self> {
        let py = graph.py();
        let listed = |branching: &Branching| branching.open.iter().map(|branch| branch.bind(py).clone()).collect();
        // SAFETY: a living graph, for this statement.
        let open = unsafe { locked_graph(graph.as_ptr(), || cell_of(graph).branching.as_deref().map(listed)) };
        let open: Vec<Bound<'py, PyGraph>> = open.unwrap_or_default();
        if open.is_empty() {
            return Err(PyValueError::new_err("this graph has no open branches"));
        }
        let mut ending = Ending(list_for(open.len(), "branches to join").or_raise(py)?);
        for (number, branch) in open.into_iter().enumerate() {
            let begin = || {
                // SAFETY: a living graph, whose lock is held.
                let cell = unsafe { cell_of(&branch) };
                let refused = refused(cell);
                cell.is_away |= refused.is_none();
                refused
            };
            // SAFETY: as above.
            if let Some(why) = unsafe { locked_graph(branch.as_ptr(), begin) } {
                let message =
                    format!("branch {number} {why}; wait until its `with` block has ended, and join them first");
                return Err(derived(py, "BusyError", message));
            }
            ending.0.push(branch);
        }
        Ok(ending)
    }

    /// The branches, which have ended.
    fn over(mut self) -> Vec<Bound<'py, PyGraph>> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        for branch in &self.0 {
            // SAFETY: a living graph, for this statement.
            unsafe { locked_graph(branch.as_ptr(), || cell_of(branch).is_away = false) }
        }
    }
}

/// Why a branch cannot end. One without a thread is not in use.
fn refused(cell: &Cell) -> Option<&'static str> {
    match cell.branching.as_ref() {
        _ if cell.is_away => Some("is still in use by a thread"),
        Some(b) if !b.open.is_empty() => Some("has open branches of its own"),
        Some(b) if b.entered.is_some() || b.trunk.is_none() => Some("is still in use by a thread"),
        _ => None,
    }
}

/// Appends all open branches to their graph, by number.
pub fn join(graph: &Bound<'_, PyGraph>, n_threads: usize) -> PyResult<()> {
    let py = graph.py();
    let ending = Ending::of(graph)?;
    // All allocations first: after the splice nothing may fail.
    let mut ended = list_for(ending.0.len(), "branches to join").or_raise(py)?;
    let (mut values, mut n_vectors) = (Vec::new(), 0);
    for branch in &ending.0 {
        // SAFETY: a living graph, for this statement; what is alive later is alive now.
        let (n, vectors) = unsafe {
            locked_graph(branch.as_ptr(), || {
                let part = cell_of(branch);
                part.handles.forget_seen();
                (part.handles.len(), branching(part).vectors.len())
            })
        };
        values.push(list_for(n, "Values of a branch").or_raise(py)?);
        n_vectors += vectors;
    }
    let splice_all = || {
        // SAFETY: the lock of the graph is held, and the branches refuse every use; nothing here runs Python code.
        let (cell, mut cells) =
            unsafe { (cell_of(graph), ending.0.iter().map(|branch| cell_of(branch)).collect::<Vec<&mut Cell>>()) };
        crate::graph::parameters::attach(py, cell, cells.iter().flat_map(|part| &part.parameters))?;
        if cell.is_branch() {
            branching(cell).vectors.reserve(n_vectors);
        }
        splice(&mut cell.graph, &mut cells, n_threads).or_raise(py)
    };
    // SAFETY: a living graph.
    let joined = unsafe { locked_graph(graph.as_ptr(), splice_all) }?;
    let branches = ending.over();
    for ((branch, spliced), values) in branches.iter().zip(joined.parts()).zip(values) {
        rehome(graph, branch, spliced, values);
        let go = || {
            // SAFETY: the lock of the branch is held.
            let part = unsafe { cell_of(branch) };
            // The graph has them too.
            part.parameters.clear();
            end(part, "joined");
        };
        // SAFETY: a living graph.
        unsafe { locked_graph(branch.as_ptr(), go) }
    }
    ended.extend(branches.into_iter().map(Bound::unbind));
    let open = || {
        // SAFETY: the lock of the graph is held.
        let cell = unsafe { cell_of(graph) };
        thaw(cell);
        std::mem::replace(&mut branching(cell).joined, ended)
    };
    // Dropped objects may run Python code, so they are dropped when the cell is no longer in use.
    // SAFETY: a living graph.
    drop(unsafe { locked_graph(graph.as_ptr(), open) });
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
    cell.is_away = false;
    cell.set_busy(true);
}

/// Moves the Values and Vectors of a joined branch to its graph, which is still frozen. Needs no memory but `values`, an empty list
/// with room for all.
fn rehome<'py>(
    graph: &Bound<'py, PyGraph>,
    branch: &Bound<'py, PyGraph>,
    spliced: &Spliced,
    mut values: Vec<Bound<'py, PyAny>>,
) {
    let py = graph.py();
    let move_handles = || {
        // SAFETY: the locks of both graphs are held, and nothing here waits for another one.
        let (cell, part) = unsafe { (cell_of(graph), cell_of(branch)) };
        let epoch = cell.graph.epoch();
        // A branch of a branch: the graph has to find its new Vectors when it is joined itself.
        let is_branch = cell.is_branch();
        for address in std::mem::take(&mut branching(part).vectors) {
            // SAFETY: a Vector removes its address, under the lock of its graph, when it is dropped.
            let vector = unsafe { &*(address as *const PyVector) };
            // SAFETY: its handles are in the list of the branch.
            vector.handles().for_each(|handle| unsafe { renumber(cell, part, spliced, epoch, handle) });
            vector.set_owner(graph.clone().unbind());
            if is_branch {
                branching(cell).vectors.insert(address);
            }
        }
        // What remains is of Values. One that another thread is dropping stays: it will leave the list of the branch itself.
        for handle in part.handles.all() {
            // SAFETY: the handle of a Value lies in its object, whose memory is there while the handle is in the list; the next
            // handle is known before this one leaves.
            unsafe {
                if let Some(value) = living(py, object_of(handle)) {
                    renumber(cell, part, spliced, epoch, handle);
                    values.push(value);
                }
            }
        }
    };
    // SAFETY: living graphs.
    unsafe { section(graph.as_ptr(), branch.as_ptr(), move_handles) }
    for value in values {
        let object = value.as_ptr().cast::<ValueObject>();
        // SAFETY: a living Value; everything that reads its graph holds the lock of one of the two.
        let before = unsafe {
            section(branch.as_ptr(), value.as_ptr(), || {
                std::mem::replace(&mut (*object).owner, graph.clone().into_ptr())
            })
        };
        // SAFETY: the reference that the Value had.
        drop(unsafe { Bound::from_owned_ptr(py, before) });
    }
}

/// Moves a handle from the list of a joined branch to that of its graph.
///
/// # Safety
/// The handle is in the list of `part`; both locks are held.
unsafe fn renumber(cell: &mut Cell, part: &Cell, spliced: &Spliced, epoch: u64, handle: *mut Handle) {
    debug_assert!(!handle.is_null());
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
    }
}

/// Drops all open branches: nothing is appended, their Values are stale.
pub fn discard(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    for branch in Ending::of(graph)?.over() {
        let go = || {
            // SAFETY: the lock of the branch is held.
            let cell = unsafe { cell_of(&branch) };
            // Even without memory to record removed nodes, because they have no handles any more.
            cell.forget_all();
            cell.graph.give_back();
            end(cell, "dropped");
        };
        // SAFETY: a living graph.
        unsafe { locked_graph(branch.as_ptr(), go) }
    }
    // SAFETY: as above.
    unsafe { locked_graph(graph.as_ptr(), || thaw(cell_of(graph))) };
    Ok(())
}
