//! Sampling rules and proximal operators from Python: tuples of a name and numbers.
//!
//! Promises: long draws and projections release the GIL and end at a signal.

use std::sync::Mutex;

use burtorch_core::interrupt::{self, PIECE, pieces};
use burtorch_core::memory::list_for;
use burtorch_core::opt::{Prox, Sampler, Sampling};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::read::{numbers, row};
use crate::convert::arguments::Count;
use crate::convert::arrays::written;
use crate::convert::errors::IntoPython;
use crate::convert::numbers::argument_number;
use crate::convert::signals::asked;
use crate::convert::threads::detached;

fn unknown<T>(what: &str, name: &str) -> PyResult<T> {
    Err(PyValueError::new_err(format!("unknown {what} {name:?}")))
}

/// The rule of a tuple.
pub fn rule_of(rule: &Bound<'_, PyTuple>) -> PyResult<Sampling> {
    let name: String = rule.get_item(0)?.extract()?;
    let number = || rule.get_item(1)?.extract::<Count>()?.positive("the size of a batch");
    Ok(match name.as_str() {
        "full" => Sampling::Full,
        "nice" => Sampling::Nice(number()?),
        "with_replacement" => Sampling::WithReplacement(number()?),
        "independent" => Sampling::Independent(rule.get_item(1)?.extract()?),
        "importance" => Sampling::Importance(number()?, row(&rule.get_item(2)?, "weights", None)?),
        "reshuffle" => Sampling::Reshuffle(number()?),
        "partition" => Sampling::Partition(number()?),
        _ => return unknown("sampling", &name),
    })
}

/// The rule of a tuple, for `n` samples.
pub fn sampler_of(rule: &Bound<'_, PyTuple>, n: usize) -> PyResult<Sampler> {
    Sampler::new(rule_of(rule)?, n).or_raise(rule.py())
}

/// The proximal operator of a tuple.
pub fn prox_of(rule: &Bound<'_, PyTuple>) -> PyResult<Prox> {
    let name: String = rule.get_item(0)?.extract()?;
    let a = |k: usize| rule.get_item(k)?.extract::<f64>();
    let prox = match name.as_str() {
        "zero" => Prox::Zero,
        "l1" => Prox::L1(a(1)?),
        "l2_squared" => Prox::L2Squared(a(1)?),
        "elastic_net" => Prox::ElasticNet(a(1)?, a(2)?),
        "box" => Prox::Box(a(1)?, a(2)?),
        "simplex" => Prox::Simplex(a(1)?),
        "l1_ball" => Prox::L1Ball(a(1)?),
        "l2_ball" => Prox::L2Ball(a(1)?),
        "linf_ball" => Prox::LinfBall(a(1)?),
        _ => return unknown("proximal operator", &name),
    };
    prox.checked().or_raise(rule.py())
}

/// prox of a rule at x, as a new array, and the rule's value at x.
#[pyfunction]
fn _prox<'py>(
    rule: &Bound<'py, PyTuple>,
    x: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = argument_number)] step: f64,
) -> PyResult<(Bound<'py, PyAny>, f64)> {
    let (py, prox, mut x) = (rule.py(), prox_of(rule)?, numbers(x, "x")?);
    let work = || {
        let value = prox.value(&x);
        prox.apply(step, &mut x, &mut Vec::new()).map(|()| value)
    };
    let value = detached(py, || asked(work)).or_raise(py)?;
    Ok((written(py, "float64", x.iter().copied())?, value))
}

/// What a `Reshuffle` drew last: its permutation, which the next batch of the epoch reads. A call beside another one draws its
/// own.
#[pyclass(frozen, name = "KeptDraws", module = "burtorch._core")]
#[derive(Default)]
pub struct PyKeptDraws(Mutex<Option<Sampler>>);

#[pymethods]
impl PyKeptDraws {
    /// Nothing drawn.
    #[new]
    fn new() -> Self {
        Self::default()
    }
}

