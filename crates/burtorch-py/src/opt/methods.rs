//! Methods by their Python names and keywords.

use burtorch_core::Float;
use burtorch_core::compress::{Compressor, Quantiser, Sparsifier};
use burtorch_core::opt::{
    Accelerated, Asynchronous, Clients, Dasha, Delays, Diana, Ef14, Ef21, FedAvg, LKatyusha, LSvrg, LocalSteps, Marina,
    Method, Network, Page, Rule, Saga, Sampler, Sampling, Scaffnew, Scaffold, Sgd, Spread,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;

use super::exchange::{Exchange, PyExchange};
use super::problem::PyFiniteSum;
use super::read::{indices, numbers};
use super::rules::{rule_of, sampler_of};
use crate::compress::PyCompressor;
use crate::convert::errors::IntoPython;

/// The keywords of a method; each may be absent.
pub struct Options<'a, 'py>(pub Option<&'a Bound<'py, PyDict>>);

/// The names of all methods.
const NAMES: [&str; 23] = [
    "p",
    "alpha",
    "mu",
    "theta",
    "momentum",
    "server_step",
    "clients",
    "compressor",
    "is_single",
    "downlink",
    "here",
    "gather",
    "network",
    "from_gradient",
    "local_steps",
    "local_sampling",
    "delays",
    "gathered",
    "buffer",
    "max_delay",
    "trials",
    "limits",
    "expected",
];

impl<'py> Options<'_, 'py> {
    /// Raises TypeError for an unknown keyword.
    fn check(&self) -> PyResult<()> {
        for name in self.0.iter().flat_map(|options| options.keys()) {
            let name: String = name.extract()?;
            if !NAMES.contains(&name.as_str()) {
                return Err(PyTypeError::new_err(format!("a method got an unexpected keyword argument '{name}'")));
            }
        }
        Ok(())
    }

    fn get(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.0.map(|options| options.get_item(name)).transpose()?.flatten();
        Ok(found.filter(|value| !value.is_none()))
    }

    fn float(&self, name: &str, missing: f64) -> PyResult<f64> {
        self.get(name)?.map_or(Ok(missing), |value| value.extract())
    }

    fn count(&self, name: &str) -> PyResult<u64> {
        self.get(name)?.map_or(Ok(1), |value| {
            let wrong = |_| PyValueError::new_err(format!("{name} must be an integer from 0 to 2**64 - 1"));
            value.extract().map_err(wrong)
        })
    }

    fn is(&self, name: &str) -> PyResult<bool> {
        self.get(name)?.map_or(Ok(true), |value| value.extract())
    }

    fn compressor(&self, name: &str) -> PyResult<Option<Compressor>> {
        self.get(name)?.map(|given| Ok(given.cast_into::<PyCompressor>()?.get().compressor())).transpose()
    }

    fn rule(&self, name: &str) -> PyResult<Sampling> {
        self.get(name)?.map_or(Ok(Sampling::Full), |value| rule_of(&value.cast_into::<PyTuple>()?))
    }
}

