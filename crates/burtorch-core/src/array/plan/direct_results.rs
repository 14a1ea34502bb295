//! Results that operations write where they are read next: carries of loops, results of choices.
//!
//! The simple algorithm: at the end of a step, move each result to its carry. Departures: the operation that computes a result
//! writes the carry itself, after whatever reads the old number, if that may be; a carry that becomes another one, as in a delay, is moved
//! before that one is overwritten. Promises: the numbers of the simple algorithm. Does not know how work runs.

use super::fused::{Item, Operation};

/// Whether an operation reads a slot.
fn takes(operation: &Operation, slot: usize) -> bool {
    operation.of[..operation.arity()].contains(&slot)
}

impl Item {
    fn reads(&self, slot: usize) -> bool {
        match self {
            Item::Operation(operation) => takes(operation, slot),
            Item::Move { from, .. } => *from == slot,
            Item::Choice { of, yes, no } => *of == slot || reads(yes, slot) || reads(no, slot),
            Item::Loop { condition, of, body } => *of == slot || reads(condition, slot) || reads(body, slot),
        }
    }

    fn writes(&self, slot: usize) -> bool {
        match self {
            Item::Operation(operation) => operation.to == slot,
            Item::Move { to, .. } => *to == slot,
            Item::Choice { yes, no, .. } => writes(yes, slot) || writes(no, slot),
            Item::Loop { condition, body, .. } => writes(condition, slot) || writes(body, slot),
        }
    }
}

fn reads(work: &[Item], slot: usize) -> bool {
    work.iter().any(|item| item.reads(slot))
}

fn writes(work: &[Item], slot: usize) -> bool {
    work.iter().any(|item| item.writes(slot))
}

/// The same work on another slot.
fn rename(work: &mut Vec<Item>, from: usize, to: usize) {
    let new = |slot: &mut usize| *slot = if *slot == from { to } else { *slot };
    for item in work.iter_mut() {
        match item {
            Item::Operation(operation) => {
                let arity = operation.arity();
                operation.of[..arity].iter_mut().chain([&mut operation.to]).for_each(new);
            }
            Item::Move { from, to } => [from, to].into_iter().for_each(new),
            Item::Choice { of, yes, no } => {
                new(of);
                [yes, no].into_iter().for_each(|work| rename(work, from, to));
            }
            Item::Loop { condition, of, body } => {
                new(of);
                [condition, body].into_iter().for_each(|work| rename(work, from, to));
            }
        }
    }
    work.retain(|item| !matches!(item, Item::Move { from, to } if from == to));
}

/// Two slots that are to become one.
struct Merged {
    old: usize,
    new: usize,
    clashes: bool,
}

impl Merged {
    /// Follows work, before which the new number may have been written; whether it may have been afterwards. It clashes where the
    /// old one is read then.
    fn follow(&mut self, work: &[Item], mut is_written: bool) -> bool {
        for item in work {
            match item {
                Item::Move { from, to } if (*from, *to) == (self.old, self.new) => self.clashes |= is_written,
                Item::Operation(_) | Item::Move { .. } => {
                    self.clashes |= is_written && item.reads(self.old) || item.writes(self.old);
                    is_written |= item.writes(self.new);
                }
                Item::Choice { of, yes, no } => {
                    self.clashes |= is_written && *of == self.old;
                    let after = self.follow(yes, is_written);
                    is_written = self.follow(no, is_written) || after;
                }
                Item::Loop { condition, of, body } => {
                    // What one step writes is read by the next one.
                    for _ in 0..2 {
                        is_written = self.follow(condition, is_written);
                        self.clashes |= is_written && *of == self.old;
                        is_written |= self.follow(body, is_written);
                    }
                }
            }
        }
        is_written
    }
}

/// Lets the work of a step write carries, of which the first results are the next ones, where the next step reads them.
pub(super) fn write_carries(work: &mut Vec<Item>, results: &mut [usize], carries: &[usize]) {
    for (k, &carry) in carries.iter().enumerate() {
        let from = results[k];
        let Some(at) = work.iter().position(|item| item.writes(from)) else { continue };
        let at = later(work, at, carry);
        let mut merged = Merged { old: carry, new: from, clashes: carries.contains(&from) };
        merged.follow(work, false);
        let mut early = Vec::new();
        if merged.clashes || !delayed(results, carries, k, &mut early) {
            continue;
        }
        let last = early.iter().filter_map(|&j| work.iter().rposition(|item| item.reads(carries[j]))).max();
        let first = last.map_or(0, |last| last + 1);
        if first > at {
            continue;
        }
        rename(work, from, carry);
        let moves = early.iter().map(|&j| Item::Move { from: results[j], to: carries[j] });
        work.splice(first..first, moves.collect::<Vec<_>>());
        early.iter().for_each(|&j| results[j] = carries[j]);
        results.iter_mut().filter(|result| **result == from).for_each(|result| *result = carry);
    }
}

