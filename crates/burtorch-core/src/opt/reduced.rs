//! Variance reduction: L-SVRG, SAGA and PAGE.

use super::method::{Cost, Env, Method, Part, zeros};
use super::sampling::Sampler;
use super::stochastic::draw_batch;
use super::terms::Samples;
use crate::error::{Error, Result};

fn calls(n: usize) -> Cost {
    Cost { oracle_calls: n as u64, ..Cost::default() }
}

/// L-SVRG (Kovalev, Horvath and Richtarik 2020): `g = grad_S f(x) - grad_S f(w) + grad f(w)`, then `x+ = prox(x - step g)`;
/// with probability p the reference point w becomes x.
#[derive(Debug)]
pub struct LSvrg {
    sampler: Sampler,
    p: f64,
    w: Vec<f64>,
    grad_w: Vec<f64>,
    g: Vec<f64>,
    new_w: Vec<f64>,
    new_grad: Vec<f64>,
    coin: Option<bool>,
}

/// Checks a probability, above 0 and at most 1.
pub(super) fn probability(p: f64) -> Result<f64> {
    if p > 0.0 && p <= 1.0 {
        return Ok(p);
    }
    Err(Error::BadArgument { what: "p", expected: "above 0 and at most 1".into(), found: p.to_string() })
}

impl LSvrg {
    /// With batches of this sampler and this probability of a new reference point.
    pub fn new(sampler: Sampler, p: f64) -> Result<Self> {
        let none = Vec::new;
        let p = probability(p)?;
        Ok(LSvrg { sampler, p, w: none(), grad_w: none(), g: none(), new_w: none(), new_grad: none(), coin: None })
    }
}

impl LSvrg {
    /// Estimates grad f(at) by a batch; returns the cost.
    pub(super) fn estimate(&mut self, env: &mut Env<'_>, at: &[f64]) -> Result<Cost> {
        draw_batch(&mut self.sampler, env)?;
        let samples = self.sampler.samples();
        env.grad_from([at, &self.w], &self.grad_w, samples, &mut self.g)?;
        Ok(calls(2 * samples.indices.len()))
    }

    /// The last estimate.
    pub(super) fn g(&self) -> &[f64] {
        &self.g
    }

    /// The reference point.
    pub(super) fn w(&self) -> &[f64] {
        &self.w
    }

    /// Moves the reference point to x with probability p.
    pub(super) fn renew(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        let coin = env.coin(self.p);
        self.coin = Some(coin);
        if !coin {
            return Ok(Cost::default());
        }
        self.new_w.copy_from_slice(x);
        env.full_grad(x, &mut self.new_grad)?;
        Ok(calls(env.problem.n()))
    }
}

impl Method for LSvrg {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        for list in [&mut self.w, &mut self.grad_w, &mut self.g, &mut self.new_w, &mut self.new_grad] {
            *list = zeros(x.len())?;
        }
        self.w.copy_from_slice(x);
        env.full_grad(x, &mut self.grad_w)?;
        Ok(calls(env.problem.n()))
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        let mut cost = self.estimate(env, x)?;
        env.descend(x, &self.g, next)?;
        cost += self.renew(env, x)?;
        Ok(cost)
    }

    fn commit(&mut self) {
        if self.coin == Some(true) {
            std::mem::swap(&mut self.w, &mut self.new_w);
            std::mem::swap(&mut self.grad_w, &mut self.new_grad);
        }
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("w", &mut self.w), ("grad_w", &mut self.grad_w)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (self.sampler.samples().indices, self.coin)
    }
}

/// SAGA (Defazio, Bach and Lacoste-Julien 2014): `g = mean over S of (grad f_i(x) - table_i) + mean of the table`, then
/// `x+ = prox(x - step g)`, and the gradients of S replace theirs in the table, which has n x d numbers.
#[derive(Debug)]
pub struct Saga {
    sampler: Sampler,
    table: Vec<f64>,
    mean: Vec<f64>,
    g: Vec<f64>,
    /// Gradients of the batch, one row each.
    new: Vec<f64>,
    at: Vec<u32>,
    n: usize,
}

