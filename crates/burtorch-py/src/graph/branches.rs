//! Branches for Python: graphs that several threads build beside a frozen one, and how they become part of it.
//!
//! Promises: while branches are open their graph only reads; a branch reads what is frozen before it and no other open
//! branch; joining goes by number, whatever the schedule, and turns every Value and Vector of a branch into one of the
//! graph; branches that are dropped leave no trace. A graph with open branches is marked busy, so that building on any
//! other graph asks nothing more than before; what is asked then is here.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::thread::ThreadId;

use burtorch_core::graph::Spliced;
use burtorch_core::{Graph, Imports, NodeId, Range, Scalar};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{PyGraph, current};
use crate::cell::{AnyGraph, Cell, with_graph};
use crate::errors::{IntoPython, derived};
use crate::handle::{self, Handle};
use crate::value::{self, ValueObject};
use crate::vector::PyVector;

/// What a graph has to do with branches: being one, or having some.
#[derive(Default)]
pub struct Branching {
    /// The branches that are open, by number: this graph is frozen while there are any.
    open: Vec<Py<PyGraph>>,
    /// Of an open branch: the graph it reads, its number there.
    trunk: Option<(Py<PyGraph>, usize)>,
    /// Of a branch that is not open any more: what became of it.
    ended: Option<&'static str>,
    /// Which frozen nodes have proxies here.
    imports: Imports,
    /// Addresses of the Vectors of an open branch.
    vectors: HashSet<usize>,
    /// Who is in a `with` block of an open branch.
    entered: Option<(ThreadId, usize)>,
}

impl Cell {
    /// Whether branches are open: nodes may be read and nothing else.
    pub fn is_frozen(&self) -> bool {
        self.branching.as_ref().is_some_and(|b| !b.open.is_empty())
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
        let Some(branching) = self.branching.as_ref().filter(|b| b.ended.is_some() || !b.open.is_empty()) else {
            return crate::errors::busy(py, "this graph's nodes");
        };
        let message = match branching.ended {
            Some("dropped") => {
                let message = "this node was built in a branch that was dropped; build it again";
                return derived(py, "StaleValueError", message.into());
            }
            Some(end) => format!("this branch was {end}; build on its graph"),
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
unsafe fn cell_of<'a>(graph: &Bound<'_, PyGraph>) -> &'a mut Cell {
    // SAFETY: by the contract of this function.
    unsafe { value::cell_of(graph.as_ptr()) }
}

fn branching(cell: &mut Cell) -> &mut Branching {
    cell.branching.get_or_insert_default()
}

/// Freezes a graph and makes `n` branches of it.
pub fn open<'py>(graph: &Bound<'py, PyGraph>, n: usize) -> PyResult<Vec<Bound<'py, PyGraph>>> {
    let py = graph.py();
    if n == 0 {
        return Err(PyValueError::new_err("a graph has at least 1 branch, found 0"));
    }
    let mut branches = Vec::with_capacity(n);
    for (number, own) in
        graph.get().with(py, |cell| new_branches(&mut cell.graph, n).or_raise(py))?.into_iter().enumerate()
    {
        let branch = Bound::new(py, PyGraph::around(own, false))?;
        // SAFETY: nobody else knows the branch yet.
        let cell = unsafe { cell_of(&branch) };
        branching(cell).trunk = Some((graph.clone().unbind(), number));
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
        let why = if cell.is_frozen() {
            "has open branches of its own"
        } else if cell.is_busy() || cell.branching.as_ref().is_some_and(|b| b.entered.is_some()) {
            "is still in use by a thread"
        } else {
            continue;
        };
        let message = format!("branch {number} {why}; wait until its `with` block has ended, and join them first");
        return Err(derived(py, "BusyError", message));
    }
    Ok(open.into_iter().map(|branch| branch.into_bound(py)).collect())
}