/// The seconds of each worker, and the name and constant of a distribution.
fn delays_of(given: &Bound<'_, PyAny>) -> PyResult<Delays> {
    let (seconds, name, constant): (Bound<'_, PyAny>, String, f64) = given.extract()?;
    let spread = match name.as_str() {
        "fixed" => Spread::Fixed,
        "exponential" => Spread::Exponential,
        "log_normal" => Spread::LogNormal(constant),
        "pareto" => Spread::Pareto(constant),
        _ => return Err(PyValueError::new_err(format!("unknown distribution of delays {name:?}"))),
    };
    Delays::new(&numbers(&seconds, "seconds")?, spread).or_raise(given.py())
}

fn of_samples(py: Python<'_>, method: &str, sampler: Sampler, options: &Options<'_, '_>) -> PyResult<Box<dyn Method>> {
    let p = options.float("p", 1.0)?;
    if let Some(delays) = options.get("delays")? {
        let rule = match method {
            "rennala" => Rule::Rennala(options.count("gathered")?),
            "ringmaster" => Rule::Ringmaster(options.count("max_delay")?),
            _ => {
                let list = |name: &str| -> PyResult<Vec<f64>> {
                    options.get(name)?.map_or(Ok(Vec::new()), |value| numbers(&value, name))
                };
                let trials = list("trials")?.iter().map(|&n| n as u64).collect();
                Rule::MindFlayer { trials, limits: list("limits")?, expected: options.float("expected", 0.0)? }
            }
        };
        return Ok(Box::new(Asynchronous::new(rule, sampler, delays_of(&delays)?).or_raise(py)?));
    }
    Ok(match method {
        "l_svrg" => Box::new(LSvrg::new(sampler, p).or_raise(py)?),
        "l_katyusha" => {
            let svrg = LSvrg::new(sampler, p).or_raise(py)?;
            Box::new(LKatyusha::new(svrg, options.float("mu", 0.0)?, options.float("theta", 0.0)?).or_raise(py)?)
        }
        "saga" => Box::new(Saga::new(sampler)),
        "page" => Box::new(Page::new(sampler, p).or_raise(py)?),
        "agd" => Box::new(Accelerated::new(options.float("mu", 0.0)?).or_raise(py)?),
        _ => Box::new(Sgd::new(sampler)),
    })
}

/// A method whose server also compresses, if a compressor is given.
fn with_downlink<T: Float>(
    py: Python<'_>,
    made: burtorch_core::Result<Ef21<T>>,
    options: &Options<'_, '_>,
) -> PyResult<Ef21<T>> {
    let mut method = made.or_raise(py)?;
    if let Some(downlink) = options.compressor("downlink")? {
        method.set_downlink(downlink);
    }
    Ok(method)
}

fn of_clients(
    py: Python<'_>,
    method: &str,
    mut clients: Clients,
    cohort: Sampler,
    options: &Options<'_, '_>,
) -> PyResult<Box<dyn Method>> {
    let (p, from_gradient) = (options.float("p", 1.0)?, options.is("from_gradient")?);
    let is_single = options.get("is_single")?.is_some();
    let local = |clients: &mut Clients| {
        LocalSteps::new(clients, cohort, options.count("local_steps")?, &options.rule("local_sampling")?).or_raise(py)
    };
    Ok(match method {
        "diana" => Box::new(Diana::new(clients, options.float("alpha", 0.0)?, from_gradient).or_raise(py)?),
        "marina" => {
            let local = local(&mut clients)?;
            Box::new(Marina::new(clients, local, p).or_raise(py)?)
        }
        "dasha" => Box::new(Dasha::new(clients, options.float("alpha", 1.0)?, from_gradient).or_raise(py)?),
        "ef14" => Box::new(Ef14::new(clients)),
        "ef21" => {
            let (local, momentum) = (local(&mut clients)?, options.float("momentum", 1.0)?);
            if is_single {
                Box::new(with_downlink(py, Ef21::<f32>::new(clients, local, momentum, from_gradient), options)?)
            } else {
                Box::new(with_downlink(py, Ef21::<f64>::new(clients, local, momentum, from_gradient), options)?)
            }
        }
        "scaffnew" => Box::new(Scaffnew::new(clients, p, from_gradient).or_raise(py)?),
        "fed_avg" => {
            let local = local(&mut clients)?;
            Box::new(FedAvg::new(clients, local))
        }
        "scaffold" => {
            let local = local(&mut clients)?;
            let server_step = options.float("server_step", 1.0)?;
            if is_single {
                Box::new(Scaffold::<f32>::new(clients, local, server_step, from_gradient).or_raise(py)?)
            } else {
                Box::new(Scaffold::<f64>::new(clients, local, server_step, from_gradient).or_raise(py)?)
            }
        }
        _ => Box::new(Diana::without_shifts(clients)),
    })
}

/// A method before its first step, with its other parts.
pub struct Made {
    pub method: Box<dyn Method>,
    /// The number of times that each sample counts.
    pub weights: Option<Vec<f64>>,
    pub exchange: Option<Arc<Exchange>>,
}

/// The method of this name.
pub fn made(
    problem: &PyFiniteSum,
    method: &str,
    sampling: &Bound<'_, PyTuple>,
    options: &Options<'_, '_>,
) -> PyResult<Made> {
    options.check()?;
    let (py, n, d) = (sampling.py(), problem.sum().n(), problem.sum().d());
    let Some(lists) = options.get("clients")? else {
        let method = of_samples(py, method, sampler_of(sampling, n)?, options)?;
        return Ok(Made { method, weights: None, exchange: None });
    };
    let lists: Vec<Bound<'_, PyAny>> = lists.extract()?;
    let parts = lists.iter().map(|list| indices(list, "clients")).collect::<PyResult<Vec<_>>>()?;
    if let Some(delays) = options.get("delays")? {
        let rule = (options.count("buffer")?, options.float("server_step", 1.0)?);
        let local = (options.count("local_steps")?, &options.rule("local_sampling")?);
        let made = Asynchronous::of_clients(rule, parts, local, delays_of(&delays)?, n).or_raise(py)?;
        return Ok(Made { method: Box::new(made.0), weights: made.1, exchange: None });
    }
    let compressor = match options.compressor("compressor")? {
        Some(compressor) => compressor,
        None => Compressor::new(Sparsifier::All, Quantiser::None).or_raise(py)?,
    };
    let cohort = sampler_of(sampling, parts.len())?;
    let (start, end) = options.get("here")?.map_or(Ok((0, parts.len())), |here| here.extract())?;
    let mut clients = Clients::of_process(parts, start..end, n, d, compressor).or_raise(py)?;
    let mut exchange = None;
    if let Some(gather) = options.get("gather")? {
        let made = Exchange::new(gather.unbind());
        clients.set_exchange(Box::new(PyExchange(made.clone())));
        exchange = Some(made);
    }
    if let Some(network) = options.get("network")? {
        let (compute, latency, bandwidth, dropout): (Bound<'_, PyAny>, f64, f64, f64) = network.extract()?;
        let network = Network::new(delays_of(&compute)?, latency, bandwidth, dropout).or_raise(py)?;
        if network.n() != clients.n() {
            let message = format!("a network of {} clients, expected {}", network.n(), clients.n());
            return Err(PyValueError::new_err(message));
        }
        clients.set_network(network);
    }
    let weights = clients.weights();
    let method = of_clients(py, method, clients, cohort, options)?;
    Ok(Made { method, weights, exchange })
}