impl Saga {
    /// With batches of this sampler, which are equally probable subsets.
    pub fn new(sampler: Sampler) -> Self {
        let none = Vec::new;
        Saga { sampler, table: none(), mean: none(), g: none(), new: none(), at: Vec::new(), n: 0 }
    }
}

impl Method for Saga {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        let (n, d) = (env.problem.n(), x.len());
        let len = n.checked_mul(d).ok_or(crate::memory::refused::<f64>(usize::MAX, "SAGA's table"))?;
        (self.n, self.table) = (n, zeros(len)?);
        (self.mean, self.g) = (zeros(d)?, zeros(d)?);
        for (i, row) in self.table.chunks_exact_mut(d).enumerate() {
            env.grad(x, None, Samples::mean(&[i as u32]), row)?;
        }
        for row in self.table.chunks_exact(d) {
            self.mean.iter_mut().zip(row).for_each(|(mean, g)| *mean += g / n as f64);
        }
        Ok(calls(n))
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        draw_batch(&mut self.sampler, env)?;
        let batch = self.sampler.samples().indices;
        let d = x.len();
        self.at.clear();
        crate::memory::reserve_in(&mut self.at, batch.len(), "a batch")?;
        self.at.extend_from_slice(batch);
        let new = super::linear::scratch_of(&mut self.new, batch.len() * d)?;
        self.g.copy_from_slice(&self.mean);
        for (&i, new) in batch.iter().zip(new.chunks_exact_mut(d)) {
            env.grad(x, None, Samples::mean(&[i]), new)?;
            let old = &self.table[i as usize * d..][..d];
            let b = batch.len() as f64;
            self.g.iter_mut().zip(&*new).zip(old).for_each(|((g, new), old)| *g += (new - old) / b);
        }
        env.descend(x, &self.g, next)?;
        Ok(calls(batch.len()))
    }

    fn commit(&mut self) {
        let (d, n) = (self.mean.len(), self.n as f64);
        for (&i, new) in self.at.iter().zip(self.new.chunks_exact(d)) {
            let old = &mut self.table[i as usize * d..][..d];
            self.mean.iter_mut().zip(new).zip(&*old).for_each(|((mean, new), old)| *mean += (new - old) / n);
            old.copy_from_slice(new);
        }
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("table", &mut self.table), ("mean", &mut self.mean)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (self.sampler.samples().indices, None)
    }
}

/// PAGE (Li, Bao, Zhang and Richtarik 2021): `x+ = prox(x - step g)`; then with probability p `g+ = grad f(x+)`, otherwise
/// `g+ = g + grad_S f(x+) - grad_S f(x)`.
#[derive(Debug)]
pub struct Page {
    sampler: Sampler,
    p: f64,
    g: Vec<f64>,
    new: Vec<f64>,
    coin: Option<bool>,
}

impl Page {
    /// With batches of this sampler and this probability of a full gradient.
    pub fn new(sampler: Sampler, p: f64) -> Result<Self> {
        Ok(Page { sampler, p: probability(p)?, g: Vec::new(), new: Vec::new(), coin: None })
    }
}

impl Method for Page {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        (self.g, self.new) = (zeros(x.len())?, zeros(x.len())?);
        env.full_grad(x, &mut self.g)?;
        Ok(calls(env.problem.n()))
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        env.descend(x, &self.g, next)?;
        let coin = env.coin(self.p);
        self.coin = Some(coin);
        if coin {
            env.full_grad(next, &mut self.new)?;
            return Ok(calls(env.problem.n()));
        }
        draw_batch(&mut self.sampler, env)?;
        let samples = self.sampler.samples();
        env.grad_from([next, x], &self.g, samples, &mut self.new)?;
        Ok(calls(2 * samples.indices.len()))
    }

    fn commit(&mut self) {
        std::mem::swap(&mut self.g, &mut self.new);
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("g", &mut self.g)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (if self.coin == Some(true) { &[] } else { self.sampler.samples().indices }, self.coin)
    }
}
