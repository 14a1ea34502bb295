//! Clients: a partition of the samples, and the memory in which each computes and compresses.
//!
//! f is the mean over clients of the means of their samples. Promises: clients compute at the same time, and what they send is added
//! in their order, so that the number of threads changes nothing. Knows no method.

use super::method::{Cost, Env};
use super::terms::{Samples, Workspace};
use crate::compress::{Client, Compressor, Message};
use crate::draw::{Draw, Purpose};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::memory;
use crate::sync::{self, Mutex};

/// Who holds which samples, and what they send.
#[derive(Debug)]
pub struct Clients {
    workers: Vec<Mutex<Worker>>,
    compressor: Compressor,
    d: usize,
    n_samples: usize,
}

/// A client at work.
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) samples: Vec<u32>,
    /// A gradient, or a local model.
    pub(super) g: Vec<f64>,
    pub(super) message: Message<f64>,
    pub(super) workspace: Workspace,
    failed: Option<Error>,
}

const WHAT: &str = "clients";
/// Bits of a number that is sent as it is.
const NUMBER: f64 = 64.0;

impl Clients {
    /// The samples of each client: each sample belongs to one.
    pub fn new(parts: Vec<Vec<u32>>, n_samples: usize, d: usize, compressor: Compressor) -> Result<Self> {
        let mut is_taken = memory::filled(false, n_samples, WHAT)?;
        let bad = |found: String| Error::BadArgument {
            what: "clients",
            expected: format!("lists that hold each of the {n_samples} samples once"),
            found,
        };
        let mut workers = memory::list_for(parts.len(), WHAT)?;
        for (k, samples) in parts.into_iter().enumerate() {
            if samples.is_empty() {
                return Err(bad(format!("client {k} without samples")));
            }
            for &i in &samples {
                match is_taken.get_mut(i as usize) {
                    Some(taken) if !*taken => *taken = true,
                    _ => return Err(bad(format!("sample {i} twice or out of range"))),
                }
            }
            let g = memory::filled(0.0, d, WHAT)?;
            workers.push(Mutex::new(Worker { samples, g, ..Worker::default() }));
        }
        match is_taken.iter().position(|taken| !taken) {
            Some(i) => Err(bad(format!("none that holds sample {i}"))),
            None => Ok(Clients { workers, compressor, d, n_samples }),
        }
    }

    /// How many.
    pub fn n(&self) -> usize {
        self.workers.len()
    }

    /// What each sample counts in f, unless all count the same.
    pub fn weights(&mut self) -> Result<Option<Vec<f64>>> {
        let sizes = |worker: &mut Mutex<Worker>| worker_of(worker).samples.len();
        let first = self.workers.first_mut().map_or(0, sizes);
        if self.workers.iter_mut().all(|worker| sizes(worker) == first) {
            return Ok(None);
        }
        let (n, mut weights) = (self.n() as f64, memory::filled(0.0, self.n_samples, WHAT)?);
        for worker in &mut self.workers {
            let samples = &worker_of(worker).samples;
            samples.iter().for_each(|&i| weights[i as usize] = 1.0 / (n * samples.len() as f64));
        }
        Ok(Some(weights))
    }

    /// Runs `work` for every client, on the threads of `env`.
    pub(super) fn each(
        &mut self,
        env: &Env<'_>,
        work: &(dyn Fn(usize, &mut Worker) -> Result<()> + Sync),
    ) -> Result<()> {
        let workers = &self.workers;
        sync::run(env.threads, workers.len(), &|k| {
            let mut worker = workers[k].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let ended = if interrupt::is_over() { Err(Error::Interrupted) } else { Ok(()) };
            worker.failed = ended.and_then(|()| work(k, &mut worker)).err();
        });
        let failed = |worker: &mut Mutex<Worker>| worker_of(worker).failed.take();
        self.workers.iter_mut().find_map(failed).map_or(Ok(()), Err)
    }

    /// Every client in turn.
    pub(super) fn workers(&mut self) -> impl ExactSizeIterator<Item = &mut Worker> {
        self.workers.iter_mut().map(worker_of)
    }

    /// Every client computes its gradient at `x`, less that at `minus` and less its part of `shifts`, and compresses it.
    pub(super) fn send(
        &mut self,
        env: &Env<'_>,
        x: &[f64],
        minus: Option<&[f64]>,
        shifts: Option<&[f64]>,
    ) -> Result<Cost> {
        let (compressor, n, d) = (self.compressor, self.n(), self.d);
        if env.choices.compression.is_some_and(|given| given.len() != n) {
            let expected = format!("for each of the {n} clients");
            return Err(Error::BadArgument { what: "given draws of compressors", expected, found: "others".into() });
        }
        self.each(env, &|k, worker| {
            worker.grad(env, x, minus)?;
            if let Some(shifts) = shifts {
                worker.g.iter_mut().zip(&shifts[k * d..]).for_each(|(g, h)| *g -= h);
            }
            if worker.g.iter().any(|g| !g.is_finite()) {
                return Err(Error::Diverged { round: env.round + 1 });
            }
            let mut draw = match env.choices.compression {
                Some(given) => Draw::of(&given[k])?,
                None => Draw::new(env.seed, env.round, k as u64, Purpose::Compression),
            };
            compressor.compress(&worker.g, &mut draw, Client { index: k, n }, &mut worker.message)
        })?;
        let mut cost = self.broadcast();
        for worker in self.workers() {
            cost.bits_up += worker.message.bits();
            cost.wire_bytes += worker.message.n_bytes() as u64;
        }
        cost.oracle_calls *= if minus.is_some() { 2 } else { 1 };
        Ok(cost)
    }

    /// Every client computes its gradient at `x`; `out` becomes their mean.
    pub(super) fn mean_grad(&mut self, env: &Env<'_>, x: &[f64], out: &mut [f64]) -> Result<Cost> {
        self.each(env, &|_, worker| worker.grad(env, x, None))?;
        self.mean_of_g(out);
        let numbers = (self.n() * self.d) as f64 * NUMBER;
        Ok(Cost { bits_up: numbers, wire_bytes: numbers as u64 / 8, ..self.broadcast() })
    }

    /// The cost of a round in which the server sends a point to all, and all compute a gradient.
    pub(super) fn broadcast(&self) -> Cost {
        let bits_down = (self.n() * self.d) as f64 * NUMBER;
        Cost { oracle_calls: self.n_samples as u64, bits_down, rounds: 1, ..Cost::default() }
    }

    /// `out` becomes the mean of what every client holds in `g`.
    pub(super) fn mean_of_g(&mut self, out: &mut [f64]) {
        let share = 1.0 / self.n() as f64;
        out.fill(0.0);
        for worker in self.workers() {
            out.iter_mut().zip(&worker.g).for_each(|(out, g)| *out += share * g);
        }
    }

    /// Adds `scale` times the mean of all messages to `out`.
    pub(super) fn add_messages(&mut self, scale: f64, out: &mut [f64]) -> Result<()> {
        let share = scale / self.n() as f64;
        self.workers().try_for_each(|worker| worker.message.add_to(out, share))
    }
}

impl Worker {
    /// `g` becomes the gradient at `x`, less that at `minus`.
    pub(super) fn grad(&mut self, env: &Env<'_>, x: &[f64], minus: Option<&[f64]>) -> Result<()> {
        self.g.fill(0.0);
        env.problem.grad(x, minus, Samples::mean(&self.samples), 1, &mut self.workspace, &mut self.g)
    }
}

fn worker_of(worker: &mut Mutex<Worker>) -> &mut Worker {
    worker.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
}
