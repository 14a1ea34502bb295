//! Slots that never hold what is unreached, -0.0.
//!
//! Promises: says so only of numbers for which the signs of zeros in IEEE's rounding to nearest show it. Does not know order:
//! it holds for all writings of a slot.

use super::super::expansion::MathOp;
use super::fused::{Item, Operation};
use super::math::{ArrayFloat, BlockOp};
use crate::ops::Function;

/// Slots before work on them.
pub(super) struct Start<'s, E> {
    pub(super) slots: &'s [E],
    /// Whether they hold this throughout.
    pub(super) is_constant: &'s [bool],
    /// How many, the first ones, may hold anything.
    pub(super) arguments: usize,
}

impl<E: ArrayFloat> Start<'_, E> {
    /// For each slot, where sums with 0 that are needless are moves.
    pub(super) fn never_unreached(&self, work: &[Item], is_needless: &[bool]) -> Vec<bool> {
        let holds = |k: usize| k >= self.arguments && !(self.is_constant[k] && self.slots[k].is_unreached());
        let mut is_reached: Vec<_> = (0..self.slots.len()).map(holds).collect();
        // All at first: what one write refutes may refute others.
        while refuted(work, is_needless, &mut is_reached) {}
        is_reached
    }
}

/// Whether a slot was refuted.
fn refuted(work: &[Item], is_needless: &[bool], is_reached: &mut [bool]) -> bool {
    let mut any = false;
    for item in work {
        let (to, holds) = match item {
            Item::Operation(operation) if is_needless[operation.to] => (operation.to, is_reached[operation.of[0]]),
            Item::Operation(operation) => (operation.to, result(operation, is_reached)),
            Item::Move { from, to } => (*to, is_reached[*from]),
            Item::Choice { yes: a, no: b, .. } | Item::Loop { condition: a, body: b, .. } => {
                any |= refuted(a, is_needless, is_reached) | refuted(b, is_needless, is_reached);
                continue;
            }
        };
        if !holds && is_reached[to] {
            is_reached[to] = false;
            any = true;
        }
    }
    any
}

/// Whether an operation's result is never -0.0, given that of its operands.
fn result(operation: &Operation, is_reached: &[bool]) -> bool {
    let Operation { op, of: [x, y, z], .. } = *operation;
    match op {
        BlockOp::IsUnreached => true,
        BlockOp::Contribution | BlockOp::Product | BlockOp::ContributionNanOr => is_reached[x],
        BlockOp::Hidden => is_reached[x] && is_reached[y],
        BlockOp::NanOr => is_reached[y],
        BlockOp::Math(op) => match op {
            MathOp::Add => is_reached[x] || is_reached[y],
            MathOp::Sub => is_reached[x],
            // Of squares.
            MathOp::Mul => x == y,
            MathOp::Less | MathOp::LessEqual | MathOp::Equal | MathOp::IsNan => true,
            MathOp::Select => is_reached[y] && is_reached[z],
            MathOp::Function(Function::Sqrt) => is_reached[x],
            MathOp::Function(Function::Abs) => true,
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fused::tests::{self, ZEROS_AND_OTHERS, all_operations};
    use super::*;

    #[test]
    fn what_is_never_unreached_is_never_unreached() {
        for op in all_operations() {
            for case in 0..1 << 12 {
                let is_reached = [0, 1, 2].map(|k| case >> (9 + k) & 1 > 0);
                let numbers = [0, 3, 6].map(|shift| ZEROS_AND_OTHERS[case >> shift & 7]);
                let is_unreached = |x: f64| x.to_bits() == 1 << 63;
                let is_given = (0..3).all(|k| !(is_reached[k] && is_unreached(numbers[k])));
                if is_given && result(&Operation { op, of: [0, 1, 2], to: 3 }, &is_reached) {
                    assert!(!is_unreached(tests::result(op, numbers)), "{op:?} of {numbers:?}");
                }
            }
        }
    }
}
