//! Branches for Python: graphs that several threads build beside a frozen one. How they end is in `joining`, what they read
//! in `across`.
//!
//! Promises: while branches are open their graph only reads. A graph with open branches is marked busy, so that building on any
//! other graph asks nothing more than before; what is asked then is here.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::thread::ThreadId;

use burtorch_core::{Graph, Imports, Scalar};
use pyo3::prelude::*;

use super::PyGraph;
use crate::cell::{AnyGraph, Cell, with_graph};
use crate::errors::{IntoPython, derived};
use crate::locked::locked_graph;
use crate::value;
use crate::vector::PyVector;

/// What a graph has to do with branches: being one, or having some.
#[derive(Default)]
pub struct Branching {
    /// The branches that are open, by number: this graph is frozen while there are any.
    pub(super) open: Vec<Py<PyGraph>>,
    /// Of an open branch: the graph it reads, its number there.
    pub(super) trunk: Option<(Py<PyGraph>, usize)>,
    /// Of a branch that is not open any more: what became of it.
    pub(super) ended: Option<&'static str>,
    /// Which frozen nodes have proxies here.
    pub(super) imports: Imports,
    /// Addresses of the Vectors of an open branch.
    pub(super) vectors: HashSet<usize>,
    /// Who is in a `with` block of an open branch.
    pub(super) entered: Option<(ThreadId, usize)>,
}

impl Branching {
    /// Whether this is an open branch that nobody is in: as one that has branches, it is marked busy.
    fn is_shut(&self) -> bool {
        self.trunk.is_some() && self.entered.is_none()
    }
}

impl Cell {
    /// Whether branches are open, or this is a branch that nobody is in: nodes may be read and nothing else.
    pub fn is_frozen(&self) -> bool {
        self.branching.as_ref().is_some_and(|b| !b.open.is_empty() || b.is_shut())
    }

    /// Marks the graph as busy if it is frozen, and only then.
    pub(super) fn set_busy_if_frozen(&mut self) {
        self.set_busy(self.is_frozen());
    }

    /// Whether this is an open branch.
    pub fn is_branch(&self) -> bool {
        self.branching.as_ref().is_some_and(|b| b.trunk.is_some())
    }

    /// Why a busy graph refuses.
    pub fn refusal(&self, py: Python<'_>) -> PyErr {
        if let Some(trace) = &self.trace {
            return crate::recorded::refusal(py, trace);
        }
        let Some(branching) =
            self.branching.as_ref().filter(|b| b.ended.is_some() || !b.open.is_empty() || b.is_shut())
        else {
            return crate::errors::busy(py, "this graph's nodes");
        };
        let message = match branching.ended {
            Some("dropped") => {
                let message = "this node was built in a branch that was dropped; build it again";
                return derived(py, "StaleValueError", message.into());
            }
            Some(end) => format!("this branch was {end}; build on its graph"),
            None if branching.open.is_empty() => {
                "nobody is in this branch; build in `with branch:`, or join its graph first".to_string()
            }
            None => {
                let n = branching.open.len();
                format!(
                    "this graph is frozen while {n} branches of it are open; build in `with branch:`, or join first"
                )
            }
        };
        derived(py, "BusyError", message)
    }

    /// Refuses what a branch, which only builds, does not do.
    pub fn not_in_a_branch(&self, py: Python<'_>, what: &str) -> PyResult<()> {
        if self.is_branch() {
            let message = format!("{what} is not for a branch, which only builds; join its graph first");
            return Err(derived(py, "BusyError", message));
        }
        Ok(())
    }
}

/// The cell of a graph, whatever its state.
///
/// # Safety
/// The interpreter lock is held; no other reference into the cell is in use.
pub(super) unsafe fn cell_of<'a>(graph: &Bound<'_, PyGraph>) -> &'a mut Cell {
    // SAFETY: by the contract of this function.
    unsafe { value::cell_of(graph.as_ptr()) }
}

pub(super) fn branching(cell: &mut Cell) -> &mut Branching {
    cell.branching.get_or_insert_default()
}

/// Freezes a graph and makes `n` branches of it.
pub fn open<'py>(graph: &Bound<'py, PyGraph>, n: usize) -> PyResult<Vec<Bound<'py, PyGraph>>> {
    let py = graph.py();
    // So many that there is no memory for the list of them are refused below.
    let mut branches = Vec::with_capacity(n.min(1 << 10));
    for (number, own) in
        graph.get().with(py, |cell| new_branches(&mut cell.graph, n).or_raise(py))?.into_iter().enumerate()
    {
        let branch = Bound::new(py, PyGraph::around(own, false))?;
        // SAFETY: nobody else knows the branch yet.
        let cell = unsafe { cell_of(&branch) };
        branching(cell).trunk = Some((graph.clone().unbind(), number));
        cell.set_busy_if_frozen();
        branches.push(branch);
    }
    // Making objects may run Python code, so the graph is asked again.
    graph.get().with(py, |cell| {
        branching(cell).open = branches.iter().map(|b| b.clone().unbind()).collect();
        cell.set_busy(true);
        Ok(())
    })?;
    Ok(branches)
}

