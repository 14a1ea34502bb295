//! Backward passes from Python: short ones directly, long ones without the GIL and with checks for Ctrl-C.
//!
//! Promises: an interrupted pass commits no leaf; during a long one the graph is busy.
#![allow(unsafe_code)]

use std::any::Any;

use burtorch_core::erased::{GradientTarget, Seed};
use burtorch_core::sync::Stop;
use burtorch_core::{Float, NodeId, Parameters, RowMath, SweepOptions};
use pyo3::prelude::*;

use super::{LONG, PyGraph, unlocked};
use crate::convert::entry::attached;
use crate::convert::errors::IntoPython;
use crate::convert::signals::Poll;
use crate::convert::stop::until;
use crate::graph::cell::AnyGraph;
use crate::graph::critical_section::locked_self;
use crate::graph::parameters::{parameters_read, with_gradients, with_gradients_of};
use crate::params::{AnyParameters, PyParameters, PySubset, with_params};

/// A backward pass requested by Python.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// The root.
    pub root: NodeId,
    /// The root's adjoint.
    pub seed: f64,
    /// See the core's `SweepOptions`.
    pub skip_zero_adjoints: bool,
}

impl PyGraph {
    /// Runs a backward pass. Long ones check for signals.
    #[inline]
    pub fn sweep(&self, py: Python<'_>, sweep: Sweep) -> PyResult<()> {
        locked_self(self, || self.sweep_locked(py, sweep))
    }

    #[inline(always)]
    fn sweep_locked(&self, py: Python<'_>, sweep: Sweep) -> PyResult<()> {
        // SAFETY: under the GIL; a backward pass runs no Python code, and the reference ends before a long one.
        let cell = unsafe { &mut *self.cell.get() };
        if cell.is_busy() {
            return Err(cell.refusal(py));
        }
        if cell.branching.is_some() {
            cell.not_in_a_branch(py, "backward()")?;
        }
        let is_plain = cell.parameters.is_empty() && !sweep.skip_zero_adjoints;
        if is_plain && ((sweep.root.index() as usize) < LONG || is_short(&cell.graph, sweep.root)) {
            return match &mut cell.graph {
                AnyGraph::F64(g) => g.backward_with(sweep.root, sweep.seed, &mut []).or_raise(py),
                AnyGraph::F32(g) => g.backward_with(sweep.root, RowMath::lit(sweep.seed), &mut []).or_raise(py),
                _ => attached(|py| self.sweep_carefully(py, sweep)),
            };
        }
        attached(|py| self.sweep_carefully(py, sweep))
    }

    #[inline(never)]
    fn sweep_carefully(&self, py: Python<'_>, sweep: Sweep) -> PyResult<()> {
        let options = SweepOptions { skip_zero_adjoints: sweep.skip_zero_adjoints, skip_leaves: false };
        let mut poll = Poll::new();
        let swept = self.released(py, |graph, parameters| {
            with_gradients(py, parameters, |all| {
                let mut interrupted = || poll.stop();
                let seed = Seed { adjoint: sweep.seed, lanes: None };
                unlocked(py, sweep.root.index() as usize, || {
                    graph.sweep(sweep.root, seed, all, GradientTarget::Added, options, Some(&mut interrupted))
                })
            })
        })?;
        match poll.raised() {
            Some(error) => Err(error),
            None => swept.or_raise(py),
        }
    }
}

impl PyGraph {
    /// The Parameters that nodes read.
    pub fn read_parameters<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyParameters>>> {
        let read = self.with(py, |cell| parameters_read(py, cell))?;
        Ok(read.into_iter().map(|params| params.into_bound(py)).collect())
    }

