//! Proximal operators: prox(x) = argmin_u step R(u) + |u - x|^2/2, in place.
//!
//! Promises: the operators of sets are projections, whatever the step and the scale; NaN stays NaN; no heap call after the first;
//! long points are computed piece by piece, between which the work may end early. Does not know methods.

use crate::error::{Error, Result};
use crate::interrupt::{PIECE, ask_at, check, pieces};
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
        let sum = || total_of(x, f64::abs);
        let squares = || total_of(x, |x| x * x);
        // A sum that overflows is infinite, and 0 times it would be NaN.
        let times = |a: f64, sum: &dyn Fn() -> f64| if a > 0.0 { a * sum() } else { 0.0 };
        match *self {
            Prox::L1(a) => times(a, &sum),
            Prox::L2Squared(a) => times(0.5 * a, &squares),
            Prox::ElasticNet(a, b) => times(a, &sum) + times(0.5 * b, &squares),
            _ => 0.0,
        }
    }

    /// Replaces `x`. Linear in its length, for the simplex and the l1 ball times the logarithm of how many numbers are above the
    /// largest minus twice the total; a point that is not finite becomes NaN in all their places.
    pub fn apply(&self, step: f64, x: &mut [f64], scratch: &mut Vec<f64>) -> Result<()> {
        match *self {
            Prox::Zero => {}
            Prox::L1(a) => each(x, |x| shrink(x, step * a)),
            Prox::L2Squared(a) => each(x, |x| x / (1.0 + step * a)),
            Prox::ElasticNet(a, b) => each(x, |x| shrink(x, step * a) / (1.0 + step * b)),
            Prox::Box(a, b) => each(x, |x| clip(x, a, b)),
            Prox::LinfBall(a) => each(x, |x| clip(x, -a, a)),
            Prox::L2Ball(a) => onto_l2_ball(x, a),
            Prox::Simplex(a) => onto_simplex(x, a, |x| x, scratch)?,
            Prox::L1Ball(a) => {
                let sum = total_of(x, f64::abs);
                if sum.is_nan() || sum > a {
                    onto_simplex(x, a, f64::abs, scratch)?;
                }
            }
        }
        check()
    }
}

/// Replaces each number.
fn each(x: &mut [f64], f: impl Fn(f64) -> f64) {
    for piece in pieces(x.len()) {
        x[piece].iter_mut().for_each(|x| *x = f(*x));
    }
}

/// Folds all numbers, in order.
fn folded<T>(x: &[f64], first: T, f: impl Fn(T, f64) -> T) -> T {
    pieces(x.len()).fold(first, |so_far, piece| x[piece].iter().fold(so_far, |so_far, &x| f(so_far, x)))
}

/// The sum of a function of all numbers, in order.
fn total_of(x: &[f64], f: impl Fn(f64) -> f64) -> f64 {
    folded(x, 0.0, |sum, x| sum + f(x))
}

/// Sums of squares in this range have not overflowed or lost digits to underflow.
const SQUARES: std::ops::Range<f64> = 1e-280..1e300;

