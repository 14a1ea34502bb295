//! Branches for Python: graphs that several threads build besides a frozen one. `node/joining` ends them,
//! `node/branch_reads` reads frozen nodes.
//!
//! Promises: while branches are open their graph is read-only. A graph with open branches is marked busy, so that
//! building on any other graph needs no extra check; the checks for busy graphs are here.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::thread::ThreadId;

use super::PyGraph;
use crate::convert::errors::{IntoPython, derived};
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::graph::cell::{AnyGraph, Cell};
use crate::graph::critical_section::{locked_graph, section};
use burtorch_core::erased::{ErasedGraph, ScalarType};
use burtorch_core::{Error, Imports};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The branch state of a graph: whether it is a branch, or has branches.
#[derive(Default)]
pub struct Branching {
    /// The open branches, by number: this graph is frozen while there are any.
    pub open: Vec<Py<PyGraph>>,
    /// The last joined branches, by number: their memory and unused objects are for the next ones.
    pub joined: Vec<Py<PyGraph>>,
    /// Of an open branch: the graph it reads, its number there.
    pub trunk: Option<(Py<PyGraph>, usize)>,
    /// Of a closed branch: how it ended.
    pub ended: Option<&'static str>,
    /// The frozen nodes that have proxies here.
    pub imports: Imports,
    /// Addresses of the Vectors of an open branch.
    pub vectors: HashSet<usize>,
    /// The thread in a `with` block of an open branch.
    pub entered: Option<(ThreadId, usize)>,
}

impl HoldsObjects for Branching {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.open.visit(visit);
        self.joined.visit(visit);
        self.trunk.iter().for_each(|(graph, _)| graph.visit(visit));
    }
}

impl Branching {
    /// Whether this is an open branch that no thread has entered: like a graph with branches, it is marked busy.
    fn is_shut(&self) -> bool {
        self.trunk.is_some() && self.entered.is_none()
    }
}

impl Cell {
    /// Whether branches are open, or this is a branch that no thread has entered: nodes may only be read.
    pub fn is_frozen(&self) -> bool {
        !self.is_away && self.branching.as_ref().is_some_and(|b| !b.open.is_empty() || b.is_shut())
    }

    /// Marks the graph as busy if it is frozen, and only then.
    pub fn set_busy_if_frozen(&mut self) {
        self.set_busy(self.is_frozen());
    }

    /// Whether this is an open branch.
    pub fn is_branch(&self) -> bool {
        self.branching.as_ref().is_some_and(|b| b.trunk.is_some())
    }

    /// The parent graph of this open branch.
    pub fn trunk<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyGraph>> {
        self.branching.as_ref()?.trunk.as_ref().map(|(graph, _)| graph.bind(py).clone())
    }

