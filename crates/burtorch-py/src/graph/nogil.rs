//! Long work on a graph without the GIL.
//!
//! Promises: while the work runs, the graph is busy: every other use of it is a `BusyError`. Handles may still be
//! dropped, because the graph has been taken out of the cell with their lists. It is put back even on a panic.
#![allow(unsafe_code)]

use burtorch_core::Graph;
use pyo3::prelude::*;

use super::{PyGraph, wants_no_grad};
use crate::convert::errors::IntoPython;
use crate::convert::signals::asked;
use crate::graph::cell::AnyGraph;
use crate::graph::critical_section::locked_self;
use crate::params::PyParameters;

/// From this many scalars on, work releases the GIL: some tens of microseconds, against less than one for releasing it.
pub const LONG: usize = 1 << 14;

/// Runs `work`, without the GIL if it is on many scalars.
pub fn unlocked<T: Send>(py: Python<'_>, n_scalars: usize, work: impl FnOnce() -> T + Send) -> T {
    if n_scalars < LONG { work() } else { crate::convert::threads::detached(py, work) }
}

/// As `unlocked`, for work that checks whether to end early; if it does, its nodes are removed.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    n_scalars: usize,
    work: impl FnOnce() -> burtorch_core::Result<T> + Send,
) -> burtorch_core::Result<T> {
    if n_scalars < LONG { work() } else { crate::convert::threads::detached(py, || asked(work)) }
}

/// A graph taken out of its cell, and put back when this is dropped.
struct Taken<'a> {
    /// References into its cell exist only for moments under the GIL.
    of: &'a PyGraph,
    graph: AnyGraph,
    no_grad_before: bool,
    /// Whether a function is being traced on the graph, which then continues.
    is_traced: bool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.graph.set_no_grad(self.no_grad_before);
        let (of, is_traced) = (self.of, self.is_traced);
        locked_self(of, || {
            // SAFETY: this is only dropped with the GIL held.
            let cell = unsafe { &mut *of.cell.get() };
            std::mem::swap(&mut cell.graph, &mut self.graph);
            cell.is_away = false;
            // A branch may have been left in the meantime.
            let is_frozen = cell.is_frozen();
            cell.set_busy(is_traced || is_frozen);
            if let Some(trace) = cell.trace.as_mut().filter(|_| is_traced) {
                trace.is_active = true;
            }
        });
    }
}

impl PyGraph {
    /// Runs `work` on the graph. If it is long, it may check whether to end early, with the graph out of reach of
    /// signal handlers.
    pub fn at_length<T>(
        &self,
        py: Python<'_>,
        is_long: impl FnOnce(usize) -> bool,
        work: impl FnOnce(&mut AnyGraph) -> burtorch_core::Result<T>,
    ) -> PyResult<T> {
        // The refusals of a short call apply to a long one too.
        let n = self.with(py, |cell| Ok(cell.graph.len()))?;
        if !is_long(n) {
            // A file error of the core becomes a Python object, for its attributes, after the reference into the graph has ended.
            return self.with(py, |cell| Ok(work(&mut cell.graph)))?.or_raise(py);
        }
        self.released(py, |graph, _| asked(|| work(graph)).or_raise(py))
    }

    /// Runs `work`, which may release the GIL, on the graph and the parameters that its nodes read.
    pub fn released<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut AnyGraph, &[Py<PyParameters>]) -> PyResult<T>,
    ) -> PyResult<T> {
        let (mut taken, parameters) = locked_self(self, || {
            // SAFETY: under the GIL; the reference ends with this block, before the GIL is released.
            let cell = unsafe { &mut *self.cell.get() };
            let is_traced = cell.is_busy() && cell.is_traced();
            if cell.is_busy() && !is_traced {
                return Err(cell.refusal(py));
            }
            if is_traced && wants_no_grad() {
                return Err(crate::convert::refusals::no_grad_refused());
            }
            if let Some(trace) = cell.trace.as_mut() {
                trace.is_active = false;
            }
            let parameters: Vec<_> = cell.parameters.iter().map(|p| p.clone_ref(py)).collect();
            cell.set_busy(true);
            cell.is_away = true;
            // The placeholder is never read.
            let graph = std::mem::replace(&mut cell.graph, AnyGraph::F64(Graph::new()));
            Ok((Taken { of: self, graph, no_grad_before: false, is_traced }, parameters))
        })?;
        let off = !taken.graph.records_gradients();
        taken.no_grad_before = taken.graph.set_no_grad(off || wants_no_grad());
        work(&mut taken.graph, &parameters)
    }
}