fn new_branches(graph: &mut AnyGraph, n: usize) -> burtorch_core::Result<Vec<AnyGraph>> {
    Ok(with_graph!(graph, g => g.new_branches(n)?.into_iter().map(AnyGraph::from).collect()))
}

/// The graph inside, if it has this type.
pub(super) fn same_type<S: Scalar>(any: &AnyGraph) -> Option<&Graph<'static, S>> {
    with_graph!(any, g => (g as &dyn std::any::Any).downcast_ref())
}

/// The same, to change it.
pub(super) fn same_type_mut<S: Scalar>(any: &mut AnyGraph) -> Option<&mut Graph<'static, S>> {
    with_graph!(any, g => (g as &mut dyn std::any::Any).downcast_mut())
}

/// Lets the thread into a `with` block, if the graph is an open branch: one thread at a time.
pub fn enter(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    // SAFETY: a living graph.
    unsafe { locked_graph(graph.as_ptr(), || enter_locked(graph)) }
}

fn enter_locked(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    // SAFETY: under the interpreter lock, for this call.
    let cell = unsafe { cell_of(graph) };
    if let Some(end) = cell.branching.as_ref().and_then(|b| b.ended) {
        let message = format!("this branch was {end}; build on its graph, or on new branches of it");
        return Err(derived(graph.py(), "BusyError", message));
    }
    if !cell.is_branch() {
        return Ok(());
    }
    let me = std::thread::current().id();
    let entered = &mut branching(cell).entered;
    match entered {
        Some((thread, _)) if *thread != me => Err(crate::errors::busy(graph.py(), "this branch's nodes")),
        Some((_, depth)) => {
            *depth += 1;
            Ok(())
        }
        None => {
            with_trunk(graph, |above, own| {
                // Where the interpreter has no lock, the branch may have ended while this thread waited for its graph.
                if branching(own).trunk.is_some() {
                    branching(own).entered = Some((me, 1));
                    own.set_busy_if_frozen();
                    lend(above, own, true);
                }
            });
            Ok(())
        }
    }
}

/// Ends a `with` block; after an exception what the branch has built is gone.
pub fn leave(graph: &Bound<'_, PyGraph>, failed: bool) {
    // SAFETY: a living graph.
    unsafe { locked_graph(graph.as_ptr(), || leave_locked(graph, failed)) }
}

fn leave_locked(graph: &Bound<'_, PyGraph>, failed: bool) {
    // SAFETY: under the interpreter lock, for this call.
    let cell = unsafe { cell_of(graph) };
    if !cell.is_branch() {
        return;
    }
    if failed && !cell.is_busy() && with_graph!(&mut cell.graph, g => g.clear()).is_ok() {
        cell.after_rewind();
    }
    let entered = &mut branching(cell).entered;
    *entered = entered.take().filter(|(_, depth)| *depth > 1).map(|(thread, depth)| (thread, depth - 1));
    if entered.is_none() {
        with_trunk(graph, |above, own| lend(above, own, false));
        cell.set_busy(true);
    }
}

/// Has a graph lend temporaries to its branch, or take them back.
fn lend(above: &mut Cell, own: &mut Cell, lends: bool) {
    fn of_type<S: Scalar>(above: &mut Graph<'static, S>, own: &mut AnyGraph, lends: bool) {
        let Some(own) = same_type_mut::<S>(own) else { return };
        if lends { above.lend_temporaries(own) } else { above.take_temporaries(own) }
    }
    with_graph!(&mut above.graph, g => of_type(g, &mut own.graph, lends));
}

/// Calls `f` with the cells of the graph of an open branch, and of the branch.
fn with_trunk(branch: &Bound<'_, PyGraph>, f: impl FnOnce(&mut Cell, &mut Cell)) {
    // SAFETY: under the interpreter lock, for this call; the graph, which is frozen, is another than the branch.
    let own = unsafe { cell_of(branch) };
    let trunk = own.branching.as_ref().and_then(|b| b.trunk.as_ref().map(|t| t.0.clone_ref(branch.py())));
    let Some(trunk) = trunk else { return };
    // SAFETY: a living graph; as above.
    unsafe { locked_graph(trunk.as_ptr(), || f(cell_of(trunk.bind(branch.py())), own)) }
}

/// Remembers a Vector of an open branch, so that joining finds it.
pub fn remember(owner: &Bound<'_, PyGraph>, vector: &PyVector) {
    // SAFETY: under the interpreter lock, for this call.
    let cell = unsafe { cell_of(owner) };
    if cell.is_branch() {
        branching(cell).vectors.insert(std::ptr::from_ref(vector) as usize);
    }
}

/// Forgets a Vector that goes.
pub fn forget(cell: &mut Cell, vector: &PyVector) {
    if let Some(branching) = &mut cell.branching {
        branching.vectors.remove(&(std::ptr::from_ref(vector) as usize));
    }
}
