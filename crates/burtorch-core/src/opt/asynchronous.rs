//! Methods whose workers take different times, on a virtual clock: Rennala SGD, Ringmaster ASGD, MindFlayer SGD and FedBuff.
//!
//! Workers draw batches from all samples, except in FedBuff, whose clients have their own. The time of a job and its batches are
//! functions of (seed, job, worker), so a run is the same on every machine.

use super::delays::Delays;
use super::kept::{Kept, Vectors};
use super::method::{Cost, Env, Method, Part, zeros};
use super::parts;
use super::sampling::{Sampler, Sampling};
use super::terms::Samples;
use crate::draw::{Draw, Purpose};
use crate::error::{Error, Result};
use crate::memory;

/// Which gradients the server takes.
#[derive(Clone, Debug)]
pub enum Rule {
    /// Rennala SGD (Tyurin and Richtarik 2023): a step is the mean of the first gradients, this many, computed at x.
    Rennala(u64),
    /// Ringmaster ASGD (Maranjyan, Tyurin and Richtarik 2025, with stops): a step per gradient; jobs whose point is
    /// this many steps old are stopped, and their workers restart at the new point.
    Ringmaster(u64),
    /// MindFlayer SGD (Maranjyan, Shaikh Omar and Richtarik 2024): worker i makes `trials[i]` trials of at most
    /// `limits[i]` seconds; the sum of the gradients that finish in time is divided by `expected`, their mean number.
    MindFlayer {
        /// The number of trials of each worker per step.
        trials: Vec<u64>,
        /// The time after which a trial is stopped.
        limits: Vec<f64>,
        /// The mean number of trials that end in time.
        expected: f64,
    },
    /// FedBuff (Nguyen et al. 2022): clients take local steps from the point where they started; a step adds the mean
    /// of this many updates, regardless of when their clients started.
    FedBuff(u64),
}

/// The local steps of a job, for clients with their own samples.
#[derive(Debug, Default)]
struct Local {
    samples: Vec<Vec<u32>>,
    batches: Vec<Sampler>,
    steps: u64,
    server_step: f64,
    /// Workspace: the samples of a batch, the client's point, and its start.
    batch: Vec<u32>,
    own: Vec<f64>,
    start: Vec<f64>,
}

/// A method of workers that do not wait for each other.
#[derive(Debug)]
pub struct Asynchronous {
    rule: Rule,
    sampler: Sampler,
    local: Local,
    delays: Delays,
    /// For each worker: the end of its job, the number of the job, and the step at which it started.
    jobs: Vec<f64>,
    new_jobs: Vec<f64>,
    /// The points at which jobs started, one row each (Ringmaster, FedBuff).
    points: Kept<f64>,
    /// The iterate before the step, and the step count then.
    old: Vec<f64>,
    round: u64,
    time: f64,
    new_time: f64,
    g: Vec<f64>,
    one: Vec<f64>,
    next: Vec<f64>,
    used: Vec<u32>,
}

/// Numbers per worker in the list of jobs.
const JOB: usize = 3;

impl Asynchronous {
    /// Workers with these delays, whose batches the sampler draws.
    pub fn new(rule: Rule, sampler: Sampler, delays: Delays) -> Result<Self> {
        let n = delays.n();
        let bad =
            |what, expected: &str, found: String| Err(Error::BadArgument { what, expected: expected.into(), found });
        match &rule {
            _ if n == 0 => return bad("workers", "at least 1", "0".into()),
            Rule::Rennala(0) => return bad("gathered", "at least 1", "0".into()),
            Rule::Ringmaster(0) => return bad("max_delay", "at least 1", "0".into()),
            Rule::FedBuff(0) => return bad("buffer", "at least 1", "0".into()),
            Rule::MindFlayer { trials, limits, expected } => {
                if trials.len() != n || limits.len() != n {
                    return bad("trials and limits", &format!("one for each of the {n} workers"), "others".into());
                }
                let is_wrong = |x: &f64| x.is_nan() || *x <= 0.0;
                if limits.iter().any(is_wrong) || is_wrong(expected) {
                    return bad("limits", "above 0, and trials that may end in time", "others".into());
                }
            }
            _ => {}
        }
        let none = Vec::new;
        Ok(Asynchronous {
            rule,
            sampler,
            local: Local::default(),
            delays,
            jobs: none(),
            new_jobs: none(),
            points: Kept::default(),
            old: none(),
            round: 0,
            time: 0.0,
            new_time: 0.0,
            g: none(),
            one: none(),
            next: none(),
            used: Vec::new(),
        })
    }

