//! The raw Python object behind `Value`: its memory, its free list, and how slots reach the graph behind it.
//!
//! Promises: an object is in the live-handle list of its graph from birth to death; nothing here panics or calls back
//! into Python while a reference into the graph exists. Everything runs under the interpreter lock.
#![allow(unsafe_code)]

use std::ptr;

use burtorch_core::graph::UNEVALUATED;
use burtorch_core::{Graph, NodeId, Quick, Result, Scalar};
use pyo3::ffi;
use pyo3::prelude::*;

use super::step::{Step, append_step};
use super::unevaluated::settle;
use crate::cell::{AnyGraph, Cell, with_graph};
use crate::errors;
use crate::graph::{self, PyGraph};
use crate::handle::{Handle, LiveHandles};

/// A `Value` as the interpreter lays it out.
#[repr(C)]
pub struct ValueObject {
    head: ffi::PyObject,
    /// The `Graph`, owned.
    pub owner: *mut ffi::PyObject,
    /// The node.
    pub handle: Handle,
    /// Weak references, kept by the interpreter.
    pub weak_references: *mut ffi::PyObject,
}

/// The type object, made once when the module is loaded and never freed.
static mut TYPE: *mut ffi::PyTypeObject = ptr::null_mut();

/// The `Value` type; null before the module is loaded.
#[inline(always)]
pub fn value_type() -> *mut ffi::PyTypeObject {
    // SAFETY: written once, under the interpreter lock, before any value exists; only read afterwards.
    unsafe { TYPE }
}

/// Stores the type.
///
/// # Safety
/// Called once, under the interpreter lock, before any value is made.
pub unsafe fn set_value_type(type_: *mut ffi::PyTypeObject) {
    // SAFETY: by the contract of this function.
    unsafe { TYPE = type_ }
}

/// Freed objects of the exact type, kept for the next ones: a list through their `owner` fields. Each keeps its type and
/// the reference to it, has no weak references and a reference count of zero.
#[cfg(not(any(Py_GIL_DISABLED, py_sys_config = "Py_TRACE_REFS")))]
pub mod free_list {
    use super::ValueObject;

    /// More than this are given back to the interpreter.
    const MOST: usize = 1024;
    static mut FIRST: *mut ValueObject = std::ptr::null_mut();
    static mut COUNT: usize = 0;

    /// A dead object, or null.
    ///
    /// # Safety
    /// The interpreter lock is held.
    #[inline(always)]
    pub unsafe fn first() -> *mut ValueObject {
        // SAFETY: the lock makes this thread the only one here.
        unsafe { FIRST }
    }

    /// Takes the first object from the list and brings it to life, with one reference; its `owner` is to be set.
    ///
    /// # Safety
    /// The interpreter lock is held; `object` is what `first` returned, and not null.
    #[inline(always)]
    pub unsafe fn take(object: *mut ValueObject) {
        // SAFETY: the lock makes this thread the only one here; a listed object's memory is ours. From zero references,
        // one more makes one.
        unsafe {
            FIRST = (*object).owner.cast();
            COUNT -= 1;
            pyo3::ffi::Py_INCREF(object.cast());
        }
    }

    /// Keeps the memory of a dead object; `false` if there is enough already.
    ///
    /// # Safety
    /// The interpreter lock is held; `object` is dead, of the exact type and without weak references.
    #[inline(always)]
    pub unsafe fn give(object: *mut ValueObject) -> bool {
        // SAFETY: as in `take`.
        unsafe {
            if COUNT >= MOST {
                return false;
            }
            (*object).owner = FIRST.cast();
            FIRST = object;
            COUNT += 1;
            true
        }
    }
}

/// Where there is no interpreter lock, or the interpreter wants to know every object, nothing is kept.
#[cfg(any(Py_GIL_DISABLED, py_sys_config = "Py_TRACE_REFS"))]
pub mod free_list {
    use super::ValueObject;

    pub unsafe fn first() -> *mut ValueObject {
        std::ptr::null_mut()
    }

    pub unsafe fn take(_object: *mut ValueObject) {}

    pub unsafe fn give(_object: *mut ValueObject) -> bool {
        false
    }
}

/// Whether `object` is a `Value`.
///
/// # Safety
/// `object` is a living object; the interpreter lock is held.
#[inline(always)]
pub unsafe fn is_value(object: *mut ffi::PyObject) -> bool {
    // SAFETY: by the contract of this function.
    unsafe {
        let type_ = ffi::Py_TYPE(object);
        type_ == value_type() || ffi::PyType_IsSubtype(type_, value_type()) != 0
    }
}

