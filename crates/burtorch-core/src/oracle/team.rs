//! Batches of several chunks, computed by several threads.
//!
//! A batch is divided into chunks whose size depends on the model only. Each chunk's gradient is computed at a seat and in
//! memory of its own, its samples in order; then each gradient of the batch adds those of the chunks, in order. Promises:
//! the bits do not depend on the number of threads, as they change neither the chunks nor the order; each thread costs
//! the memory of one seat and of one gradient; after warm-up nothing is allocated.

use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Interrupted;
use super::lanes::{LaneFloat, LaneModel, Lanes, Pass};
use super::memory::OracleMemory;
use super::seat::{Seat, Sink};
use crate::error::{Error, Result};
use crate::nn::Model;
use crate::params::Parameters;
use crate::params::elsewhere::Sum;
use crate::sync::{self, Turns};

/// Samples of a chunk, for a model that goes one sample at a time; for others a block of lanes.
const SINGLE_CHUNK: usize = 16;
const LANE_CHUNK: usize = 64;

/// Threads at most.
const MAX_PLACES: usize = 64;

/// One job for the threads takes about as long: a caller that waits for Ctrl-C asks between jobs.
const JOB: Duration = Duration::from_millis(20);

/// The number of samples of a chunk.
pub(super) fn chunk_of<E: LaneFloat, M: LaneModel<E>>(model: &M) -> usize {
    if <M as Model<E>>::fills_lanes_itself(model) { SINGLE_CHUNK } else { LANE_CHUNK }
}

#[derive(Debug)]
pub(super) struct Team<E: LaneFloat> {
    pub(super) n_threads: usize,
    /// One for each thread. The locks are never waited for: there are as many places as threads.
    places: Vec<Mutex<Place<E>>>,
    /// How many chunks a job takes: as long as [`JOB`], and at least one for each thread.
    chunks_of_job: usize,
    /// The losses of a job's samples.
    losses: Vec<E>,
}

/// What one thread computes a chunk with.
#[derive(Debug)]
struct Place<E: LaneFloat> {
    seat: Seat<E>,
    /// The gradient of the chunk, one number per parameter.
    grads: Vec<E>,
    /// The loss of each of its samples.
    losses: Vec<E>,
}

/// The gradient of the batch, to which the chunks are added in their order.
struct Adding<'a, E> {
    sum: Sum<'a, E>,
    losses: &'a mut Vec<E>,
    /// Of the last chunk that was added, or of the first that was not.
    outcome: Result<()>,
}

impl<E: LaneFloat> Default for Team<E> {
    fn default() -> Self {
        Team { n_threads: 1, places: Vec::new(), chunks_of_job: 1, losses: Vec::new() }
    }
}

impl<E: LaneFloat> Team<E> {
    /// The gradient of a batch of more than one chunk.
    pub(super) fn gradient<M: LaneModel<E>>(
        &mut self,
        lanes: Lanes,
        pass: &mut Pass<'_, '_, E, M>,
        params: &mut Parameters<'_, E>,
        chunk: usize,
        seed: E,
    ) -> Result<()> {
        let n_chunks = pass.batch.len().div_ceil(chunk);
        self.prepare(n_chunks, params.len(), chunk)?;
        let n_places = self.places.len();
        let mut first = 0;
        while first < n_chunks {
            if let Some(interrupted) = &mut pass.interrupted
                && interrupted()
            {
                return Err(Error::Interrupted);
            }
            // Alone, the caller is asked as often as for a small batch.
            let n = if n_places == 1 { 1 } else { self.chunks_of_job.max(n_places).min(n_chunks - first) };
            let began = Instant::now();
            self.job(lanes, pass, params, chunk, seed, first..first + n)?;
            let per_chunk = (began.elapsed() / n as u32).max(Duration::from_nanos(1));
            self.chunks_of_job = (JOB.as_nanos() / per_chunk.as_nanos()) as usize;
            for (sample, &loss) in self.losses.iter().enumerate() {
                (pass.each)(first * chunk + sample, loss);
            }
            first += n;
        }
        Ok(())
    }

