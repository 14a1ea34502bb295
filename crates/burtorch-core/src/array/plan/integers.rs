//! Integers of programs: indices and counts, one by one.
//!
//! Promises wrapping arithmetic, as NumPy has it, and division toward negative infinity; a division by 0 gives 0. Knows
//! nothing of plans.

use super::super::instr::{Comparison, Reduce};
use super::super::row::Row;
use super::place::Along;
use crate::ops::Op;

/// An elementwise op that is exact on integers.
pub(super) fn row(row: Row, of: &[Vec<i64>; 2], to: &mut [i64]) {
    let Row::Op(op) = row else { return };
    let [x, y] = of;
    for (k, to) in to.iter_mut().enumerate() {
        let (x, y) = (x[k], y.get(k).copied().unwrap_or(0));
        *to = match op {
            Op::Add => x.wrapping_add(y),
            Op::Sub => x.wrapping_sub(y),
            Op::Mul => x.wrapping_mul(y),
            Op::Sqr => x.wrapping_mul(x),
            Op::Neg => x.wrapping_neg(),
            Op::Abs => x.wrapping_abs(),
            Op::Sign => x.signum(),
            Op::Max => x.max(y),
            Op::Min => x.min(y),
            Op::FloorDivide => floor_divide(x, y),
            _ => {
                if y == 0 {
                    0
                } else {
                    x.wrapping_sub(floor_divide(x, y).wrapping_mul(y))
                }
            }
        };
    }
}

fn floor_divide(x: i64, y: i64) -> i64 {
    if y == 0 {
        return 0;
    }
    let quotient = x.wrapping_div(y);
    if x.wrapping_rem(y) != 0 && (x < 0) != (y < 0) { quotient - 1 } else { quotient }
}

/// Whether a comparison holds.
pub(super) fn compare(comparison: Comparison, x: i64, y: i64) -> bool {
    match comparison {
        Comparison::Less => x < y,
        Comparison::LessEqual => x <= y,
        Comparison::Equal => x == y,
        Comparison::IsNan | Comparison::IsUnreached => false,
    }
}

/// A reduction of rows along an axis.
pub(super) fn reduce(kind: Reduce, along: Along, x: &[i64], to: &mut [i64]) {
    for (first, to) in along.rows().zip(to) {
        let row = (0..along.n).map(|k| x[first + k * along.inner]);
        *to = match kind {
            Reduce::Prod => row.fold(1, i64::wrapping_mul),
            Reduce::Max => row.max().unwrap_or(0),
            Reduce::Min => row.min().unwrap_or(0),
            _ => row.fold(0, i64::wrapping_add),
        };
    }
}

/// The first largest of each row, or the first smallest; the first that is not a number counts as both.
pub(super) fn arg_extreme<T: Copy + PartialOrd>(along: Along, largest: bool, x: &[T], to: &mut [i64]) {
    for (first, to) in along.rows().zip(to) {
        let at = |k: usize| x[first + k * along.inner];
        let is_nan = |x: T| x.partial_cmp(&x).is_none();
        let mut best = 0;
        for k in 1..along.n {
            let is_further = if largest { at(k) > at(best) } else { at(k) < at(best) };
            if !is_nan(at(best)) && (is_further || is_nan(at(k))) {
                best = k;
            }
        }
        *to = best as i64;
    }
}
