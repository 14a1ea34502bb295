//! How a branch reads frozen nodes: the graph of an operation on Values of several graphs, and its operands there.
//!
//! Promises: a branch reads its ancestors and no other branch; each frozen node has one proxy in a branch.
#![allow(unsafe_code)]

use burtorch_core::{NodeId, Range};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::convert::errors::{IntoPython, derived};
use crate::graph::branches::{cell_of, trunk_of};
use crate::graph::cell::Cell;
use crate::graph::critical_section::{locked_cells, section};
use crate::graph::{PyGraph, current};
use crate::node::value::{self, ValueObject};

/// Whether `graph` is `trunk`, or one of its descendants on the way to it.
fn grows_from(graph: &Bound<'_, PyGraph>, trunk: &Bound<'_, PyGraph>) -> bool {
    let mut at = graph.clone();
    loop {
        if at.is(trunk) {
            return true;
        }
        match trunk_of(&at) {
            Some(next) => at = next,
            None => return false,
        }
    }
}

const TWO_BRANCHES: &str =
    "this reads values of two open branches, which cannot read one another; join the graph first";

/// The graph to which an operation on Values of these graphs appends: the branch that reads the others, which is one of
/// them or the current one of this thread. It is not frozen; a frozen one is a `BusyError`.
pub fn common<'py>(py: Python<'py>, graphs: &[Bound<'py, PyGraph>]) -> PyResult<Bound<'py, PyGraph>> {
    let mismatch = |what| Err(burtorch_core::Error::GraphMismatch { what }).or_raise(py);
    let Some(first) = graphs.first() else {
        return mismatch("a value");
    };
    let mut target = first.clone();
    for graph in graphs {
        if grows_from(graph, &target) {
            target = graph.clone();
        } else if !grows_from(&target, graph) {
            // SAFETY: under the GIL, for these statements.
            let both = unsafe { cell_of(&target).is_branch() && cell_of(graph).is_branch() };
            if both {
                return Err(derived(py, "GraphMismatchError", TWO_BRANCHES.into()));
            }
            return mismatch("a value");
        }
    }
    // SAFETY: under the GIL, for this statement.
    if unsafe { cell_of(&target) }.is_frozen() {
        // SAFETY: a borrowed pointer to a living graph, or null with an error set.
        let here = unsafe { Bound::from_borrowed_ptr_or_err(py, current(py))?.cast_into_unchecked::<PyGraph>() };
        if !grows_from(&here, &target) {
            // SAFETY: as above.
            if unsafe { cell_of(&target).is_branch() && cell_of(&here).is_branch() } {
                return Err(derived(py, "GraphMismatchError", TWO_BRANCHES.into()));
            }
            // SAFETY: as above.
            return Err(unsafe { cell_of(&target) }.refusal(py));
        }
        // The current graph may be frozen itself: one of the operands' graphs, or a branch with branches.
        // SAFETY: as above.
        let its_own = unsafe { cell_of(&here) };
        if its_own.is_frozen() {
            return Err(its_own.refusal(py));
        }
        target = here;
    }
    Ok(target)
}

/// Nodes of `cell`, an open branch that this thread has entered, that represent nodes of an ancestor. The lock of the branch is
/// held.
pub fn import(py: Python<'_>, cell: &mut Cell, from: &Bound<'_, PyGraph>, range: Range) -> PyResult<Range> {
    let Some(trunk) = cell.trunk(py) else {
        return Err(burtorch_core::Error::GraphMismatch { what: "a value" }).or_raise(py);
    };
    let here = |cell: &mut Cell, above: &Cell, range| {
        let Cell { graph, branching, .. } = cell;
        let imports = &mut branching.get_or_insert_default().imports;
        graph.import(imports, &*above.graph, range).or_raise(py)
    };
    // SAFETY: the trunk is another graph than the branch. While it has branches only they append to it, and only if it is a branch
    // itself; otherwise it is read without its lock.
    unsafe {
        if trunk.is(from) && !cell_of(&trunk).is_branch() {
            return here(cell, cell_of(&trunk), range);
        }
        locked_cells(cell, &trunk, |cell| {
            let range = if trunk.is(from) { range } else { import(py, cell_of(&trunk), from, range)? };
            here(cell, cell_of(&trunk), range)
        })
    }
}

/// Whether an operand of another graph than the target may be for [`import`].
pub fn is_foreign(cell: &Cell, owner: *mut ffi::PyObject) -> bool {
    // SAFETY: only addresses are compared.
    !std::ptr::eq(unsafe { value::cell_of(owner) }, cell)
}

/// The operands of an operation as Values of one graph, if they are not already: those of frozen graphs are replaced by Values
/// of the branch that reads them. Returns the graph; the caller releases the Values.
///
/// # Safety
/// `operands` are living Values; the GIL is held.
pub unsafe fn gather<'py, const N: usize>(
    py: Python<'py>,
    operands: [*mut ValueObject; N],
) -> PyResult<(Bound<'py, PyGraph>, [Bound<'py, PyAny>; N])> {
    // SAFETY: a living Value.
    let owner = |value: *mut ValueObject| unsafe { value::graph_of(py, value) };
    let target = common(py, &operands.map(owner))?;
    let mut found = Vec::with_capacity(N);
    for value in operands {
        let from = owner(value);
        if from.is(&target) {
            // SAFETY: a living object.
            found.push(unsafe { Bound::from_borrowed_ptr(py, value.cast()) });
            continue;
        }
        let proxy = || {
            // SAFETY: the locks of both are held, or the second one is frozen; the two cells are those of different graphs.
            let (cell, above) = unsafe { (cell_of(&target), cell_of(&from)) };
            if cell.is_busy() {
                return Err(cell.refusal(py));
            }
            // SAFETY: a living Value.
            let handle = unsafe { &mut (*value).handle };
            let node = NodeId::from_index(handle.start);
            handle.epoch = above.graph.check(node, handle.epoch).or_raise(py)?;
            let proxy = import(py, cell, &from, Range::new(node, 1))?.first();
            let epoch = cell.graph.epoch();
            // SAFETY: `cell` is the cell of `target`.
            unsafe { Bound::from_owned_ptr_or_err(py, value::new_object(target.as_ptr(), cell, proxy.index(), epoch)) }
        };
        // SAFETY: living graphs.
        found.push(unsafe { section(target.as_ptr(), from.as_ptr(), proxy) }?);
    }
    match <[Bound<'py, PyAny>; N]>::try_from(found) {
        Ok(found) => Ok((target, found)),
        Err(_) => Err(PyValueError::new_err("an operand was lost")),
    }
}
