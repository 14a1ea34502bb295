//! A running method, for Python: steps without the GIL, state, and counts.

use std::sync::Arc;

use burtorch_core::opt::{Choices, Cost, Runner};
use burtorch_core::sync::Stop;
use burtorch_core::{Error, interrupt};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::exchange::Exchange;
use super::methods::{Options, made};
use super::problem::PyFiniteSum;
use super::read::{indices, numbers};
use super::rules::prox_of;
use crate::convert::arguments::Count;
use crate::convert::arrays::{Kind, filled, of_integers};
use crate::convert::errors::IntoPython;
use crate::convert::exclusive::Guarded;
use crate::convert::gc::collected;
use crate::convert::numbers::{argument_number, optional_number};
use crate::convert::stop::{PyStop, until, watched};

/// A method and its iterate. `burtorch.opt` has a class for each method, which wraps this one.
#[pyclass(frozen, name = "Runner", module = "burtorch._core")]
pub struct PyRunner {
    problem: Py<PyFiniteSum>,
    exchange: Option<Arc<Exchange>>,
    runner: Guarded<Runner>,
}
collected!(PyRunner: problem, exchange);

/// Oracle calls, bits up, bits down, bytes of messages, exchanges, seconds of a virtual clock.
type Costs = (u64, f64, f64, u64, u64, f64);

/// The exception of the exchange, instead of the error that it caused.
fn or_raised(exchange: Option<&Arc<Exchange>>, error: PyErr) -> PyErr {
    exchange.and_then(|exchange| exchange.raised()).unwrap_or(error)
}

/// The limits of a run.
struct Limits {
    steps: u64,
    calls: u64,
    bits: f64,
    stop: Option<Stop>,
}

/// Takes steps until a limit is reached; sets `done` to their number.
fn run(runner: &mut Runner, gammas: &[f64], limits: &Limits, done: &mut u64) -> burtorch_core::Result<()> {
    let mut last = 0.0;
    let mut next = gammas.iter();
    while *done < limits.steps {
        let cost = runner.cost();
        let is_stopped = limits.stop.as_ref().is_some_and(Stop::is_set);
        if is_stopped || cost.oracle_calls >= limits.calls || cost.bits_up >= limits.bits {
            break;
        }
        if interrupt::is_over() {
            return Err(Error::Interrupted);
        }
        last = next.next().copied().unwrap_or(last);
        runner.step(last, Choices::default())?;
        *done += 1;
    }
    Ok(())
}

impl PyRunner {
    /// Runs work on the runner without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Runner) -> burtorch_core::Result<T> + Send,
    ) -> PyResult<T> {
        let mut runner = self.runner.enter(py)?;
        let runner: &mut Runner = &mut runner;
        let done = self.problem.get().detached(py, || work(runner));
        done.map_err(|error| or_raised(self.exchange.as_ref(), error))
    }
}

#[pymethods]
impl PyRunner {
    #[new]
    #[pyo3(signature = (problem, method, x, *, sampling, prox, seed, threads, **options))]
    #[allow(clippy::too_many_arguments, reason = "one for each keyword of Python")]
    fn new(
        problem: &Bound<'_, PyFiniteSum>,
        method: &str,
        x: &Bound<'_, PyAny>,
        sampling: &Bound<'_, PyTuple>,
        prox: &Bound<'_, PyTuple>,
        seed: Count,
        threads: Count,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (py, of) = (problem.py(), problem.get());
        let (x, prox) = (of.point(x, "x0")?, prox_of(prox)?);
        let (seed, threads) = (seed.of_draws("seed")?, of.threads(Some(threads))?);
        let made = made(of, method, sampling, &Options(options))?;
        let (sum, exchange) = (of.sum().clone(), made.exchange);
        let runner = of.detached(py, || Runner::new(sum, made.method, &x, prox, seed, threads));
        let mut runner = runner.map_err(|error| or_raised(exchange.as_ref(), error))?;
        runner.weigh(made.weights);
        let runner = Guarded::new(runner, "this method's numbers");
        Ok(PyRunner { problem: problem.clone().unbind(), exchange, runner })
    }

