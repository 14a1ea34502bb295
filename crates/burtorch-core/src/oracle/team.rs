//! Batches of several chunks, computed by several threads.
//!
//! A batch is divided into chunks whose sizes depend on the model and the batch's size only. Each chunk's gradient is computed
//! in its own workspace and memory, its samples in order; then the gradients of the chunks are added, in order.
//! Promises: the bits do not depend on the number of threads, which change neither the chunks nor the order; each thread costs
//! the memory of one workspace and of one gradient, and two threads that of one more gradient, for a chunk that is finished
//! before its turn; after warm-up nothing is allocated.

use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Interrupted;
use super::lanes::{LaneFloat, LaneModel, Lanes, Pass};
use super::memory::OracleMemory;
use super::sampler::Random;
use super::sink::{Asked, Sink};
use super::workspace::Workspace;
use crate::backward::Consume;
use crate::error::{Error, Result};
use crate::nn::Model;
use crate::params::Parameters;
use crate::params::overrides::Sum;
use crate::sync::stop::{self, Watch};
use crate::sync::{self, EarlyResults, OrderedReduction};

/// Samples of a chunk, for a model that goes one sample at a time; for others a block of lanes.
const SINGLE_CHUNK: usize = 16;
const LANE_CHUNK: usize = 64;

/// Threads at most.
const MAX_PLACES: usize = 64;

/// One job for the threads takes about as long: a caller that waits for Ctrl-C asks between jobs.
const JOB: Duration = Duration::from_millis(20);

/// How a batch is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    n_samples: usize,
    /// Samples of a chunk.
    size: usize,
    /// Whether the last chunk is done in halves: threads, of which one may be slower, then end at about the same time.
    halves_last: bool,
}

impl Chunks {
    pub(super) fn of<E: LaneFloat, M: LaneModel<E> + ?Sized>(model: &M, lanes: Lanes, n_samples: usize) -> Self {
        let halves_last = <M as Model<E>>::fills_lanes_itself(model);
        let size = if lanes == Lanes::Auto && <M as Model<E>>::shares_products(model) {
            n_samples
        } else if halves_last {
            SINGLE_CHUNK
        } else {
            LANE_CHUNK
        };
        Chunks { n_samples, size, halves_last }
    }

    /// Whether the whole batch is one chunk.
    pub(super) fn is_one(self) -> bool {
        self.n_samples <= self.size
    }

    fn len(self) -> usize {
        self.n_samples.div_ceil(self.size) + usize::from(self.halves_last && self.last().len() > 1)
    }

    /// The samples after all whole chunks but the last.
    fn last(self) -> Range<usize> {
        self.n_samples.saturating_sub(1) / self.size * self.size..self.n_samples
    }

    /// The samples of a chunk.
    fn samples(self, number: usize) -> Range<usize> {
        let last = self.last();
        let (first, middle) = (number * self.size, last.start + last.len().div_ceil(2));
        if first < last.start {
            first..first + self.size
        } else if !self.halves_last || last.len() < 2 {
            last
        } else if first == last.start {
            last.start..middle
        } else {
            middle..last.end
        }
    }
}

#[derive(Debug)]
pub(super) struct Team<E: LaneFloat> {
    pub(super) n_threads: usize,
    /// One for each thread. The locks are never waited for: there are as many places as threads.
    places: Vec<Mutex<Worker<E>>>,
    /// For chunks that are ready before their turn.
    room: EarlyResults<ChunkResult<E>>,
    /// How many chunks a job takes: as long as [`JOB`], and at least one for each thread.
    chunks_of_job: usize,
    /// The losses of a job's samples.
    losses: Vec<E>,
}

/// What one thread computes a chunk with. Apart from the next one: threads that write to one line of the cache, or to one beside
/// it, take turns, and then two take as long as one.
#[derive(Debug)]
#[repr(align(128))]
struct Worker<E: LaneFloat> {
    workspace: Workspace<E>,
    found: ChunkResult<E>,
}

/// What comes of a chunk.
#[derive(Debug)]
struct ChunkResult<E> {
    /// Its gradient, one number per parameter.
    grads: Vec<E>,
    /// The loss of each of its samples.
    losses: Vec<E>,
    /// How many of its samples have been added.
    n_finished: usize,
    /// Whether they are kept although the chunk ended early.
    is_kept: bool,
    /// Of the gradient, where a part of it is random.
    variance: f64,
    outcome: Result<()>,
}

impl<E: LaneFloat> ChunkResult<E> {
    const NOTHING: Self = ChunkResult {
        grads: Vec::new(),
        losses: Vec::new(),
        n_finished: 0,
        is_kept: false,
        variance: 0.0,
        outcome: Ok(()),
    };

