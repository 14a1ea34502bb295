//! Methods whose clients take local steps between exchanges: Scaffnew, FedAvg and SCAFFOLD.

use super::batches::LocalSteps;
use super::clients::Clients;
use super::kept::{Kept, Vectors, is_rounded};
use super::method::{Cost, Env, Method, Part, zeros};
use super::reduced::probability;
use super::terms::Samples;
use super::worker::{Room, Sends};
use crate::error::{Error, Result};
use crate::scalar::Float;

/// Scaffnew, which is ProxSkip for clients (Mishchenko, Malinovsky, Stich and Richtarik 2022). A step is a local one:
/// `y_i = x_i - step (grad f_i(x_i) - h_i)`; with probability p all x_i become the mean of y_i and
/// `h_i += (p/step) (x_i - y_i)`, otherwise x_i becomes y_i. The iterate is the mean of all x_i; the sum of h_i stays 0.
#[derive(Debug)]
pub struct Scaffnew {
    clients: Clients,
    p: f64,
    from_gradient: bool,
    xs: Kept<f64>,
    ys: Kept<f64>,
    hs: Kept<f64>,
    mean: Vec<f64>,
    step: f64,
    coin: bool,
}

impl Scaffnew {
    /// With this probability of an exchange, and h_i that start at grad f_i - grad f or at 0.
    pub fn new(clients: Clients, p: f64, from_gradient: bool) -> Result<Self> {
        let (p, none) = (probability(p)?, Kept::default);
        let (xs, ys, hs) = (none(), none(), none());
        Ok(Scaffnew { clients, p, from_gradient, xs, ys, hs, mean: Vec::new(), step: 0.0, coin: false })
    }
}

