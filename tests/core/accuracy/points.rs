//! Where ops are taken: 64 special values, and random points from fixed seeds.

use burtorch_core::{DType, Float, Op};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// 64 values at which something may break: both zeros, the ends of the range, neighbours of one, kinks, multiples of
/// pi/2, the ends of what exp and tanh can tell apart, large arguments of periodic functions, infinities, NaN.
pub fn special<E: Float>() -> Vec<E> {
    let (epsilon, least, least_normal, most): (f64, f64, f64, f64) = match E::DTYPE {
        DType::Float32 => {
            (f32::EPSILON.into(), f64::from(f32::from_bits(1)), f32::MIN_POSITIVE.into(), f32::MAX.into())
        }
        _ => (f64::EPSILON, f64::from_bits(1), f64::MIN_POSITIVE, f64::MAX),
    };
    let overflow = most.ln();
    let positive = [
        0.0,
        least,
        3.0 * least,
        least_normal - least,
        least_normal,
        epsilon * epsilon,
        epsilon,
        1e-3,
        0.25,
        0.5,
        0.7517916243409713,
        0.76,
        1.0 - epsilon / 2.0,
        1.0,
        1.0 + epsilon,
        std::f64::consts::FRAC_PI_2,
        2.0,
        3.0,
        std::f64::consts::PI,
        10.0,
        20.0,
        40.0,
        overflow,
        overflow * (1.0 + epsilon),
        1000.0,
        1e5 + 0.5,
        1e10,
        1e22_f64.min(most / 4.0),
        most.sqrt(),
        most / 2.0,
        most,
    ];
    let mut all: Vec<E> = positive.iter().flat_map(|&x| [x, -x]).map(E::from_f64).collect();
    all.push(E::from_f64(f64::INFINITY));
    all.push(E::from_f64(f64::NAN));
    assert_eq!(all.len(), 64);
    all
}

/// Random operands: half of them from the op's interval, half of any finite bits.
pub struct Random {
    rng: ChaCha8Rng,
    domain: (f64, f64),
}

impl Random {
    pub fn new(op: Op) -> Self {
        Random { rng: ChaCha8Rng::seed_from_u64(op as u64), domain: op.info().domain }
    }

    pub fn inside<E: Float>(&mut self) -> E {
        let (low, high) = self.domain;
        E::from_f64(low + (high - low) * self.rng.random::<f64>())
    }

    pub fn anywhere<E: Float>(&mut self) -> E {
        loop {
            let x = match E::DTYPE {
                DType::Float32 => f64::from(f32::from_bits(self.rng.random())),
                DType::Float128 => return E::from_f128(f128::from_bits(self.rng.random::<u128>() & !(1 << 126))),
                _ => f64::from_bits(self.rng.random()),
            };
            if x.is_finite() {
                return E::from_f64(x);
            }
        }
    }

    /// Points of `N` operands.
    pub fn points<E: Float, const N: usize>(&mut self, n: usize) -> Vec<[E; N]> {
        let mut all = Vec::with_capacity(n);
        for k in 0..n {
            all.push(std::array::from_fn(|_| if k % 2 == 0 { self.inside() } else { self.anywhere() }));
        }
        all
    }
}
