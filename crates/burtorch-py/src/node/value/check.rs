//! Whether the node of a Value still exists, and its graph is free: the first step of every use of a Value.
//!
//! Promises: a stale handle, or a graph in use, is one typed error. Everything runs under the GIL.
#![allow(unsafe_code)]

use burtorch_core::NodeId;
use burtorch_core::graph::UNEVALUATED;
use pyo3::ffi;

use super::object::{ValueObject, cell_of};
use crate::convert::entry::{attached, raise, raise_python};
use crate::graph::cell::{Cell, settle};
use crate::graph::handle::Handle;

/// Sets `BusyError`, or `TraceError` for a graph on which a function was traced, and returns null.
#[cold]
#[inline(never)]
pub fn raise_busy(cell: &Cell) -> *mut ffi::PyObject {
    raise_python(attached(|py| cell.refusal(py)))
}

/// As `checked`, for a write to a value: not while branches of its graph are open.
///
/// # Safety
/// As for `checked`.
pub unsafe fn checked_mut<'a>(value: *mut ValueObject) -> Option<(&'a mut Cell, NodeId)> {
    // SAFETY: by the contract of this function.
    let (cell, node) = unsafe { checked(value) }?;
    if cell.is_busy() {
        raise_busy(cell);
        return None;
    }
    Some((cell, node))
}

/// As `checked_mut`, for the root of a backward pass, whose value is not needed.
///
/// # Safety
/// As for `checked`.
pub unsafe fn checked_for_sweep<'a>(value: *mut ValueObject) -> Option<(&'a mut Cell, NodeId)> {
    // SAFETY: by the contract of this function.
    let (cell, node) = unsafe { checked_for_gradient(value) }?;
    if cell.is_busy() && cell.is_traced() {
        raise_python(attached(|py| crate::convert::refusals::not_in_a_trace(py, "backward()")));
        return None;
    }
    if cell.is_busy() {
        raise_busy(cell);
        return None;
    }
    Some((cell, node))
}

/// Reads a value's node after checking it: `None` with an error set if it is stale or its graph is busy.
///
/// # Safety
/// `value` is a living value; the GIL is held; no reference into its cell is in use.
#[inline(always)]
pub unsafe fn checked<'a>(value: *mut ValueObject) -> Option<(&'a mut Cell, NodeId)> {
    // SAFETY: by the contract of this function.
    unsafe { checked_as(value, true) }
}

/// The same for uses of only the gradient: a node without a value stays so.
///
/// # Safety
/// As for `checked`.
#[inline(always)]
pub unsafe fn checked_for_gradient<'a>(value: *mut ValueObject) -> Option<(&'a mut Cell, NodeId)> {
    // SAFETY: by the contract of this function.
    unsafe { checked_as(value, false) }
}

#[inline(always)]
unsafe fn checked_as<'a>(value: *mut ValueObject, needs_value: bool) -> Option<(&'a mut Cell, NodeId)> {
    // SAFETY: by the contract of the callers.
    unsafe {
        let cell = cell_of((*value).owner);
        if cell.is_busy() && !cell.is_frozen() && !cell.is_traced() {
            raise_busy(cell);
            return None;
        }
        let handle = &mut (*value).handle;
        let node = NodeId::from_index(handle.start);
        if cell.graph.epoch() != handle.epoch {
            match cell.graph.check(node, handle.epoch) {
                Ok(epoch) => handle.epoch = epoch,
                Err(error) => check_again(cell, handle, needs_value, error)?,
            }
        }
        Some((cell, node))
    }
}

/// Accepts a handle that was refused because its node has no value: computes the value, or makes the remaining checks. Any other
/// error is raised, with `None`.
#[cold]
#[inline(never)]
fn check_again(cell: &mut Cell, handle: &mut Handle, needs_value: bool, error: burtorch_core::Error) -> Option<()> {
    let is_missing = matches!(error, burtorch_core::Error::NotEvaluated { .. });
    if is_missing && needs_value && cell.is_busy() {
        raise_busy(cell);
        return None;
    }
    let settled = match error {
        burtorch_core::Error::NotEvaluated { .. } if needs_value => settle(&mut cell.graph, handle),
        burtorch_core::Error::NotEvaluated { .. } => {
            let (node, epoch) = (NodeId::from_index(handle.start), handle.epoch & !UNEVALUATED);
            cell.graph.check(node, epoch).map(|epoch| handle.epoch = epoch | UNEVALUATED)
        }
        error => Err(error),
    };
    settled.map_err(raise).ok()
}
