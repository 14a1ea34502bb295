//! Models written in Python: any callable that maps one sample to a loss.
//!
//! A callable that can be traced with Arrays becomes a program, which runs in blocks of samples (`traced`). Any other is called
//! once for each group of samples, on a graph whose nodes hold one sample per lane: it computes with lane Values and
//! Vectors, so the same code serves one sample and sixteen. Promises the memory of one group or block, whatever the batch; if the
//! callable fails, the gradient is 0 and its exception is raised.

use std::ops;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use burtorch_core::oracle::{OracleMemory, Until};
use burtorch_core::{DType, Error, Lanes, Total};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::engine::{Engine, Want, WantSample, WantUntil};
use super::kernel_parameters::{KernelParameters, in_params};
use super::samples::between_samples;
use super::traced::{Traced, with_signs};
use crate::compress::AnyLargest;
use crate::convert::buffer::{CallerMemory, read_either};
use crate::convert::errors::IntoPython;
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::graph::PyGraph;
use crate::node::token_ids::PyTokenIds;
use crate::node::vector::{PyVector, wrap};
use crate::params::{PyParameters, with_params, zeros};
use crate::trace::batches::Of;

/// A callable and the graphs it builds on, one for each number of lanes that was needed.
pub struct CallableEngine {
    pub(super) call: Py<PyAny>,
    pub(super) params: Py<PyParameters>,
    pub(super) lanes: Lanes,
    total: Total,
    /// Indexed by the logarithm of their lanes.
    pub(super) graphs: [Option<Py<PyGraph>>; 7],
    /// The last batch, unless `given` has not been read yet.
    batch: Option<(Side, Side)>,
    /// The callable as a program.
    pub(super) traced: Traced,
}

impl HoldsObjects for CallableEngine {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.call.visit(visit);
        self.params.visit(visit);
        self.graphs.visit(visit);
        self.traced.visit(visit);
    }
}

/// The data of a batch: integers or real numbers, equally many for each sample.
#[derive(Default)]
pub struct Side {
    pub(super) symbols: Vec<u32>,
    pub(super) numbers: Vec<f64>,
    pub(super) whole: bool,
    pub(super) n: usize,
    /// Whether it is empty: a batch without targets.
    pub(super) is_absent: bool,
    /// Numbers of a sample; `None` if samples are single numbers.
    pub(super) width: Option<usize>,
}

impl Side {
    fn bytes(&self) -> usize {
        4 * self.symbols.capacity() + 8 * self.numbers.capacity()
    }

    /// Reads a batch into the memory of the previous one.
    fn read(mut self, object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        let dims;
        (self.whole, dims) = read_either(object, &mut self.symbols, &mut self.numbers, what)?;
        (self.n, self.width) = match (dims.row(), dims.matrix()) {
            (Some(n), _) => (n, None),
            (_, Some((n, width))) => (n, Some(width)),
            _ => (0, None),
        };
        if self.n == 0 || self.width == Some(0) {
            return Err(PyValueError::new_err(format!("{what} are empty; give at least one sample")));
        }
        Ok(self)
    }

    /// Samples `first..first + n` in `lanes` lanes, the last one repeated if there are fewer, in the form for the model.
    pub(super) fn group<'py>(
        &self,
        graph: &Bound<'py, PyGraph>,
        first: usize,
        n: usize,
        lanes: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = graph.py();
        let width = self.width.unwrap_or(1);
        let at = |lane: usize| (first + lane.min(n - 1)) * width..(first + lane.min(n - 1) + 1) * width;
        if self.whole {
            let mut numbers = Vec::with_capacity(lanes * width);
            (0..lanes).for_each(|lane| numbers.extend_from_slice(&self.symbols[at(lane)]));
            return Ok(Bound::new(py, PyTokenIds::new(numbers, lanes, self.width.is_some()))?.into_any());
        }
        let range = graph.get().with(py, |cell| {
            let numbers: Vec<f64> = (0..lanes).flat_map(|lane| &self.numbers[at(lane)]).copied().collect();
            cell.graph.constants_of_lanes(&numbers).or_raise(py)
        })?;
        match self.width {
            None => wrap(graph, range.first()),
            Some(_) => Ok(PyVector::of_runs(graph, &[range])?.into_bound(py).into_any()),
        }
    }
}

