//! The clients of a round, and the samples of their gradients.
//!
//! Promises: cohorts and batches are functions of seed, round and client alone. Does not know methods.

use super::clients::Clients;
use super::method::Env;
use super::sampling::{Sampler, Sampling};
use super::stochastic::draw_batch;
use super::terms::Samples;
use super::worker::{Room, Who, Worker};
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// The common part of clients with local steps: cohort, number of steps, and samples.
#[derive(Debug)]
pub struct LocalSteps {
    cohort: Sampler,
    /// The members of the cohort, ascending.
    part: Vec<u32>,
    steps: u64,
    batch: Sampling,
    /// The sampler of each client, created when it first takes part.
    batches: Vec<Mutex<Option<Box<Sampler>>>>,
}

impl LocalSteps {
    /// `cohort` draws the clients of a round, `batch` the samples of a local step.
    pub fn new(clients: &mut Clients, cohort: Sampler, steps: u64, batch: &Sampling) -> Result<Self> {
        if steps == 0 {
            let expected = "at least 1".into();
            return Err(Error::BadArgument { what: "local_steps", expected, found: "0".into() });
        }
        let mut batches = crate::memory::list_for(clients.n_here(), "the batches of clients")?;
        let (mut last, batch) = (0, batch.clone());
        for worker in clients.workers() {
            if std::mem::replace(&mut last, worker.samples.len()) != last {
                Sampler::new(batch.clone(), worker.samples.len())?;
            }
            batches.push(Mutex::new(None));
        }
        Ok(LocalSteps { cohort, part: Vec::new(), steps, batch, batches })
    }

    /// Draws the cohort of a round.
    pub(super) fn draw_cohort(&mut self, env: &Env<'_>) -> Result<()> {
        draw_batch(&mut self.cohort, env)?;
        let drawn = self.cohort.samples().indices;
        self.part.clear();
        crate::memory::reserve_in(&mut self.part, drawn.len(), "a cohort")?;
        self.part.extend(drawn.iter().filter(|k| !env.choices.missing.contains(k)));
        self.part.sort_unstable();
        Ok(())
    }

    /// The cohort, ascending.
    pub(super) fn part(&self) -> &[u32] {
        &self.part
    }

    /// The factor that makes a sum over the cohort an estimate of the mean over all clients.
    pub(super) fn scale(&self) -> f64 {
        self.cohort.samples().scale
    }

    /// Local steps of a client per round.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Sets `room.g` to the gradient at `x` of a batch of this client's samples in one of its local steps, minus that
    /// at `minus`; returns the number of oracle calls.
    #[allow(clippy::too_many_arguments, reason = "a difference has two points")]
    pub(super) fn grad(
        &self,
        env: &Env<'_>,
        step: u64,
        who: Who,
        worker: &Worker,
        room: &mut Room,
        x: &[f64],
        minus: Option<&[f64]>,
    ) -> Result<u64> {
        if self.batch == Sampling::Full {
            return room.grad(env, x, minus, Samples::mean(&worker.samples));
        }
        let mut kept = self.batches[who.here].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let sampler = match &mut *kept {
            Some(sampler) => sampler,
            none => none.insert(Box::new(Sampler::new(self.batch.clone(), worker.samples.len())?)),
        };
        // Client 0 of these draws is the server.
        sampler.draw(env.seed, env.round * self.steps + step, who.k as u64 + 1)?;
        let mut indices = std::mem::take(&mut room.indices);
        indices.clear();
        indices.extend(sampler.samples().indices.iter().map(|&i| worker.samples[i as usize]));
        let done = room.grad(env, x, minus, Samples { indices: &indices, ..sampler.samples() });
        room.indices = indices;
        done
    }

    /// Takes all local steps with `room.x`, which starts at `x`, each with a gradient modified by `correct`; returns
    /// the number of oracle calls.
    pub(super) fn walk(
        &self,
        env: &Env<'_>,
        who: Who,
        worker: &Worker,
        room: &mut Room,
        x: &[f64],
        correct: &dyn Fn(&mut [f64]),
    ) -> Result<u64> {
        let mut own = std::mem::take(&mut room.x);
        own.clear();
        crate::memory::reserve_in(&mut own, x.len(), "a local model")?;
        own.extend_from_slice(x);
        let (mut calls, step) = (0, env.step);
        for j in 0..self.steps {
            calls += self.grad(env, j, who, worker, room, &own, None)?;
            correct(&mut room.g);
            own.iter_mut().zip(&room.g).for_each(|(x, g)| *x -= step * g);
        }
        room.x = own;
        Ok(calls)
    }
}
