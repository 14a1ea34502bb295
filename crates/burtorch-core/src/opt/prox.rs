//! Proximal operators: prox(x) = argmin_u step R(u) + |u - x|^2/2, in place.
//!
//! Promises: the operators of sets are projections, whatever the step and the scale; NaN stays NaN; no heap call after the first.
//! Does not know methods.

use crate::error::{Error, Result};
use crate::kernels;
use crate::memory;

/// A convex function R, or the indicator of a convex set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Prox {
    /// No regulariser.
    #[default]
    Zero,
    /// `a |x|_1`.
    L1(f64),
    /// `a/2 |x|^2`.
    L2Squared(f64),
    /// `a |x|_1 + b/2 |x|^2`.
    ElasticNet(f64, f64),
    /// `a <= x_j <= b`.
    Box(f64, f64),
    /// `x_j >= 0`, `sum x_j = a`.
    Simplex(f64),
    /// `|x|_1 <= a`.
    L1Ball(f64),
    /// `|x|_2 <= a`.
    L2Ball(f64),
    /// `max |x_j| <= a`.
    LinfBall(f64),
}

fn shrink(x: f64, by: f64) -> f64 {
    if x.abs() <= by { 0.0 } else { x - by.copysign(x) }
}

/// The nearest number in the interval; NaN for NaN, for which `f64::max` would return a bound.
fn clip(x: f64, low: f64, high: f64) -> f64 {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

impl Prox {
    /// The same after a check of its constants: factors at least 0, radii above 0, and a nonempty interval.
    pub fn checked(self) -> Result<Self> {
        let bad = |what, expected: &str, found: f64| {
            Err(Error::BadArgument { what, expected: expected.into(), found: found.to_string() })
        };
        match self {
            Prox::L1(a) | Prox::L2Squared(a) | Prox::ElasticNet(a, _) if !(a >= 0.0 && a.is_finite()) => {
                bad("a factor", "finite and at least 0", a)
            }
            Prox::ElasticNet(_, b) if !(b >= 0.0 && b.is_finite()) => bad("a factor", "finite and at least 0", b),
            Prox::Box(a, b) if a.is_nan() || b.is_nan() || a > b => {
                bad("the upper bound", "no smaller than the lower one", b)
            }
            Prox::Simplex(a) | Prox::L1Ball(a) | Prox::L2Ball(a) | Prox::LinfBall(a) if !(a > 0.0 && a.is_finite()) => {
                bad("a radius", "finite and above 0", a)
            }
            _ => Ok(self),
        }
    }

    /// R(x); 0 for sets, assuming that x is inside.
    pub fn value(&self, x: &[f64]) -> f64 {
        let sum = || x.iter().map(|x| x.abs()).sum::<f64>();
        let squares = || x.iter().map(|x| x * x).sum::<f64>();
        // A sum that overflows is infinite, and 0 times it would be NaN.
        let times = |a: f64, sum: &dyn Fn() -> f64| if a > 0.0 { a * sum() } else { 0.0 };
        match *self {
            Prox::L1(a) => times(a, &sum),
            Prox::L2Squared(a) => times(0.5 * a, &squares),
            Prox::ElasticNet(a, b) => times(a, &sum) + times(0.5 * b, &squares),
            _ => 0.0,
        }
    }

    /// Replaces `x`. Linear in its length, times the logarithm for the simplex and the l1 ball, of which a point that is not
    /// finite becomes NaN in all places.
    pub fn apply(&self, step: f64, x: &mut [f64], scratch: &mut Vec<f64>) -> Result<()> {
        match *self {
            Prox::Zero => {}
            Prox::L1(a) => x.iter_mut().for_each(|x| *x = shrink(*x, step * a)),
            Prox::L2Squared(a) => x.iter_mut().for_each(|x| *x /= 1.0 + step * a),
            Prox::ElasticNet(a, b) => x.iter_mut().for_each(|x| *x = shrink(*x, step * a) / (1.0 + step * b)),
            Prox::Box(a, b) => x.iter_mut().for_each(|x| *x = clip(*x, a, b)),
            Prox::LinfBall(a) => x.iter_mut().for_each(|x| *x = clip(*x, -a, a)),
            Prox::L2Ball(a) => onto_l2_ball(x, a),
            Prox::Simplex(a) => onto_simplex(x, a, |x| x, scratch)?,
            Prox::L1Ball(a) => {
                let sum: f64 = x.iter().map(|x| x.abs()).sum();
                if sum.is_nan() || sum > a {
                    onto_simplex(x, a, f64::abs, scratch)?;
                }
            }
        }
        Ok(())
    }
}

/// Sums of squares in this range have not overflowed or lost digits to underflow.
const SQUARES: std::ops::Range<f64> = 1e-280..1e300;

fn onto_l2_ball(x: &mut [f64], radius: f64) {
    let squares: f64 = x.iter().map(|x| x * x).sum();
    let norm = squares.sqrt();
    if SQUARES.contains(&squares) && (radius / norm).is_normal() {
        if norm > radius {
            x.iter_mut().for_each(|x| *x *= radius / norm);
        }
        return;
    }
    if x.iter().any(|x| !x.is_finite()) {
        return x.fill(f64::NAN);
    }
    // Scaled by the largest number, whose square may overflow.
    let largest = x.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    let share = x.iter().map(|x| (x / largest).powi(2)).sum::<f64>().sqrt();
    if largest > radius / share {
        x.iter_mut().for_each(|x| *x = *x / largest * (radius / share));
    }
}

/// Above this, a simplex is scaled down so that sums stay finite.
const LARGE: f64 = 1e200;
/// The scale, a power of two.
const DOWN: f64 = 1.0 / (1u128 << 100) as f64;

/// Replaces each size by `max(size - t, 0)`, keeping the sign, with the t for which they sum to `total`.
///
/// If the largest size is far above the total, it is subtracted first: t is near it, and would otherwise be rounded to
/// its precision.
fn onto_simplex(x: &mut [f64], total: f64, size: fn(f64) -> f64, scratch: &mut Vec<f64>) -> Result<()> {
    if !kernels::all_finite(x) {
        x.fill(f64::NAN);
        return Ok(());
    }
    let largest = x.iter().fold(f64::NEG_INFINITY, |largest, &x| largest.max(size(x)));
    let scale = if total > LARGE { DOWN } else { 1.0 };
    let first = if largest.abs() > 4.0 * total { largest * scale } else { 0.0 };
    scratch.clear();
    memory::reserve_in(scratch, x.len(), "a projection")?;
    scratch.extend(x.iter().map(|&x| size(x) * scale - first));
    let t = threshold(scratch, total * scale);
    for x in x {
        let left = size(*x) * scale - first - t;
        *x = if left > 0.0 { if size(*x) == *x { left / scale } else { -left / scale } } else { 0.0 };
    }
    Ok(())
}

/// The number t with `sum max(x_j - t, 0) = total` (Held, Wolfe and Crowder 1974): sorts x in descending order and
/// takes the longest prefix whose entries are above its own t.
fn threshold(x: &mut [f64], total: f64) -> f64 {
    x.sort_unstable_by(|a, b| b.total_cmp(a));
    let (mut sum, mut found) = (0.0, 0.0);
    // t is at least the largest number minus the total, so smaller numbers never count.
    let least = x.first().map_or(0.0, |first| first - 2.0 * total);
    for (k, &x) in x.iter().enumerate().take_while(|(_, x)| **x >= least) {
        sum += x;
        let t = (sum - total) / (k + 1) as f64;
        if x > t {
            found = t;
        }
    }
    found
}
