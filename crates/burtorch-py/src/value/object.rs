//! The raw Python object behind `Value`: its memory, its free list, and how slots reach the graph behind it.
//!
//! Promises: an object is in the live-handle list of its graph from birth to death; nothing here panics or calls back
//! into Python while a reference into the graph exists. Everything runs under the interpreter lock.
#![allow(unsafe_code)]

use std::ptr;

use burtorch_core::{Graph, NodeId, Result, Scalar};
use pyo3::ffi;
use pyo3::prelude::*;

use super::step::{Step, append_step};
use crate::cell::{AnyGraph, Cell, with_graph};
use crate::errors;
use crate::graph::{self, PyGraph};
use crate::handle::Handle;

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

/// Freed objects of the exact type, kept for the next ones: a list through their `owner` fields.
#[cfg(not(Py_GIL_DISABLED))]
mod free_list {
    use super::ValueObject;

    /// More than this are given back to the interpreter.
    const MOST: usize = 1024;
    static mut FIRST: *mut ValueObject = std::ptr::null_mut();
    static mut COUNT: usize = 0;

    /// # Safety
    /// The interpreter lock is held.
    #[inline(always)]
    pub unsafe fn take() -> *mut ValueObject {
        // SAFETY: the lock makes this thread the only one here; a listed object's memory is ours.
        unsafe {
            let first = FIRST;
            if !first.is_null() {
                FIRST = (*first).owner.cast();
                COUNT -= 1;
            }
            first
        }
    }

    /// Keeps the memory of a dead object; `false` if there is enough already.
    ///
    /// # Safety
    /// The interpreter lock is held; `object` is dead and of the exact type.
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

/// Without an interpreter lock nothing is kept.
#[cfg(Py_GIL_DISABLED)]
mod free_list {
    use super::ValueObject;

