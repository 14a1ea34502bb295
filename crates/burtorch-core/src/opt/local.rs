//! Methods whose clients take steps of their own between exchanges: Scaffnew and FedAvg.

use super::clients::Clients;
use super::method::{Cost, Env, Method, Part, zeros};
use super::prox::Prox;
use super::reduced::probability;
use super::sampling::{Sampler, Sampling};
use super::stochastic::draw_batch;
use super::terms::Samples;
use crate::error::{Error, Result};
use crate::sync::Mutex;

fn without_prox(env: &Env<'_>) -> Result<()> {
    if env.prox == Prox::Zero {
        return Ok(());
    }
    Err(Error::BadArgument {
        what: "prox",
        expected: "zero for a method with local steps".into(),
        found: "another".into(),
    })
}

/// Scaffnew, which is ProxSkip for clients (Mishchenko, Malinovsky, Stich and Richtarik 2022). A step is a local one:
/// `y_i = x_i - step (grad f_i(x_i) - h_i)`; with probability p all x_i become the mean of y_i and
/// `h_i += (p/step) (x_i - y_i)`, otherwise x_i becomes y_i. The iterate is the mean of all x_i; the sum of h_i stays 0.
#[derive(Debug)]
pub struct Scaffnew {
    clients: Clients,
    p: f64,
    from_gradient: bool,
    xs: Vec<f64>,
    hs: Vec<f64>,
    mean: Vec<f64>,
    step: f64,
    coin: bool,
}

impl Scaffnew {
    /// With this probability of an exchange, and h_i that start at grad f_i - grad f or at 0.
    pub fn new(clients: Clients, p: f64, from_gradient: bool) -> Result<Self> {
        let (p, none) = (probability(p)?, Vec::new);
        Ok(Scaffnew { clients, p, from_gradient, xs: none(), hs: none(), mean: none(), step: 0.0, coin: false })
    }
}

impl Method for Scaffnew {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        without_prox(env)?;
        let len = self.clients.n().checked_mul(x.len()).ok_or(crate::memory::refused::<f64>(usize::MAX, "models"))?;
        (self.xs, self.hs, self.mean) = (zeros(len)?, zeros(len)?, zeros(x.len())?);
        self.xs.chunks_exact_mut(x.len()).for_each(|own| own.copy_from_slice(x));
        if !self.from_gradient {
            return Ok(Cost::default());
        }
        let cost = self.clients.mean_grad(env, x, &mut self.mean)?;
        for (h, worker) in self.hs.chunks_exact_mut(x.len()).zip(self.clients.workers()) {
            h.iter_mut().zip(&worker.g).zip(&self.mean).for_each(|((h, own), mean)| *h = own - mean);
        }
        Ok(cost)
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        let (d, step) = (x.len(), env.step);
        (self.step, self.coin) = (step, env.coin(self.p));
        let (xs, hs) = (&self.xs, &self.hs);
        self.clients.each(env, &|k, worker| {
            let (x, h) = (&xs[k * d..][..d], &hs[k * d..][..d]);
            worker.grad(env, x, None)?;
            worker.g.iter_mut().zip(x).zip(h).for_each(|((g, x), h)| *g = x - step * (*g - h));
            Ok(())
        })?;
        self.clients.mean_of_g(next);
        self.mean.copy_from_slice(next);
        let round = self.clients.broadcast();
        let bits_up = round.bits_down;
        let exchange = Cost { bits_up, wire_bytes: bits_up as u64 / 8, ..round };
        Ok(if self.coin { exchange } else { Cost { oracle_calls: round.oracle_calls, ..Cost::default() } })
    }

    fn commit(&mut self) {
        let (d, factor) = (self.mean.len(), self.p / self.step);
        let own = self.xs.chunks_exact_mut(d).zip(self.hs.chunks_exact_mut(d));
        for ((x, h), worker) in own.zip(self.clients.workers()) {
            if self.coin {
                x.copy_from_slice(&self.mean);
                h.iter_mut().zip(&self.mean).zip(&worker.g).for_each(|((h, x), y)| *h += factor * (x - y));
            } else {
                x.copy_from_slice(&worker.g);
            }
        }
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("x_i", &mut self.xs), ("h_i", &mut self.hs)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (&[], Some(self.coin))
    }
}

/// FedAvg (McMahan et al. 2017): the clients that take part start at x and take so many steps, of SGD or of gradient descent,
/// on their own samples; x+ is the mean of where they arrive.
#[derive(Debug)]
pub struct FedAvg {
    clients: Clients,
    cohort: Sampler,
    local_steps: u64,
    batches: Vec<Mutex<Local>>,
}

#[derive(Debug)]
struct Local {
    sampler: Sampler,
    indices: Vec<u32>,
    x: Vec<f64>,
    calls: u64,
}

impl FedAvg {
    /// `cohort` draws the clients of a round, `batch` the samples of a local step.
    pub fn new(mut clients: Clients, cohort: Sampler, local_steps: u64, batch: &Sampling) -> Result<Self> {
        if local_steps == 0 {
            let expected = "at least 1".into();
            return Err(Error::BadArgument { what: "local_steps", expected, found: "0".into() });
        }
        let mut batches = Vec::new();
        for worker in clients.workers() {
            let sampler = Sampler::new(batch.clone(), worker.samples.len())?;
            batches.push(Mutex::new(Local { sampler, indices: Vec::new(), x: Vec::new(), calls: 0 }));
        }
        Ok(FedAvg { clients, cohort, local_steps, batches })
    }
}

impl Method for FedAvg {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        without_prox(env)?;
        for local in &mut self.batches {
            let local = local.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
            local.x = zeros(x.len())?;
        }
        Ok(Cost::default())
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        draw_batch(&mut self.cohort, env)?;
        let (batches, steps, step) = (&self.batches, self.local_steps, env.step);
        let part = self.cohort.samples();
        self.clients.each(env, &|k, worker| {
            let mut local = batches[k].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let Local { sampler, indices, x: own, calls } = &mut *local;
            *calls = 0;
            if !part.indices.contains(&(k as u32)) {
                return Ok(());
            }
            own.copy_from_slice(x);
            for j in 0..steps {
                // Client 0 of these draws is the server.
                sampler.draw(env.seed, env.round * steps + j, k as u64 + 1)?;
                indices.clear();
                indices.extend(sampler.samples().indices.iter().map(|&i| worker.samples[i as usize]));
                let samples = Samples { indices, ..sampler.samples() };
                worker.g.fill(0.0);
                env.problem.grad(own, None, samples, 1, &mut worker.workspace, &mut worker.g)?;
                own.iter_mut().zip(&worker.g).for_each(|(x, g)| *x -= step * g);
                *calls += samples.indices.len() as u64;
            }
            Ok(())
        })?;
        let mut cost = Cost { rounds: 1, ..Cost::default() };
        if part.indices.is_empty() {
            next.copy_from_slice(x);
            return Ok(cost);
        }
        next.fill(0.0);
        let share = 1.0 / part.indices.len() as f64;
        for &k in part.indices {
            let local = self.batches[k as usize].get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
            next.iter_mut().zip(&local.x).for_each(|(next, x)| *next += share * x);
            cost.oracle_calls += local.calls;
        }
        cost.bits_up = 64.0 * (part.indices.len() * x.len()) as f64;
        (cost.bits_down, cost.wire_bytes) = (cost.bits_up, cost.bits_up as u64 / 8);
        Ok(cost)
    }

    fn commit(&mut self) {}

    fn parts(&mut self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (self.cohort.samples().indices, None)
    }
}
