//! A lock for each graph on interpreters without a GIL: free-threaded CPython.
//!
//! Promises: uses of one graph by several threads run one after another; on other interpreters this file only forwards calls. The
//! lock is the object's own (`convert/critical_section`): while it is held, nothing here waits for another lock between the steps
//! of an operation that must not be divided.
#![allow(unsafe_code)]

use pyo3::ffi;

pub use crate::convert::critical_section::section;
use crate::graph::PyGraph;
use crate::graph::cell::Cell;

#[cfg(not(Py_GIL_DISABLED))]
mod held {
    use pyo3::prelude::*;

    use super::{Cell, PyGraph, ffi};

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

    /// The same for the graph of a cell, and another one.
    #[inline(always)]
    pub fn locked_cells<R>(cell: &mut Cell, _other: &Bound<'_, PyGraph>, f: impl FnOnce(&mut Cell) -> R) -> R {
        f(cell)
    }

    /// The lock of a graph until this is dropped: the GIL.
    pub struct Held;

    impl Held {
        /// Does nothing.
        #[inline(always)]
        pub fn of(_graph: &Bound<'_, PyGraph>) -> Self {
            Held
        }
    }
}

#[cfg(Py_GIL_DISABLED)]
mod held {
    use std::ptr;
    use std::sync::OnceLock;

    use pyo3::prelude::*;

    use super::{Cell, PyGraph, ffi, section};
    use crate::convert::critical_section::Section;

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

    /// Finds that offset, before there are threads that would wait for each other here.
    pub fn prepare(py: Python<'_>) {
        object_of(py, ptr::null());
    }

    /// The object with this content.
    fn object_of(py: Python<'_>, graph: *const PyGraph) -> *mut ffi::PyObject {
        let offset = OFFSET.get_or_init(|| {
            let some =
                Bound::new(py, PyGraph::around(crate::graph::cell::AnyGraph::F64(burtorch_core::Graph::new()), false));
            some.map_or(0, |some| ptr::from_ref(some.get()) as usize - some.as_ptr() as usize)
        });
        graph.wrapping_byte_sub(*offset).cast_mut().cast()
    }

    /// Runs `f` while no other thread uses the graph.
    pub fn locked_self<R>(graph: &PyGraph, f: impl FnOnce() -> R) -> R {
        // SAFETY: methods run on attached threads. A `PyGraph` is the content of a living `Graph`, except during creation, when
        // it is not shared.
        unsafe { locked_graph(object_of(Python::assume_attached(), graph), f) }
    }

    /// Runs `f` while no other thread uses the graph of a cell, or another graph.
    pub fn locked_cells<R>(cell: &mut Cell, other: &Bound<'_, PyGraph>, f: impl FnOnce(&mut Cell) -> R) -> R {
        let content = ptr::from_mut(cell).wrapping_byte_sub(std::mem::offset_of!(PyGraph, cell)).cast::<PyGraph>();
        // SAFETY: living graphs; a cell is part of one.
        unsafe { section(object_of(other.py(), content), other.as_ptr(), || f(cell)) }
    }

    /// The lock of a graph until this is dropped. Drop the last one first.
    pub struct Held {
        /// In a box, because it must not move.
        _section: Box<Section>,
    }

    impl Held {
        /// Takes the lock of a graph.
        pub fn of(graph: &Bound<'_, PyGraph>) -> Self {
            let mut section = Box::new(Section::new());
            // SAFETY: a living graph on an attached thread; all who hold one of these drop them in order.
            unsafe { section.begin(graph.as_ptr(), graph.as_ptr()) };
            Held { _section: section }
        }
    }
}

#[cfg(Py_GIL_DISABLED)]
pub use held::prepare;
pub use held::{Held, locked_cells, locked_graph, locked_self};