    /// FedBuff with clients that own these samples and take this many steps on batches drawn by `batch`; and the weight
    /// of each sample in f, unless all are equal.
    pub fn of_clients(
        (buffer, server_step): (u64, f64),
        samples: Vec<Vec<u32>>,
        (steps, batch): (u64, &Sampling),
        delays: Delays,
        n_samples: usize,
    ) -> Result<(Self, Option<Vec<f64>>)> {
        let bad =
            |what, expected: &str, found: String| Err(Error::BadArgument { what, expected: expected.into(), found });
        parts::check(&samples, n_samples)?;
        if samples.len() != delays.n() {
            return bad("delays", &format!("of {} clients", samples.len()), delays.n().to_string());
        }
        if steps == 0 {
            return bad("local_steps", "at least 1", "0".into());
        }
        if !(server_step > 0.0 && server_step.is_finite()) {
            return bad("server_step", "finite and above 0", server_step.to_string());
        }
        let mut batches = memory::list_for(samples.len(), "the batches of clients")?;
        for own in &samples {
            batches.push(Sampler::new(batch.clone(), own.len())?);
        }
        let weights = parts::weights(&samples, n_samples)?;
        let mut new = Self::new(Rule::FedBuff(buffer), Sampler::new(Sampling::Full, n_samples)?, delays)?;
        new.local = Local { samples, batches, steps, server_step, ..Local::default() };
        Ok((new, weights))
    }

    /// The worker whose job ends first, and the time.
    fn first(&self) -> (usize, f64) {
        let ends = self.new_jobs.chunks_exact(JOB).map(|job| job[0]).enumerate();
        ends.fold((0, f64::INFINITY), |best, one| if one.1 < best.1 { one } else { best })
    }

    /// Whether a worker started a job in this step; its job number has changed.
    fn has_begun(&self, worker: usize) -> bool {
        self.new_jobs[worker * JOB + 1] != self.jobs[worker * JOB + 1]
    }

    /// Starts a worker's next job at this time and step count.
    fn restart(&mut self, env: &Env<'_>, worker: usize, now: f64, round: u64) {
        let job = self.new_jobs[worker * JOB + 1] as u64 + 1;
        let end = now + self.delays.of(env.seed, job, worker);
        self.new_jobs[worker * JOB..][..JOB].copy_from_slice(&[end, job as f64, round as f64]);
    }

    /// Adds `scale` times the gradient of a worker's job at `x` to `g`; returns the number of oracle calls.
    fn add_gradient(
        &mut self,
        env: &mut Env<'_>,
        job: u64,
        worker: usize,
        x: Option<&[f64]>,
        scale: f64,
    ) -> Result<u64> {
        match env.choices.batch {
            Some(batch) => self.sampler.take(batch)?,
            // Client 0 of these draws is the server.
            None => self.sampler.draw(env.seed, job, worker as u64 + 1)?,
        }
        if crate::interrupt::is_over() {
            return Err(Error::Interrupted);
        }
        let (samples, one) = (self.sampler.samples(), &mut self.one);
        match x {
            Some(x) => env.grad(x, None, samples, one)?,
            None => self.points.read(worker, |x| env.grad(x, None, samples, one))?,
        }
        self.g.iter_mut().zip(&self.one).for_each(|(g, one)| *g += scale * one);
        memory::reserve_in(&mut self.used, 1, "workers")?;
        self.used.push(worker as u32);
        Ok(samples.indices.len() as u64)
    }