    /// Makes sure of the memory.
    fn prepare(&mut self, n_parameters: usize, chunk: usize) -> Result<()> {
        if self.grads.len() != n_parameters {
            self.grads.clear();
            self.grads.try_reserve_exact(n_parameters).map_err(out_of_memory::<E>(n_parameters))?;
            self.grads.resize(n_parameters, E::lit(0.0));
        }
        self.losses.clear();
        self.losses.try_reserve(chunk).map_err(out_of_memory::<E>(chunk))
    }

    fn bytes(&self) -> usize {
        (self.grads.capacity() + self.losses.capacity()) * size_of::<E>()
    }
}

/// The gradient of the batch, to which the chunks are added in their order.
struct Adding<'a, 's, E> {
    sum: &'a mut Sum<'s, E>,
    losses: &'a mut Vec<E>,
    variance: f64,
    /// What ends it before all is added, if anything does.
    watch: Option<&'a Watch>,
    /// Of the last chunk that was added, or of the first that was not.
    outcome: Result<()>,
}

impl<E: LaneFloat> Adding<'_, '_, E> {
    fn add(&mut self, number: usize, found: &mut ChunkResult<E>) -> bool {
        self.outcome = std::mem::replace(&mut found.outcome, Ok(()));
        if self.outcome.is_ok() || found.is_kept {
            let added = stop::watching(self.watch, || {
                self.sum.add(&found.grads, number == 0);
                stop::check()
            });
            if added.is_err() {
                self.outcome = added;
                return false;
            }
            self.losses.extend_from_slice(&found.losses[..found.n_finished]);
            self.variance += found.variance;
        }
        self.outcome.is_ok()
    }
}

impl<E: LaneFloat> Default for Team<E> {
    fn default() -> Self {
        Team { n_threads: 1, places: Vec::new(), room: EarlyResults::default(), chunks_of_job: 1, losses: Vec::new() }
    }
}

impl<E: LaneFloat> Team<E> {
    /// The gradient of a batch of more than one chunk.
    pub(super) fn gradient<M: LaneModel<E> + ?Sized>(
        &mut self,
        lanes: Lanes,
        pass: &mut Pass<'_, '_, E, M>,
        params: &mut Parameters<'_, E>,
        chunks: Chunks,
        seed: E,
    ) -> Result<()> {
        params.with_grads_apart(|params, sum| self.sum(lanes, pass, (params, Asked::all(params), sum), chunks, seed))
    }

    /// As [`Team::gradient`], of what is asked for.
    pub(super) fn sum<M: LaneModel<E> + ?Sized>(
        &mut self,
        lanes: Lanes,
        pass: &mut Pass<'_, '_, E, M>,
        (params, asked, mut sum): (&Parameters<'_, E>, Asked<'_>, Sum<'_, E>),
        chunks: Chunks,
        seed: E,
    ) -> Result<()> {
        // The last chunk is handed on while it is computed, by the caller.
        let n_chunks = chunks.len() - usize::from(pass.consumer.is_some());
        self.prepare(n_chunks, sum.len(), chunks.size)?;
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
            let outcome = self.job(lanes, pass, (params, asked, &mut sum), (chunks, seed), first..first + n);
            pass.n_finished += self.losses.len();
            let per_chunk = (began.elapsed() / n as u32).max(Duration::from_nanos(1));
            self.chunks_of_job = (JOB.as_nanos() / per_chunk.as_nanos()) as usize;
            for (sample, &loss) in (chunks.samples(first).start..).zip(&self.losses) {
                (pass.each)(sample, loss);
            }
            outcome?;
            first += n;
        }
        match pass.consumer.is_some() {
            true => self.hand_on(lanes, pass, (params, asked, &mut sum), (chunks, seed)),
            false => Ok(()),
        }
    }

