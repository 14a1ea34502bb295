//! Work on single numbers in fewer operations, with the same bits.
//!
//! Derivatives of derivatives repeat operations, hide each term where its adjoint is unreached, and let a rate of 0 contribute
//! nothing. Here one pass in order resolves what is known of the numbers so far: equal operations are done once; sums with 0 and
//! products with 1 are the other number; masks and choices of such terms become one operation. Then what a loop computes again from
//! the same numbers moves before it, and what nothing reads goes. Slots may be written several times: all that is noted of a slot
//! holds for one writing of it. Does not know derivatives.

use std::collections::HashMap;

use super::super::expansion::MathOp;
use super::fused::{Item, Operation};
use super::invariant::{lift, remove_unread, written};
use super::math::{ArrayFloat, BlockOp, arity};
use super::never_unreached::Start;
use super::signs::without_needless;
use crate::simd::Real;

/// A slot as it was written.
type Version = (usize, u32);

/// What an operation becomes.
enum New {
    /// The number of a slot.
    Same(usize),
    Operation(BlockOp, [usize; 3]),
}

struct Known<'s, E> {
    slots: &'s [E],
    /// One that holds 0 throughout.
    zero: usize,
    /// Of each slot whether it holds what it holds at first throughout.
    is_constant: &'s [bool],
    /// Whether it never holds what is unreached.
    is_reached: Vec<bool>,
    /// How often it was written.
    versions: Vec<u32>,
    /// Of operations whose operands have not changed: by their results, and the reverse.
    made: HashMap<Version, (BlockOp, [Version; 3])>,
    done: HashMap<[Version; 3], Vec<(BlockOp, Version)>>,
    /// Slots with the numbers of others.
    same: HashMap<Version, Version>,
}

/// Rewrites work on slots, of which the first `arguments` are written before it and those `kept` are read after it.
pub(super) fn simplify<E: ArrayFloat>(work: &mut Vec<Item>, slots: &mut Vec<E>, arguments: usize, kept: &[usize]) {
    let zero = slots.len();
    slots.push(E::default());
    let mut writes = vec![0; slots.len()];
    writes[..arguments].fill(1);
    written(work, &mut |slot| writes[slot] += 1);
    let is_constant: Vec<_> = writes.iter().map(|&writes| writes == 0).collect();
    let start = Start { slots, is_constant: &is_constant, arguments };
    let none = vec![false; slots.len()];
    for round in 0..2 {
        if round > 0 {
            without_needless(work, zero, &start, kept);
        }
        let mut known = Known {
            slots,
            zero,
            is_constant: &is_constant,
            is_reached: start.never_unreached(work, &none),
            versions: vec![0; slots.len()],
            made: HashMap::new(),
            done: HashMap::new(),
            same: HashMap::new(),
        };
        known.rewrite(work);
        remove_unread(work, slots.len(), kept);
    }
    lift(work, &writes);
}