/// The cell of the graph that a `Graph` object holds.
///
/// # Safety
/// `owner` is a living `Graph`; the interpreter lock is held; no other reference into the cell is in use.
#[inline(always)]
pub unsafe fn cell_of<'a>(owner: *mut ffi::PyObject) -> &'a mut Cell {
    // SAFETY: by the contract of this function; `PyGraph` keeps the cell behind an UnsafeCell.
    unsafe { PyGraph::cell_of_object(owner) }
}

/// Makes a `Value` for a node of `owner`, or returns null with an error set.
///
/// # Safety
/// `owner` is a living `Graph`, `cell` is its cell; the interpreter lock is held.
#[inline(always)]
pub unsafe fn new_object(owner: *mut ffi::PyObject, cell: &mut Cell, node: u32, epoch: u64) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    unsafe {
        let object = allocate(value_type());
        if object.is_null() { object.cast() } else { fill(object, owner, cell, node, epoch) }
    }
}

/// Memory for an object of `type_`, still without a graph, or null with an error set. For a subclass this may run the
/// garbage collector, and with it Python code; for `Value` itself it never does.
///
/// # Safety
/// `type_` is `Value` or a subclass; the interpreter lock is held.
pub unsafe fn allocate(type_: *mut ffi::PyTypeObject) -> *mut ValueObject {
    // SAFETY: memory from the free list has the size of the exact type; fresh memory is zeroed.
    unsafe {
        if type_ != value_type() {
            return (*type_).tp_alloc.unwrap_or(ffi::PyType_GenericAlloc)(type_, 0).cast();
        }
        let object = free_list::first();
        if object.is_null() {
            return ffi::PyType_GenericAlloc(type_, 0).cast();
        }
        free_list::take(object);
        (*object).owner = ptr::null_mut();
        object
    }
}

/// An object without a graph, given back when it is not needed.
pub struct Unowned(pub *mut ValueObject);

impl Unowned {
    /// The object, to be filled.
    #[inline(always)]
    pub fn take(self) -> *mut ValueObject {
        let object = self.0;
        std::mem::forget(self);
        object
    }
}

impl Drop for Unowned {
    fn drop(&mut self) {
        // SAFETY: ours alone; slots run under the interpreter lock.
        unsafe { ffi::Py_XDECREF(self.0.cast()) }
    }
}

/// Makes an allocated object stand for a node of `owner`, or returns null with an error set.
///
/// # Safety
/// `object` comes from `allocate` and is given away; `owner` is a living `Graph`, `cell` is its cell; the interpreter
/// lock is held.
pub unsafe fn fill(
    object: *mut ValueObject,
    owner: *mut ffi::PyObject,
    cell: &mut Cell,
    node: u32,
    epoch: u64,
) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    unsafe {
        ffi::Py_INCREF(owner);
        (*object).owner = owner;
        ptr::write(&raw mut (*object).handle, Handle::new(node, 1, epoch));
        if !cell.handles.add(&raw mut (*object).handle) {
            ffi::Py_DECREF(object.cast());
            ffi::PyErr_NoMemory();
            return ptr::null_mut();
        }
        object.cast()
    }
}

/// `new_object` where nothing can be missing.
///
/// # Safety
/// `object` is the first of the free list, and not null; `handles`, those of `owner`, have room; else as for `new_object`.
#[inline(always)]
pub unsafe fn revive(
    object: *mut ValueObject,
    owner: *mut ffi::PyObject,
    handles: &mut LiveHandles,
    node: NodeId,
    epoch: u64,
) -> *mut ffi::PyObject {
    debug_assert!(!object.is_null() && handles.has_room());
    // SAFETY: by the contract of this function.
    unsafe {
        free_list::take(object);
        ffi::Py_INCREF(owner);
        (*object).owner = owner;
        ptr::write(&raw mut (*object).handle, Handle::new(node.index(), 1, epoch));
        handles.add_reserved(&raw mut (*object).handle);
        object.cast()
    }
}

/// `tp_dealloc`.
pub unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, with a dead object of our type, under its lock.
    unsafe {
        let value = object.cast::<ValueObject>();
        let owner = (*value).owner;
        let is_plain = (*value).weak_references.is_null() && ffi::Py_TYPE(object) == value_type();
        if !is_plain || owner.is_null() {
            return dealloc_slow(object);
        }
        cell_of(owner).handles.remove(&raw mut (*value).handle);
        if free_list::give(value) {
            ffi::Py_DECREF(owner);
        } else {
            // Already out of the list: removing it again does nothing.
            dealloc_slow(object);
        }
    }
}