/// Moves an operation behind what reads a carry, if that may be; where it is then.
fn later(work: &mut [Item], at: usize, carry: usize) -> usize {
    let (Item::Operation(operation), Some(last)) = (&work[at], work.iter().rposition(|item| item.reads(carry))) else {
        return at;
    };
    let of = &operation.of[..operation.arity()];
    let needs = |item: &Item| item.reads(operation.to) || of.iter().chain([&carry]).any(|&slot| item.writes(slot));
    if last <= at || work[at + 1..=last].iter().any(needs) {
        return at;
    }
    work[at..=last].rotate_left(1);
    last
}

/// Appends the carries that become carry `k`, each after those that become it; `false` if one becomes itself that way.
fn delayed(results: &[usize], carries: &[usize], k: usize, early: &mut Vec<usize>) -> bool {
    for j in (0..carries.len()).filter(|&j| j != k && results[j] == carries[k]) {
        if early.len() >= carries.len() || !delayed(results, carries, j, early) {
            return false;
        }
        early.push(j);
    }
    true
}

/// Lets the work of a branch write its results where both branches leave them.
pub(super) fn write_results(work: &mut Vec<Item>, results: &mut [usize], to: &[usize]) {
    for (k, &to) in to.iter().enumerate() {
        let from = results[k];
        if from != to && writes(work, from) {
            rename(work, from, to);
            results.iter_mut().filter(|result| **result == from).for_each(|result| *result = to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fused::tests::{NUMBERS, Nest, interpret};
    use super::super::numbers::Straight;
    use super::super::scalars::Code;
    use super::*;

    const CARRIES: std::ops::Range<usize> = 5..10;
    const STEPS: usize = 5;

    fn at_first(slots: usize) -> Vec<f64> {
        let mut numbers = vec![0.0; slots];
        numbers[..CARRIES.start].copy_from_slice(&NUMBERS);
        numbers[CARRIES].copy_from_slice(&[0.3, -1.2, 0.7, -0.0, 2.5]);
        numbers
    }

    fn bits(slots: &[f64]) -> Vec<u64> {
        slots[CARRIES].iter().map(|x| if x.is_nan() { 1 } else { x.to_bits() }).collect()
    }

    #[test]
    fn carries_that_work_writes_have_the_numbers_of_carries_moved_at_the_end() {
        let mut fewer = 0;
        for seed in 0..3000 {
            let mut nest = Nest { state: seed * 77 + 5, numbers: 0, slots: CARRIES.end };
            let carries: Vec<_> = CARRIES.collect();
            let mut known = carries.clone();
            let mut work = nest.work(&mut known, 2);
            // New numbers, and carries that become others: delays and changes of places among them.
            let mut results: Vec<_> = carries
                .iter()
                .map(|_| match nest.below(3) {
                    0 => known[nest.below(CARRIES.len())],
                    1 => known[known.len() - 1],
                    _ => known[nest.below(known.len())],
                })
                .collect();
            let left = nest.slots;
            let mut expected = at_first(left + 1);
            for _ in 0..STEPS {
                interpret(&work, &mut expected);
                let new: Vec<_> = results.iter().map(|&k| expected[k]).collect();
                expected[CARRIES].copy_from_slice(&new);
            }
            let moves = |results: &[usize]| {
                let mut straight = Straight::new();
                straight.slots = at_first(left + 1);
                straight.moved(results, &carries);
                straight
            };
            let before = moves(&results).work.len();
            write_carries(&mut work, &mut results, &carries);
            let Straight { work: moves, mut slots, .. } = moves(&results);
            fewer += before - moves.len().min(before);
            work.extend(moves);
            let code = Code::new(&work, &carries, Some(left));
            (0..STEPS).for_each(|_| code.run(&mut slots).unwrap());
            assert_eq!(bits(&slots), bits(&expected), "seed {seed}");
        }
        assert!(fewer > 3000, "{fewer}");
    }
}
