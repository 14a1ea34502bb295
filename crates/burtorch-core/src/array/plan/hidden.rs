//! What is unreached where an adjoint is, as one operation on single numbers rather than a mask and a choice.
//!
//! The derivative of a derivative hides its terms so, one by one. Promises: the same numbers. Does not know derivatives.

use std::collections::{HashMap, HashSet};

use super::super::expansion::MathOp;
use super::math::{ArrayFloat, BlockOp};
use super::together::{Item, Operation, all_reads};

/// What is known of slots.
struct Known<'s, E> {
    /// Slots that hold the same number throughout.
    slots: &'s [E],
    changing: HashSet<usize>,
    /// How often slots are read.
    reads: Vec<usize>,
    dead: HashSet<usize>,
}

/// Rewrites work, with what constant slots hold, the first of which are `arguments`; those `kept` are read afterwards.
pub(super) fn hide<E: ArrayFloat>(work: &mut Vec<Item>, slots: &[E], arguments: usize, kept: &[usize]) {
    let mut changing: HashSet<usize> = (0..arguments).collect();
    written(work, &mut |slot| {
        changing.insert(slot);
    });
    let mut known = Known { slots, changing, reads: all_reads(work, kept), dead: HashSet::new() };
    known.rewrite(work);
    if !known.dead.is_empty() {
        remove(work, &known.dead);
    }
}

/// Calls for each slot that work writes.
fn written(work: &[Item], each: &mut impl FnMut(usize)) {
    for item in work {
        match item {
            Item::Operation(operation) => each(operation.to),
            Item::Move { to, .. } => each(*to),
            Item::Choice { yes, no, .. } => [yes, no].into_iter().for_each(|work| written(work, each)),
            Item::Loop { condition, body, .. } => [condition, body].into_iter().for_each(|work| written(work, each)),
        }
    }
}

fn remove(work: &mut Vec<Item>, dead: &HashSet<usize>) {
    work.retain(|item| !matches!(item, Item::Operation(operation) if dead.contains(&operation.to)));
    for item in work {
        match item {
            Item::Operation(_) | Item::Move { .. } => {}
            Item::Choice { yes, no, .. } => [yes, no].into_iter().for_each(|work| remove(work, dead)),
            Item::Loop { condition, body, .. } => [condition, body].into_iter().for_each(|work| remove(work, dead)),
        }
    }
}

impl<E: ArrayFloat> Known<'_, E> {
    fn holds(&self, slot: usize, x: E) -> bool {
        !self.changing.contains(&slot)
            && self.slots.get(slot).is_some_and(|&y| y == x && y.is_unreached() == x.is_unreached())
    }

    fn rewrite(&mut self, work: &mut [Item]) {
        // Which item wrote a slot last.
        let mut last: HashMap<usize, usize> = HashMap::new();
        for at in 0..work.len() {
            if let Item::Operation(operation) = work[at] {
                let made = |slot: usize| match last.get(&slot).map(|&k| (k, &work[k])) {
                    Some((k, &Item::Operation(made))) => {
                        let stays = |of: &usize| last.get(of).is_none_or(|&changed| changed < k);
                        made.of[..made.arity()].iter().all(stays).then_some(made)
                    }
                    _ => None,
                };
                if let Some(new) = self.hidden(operation, made) {
                    work[at] = Item::Operation(new);
                }
            }
            match &mut work[at] {
                Item::Operation(_) | Item::Move { .. } => {}
                Item::Choice { yes, no, .. } => [yes, no].into_iter().for_each(|work| self.rewrite(work)),
                Item::Loop { condition, body, .. } => [condition, body].into_iter().for_each(|work| self.rewrite(work)),
            }
            written(&work[at..=at], &mut |slot| {
                last.insert(slot, at);
            });
        }
    }

    /// A choice of unreached where a number is, in one operation. `made` is the operation that computes a slot, if its operands are
    /// what they were.
    fn hidden(&mut self, operation: Operation, made: impl Fn(usize) -> Option<Operation>) -> Option<Operation> {
        let Operation { op: BlockOp::Math(MathOp::Select), of: [mask, yes, no], to } = operation else { return None };
        let Operation { op: BlockOp::IsUnreached, of: [by, ..], .. } = made(mask)? else { return None };
        if !self.holds(yes, E::UNREACHED) {
            return None;
        }
        self.unread(mask);
        // With 0 added it is a contribution.
        if let Some(Operation { op: BlockOp::Math(MathOp::Add), of: [c, zero, _], .. }) = made(no)
            && self.reads[no] == 1
            && self.holds(zero, E::default())
        {
            self.unread(no);
            return Some(Operation { op: BlockOp::Contribution, of: [by, c, 0], to });
        }
        Some(Operation { op: BlockOp::Hidden, of: [by, no, 0], to })
    }

    /// Notes that a slot is read once less.
    fn unread(&mut self, slot: usize) {
        self.reads[slot] -= 1;
        if self.reads[slot] == 0 {
            self.dead.insert(slot);
        }
    }
}