/// The whole of `tp_dealloc`: subclasses, weak references, objects without a graph, a full free list.
///
/// # Safety
/// As for `dealloc`.
#[cold]
#[inline(never)]
unsafe fn dealloc_slow(object: *mut ffi::PyObject) {
    // SAFETY: by the contract of this function.
    unsafe {
        let value = object.cast::<ValueObject>();
        if !(*value).weak_references.is_null() {
            ffi::PyObject_ClearWeakRefs(object);
        }
        let owner = (*value).owner;
        if !owner.is_null() {
            cell_of(owner).handles.remove(&raw mut (*value).handle);
            ffi::Py_DECREF(owner);
        }
        let type_ = ffi::Py_TYPE(object);
        if type_ == value_type() && free_list::give(value) {
            return;
        }
        match (*type_).tp_free {
            Some(free) => free(object.cast()),
            None => ffi::PyObject_Free(object.cast()),
        }
        ffi::Py_DECREF(type_.cast());
    }
}

/// What an operation appends to a graph.
pub trait Build<const N: usize>: Copy {
    /// Appends where no question is left.
    ///
    /// # Safety
    /// The operands are nodes of the graph.
    unsafe fn build_quick<S: Scalar>(self, graph: Quick<'_, 'static, S>, operands: [NodeId; N]) -> NodeId;
    /// The same in words, for graphs in every state and of every type: one body serves all operations there.
    fn step(&self) -> Step;
}

/// Runs `build` on the graph of `owner` and wraps the new node, or returns null with an error set.
///
/// The usual case (float64, nothing due, room everywhere, operands of the present epoch) asks all its questions first
/// and then does everything without a call; any other goes the whole way.
///
/// # Safety
/// `owner` is a living `Graph`, `operands` are values of it; the interpreter lock is held.
#[inline(always)]
pub unsafe fn append<const N: usize>(
    owner: *mut ffi::PyObject,
    operands: [*mut ValueObject; N],
    build: impl Build<N>,
) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function; nothing here
    // calls Python code. An operand of the present epoch exists.
    unsafe {
        let cell = cell_of(owner);
        if !cell.busy && !graph::no_grad_somewhere() {
            let handles = &mut cell.handles;
            if let AnyGraph::F64(g) = &mut cell.graph
                && g.len() as u32 <= cell.limit
                && operands.iter().all(|&operand| (*operand).handle.epoch == g.epoch())
                && handles.has_room()
            {
                let object = free_list::first();
                let epoch = g.epoch();
                if !object.is_null()
                    && let Some(quick) = g.quick()
                {
                    let nodes = operands.map(|operand| NodeId::from_index((*operand).handle.start));
                    let node = build.build_quick(quick, nodes);
                    return revive(object, owner, handles, node, epoch);
                }
            }
        }
        append_slow(owner, operands, build)
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
    // SAFETY: by the contract of this function, and as in `append`.
    unsafe {
        let cell = cell_of(owner);
        if cell.busy && !cell.is_traced() {
            return if cell.is_frozen() { append_in_branch(operands, build) } else { raise_busy(cell) };
        }
        let no_grad = graph::wants_no_grad();
        if cell.busy && no_grad {
            return raise_python(crate::recorded::no_grad_refused());
        }
        let built = cell.collect_if_due().and_then(|()| match &mut cell.graph {
            AnyGraph::F32(g) if !no_grad => append_quick(g, operands, build),
            _ => Ok(None),
        });
        let built = match built {
            Ok(Some(built)) => Ok(built),
            // A step computes what an operand left out.
            Ok(None) | Err(burtorch_core::Error::NotEvaluated { .. }) => {
                append_step(cell, &operands, build.step(), no_grad)
            }
            Err(error) => Err(error),
        };
        match built {
            Ok((node, epoch)) => new_object(owner, cell, node, epoch),
            Err(error) if cell.busy => raise_python(crate::recorded::too_large(cell, error)),
            Err(error) => raise(error),
        }
    }
}

/// `append` for values of several graphs, or of a frozen one: on the branch that reads them all, if there is one.
///
/// # Safety
/// `operands` are living values; the interpreter lock is held; no reference into their cells is in use.
#[cold]
#[inline(never)]
pub unsafe fn append_in_branch<const N: usize>(
    operands: [*mut ValueObject; N],
    build: impl Build<N>,
) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function; what `gather` returns are values of the graph it returns.
    unsafe {
        match graph::gather(Python::assume_attached(), operands) {
            Ok((target, found)) => {
                let operands = std::array::from_fn(|k| found[k].as_ptr().cast());
                append(target.as_ptr(), operands, build)
            }
            Err(error) => raise_python(error),
        }
    }
}

