//! Passes over samples by calls of a callable, for as many at a time as a graph has lanes.
//!
//! Promises: signals and stops are checked between calls; the first group overwrites the gradients, the others add. A callable that
//! uses a Tensor with several axes elementwise runs sample by sample, on graphs that have Arrays. Does not know programs.

use std::ops;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use burtorch_core::array::{Dims, Type};
use burtorch_core::erased::{AnyNumber, AnyNumbersMut, GradientTarget, Room, ScalarType, Seed};
use burtorch_core::sync::Stop;
use burtorch_core::{DType, Error, Lanes, SweepOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::callable::{CallableEngine, Pass, Side};
use super::parts::{largest_of, take_whole};
use crate::array::array::PyArray;
use crate::convert::buffer::{CallerMemory, type_name};
use crate::convert::entry::check_signals;
use crate::convert::errors::{IntoPython, instead, is_final};
use crate::convert::refusals::met_axes;
use crate::convert::stop::stopped;
use crate::graph::cell::AnyGraph;
use crate::graph::parameters::with_gradients_of;
use crate::graph::{PyGraph, enter, leave};
use crate::node::of_graph::node_of;
use crate::params::zeros;

impl CallableEngine {
    /// The losses of samples in so many lanes, and what the pass asks for.
    pub(super) fn groups(
        &mut self,
        py: Python<'_>,
        batch: (&Side, &Side),
        samples: ops::Range<usize>,
        mut lanes: Lanes,
        pass: &mut Pass<'_>,
    ) -> PyResult<Vec<f64>> {
        let mut losses = Vec::with_capacity(samples.len());
        while losses.len() < samples.len() {
            check_signals(py)?;
            if Stop::ends_work() {
                return Err(stopped(py));
            }
            let first = samples.start + losses.len();
            let left = samples.end - first;
            let (width, _) = match self.params.get().dtype_of() {
                DType::Float32 => lanes.next::<f32>(left, false),
                // Python graphs have at most 8 lanes of float64.
                _ if lanes == Lanes::Auto => lanes.next::<f64>(left.min(8), false),
                _ => lanes.next::<f64>(left, false),
            };
            met_axes();
            let done = self.group(py, batch, (first, left.min(width)), width, pass, &mut losses);
            match met_axes() && width > 1 {
                false => done?,
                true if lanes == Lanes::Auto && !done.as_ref().is_err_and(|error| is_final(py, error)) => {
                    // From the first sample on, on graphs with Arrays, in this and later calls.
                    lanes = Lanes::Of(1);
                    self.lanes = lanes;
                    losses.clear();
                }
                true => {
                    let error = PyTypeError::new_err(
                        "elementwise operations of a Tensor with several axes give Arrays, which have no lanes; leave lanes= out",
                    );
                    return Err(match done {
                        Err(other) => instead(py, other, error),
                        Ok(()) => error,
                    });
                }
            }
        }
        Ok(losses)
    }

    /// The losses of `n` samples from `first` on, in `lanes` lanes.
    fn group(
        &mut self,
        py: Python<'_>,
        (x, y): (&Side, &Side),
        (first, n): (usize, usize),
        lanes: usize,
        pass: &mut Pass<'_>,
        losses: &mut Vec<f64>,
    ) -> PyResult<()> {
        let graph = self.graph(py, lanes)?;
        graph.get().with(py, |cell| {
            cell.graph.clear().or_raise(py)?;
            cell.after_rewind();
            Ok(())
        })?;
        enter(&graph)?;
        let call = || {
            let x = x.group(&graph, first, n, lanes)?;
            if y.is_absent {
                return self.call.bind(py).call1((x,));
            }
            self.call.bind(py).call1((x, y.group(&graph, first, n, lanes)?))
        };
        let called = catch_unwind(AssertUnwindSafe(call));
        leave(&graph)?;
        let called = called.unwrap_or_else(|panic| resume_unwind(panic))?;
        if let Ok(array) = called.cast::<PyArray>()
            && array.get().type_of() == Type::float(Dims::SCALAR)
        {
            losses.push(called.call_method0("item")?.extract()?);
            return self.gradient_of_array(py, &called, losses.len() == 1, pass);
        }
        let found = type_name(&called);
        if found != "Value" {
            let message = format!("the loss of one sample must be one number that depends on it, found {found}");
            return Err(PyTypeError::new_err(message));
        }
        let loss = node_of(py, &graph, &called)?;
        let is_first = losses.is_empty();
        graph.get().with(py, |cell| {
            let parameters = &cell.parameters;
            let graph = &mut cell.graph;
            match graph.number(loss, false).or_raise(py)? {
                AnyNumber::Lanes(lanes) => losses.extend_from_slice(&lanes[..n]),
                _ => losses.push(graph.float(loss).or_raise(py)?),
            }
            let (adjoint, out) = match pass {
                Pass::Losses => return Ok(()),
                Pass::Gradient(adjoint, out) => (adjoint, out),
                Pass::Largest(largest) => {
                    let taken = with_gradients_of(py, parameters, &self.params, |all, place| {
                        largest_of(&mut **graph, loss, (all, place), largest)
                    });
                    return taken?.or_raise(py);
                }
            };
            let seed = Seed { adjoint: *adjoint, lanes: Some(n) };
            let single = graph.scalar_type().elem == DType::Float32;
            let memory = out.as_mut().map(|out| match single {
                true => AnyNumbersMut::F32(out.slice_mut()),
                false => AnyNumbersMut::F64(out.slice_mut()),
            });
            let options = SweepOptions::default();
            // The first group overwrites the gradients, the others add.
            with_gradients_of(py, parameters, &self.params, |all, place| {
                let target = match (is_first, memory) {
                    (true, memory) => GradientTarget::Overwritten(place, memory),
                    (false, Some(memory)) => GradientTarget::AddedIn(place, memory),
                    (false, None) => GradientTarget::Added,
                };
                graph.sweep(loss, seed, all, target, options, None)
            })?
            .or_raise(py)
        })
    }

    /// Adds the gradient of a loss that is an Array. Its backward pass adds to the gradients of the parameters, which are put back if
    /// the pass writes elsewhere.
    fn gradient_of_array(
        &self,
        py: Python<'_>,
        loss: &Bound<'_, PyAny>,
        is_first: bool,
        pass: &mut Pass<'_>,
    ) -> PyResult<()> {
        let backward = |adjoint: f64| loss.call_method1("backward", (adjoint,)).map(drop);
        let dtype = self.params.get().dtype_of();
        let elsewhere = |out: &mut CallerMemory, is_first: bool, adjoint: f64| {
            let before = zeros(py, dtype, self.n_parameters(py)?)?;
            let mut before = self.memory_of_gradient(&before)?;
            self.in_params(py, |params| params.exchange_gradients(&mut before))?;
            let done = backward(adjoint);
            self.in_params(py, |params| {
                params.exchange_gradients(&mut before)?;
                if is_first {
                    params.zero(Some(out))
                }
                params.add(&before, out)
            })?;
            done
        };
        match pass {
            Pass::Losses => Ok(()),
            Pass::Gradient(adjoint, None) => {
                if is_first {
                    self.in_params(py, |params| {
                        params.zero(None);
                        Ok(())
                    })?;
                }
                backward(*adjoint)
            }
            Pass::Gradient(adjoint, Some(out)) => elsewhere(out, is_first, *adjoint),
            Pass::Largest(largest) => {
                let all = zeros(py, dtype, self.n_parameters(py)?)?;
                let mut all = self.memory_of_gradient(&all)?;
                elsewhere(&mut all, true, 1.0)?;
                take_whole(largest, &all).or_raise(py)
            }
        }
    }

    /// The graph with this number of lanes.
    fn graph<'py>(&mut self, py: Python<'py>, lanes: usize) -> PyResult<Bound<'py, PyGraph>> {
        let single = self.params.get().dtype_of() == DType::Float32;
        let place = lanes.ilog2() as usize;
        let slot = self.graphs.get_mut(place).ok_or(Error::MissingParameters).or_raise(py)?;
        if let Some(graph) = slot {
            return Ok(graph.bind(py).clone());
        }
        let elem = if single { DType::Float32 } else { DType::Float64 };
        let new = AnyGraph::make(ScalarType { elem, lanes }, Room::Growing).or_raise(py)?;
        let graph = Bound::new(py, PyGraph::around(new, false))?;
        graph.get().with(py, |cell| {
            cell.holds_samples = true;
            Ok(())
        })?;
        *slot = Some(graph.clone().unbind());
        Ok(graph)
    }
}
