//! Methods with error feedback, whose compressors may be biased: EF14 and EF21 with its variants.

use super::batches::LocalSteps;
use super::clients::{Clients, NUMBER, Rounds};
use super::kept::{Kept, Vectors, is_rounded};
use super::method::{Cost, Env, Method, Part, zeros};
use super::reduced::probability;
use super::terms::Samples;
use crate::compress::{Client, Compressor, Message};
use crate::draw::{Draw, Purpose};
use crate::error::{Error, Result};
use crate::kernels;
use crate::scalar::Float;

/// EF14 (Seide et al. 2014): client i sends m_i = C(e_i + step grad f_i(x)) and keeps `e_i+ = e_i + step grad f_i(x) - m_i`; x+ is
/// x less the mean of m_i.
#[derive(Debug)]
pub struct Ef14 {
    clients: Clients,
    errors: Kept<f64>,
    new: Kept<f64>,
}

impl Ef14 {
    /// With errors that start at 0.
    pub fn new(clients: Clients) -> Self {
        Ef14 { clients, errors: Kept::default(), new: Kept::default() }
    }
}

impl Method for Ef14 {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        env.without_prox()?;
        let rows = || Kept::new(self.clients.n_here(), &zeros(x.len())?);
        (self.errors, self.new) = (rows()?, rows()?);
        Ok(Cost::default())
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        let (step, errors, new) = (env.step, &self.errors, &self.new);
        let cost = self.clients.compress(env, None, None, &|who, worker, room| {
            let calls = room.grad(env, x, None, Samples::mean(&worker.samples))?;
            errors.read(who.here, |own| room.g.iter_mut().zip(own).for_each(|(g, e)| *g = e + step * *g));
            new.put(who.here, &mut room.g).map(|()| calls)
        })?;
        next.copy_from_slice(x);
        self.clients.add_sum(0, -1.0 / self.clients.n() as f64, next);
        Ok(cost)
    }

    fn commit(&mut self) {
        for (here, message) in self.clients.sent() {
            self.errors.swap(here, &mut self.new);
            self.errors.add(here, -1.0, message);
        }
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn kept(&mut self) -> Vec<(&'static str, &mut dyn Vectors)> {
        vec![("e_i", &mut self.errors)]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (&[], None)
    }
}

/// EF21 (Richtarik, Sokolov and Fatkhullin 2021): `x+ = prox(x - step g)`; client i sends m_i = C(v_i - g_i), `g_i +=
/// m_i`, and g is the mean of all g_i. Here v_i is grad f_i(x+); with momentum (EF21-SGDM: Fatkhullin, Tyurin and
/// Richtarik 2023) `v_i+ = (1 - momentum) v_i + momentum grad`, of a batch of the client's samples. With cohorts it is
/// EF21-PP (Fatkhullin et al. 2021); with a compressing server, EF21-BC.
///
/// Clients store g_i and v_i as numbers of type `T`. For `f32`, m_i is the change of g_i when C(v_i - g_i) is added and
/// rounded, so that g stays the mean of all g_i.
#[derive(Debug)]
pub struct Ef21<T> {
    clients: Clients,
    local: LocalSteps,
    /// The momentum; 1 if v_i is not stored.
    momentum: f64,
    from_gradient: bool,
    shifts: Kept<T>,
    averages: Kept<T>,
    next_averages: Kept<T>,
    g: Vec<f64>,
    new: Vec<f64>,
    down: Option<Downlink>,
}

/// The server message of EF21-BC instead of g: C(mean of g_i - g), which every process adds to g.
#[derive(Debug)]
struct Downlink {
    compressor: Compressor,
    mean: Vec<f64>,
    new: Vec<f64>,
    rest: Vec<f64>,
    message: Message<f64>,
    /// Bits of the last message, which clients need before they compute.
    bits: f64,
}

impl Downlink {
    fn start(&mut self, g: &[f64]) -> Result<()> {
        self.mean = crate::memory::copied(g, "the state of the server")?;
        (self.new, self.rest, self.bits) = (zeros(g.len())?, zeros(g.len())?, g.len() as f64 * NUMBER);
        Ok(())
    }

    /// Sets `next` to g plus the message about the clients' messages.
    fn send(&mut self, env: &Env<'_>, clients: &Clients, g: &[f64], next: &mut [f64]) -> Result<()> {
        let n = clients.n();
        self.new.copy_from_slice(&self.mean);
        clients.add_sum(0, 1.0 / n as f64, &mut self.new);
        self.rest.iter_mut().zip(&self.new).zip(g).for_each(|((rest, mean), g)| *rest = mean - g);
        if !kernels::all_finite(&self.rest) {
            return Err(Error::Diverged { round: env.round + 1 });
        }
        // The server draws as the client after the last one.
        let mut draw = Draw::new(env.seed, env.round, n as u64, Purpose::Compression);
        self.compressor.compress(&self.rest, &mut draw, Client { index: 0, n: 1 }, &mut self.message)?;
        next.copy_from_slice(g);
        self.message.add_to(next, 1.0)
    }