    /// The reason why a busy graph refuses.
    pub fn refusal(&self, py: Python<'_>) -> PyErr {
        if let Some(trace) = &self.trace {
            return crate::graph::trace::refusal(py, trace);
        }
        let is_over = |b: &&Branching| b.ended.is_some() || !b.open.is_empty() || b.is_shut();
        let Some(branching) = self.branching.as_deref().filter(|_| !self.is_away).filter(is_over) else {
            return crate::convert::errors::busy(py, "this graph's nodes");
        };
        let message = match branching.ended {
            Some("dropped") => {
                let message = "this node belongs to a dropped branch; build it again";
                return derived(py, "StaleValueError", message.into());
            }
            Some(end) => format!("this branch was {end}; build on its graph"),
            None if branching.open.is_empty() => {
                "no thread has entered this branch; build in `with branch:`, or join its graph first".to_string()
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

    /// Refuses an operation that branches, which only build, do not support.
    pub fn not_in_a_branch(&self, py: Python<'_>, what: &str) -> PyResult<()> {
        if self.is_branch() {
            let message = format!("{what} is not available on a branch, which only builds; join its graph first");
            return Err(derived(py, "BusyError", message));
        }
        Ok(())
    }
}

/// The cell of a graph, whatever its state.
///
/// # Safety
/// The GIL is held; no other reference into the cell is in use.
pub unsafe fn cell_of<'a>(graph: &Bound<'_, PyGraph>) -> &'a mut Cell {
    // SAFETY: by the contract of this function.
    unsafe { PyGraph::cell_of_object(graph.as_ptr()) }
}

pub fn branching(cell: &mut Cell) -> &mut Branching {
    cell.branching.get_or_insert_default()
}

/// Freezes a graph and makes `n` branches of it.
pub fn open<'py>(graph: &Bound<'py, PyGraph>, n: usize) -> PyResult<Vec<Bound<'py, PyGraph>>> {
    let py = graph.py();
    let (kind, kept) = graph.get().with(py, |cell| {
        if depth(cell, py) >= DEEPEST {
            return Err(PyValueError::new_err(format!("branches can be nested at most {DEEPEST} deep")));
        }
        // Branches read values, and values are not computed while they are open.
        if cell.n_unevaluated > 0 {
            cell.settle_all();
        }
        let kept = cell.branching.as_mut().map(|branching| std::mem::take(&mut branching.joined));
        Ok((cell.graph.scalar_type(), kept.unwrap_or_default()))
    })?;
    let mut branches = Vec::new();
    branches.try_reserve_exact(n).map_err(|_| no_memory(n)).or_raise(py)?;
    // Each branch gets the memory of the previous branch with its number.
    for branch in kept.into_iter().take(n) {
        let branch = branch.into_bound(py);
        // SAFETY: a living graph, for this statement.
        let its_own = unsafe {
            locked_graph(branch.as_ptr(), || {
                cell_of(&branch).branching.as_mut().map(|own| std::mem::take(&mut own.joined))
            })
        };
        // Dropping objects may run Python code, so they are dropped while no cell is in use, before branch ownership is
        // checked.
        drop(its_own);
        branches.push(if is_forgotten(&branch) { branch } else { take_over(&branch, kind)? });
    }
    let mut others: Vec<AnyGraph> = Vec::new();
    others.try_reserve_exact(n - branches.len()).map_err(|_| no_memory(n)).or_raise(py)?;
    others.resize_with(n - branches.len(), || AnyGraph::growing(kind));
    for own in others {
        branches.push(Bound::new(py, PyGraph::around(own, false))?);
    }
    // Creating objects may run Python code, so the graph is checked again.
    graph.get().with(py, |cell| {
        // SAFETY: the branches are not shared yet.
        let mut cells: Vec<&mut Cell> = branches.iter().map(|branch| unsafe { cell_of(branch) }).collect();
        // All allocations come first.
        let open = branches.iter().map(|b| b.clone().unbind()).collect();
        branching(cell);
        for own in &mut cells {
            branching(own);
        }
        renew(&mut cell.graph, &mut cells);
        for (number, own) in cells.into_iter().enumerate() {
            own.reset();
            branching(own).trunk = Some((graph.clone().unbind(), number));
            own.set_busy_if_frozen();
        }
        branching(cell).open = open;
        cell.set_busy(true);
        Ok(())
    })?;
    Ok(branches)
}

/// The largest depth of nested branches: more than needed, and small enough for recursion.
const DEEPEST: usize = 100;

/// The number of ancestors of the graph in this cell.
fn depth(cell: &Cell, py: Python<'_>) -> usize {
    let (mut n, mut at) = (0, cell.trunk(py));
    while let Some(graph) = at {
        n += 1;
        at = trunk_of(&graph);
    }
    n
}

/// The parent graph, if this is an open branch. No reference into its cell is in use.
pub fn trunk_of<'py>(graph: &Bound<'py, PyGraph>) -> Option<Bound<'py, PyGraph>> {
    // SAFETY: a living graph, for this statement.
    unsafe { locked_graph(graph.as_ptr(), || cell_of(graph).trunk(graph.py())) }
}

fn no_memory(n: usize) -> Error {
    Error::OutOfMemory { bytes: n.saturating_mul(size_of::<PyGraph>()), what: "branches" }
}

/// Makes graphs branches of another graph of the same type.
fn renew(graph: &mut AnyGraph, cells: &mut [&mut Cell]) {
    let mut graphs: Vec<&mut dyn ErasedGraph> = cells.iter_mut().map(|cell| &mut *cell.graph).collect();
    graph.renew(&mut graphs);
}

/// Bytes that joined branches of a graph have reserved for the next ones.
pub fn kept_for_branches(py: Python<'_>, cell: &Cell) -> usize {
    let joined = cell.branching.iter().flat_map(|branching| &branching.joined);
    // SAFETY: a joined branch is another graph, which no call is using.
    let reserved =
        |own: &Py<PyGraph>| unsafe { locked_graph(own.as_ptr(), || cell_of(own.bind(py)).graph.memory().reserved) };
    joined.map(reserved).sum()
}

/// A new branch in the memory of a joined one whose object is still in use.
fn take_over<'py>(joined: &Bound<'py, PyGraph>, kind: ScalarType) -> PyResult<Bound<'py, PyGraph>> {
    let other = AnyGraph::growing(kind);
    // SAFETY: a living graph, for this statement; a joined branch is busy, so no call is using it.
    let own = unsafe { locked_graph(joined.as_ptr(), || std::mem::replace(&mut cell_of(joined).graph, other)) };
    Bound::new(joined.py(), PyGraph::around(own, false))
}