impl Method for Scaffnew {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        env.without_prox()?;
        let rows = || Kept::new(self.clients.n_here(), x);
        (self.xs, self.ys, self.mean) = (rows()?, rows()?, zeros(x.len())?);
        let (mut hs, cost) = self.clients.start(env, x, self.from_gradient, &mut self.mean)?;
        if self.from_gradient {
            for here in 0..self.clients.n_here() {
                hs.row(here).iter_mut().zip(&self.mean).for_each(|(h, mean): (&mut f64, _)| *h -= mean);
            }
        }
        self.hs = hs;
        Ok(cost)
    }

    fn propose(&mut self, env: &mut Env<'_>, _: &[f64], next: &mut [f64]) -> Result<Cost> {
        let step = env.step;
        (self.step, self.coin) = (step, env.coin(self.p));
        let (xs, ys, hs) = (&self.xs, &self.ys, &self.hs);
        let sends = if self.coin { Sends::Numbers } else { Sends::Unsent };
        let cost = self.clients.each(env, None, sends, &|who, worker, room| {
            xs.make(who.here)?;
            hs.make(who.here)?;
            xs.read(who.here, |x| {
                let calls = room.grad(env, x, None, Samples::mean(&worker.samples))?;
                hs.read(who.here, |h| {
                    room.g.iter_mut().zip(x).zip(h).for_each(|((g, x), h)| *g = x - step * (*g - h));
                });
                ys.put(who.here, &mut room.g).map(|()| calls)
            })
        })?;
        next.fill(0.0);
        self.clients.add_sum(0, 1.0 / self.clients.n() as f64, next);
        self.mean.copy_from_slice(next);
        Ok(cost)
    }

    fn commit(&mut self) {
        let factor = self.p / self.step;
        for here in 0..self.clients.n_here() {
            if self.coin {
                self.xs.row(here).copy_from_slice(&self.mean);
                let (h, y) = (self.hs.row(here), self.ys.row(here));
                h.iter_mut().zip(&self.mean).zip(y).for_each(|((h, x), y)| *h += factor * (x - *y));
            } else {
                self.xs.swap(here, &mut self.ys);
            }
        }
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn kept(&mut self) -> Vec<(&'static str, &mut dyn Vectors)> {
        vec![("x_i", &mut self.xs), ("h_i", &mut self.hs)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (&[], Some(self.coin))
    }
}

/// FedAvg (McMahan et al. 2017): participating clients start at x and take local steps of SGD or gradient descent on
/// their own samples; x+ is the mean of their results.
#[derive(Debug)]
pub struct FedAvg {
    clients: Clients,
    local: LocalSteps,
}

impl FedAvg {
    /// With these local steps.
    pub fn new(clients: Clients, local: LocalSteps) -> Self {
        FedAvg { clients, local }
    }
}

impl Method for FedAvg {
    fn start(&mut self, env: &mut Env<'_>, _: &[f64]) -> Result<Cost> {
        env.without_prox()?;
        Ok(Cost::default())
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        self.local.draw_cohort(env)?;
        let local = &self.local;
        let cost = self.clients.each(env, Some(local.part()), Sends::Numbers, &|who, worker, room| {
            let calls = local.walk(env, who, worker, room, x, &|_| {})?;
            std::mem::swap(&mut room.g, &mut room.x);
            Ok(calls)
        })?;
        if local.part().is_empty() {
            next.copy_from_slice(x);
            return Ok(cost);
        }
        next.fill(0.0);
        self.clients.add_sum(0, 1.0 / local.part().len() as f64, next);
        Ok(cost)
    }

    fn commit(&mut self) {}

    fn parts(&mut self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (self.local.part(), None)
    }
}

/// SCAFFOLD (Karimireddy et al. 2020, option II): participating clients start at x and take steps `y -= step (grad
/// f_i(y) - c_i + c)`; then `c_i+ = c_i - c + (x - y)/(steps step)`, x moves by `server_step` times the mean of y - x,
/// and c stays the mean of all c_i.
///
/// Clients store c_i as numbers of type `T`. They send the change of the rounded c_i.
#[derive(Debug)]
pub struct Scaffold<T> {
    clients: Clients,
    local: LocalSteps,
    server_step: f64,
    from_gradient: bool,
    cs: Kept<T>,
    news: Kept<T>,
    c: Vec<f64>,
    new: Vec<f64>,
}

impl<T: Float> Scaffold<T> {
    /// With these local steps, and c_i that start at the clients' gradients or at 0.
    pub fn new(clients: Clients, local: LocalSteps, server_step: f64, from_gradient: bool) -> Result<Self> {
        if !(server_step > 0.0 && server_step.is_finite()) {
            let expected = "finite and above 0".into();
            return Err(Error::BadArgument { what: "server_step", expected, found: server_step.to_string() });
        }
        let (cs, news, c, new) = (Kept::default(), Kept::default(), Vec::new(), Vec::new());
        Ok(Scaffold { clients, local, server_step, from_gradient, cs, news, c, new })
    }
}

impl<T: Float> Method for Scaffold<T> {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        env.without_prox()?;
        (self.c, self.new) = (zeros(x.len())?, zeros(x.len())?);
        let (cs, cost) = self.clients.start(env, x, self.from_gradient, &mut self.c)?;
        (self.cs, self.news) = (cs, Kept::new(self.clients.n_here(), x)?);
        Ok(cost)
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        self.local.draw_cohort(env)?;
        let (d, cs, news, c, local) = (x.len(), &self.cs, &self.news, &self.c, &self.local);
        let share = 1.0 / (local.steps() as f64 * env.step);
        let cost = self.clients.each(env, Some(local.part()), Sends::Vectors(2), &|who, worker, room| {
            let correct = |g: &mut [f64]| {
                cs.read(who.here, |own| g.iter_mut().zip(own).zip(c).for_each(|((g, own), c)| *g += c - own.to_f64()));
            };
            let calls = local.walk(env, who, worker, room, x, &correct)?;
            let Room { g, x: y, .. } = room;
            g.clear();
            crate::memory::reserve_in(g, 2 * d, "what a client sends")?;
            // The change of the model, then the change of c_i.
            g.extend(y.iter().zip(x).map(|(y, x)| y - x));
            for (j, c) in c.iter().enumerate() {
                g.push(-share * g[j] - c);
            }
            cs.read(who.here, |own| {
                let moved = &mut g[d..];
                y.iter_mut().zip(own).zip(&*moved).for_each(|((new, own), moved)| *new = own.to_f64() + moved);
                news.put(who.here, y)?;
                if is_rounded::<T>() {
                    moved.iter_mut().zip(&*y).zip(own).for_each(|((moved, new), own)| *moved = new - own.to_f64());
                }
                Ok(calls)
            })
        })?;
        next.copy_from_slice(x);
        self.new.copy_from_slice(&self.c);
        if !local.part().is_empty() {
            self.clients.add_sum(0, self.server_step / local.part().len() as f64, next);
            self.clients.add_sum(1, 1.0 / self.clients.n() as f64, &mut self.new);
        }
        Ok(cost)
    }

    fn commit(&mut self) {
        self.clients.sent().for_each(|(here, _)| self.cs.swap(here, &mut self.news));
        std::mem::swap(&mut self.c, &mut self.new);
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("c", &mut self.c)]
    }

    fn kept(&mut self) -> Vec<(&'static str, &mut dyn Vectors)> {
        vec![("c_i", &mut self.cs)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (self.local.part(), None)
    }
}
