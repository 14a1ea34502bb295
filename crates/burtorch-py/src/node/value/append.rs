//! Appending an operation on Values as a node with a Value: a fast path, and a general path with all checks.
//!
//! Promises: both paths append the same nodes. Nothing here panics or calls back into Python while a reference into the graph
//! exists. Everything runs under the GIL.
#![allow(unsafe_code)]

use std::ptr;

use burtorch_core::{Graph, NodeId, Quick, Result, Scalar};
use pyo3::ffi;
use pyo3::prelude::*;

use super::check::raise_busy;
use super::free_list;
use super::object::{ValueObject, cell_of, new_object, revive};
use super::step::{Step, append_step};
use crate::convert::entry::{raise, raise_python};
use crate::graph;
use crate::graph::cell::AnyGraph;

/// An operation to append to a graph.
pub trait Build<const N: usize>: Copy {
    /// Appends after all checks have passed.
    ///
    /// # Safety
    /// The operands are nodes of the graph.
    unsafe fn build_quick<S: Scalar>(self, graph: Quick<'_, 'static, S>, operands: [NodeId; N]) -> NodeId;
    /// The same as data, for graphs in every state and of every type: one body serves all operations there.
    fn step(&self) -> Step;
}

/// Runs `build` on the graph of `owner` and wraps the new node, or returns null with an error set.
///
/// # Safety
/// `owner` is a living `Graph`, `operands` are values of it; the GIL is held.
#[inline(always)]
pub unsafe fn append<const N: usize>(
    owner: *mut ffi::PyObject,
    operands: [*mut ValueObject; N],
    build: impl Build<N>,
) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    unsafe {
        let made = append_at_once(owner, operands, build);
        if made.is_null() { append_slow(owner, operands, build) } else { made }
    }
}

/// The usual case of `append`, or null: float64, operands of the current epoch, an object in the free list, and a graph that
/// is not in use, has room and nothing to reclaim, which is one check of its fast path. The free list is closed while
/// a thread builds only constants. Makes all checks first and then completes without a call.
///
/// # Safety
/// As for `append`.
#[inline(always)]
pub unsafe fn append_at_once<const N: usize>(
    owner: *mut ffi::PyObject,
    operands: [*mut ValueObject; N],
    build: impl Build<N>,
) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function; nothing here calls Python code. An operand of the present epoch exists.
    unsafe {
        let cell = cell_of(owner);
        let AnyGraph::F64(g) = &mut cell.graph else { return ptr::null_mut() };
        let epoch = g.epoch();
        if operands.iter().any(|&operand| (*operand).handle.epoch != epoch) {
            return ptr::null_mut();
        }
        let object = free_list::first();
        if object.is_null() {
            return ptr::null_mut();
        }
        let Some(quick) = g.quick() else { return ptr::null_mut() };
        let nodes = operands.map(|operand| NodeId::from_index((*operand).handle.start));
        let node = build.build_quick(quick, nodes);
        revive(object, owner, &mut cell.handles, node, epoch)
    }
}

