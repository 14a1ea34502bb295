//! Initial values of parameters. Random ones come from ChaCha8, so a seed gives the same numbers on every machine.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::Shape;
use crate::error::{Error, Result};
use crate::interrupt::pieces;
use crate::scalar::Float;

/// How a tensor starts. "Fan in" is the last dimension, "fan out" the first; for a vector both are its length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// The same number everywhere.
    Constant(f64),
    /// Uniform in `[low, high)`.
    Uniform(f64, f64),
    /// Normal with this mean and standard deviation.
    Normal(f64, f64),
    /// Uniform with variance `2/(fan in + fan out)` (Glorot and Bengio 2010): for tanh and sigmoid.
    Glorot,
    /// Normal with that variance.
    GlorotNormal,
    /// Uniform with variance `2/fan in` (He et al. 2015): for relu.
    He,
    /// Normal with that variance.
    HeNormal,
    /// Uniform in `±1/sqrt(fan in)`: PyTorch's default for a linear layer.
    FanIn,
}

impl Init {
    /// The initialiser called `name`: zeros, ones, uniform, normal, glorot, glorot_normal, he, he_normal, fan_in.
    pub fn from_name(name: &str) -> Option<Init> {
        Some(match name {
            "zeros" => Init::Constant(0.0),
            "ones" => Init::Constant(1.0),
            "uniform" => Init::Uniform(-1.0, 1.0),
            "normal" => Init::Normal(0.0, 1.0),
            "glorot" => Init::Glorot,
            "glorot_normal" => Init::GlorotNormal,
            "he" => Init::He,
            "he_normal" => Init::HeNormal,
            "fan_in" => Init::FanIn,
            _ => return None,
        })
    }

    pub(super) fn check(self) -> Result<()> {
        let (expected, found) = match self {
            Init::Constant(x) if !x.is_finite() => ("a finite number", format!("{x}")),
            Init::Uniform(low, high) if !(low.is_finite() && high.is_finite() && low < high) => {
                ("finite bounds, low < high", format!("{low}, {high}"))
            }
            Init::Normal(mean, deviation) if !(mean.is_finite() && deviation.is_finite() && deviation >= 0.0) => {
                ("a finite mean and a deviation of at least 0", format!("{mean}, {deviation}"))
            }
            _ => return Ok(()),
        };
        Err(Error::BadArgument { what: "an initialiser", expected: expected.into(), found })
    }

    /// Fills `out`. Interruptible.
    pub(super) fn fill<E: Float>(self, out: &mut [E], shape: Shape, rng: &mut ChaCha8Rng) {
        let dims = shape.dims();
        let fan_in = f64::from(dims[dims.len() - 1]);
        let fan_out = f64::from(dims[0]);
        match self {
            Init::Constant(x) => out.fill(E::lit(x)),
            Init::Uniform(low, high) => uniform(out, low, high, rng),
            Init::Normal(mean, deviation) => normal(out, mean, deviation, rng),
            Init::Glorot => symmetric(out, (6.0 / (fan_in + fan_out)).sqrt(), rng),
            Init::GlorotNormal => normal(out, 0.0, (2.0 / (fan_in + fan_out)).sqrt(), rng),
            Init::He => symmetric(out, (6.0 / fan_in).sqrt(), rng),
            Init::HeNormal => normal(out, 0.0, (2.0 / fan_in).sqrt(), rng),
            Init::FanIn => symmetric(out, 1.0 / fan_in.sqrt(), rng),
        }
    }
}

fn symmetric<E: Float>(out: &mut [E], bound: f64, rng: &mut ChaCha8Rng) {
    uniform(out, -bound, bound, rng);
}

fn uniform<E: Float>(out: &mut [E], low: f64, high: f64, rng: &mut ChaCha8Rng) {
    for x in pieces(out.len()).flatten() {
        out[x] = E::lit(low + (high - low) * rng.random::<f64>());
    }
}

fn normal<E: Float>(out: &mut [E], mean: f64, deviation: f64, rng: &mut ChaCha8Rng) {
    for x in pieces(out.len()).flatten() {
        let z: f64 = StandardNormal.sample(rng);
        out[x] = E::lit(mean + deviation * z);
    }
}
