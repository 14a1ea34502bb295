//! Integers of programs: indices and counts, one by one.
//!
//! Promises: wrapping arithmetic, as in NumPy, and division toward negative infinity; a division by 0 gives 0. Does not
//! know plans.

use super::super::instr::{Comparison, Reduce};
use super::super::row::Row;
use super::place::Along;
use crate::ops::Op;

/// An elementwise op that is exact on integers.
pub(in super::super) fn row(row: Row, of: &[Vec<i64>; 2], to: &mut [i64]) {
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
pub(in super::super) fn compare(comparison: Comparison, x: i64, y: i64) -> bool {
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
    let is_nan = |x: T| x.partial_cmp(&x).is_none();
    if largest {
        first_best(along, x, to, |x, best| (x > best) | is_nan(x) & !is_nan(best));
    } else {
        first_best(along, x, to, |x, best| (x < best) | is_nan(x) & !is_nan(best));
    }
}

/// Numbers that are compared with the best so far without a branch between them.
const TOGETHER: usize = 64;

/// Where the first number of each row is that no later one beats. Departures from a branch for each number: some neighbours of a row are
/// first asked whether any of them beats the best one, which few do; neighbouring columns keep their best numbers side by side.
fn first_best<T: Copy + PartialOrd>(along: Along, x: &[T], to: &mut [i64], beats: impl Fn(T, T) -> bool) {
    let Along { n, inner, .. } = along;
    if inner == 1 {
        for (row, to) in x.chunks_exact(n.max(1)).zip(to) {
            let mut best = 0;
            for (part, first) in row.chunks(TOGETHER).zip((0..).step_by(TOGETHER)) {
                let so_far = row[best];
                if part.iter().fold(false, |any, &x| any | beats(x, so_far)) {
                    let later = part.iter().enumerate();
                    best = later.fold(best, |best, (k, &x)| if beats(x, row[best]) { first + k } else { best });
                }
            }
            *to = best as i64;
        }
        return;
    }
    for (table, to) in x.chunks_exact((n * inner).max(1)).zip(to.chunks_exact_mut(inner.max(1))) {
        for (to, start) in to.chunks_mut(TOGETHER).zip((0..).step_by(TOGETHER)) {
            let mut best = [table[start]; TOGETHER];
            best[..to.len()].copy_from_slice(&table[start..start + to.len()]);
            to.fill(0);
            for k in 1..n {
                let row = &table[k * inner + start..][..to.len()];
                for ((to, best), &x) in to.iter_mut().zip(&mut best).zip(row) {
                    let is_better = beats(x, *best);
                    *to = if is_better { k as i64 } else { *to };
                    *best = if is_better { x } else { *best };
                }
            }
        }
    }
}