    /// Adds the gradients of some chunks, in their order; the first of a batch overwrites what was there.
    fn job<M: LaneModel<E>>(
        &mut self,
        lanes: Lanes,
        pass: &mut Pass<'_, '_, E, M>,
        params: &mut Parameters<'_, E>,
        chunk: usize,
        seed: E,
        chunks: Range<usize>,
    ) -> Result<()> {
        let Team { places, losses, .. } = self;
        losses.clear();
        losses.try_reserve(chunks.len() * chunk).map_err(out_of_memory::<E>(chunks.len() * chunk))?;
        let (model, batch, skips_losses) = (pass.model, pass.batch, pass.skips_losses);
        params.with_grads_apart(|params, sum| {
            let turns =
                Turns::new(Adding { sum, losses, outcome: Ok(()) }, chunks.start, places.len() <= sync::n_cores());
            let compute = |number: usize, interrupted: Interrupted<'_>| {
                let turn = turns.claim(number);
                let mut place = places.iter().find_map(|place| place.try_lock().ok()).expect("a place for each thread");
                let Place { seat, grads, losses } = &mut *place;
                losses.clear();
                let mut each = |_, loss| losses.push(loss);
                let mut part = Pass { model, batch, interrupted, skips_losses, each: &mut each };
                let samples = number * chunk..batch.len().min((number + 1) * chunk);
                let swept = seat.gradient(lanes, &mut part, &mut Sink::Apart(params, grads), samples, seed);
                turn.take(|adding| {
                    if swept.is_ok() {
                        adding.sum.add(grads, number == 0);
                        adding.losses.extend_from_slice(losses);
                    }
                    adding.outcome = swept;
                    adding.outcome.is_ok()
                });
            };
            match &mut pass.interrupted {
                Some(interrupted) if chunks.len() == 1 => compute(chunks.start, Some(&mut **interrupted)),
                _ => sync::run(places.len(), chunks.len(), &|k| compute(chunks.start + k, None)),
            }
            turns.into_content().outcome
        })
    }

    /// What the threads keep between calls.
    pub(super) fn memory(&self) -> OracleMemory {
        self.places.iter().map(|place| place.lock().unwrap_or_else(|poisoned| poisoned.into_inner())).fold(
            OracleMemory::default(),
            |sum, place| {
                let adjoints = (place.grads.capacity() + place.losses.capacity()) * size_of::<E>();
                sum + place.seat.memory() + OracleMemory { adjoints, ..OracleMemory::default() }
            },
        )
    }

    /// Makes sure of the memory.
    fn prepare(&mut self, n_chunks: usize, n_parameters: usize, chunk: usize) -> Result<()> {
        let n_places = self.n_threads.min(n_chunks).clamp(1, MAX_PLACES);
        self.places.truncate(n_places);
        while self.places.len() < n_places {
            let place = Place { seat: Seat::default(), grads: Vec::new(), losses: Vec::new() };
            self.places.try_reserve(1).map_err(out_of_memory::<E>(1))?;
            self.places.push(Mutex::new(place));
        }
        for place in &mut self.places {
            // A panic left it, but what is in it is overwritten.
            place.clear_poison();
            let place = place.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
            if place.grads.len() != n_parameters {
                place.grads.clear();
                place.grads.try_reserve_exact(n_parameters).map_err(out_of_memory::<E>(n_parameters))?;
                place.grads.resize(n_parameters, E::lit(0.0));
            }
            place.losses.clear();
            place.losses.try_reserve(chunk).map_err(out_of_memory::<E>(chunk))?;
        }
        Ok(())
    }
}

fn out_of_memory<E>(n: usize) -> impl Fn(std::collections::TryReserveError) -> Error {
    move |_| Error::OutOfMemory { bytes: n * size_of::<E>(), what: "the gradient of a chunk of samples" }
}
