//! A lock for each graph, where the interpreter has none of its own: free-threaded CPython.
//!
//! Promises: plain operators of several threads on one graph come one after another, whole; on other interpreters this file is
//! nothing but calls. The lock is the object's own (a critical section of CPython), which is released while its thread waits for
//! another one, so there is no deadlock, and runs what the interpreter's lock would run in between.
#![allow(unsafe_code)]

use pyo3::ffi;

use crate::graph::PyGraph;

#[cfg(not(Py_GIL_DISABLED))]
mod held {
    use super::{PyGraph, ffi};

    /// Runs `f`; the interpreter's lock is held.
    ///
    /// # Safety
    /// None here; elsewhere `objects` are living ones, or one that is being deallocated.
    #[inline(always)]
    pub unsafe fn locked<R>(_objects: &[*mut ffi::PyObject], f: impl FnOnce() -> R) -> R {
        f()
    }

    /// Runs `f`; the interpreter's lock is held.
    ///
    /// # Safety
    /// None here; elsewhere `graph` is a living object, or null.
    #[inline(always)]
    pub unsafe fn locked_graph<R>(_graph: *mut ffi::PyObject, f: impl FnOnce() -> R) -> R {
        f()
    }

    /// The same for a graph whose object the caller does not know.
    #[inline(always)]
    pub fn locked_self<R>(_graph: &PyGraph, f: impl FnOnce() -> R) -> R {
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
    use std::ptr;
    use std::sync::OnceLock;

    use pyo3::prelude::*;

    use super::{PyGraph, ffi};
    use crate::node::value::{ValueObject, is_value};

    /// A critical section of one object, or of two.
    struct Section(ffi::PyCriticalSection2);

    impl Drop for Section {
        fn drop(&mut self) {
            // SAFETY: begun where it lies, by this thread; sections end in the reverse order, as they are on the stack.
            unsafe { ffi::PyCriticalSection2_End(&raw mut self.0) }
        }
    }

    /// # Safety
    /// Living objects, or one that is being deallocated; the thread is attached to the interpreter.
    unsafe fn section<R>(a: *mut ffi::PyObject, b: *mut ffi::PyObject, f: impl FnOnce() -> R) -> R {
        debug_assert!(!a.is_null() && !b.is_null());
        // SAFETY: zeros are one that has not begun.
        let mut section = Section(unsafe { std::mem::zeroed() });
        // SAFETY: it stays where it is until it ends; two that are the same are taken once.
        unsafe { ffi::PyCriticalSection2_Begin(&raw mut section.0, a, b) };
        f()
    }

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
        // SAFETY: a living object; items are looked at, and kept by their list as long as nobody changes it.
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

    /// Runs `f` while nobody else is at the graphs of the first two Values among the objects, or where there is none at the
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

    /// Runs `f` while nobody else is at the graph.
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

    /// Where the content of a `Graph` begins in its object.
    static OFFSET: OnceLock<usize> = OnceLock::new();

    /// Runs `f` while nobody else is at the graph.
    pub fn locked_self<R>(graph: &PyGraph, f: impl FnOnce() -> R) -> R {
        // SAFETY: methods run on attached threads.
        let py = unsafe { Python::assume_attached() };
        let offset = OFFSET.get_or_init(|| {
            let some =
                Bound::new(py, PyGraph::around(crate::graph::cell::AnyGraph::F64(burtorch_core::Graph::new()), false));
            some.map_or(0, |some| ptr::from_ref(some.get()) as usize - some.as_ptr() as usize)
        });
        // SAFETY: a `PyGraph` is the content of a living `Graph` but while that is made, when nobody knows it.
        unsafe { locked_graph(ptr::from_ref(graph).byte_sub(*offset).cast_mut().cast(), f) }
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

pub use held::{locked, locked_graph, locked_self, locked_value};