/// Whether only the caller has a reference to a joined branch, so that it can be reused.
#[cfg(not(Py_GIL_DISABLED))]
fn is_forgotten(joined: &Bound<'_, PyGraph>) -> bool {
    use pyo3::ffi::{Py_REFCNT, PyObject};

    // SAFETY: a living object, under the GIL; the offset is that of the weak reference pointer, if the type has one.
    unsafe {
        let at = (*joined.get_type_ptr()).tp_weaklistoffset;
        let references = || joined.as_ptr().byte_offset(at).cast::<*mut PyObject>().read();
        Py_REFCNT(joined.as_ptr()) == 1 && at > 0 && references().is_null()
    }
}

/// Without a GIL the answer is unknown.
#[cfg(Py_GIL_DISABLED)]
fn is_forgotten(_joined: &Bound<'_, PyGraph>) -> bool {
    false
}

/// Admits the thread to a `with` block, if the graph is an open branch: one thread at a time.
pub fn enter(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    with_trunk(graph, |trunk| enter_locked(graph, trunk))
}

fn enter_locked(graph: &Bound<'_, PyGraph>, trunk: Option<&Bound<'_, PyGraph>>) -> PyResult<()> {
    // SAFETY: under the GIL, for this call.
    let cell = unsafe { cell_of(graph) };
    if let Some(end) = cell.branching.as_ref().and_then(|b| b.ended) {
        let message = format!("this branch was {end}; build on its graph, or on new branches of it");
        return Err(derived(graph.py(), "BusyError", message));
    }
    if !cell.is_branch() {
        return Ok(());
    }
    if cell.is_away {
        return Err(cell.refusal(graph.py()));
    }
    let me = std::thread::current().id();
    let entered = &mut branching(cell).entered;
    match entered {
        Some((thread, _)) if *thread != me => Err(crate::convert::errors::busy(graph.py(), "this branch's nodes")),
        Some((_, depth)) => {
            *depth += 1;
            Ok(())
        }
        None => {
            *entered = Some((me, 1));
            cell.set_busy_if_frozen();
            lend(trunk, cell, true);
            Ok(())
        }
    }
}

/// Ends a `with` block; after an exception the nodes of the branch are removed.
pub fn leave(graph: &Bound<'_, PyGraph>, failed: bool) {
    with_trunk(graph, |trunk| leave_locked(graph, trunk, failed));
}

fn leave_locked(graph: &Bound<'_, PyGraph>, trunk: Option<&Bound<'_, PyGraph>>, failed: bool) {
    // SAFETY: under the GIL, for this call.
    let cell = unsafe { cell_of(graph) };
    if !cell.is_branch() {
        return;
    }
    if failed && !cell.is_busy() {
        if cell.graph.clear().is_err() {
            cell.forget_all();
        }
        cell.after_rewind();
    }
    let entered = &mut branching(cell).entered;
    *entered = entered.take().filter(|(_, depth)| *depth > 1).map(|(thread, depth)| (thread, depth - 1));
    if entered.is_none() {
        // If another thread uses the graph, it also has the temporaries.
        if !cell.is_away {
            // From now on the graph is read-only.
            if cell.n_unevaluated > 0 {
                cell.settle_all();
            }
            lend(trunk, cell, false);
        }
        cell.set_busy(true);
    }
}

/// Moves the free temporaries of a branch's graph to the branch, or back.
fn lend(trunk: Option<&Bound<'_, PyGraph>>, own: &mut Cell, lends: bool) {
    if let Some(trunk) = trunk {
        // SAFETY: the locks of both are held; the graph, which is frozen, is not the branch.
        unsafe { cell_of(trunk) }.graph.lend_temporaries(&mut *own.graph, lends);
    }
}

/// Calls `f` with the graph of an open branch, while no other thread uses either.
fn with_trunk<R>(branch: &Bound<'_, PyGraph>, f: impl FnOnce(Option<&Bound<'_, PyGraph>>) -> R) -> R {
    let trunk = trunk_of(branch);
    let above = trunk.as_ref().unwrap_or(branch);
    // SAFETY: living graphs.
    unsafe { section(branch.as_ptr(), above.as_ptr(), || f(trunk.as_ref())) }
}

/// Remembers the address of a Vector of an open branch, so that joining finds it. The lock of the graph is held.
pub fn remember(owner: &Bound<'_, PyGraph>, vector: usize) {
    // SAFETY: under the GIL, for this call.
    let cell = unsafe { cell_of(owner) };
    if cell.is_branch() {
        branching(cell).vectors.insert(vector);
    }
}

/// Forgets a dropped Vector.
pub fn forget(cell: &mut Cell, vector: usize) {
    if let Some(branching) = &mut cell.branching {
        branching.vectors.remove(&vector);
    }
}