    /// One step of this size, with the given numbers in place of draws, without the clients missing from a cohort, unless a token
    /// is set or the time is over.
    #[pyo3(signature = (step, batch=None, coin=None, compression=None, missing=None, stop=None, deadline=None))]
    #[allow(clippy::too_many_arguments, reason = "one for each choice")]
    fn step(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument_number)] step: f64,
        batch: Option<&Bound<'_, PyAny>>,
        coin: Option<bool>,
        compression: Option<Vec<Vec<f64>>>,
        missing: Option<Vec<u32>>,
        stop: Option<&Bound<'_, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<()> {
        let batch = batch.map(|batch| indices(batch, "batch")).transpose()?;
        let work = |runner: &mut Runner| {
            let missing = missing.as_deref().unwrap_or_default();
            let choices = Choices { batch: batch.as_deref(), coin, compression: compression.as_deref(), missing };
            runner.step(step, choices)
        };
        until(py, watched(stop, deadline)?, || self.with(py, work))
    }

    /// Steps of these sizes, the last of which is repeated, until a limit is reached; returns the number taken. A step
    /// during which the token is set does not count, unless other processes wait for messages of this one.
    #[pyo3(signature = (gammas, steps, calls=None, bits=None, seconds=None, stop=None))]
    #[allow(clippy::too_many_arguments, reason = "what ends a run")]
    fn steps(
        &self,
        py: Python<'_>,
        gammas: &Bound<'_, PyAny>,
        steps: u64,
        calls: Option<u64>,
        #[pyo3(from_py_with = optional_number)] bits: Option<f64>,
        #[pyo3(from_py_with = optional_number)] seconds: Option<f64>,
        stop: Option<&Bound<'_, PyStop>>,
    ) -> PyResult<u64> {
        let gammas = numbers(gammas, "steps")?;
        let token = watched(stop.filter(|_| self.exchange.is_none()), None)?;
        let stop = watched(stop, seconds.map(|seconds| seconds.max(0.0)))?;
        let limits = Limits { steps, calls: calls.unwrap_or(u64::MAX), bits: bits.unwrap_or(f64::INFINITY), stop };
        let mut done = 0;
        let mut work = || self.with(py, |runner| run(runner, &gammas, &limits, &mut done));
        match token {
            // If the token ended the work, the last step was not taken, which is not an error.
            Some(token) => token.watched(work).unwrap_or(Ok(())),
            None => work(),
        }?;
        Ok(done)
    }

    /// The iterate, as a new array.
    #[getter]
    fn x<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let x = self.runner.with(py, |runner| runner.x().to_vec())?;
        filled(py, &[x.len()], Kind::F64, &x)
    }

    /// Steps taken.
    #[getter]
    fn round(&self, py: Python<'_>) -> PyResult<u64> {
        self.runner.with(py, |runner| runner.round())
    }

    /// Oracle calls, bits up, bits down, bytes of messages, exchanges, seconds of a virtual clock.
    #[getter]
    fn cost(&self, py: Python<'_>) -> PyResult<Costs> {
        let cost = self.runner.with(py, |runner| runner.cost())?;
        Ok((cost.oracle_calls, cost.bits_up, cost.bits_down, cost.wire_bytes, cost.rounds, cost.time))
    }

    /// The batch of the last step, and whether its rare event happened.
    fn drawn<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Option<bool>)> {
        let (batch, coin) = self.runner.with(py, |runner| {
            let (batch, coin) = runner.drawn();
            (batch.iter().map(|&i| i64::from(i)).collect::<Vec<_>>(), coin)
        })?;
        Ok((of_integers(py, &[batch.len()], &batch)?, coin))
    }

    /// The value at the iterate, with the proximal term, and the gradient without it.
    fn evaluate<'py>(&self, py: Python<'py>) -> PyResult<(f64, Bound<'py, PyAny>)> {
        let (loss, g) = self.with(py, |runner| {
            let (x, mut g) = (runner.x().to_vec(), vec![0.0; runner.x().len()]);
            Ok((runner.evaluate(&x, &mut g)?, g))
        })?;
        Ok((loss, filled(py, &[g.len()], Kind::F64, &g)?))
    }

    /// Every array that determines the next steps, copied.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (state, mut parts) = (PyDict::new(py), Vec::new());
        self.with(py, |runner| {
            runner.for_parts(|name, part| {
                parts.push((name, Kind::F64, part.to_vec()));
                Ok(())
            })?;
            runner.kept().into_iter().try_for_each(|(name, kept)| {
                let kind = if kept.is_single() { Kind::F32 } else { Kind::F64 };
                parts.push((name, kind, kept.numbers()?));
                Ok(())
            })
        })?;
        for (name, kind, part) in parts {
            state.set_item(name, filled(py, &[part.len()], kind, &part)?)?;
        }
        Ok(state)
    }

    /// Continues from such arrays, after this many steps at this cost.
    fn load(&self, py: Python<'_>, state: &Bound<'_, PyDict>, round: u64, cost: Costs) -> PyResult<()> {
        let mut parts = Vec::new();
        let mut names = Vec::new();
        self.runner
            .with(py, |runner| {
                runner.for_parts(|name, part| {
                    names.push((name, part.len()));
                    Ok(())
                })?;
                names.extend(runner.kept().iter().map(|(name, kept)| (*name, kept.len())));
                Ok(())
            })?
            .or_raise(py)?;
        for &(name, len) in &names {
            let part =
                state.get_item(name)?.ok_or_else(|| PyValueError::new_err(format!("no state named {name:?}")))?;
            let part = numbers(&part, name)?;
            if part.len() != len {
                let message = format!("the state {name:?} has {} numbers, expected {len}", part.len());
                return Err(PyValueError::new_err(message));
            }
            parts.push(part);
        }
        let (oracle_calls, bits_up, bits_down, wire_bytes, rounds, time) = cost;
        let (all, mut parts) = (&parts, parts.iter());
        self.with(py, |runner| {
            let n_kept = runner.kept().len();
            let kept = &all[all.len() - n_kept..];
            runner.kept().into_iter().zip(kept).try_for_each(|((_, own), new)| own.prepare(new))?;
            runner.for_parts(|_, part| {
                parts.next().iter().for_each(|new| part.copy_from_slice(new));
                Ok(())
            })?;
            runner.kept().into_iter().zip(kept).for_each(|((_, own), new)| own.load(new));
            runner.restore(round, Cost { oracle_calls, bits_up, bits_down, wire_bytes, rounds, time });
            Ok(())
        })
    }
}