/// The task of a pass over samples besides computing the losses.
pub(super) enum Pass<'a> {
    /// Nothing.
    Losses,
    /// Overwrite the gradients, or this memory, with those of a multiple of the sum of the losses.
    Gradient(f64, Option<CallerMemory>),
    /// Take the largest numbers of the gradient of the only sample.
    Largest(&'a mut AnyLargest),
}

impl CallableEngine {
    /// A callable over these parameters; refuses lanes that their dtype does not support.
    pub fn new(call: &Bound<'_, PyAny>, params: Py<PyParameters>, lanes: Lanes, total: Total) -> PyResult<Self> {
        let py = call.py();
        match params.get().dtype_of() {
            DType::Float32 => lanes.check::<f32>().or_raise(py)?,
            DType::Float64 => lanes.check::<f64>().or_raise(py)?,
            _ => return Err(PyTypeError::new_err("oracles compute in float32 and float64")),
        }
        let graphs = [const { None }; 7];
        // An explicit number of lanes is used.
        let traced = if lanes == Lanes::Auto { Traced::new(call, total)? } else { Traced::default() };
        Ok(CallableEngine { call: call.clone().unbind(), params, lanes, total, graphs, batch: None, traced })
    }

    pub(super) fn in_params<R>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut dyn KernelParameters) -> burtorch_core::Result<R>,
    ) -> PyResult<R> {
        in_params(&self.params, py, f)
    }

    /// Computes at a point, if one is given, and restores the values.
    pub(super) fn at_point<T>(
        &mut self,
        py: Python<'_>,
        at: Option<CallerMemory>,
        compute: impl FnOnce(&mut Self) -> PyResult<T>,
    ) -> PyResult<T> {
        let before = at.map(|point| self.in_params(py, |params| params.exchange(&point))).transpose()?;
        let done = catch_unwind(AssertUnwindSafe(|| compute(self)));
        if let Some(before) = before {
            self.in_params(py, |params| {
                params.put_back(&before);
                Ok(())
            })?;
        }
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn reduce(&self, losses: &[f64]) -> f64 {
        let sum: f64 = losses.iter().sum();
        if self.total == Total::Mean { sum / losses.len() as f64 } else { sum }
    }

    /// The loss of each of `samples`, and their gradient on request; if that fails the gradient is 0.
    fn pass(
        &mut self,
        py: Python<'_>,
        samples: ops::Range<usize>,
        lanes: Lanes,
        mut pass: Pass<'_>,
    ) -> PyResult<Vec<f64>> {
        self.read_given(py)?;
        let Some((x, y)) = self.batch.take() else {
            return Err(Error::EmptyReduction { op: "the loss" }).or_raise(py);
        };
        let done = self.groups(py, (&x, &y), samples, lanes, &mut pass);
        self.batch = Some((x, y));
        if done.is_err() {
            self.zero(py, &mut pass)?;
        }
        done
    }

    /// The loss of the batch, and its gradient, by a program or in lanes.
    pub(super) fn gradient(&mut self, py: Python<'_>, mut out: Option<CallerMemory>) -> PyResult<f64> {
        match self.traced_gradient(py, out.as_mut()) {
            Ok(Some(loss)) => return Ok(loss),
            Ok(None) => {}
            Err(error) => {
                self.zero(py, &mut Pass::Gradient(1.0, out))?;
                return Err(error);
            }
        }
        self.read_given(py)?;
        let n = self.n_samples();
        let seed = if self.total == Total::Mean { 1.0 / n as f64 } else { 1.0 };
        let losses = self.pass(py, 0..n, self.lanes, Pass::Gradient(seed, out))?;
        Ok(self.reduce(&losses))
    }

    /// The loss of sample `k`, computed without a trace.
    fn alone(&mut self, py: Python<'_>, k: usize, pass: Pass<'_>) -> PyResult<f64> {
        self.read_given(py)?;
        let losses = self.pass(py, k..k + 1, Lanes::Of(1), pass)?;
        Ok(self.reduce(&losses))
    }

    fn n_samples(&self) -> usize {
        self.batch.as_ref().map_or(0, |(x, _)| x.n)
    }

    /// Reads the given batch, if it has not been read yet.
    fn read_given(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some([x, y]) = self.traced.unread() else { return Ok(()) };
        if let Some(failed) = self.traced.failed_alone(py, &x) {
            return Err(failed);
        }
        self.read(x.bind(py), y.bind(py)).map(drop)
    }

    fn read(&mut self, contexts: &Bound<'_, PyAny>, targets: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (x, y) = self.batch.take().unwrap_or_default();
        let x = x.read(contexts, "contexts")?;
        let y = match targets.is_none() {
            true => Side { is_absent: true, n: x.n, ..Side::default() },
            false => Side { is_absent: false, ..y.read(targets, "targets")? },
        };
        if x.n != y.n {
            return Err(PyValueError::new_err(format!("{} contexts but {} targets", x.n, y.n)));
        }
        let n = x.n;
        self.batch = Some((x, y));
        Ok(n)
    }

    fn computed(&mut self, py: Python<'_>, want: Want<'_>) -> PyResult<f64> {
        match want {
            Want::Loss => {
                if let Some(losses) = self.traced_losses(py, Of::Total)? {
                    return Ok(losses[0]);
                }
                self.read_given(py)?;
                let losses = self.pass(py, 0..self.n_samples(), self.lanes, Pass::Losses)?;
                Ok(self.reduce(&losses))
            }
            Want::Losses(losses) => {
                if let Some(found) = self.traced_losses(py, Of::Each)? {
                    *losses = found;
                    return Ok(0.0);
                }
                self.read_given(py)?;
                *losses = self.pass(py, 0..self.n_samples(), self.lanes, Pass::Losses)?;
                Ok(0.0)
            }
            Want::Some(wanted, mut out, at, skips) => {
                let n = self.in_params(py, |params| params.check_some(wanted, at.as_ref(), &out))?;
                let dtype = self.params.get().dtype_of();
                let all = zeros(py, dtype, n)?;
                let memory = || CallerMemory::of(&all, dtype, "the gradient");
                let loss = self.computed(py, Want::Gradient(at, Some(memory()?), skips))?;
                let all = memory()?;
                self.in_params(py, |params| params.take_some(wanted, &all, &mut out))?;
                Ok(loss)
            }
            Want::Stream(want) => self.streamed(py, want),
            Want::Largest(at, largest) => self.largest(py, at, largest),
            Want::Gradient(at, out, _) => {
                self.in_params(py, |params| params.check(at.as_ref(), out.as_ref()))?;
                self.at_point(py, at, |engine| engine.gradient(py, out))
            }
            Want::Step(lr, stop) => {
                if !(lr.is_finite() && lr >= 0.0) {
                    let (expected, found) = ("finite and at least 0".into(), lr.to_string());
                    return Err(Error::BadArgument { what: "the learning rate", expected, found }).or_raise(py);
                }
                let loss = match stop {
                    None => self.gradient(py, None)?,
                    Some((stop, has_stopped)) => {
                        let (until, mut n) = (Until { stop, keeps: false, probability: None, leaves: true }, None);
                        let loss = self.until(py, WantUntil { wanted: None, at: None, out: None, until, n: &mut n })?;
                        *has_stopped = n.is_none();
                        if *has_stopped {
                            return Ok(loss);
                        }
                        loss
                    }
                };
                self.in_params(py, |params| params.descend(lr))?;
                Ok(loss)
            }
            Want::Until(want) => self.until(py, want),
            Want::Cost(..) => Err(PyValueError::new_err(
                "cost is for the models of burtorch.nn; for a callable the whole gradient is computed",
            )),
            Want::Random(_) => Err(PyValueError::new_err(
                "random_backward is for the models of burtorch.nn, whose dense layers an oracle knows",
            )),
            Want::Norms(norms) => {
                for k in 0..self.traced.n_given(py).unwrap_or_else(|| self.n_samples()) {
                    between_samples(py)?;
                    self.sample(py, k, WantSample::Row(None))?;
                    norms.push(self.in_params(py, |params| params.grad_norm())?);
                }
                Ok(0.0)
            }
        }
    }

    /// The whole gradient, or 0 if it ends early: no part of a callable's batch is kept then.
    fn until(&mut self, py: Python<'_>, want: WantUntil<'_>) -> PyResult<f64> {
        let WantUntil { wanted, at, mut out, until, n } = want;
        if until.probability.is_some() {
            return Err(PyValueError::new_err(
                "reweight is for the models of burtorch.nn: the samples of a callable's batch finish all or none",
            ));
        }
        self.in_params(py, |params| match (wanted, &out) {
            (Some(wanted), Some(out)) => params.check_some(wanted, at.as_ref(), out).map(drop),
            _ => params.check(at.as_ref(), out.as_ref()),
        })?;
        let dtype = self.params.get().dtype_of();
        let d = self.params.get().with(py, |params| with_params!(params, p => p.len()))?;
        let all = zeros(py, dtype, d)?;
        let memory = || CallerMemory::of(&all, dtype, "the gradient");
        let n_all = self.traced.n_given(py).unwrap_or_else(|| self.n_samples());
        let gradient = Want::Gradient(at, Some(memory()?), false);
        let done = match until.stop.is_set() {
            true => Err(Error::Interrupted),
            false => until.stop.watched(|| self.computed(py, gradient)),
        };
        let Ok(done) = done else {
            if !until.leaves {
                self.zero(py, &mut Pass::Gradient(1.0, out))?;
            }
            // It ended early but did not fail: the callable stays a program.
            self.traced.end(false);
            *n = until.keeps.then_some(0);
            return Ok(if self.total == Total::Mean { f64::NAN } else { 0.0 });
        };
        let (loss, all) = (done?, memory()?);
        self.in_params(py, |params| match (wanted, &mut out) {
            (Some(wanted), Some(out)) => params.take_some(wanted, &all, out),
            (_, out) => params.take(&all, out.as_mut()),
        })?;
        *n = Some(n_all);
        Ok(loss)
    }

    /// Sets the gradient that the pass would have overwritten to 0.
    pub(super) fn zero(&self, py: Python<'_>, pass: &mut Pass<'_>) -> PyResult<()> {
        let Pass::Gradient(_, out) = pass else {
            return Ok(());
        };
        self.in_params(py, |params| {
            params.zero(out.as_mut());
            Ok(())
        })
    }
}

