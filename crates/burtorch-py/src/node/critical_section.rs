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

    /// Runs `f`, which gives a Value another graph.
    ///
    /// # Safety
    /// None here; elsewhere `value` is a living Value.
    #[inline(always)]
    pub unsafe fn locked_value<R>(_value: *mut ffi::PyObject, f: impl FnOnce() -> R) -> R {
        f()
    }
}

#[cfg(Py_GIL_DISABLED)]
mod held {
    use pyo3::prelude::*;

    use super::ffi;
    use crate::graph::critical_section::{locked_graph, section};
    use crate::node::value::{ValueObject, is_value};

    /// A graph, kept alive.
    struct Kept(*mut ffi::PyObject);

    impl Drop for Kept {
        fn drop(&mut self) {
            // SAFETY: a reference of our own, or null.
            unsafe { ffi::Py_XDECREF(self.0) }
        }
    }

    /// The graph of a Value at this moment.
    ///
    /// # Safety
    /// A living Value, or one that is being deallocated.
    unsafe fn graph_of(value: *mut ffi::PyObject) -> Kept {
        debug_assert!(!value.is_null());
        // SAFETY: the graph of a Value changes in a section of the Value only.
        unsafe {
            section(value, value, || {
                let owner = (*value.cast::<ValueObject>()).owner;
                ffi::Py_XINCREF(owner);
                Kept(owner)
            })
        }
    }

    /// The Value that an argument is, or begins with.
    unsafe fn value_in(object: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
        // SAFETY: a living object; items are only read, and their list owns them until it changes.
        unsafe {
            let first = if ffi::PyTuple_CheckExact(object) != 0 && ffi::PyTuple_GET_SIZE(object) > 0 {
                ffi::PyTuple_GET_ITEM(object, 0)
            } else if ffi::PyList_CheckExact(object) != 0 && ffi::PyList_GET_SIZE(object) > 0 {
                ffi::PyList_GET_ITEM(object, 0)
            } else {
                object
            };
            is_value(first).then_some(first)
        }
    }

    /// Runs `f` while no other thread uses the graphs of the first two Values among the objects, or where there is none at the
    /// current graph.
    ///
    /// # Safety
    /// `objects` are living ones, or one that is being deallocated.
    pub unsafe fn locked<R>(objects: &[*mut ffi::PyObject], f: impl FnOnce() -> R) -> R {
        // SAFETY: by the contract of this function.
        unsafe {
            let mut values = objects.iter().filter_map(|&object| value_in(object));
            let Some(first) = values.next() else {
                return locked_graph(crate::graph::current(Python::assume_attached()), f);
            };
            let second = values.next().unwrap_or(first);
            let mut f = Some(f);
            loop {
                let (a, b) = (graph_of(first), graph_of(second));
                if a.0.is_null() || b.0.is_null() {
                    return (f.take().unwrap_unchecked())();
                }
                let done = section(a.0, b.0, || {
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

    /// Runs `f`, which gives a Value another graph.
    ///
    /// # Safety
    /// A living Value, or one whose deallocation waits for its graph.
    pub unsafe fn locked_value<R>(value: *mut ffi::PyObject, f: impl FnOnce() -> R) -> R {
        // SAFETY: by the contract of this function.
        unsafe { section(value, value, f) }
    }
}

use held::locked;
pub use held::locked_value;