impl<E: ArrayFloat> Known<'_, E> {
    fn rewrite(&mut self, work: &mut [Item]) {
        for item in work {
            match item {
                Item::Operation(operation) => {
                    if let Some(from) = self.simpler(operation) {
                        *item = Item::Move { from, to: operation.to };
                    }
                }
                Item::Move { from, to } => {
                    *from = self.now(*from);
                    if from != to {
                        let of = self.version(*from);
                        self.write(*to);
                        self.same.insert(self.version(*to), of);
                    }
                }
                Item::Choice { of, yes, no } => {
                    *of = self.now(*of);
                    for part in [yes, no] {
                        self.rewrite(part);
                        self.write_all(part);
                    }
                }
                Item::Loop { condition, of, body } => {
                    // What any step writes, the first one may read.
                    self.write_all(condition);
                    self.write_all(body);
                    self.rewrite(condition);
                    *of = self.now(*of);
                    self.rewrite(body);
                    self.write_all(condition);
                    self.write_all(body);
                }
            }
        }
    }

    fn version(&self, slot: usize) -> Version {
        (slot, self.versions[slot])
    }

    fn is_current(&self, version: Version) -> bool {
        self.version(version.0) == version
    }

    fn write(&mut self, slot: usize) {
        self.versions[slot] += 1;
    }

    fn write_all(&mut self, work: &[Item]) {
        written(work, &mut |slot| self.write(slot));
    }

    /// The first slot that has the number of this one.
    fn now(&self, slot: usize) -> usize {
        match self.same.get(&self.version(slot)) {
            Some(&of) if self.is_current(of) => of.0,
            _ => slot,
        }
    }

    /// Rewrites an operation and notes what it does; the slot whose number it is, if there is one.
    fn simpler(&mut self, operation: &mut Operation) -> Option<usize> {
        let n = operation.arity();
        let mut of = [0; 3];
        (0..n).for_each(|k| of[k] = self.now(operation.of[k]));
        let mut op = operation.op;
        let from = loop {
            match self.rule(op, of) {
                Some(New::Same(slot)) => break Some(slot),
                Some(New::Operation(new, operands)) => (op, of) = (new, operands),
                None => break None,
            }
        };
        (operation.op, operation.of) = (op, of);
        let mut versions = [(0, 0); 3];
        (0..arity(op)).for_each(|k| versions[k] = self.version(of[k]));
        let equal = |&&(known, to): &&(BlockOp, Version)| known == op && self.is_current(to);
        let done = self.done.get(&versions).and_then(|all| all.iter().find(equal)).map(|(_, to)| to.0);
        let from = from.or(done);
        let source = from.map(|slot| self.version(slot));
        self.write(operation.to);
        let to = self.version(operation.to);
        match source {
            Some(source) => drop(self.same.insert(to, source)),
            None => {
                self.made.insert(to, (op, versions));
                self.done.entry(versions).or_default().push((op, to));
            }
        }
        from
    }

    /// The operation that computes a slot, if its operands are what they were.
    fn made(&self, slot: usize) -> Option<(BlockOp, [usize; 3])> {
        let &(op, of) = self.made.get(&self.version(slot))?;
        of[..arity(op)].iter().all(|&of| self.is_current(of)).then(|| (op, of.map(|(slot, _)| slot)))
    }

    fn math(&self, slot: usize) -> Option<(MathOp, [usize; 3])> {
        if let (BlockOp::Math(op), of) = self.made(slot)? { Some((op, of)) } else { None }
    }

    /// Whether a slot holds this number throughout.
    fn holds(&self, slot: usize, x: E) -> bool {
        self.is_constant[slot] && self.slots[slot] == x && self.slots[slot].is_unreached() == x.is_unreached()
    }

    fn is_zero(&self, slot: usize) -> bool {
        self.holds(slot, E::default())
    }

    fn is_one(&self, slot: usize) -> bool {
        self.holds(slot, <E as Real>::of(1.0))
    }

    /// What `x` is if it is a number plus 0.
    fn plus_zero(&self, x: usize) -> Option<usize> {
        let (MathOp::Add, [y, zero, _]) = self.math(x)? else { return None };
        self.is_zero(zero).then_some(y)
    }

    /// Something simpler with the same bits.
    fn rule(&self, op: BlockOp, [x, y, z]: [usize; 3]) -> Option<New> {
        use New::{Operation as Op, Same};
        match op {
            BlockOp::Contribution if self.is_reached[x] => Some(Op(BlockOp::Math(MathOp::Add), [y, self.zero, 0])),
            BlockOp::Contribution => {
                if let Some(y) = self.plus_zero(y) {
                    return Some(Op(op, [x, y, 0]));
                }
                let (BlockOp::NanOr, [nan, y, _]) = self.made(y)? else { return None };
                Some(Op(BlockOp::ContributionNanOr, [x, nan, y]))
            }
            BlockOp::Hidden if self.is_reached[x] => Some(Same(y)),
            BlockOp::Math(op) => match op {
                MathOp::Add if self.holds(y, E::UNREACHED) => Some(Same(x)),
                MathOp::Add if self.holds(x, E::UNREACHED) => Some(Same(y)),
                MathOp::Add if self.is_zero(y) && self.is_reached[x] => Some(Same(x)),
                MathOp::Add if self.is_zero(y) && y != self.zero => Some(Op(BlockOp::Math(op), [x, self.zero, 0])),
                MathOp::Add if self.is_zero(x) && !self.is_zero(y) => Some(Op(BlockOp::Math(op), [y, self.zero, 0])),
                MathOp::Sub if self.is_zero(y) => Some(Same(x)),
                MathOp::Mul | MathOp::Div if self.is_one(y) => Some(Same(x)),
                MathOp::Mul if self.is_one(x) => Some(Same(y)),
                MathOp::Neg => match self.math(x)? {
                    (MathOp::Neg, [x, ..]) => Some(Same(x)),
                    _ => None,
                },
                MathOp::Select if y == z => Some(Same(y)),
                MathOp::Select => self.chosen(x, y, z),
                _ => None,
            },
            _ => None,
        }
    }

    /// Of a choice.
    fn chosen(&self, mask: usize, yes: usize, no: usize) -> Option<New> {
        use New::{Operation as Op, Same};
        match self.made(mask)? {
            (BlockOp::IsUnreached, [by, ..]) if self.is_reached[by] => Some(Same(no)),
            (BlockOp::IsUnreached, [by, ..]) if self.holds(yes, E::UNREACHED) => Some(match self.plus_zero(no) {
                Some(c) => Op(BlockOp::Contribution, [by, c, 0]),
                None => Op(BlockOp::Hidden, [by, no, 0]),
            }),
            (BlockOp::Math(MathOp::IsNan), [x, ..]) if x == yes => Some(Op(BlockOp::NanOr, [yes, no, 0])),
            (BlockOp::Math(MathOp::Equal), [rate, zero, _]) if self.is_zero(zero) => self.resting(rate, yes, no),
            _ => None,
        }
    }

    /// Of `c`, a multiple of a rate: where that is 0, `at_rest` is `c + 0`, or something else if it is NaN.
    fn resting(&self, rate: usize, at_rest: usize, c: usize) -> Option<New> {
        let (MathOp::Select, [mask, rest, plus]) = self.math(at_rest)? else { return None };
        let is_meant = self.math(mask)? == (MathOp::IsNan, [c, 0, 0])
            && (plus == c && self.is_reached[c] || self.plus_zero(plus) == Some(c));
        if !is_meant {
            return None;
        }
        if c == rate {
            return Some(New::Operation(BlockOp::Math(MathOp::Add), [c, self.zero, 0]));
        }
        match self.math(c) {
            Some((MathOp::Div, [x, y, _])) if (x, rest) == (rate, rate) => {
                Some(New::Operation(BlockOp::RestingQuotient, [x, y, 0]))
            }
            _ if !self.is_zero(rest) => None,
            Some((MathOp::Mul, [x, y, _])) if x == rate => Some(New::Operation(BlockOp::RestingProduct, [x, y, 0])),
            _ => Some(New::Operation(BlockOp::Resting, [rate, c, 0])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fused::tests::{NUMBERS, Nest, interpret};
    use super::super::scalars::Code;
    use super::*;

    const ARGUMENTS: usize = 6;
    /// The last ones.
    const CARRIES: usize = 4;
    const SPECIAL: [f64; 10] = [0.3, -1.2, 0.0, -0.0, 1.0, f64::INFINITY, f64::NAN, 5e-324, -1e300, 2.5];

    /// A loop of 3 steps over random work, whose carries become any numbers of it, by way of other slots.
    fn repeated(nest: &mut Nest) -> (Vec<Item>, Vec<usize>) {
        let mut known: Vec<_> = (0..ARGUMENTS).collect();
        let mut work = nest.work(&mut known, 1);
        let mut kept: Vec<_> = (ARGUMENTS - CARRIES..ARGUMENTS).chain([known[known.len() - 1]]).collect();
        let [counter, of] = [0, 1].map(|k| nest.slots + k);
        nest.slots += 2;
        work.push(Item::Move { from: nest.numbers + 2, to: counter });
        let mut body = nest.work(&mut known, 2);
        body.extend(nest.work(&mut known, 1));
        let between = nest.slots;
        nest.slots += CARRIES;
        for k in 0..CARRIES {
            let from = if nest.below(3) == 0 { known[nest.below(ARGUMENTS)] } else { known[nest.below(known.len())] };
            body.push(Item::Move { from, to: between + k });
        }
        body.extend((0..CARRIES).map(|k| Item::Move { from: between + k, to: ARGUMENTS - CARRIES + k }));
        let operation = |op, of, to| Item::Operation(Operation { op: BlockOp::Math(op), of, to });
        body.push(operation(MathOp::Sub, [counter, nest.numbers + 1, 0], counter));
        let condition = vec![operation(MathOp::Less, [nest.numbers, counter, 0], of)];
        work.push(Item::Loop { condition, of, body });
        work.extend(nest.work(&mut known, 1));
        kept.extend([known[known.len() - 1], known[known.len() - 2]]);
        (work, kept)
    }

    #[test]
    fn simpler_work_has_the_bits_of_the_work() {
        let mut counts = [0; 2];
        for seed in 0..3000 {
            let slots = ARGUMENTS + NUMBERS.len();
            let mut nest = Nest { state: seed * 77 + 5, numbers: ARGUMENTS, slots };
            let (mut work, kept) = repeated(&mut nest);
            let mut slots = vec![0.0; nest.slots + 1];
            slots[ARGUMENTS..][..NUMBERS.len()].copy_from_slice(&NUMBERS);
            // No loop is long.
            slots[ARGUMENTS + 3] = 2.0;
            let before = work.clone();
            let mut simple = slots.clone();
            simplify(&mut work, &mut simple, ARGUMENTS, &kept);
            let code = [&before, &work].map(|work| Code::new(work, &kept, Some(nest.slots)));
            let fast = Code::repeated(&work, &kept, Some(nest.slots));
            counts.iter_mut().zip(&code).for_each(|(count, code)| *count += code.len());
            for _ in 0..3 {
                for argument in 0..ARGUMENTS {
                    slots[argument] = SPECIAL[nest.below(SPECIAL.len())];
                    simple[argument] = slots[argument];
                }
                interpret(&before, &mut slots);
                let mut by_fast = simple.clone();
                code[1].run(&mut simple).unwrap();
                fast.run(&mut by_fast).unwrap();
                let bits = |slots: &[f64]| -> Vec<_> {
                    kept.iter().map(|&k| if slots[k].is_nan() { 1 } else { slots[k].to_bits() }).collect()
                };
                assert_eq!(bits(&simple), bits(&slots), "seed {seed}");
                assert_eq!(bits(&by_fast), bits(&slots), "seed {seed}, as machine code");
            }
        }
        assert!(counts[1] * 2 < counts[0], "{counts:?}");
    }
}