    pub unsafe fn take() -> *mut ValueObject {
        std::ptr::null_mut()
    }

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
#[inline(always)]
pub unsafe fn allocate(type_: *mut ffi::PyTypeObject) -> *mut ValueObject {
    // SAFETY: memory from the free list has the size of the exact type; fresh memory is zeroed.
    unsafe {
        if type_ != value_type() {
            return (*type_).tp_alloc.unwrap_or(ffi::PyType_GenericAlloc)(type_, 0).cast();
        }
        let object = free_list::take();
        if object.is_null() {
            return ffi::PyType_GenericAlloc(type_, 0).cast();
        }
        ffi::PyObject_Init(object.cast(), type_);
        (*object).owner = ptr::null_mut();
        (*object).weak_references = ptr::null_mut();
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
#[inline(always)]
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

/// `tp_dealloc`.
pub unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, with a dead object of our type, under its lock.
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
        if type_ != value_type() || !free_list::give(value) {
            match (*type_).tp_free {
                Some(free) => free(object.cast()),
                None => ffi::PyObject_Free(object.cast()),
            }
        }
        ffi::Py_DECREF(type_.cast());
    }
}

/// What an operation on one graph does: reclaim if it is time, check operands, build, wrap.
///
/// The operands' handles are passed by pointer because reclaim may renumber them first.
pub trait Build<const N: usize> {
    /// Appends to the graph.
    fn build<S: Scalar>(self, graph: &mut Graph<'static, S>, operands: [NodeId; N]) -> Result<NodeId>;
    /// The same in words, for graphs of other types than float64 and float32: one body serves all operations there.
    fn step(&self) -> Step;
}

/// Runs `build` on the graph of `owner` and wraps the new node, or returns null with an error set.
///
/// # Safety
/// `owner` is a living `Graph`, `operands` are values of it; the interpreter lock is held.
#[inline(always)]
pub unsafe fn append<const N: usize>(
    owner: *mut ffi::PyObject,
    operands: [*mut ValueObject; N],
    build: impl Build<N>,
) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function; `build` calls no Python code.
    unsafe {
        let cell = cell_of(owner);
        if cell.busy || graph::no_grad_somewhere() {
            return append_specially(owner, cell, operands, build);
        }
        let built = match &mut cell.graph {
            AnyGraph::F64(graph) if graph.len() as u32 <= cell.limit => append_to(graph, operands, build),
            _ => append_slow(cell, operands, build),
        };
        match built {
            Ok((node, epoch)) => new_object(owner, cell, node, epoch),
            Err(error) => raise(error),
        }
    }
}

#[inline(always)]
unsafe fn append_to<S: Scalar, const N: usize>(
    graph: &mut Graph<'static, S>,
    operands: [*mut ValueObject; N],
    build: impl Build<N>,
) -> Result<(u32, u64)> {
    let mut nodes = [NodeId::from_index(0); N];
    for (node, &operand) in nodes.iter_mut().zip(&operands) {
        // SAFETY: operands are living values, as the callers promise.
        let handle = unsafe { &mut (*operand).handle };
        *node = NodeId::from_index(handle.start);
        handle.epoch = graph.check(*node, handle.epoch)?;
    }
    let node = build.build(graph, nodes)?;
    Ok((node.index(), graph.epoch()))
}

#[inline(never)]
unsafe fn append_slow<const N: usize>(
    cell: &mut Cell,
    operands: [*mut ValueObject; N],
    build: impl Build<N>,
) -> Result<(u32, u64)> {
    if with_graph!(&cell.graph, g => g.len()) as u32 > cell.limit {
        cell.collect()?;
    }
    // SAFETY: the operands are living values of this cell's graph.
    unsafe {
        match &mut cell.graph {
            AnyGraph::F64(graph) => append_to(graph, operands, build),
            AnyGraph::F32(graph) => append_to(graph, operands, build),
            _ => append_step(cell, &operands, build.step()),
        }
    }
}

/// `append` while the graph is busy or some thread wants no gradients.
///
/// # Safety
/// As for `append`; `cell` is the cell of `owner`.
#[cold]
#[inline(never)]
unsafe fn append_specially<const N: usize>(
    owner: *mut ffi::PyObject,
    cell: &mut Cell,
    operands: [*mut ValueObject; N],
    build: impl Build<N>,
) -> *mut ffi::PyObject {
    if cell.busy {
        // SAFETY: by the contract of this function.
        return if cell.is_frozen() { unsafe { append_in_branch(operands, build) } } else { raise_busy(cell) };
    }
    let before = with_graph!(&mut cell.graph, g => { let off = !g.records_gradients() || graph::wants_no_grad(); g.set_no_grad(off) });
    // SAFETY: by the contract of this function.
    let built = unsafe { append_slow(cell, operands, build) };
    with_graph!(&mut cell.graph, g => g.set_no_grad(before));
    match built {
        // SAFETY: by the contract of this function.
        Ok((node, epoch)) => unsafe { new_object(owner, cell, node, epoch) },
        Err(error) => raise(error),
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

/// Sets `BusyError` and returns null.
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

/// Reads a value's node after checking it: `None` with an error set if it is stale or its graph is busy.
///
/// # Safety
/// `value` is a living value; the interpreter lock is held; no reference into its cell is in use.
#[inline(always)]
pub unsafe fn checked<'a>(value: *mut ValueObject) -> Option<(&'a mut Cell, NodeId)> {
    // SAFETY: by the contract of this function.
    unsafe {
        let cell = cell_of((*value).owner);
        if cell.busy && !cell.is_frozen() {
            raise_busy(cell);
            return None;
        }
        let handle = &mut (*value).handle;
        let node = NodeId::from_index(handle.start);
        match with_graph!(&cell.graph, g => g.check(node, handle.epoch)) {
            Ok(epoch) => handle.epoch = epoch,
            Err(error) => {
                raise(error);
                return None;
            }
        }
        Some((cell, node))
    }
}