    /// Computes the last chunk and hands on what it completes.
    fn hand_on<M: LaneModel<E> + ?Sized>(
        &mut self,
        lanes: Lanes,
        pass: &mut Pass<'_, '_, E, M>,
        (params, asked, sum): (&Parameters<'_, E>, Asked<'_>, &mut Sum<'_, E>),
        (chunks, seed): (Chunks, E),
    ) -> Result<()> {
        let (Some(consume), Some(place)) = (pass.consumer.take(), self.places.first_mut()) else { return Ok(()) };
        let Worker { workspace, found } = place.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut add = |range: Range<usize>, part: &mut [E]| consume(range.clone(), sum.add_range(range, part));
        let Pass { model, batch, skips_losses, .. } = *pass;
        let interrupted: Interrupted<'_> = match &mut pass.interrupted {
            Some(interrupted) => Some(&mut **interrupted),
            None => None,
        };
        let (each, consumer) = (&mut *pass.each, Some(&mut add as &mut Consume<'_, E>));
        let mut last = Pass { skips_losses, consumer, ..Pass::new(model, batch, interrupted, each, 1) };
        let samples = chunks.samples(chunks.len() - 1);
        workspace.gradient(lanes, &mut last, &mut Sink::Apart(params, &mut found.grads, asked), samples, seed)
    }

    /// Adds the gradients of some chunks, in their order; the first of a batch overwrites what was there.
    fn job<M: LaneModel<E> + ?Sized>(
        &mut self,
        lanes: Lanes,
        pass: &mut Pass<'_, '_, E, M>,
        (params, asked, sum): (&Parameters<'_, E>, Asked<'_>, &mut Sum<'_, E>),
        (chunks, seed): (Chunks, E),
        numbers: Range<usize>,
    ) -> Result<()> {
        let Team { places, losses, room, .. } = self;
        losses.clear();
        losses.try_reserve(numbers.len() * chunks.size).map_err(out_of_memory::<E>(numbers.len() * chunks.size))?;
        let (model, batch, skips_losses, watch) = (pass.model, pass.batch, pass.skips_losses, pass.watch);
        let again = pass.random.as_ref().map(Random::again);
        let variance = pass.random.as_ref().map_or(0.0, |random| random.variance);
        // What is kept is added as a whole.
        let ends_early = watch.filter(|watch| watch.ends_sweeps);
        let adding = Adding { sum, losses, variance, watch: ends_early, outcome: Ok(()) };
        let each_has_a_core = places.len() <= sync::n_cores();
        let turns = OrderedReduction::new(adding, numbers.start, each_has_a_core, std::mem::take(room), Adding::add);
        let compute = |number: usize, interrupted: Interrupted<'_>| {
            let turn = turns.claim(number);
            let mut place = places.iter().find_map(|place| place.try_lock().ok()).expect("a place for each thread");
            let Worker { workspace, found } = &mut *place;
            let ChunkResult { grads, losses, n_finished, is_kept, variance, outcome } = found;
            losses.clear();
            let mut each = |_, loss| losses.push(loss);
            let random = again.as_ref().map(Random::again);
            let mut part = Pass { skips_losses, watch, random, ..Pass::new(model, batch, interrupted, &mut each, 1) };
            let samples = chunks.samples(number);
            *outcome = workspace.gradient(lanes, &mut part, &mut Sink::Apart(params, grads, asked), samples, seed);
            (*is_kept, *n_finished) = (part.keeps(outcome), part.n_finished);
            *variance = part.random.map_or(0.0, |random| random.variance);
            turn.hand_over(found);
        };
        match &mut pass.interrupted {
            Some(interrupted) if numbers.len() == 1 => compute(numbers.start, Some(&mut **interrupted)),
            _ => sync::run(places.len(), numbers.len(), &|k| compute(numbers.start + k, None)),
        }
        let (adding, left) = turns.into_parts();
        *room = left;
        let Some(Adding { variance, outcome, .. }) = adding else { return Ok(()) };
        pass.random.iter_mut().for_each(|random| random.variance = variance);
        outcome
    }

    /// What the threads keep between calls.
    pub(super) fn memory(&self) -> OracleMemory {
        let adjoints = self.room.spares.iter().map(ChunkResult::bytes).sum();
        self.places.iter().map(|place| place.lock().unwrap_or_else(|poisoned| poisoned.into_inner())).fold(
            OracleMemory { adjoints, ..OracleMemory::default() },
            |sum, place| {
                let adjoints = place.found.bytes();
                sum + place.workspace.memory() + OracleMemory { adjoints, ..OracleMemory::default() }
            },
        )
    }

    /// Makes sure of the memory.
    fn prepare(&mut self, n_chunks: usize, n_parameters: usize, chunk: usize) -> Result<()> {
        let n_places = self.n_threads.min(n_chunks).clamp(1, MAX_PLACES);
        self.places.truncate(n_places);
        while self.places.len() < n_places {
            let place = Worker { workspace: Workspace::default(), found: ChunkResult::NOTHING };
            self.places.try_reserve(1).map_err(out_of_memory::<E>(1))?;
            self.places.push(Mutex::new(place));
        }
        for place in &mut self.places {
            // A panic left it, but what is in it is overwritten.
            place.clear_poison();
            place.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).found.prepare(n_parameters, chunk)?;
        }
        // Who has its last chunk does not wait.
        let n_spares = if n_chunks > n_places { n_places / 2 } else { 0 };
        let EarlyResults { spares, early } = &mut self.room;
        spares.truncate(n_spares);
        let more = n_spares - spares.len();
        spares.try_reserve(more).map_err(out_of_memory::<E>(n_spares))?;
        early.try_reserve(n_spares).map_err(out_of_memory::<E>(n_spares))?;
        spares.extend((0..more).map(|_| ChunkResult::NOTHING));
        spares.iter_mut().try_for_each(|spare| spare.prepare(n_parameters, chunk))
    }
}

fn out_of_memory<E>(n: usize) -> impl Fn(std::collections::TryReserveError) -> Error {
    move |_| Error::OutOfMemory { bytes: n * size_of::<E>(), what: "the gradient of a chunk of samples" }
}