    fn rennala(&mut self, env: &mut Env<'_>, x: &[f64], gathered: u64) -> Result<u64> {
        let (mut calls, mut left) = (0, gathered);
        while left > 0 {
            let (worker, now) = self.first();
            let job = &self.new_jobs[worker * JOB..][..JOB];
            let (number, is_fresh) = (job[1] as u64, job[2] as u64 == env.round);
            if is_fresh {
                calls += self.add_gradient(env, number, worker, Some(x), 1.0 / gathered as f64)?;
                left -= 1;
            }
            self.new_time = now;
            // The worker of the last gradient restarts at the new point.
            self.restart(env, worker, now, env.round + u64::from(left == 0));
        }
        Ok(calls)
    }

    fn ringmaster(&mut self, env: &mut Env<'_>, max_delay: u64) -> Result<u64> {
        let (worker, now) = self.first();
        let number = self.new_jobs[worker * JOB + 1] as u64;
        let calls = self.add_gradient(env, number, worker, None, 1.0)?;
        self.new_time = now;
        self.restart(env, worker, now, env.round + 1);
        for other in 0..self.delays.n() {
            if env.round + 1 - self.new_jobs[other * JOB + 2] as u64 >= max_delay {
                self.restart(env, other, now, env.round + 1);
            }
        }
        Ok(calls)
    }

    fn fed_buff(&mut self, env: &mut Env<'_>, x: &[f64], buffer: u64) -> Result<u64> {
        let mut calls = 0;
        for left in (0..buffer).rev() {
            let (worker, now) = self.first();
            calls += self.add_move(env, worker, x, self.local.server_step / buffer as f64)?;
            self.new_time = now;
            // The client of the last update restarts at the new point.
            self.restart(env, worker, now, env.round + u64::from(left == 0));
        }
        Ok(calls)
    }

    /// Subtracts `scale` times a client's update from `g`; returns the number of oracle calls.
    fn add_move(&mut self, env: &mut Env<'_>, worker: usize, x: &[f64], scale: f64) -> Result<u64> {
        let (job, since) = (self.new_jobs[worker * JOB + 1] as u64, self.new_jobs[worker * JOB + 2] as u64);
        let Local { samples, batches, steps, batch, own, start, .. } = &mut self.local;
        if since == env.round {
            start.copy_from_slice(x);
        } else {
            self.points.read(worker, |point| start.copy_from_slice(point));
        }
        own.copy_from_slice(start);
        let (mut calls, sampler) = (0, &mut batches[worker]);
        for j in 0..*steps {
            if crate::interrupt::is_over() {
                return Err(Error::Interrupted);
            }
            // Client 0 of these draws is the server.
            sampler.draw(env.seed, job * *steps + j, worker as u64 + 1)?;
            let drawn = sampler.samples();
            batch.clear();
            memory::reserve_in(batch, drawn.indices.len(), "a batch")?;
            batch.extend(drawn.indices.iter().map(|&i| samples[worker][i as usize]));
            env.grad(own, None, Samples { indices: batch, ..drawn }, &mut self.one)?;
            let step = env.step;
            own.iter_mut().zip(&self.one).for_each(|(x, g)| *x -= step * g);
            calls += batch.len() as u64;
        }
        self.g.iter_mut().zip(&*start).zip(&*own).for_each(|((g, start), own)| *g += scale * (start - own));
        memory::reserve_in(&mut self.used, 1, "workers")?;
        self.used.push(worker as u32);
        Ok(calls)
    }