/// Appends all open branches to their graph, by number.
pub fn join(graph: &Bound<'_, PyGraph>, n_threads: usize) -> PyResult<()> {
    let py = graph.py();
    let branches = ready_to_end(graph)?;
    // SAFETY: under the interpreter lock; the cells are those of different graphs, and nothing here runs Python code.
    let cell = unsafe { cell_of(graph) };
    // SAFETY: as above.
    let mut cells: Vec<&mut Cell> = branches.iter().map(|branch| unsafe { cell_of(branch) }).collect();
    for part in &cells {
        let parameters: Vec<_> = part.parameters.iter().map(|p| p.clone_ref(py)).collect();
        for parameters in parameters {
            crate::parameters::attach(py, cell, &parameters)?;
        }
    }
    let joined = splice(&mut cell.graph, &mut cells, n_threads).or_raise(py)?;
    thaw(cell);
    let epoch = with_graph!(&cell.graph, g => g.epoch());
    for (part, spliced) in cells.iter_mut().zip(joined.parts()) {
        rehome(graph, cell, part, spliced, epoch);
        end(part, "joined");
    }
    recycle(&mut cell.graph, cells);
    Ok(())
}

/// Keeps the memory of joined branches for the next ones of this graph.
fn recycle(graph: &mut AnyGraph, cells: Vec<&mut Cell>) {
    let kind = graph.scalar_type();
    let graphs = cells.into_iter().map(|part| std::mem::replace(&mut part.graph, AnyGraph::growing(kind)));
    with_graph!(graph, g => g.recycle(graphs.filter_map(|graph| graph.try_into().ok())));
}

fn splice(
    graph: &mut AnyGraph,
    cells: &mut [&mut Cell],
    n_threads: usize,
) -> burtorch_core::Result<burtorch_core::Joined> {
    fn of_type<S: Scalar>(
        graph: &mut Graph<'static, S>,
        cells: &mut [&mut Cell],
        n_threads: usize,
    ) -> burtorch_core::Result<burtorch_core::Joined> {
        let mut graphs: Vec<_> = cells.iter_mut().filter_map(|cell| same_type_mut::<S>(&mut cell.graph)).collect();
        graph.splice(&mut graphs, n_threads)
    }
    with_graph!(graph, g => of_type(g, cells, n_threads))
}

/// The graph inside, if it has this type.
fn same_type<S: Scalar>(any: &AnyGraph) -> Option<&Graph<'static, S>> {
    with_graph!(any, g => (g as &dyn std::any::Any).downcast_ref())
}

fn same_type_mut<S: Scalar>(any: &mut AnyGraph) -> Option<&mut Graph<'static, S>> {
    with_graph!(any, g => (g as &mut dyn std::any::Any).downcast_mut())
}

/// Lets a frozen graph build again.
fn thaw(cell: &mut Cell) {
    branching(cell).open.clear();
    cell.set_busy(false);
}

/// Marks a branch as over; what is still in it is gone.
fn end(cell: &mut Cell, how: &'static str) {
    let Branching { trunk, ended, vectors, imports, .. } = branching(cell);
    (*trunk, *ended, *imports) = (None, Some(how), Imports::default());
    vectors.clear();
    cell.set_busy(true);
}

/// Makes the Values and Vectors of a joined branch those of its graph.
fn rehome(graph: &Bound<'_, PyGraph>, cell: &mut Cell, part: &mut Cell, spliced: &Spliced, epoch: u64) {
    let py = graph.py();
    let mut of_vectors = HashSet::new();
    for &address in branching(part).vectors.iter() {
        // SAFETY: a Vector takes its address out when it goes.
        let vector = unsafe { &*(address as *const PyVector) };
        vector.handles().for_each(|handle| _ = of_vectors.insert(handle as usize));
        vector.set_owner(graph.clone().unbind());
    }
    let mut moved: Vec<*mut Handle> = Vec::with_capacity(part.handles.len());
    part.handles.for_each(|handle| moved.push(handle));
    for handle in moved {
        // SAFETY: a handle is valid while in the list; it is taken out of one list and put into the other.
        unsafe {
            handle::unlink(handle);
            let is_there = with_graph!(&part.graph, g => {
                (*handle).start != u32::MAX && g.check(NodeId::from_index((*handle).last()), (*handle).epoch).is_ok()
            });
            let range = Range::new(NodeId::from_index((*handle).start), (*handle).len);
            match spliced.range(range).filter(|_| is_there) {
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
                let before = std::mem::replace(&mut (*object).owner, graph.clone().into_ptr());
                drop(Bound::from_owned_ptr(py, before));
            }
        }
    }
}

