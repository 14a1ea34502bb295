//! Sums with 0 that make no difference: they only turn -0.0 into 0.0.
//!
//! Each contribution to an adjoint ends with such a sum, and most of them are multiplied and summed again. Promises: the bits of
//! the slots that are read afterwards. Does not know derivatives.

use super::super::expansion::MathOp;
use super::fused::{Item, Operation};
use super::math::{ArrayFloat, BlockOp};
use super::never_unreached::Start;
use crate::ops::Function;

/// The most work that is done to find them: sums times parts of the work.
const MOST: usize = 1 << 15;

/// Makes needless sums with the slot `zero` moves.
pub(super) fn without_needless<E: ArrayFloat>(work: &mut [Item], zero: usize, start: &Start<'_, E>, kept: &[usize]) {
    let (mut is_needless, mut sums, mut size) = (vec![false; start.slots.len()], Vec::new(), 0);
    each(work, &mut |item| {
        size += 1;
        if let Some(Operation { to, .. }) = sum(item, zero) {
            sums.push(to);
        }
    });
    // One by one: of two numbers that are added, only one may be either 0.
    for &to in sums.iter().take(MOST / size.max(1)) {
        is_needless[to] = true;
        let is_reached = start.never_unreached(work, &is_needless);
        let mut matters = vec![false; start.slots.len()];
        kept.iter().for_each(|&slot| matters[slot] = true);
        while passed(work, &is_reached, &is_needless, &mut matters) {}
        is_needless[to] = !sums.iter().any(|&sum| is_needless[sum] && matters[sum]);
    }
    each(work, &mut |item| {
        if let Some(Operation { of: [from, ..], to, .. }) = sum(item, zero).filter(|sum| is_needless[sum.to]) {
            *item = Item::Move { from, to };
        }
    });
}

/// The operation, if it adds the slot `zero`.
fn sum(item: &Item, zero: usize) -> Option<Operation> {
    match *item {
        Item::Operation(sum) if sum.op == BlockOp::Math(MathOp::Add) && sum.of[1] == zero => Some(sum),
        _ => None,
    }
}

fn each(work: &mut [Item], f: &mut impl FnMut(&mut Item)) {
    for item in work {
        match item {
            Item::Operation(_) | Item::Move { .. } => f(item),
            Item::Choice { yes: a, no: b, .. } | Item::Loop { condition: a, body: b, .. } => {
                each(a, f);
                each(b, f);
            }
        }
    }
}

/// How the sign of an operand that is 0 acts.
#[derive(Clone, Copy, PartialEq)]
enum Sign {
    Nothing,
    /// On the sign of a result that is 0, at most.
    Passes,
    Matters,
}

/// Notes of which slots the sign of 0 matters, given those that never hold -0.0; whether that was news.
fn passed(work: &[Item], is_reached: &[bool], is_needless: &[bool], matters: &mut [bool]) -> bool {
    let mut any = false;
    // Readers mostly come later.
    for item in work.iter().rev() {
        let (of, to, signs) = match item {
            Item::Operation(Operation { of, to, .. }) if is_needless[*to] => {
                (*of, *to, [Sign::Passes, Sign::Nothing, Sign::Nothing])
            }
            Item::Operation(operation) => (operation.of, operation.to, signs(operation, is_reached)),
            Item::Move { from, to } => ([*from; 3], *to, [Sign::Passes; 3]),
            Item::Choice { yes: a, no: b, .. } | Item::Loop { condition: a, body: b, .. } => {
                any |= passed(b, is_reached, is_needless, matters) | passed(a, is_reached, is_needless, matters);
                continue;
            }
        };
        for (slot, sign) in of.into_iter().zip(signs) {
            if sign == Sign::Matters || sign == Sign::Passes && matters[to] {
                any |= !std::mem::replace(&mut matters[slot], true);
            }
        }
    }
    any
}

fn signs(operation: &Operation, is_reached: &[bool]) -> [Sign; 3] {
    use Sign::{Matters, Nothing, Passes};
    let [x, y, _] = operation.of;
    let beside = |other: usize| if is_reached[other] { Nothing } else { Passes };
    match operation.op {
        // What is unreached is a zero with a sign.
        BlockOp::Contribution | BlockOp::Product | BlockOp::ContributionNanOr => [Matters, Nothing, Nothing],
        BlockOp::Hidden => [Matters, Passes, Nothing],
        BlockOp::NanOr | BlockOp::Resting | BlockOp::RestingProduct => [Nothing, Passes, Nothing],
        BlockOp::RestingQuotient => [Passes, Matters, Nothing],
        BlockOp::Math(op) => match op {
            MathOp::Add => [beside(y), beside(x), Nothing],
            MathOp::Sub => [Passes, beside(x), Nothing],
            MathOp::Mul => [Passes, Passes, Nothing],
            MathOp::Div => [Passes, Matters, Nothing],
            MathOp::Neg | MathOp::Function(Function::Sqrt) => [Passes, Nothing, Nothing],
            MathOp::Less | MathOp::LessEqual | MathOp::Equal | MathOp::IsNan => [Nothing; 3],
            MathOp::Select => [Nothing, Passes, Passes],
            MathOp::Function(Function::Abs) => [Nothing; 3],
            _ => [Matters; 3],
        },
        _ => [Matters; 3],
    }
}

#[cfg(test)]
mod tests {
    use super::super::fused::tests::{ZEROS_AND_OTHERS, all_operations, result};
    use super::*;

    /// Of each operand of each operation, beside others that may be -0.0 and those that may not.
    #[test]
    fn signs_of_zeros_act_as_the_table_says() {
        for op in all_operations() {
            let operation = Operation { op, of: [0, 1, 2], to: 3 };
            for (k, case) in (0..operation.arity()).flat_map(|k| (0..1 << 12).map(move |case| (k, case))) {
                let is_reached = [0, 1, 2].map(|other| other != k && case >> (9 + other) & 1 > 0);
                let mut numbers = [0, 3, 6].map(|shift| ZEROS_AND_OTHERS[case >> shift & 7]);
                if (0..3).any(|other| is_reached[other] && numbers[other].to_bits() == 1 << 63) {
                    continue;
                }
                let [x, y] = [0.0, -0.0].map(|zero| {
                    numbers[k] = zero;
                    result(op, numbers)
                });
                let is_same = x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
                let holds = match signs(&operation, &is_reached)[k] {
                    Sign::Nothing => is_same,
                    Sign::Passes => is_same || x == 0.0 && y == 0.0,
                    Sign::Matters => true,
                };
                assert!(holds, "{op:?} of {numbers:?}, operand {k}: {x} and {y}");
            }
        }
    }
}