    fn mind_flayer(
        &mut self,
        env: &mut Env<'_>,
        x: &[f64],
        (trials, limits, expected): (&[u64], &[f64], f64),
    ) -> Result<u64> {
        let (mut calls, mut longest) = (0, 0.0f64);
        for (worker, (&n, &limit)) in trials.iter().zip(limits).enumerate() {
            let mut draw = Draw::new(env.seed, env.round, worker as u64, Purpose::Delay);
            let mut busy = 0.0;
            for trial in 0..n {
                let time = self.delays.next(&mut draw, worker);
                busy += time.min(limit);
                if time <= limit {
                    calls += self.add_gradient(env, env.round * n + trial, worker, Some(x), 1.0 / expected)?;
                }
            }
            longest = longest.max(busy);
        }
        self.new_time = self.time + longest;
        Ok(calls)
    }
}

impl Method for Asynchronous {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        let n = self.delays.n();
        (self.g, self.one, self.next) = (zeros(x.len())?, zeros(x.len())?, zeros(x.len())?);
        if matches!(self.rule, Rule::MindFlayer { .. }) {
            return Ok(Cost::default());
        }
        (self.jobs, self.new_jobs) = (zeros(n * JOB)?, zeros(n * JOB)?);
        for worker in 0..n {
            self.jobs[worker * JOB] = self.delays.of(env.seed, 0, worker);
        }
        if matches!(self.rule, Rule::FedBuff(_)) {
            env.without_prox()?;
            (self.local.own, self.local.start) = (zeros(x.len())?, zeros(x.len())?);
        }
        if matches!(self.rule, Rule::Ringmaster(_) | Rule::FedBuff(_)) {
            (self.old, self.points) = (zeros(x.len())?, Kept::new(n, x)?);
        }
        Ok(Cost::default())
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        self.new_jobs.copy_from_slice(&self.jobs);
        self.g.fill(0.0);
        self.used.clear();
        let rule = std::mem::replace(&mut self.rule, Rule::Rennala(1));
        let done = match &rule {
            Rule::Rennala(gathered) => self.rennala(env, x, *gathered),
            Rule::Ringmaster(max_delay) => self.ringmaster(env, *max_delay),
            Rule::MindFlayer { trials, limits, expected } => self.mind_flayer(env, x, (trials, limits, *expected)),
            Rule::FedBuff(buffer) => self.fed_buff(env, x, *buffer),
        };
        self.rule = rule;
        let oracle_calls = done?;
        if matches!(self.rule, Rule::FedBuff(_)) {
            next.iter_mut().zip(x).zip(&self.g).for_each(|((next, x), g)| *next = x - g);
        } else {
            env.descend(x, &self.g, next)?;
        }
        self.next.copy_from_slice(next);
        if !self.old.is_empty() {
            self.old.copy_from_slice(x);
        }
        self.round = env.round;
        if self.points.n() > 0 {
            for worker in (0..self.delays.n()).filter(|&worker| self.has_begun(worker)) {
                self.points.make(worker)?;
            }
        }
        let time = self.new_time - self.time;
        let numbers = (self.used.len() * x.len()) as f64 * super::clients::NUMBER;
        let (bits_up, wire_bytes) = (numbers, numbers as u64 / 8);
        Ok(Cost { oracle_calls, bits_up, bits_down: numbers, wire_bytes, rounds: 1, time })
    }

    fn commit(&mut self) {
        for worker in 0..self.points.n() {
            if !self.has_begun(worker) {
                continue;
            }
            // Started at the new point, or before the step was complete.
            let is_new = self.new_jobs[worker * JOB + 2] as u64 > self.round;
            self.points.row(worker).copy_from_slice(if is_new { &self.next } else { &self.old });
        }
        std::mem::swap(&mut self.jobs, &mut self.new_jobs);
        self.time = self.new_time;
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("jobs", &mut self.jobs), ("time", std::slice::from_mut(&mut self.time))]
    }

    fn kept(&mut self) -> Vec<(&'static str, &mut dyn Vectors)> {
        vec![("points", &mut self.points)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (&self.used, None)
    }
}