    fn commit(&mut self) {
        std::mem::swap(&mut self.mean, &mut self.new);
        self.bits = self.message.bits();
    }
}

impl<T: Float> Ef21<T> {
    /// With g_i and v_i that start at the clients' gradients or at 0; `local` defines the cohort and the batches. An
    /// error for `f32` with a compressor that rounds, or scales its numbers: its messages could not represent the
    /// change of g_i.
    pub fn new(clients: Clients, local: LocalSteps, momentum: f64, from_gradient: bool) -> Result<Self> {
        if is_rounded::<T>() && !clients.send_numbers() {
            return Err(Error::BadArgument {
                what: "the compressor",
                expected: "Identity, TopK or TopLEK where clients keep float32: others cannot send what a rounded g_i moves by".into(),
                found: "another".into(),
            });
        }
        let (momentum, none) = (probability(momentum)?, Kept::default);
        let (shifts, averages, next_averages) = (none(), none(), none());
        let (g, new) = (Vec::new(), Vec::new());
        Ok(Ef21 { clients, local, momentum, from_gradient, shifts, averages, next_averages, g, new, down: None })
    }

    /// Makes the server compress its messages as well.
    pub fn set_downlink(&mut self, compressor: Compressor) {
        let (mean, new, rest, message) = (Vec::new(), Vec::new(), Vec::new(), Message::new());
        self.down = Some(Downlink { compressor, mean, new, rest, message, bits: 0.0 });
    }
}

impl<T: Float> Method for Ef21<T> {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        (self.g, self.new) = (zeros(x.len())?, zeros(x.len())?);
        let (shifts, cost) = self.clients.start(env, x, self.from_gradient, &mut self.g)?;
        if self.momentum < 1.0 {
            (self.averages, self.next_averages) = (shifts.copied()?, Kept::new(self.clients.n_here(), x)?);
        }
        self.shifts = shifts;
        self.down.iter_mut().try_for_each(|down| down.start(&self.g))?;
        Ok(cost)
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        env.descend(x, &self.g, next)?;
        self.local.draw_cohort(env)?;
        if let Some(down) = &self.down {
            self.clients.set_down(down.bits);
        }
        let (momentum, at) = (self.momentum, &*next);
        let (shifts, averages, next_averages, local) = (&self.shifts, &self.averages, &self.next_averages, &self.local);
        let round: Rounds<'_> = &|who, message| shifts.round(who.here, message);
        let rounds = is_rounded::<T>().then_some(round);
        let cost = self.clients.compress(env, Some(local.part()), rounds, &|who, worker, room| {
            let calls = local.grad(env, 0, who, worker, room, at, None)?;
            if momentum < 1.0 {
                averages.read(who.here, |own| {
                    room.g.iter_mut().zip(own).for_each(|(g, v)| *g = v.to_f64() + momentum * (*g - v.to_f64()));
                });
                next_averages.put(who.here, &mut room.g)?;
            }
            shifts.make(who.here)?;
            shifts.read(who.here, |own| room.g.iter_mut().zip(own).for_each(|(v, g)| *v -= g.to_f64()));
            Ok(calls)
        })?;
        if let Some(down) = &mut self.down {
            down.send(env, &self.clients, &self.g, &mut self.new)?;
            return Ok(cost);
        }
        self.new.copy_from_slice(&self.g);
        self.clients.add_sum(0, 1.0 / self.clients.n() as f64, &mut self.new);
        Ok(cost)
    }

    fn commit(&mut self) {
        self.down.iter_mut().for_each(Downlink::commit);
        for (here, message) in self.clients.sent() {
            self.shifts.add(here, 1.0, message);
            if self.momentum < 1.0 {
                self.averages.swap(here, &mut self.next_averages);
            }
        }
        std::mem::swap(&mut self.g, &mut self.new);
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        let mut parts = vec![("g", &mut self.g[..])];
        if let Some(down) = &mut self.down {
            parts.extend([("mean", &mut down.mean[..]), ("bits", std::slice::from_mut(&mut down.bits))]);
        }
        parts
    }

    fn kept(&mut self) -> Vec<(&'static str, &mut dyn Vectors)> {
        let mut all: Vec<(&'static str, &mut dyn Vectors)> = vec![("g_i", &mut self.shifts)];
        if self.momentum < 1.0 {
            all.push(("v_i", &mut self.averages));
        }
        all
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (self.local.part(), None)
    }
}
