//! The raw Python object of `Value`: its memory, and access to its graph.
//!
//! Promises: an object is in the live-handle list of its graph from creation to deallocation; nothing here panics or calls back
//! into Python while a reference into the graph exists. Everything runs under the GIL.
#![allow(unsafe_code)]

use std::ptr;

use burtorch_core::NodeId;
use pyo3::ffi;
use pyo3::prelude::*;

use super::free_list;
use crate::convert::critical_section::{may_be_found, section};
use crate::graph::PyGraph;
use crate::graph::cell::Cell;
use crate::graph::handle::{self, Handle, LiveHandles};
use crate::node::critical_section::slot;

/// The memory layout of a `Value`.
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
    // SAFETY: written once, under the GIL, before any value exists; only read afterwards.
    unsafe { TYPE }
}

/// Stores the type.
///
/// # Safety
/// Called once, under the GIL, before any value is made.
pub unsafe fn set_value_type(type_: *mut ffi::PyTypeObject) {
    // SAFETY: by the contract of this function.
    unsafe { TYPE = type_ }
}

/// Whether `object` is a `Value`.
///
/// # Safety
/// `object` is a living object; the GIL is held.
#[inline(always)]
pub unsafe fn is_value(object: *mut ffi::PyObject) -> bool {
    // SAFETY: by the contract of this function.
    unsafe {
        let type_ = ffi::Py_TYPE(object);
        type_ == value_type() || ffi::PyType_IsSubtype(type_, value_type()) != 0
    }
}

/// The cell of a `Graph` object.
///
/// # Safety
/// `owner` is a living `Graph`; the GIL is held; no other reference into the cell is in use.
#[inline(always)]
pub unsafe fn cell_of<'a>(owner: *mut ffi::PyObject) -> &'a mut Cell {
    // SAFETY: by the contract of this function; `PyGraph` keeps the cell behind an UnsafeCell.
    unsafe {
        std::hint::assert_unchecked(!owner.is_null());
        PyGraph::cell_of_object(owner)
    }
}

/// The Value that a handle lies in.
///
/// # Safety
/// The handle of a Value.
pub unsafe fn object_of(handle: *mut Handle) -> *mut ffi::PyObject {
    debug_assert!(!handle.is_null());
    // SAFETY: by the contract of this function.
    unsafe { handle.byte_sub(std::mem::offset_of!(ValueObject, handle)).cast() }
}

/// The graph of a Value at this moment.
///
/// # Safety
/// A living Value on an attached thread.
#[inline]
pub unsafe fn graph_of<'py>(py: Python<'py>, value: *mut ValueObject) -> Bound<'py, PyGraph> {
    debug_assert!(!value.is_null());
    // SAFETY: by the contract of this function; a Value owns its graph, which changes under the lock of the Value only.
    unsafe {
        section(value.cast(), value.cast(), || Bound::from_borrowed_ptr(py, (*value).owner).cast_into_unchecked())
    }
}

/// Makes a `Value` for a node of `owner`, or returns null with an error set.
///
/// # Safety
/// `owner` is a living `Graph`, `cell` is its cell; the GIL is held.
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
/// `type_` is `Value` or a subclass; the GIL is held.
pub unsafe fn allocate(type_: *mut ffi::PyTypeObject) -> *mut ValueObject {
    // SAFETY: memory from the free list has the size of the exact type; fresh memory is zeroed.
    unsafe {
        if type_ != value_type() {
            return (*type_).tp_alloc.unwrap_or(ffi::PyType_GenericAlloc)(type_, 0).cast();
        }
        let object = free_list::take_any();
        if object.is_null() {
            return ffi::PyType_GenericAlloc(type_, 0).cast();
        }
        (*object).owner = ptr::null_mut();
        object
    }
}

/// An object without a graph, freed if it is not used.
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
        // SAFETY: ours alone, with one reference; slots run under the GIL.
        unsafe {
            if self.0.is_null() {
                return;
            }
            if ffi::Py_TYPE(self.0.cast()) == value_type() {
                // `dealloc` expects that a Value has an owner, a handle of a Value and is in a list: None, and a list
                // of one.
                ptr::write(&raw mut (*self.0).handle, Handle::of_value(0, 0));
                (*self.0).owner = ffi::Py_None();
                ffi::Py_INCREF(ffi::Py_None());
                handle::link_alone(&raw mut (*self.0).handle);
            }
            ffi::Py_DECREF(self.0.cast());
        }
    }
}

/// Connects an allocated object to a node of `owner`.
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
        may_be_found(object.cast());
        ffi::Py_INCREF(owner);
        (*object).owner = owner;
        ptr::write(&raw mut (*object).handle, Handle::of_value(node, epoch));
        cell.handles.add(&raw mut (*object).handle);
        object.cast()
    }
}

/// `new_object` without checks.
///
/// # Safety
/// `object` is the first of the free list, and not null; `handles` are those of `owner`; else as for `new_object`.
#[inline(always)]
pub unsafe fn revive(
    object: *mut ValueObject,
    owner: *mut ffi::PyObject,
    handles: &mut LiveHandles,
    node: NodeId,
    epoch: u64,
) -> *mut ffi::PyObject {
    debug_assert!(!object.is_null());
    // SAFETY: by the contract of this function. The handle is that of a Value, as in the object's life before.
    unsafe {
        debug_assert!((*object).handle.is_of_value());
        free_list::take(object);
        ffi::Py_INCREF(owner);
        (*object).owner = owner;
        (*object).handle.epoch = epoch;
        (*object).handle.start = node.index();
        handles.add(&raw mut (*object).handle);
        object.cast()
    }
}

/// `tp_dealloc`.
pub unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    let run = || {
        // SAFETY: the interpreter calls this once, with a dead object of our type, under its lock. One of the exact type has an
        // owner and is in a list.
        unsafe {
            let value = object.cast::<ValueObject>();
            if (*value).weak_references.is_null() && ffi::Py_TYPE(object) == value_type() && free_list::give(value) {
                handle::unlink(&raw mut (*value).handle);
                ffi::Py_DECREF((*value).owner);
            } else {
                dealloc_slow(object);
            }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[object], run) }
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
            handle::unlink(&raw mut (*value).handle);
            ffi::Py_DECREF(owner);
        }
        let type_ = ffi::Py_TYPE(object);
        if type_ == value_type() && free_list::give_any(value) {
            return;
        }
        match (*type_).tp_free {
            Some(free) => free(object.cast()),
            None => ffi::PyObject_Free(object.cast()),
        }
        // `Value` itself is never freed. Without a GIL each thread counts the references that it makes, and dropping one would
        // write to memory that all threads read for each new object.
        if cfg!(not(Py_GIL_DISABLED)) || type_ != value_type() {
            ffi::Py_DECREF(type_.cast());
        }
    }
}
