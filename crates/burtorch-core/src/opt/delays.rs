//! Computation times of clients, on a virtual clock: seeded distributions.

use crate::draw::{Draw, Purpose};
use crate::error::{Error, Result};
use crate::memory;

/// The random factor of a worker's time for a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// 1.
    Fixed,
    /// Exponential distribution with mean 1.
    Exponential,
    /// exp(sigma z) with z standard normal: median 1.
    LogNormal(f64),
    /// Pareto distribution with this exponent, at least 1.
    Pareto(f64),
}

/// The time of a job of each worker: a number of seconds times a random factor, a function of (seed, job, worker).
#[derive(Clone, Debug)]
pub struct Delays {
    seconds: Vec<f64>,
    spread: Spread,
}

/// Checks that numbers are finite and above 0, or nonnegative.
fn check(what: &'static str, numbers: &[f64], is_zero_allowed: bool) -> Result<()> {
    let is_fine = |&x: &f64| x.is_finite() && (x > 0.0 || (is_zero_allowed && x == 0.0));
    match numbers.iter().find(|x| !is_fine(x)) {
        None => Ok(()),
        Some(wrong) => {
            let least = if is_zero_allowed { "at least 0" } else { "above 0" };
            Err(Error::BadArgument { what, expected: format!("finite and {least}"), found: wrong.to_string() })
        }
    }
}

impl Delays {
    /// For workers with these seconds per job.
    pub fn new(seconds: &[f64], spread: Spread) -> Result<Self> {
        check("the seconds of a worker", seconds, false)?;
        if let Spread::LogNormal(constant) | Spread::Pareto(constant) = spread {
            check("the constant of a distribution", &[constant], false)?;
        }
        Ok(Delays { seconds: memory::copied(seconds, "delays")?, spread })
    }

    /// Workers.
    pub fn n(&self) -> usize {
        self.seconds.len()
    }

    /// The time of a job of a worker.
    pub fn of(&self, seed: u64, job: u64, worker: usize) -> f64 {
        self.next(&mut Draw::new(seed, job, worker as u64, Purpose::Delay), worker)
    }

    /// The duration of the next job, from this sequence.
    pub(super) fn next(&self, draw: &mut Draw<'_>, worker: usize) -> f64 {
        let mut uniform = || 1.0 - draw.uniform();
        let factor = match self.spread {
            Spread::Fixed => 1.0,
            Spread::Exponential => -uniform().ln(),
            Spread::Pareto(exponent) => uniform().powf(-1.0 / exponent),
            Spread::LogNormal(sigma) => (sigma * draw.normal()).exp(),
        };
        self.seconds[worker] * factor
    }
}

/// How long a round of clients takes: computing, and exchanges with the server.
#[derive(Clone, Debug)]
pub struct Network {
    compute: Delays,
    latency: f64,
    bits_per_second: f64,
    dropout: f64,
}

/// The largest probability of losing a client's work.
const MOST_LOST: f64 = 0.99;

impl Network {
    /// `compute` is the time of an oracle call of each client; an exchange takes twice the latency plus its bits
    /// divided by the bandwidth, which may be infinite. With probability `dropout` a client's work in a round is lost,
    /// and it starts again.
    pub fn new(compute: Delays, latency: f64, bits_per_second: f64, dropout: f64) -> Result<Self> {
        check("latency", &[latency], true)?;
        if !(0.0..=MOST_LOST).contains(&dropout) {
            let expected = format!("at least 0 and at most {MOST_LOST}");
            return Err(Error::BadArgument { what: "dropout", expected, found: dropout.to_string() });
        }
        if bits_per_second.is_nan() || bits_per_second <= 0.0 {
            let (what, expected) = ("the bandwidth", "above 0".into());
            return Err(Error::BadArgument { what, expected, found: bits_per_second.to_string() });
        }
        Ok(Network { compute, latency, bits_per_second, dropout })
    }

    /// Clients.
    pub fn n(&self) -> usize {
        self.compute.n()
    }

    /// The time of a client in a round with this many oracle calls and an exchange of this many bits.
    pub(super) fn time(&self, seed: u64, round: u64, client: usize, calls: u64, bits: Option<f64>) -> f64 {
        let exchange = bits.map_or(0.0, |bits| 2.0 * self.latency + bits / self.bits_per_second);
        let draw = |purpose| Draw::new(seed, round, client as u64, purpose);
        let (mut delay, mut lost, mut time) = (draw(Purpose::Delay), draw(Purpose::Dropout), 0.0);
        loop {
            time += self.compute.next(&mut delay, client) * calls as f64 + exchange;
            if self.dropout == 0.0 || !lost.happens(self.dropout) {
                return time;
            }
        }
    }
}
