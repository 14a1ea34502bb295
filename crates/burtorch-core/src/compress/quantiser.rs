//! Rounding of sent numbers.

use super::message::{Message, Values};
use super::number::Number;
use super::top::not_a_number;
use crate::draw::Draw;
use crate::error::{Error, Result};
use crate::interrupt::{Work, ask_at};

/// How numbers are rounded. Of the k numbers that are sent:
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantiser {
    /// No quantisation.
    None,
    /// To one of the two nearest powers of two, unbiased (Horvath et al. 2019, "Natural compression"): omega = 1/8.
    /// Subnormal numbers are rounded to the smallest normal number or to 0; numbers above the largest power of two are
    /// refused.
    Natural,
    /// To one of the two nearest multiples of |x|/s, unbiased (Alistarh et al. 2017, QSGD): omega = min(k/s^2, sqrt(k)/s).
    Dithering(u16),
    /// To one of the two nearest of 0 and the s powers of two from |x| down, unbiased (Horvath et al. 2019): omega = 1/8 + b
    /// min(1, b), b = sqrt(k) 2^(1-s).
    NaturalDithering(u16),
    /// To 0 or the largest magnitude, unbiased (Wen et al. 2017, TernGrad): omega = (sqrt(k) - 1)/2.
    Ternary,
    /// To the mean magnitude with the number's sign (Karimireddy et al. 2019): alpha = 1/k.
    Sign,
}

/// Levels of natural dithering; with more, the smallest level would not be a normal float32.
const MOST_POWERS: u16 = 100;

fn refused<F: Number>(x: &[F], expected: &str) -> Error {
    match x.iter().position(|x| x.magnitude() > F::INFINITE) {
        Some(index) => not_a_number(index),
        None => Error::BadArgument {
            what: "a vector to compress",
            expected: expected.into(),
            found: "a larger number".into(),
        },
    }
}

impl Quantiser {
    /// Checks the constants.
    pub(super) fn check(self) -> Result<()> {
        let most = if let Quantiser::NaturalDithering(_) = self { MOST_POWERS } else { u16::MAX };
        match self {
            Quantiser::Dithering(levels) | Quantiser::NaturalDithering(levels) if !(1..=most).contains(&levels) => {
                Err(Error::BadArgument {
                    what: "the number of levels",
                    expected: format!("1 to {most}"),
                    found: levels.to_string(),
                })
            }
            _ => Ok(()),
        }
    }

    /// The variance constant for `k` numbers, if the quantiser is unbiased.
    pub(super) fn omega(self, k: usize) -> Option<f64> {
        let root = (k as f64).sqrt();
        match self {
            Quantiser::None => Some(0.0),
            Quantiser::Natural => Some(0.125),
            Quantiser::Dithering(levels) => {
                let step = root / f64::from(levels);
                Some(step * step.min(1.0))
            }
            Quantiser::NaturalDithering(levels) => {
                let least = root * 2f64.powi(1 - i32::from(levels));
                Some(0.125 + least * least.min(1.0))
            }
            Quantiser::Ternary => Some((root - 1.0) / 2.0),
            Quantiser::Sign => None,
        }
    }

    /// Rounds the numbers of a message.
    pub(super) fn round<F: Number>(self, draw: &mut Draw<'_>, out: &mut Message<F>) -> Result<()> {
        if out.numbers.is_empty() {
            return Ok(());
        }
        let unit = match self {
            Quantiser::None => return Ok(()),
            Quantiser::Natural => {
                natural(&mut out.numbers, draw)?;
                out.values = Values::Natural;
                return Ok(());
            }
            Quantiser::Dithering(levels) => {
                out.values = Values::Levels(levels);
                let unit = above::<F>(norm(&out.numbers)? / f64::from(levels));
                stochastic(&mut out.numbers, draw, unit, |y, u| {
                    let low = y as u64 as f64;
                    (low + f64::from(u < y - low)).min(levels.into())
                })?;
                unit
            }
            Quantiser::NaturalDithering(levels) => {
                out.values = Values::Powers(levels);
                let unit = above::<F>(norm(&out.numbers)?);
                let least = 2f64.powi(1 - i32::from(levels));
                stochastic(&mut out.numbers, draw, unit, |y, u| {
                    let power = f64::of_bits(y.bits() >> f64::MANTISSA << f64::MANTISSA);
                    let (low, high) = if y < least { (0.0, least) } else { (power, 2.0 * power) };
                    if u * (high - low) < y - low { high } else { low }
                })?;
                unit
            }
            Quantiser::Ternary => {
                out.values = Values::Levels(1);
                let unit = F::from_f64(largest(&out.numbers)?);
                stochastic(&mut out.numbers, draw, unit, |y, u| f64::from(u < y))?;
                unit
            }
            Quantiser::Sign => {
                out.values = Values::Signs;
                let unit = F::from_f64(mean_magnitude(&out.numbers)?);
                out.numbers.iter_mut().for_each(|x| *x = F::from_f64(1.0).with_sign_of(*x));
                unit
            }
        };
        out.unit = out.unit * unit;
        Ok(())
    }
}

