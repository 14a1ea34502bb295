//! Methods whose clients remember what a compressor left out, and may be biased: EF14 and EF21 with its variants.

use super::clients::{Clients, Who};
use super::compressed::{add_own, rows_of_zeros, start_shifts, take_own};
use super::local::LocalSteps;
use super::method::{Cost, Env, Method, Part, zeros};
use super::reduced::probability;
use super::terms::Samples;
use crate::error::Result;

/// EF14 (Seide et al. 2014): client i sends m_i = C(e_i + step grad f_i(x)) and keeps `e_i+ = e_i + step grad f_i(x) - m_i`; x+ is
/// x less the mean of m_i.
#[derive(Debug)]
pub struct Ef14 {
    clients: Clients,
    errors: Vec<f64>,
}

impl Ef14 {
    /// With errors that start at 0.
    pub fn new(clients: Clients) -> Self {
        Ef14 { clients, errors: Vec::new() }
    }
}

impl Method for Ef14 {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        super::local::without_prox(env)?;
        self.errors = rows_of_zeros(&self.clients, x.len())?;
        Ok(Cost::default())
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        let (d, step, errors) = (x.len(), env.step, &self.errors);
        let cost = self.clients.compress(env, None, &|who, worker, room| {
            let calls = room.grad(env, x, None, Samples::mean(&worker.samples))?;
            room.g.iter_mut().zip(&errors[who.here * d..]).for_each(|(g, e)| *g = e + step * *g);
            worker.keep(&room.g)?;
            Ok(calls)
        })?;
        next.copy_from_slice(x);
        self.clients.add_sum(0, -1.0 / self.clients.n() as f64, next);
        Ok(cost)
    }

    fn commit(&mut self) {
        let Some(d) = self.errors.len().checked_div(self.clients.n_here()) else { return };
        take_own(&mut self.clients, &mut self.errors, d);
        add_own(&mut self.clients, -1.0, &mut self.errors, d);
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("e_i", &mut self.errors)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (&[], None)
    }
}

/// EF21 (Richtarik, Sokolov and Fatkhullin 2021): `x+ = prox(x - step g)`; client i sends m_i = C(v_i - g_i), `g_i += m_i`, and g
/// is the mean of all g_i. Here v_i is grad f_i(x+); with momentum (EF21-SGDM: Fatkhullin, Tyurin and Richtarik 2023) `v_i+ = (1 -
/// momentum) v_i + momentum grad`, of a batch of the client's samples. Where only a cohort takes part it is EF21-PP
/// (Fatkhullin et al. 2021).
#[derive(Debug)]
pub struct Ef21 {
    clients: Clients,
    local: LocalSteps,
    /// 1 where v_i is not kept.
    momentum: f64,
    from_gradient: bool,
    shifts: Vec<f64>,
    averages: Vec<f64>,
    g: Vec<f64>,
    new: Vec<f64>,
}

impl Ef21 {
    /// With g_i and v_i that start at the clients' gradients or at 0; `local` says who takes part, and the batches.
    pub fn new(clients: Clients, local: LocalSteps, momentum: f64, from_gradient: bool) -> Result<Self> {
        let (momentum, none) = (probability(momentum)?, Vec::new);
        Ok(Ef21 { clients, local, momentum, from_gradient, shifts: none(), averages: none(), g: none(), new: none() })
    }
}

impl Method for Ef21 {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        (self.g, self.new) = (zeros(x.len())?, zeros(x.len())?);
        let (shifts, cost) = start_shifts(&mut self.clients, env, x, self.from_gradient, &mut self.g)?;
        if self.momentum < 1.0 {
            self.averages = crate::memory::copied(&shifts, "the state of clients")?;
        }
        self.shifts = shifts;
        Ok(cost)
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        env.descend(x, &self.g, next)?;
        self.local.draw_cohort(env)?;
        let (d, momentum, at) = (x.len(), self.momentum, &*next);
        let (shifts, averages, local) = (&self.shifts, &self.averages, &self.local);
        let row = |who: Who| who.here * d..(who.here + 1) * d;
        let cost = self.clients.compress(env, Some(local.part()), &|who, worker, room| {
            let calls = local.grad(env, 0, who, worker, room, at)?;
            if momentum < 1.0 {
                room.g.iter_mut().zip(&averages[row(who)]).for_each(|(g, v)| *g = v + momentum * (*g - v));
                worker.keep(&room.g)?;
            }
            room.g.iter_mut().zip(&shifts[row(who)]).for_each(|(v, g)| *v -= g);
            Ok(calls)
        })?;
        self.new.copy_from_slice(&self.g);
        self.clients.add_sum(0, 1.0 / self.clients.n() as f64, &mut self.new);
        Ok(cost)
    }

    fn commit(&mut self) {
        let d = self.g.len();
        add_own(&mut self.clients, 1.0, &mut self.shifts, d);
        if self.momentum < 1.0 {
            take_own(&mut self.clients, &mut self.averages, d);
        }
        std::mem::swap(&mut self.g, &mut self.new);
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        let mut parts = vec![("g_i", &mut self.shifts[..]), ("g", &mut self.g)];
        if self.momentum < 1.0 {
            parts.push(("v_i", &mut self.averages));
        }
        parts
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (self.local.part(), None)
    }
}
