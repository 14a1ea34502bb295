//! Proximal operators: prox(x) = argmin_u step R(u) + |u - x|^2/2, in place.
//!
//! Promises: the operators of sets are projections, whatever the step; no heap call after the first. Knows no method.

use crate::error::{Error, Result};
use crate::memory;

/// A convex function R, or the indicator of a convex set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Prox {
    /// 0.
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
    if x > by {
        x - by
    } else if x < -by {
        x + by
    } else {
        0.0
    }
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

impl Prox {
    /// The same, if its numbers make sense: factors at least 0, radii above 0, and an interval that is not empty.
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

    /// R(x); 0 for sets, whose points are taken to lie inside.
    pub fn value(&self, x: &[f64]) -> f64 {
        let sum = || x.iter().map(|x| x.abs()).sum::<f64>();
        let squares = || x.iter().map(|x| x * x).sum::<f64>();
        match *self {
            Prox::L1(a) => a * sum(),
            Prox::L2Squared(a) => 0.5 * a * squares(),
            Prox::ElasticNet(a, b) => a * sum() + 0.5 * b * squares(),
            _ => 0.0,
        }
    }

    /// Replaces `x`. Linear in its length, times the logarithm for the simplex and the l1 ball.
    pub fn apply(&self, step: f64, x: &mut [f64], scratch: &mut Vec<f64>) -> Result<()> {
        match *self {
            Prox::Zero => {}
            Prox::L1(a) => x.iter_mut().for_each(|x| *x = shrink(*x, step * a)),
            Prox::L2Squared(a) => x.iter_mut().for_each(|x| *x /= 1.0 + step * a),
            Prox::ElasticNet(a, b) => x.iter_mut().for_each(|x| *x = shrink(*x, step * a) / (1.0 + step * b)),
            Prox::Box(a, b) => x.iter_mut().for_each(|x| *x = x.max(a).min(b)),
            Prox::LinfBall(a) => x.iter_mut().for_each(|x| *x = x.max(-a).min(a)),
            Prox::L2Ball(a) => {
                let norm = norm(x);
                if norm > a {
                    x.iter_mut().for_each(|x| *x *= a / norm);
                }
            }
            Prox::Simplex(a) => {
                let by = threshold(x.iter().copied(), a, scratch)?;
                x.iter_mut().for_each(|x| *x = (*x - by).max(0.0));
            }
            Prox::L1Ball(a) => {
                if x.iter().map(|x| x.abs()).sum::<f64>() > a {
                    let by = threshold(x.iter().map(|x| x.abs()), a, scratch)?;
                    x.iter_mut().for_each(|x| *x = shrink(*x, by));
                }
            }
        }
        Ok(())
    }
}

/// The number t with `sum max(x_j - t, 0) = total` (Held, Wolfe and Crowder 1974): x in descending order, of which the longest
/// beginning above its own t counts.
fn threshold(x: impl ExactSizeIterator<Item = f64>, total: f64, scratch: &mut Vec<f64>) -> Result<f64> {
    scratch.clear();
    memory::reserve_in(scratch, x.len(), "a projection")?;
    scratch.extend(x);
    scratch.sort_unstable_by(|a, b| b.total_cmp(a));
    let (mut sum, mut found) = (0.0, 0.0);
    for (k, &x) in scratch.iter().enumerate() {
        sum += x;
        let t = (sum - total) / (k + 1) as f64;
        if x > t {
            found = t;
        }
    }
    Ok(found)
}