/// Rounds to powers of two: adds a random mantissa, whose carry decides the direction. With a draw u it rounds up where
/// u >= 1 - m for the mantissa m in [0, 1).
fn natural<F: Number>(numbers: &mut [F], draw: &mut Draw<'_>) -> Result<()> {
    let above_powers = F::INFINITE - (1 << F::MANTISSA);
    if numbers.iter().any(|x| x.magnitude() > above_powers) {
        let most = F::of_bits(above_powers).to_f64();
        return Err(refused(numbers, &format!("of numbers of at most {most:e}, the largest power of two")));
    }
    let mut work = Work::default();
    for x in numbers {
        work.add(4)?;
        let carried = x.bits() + (draw.word() >> (64 - F::MANTISSA));
        *x = F::of_bits(carried >> F::MANTISSA << F::MANTISSA);
    }
    Ok(())
}

/// Replaces each number by `rule(magnitude / unit, draw)`, with its sign.
fn stochastic<F: Number>(
    numbers: &mut [F],
    draw: &mut Draw<'_>,
    unit: F,
    rule: impl Fn(f64, f64) -> f64,
) -> Result<()> {
    let wide = unit.to_f64();
    let mut work = Work::default();
    for x in numbers {
        work.add(4)?;
        let u = draw.uniform();
        let y = if wide > 0.0 { x.to_f64().abs() / wide } else { 0.0 };
        *x = F::from_f64(rule(y, u)).with_sign_of(*x);
    }
    Ok(())
}

/// The nearest number that is not below x, so that numbers divided by it do not exceed the largest level.
fn above<F: Number>(x: f64) -> F {
    let near = F::from_f64(x);
    if near.to_f64() < x { F::of_bits(near.bits() + 1) } else { near }
}

/// The largest magnitude; an error for numbers that are not finite.
fn largest<F: Number>(numbers: &[F]) -> Result<f64> {
    let most = numbers.iter().fold(0, |most, x| x.magnitude().max(most));
    if most < F::INFINITE { Ok(F::of_bits(most).to_f64()) } else { Err(refused(numbers, "of finite numbers")) }
}

/// Independent running sums, so that no addition waits for the previous one.
const SUMS: usize = 8;

/// The sum of a function of the magnitudes, scaled by a power of two to stay in range; also the scale and the largest
/// magnitude.
fn sum<F: Number>(numbers: &[F], of: impl Fn(f64) -> f64) -> Result<(f64, f64, f64)> {
    let most = largest(numbers)?;
    // The smallest scale is a subnormal number, whose reciprocal is still a power of two.
    let power = f64::of_bits(most.max(f64::MIN_POSITIVE * 4.0).bits() >> f64::MANTISSA << f64::MANTISSA);
    let scale = 1.0 / power;
    let mut sums = [0.0; SUMS];
    for (k, chunk) in numbers.chunks(SUMS).enumerate() {
        ask_at(k)?;
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += of(x.to_f64().abs() * scale);
        }
    }
    Ok((sums.iter().sum(), power, most))
}

/// The Euclidean norm, at least the largest magnitude.
fn norm<F: Number>(numbers: &[F]) -> Result<f64> {
    let (squares, power, most) = sum(numbers, |y| y * y)?;
    let norm = (squares.sqrt() * power).max(most);
    let is_in_range = norm < F::of_bits(F::INFINITE - 1).to_f64();
    if is_in_range { Ok(norm) } else { Err(refused(numbers, "of a norm that is finite")) }
}

fn mean_magnitude<F: Number>(numbers: &[F]) -> Result<f64> {
    let (magnitudes, power, _) = sum(numbers, |y| y)?;
    Ok(magnitudes / numbers.len() as f64 * power)
}