/// Checks the operands and appends, unless there is a question left.
///
/// # Safety
/// `operands` are living values of this graph; the interpreter lock is held.
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

/// Sets the Python error for a core error and returns null.
#[cold]
#[inline(never)]
pub fn raise(error: burtorch_core::Error) -> *mut ffi::PyObject {
    // SAFETY: slots run under the interpreter lock.
    let py = unsafe { Python::assume_attached() };
    errors::to_python(py, error).restore(py);
    ptr::null_mut()
}

/// Sets a Python error and returns null.
#[cold]
#[inline(never)]
pub fn raise_python(error: PyErr) -> *mut ffi::PyObject {
    // SAFETY: slots run under the interpreter lock.
    let py = unsafe { Python::assume_attached() };
    error.restore(py);
    ptr::null_mut()
}

/// Sets `BusyError`, or `TraceError` for a graph on which a function was recorded, and returns null.
#[cold]
#[inline(never)]
pub fn raise_busy(cell: &Cell) -> *mut ffi::PyObject {
    // SAFETY: slots run under the interpreter lock.
    let py = unsafe { Python::assume_attached() };
    raise_python(cell.refusal(py))
}

/// As `checked`, for a value that is about to be written: not while branches of its graph are open.
///
/// # Safety
/// As for `checked`.
pub unsafe fn checked_mut<'a>(value: *mut ValueObject) -> Option<(&'a mut Cell, NodeId)> {
    // SAFETY: by the contract of this function.
    let (cell, node) = unsafe { checked(value) }?;
    if cell.busy {
        raise_busy(cell);
        return None;
    }
    Some((cell, node))
}

/// As `checked_mut`, for the root of a sweep, whose value nobody needs.
///
/// # Safety
/// As for `checked`.
pub unsafe fn checked_for_sweep<'a>(value: *mut ValueObject) -> Option<(&'a mut Cell, NodeId)> {
    // SAFETY: by the contract of this function.
    let (cell, node) = unsafe { checked_for_gradient(value) }?;
    if cell.busy && cell.is_traced() {
        // SAFETY: the interpreter lock is held.
        raise_python(crate::recorded::not_in_a_trace(unsafe { Python::assume_attached() }, "backward()"));
        return None;
    }
    if cell.busy {
        raise_busy(cell);
        return None;
    }
    Some((cell, node))
}

/// Reads a value's node after checking it: `None` with an error set if it is stale or its graph is busy.
///
/// # Safety
/// `value` is a living value; the interpreter lock is held; no reference into its cell is in use.
#[inline(always)]
pub unsafe fn checked<'a>(value: *mut ValueObject) -> Option<(&'a mut Cell, NodeId)> {
    // SAFETY: by the contract of this function.
    unsafe { checked_as(value, true) }
}

/// The same for what needs the gradient only: a node without a value stays so.
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
        if cell.busy && !cell.is_frozen() && !cell.is_traced() {
            raise_busy(cell);
            return None;
        }
        let handle = &mut (*value).handle;
        let node = NodeId::from_index(handle.start);
        if with_graph!(&cell.graph, g => g.epoch()) != handle.epoch {
            match with_graph!(&cell.graph, g => g.check(node, handle.epoch)) {
                Ok(epoch) => handle.epoch = epoch,
                Err(error) => check_again(cell, handle, needs_value, error)?,
            }
        }
        Some((cell, node))
    }
}

/// Accepts a handle that was refused because its node has no value: computes it, or checks the rest. Any other error is
/// raised, with `None`.
#[cold]
#[inline(never)]
fn check_again(cell: &mut Cell, handle: &mut Handle, needs_value: bool, error: burtorch_core::Error) -> Option<()> {
    if needs_value && cell.busy {
        raise_busy(cell);
        return None;
    }
    let settled = match error {
        burtorch_core::Error::NotEvaluated { .. } if needs_value => settle(&mut cell.graph, handle),
        burtorch_core::Error::NotEvaluated { .. } => {
            let (node, epoch) = (NodeId::from_index(handle.start), handle.epoch & !UNEVALUATED);
            with_graph!(&cell.graph, g => g.check(node, epoch)).map(|epoch| handle.epoch = epoch | UNEVALUATED)
        }
        error => Err(error),
    };
    settled.map_err(raise).ok()
}
