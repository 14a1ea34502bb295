//! Accelerated gradient descent.

use super::method::{Cost, Env, Method, Part, zeros};
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
