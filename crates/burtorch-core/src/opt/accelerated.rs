//! Methods with momentum: accelerated gradient descent and L-Katyusha.

use super::method::{Cost, Env, Method, Part, zeros};
use super::reduced::LSvrg;
use crate::error::{Error, Result};

/// Nesterov's method (2018, scheme (2.2.7); with a proximal term, FISTA of Beck and Teboulle 2009). With `y = x + share (z - x)`,
/// `x+ = prox(y - step grad f(y))` and G = (y - x+)/step: where f is mu-strongly convex, share = theta/(1 + theta) for theta = sqrt(mu step), and
/// `z+ = z + theta (y - z) - (theta/mu) G`; otherwise share = 1/t with t the larger root of t^2 - t = (last t)^2, and `z+ = z - t step G`.
#[derive(Debug)]
pub struct Accelerated {
    mu: f64,
    z: Vec<f64>,
    y: Vec<f64>,
    g: Vec<f64>,
    new: Vec<f64>,
    t: f64,
    next_t: f64,
}

impl Accelerated {
    /// For f of this strong convexity, which may be 0.
    pub fn new(mu: f64) -> Result<Self> {
        if !(mu >= 0.0 && mu.is_finite()) {
            let expected = "finite and at least 0".into();
            return Err(Error::BadArgument { what: "mu", expected, found: mu.to_string() });
        }
        let none = Vec::new;
        Ok(Accelerated { mu, z: none(), y: none(), g: none(), new: none(), t: 0.0, next_t: 0.0 })
    }
}

impl Method for Accelerated {
    fn start(&mut self, _: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        let (room, z) = (|| zeros(x.len()), crate::memory::copied(x, "the state of a method")?);
        (self.z, self.y, self.g, self.new) = (z, room()?, room()?, room()?);
        Ok(Cost::default())
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        let (step, mu) = (env.step, self.mu);
        let theta = (mu * step).sqrt();
        self.next_t = 0.5 + (0.25 + self.t * self.t).sqrt();
        let share = if mu > 0.0 { theta / (1.0 + theta) } else { 1.0 / self.next_t };
        self.y.iter_mut().zip(x).zip(&self.z).for_each(|((y, x), z)| *y = x + share * (z - x));
        env.full_grad(&self.y, &mut self.g)?;
        env.descend(&self.y, &self.g, next)?;
        let rows = self.new.iter_mut().zip(&self.z).zip(&self.y).zip(&*next);
        if mu > 0.0 {
            let factor = theta / (mu * step);
            rows.for_each(|(((new, z), y), x)| *new = z + theta * (y - z) - factor * (y - x));
        } else {
            rows.for_each(|(((new, z), y), x)| *new = z - self.next_t * (y - x));
        }
        Ok(Cost { oracle_calls: env.problem.n() as u64, ..Cost::default() })
    }

    fn commit(&mut self) {
        std::mem::swap(&mut self.z, &mut self.new);
        self.t = self.next_t;
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        vec![("z", &mut self.z), ("t", std::slice::from_mut(&mut self.t))]
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        (&[], None)
    }
}

/// L-Katyusha (Kovalev, Horvath and Richtarik 2020), with 1/2 as the weight of w: at `u = theta z + w/2 + (1/2 - theta) x` the estimate
/// is `g = grad_S f(u) - grad_S f(w) + grad f(w)`; `z+ = (step mu u + z - step g)/(1 + step mu)`, `x+ = u + theta (z+ - z)`; with
/// probability p the reference point w becomes x.
#[derive(Debug)]
pub struct LKatyusha {
    svrg: LSvrg,
    mu: f64,
    theta: f64,
    z: Vec<f64>,
    new: Vec<f64>,
    u: Vec<f64>,
}

impl LKatyusha {
    /// With the batches and reference points of `svrg`, this strong convexity, and theta from above 0 to 1/2.
    pub fn new(svrg: LSvrg, mu: f64, theta: f64) -> Result<Self> {
        for (what, found, is_right) in
            [("mu", mu, mu > 0.0 && mu.is_finite()), ("theta", theta, theta > 0.0 && theta <= 0.5)]
        {
            if !is_right {
                let expected = if what == "mu" { "finite and above 0" } else { "above 0 and at most 1/2" };
                return Err(Error::BadArgument { what, expected: expected.into(), found: found.to_string() });
            }
        }
        Ok(LKatyusha { svrg, mu, theta, z: Vec::new(), new: Vec::new(), u: Vec::new() })
    }
}

impl Method for LKatyusha {
    fn start(&mut self, env: &mut Env<'_>, x: &[f64]) -> Result<Cost> {
        env.without_prox()?;
        let room = || zeros(x.len());
        (self.z, self.new, self.u) = (crate::memory::copied(x, "the state of a method")?, room()?, room()?);
        self.svrg.start(env, x)
    }

    fn propose(&mut self, env: &mut Env<'_>, x: &[f64], next: &mut [f64]) -> Result<Cost> {
        let (theta, step, share) = (self.theta, env.step, env.step * self.mu);
        let points = self.u.iter_mut().zip(&self.z).zip(self.svrg.w()).zip(x);
        points.for_each(|(((u, z), w), x)| *u = theta * z + 0.5 * w + (0.5 - theta) * x);
        let mut cost = self.svrg.estimate(env, &self.u)?;
        let rows = self.new.iter_mut().zip(next).zip(&self.z).zip(&self.u).zip(self.svrg.g());
        rows.for_each(|((((new, next), z), u), g)| {
            *new = (share * u + z - step * g) / (1.0 + share);
            *next = u + theta * (*new - z);
        });
        cost += self.svrg.renew(env, x)?;
        Ok(cost)
    }

    fn commit(&mut self) {
        std::mem::swap(&mut self.z, &mut self.new);
        self.svrg.commit();
    }

    fn parts(&mut self) -> Vec<Part<'_>> {
        let mut parts = self.svrg.parts();
        parts.push(("z", &mut self.z));
        parts
    }

    fn drawn(&self) -> (&[u32], Option<bool>) {
        self.svrg.drawn()
    }
}
