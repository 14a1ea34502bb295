//! Sweeps that Python asks for: short ones at once, long ones with questions about Ctrl-C.
//!
//! Promises: an interrupted sweep commits no leaf; while signal handlers run, the graph is busy.

use burtorch_core::{NodeId, Scalar, SweepOptions};
use pyo3::prelude::*;

use crate::cell::{AnyGraph, Cell, with_graph};
use crate::errors::IntoPython;

/// Sweeps over more nodes than this ask now and then whether Ctrl-C was pressed.
const POLLED_ABOVE: u32 = 1 << 16;

/// A sweep that Python asked for.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// Where it starts.
    pub root: NodeId,
    /// The root's adjoint.
    pub seed: f64,
    /// See the core's `SweepOptions`.
    pub skip_zero_adjoints: bool,
}

/// Runs a sweep. Long ones poll for signals.
#[inline]
pub fn sweep(py: Python<'_>, cell: &mut Cell, sweep: Sweep) -> PyResult<()> {
    if cell.parameters.is_empty() && !sweep.skip_zero_adjoints && sweep.root.index() < POLLED_ABOVE {
        return match &mut cell.graph {
            AnyGraph::F64(g) => g.backward_with(sweep.root, sweep.seed, &mut []).or_raise(py),
            AnyGraph::F32(g) => g.backward_with(sweep.root, Scalar::lit(sweep.seed), &mut []).or_raise(py),
            _ => sweep_carefully(py, cell, sweep),
        };
    }
    sweep_carefully(py, cell, sweep)
}

#[inline(never)]
fn sweep_carefully(py: Python<'_>, cell: &mut Cell, sweep: Sweep) -> PyResult<()> {
    let options = SweepOptions { skip_zero_adjoints: sweep.skip_zero_adjoints };
    // Signal handlers are Python code and may touch this graph: while they run it is busy.
    let busy_flag = &mut cell.busy;
    let mut raised = None;
    let mut interrupted = || {
        *busy_flag = true;
        raised = py.check_signals().err();
        *busy_flag = false;
        raised.is_some()
    };
    let parameters = &cell.parameters;
    let swept = with_graph!(&mut cell.graph, g => {
        crate::parameters::with_gradients(py, parameters, |gradients| {
            g.backward_polled(sweep.root, Scalar::lit(sweep.seed), gradients, options, Some(&mut interrupted))
        })
    });
    match (raised, swept?) {
        (Some(error), _) => Err(error),
        (None, result) => result.or_raise(py),
    }
}