impl Engine for CallableEngine {
    fn begin(&mut self, contexts: &Bound<'_, PyAny>, targets: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (contexts, targets) = (with_signs(contexts)?, with_signs(targets)?);
        if let Some(n) = self.traced.take_arrays(&contexts, &targets)? {
            return Ok(n);
        }
        let n = self.read(&contexts, &targets)?;
        if let Some((x, y)) = &self.batch {
            self.traced.take_sides(contexts.py(), [x, y])?;
        }
        Ok(n)
    }

    fn run(&mut self, py: Python<'_>, want: Want<'_>) -> PyResult<f64> {
        let done = self.computed(py, want).map_err(|error| self.traced.clearer(py, error));
        self.traced.end(done.is_ok());
        done
    }

    fn sample(&mut self, py: Python<'_>, k: usize, want: WantSample<'_>) -> PyResult<f64> {
        let mut pass = match want {
            WantSample::Largest(largest) => match self.largest_of_row(py, k, largest)? {
                Some(loss) => return Ok(loss),
                None => Pass::Largest(largest),
            },
            WantSample::Gradient(out) => Pass::Gradient(1.0, out),
            WantSample::Row(mut out) => match self.row(py, k, out.as_mut())? {
                Some(loss) => return Ok(loss),
                None => Pass::Gradient(1.0, out),
            },
        };
        if let Some(loss) = self.traced_sample(py, k, &mut pass)? {
            return Ok(loss);
        }
        let done = self.alone(py, k, pass).map_err(|error| self.traced.clearer(py, error));
        self.traced.end(done.is_ok());
        done
    }

    fn memory(&self) -> OracleMemory {
        let of = |graph: &Py<PyGraph>| {
            Python::attach(|py| graph.get().with(py, |cell| Ok(cell.graph.oracle_memory())).unwrap_or_default())
        };
        let mut memory = self.graphs.iter().flatten().map(of).fold(OracleMemory::default(), |sum, one| sum + one);
        memory.activations += self.traced.bytes();
        if let Some((x, y)) = &self.batch {
            memory.samples += x.bytes() + y.bytes();
        }
        memory
    }
}
