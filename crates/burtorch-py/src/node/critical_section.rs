//! The wrapper of every slot of `Value`: it takes the lock of the graphs on interpreters without a GIL, and catches
//! panics.
//!
//! Promises: plain operators of several threads on one graph run one after another; on interpreters with a GIL this is
//! only a call.
#![allow(unsafe_code)]

use pyo3::ffi;

use crate::convert::entry::{Failed, caught};

/// Runs a slot of `Value`: `caught`, while no other thread uses the graphs of these objects.
///
/// # Safety
/// The interpreter passed `objects`, or an object that is being deallocated; its lock is held.
#[inline(always)]
pub unsafe fn slot<R: Failed>(objects: &[*mut ffi::PyObject], f: impl FnOnce() -> R) -> R {
    // SAFETY: by the contract of this function.
    caught(|| unsafe { locked(objects, f) })
}

#[cfg(not(Py_GIL_DISABLED))]
mod held {
    use super::ffi;

    /// Runs `f`; the GIL is held.
    ///
    /// # Safety
    /// None here; elsewhere `objects` are living ones, or one that is being deallocated.
    #[inline(always)]
    pub unsafe fn locked<R>(_objects: &[*mut ffi::PyObject], f: impl FnOnce() -> R) -> R {
        f()
    }

    /// An object, which lives.
    pub struct Kept(pub *mut ffi::PyObject);

    /// The same object.
    ///
    /// # Safety
    /// None here; elsewhere a living object.
    #[inline(always)]
    pub unsafe fn unchanging(object: *mut ffi::PyObject) -> Kept {
        Kept(object)
    }
}

#[cfg(Py_GIL_DISABLED)]
mod held {
    use pyo3::prelude::*;

    use super::ffi;
    use crate::graph::critical_section::{locked_graph, section};
    use crate::node::value::{ValueObject, cell_of, is_value};

    /// An object, kept alive, or null.
    pub struct Kept(pub *mut ffi::PyObject);

    impl Drop for Kept {
        fn drop(&mut self) {
            // SAFETY: a reference of our own, or null.
            unsafe { ffi::Py_XDECREF(self.0) }
        }
    }

    /// An object, kept alive.
    fn kept(object: *mut ffi::PyObject) -> Kept {
        // SAFETY: a living object, or null.
        unsafe { ffi::Py_XINCREF(object) };
        Kept(object)
    }

    /// The graph of a Value at this moment.
    ///
    /// # Safety
    /// A living Value, or one that is being deallocated.
    unsafe fn graph_of(value: *mut ffi::PyObject) -> Kept {
        debug_assert!(!value.is_null());
        // SAFETY: the graph of a Value changes in a section of the Value only.
        unsafe { section(value, value, || kept((*value.cast::<ValueObject>()).owner)) }
    }

    /// The Value that an argument is, or begins with. An object that is being deallocated is returned without a reference.
    unsafe fn value_in(object: *mut ffi::PyObject) -> Option<(*mut ffi::PyObject, Option<Kept>)> {
        // SAFETY: a living object, or a Value that is being deallocated.
        unsafe {
            if is_value(object) {
                return Some((object, None));
            }
            let first = if ffi::PyTuple_CheckExact(object) != 0 && ffi::PyTuple_GET_SIZE(object) > 0 {
                kept(ffi::PyTuple_GET_ITEM(object, 0))
            } else if ffi::PyList_CheckExact(object) != 0 && ffi::PyList_GET_SIZE(object) > 0 {
                let first = ffi::PyList_GetItemRef(object, 0);
                if first.is_null() {
                    ffi::PyErr_Clear();
                }
                Kept(first)
            } else {
                return None;
            };
            (!first.0.is_null() && is_value(first.0)).then_some((first.0, Some(first)))
        }
    }

    /// Runs `f` while no other thread uses the graphs of the first two Values among the objects, or where there is none at the
    /// current graph. If these are one graph and it is frozen, also that of the branch that may read it.
    ///
    /// # Safety
    /// `objects` are living ones, or one that is being deallocated.
    pub unsafe fn locked<R>(objects: &[*mut ffi::PyObject], f: impl FnOnce() -> R) -> R {
        // SAFETY: by the contract of this function.
        unsafe {
            let mut values = objects.iter().filter_map(|&object| value_in(object));
            let Some((first, _first)) = values.next() else {
                return locked_graph(crate::graph::current(Python::assume_attached()), f);
            };
            let (second, _second) = values.next().unwrap_or((first, None));
            let mut f = Some(f);
            loop {
                let (a, b) = (graph_of(first), graph_of(second));
                if a.0.is_null() || b.0.is_null() || a.0 == ffi::Py_None() {
                    return (f.take().unwrap_unchecked())();
                }
                let is_read = a.0 == b.0 && cell_of(a.0).is_busy();
                let also = if is_read { crate::graph::current_if_any() } else { b.0 };
                let done = section(a.0, if also.is_null() { a.0 } else { also }, || {
                    let owner = |value: *mut ffi::PyObject| (*value.cast::<ValueObject>()).owner;
                    // A join may have given them to another graph meanwhile.
                    (owner(first) == a.0 && owner(second) == b.0).then(|| f.take().map(|f| f())).flatten()
                });
                if let Some(done) = done {
                    return done;
                }
            }
        }
    }

    /// A list of Values as a tuple, which no other thread changes; any other object unchanged.
    ///
    /// # Safety
    /// A living object; keep the result while the object is in use.
    pub unsafe fn unchanging(object: *mut ffi::PyObject) -> Kept {
        // SAFETY: by the contract of this function.
        unsafe {
            if ffi::PyList_CheckExact(object) == 0 || value_in(object).is_none() {
                return kept(object);
            }
            let tuple = ffi::PyList_AsTuple(object);
            if tuple.is_null() {
                ffi::PyErr_Clear();
                return kept(object);
            }
            Kept(tuple)
        }
    }
}

pub use held::{locked, unchanging};