/// An operation on operands, in the form that is compiled once for all.
trait Operation {
    fn operands(&self) -> &[*mut ValueObject];
    fn step(&self) -> Step;
    /// As `append_quick`.
    ///
    /// # Safety
    /// As there.
    unsafe fn append_f32(&self, graph: &mut Graph<'static, f32>) -> Result<Option<(u32, u64)>>;
    /// As `append_quick`.
    ///
    /// # Safety
    /// As there.
    unsafe fn append_f64(&self, graph: &mut Graph<'static, f64>) -> Result<Option<(u32, u64)>>;
    /// As `append_in_branch`.
    ///
    /// # Safety
    /// As there.
    unsafe fn append_in_branch(&self) -> *mut ffi::PyObject;
}

struct On<const N: usize, B>([*mut ValueObject; N], B);

impl<const N: usize, B: Build<N>> Operation for On<N, B> {
    fn operands(&self) -> &[*mut ValueObject] {
        &self.0
    }
    fn step(&self) -> Step {
        self.1.step()
    }
    unsafe fn append_f32(&self, graph: &mut Graph<'static, f32>) -> Result<Option<(u32, u64)>> {
        // SAFETY: by the contract of this method.
        unsafe { append_quick(graph, self.0, self.1) }
    }
    unsafe fn append_f64(&self, graph: &mut Graph<'static, f64>) -> Result<Option<(u32, u64)>> {
        // SAFETY: by the contract of this method.
        unsafe { append_quick(graph, self.0, self.1) }
    }
    unsafe fn append_in_branch(&self) -> *mut ffi::PyObject {
        // SAFETY: by the contract of this method.
        unsafe { append_in_branch(self.0, self.1) }
    }
}

/// The whole of `append`: reclaim if it is time, check operands, build, wrap.
///
/// # Safety
/// As for `append`.
#[inline(never)]
unsafe fn append_slow<const N: usize>(
    owner: *mut ffi::PyObject,
    operands: [*mut ValueObject; N],
    build: impl Build<N>,
) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    unsafe { append_calmly(owner, &On(operands, build)) }
}

/// As `append_slow`; one copy for all operations.
///
/// # Safety
/// As for `append`.
#[inline(never)]
unsafe fn append_calmly(owner: *mut ffi::PyObject, operation: &dyn Operation) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function, and as in `append`.
    unsafe {
        let cell = cell_of(owner);
        if cell.is_busy() && !cell.is_traced() {
            return if cell.is_frozen() { operation.append_in_branch() } else { raise_busy(cell) };
        }
        let no_grad = graph::wants_no_grad();
        if cell.is_busy() && no_grad {
            return raise_python(crate::convert::refusals::no_grad_refused());
        }
        // Busy, but still here: a function is being traced.
        let is_tracing = cell.is_busy();
        let built = cell.collect_if_due().and_then(|()| match &mut cell.graph {
            AnyGraph::F32(g) if !no_grad => operation.append_f32(g),
            AnyGraph::F64(g) if is_tracing => operation.append_f64(g),
            _ => Ok(None),
        });
        let built = match built {
            Ok(Some(built)) => Ok(built),
            // A step computes an operand's missing value.
            Ok(None) | Err(burtorch_core::Error::NotEvaluated { .. }) => {
                append_step(cell, operation.operands(), operation.step(), no_grad)
            }
            Err(error) => Err(error),
        };
        match built {
            Ok((node, epoch)) => new_object(owner, cell, node, epoch),
            Err(error) if cell.is_busy() => raise_python(crate::graph::trace::too_large(cell, error)),
            Err(error) => raise(error),
        }
    }
}

/// `append` for values of several graphs, or of a frozen one: on the branch that reads them all, if there is one.
///
/// # Safety
/// `operands` are living values; the GIL is held; no reference into their cells is in use.
#[cold]
#[inline(never)]
pub unsafe fn append_in_branch<const N: usize>(
    operands: [*mut ValueObject; N],
    build: impl Build<N>,
) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function; what `gather` returns are values of the graph it returns.
    unsafe {
        match crate::node::branch_reads::gather(Python::assume_attached(), operands) {
            Ok((target, found)) => {
                let operands = std::array::from_fn(|k| found[k].as_ptr().cast());
                append(target.as_ptr(), operands, build)
            }
            Err(error) => raise_python(error),
        }
    }
}

/// Checks the operands and appends, if the fast path is open.
///
/// # Safety
/// `operands` are living values of this graph; the GIL is held.
unsafe fn append_quick<S: Scalar, const N: usize>(
    graph: &mut Graph<'static, S>,
    operands: [*mut ValueObject; N],
    build: impl Build<N>,
) -> Result<Option<(u32, u64)>> {
    let epoch = graph.epoch();
    // SAFETY: by the contract of this function; an operand that passes the check exists.
    unsafe {
        for &operand in &operands {
            let handle = &mut (*operand).handle;
            handle.epoch = graph.check(NodeId::from_index(handle.start), handle.epoch)?;
        }
        let nodes = operands.map(|operand| NodeId::from_index((*operand).handle.start));
        Ok(graph.quick().map(|quick| (build.build_quick(quick, nodes).index(), epoch)))
    }
}