/// Drops all open branches: nothing is appended, their Values are stale.
pub fn discard(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    let branches = ready_to_end(graph)?;
    // SAFETY: under the interpreter lock, as in `join`.
    thaw(unsafe { cell_of(graph) });
    for branch in &branches {
        // SAFETY: as above.
        let cell = unsafe { cell_of(branch) };
        with_graph!(&mut cell.graph, g => g.clear().map(|()| g.give_back())).or_raise(graph.py())?;
        cell.handles.for_each(Handle::kill);
        end(cell, "dropped");
    }
    Ok(())
}

/// Lets the thread into a `with` block, if the graph is an open branch: one thread at a time.
pub fn enter(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
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
            *entered = Some((me, 1));
            with_trunk(graph, Temporaries::Lend);
            Ok(())
        }
    }
}

/// Ends a `with` block; after an exception what the branch has built is gone.
pub fn leave(graph: &Bound<'_, PyGraph>, failed: bool) {
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
    if entered.is_none() && !cell.is_busy() {
        with_trunk(graph, Temporaries::Take);
    }
}

/// What a graph does with its temporaries and those of a branch.
enum Temporaries {
    Lend,
    Take,
}

/// Has the graph of an open branch lend it temporaries, or take them back.
fn with_trunk(branch: &Bound<'_, PyGraph>, what: Temporaries) {
    fn of_type<S: Scalar>(above: &mut Graph<'static, S>, own: &mut AnyGraph, what: Temporaries) {
        let Some(own) = same_type_mut::<S>(own) else { return };
        match what {
            Temporaries::Lend => above.lend_temporaries(own),
            Temporaries::Take => above.take_temporaries(own),
        }
    }
    // SAFETY: under the interpreter lock, for this call; the graph, which is frozen, is another than the branch.
    let own = unsafe { cell_of(branch) };
    let Some(trunk) = own.branching.as_ref().and_then(|b| b.trunk.as_ref()) else { return };
    // SAFETY: as above.
    let above = unsafe { cell_of(trunk.0.bind(branch.py())) };
    with_graph!(&mut above.graph, g => of_type(g, &mut own.graph, what));
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

/// Whether `graph` is `trunk`, or one of the branches on the way from it.
fn grows_from(py: Python<'_>, graph: &Bound<'_, PyGraph>, trunk: &Bound<'_, PyGraph>) -> bool {
    let mut at = graph.clone();
    loop {
        if at.is(trunk) {
            return true;
        }
        // SAFETY: under the interpreter lock, for this statement.
        let next = unsafe { cell_of(&at) }.branching.as_ref().and_then(|b| b.trunk.as_ref().map(|t| t.0.clone_ref(py)));
        match next {
            Some(next) => at = next.into_bound(py),
            None => return false,
        }
    }
}

/// The graph that an operation on Values of these graphs appends to: the branch that reads the others, which is one of
/// them or the current one of this thread.
pub fn common<'py>(py: Python<'py>, graphs: &[Bound<'py, PyGraph>]) -> PyResult<Bound<'py, PyGraph>> {
    let mismatch = |what| Err(burtorch_core::Error::GraphMismatch { what }).or_raise(py);
    let Some(first) = graphs.first() else {
        return mismatch("a value");
    };
    let mut target = first.clone();
    for graph in graphs {
        if grows_from(py, graph, &target) {
            target = graph.clone();
        } else if !grows_from(py, &target, graph) {
            // SAFETY: under the interpreter lock, for these statements.
            let both = unsafe { cell_of(&target).is_branch() && cell_of(graph).is_branch() };
            if both {
                let message =
                    "these values belong to two open branches, which cannot read one another; join the graph first";
                return Err(derived(py, "GraphMismatchError", message.into()));
            }
            return mismatch("a value");
        }
    }
    // SAFETY: under the interpreter lock, for this statement.
    if unsafe { cell_of(&target) }.is_frozen() {
        // SAFETY: a borrowed pointer to a living graph, or null with an error set.
        let here = unsafe { Bound::from_borrowed_ptr_or_err(py, current(py))?.cast_into_unchecked::<PyGraph>() };
        if !grows_from(py, &here, &target) {
            // SAFETY: as above.
            return Err(unsafe { cell_of(&target) }.refusal(py));
        }
        target = here;
    }
    Ok(target)
}

/// Nodes of `cell`, an open branch, that stand for nodes of a graph it grows from.
pub fn import(py: Python<'_>, cell: &mut Cell, from: &Bound<'_, PyGraph>, range: Range) -> PyResult<Range> {
    let trunk = cell.branching.as_ref().and_then(|b| b.trunk.as_ref().map(|t| t.0.clone_ref(py)));
    let Some(trunk) = trunk.map(|trunk| trunk.into_bound(py)) else {
        return Err(burtorch_core::Error::GraphMismatch { what: "a value" }).or_raise(py);
    };
    // SAFETY: under the interpreter lock; the trunk is another graph than the branch.
    let above = unsafe { cell_of(&trunk) };
    let range = if trunk.is(from) { range } else { import(py, above, from, range)? };
    let Cell { graph, branching, .. } = cell;
    let imports = &mut branching.get_or_insert_default().imports;
    fn of_type<S: Scalar>(
        imports: &mut Imports,
        own: &mut Graph<'static, S>,
        frozen: &AnyGraph,
        range: Range,
    ) -> burtorch_core::Result<Range> {
        let frozen = same_type::<S>(frozen).ok_or(burtorch_core::Error::GraphMismatch { what: "a value" })?;
        imports.read(own, frozen, range)
    }
    with_graph!(graph, own => of_type(imports, own, &above.graph, range)).or_raise(py)
}

/// Whether an operand of another graph than the one built on may be meant for [`import`].
pub fn is_foreign(cell: &Cell, owner: &Bound<'_, PyGraph>) -> bool {
    // SAFETY: only addresses are compared.
    !std::ptr::eq(unsafe { value::cell_of(owner.as_ptr()) }, cell)
}

/// The operands of an operation as Values of one graph, where they are not: those of frozen graphs are replaced by Values
/// of the branch that reads them. Returns the graph; the Values are to be given back.
///
/// # Safety
/// `operands` are living Values; the interpreter lock is held.
pub unsafe fn gather<'py, const N: usize>(
    py: Python<'py>,
    operands: [*mut ValueObject; N],
) -> PyResult<(Bound<'py, PyGraph>, [Bound<'py, PyAny>; N])> {
    // SAFETY: a living Value owns its graph.
    let owner = |value: *mut ValueObject| unsafe {
        Bound::from_borrowed_ptr(py, (*value).owner).cast_into_unchecked::<PyGraph>()
    };
    let target = common(py, &operands.map(owner))?;
    let mut found = Vec::with_capacity(N);
    for value in operands {
        let from = owner(value);
        if from.is(&target) {
            // SAFETY: a living object.
            found.push(unsafe { Bound::from_borrowed_ptr(py, value.cast()) });
            continue;
        }
        // SAFETY: under the interpreter lock; the two cells are those of different graphs.
        let (cell, above) = unsafe { (cell_of(&target), cell_of(&from)) };
        if cell.is_busy() {
            return Err(cell.refusal(py));
        }
        // SAFETY: a living Value.
        let handle = unsafe { &mut (*value).handle };
        let node = NodeId::from_index(handle.start);
        handle.epoch = with_graph!(&above.graph, g => g.check(node, handle.epoch)).or_raise(py)?;
        let proxy = import(py, cell, &from, Range::new(node, 1))?.first();
        let epoch = with_graph!(&cell.graph, g => g.epoch());
        // SAFETY: `cell` is the cell of `target`.
        found.push(unsafe {
            Bound::from_owned_ptr_or_err(py, value::new_object(target.as_ptr(), cell, proxy.index(), epoch))?
        });
    }
    match <[Bound<'py, PyAny>; N]>::try_from(found) {
        Ok(found) => Ok((target, found)),
        Err(_) => Err(PyValueError::new_err("an operand was lost")),
    }
}