impl PyKeptDraws {
    /// Runs `work` on the kept sampler if it is of this rule and free, otherwise on a new one, which is kept if none is in use.
    fn with<T>(
        kept: Option<&PyKeptDraws>,
        rule: Sampling,
        n: usize,
        work: impl FnOnce(&mut Sampler) -> burtorch_core::Result<T>,
    ) -> burtorch_core::Result<T> {
        let mut guard = kept.and_then(|kept| kept.0.try_lock().ok());
        let Some(place) = guard.as_deref_mut() else { return work(&mut Sampler::new(rule, n)?) };
        let sampler = match place.take().filter(|sampler| sampler.n() == n && *sampler.rule() == rule) {
            Some(sampler) => sampler,
            None => Sampler::new(rule, n)?,
        };
        work(place.insert(sampler))
    }
}

/// The batch of a rule, its factors, and (A, B) of the rule or None.
#[pyfunction]
#[pyo3(signature = (rule, n, seed, round, client=None, kept=None))]
#[allow(clippy::type_complexity, reason = "four results")]
fn _sample<'py>(
    rule: &Bound<'py, PyTuple>,
    n: Count,
    seed: Count,
    round: Count,
    client: Option<Count>,
    kept: Option<&Bound<'py, PyKeptDraws>>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>, Option<(f64, f64)>, f64)> {
    let (py, sampling, n) = (rule.py(), rule_of(rule)?, n.positive("n")?);
    let kept = kept.map(|kept| kept.get());
    let (seed, round) = (seed.of_draws("seed")?, round.of_draws("round")?);
    let client = client.map_or(Ok(0), |client| client.of_draws("client"))?;
    let draw = |sampler: &mut Sampler| {
        sampler.draw(seed, round, client)?;
        let samples = sampler.samples();
        let weights = samples.weights.map(copied).transpose()?;
        Ok((copied(samples.indices)?, weights, samples.scale, sampler.constants(), sampler.expected_size()))
    };
    let drawn = detached(py, || asked(|| PyKeptDraws::with(kept, sampling, n, draw)));
    let (indices, weights, scale, constants, expected_size) = drawn.or_raise(py)?;
    let places = written(py, "int64", indices.iter().map(|&i| i64::from(i)))?;
    let factors = match weights {
        Some(weights) => written(py, "float64", weights.iter().map(|w| scale * w))?,
        None => written(py, "float64", std::iter::repeat_n(scale, indices.len()))?,
    };
    Ok((places, factors, constants, expected_size))
}

/// A copy, made piece by piece.
fn copied<T: Copy>(all: &[T]) -> burtorch_core::Result<Vec<T>> {
    let mut copy = list_for(all.len(), "a batch")?;
    pieces(all.len()).zip(all.chunks(PIECE)).for_each(|(_, piece)| copy.extend_from_slice(piece));
    interrupt::check().map(|()| copy)
}

/// The batch of a round among `n` samples, if `object` is a `Sampling`.
pub fn drawn(object: &Bound<'_, PyAny>, n: usize, seed: u64, round: u64) -> PyResult<Option<Vec<u32>>> {
    let Ok(rule) = object.getattr("rule").and_then(|rule| Ok(rule.cast_into::<PyTuple>()?)) else { return Ok(None) };
    let (py, sampling) = (object.py(), rule_of(&rule)?);
    let kept = object.getattr_opt("_kept")?.and_then(|kept| kept.cast_into::<PyKeptDraws>().ok());
    let kept = kept.as_ref().map(|kept| kept.get());
    let draw = |sampler: &mut Sampler| {
        sampler.draw(seed, round, 0)?;
        copied(sampler.samples().indices)
    };
    detached(py, || asked(|| PyKeptDraws::with(kept, sampling, n, draw))).or_raise(py).map(Some)
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyKeptDraws>()?;
    m.add_function(wrap_pyfunction!(_prox, m)?)?;
    m.add_function(wrap_pyfunction!(_sample, m)?)
}
