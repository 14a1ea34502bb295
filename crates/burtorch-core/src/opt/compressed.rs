//! Methods whose clients send vectors through unbiased compressors: DCGD, DIANA, MARINA and DASHA.

use super::batches::LocalSteps;
use super::clients::Clients;
use super::kept::{Kept, Vectors};
use super::method::{Cost, Env, Method, Part, zeros};
use super::reduced::probability;
use super::terms::Samples;
use crate::error::{Error, Result};

/// DIANA (Mishchenko, Gorbunov, Takac and Richtarik 2019): client i sends m_i = C(grad f_i(x) - h_i); `g = h + mean m_i`, then
/// `x+ = prox(x - step g)`, `h_i += alpha m_i`, and h is the mean of all h_i. With alpha = 0 and h = 0 it is DCGD.
#[derive(Debug)]
pub struct Diana {
    clients: Clients,
    alpha: f64,
    from_gradient: bool,
    shifts: Kept<f64>,
    h: Vec<f64>,
    g: Vec<f64>,
}

impl Diana {
    /// With a share `alpha` of messages that shifts take, and shifts that start at the clients' gradients or at 0.
    pub fn new(clients: Clients, alpha: f64, from_gradient: bool) -> Result<Self> {
        if !(0.0..=1.0).contains(&alpha) {
            let expected = "from 0 to 1".into();
            return Err(Error::BadArgument { what: "alpha", expected, found: alpha.to_string() });
        }
        Ok(Diana { clients, alpha, from_gradient, shifts: Kept::default(), h: Vec::new(), g: Vec::new() })
    }

    /// DCGD (Khirirat, Feyzmahdavian and Johansson 2018): without shifts.
    pub fn without_shifts(clients: Clients) -> Self {
        Diana { clients, alpha: 0.0, from_gradient: false, shifts: Kept::default(), h: Vec::new(), g: Vec::new() }
    }

    fn has_shifts(&self) -> bool {
        self.alpha > 0.0 || self.from_gradient
    }
}

impl Method for Diana {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        (self.h, self.g) = (zeros(x.len())?, zeros(x.len())?);
        if !self.has_shifts() {
            return Ok(Cost::default());
        }
        let (shifts, cost) = self.clients.start(env, x, self.from_gradient, &mut self.h)?;
        self.shifts = shifts;
        Ok(cost)
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        let shifts = self.has_shifts().then_some(&self.shifts);
        let cost = self.clients.send(env, None, x, None, shifts)?;
        self.g.copy_from_slice(&self.h);
        self.clients.add_sum(0, 1.0 / self.clients.n() as f64, &mut self.g);
        env.descend(x, &self.g, next)?;
        Ok(cost)
    }

    fn commit(&mut self) {
        if self.has_shifts() {
            let alpha = self.alpha;
            self.clients.sent().for_each(|(here, message)| self.shifts.add(here, alpha, message));
            // g - h is the mean of the messages.
            self.h.iter_mut().zip(&self.g).for_each(|(h, g)| *h += alpha * (g - *h));
        }
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        if self.has_shifts() { vec![("h", &mut self.h)] } else { Vec::new() }
    }

    fn kept(&mut self) -> Vec<(&'static str, &mut dyn Vectors)> {
        if self.has_shifts() { vec![("h_i", &mut self.shifts)] } else { Vec::new() }
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (&[], None)
    }
}

/// MARINA (Gorbunov, Burlachenko, Li and Richtarik 2021): `x+ = prox(x - step g)`; then with probability p all clients send
/// their gradients and g+ is the mean, otherwise they send C(grad f_i(x+) - grad f_i(x)) and g+ is g plus the mean. Where these
/// gradients are those of a batch of a client's samples it is VR-MARINA; where only a cohort sends them, PP-MARINA.
#[derive(Debug)]
pub struct Marina {
    clients: Clients,
    local: LocalSteps,
    p: f64,
    g: Vec<f64>,
    new: Vec<f64>,
    coin: Option<bool>,
}

