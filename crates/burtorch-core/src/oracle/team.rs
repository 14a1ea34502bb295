//! Batches of several chunks, computed by several threads.
//!
//! A batch is divided into chunks whose size depends on the model only. Each chunk's gradient is computed at a seat and in
//! memory of its own, its samples in order; then each gradient of the batch adds those of the chunks, in order. Promises:
//! the bits do not depend on the number of threads, as they change neither the chunks nor the order; each thread costs
//! the memory of one seat and of one gradient; after warm-up nothing is allocated.

use std::sync::{Mutex, MutexGuard};

use super::Interrupted;
use super::lanes::{LaneFloat, LaneModel, Lanes, Pass};
use super::memory::OracleMemory;
use super::seat::{Seat, Sink};
use crate::error::{Error, Result};
use crate::nn::Model;
use crate::params::Parameters;
use crate::sync;

/// Samples of a chunk, for a model that goes one sample at a time; for others a block of lanes.
const SINGLE_CHUNK: usize = 16;
const LANE_CHUNK: usize = 64;

/// Parts into which adding up is divided, at most.
const MAX_PARTS: usize = 64;

/// Parameters below which one thread adds up faster than several.
const SMALL: usize = 1 << 14;

/// The number of samples of a chunk.
pub(super) fn chunk_of<E: LaneFloat, M: LaneModel<E>>(model: &M) -> usize {
    if <M as Model<E>>::fills_lanes_itself(model) { SINGLE_CHUNK } else { LANE_CHUNK }
}

#[derive(Debug)]
pub(super) struct Team<E: LaneFloat> {
    pub(super) n_threads: usize,
    /// One for each thread. The locks are never waited for: who takes chunk k sits at place k.
    places: Vec<Mutex<Place<E>>>,
}

/// What one thread computes a chunk with.
#[derive(Debug)]
struct Place<E: LaneFloat> {
    seat: Seat<E>,
    /// The gradient of the chunk, one number per parameter.
    grads: Vec<E>,
    /// The loss of each of its samples.
    losses: Vec<E>,
    outcome: Result<()>,
}

impl<E: LaneFloat> Default for Team<E> {
    fn default() -> Self {
        Team { n_threads: 1, places: Vec::new() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic the whole call fails, and the next one overwrites everything.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
        for first in (0..n_chunks).step_by(n_places) {
            if let Some(interrupted) = &mut pass.interrupted
                && interrupted()
            {
                return Err(Error::Interrupted);
            }
            let n = n_places.min(n_chunks - first);
            let (model, batch, skips_losses, shared) = (pass.model, pass.batch, pass.skips_losses, &*params);
            let compute = |k: usize, interrupted: Interrupted<'_>| {
                let start = (first + k) * chunk;
                let samples = start..batch.len().min(start + chunk);
                let Place { seat, grads, losses, outcome } = &mut *lock(&self.places[k]);
                losses.clear();
                let mut each = |_, loss| losses.push(loss);
                let mut part = Pass { model, batch, interrupted, skips_losses, each: &mut each };
                *outcome = seat.gradient(lanes, &mut part, &mut Sink::Apart(shared, grads), samples, seed);
            };
            match &mut pass.interrupted {
                // Alone, the caller is asked as often as for a small batch.
                Some(interrupted) if n == 1 => compute(0, Some(&mut **interrupted)),
                _ => sync::run(self.n_threads, n, &|k| compute(k, None)),
            }
            for (k, place) in self.places[..n].iter_mut().enumerate() {
                let place = place.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
                std::mem::replace(&mut place.outcome, Ok(()))?;
                for (sample, &loss) in place.losses.iter().enumerate() {
                    (pass.each)((first + k) * chunk + sample, loss);
                }
            }
            self.add_up(params, n, first == 0);
        }
        Ok(())
    }

    /// What the threads keep between calls.
    pub(super) fn memory(&self) -> OracleMemory {
        self.places.iter().map(lock).fold(OracleMemory::default(), |sum, place| {
            let adjoints = (place.grads.capacity() + place.losses.capacity()) * size_of::<E>();
            sum + place.seat.memory() + OracleMemory { adjoints, ..OracleMemory::default() }
        })
    }

    /// Makes sure of the memory.
    fn prepare(&mut self, n_chunks: usize, n_parameters: usize, chunk: usize) -> Result<()> {
        let refused =
            |_| Error::OutOfMemory { bytes: n_parameters * size_of::<E>(), what: "the gradient of a chunk of samples" };
        let n_places = self.n_threads.min(n_chunks).clamp(1, MAX_PARTS);
        self.places.truncate(n_places);
        while self.places.len() < n_places {
            let place = Place { seat: Seat::default(), grads: Vec::new(), losses: Vec::new(), outcome: Ok(()) };
            self.places.try_reserve(1).map_err(refused)?;
            self.places.push(Mutex::new(place));
        }
        for place in &mut self.places {
            let place = place.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
            if place.grads.len() != n_parameters {
                place.grads.clear();
                place.grads.try_reserve_exact(n_parameters).map_err(refused)?;
                place.grads.resize(n_parameters, E::lit(0.0));
            }
            place.losses.clear();
            place.losses.try_reserve(chunk).map_err(refused)?;
        }
        Ok(())
    }

    /// Adds the gradients of the first `n` places to those of the parameters, in order; `anew`: overwrites these first.
    fn add_up(&mut self, params: &mut Parameters<'_, E>, n: usize, anew: bool) {
        let n_threads = self.n_threads;
        let mut parts: [&[E]; MAX_PARTS] = [&[]; MAX_PARTS];
        let mut guards = self.places[..n].iter().map(lock);
        let held: [Option<MutexGuard<'_, Place<E>>>; MAX_PARTS] = std::array::from_fn(|_| guards.next());
        for (part, guard) in parts.iter_mut().zip(&held) {
            *part = guard.as_ref().map_or(&[], |guard| &guard.grads[..]);
        }
        let parts = &parts[..n.min(MAX_PARTS)];
        params.for_each_trainable_grad(|range, grads| {
            let n_parts = if grads.len() < SMALL { 1 } else { n_threads.min(MAX_PARTS) };
            let len = grads.len().div_ceil(n_parts).max(1);
            let mut pieces = grads.chunks_mut(len).enumerate();
            let pieces: [Mutex<(usize, &mut [E])>; MAX_PARTS] =
                std::array::from_fn(|_| Mutex::new(pieces.next().unwrap_or((0, &mut []))));
            sync::run(n_threads, n_parts, &|k| {
                let (number, grads) = &mut *lock(&pieces[k]);
                let from = range.start + *number * len;
                for (p, part) in parts.iter().enumerate() {
                    let part = &part[from..from + grads.len()];
                    if anew && p == 0 {
                        grads.copy_from_slice(part);
                    } else {
                        grads.iter_mut().zip(part).for_each(|(g, &x)| *g = *g + x);
                    }
                }
            });
        });
    }
}
