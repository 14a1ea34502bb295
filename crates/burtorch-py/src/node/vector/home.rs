//! The graph of a Vector: another one once a branch is joined.
//!
//! Promises: without a GIL it may be read at any time, without a lock: the graphs that it had before live as long as the Vector.
#![allow(unsafe_code)]

use pyo3::prelude::*;

use crate::graph::PyGraph;

#[cfg(not(Py_GIL_DISABLED))]
mod held {
    use std::cell::UnsafeCell;

    use super::{Bound, Py, PyGraph, Python};
    use crate::convert::gc::{HoldsObjects, Visitor};

    /// See the module.
    pub struct Home(UnsafeCell<Py<PyGraph>>);

    impl Home {
        /// Nodes of this graph.
        pub fn new(graph: Py<PyGraph>) -> Self {
            Home(UnsafeCell::new(graph))
        }

        /// The graph.
        #[inline(always)]
        pub fn get(&self) -> &Py<PyGraph> {
            // SAFETY: under the GIL; `set` runs while no reference that this returns is held.
            unsafe { &*self.0.get() }
        }

        /// Runs `f` with the graph; the GIL is held.
        #[inline(always)]
        pub fn locked<'py, R>(&self, py: Python<'py>, f: impl FnOnce(&Bound<'py, PyGraph>) -> R) -> R {
            f(self.get().bind(py))
        }

        /// Makes them nodes of another graph.
        pub fn set(&self, graph: Py<PyGraph>) {
            // SAFETY: under the GIL, and no reference to the graph is in use.
            drop(std::mem::replace(unsafe { &mut *self.0.get() }, graph));
        }
    }

    impl HoldsObjects for Home {
        fn visit(&self, visit: &mut Visitor<'_>) {
            self.get().visit(visit);
        }
    }
}

#[cfg(Py_GIL_DISABLED)]
mod held {
    use std::sync::OnceLock;

    use super::{Bound, Py, PyGraph, Python};
    use crate::convert::gc::{HoldsObjects, Visitor};
    use crate::graph::critical_section::locked_graph;

    /// See the module.
    pub struct Home {
        graph: Py<PyGraph>,
        /// After a join.
        next: OnceLock<Box<Home>>,
    }

    impl Home {
        /// Nodes of this graph.
        pub fn new(graph: Py<PyGraph>) -> Self {
            Home { graph, next: OnceLock::new() }
        }

        fn last(&self) -> &Home {
            let mut last = self;
            while let Some(next) = last.next.get() {
                last = next;
            }
            last
        }

        /// The graph.
        pub fn get(&self) -> &Py<PyGraph> {
            &self.last().graph
        }

        /// Runs `f` with the graph, while no other thread uses it.
        pub fn locked<'py, R>(&self, py: Python<'py>, f: impl FnOnce(&Bound<'py, PyGraph>) -> R) -> R {
            let mut f = Some(f);
            loop {
                let home = self.get().bind(py);
                // A join may have given the Vector to another graph meanwhile.
                let run = || if self.get().is(home) { f.take().map(|f| f(home)) } else { None };
                // SAFETY: a living graph.
                if let Some(done) = unsafe { locked_graph(home.as_ptr(), run) } {
                    return done;
                }
            }
        }

        /// Makes them nodes of another graph. One thread does so at a time: that with the lock of the graph.
        pub fn set(&self, graph: Py<PyGraph>) {
            let _ = self.last().next.set(Box::new(Home::new(graph)));
        }
    }

    impl HoldsObjects for Home {
        fn visit(&self, visit: &mut Visitor<'_>) {
            self.graph.visit(visit);
            if let Some(next) = self.next.get() {
                next.visit(visit);
            }
        }
    }
}

pub use held::Home;