impl Marina {
    /// With full gradients at this probability; `local` defines the cohort of the other steps, and the batches.
    pub fn new(clients: Clients, local: LocalSteps, p: f64) -> Result<Self> {
        Ok(Marina { clients, local, p: probability(p)?, g: Vec::new(), new: Vec::new(), coin: None })
    }
}

impl Method for Marina {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        (self.g, self.new) = (zeros(x.len())?, zeros(x.len())?);
        self.clients.mean_grad(env, x, &mut self.g)
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        env.descend(x, &self.g, next)?;
        let coin = env.coin(self.p);
        self.coin = Some(coin);
        if coin {
            return self.clients.mean_grad(env, next, &mut self.new);
        }
        self.local.draw_cohort(env)?;
        let (local, at) = (&self.local, &*next);
        let cost = self.clients.compress(env, Some(local.part()), None, &|who, worker, room| {
            local.grad(env, 0, who, worker, room, at, Some(x))
        })?;
        self.new.copy_from_slice(&self.g);
        self.clients.add_sum(0, local.scale(), &mut self.new);
        Ok(cost)
    }

    fn commit(&mut self) {
        std::mem::swap(&mut self.g, &mut self.new);
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("g", &mut self.g)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (if self.coin == Some(true) { &[] } else { self.local.part() }, self.coin)
    }
}

/// DASHA (Tyurin and Richtarik 2023): `x+ = prox(x - step g)`; client i sends m_i = C(grad f_i(x+) - h_i - a (g_i - h_i)), then
/// `g_i += m_i`, `h_i = grad f_i(x+)`, and g is the mean of all g_i.
#[derive(Debug)]
pub struct Dasha {
    clients: Clients,
    a: f64,
    from_gradient: bool,
    gs: Kept<f64>,
    hs: Kept<f64>,
    grads: Kept<f64>,
    g: Vec<f64>,
    new: Vec<f64>,
}

impl Dasha {
    /// With this share of g_i - h_i, and g_i that start at the clients' gradients, which they send, or at 0.
    pub fn new(clients: Clients, a: f64, from_gradient: bool) -> Result<Self> {
        let (a, none) = (probability(a)?, Kept::default);
        let (g, new) = (Vec::new(), Vec::new());
        Ok(Dasha { clients, a, from_gradient, gs: none(), hs: none(), grads: none(), g, new })
    }
}

impl Method for Dasha {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        (self.g, self.new) = (zeros(x.len())?, zeros(x.len())?);
        self.grads = Kept::new(self.clients.n_here(), x)?;
        if self.from_gradient {
            let (gs, cost) = self.clients.start(env, x, true, &mut self.g)?;
            (self.hs, self.gs) = (gs.copied()?, gs);
            return Ok(cost);
        }
        let (hs, cost) = self.clients.own_grads(env, x)?;
        (self.hs, self.gs) = (hs, Kept::new(self.clients.n_here(), &self.g)?);
        Ok(cost)
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        env.descend(x, &self.g, next)?;
        let (a, gs, hs, grads, at) = (self.a, &self.gs, &self.hs, &self.grads, &*next);
        let cost = self.clients.compress(env, None, None, &|who, worker, room| {
            let calls = room.grad(env, at, None, Samples::mean(&worker.samples))?;
            grads.put(who.here, &mut room.g)?;
            gs.make(who.here)?;
            let new = &mut room.g;
            gs.read(who.here, |gs| {
                hs.read(who.here, |hs| {
                    new.iter_mut().zip(gs.iter().zip(hs)).for_each(|(new, (g, h))| *new -= h + a * (g - h));
                });
            });
            Ok(calls)
        })?;
        self.new.copy_from_slice(&self.g);
        self.clients.add_sum(0, 1.0 / self.clients.n() as f64, &mut self.new);
        Ok(cost)
    }

    fn commit(&mut self) {
        for (here, message) in self.clients.sent() {
            self.gs.add(here, 1.0, message);
            self.hs.swap(here, &mut self.grads);
        }
        std::mem::swap(&mut self.g, &mut self.new);
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("g", &mut self.g)]
    }

    fn kept(&mut self) -> Vec<(&'static str, &mut dyn Vectors)> {
        vec![("g_i", &mut self.gs), ("h_i", &mut self.hs)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (&[], None)
    }
}