    /// Runs the pass until a token is set; gradients are then unchanged.
    pub fn sweep_until(&self, py: Python<'_>, stop: Stop, sweep: Sweep, subset: Option<&PySubset>) -> PyResult<()> {
        let mut read = self.with(py, |cell| {
            if cell.branching.is_some() {
                cell.not_in_a_branch(py, "backward()")?;
            }
            Ok(cell.parameters.iter().map(|p| p.clone_ref(py)).collect::<Vec<_>>())
        })?;
        if let Some(subset) = subset.filter(|subset| !read.iter().any(|p| p.is(subset.owner()))) {
            read.push(subset.owner().clone_ref(py));
        }
        let before = with_gradients(py, &read, |all| all.iter_mut().map(|any| gradients_of(any)).collect::<Vec<_>>())?;
        // A short pass is not interruptible, because it would leave leaves partly changed.
        let swept = until(py, Some(stop), || match subset {
            Some(subset) => self.sweep_some(py, sweep.root, sweep.seed, subset),
            None => self.sweep_carefully(py, sweep),
        });
        if swept.is_err() {
            with_gradients(py, &read, |all| all.iter_mut().zip(&before).for_each(|(any, b)| put_back(any, &**b)))?;
        }
        swept
    }

    /// Adds to the gradients of a set of parameters only, or to all. Checks for signals.
    pub fn sweep_for(&self, py: Python<'_>, sweep: Sweep, subset: Option<&PySubset>) -> PyResult<()> {
        match subset {
            Some(subset) => self.sweep_some(py, sweep.root, sweep.seed, subset),
            None => self.sweep(py, sweep),
        }
    }

    fn sweep_some(&self, py: Python<'_>, root: NodeId, seed: f64, subset: &PySubset) -> PyResult<()> {
        let options = SweepOptions { skip_leaves: true, ..SweepOptions::default() };
        let mut poll = Poll::new();
        let owner = subset.owner();
        let swept = self.released(py, |graph, parameters| {
            with_gradients_of(py, parameters, owner, |all, place| {
                let mut interrupted = || poll.stop();
                let seed = Seed { adjoint: seed, lanes: None };
                let target = GradientTarget::Some(place, subset.set());
                unlocked(py, root.index() as usize, || {
                    graph.sweep(root, seed, all, target, options, Some(&mut interrupted))
                })
            })
        })?;
        match poll.raised() {
            Some(error) => Err(error),
            None => swept.or_raise(py),
        }
    }
}

/// A copy of the gradients, in their type.
fn gradients_of(any: &mut AnyParameters) -> Box<dyn Any + Send> {
    with_params!(any, p => Box::new(p.grads().to_vec()))
}

/// Restores the copied gradients of these parameters.
fn put_back(any: &mut AnyParameters, before: &(dyn Any + Send)) {
    fn write<E: Float>(params: &mut Parameters<'_, E>, before: &(dyn Any + Send)) {
        if let Some(before) = before.downcast_ref::<Vec<E>>() {
            params.grads_mut().copy_from_slice(before);
        }
    }
    with_params!(any, p => write(p, before));
}

/// Whether a pass over many nodes, most of them leaves, takes no longer than one over [`LONG`] nodes, half of which
/// read the other half.
#[cold]
fn is_short(graph: &AnyGraph, root: NodeId) -> bool {
    let reads = graph.n_computed(root).saturating_mul(root.index() as usize);
    reads < LONG * LONG / 4
}

/// Runs a backward pass on the graph of a Value.
///
/// # Safety
/// `owner` is a living `Graph`; the GIL is held; no reference into its cell is in use.
#[inline(always)]
pub unsafe fn sweep(py: Python<'_>, owner: *mut pyo3::ffi::PyObject, sweep: Sweep) -> PyResult<()> {
    // SAFETY: by the contract of this function.
    let graph = unsafe { pyo3::Borrowed::from_ptr(py, owner).cast_unchecked::<PyGraph>() };
    graph.get().sweep(py, sweep)
}

#[pymethods]
impl PyGraph {
    /// Set the gradients of all nodes to 0.
    fn zero_grad(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cell| {
            cell.graph.zero_grad();
            Ok(())
        })?;
        if let Some(tape) = self.tape(py) {
            tape.zero_grad();
        }
        Ok(())
    }
}
