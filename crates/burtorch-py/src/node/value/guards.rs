//! The part of an operation on a traced Value in the trace of its graph: comparisons, and copies without a gradient.
//!
//! Promises: any use of a traced Value as a plain number is either recorded or a `TraceError` that names the line.
#![allow(unsafe_code)]

use burtorch_core::NodeId;
use burtorch_core::program::Comparison;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use super::object::{ValueObject, cell_of};
use crate::convert::refusals::error_here;
use crate::graph::cell::Cell;
use crate::graph::trace::too_large;

/// A comparison with an int as one with a float, exact even if no float equals the int; `None` if no such float exists.
pub fn with_int(x: &Bound<'_, PyAny>, comparison: Comparison) -> PyResult<Option<(Comparison, f64)>> {
    let py = x.py();
    let floor = match x.extract::<f64>() {
        Ok(nearest) if nearest.into_pyobject(py)?.as_any().gt(x)? => nearest.next_down(),
        Ok(nearest) => nearest,
        Err(error) if !error.is_instance_of::<PyOverflowError>(py) => return Err(error),
        Err(_) => {
            if x.gt(0)? {
                f64::MAX
            } else {
                f64::NEG_INFINITY
            }
        }
    };
    let is_exact = floor.into_pyobject(py)?.as_any().eq(x)?;
    Ok(comparison.about_floor(is_exact).map(|comparison| (comparison, floor)))
}

/// The tracing of a Value's graph, if there is one, with the Value's node.
unsafe fn traced<'a>(value: *mut ValueObject) -> (&'a mut Cell, NodeId) {
    // SAFETY: callers hold the GIL and a living, checked Value.
    unsafe { (cell_of((*value).owner), NodeId::from_index((*value).handle.start)) }
}

/// Records a comparison of `a` with `b` (or with `y`) and its outcome.
pub fn compared(
    a: *mut ValueObject,
    b: Option<*mut ValueObject>,
    y: f64,
    mut comparison: Comparison,
    answer: bool,
) -> PyResult<()> {
    // SAFETY: as in `traced`.
    unsafe {
        if b.is_some_and(|b| (*b).owner != (*a).owner) {
            let message = "a traced Value cannot be compared with a Value of another graph; pass that as an argument";
            return Python::attach(|py| Err(error_here(py, message)));
        }
        let (cell, x) = traced(a);
        let other = match b {
            Some(b) => traced(b).1,
            None => {
                // A constant would be rounded to the graph's type, which would be another comparison.
                let floor = cell.graph.scalar_type().elem.floor(y);
                match comparison.about_floor(floor == y || y.is_nan()) {
                    Some(about_floor) => comparison = about_floor,
                    None => return Ok(()),
                }
                match cell.graph.append_number(&burtorch_core::erased::AnyNumber::One(floor), true) {
                    Ok(node) => node,
                    Err(error) => return Err(too_large(cell, error)),
                }
            }
        };
        let len = cell.graph.len();
        if let Some(trace) = &mut cell.trace {
            trace.guards.push((len, comparison, x, other, answer));
        }
    }
    Ok(())
}

/// Records that `copy` is a copy of `of` without a gradient.
///
/// # Safety
/// Both are living Values of the graph of `cell`; the GIL is held.
pub unsafe fn detached(cell: &mut Cell, copy: *mut ValueObject, of: *mut ValueObject) {
    debug_assert!(cell.is_busy());
    // SAFETY: by the contract of this function.
    let pair = unsafe { (NodeId::from_index((*copy).handle.start), NodeId::from_index((*of).handle.start)) };
    if let Some(trace) = &mut cell.trace {
        trace.detached.push(pair);
    }
}
