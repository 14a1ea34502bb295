//! Sampling rules and proximal operators from Python: tuples of a name and numbers.

use burtorch_core::opt::{Prox, Sampler, Sampling};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::read::numbers;
use crate::convert::arguments::Count;
use crate::convert::arrays::{Kind, filled, of_integers};
use crate::convert::errors::IntoPython;
use crate::convert::numbers::argument_number;

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
        "importance" => Sampling::Importance(number()?, numbers(&rule.get_item(2)?, "weights")?),
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
    let value = prox.value(&x);
    prox.apply(step, &mut x, &mut Vec::new()).or_raise(py)?;
    Ok((filled(py, &[x.len()], Kind::F64, &x)?, value))
}

/// The batch of a rule, its factors, and (A, B) of the rule or None.
#[pyfunction]
#[pyo3(signature = (rule, n, seed, round, client=None))]
#[allow(clippy::type_complexity, reason = "three results")]
fn _sample<'py>(
    rule: &Bound<'py, PyTuple>,
    n: Count,
    seed: Count,
    round: Count,
    client: Option<Count>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>, Option<(f64, f64)>, f64)> {
    let (py, mut sampler) = (rule.py(), sampler_of(rule, n.positive("n")?)?);
    let (seed, round) = (seed.of_draws("seed")?, round.of_draws("round")?);
    let client = client.map_or(Ok(0), |client| client.of_draws("client"))?;
    py.detach(|| sampler.draw(seed, round, client)).or_raise(py)?;
    let samples = sampler.samples();
    let indices: Vec<i64> = samples.indices.iter().map(|&i| i.into()).collect();
    let weights: Vec<f64> = samples.weighted().map(|(_, w)| w).collect();
    let indices = of_integers(py, &[indices.len()], &indices)?;
    let weights = filled(py, &[weights.len()], Kind::F64, &weights)?;
    Ok((indices, weights, sampler.constants(), sampler.expected_size()))
}

/// The batch of a round among `n` samples, if `object` is a `Sampling`.
pub fn drawn(object: &Bound<'_, PyAny>, n: usize, seed: u64, round: u64) -> PyResult<Option<Vec<u32>>> {
    let Ok(rule) = object.getattr("rule").and_then(|rule| Ok(rule.cast_into::<PyTuple>()?)) else { return Ok(None) };
    let mut sampler = sampler_of(&rule, n)?;
    object.py().detach(|| sampler.draw(seed, round, 0)).or_raise(object.py())?;
    Ok(Some(sampler.samples().indices.to_vec()))
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_prox, m)?)?;
    m.add_function(wrap_pyfunction!(_sample, m)?)
}
