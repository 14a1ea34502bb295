//! Reductions of a few Values: the fast path for a list or tuple of plain Values of one graph.
//!
//! Promises: the node is that of the general path; other arguments are left to it. Holds no
//! reference into a graph while Python code runs, as none runs here.
#![allow(unsafe_code)]

use burtorch_core::{NodeId, Op, Operands};
use pyo3::ffi;

use crate::graph::cell::AnyGraph;
use crate::graph::wants_no_grad;
use crate::node::value::{ValueObject, cell_of, is_value, new_object};

/// Longer sequences take the general path, which costs little per operand.
const MOST: usize = 64;

/// The Value of a reduction, or `None` for the general path.
///
/// # Safety
/// `x` is a living object; the GIL is held.
pub unsafe fn reduce(op: Op, x: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
    debug_assert!(!x.is_null());
    // SAFETY: items of a list or tuple are living objects, and nothing here changes it; the graph of a living Value
    // lives; an operand of the present epoch exists.
    unsafe {
        let (items, n) = items_of(x)?;
        if !(1..=MOST).contains(&n) || !is_value(*items) || wants_no_grad() {
            return None;
        }
        let owner = (*(*items).cast::<ValueObject>()).owner;
        let cell = cell_of(owner);
        if cell.is_busy() && !cell.is_traced() || cell.n_unevaluated > 0 {
            return None;
        }
        let limit = cell.limit();
        let AnyGraph::F64(graph) = &mut cell.graph else { return None };
        let epoch = graph.epoch();
        if graph.len() as u32 > limit {
            return None;
        }
        let mut nodes = [NodeId::from_index(0); MOST];
        for (k, node) in nodes[..n].iter_mut().enumerate() {
            let item = *items.add(k);
            let value = item.cast::<ValueObject>();
            if !is_value(item) || (*value).owner != owner || (*value).handle.epoch != epoch {
                return None;
            }
            *node = NodeId::from_index((*value).handle.start);
        }
        let node = graph.reduce(op, Operands::List(&nodes[..n]), &[]).ok()?;
        Some(new_object(owner, cell, node.index(), epoch))
    }
}

/// The items of a list or a tuple.
///
/// # Safety
/// As for `reduce`.
unsafe fn items_of(x: *mut ffi::PyObject) -> Option<(*const *mut ffi::PyObject, usize)> {
    debug_assert!(!x.is_null());
    // SAFETY: a list's items stand in an array of its own, a tuple's in the object.
    unsafe {
        // Without a GIL the caller has made a tuple of the list.
        if cfg!(not(Py_GIL_DISABLED)) && ffi::PyList_CheckExact(x) != 0 {
            let list = x.cast::<ffi::PyListObject>();
            Some(((*list).ob_item as *const *mut ffi::PyObject, ffi::PyList_GET_SIZE(x) as usize))
        } else if ffi::PyTuple_CheckExact(x) != 0 {
            let tuple = x.cast::<ffi::PyTupleObject>();
            Some(((&raw const (*tuple).ob_item).cast(), ffi::PyTuple_GET_SIZE(x) as usize))
        } else {
            None
        }
    }
}
