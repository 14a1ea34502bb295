//! A lock for each graph on interpreters without a GIL: free-threaded CPython.
//!
//! Promises: plain operators of several threads on one graph run one after another; on other interpreters this file only
//! forwards calls. The lock is the object's own (a critical section of CPython), which is released while its thread waits for
//! another one, so there is no deadlock, and other code may run in between as under the GIL.
#![allow(unsafe_code)]

use pyo3::ffi;

use crate::graph::PyGraph;

#[cfg(not(Py_GIL_DISABLED))]
mod held {
    use super::{PyGraph, ffi};

    /// Runs `f`; the GIL is held.
    ///
    /// # Safety
    /// None here; elsewhere `graph` is a living object, or null.
    #[inline(always)]
    pub unsafe fn locked_graph<R>(_graph: *mut ffi::PyObject, f: impl FnOnce() -> R) -> R {
        f()
    }

    /// The same for a graph whose object is unknown to the caller.
    #[inline(always)]
    pub fn locked_self<R>(_graph: &PyGraph, f: impl FnOnce() -> R) -> R {
        f()
    }
}

#[cfg(Py_GIL_DISABLED)]
mod held {
    use std::ptr;
    use std::sync::OnceLock;

    use pyo3::prelude::*;

    use super::{PyGraph, ffi};

    /// A critical section of one object, or of two.
    struct Section(ffi::PyCriticalSection2);

    impl Drop for Section {
        fn drop(&mut self) {
            // SAFETY: begun at this address, by this thread; sections end in the reverse order, because they are on the stack.
            unsafe { ffi::PyCriticalSection2_End(&raw mut self.0) }
        }
    }

    /// # Safety
    /// Living objects, or one that is being deallocated; the thread is attached to the interpreter.
    pub unsafe fn section<R>(a: *mut ffi::PyObject, b: *mut ffi::PyObject, f: impl FnOnce() -> R) -> R {
        debug_assert!(!a.is_null() && !b.is_null());
        // SAFETY: a zeroed section is one that has not begun.
        let mut section = Section(unsafe { std::mem::zeroed() });
        // SAFETY: it does not move until it ends; two equal objects are locked once.
        unsafe { ffi::PyCriticalSection2_Begin(&raw mut section.0, a, b) };
        f()
    }

    /// Runs `f` while no other thread uses the graph.
    ///
    /// # Safety
    /// A living `Graph`, or null.
    pub unsafe fn locked_graph<R>(graph: *mut ffi::PyObject, f: impl FnOnce() -> R) -> R {
        if graph.is_null() {
            return f();
        }
        // SAFETY: by the contract of this function.
        unsafe { section(graph, graph, f) }
    }

    /// The offset of the content of a `Graph` in its object.
    static OFFSET: OnceLock<usize> = OnceLock::new();

    /// Runs `f` while no other thread uses the graph.
    pub fn locked_self<R>(graph: &PyGraph, f: impl FnOnce() -> R) -> R {
        // SAFETY: methods run on attached threads.
        let py = unsafe { Python::assume_attached() };
        let offset = OFFSET.get_or_init(|| {
            let some =
                Bound::new(py, PyGraph::around(crate::graph::cell::AnyGraph::F64(burtorch_core::Graph::new()), false));
            some.map_or(0, |some| ptr::from_ref(some.get()) as usize - some.as_ptr() as usize)
        });
        // SAFETY: a `PyGraph` is the content of a living `Graph`, except during creation, when it is not shared.
        unsafe { locked_graph(ptr::from_ref(graph).byte_sub(*offset).cast_mut().cast(), f) }
    }
}

#[cfg(Py_GIL_DISABLED)]
pub use held::section;
pub use held::{locked_graph, locked_self};