fn onto_l2_ball(x: &mut [f64], radius: f64) {
    let squares = total_of(x, |x| x * x);
    let norm = squares.sqrt();
    if SQUARES.contains(&squares) && (radius / norm).is_normal() {
        if norm > radius {
            each(x, |x| x * (radius / norm));
        }
        return;
    }
    if x.iter().any(|x| !x.is_finite()) {
        return x.fill(f64::NAN);
    }
    // Scaled by the largest number, whose square may overflow.
    let largest = folded(x, 0.0f64, |largest, x| largest.max(x.abs()));
    let share = total_of(x, |x| (x / largest).powi(2)).sqrt();
    if largest > radius / share {
        each(x, |x| x / largest * (radius / share));
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
    let largest = folded(x, f64::NEG_INFINITY, |largest, x| largest.max(size(x)));
    let scale = if total > LARGE { DOWN } else { 1.0 };
    let first = if largest.abs() > 4.0 * total { largest * scale } else { 0.0 };
    scratch.clear();
    // Long lists are merged through memory of their length.
    memory::reserve_in(scratch, if x.len() > PIECE { 2 * x.len() } else { x.len() }, "a projection")?;
    let (total, place) = (total * scale, |x| size(x) * scale - first);
    // t is at least the largest number minus the total, so smaller numbers never count.
    let least = largest * scale - first - 2.0 * total;
    for piece in pieces(x.len()) {
        scratch.extend(x[piece].iter().map(|&x| place(x)).filter(|&x| x >= least));
    }
    check()?;
    sort_descending(scratch)?;
    let t = threshold(scratch, total);
    each(x, |x| {
        let left = place(x) - t;
        let far = left / scale;
        if left > 0.0 { if size(x) == x { far } else { -far } } else { 0.0 }
    });
    Ok(())
}

/// Sorts numbers, piece by piece, with merges of the pieces through memory behind them. Equal numbers have equal bits, so their
/// order does not matter.
fn sort_descending(x: &mut Vec<f64>) -> Result<()> {
    let n = x.len();
    pieces(n).for_each(|piece| x[piece].sort_unstable_by(|a, b| b.total_cmp(a)));
    check()?;
    if n <= PIECE {
        return Ok(());
    }
    memory::reserve_in(x, n, "a projection")?;
    x.resize(2 * n, 0.0);
    let (mut from, mut to) = x.split_at_mut(n);
    let (mut width, mut is_second) = (PIECE, false);
    while width < n {
        for (from, to) in from.chunks(2 * width).zip(to.chunks_mut(2 * width)) {
            merge(from.split_at(width.min(from.len())), to)?;
        }
        (from, to) = (to, from);
        (width, is_second) = (2 * width, !is_second);
    }
    if is_second {
        let (first, second) = x.split_at_mut(n);
        first.copy_from_slice(second);
    }
    x.truncate(n);
    Ok(())
}

/// Merges two descending lists.
fn merge((a, b): (&[f64], &[f64]), to: &mut [f64]) -> Result<()> {
    let (mut i, mut j) = (0, 0);
    for (k, to) in to.iter_mut().enumerate() {
        ask_at(k)?;
        let is_first = j == b.len() || (i < a.len() && a[i].total_cmp(&b[j]).is_ge());
        *to = if is_first { a[i] } else { b[j] };
        (i, j) = if is_first { (i + 1, j) } else { (i, j + 1) };
    }
    Ok(())
}

/// The number t with `sum max(x_j - t, 0) = total` (Held, Wolfe and Crowder 1974), for x in descending order: takes the longest
/// prefix whose entries are above its own t.
fn threshold(x: &[f64], total: f64) -> f64 {
    let (mut sum, mut found) = (0.0, 0.0);
    for (k, &x) in x.iter().enumerate() {
        sum += x;
        let t = (sum - total) / (k + 1) as f64;
        if x > t {
            found = t;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Purpose};
    use crate::interrupt::asking;

    /// By a sort of all numbers.
    fn naive(x: &[f64], total: f64) -> Vec<f64> {
        let largest = x.iter().fold(f64::NEG_INFINITY, |largest, &x| largest.max(x));
        let first = if largest.abs() > 4.0 * total { largest } else { 0.0 };
        let mut sorted: Vec<f64> = x.iter().map(|x| x - first).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let least = sorted[0] - 2.0 * total;
        let (mut sum, mut t) = (0.0, 0.0);
        for (k, &x) in sorted.iter().enumerate().take_while(|(_, x)| **x >= least) {
            sum += x;
            let next = (sum - total) / (k + 1) as f64;
            if x > next {
                t = next;
            }
        }
        x.iter().map(|x| (x - first - t).max(0.0)).collect()
    }

    #[test]
    fn projections_of_long_points_have_the_bits_of_a_whole_sort() {
        let mut scratch = Vec::new();
        for n in [1, 10, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 7, 5 * PIECE - 1] {
            let mut draw = Draw::new(n as u64, 0, 0, Purpose::Data);
            let x: Vec<f64> = (0..n).map(|_| draw.normal()).collect();
            for total in [1e-3, 1.0, 1e3, 1e7] {
                let mut found = x.clone();
                Prox::Simplex(total).apply(1.0, &mut found, &mut scratch).unwrap();
                assert!(found == naive(&x, total), "{n} numbers, total {total}");
            }
        }
    }

    #[test]
    fn long_points_end_early() {
        let x = vec![0.5; 3 * PIECE];
        let radius = 1e4;
        for prox in [Prox::L1(1.0), Prox::Box(0.0, 0.1), Prox::Simplex(radius), Prox::L1Ball(radius), Prox::L2Ball(1.0)]
        {
            let apply = || prox.apply(1.0, &mut x.clone(), &mut Vec::new());
            assert_eq!(asking(|| true, apply), Err(Error::Interrupted), "{prox:?}");
        }
    }
}
