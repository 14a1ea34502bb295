//! Work on single numbers, and operations on them that are done together.
//!
//! Promises the bits of the operations one by one. Knows nothing of how they run.

use std::collections::HashMap;

use super::super::expansion::MathOp;
use super::math::{BlockOp, arity};
use super::work::{as_first, as_second};
use crate::kernels::Two;

/// An operation on slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) op: BlockOp,
    pub(super) of: [usize; 3],
    pub(super) to: usize,
}

impl Operation {
    /// How many slots it reads.
    pub(super) fn arity(&self) -> usize {
        arity(self.op)
    }
}

/// A part of the work on slots.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Operation(Operation),
    Move {
        from: usize,
        to: usize,
    },
    /// One of both, by whether the slot holds anything but 0.
    Choice {
        of: usize,
        yes: Vec<Item>,
        no: Vec<Item>,
    },
    /// The body as often as the slot holds anything but 0 after the condition.
    Loop {
        condition: Vec<Item>,
        of: usize,
        body: Vec<Item>,
    },
}

/// How often slots are read in all of the work; those that are kept never count as read once.
pub(super) fn all_reads(work: &[Item], kept: &[usize]) -> Vec<usize> {
    fn count(work: &[Item], read: &mut impl FnMut(usize)) {
        for item in work {
            match item {
                Item::Operation(operation) => operation.of[..operation.arity()].iter().for_each(|&k| read(k)),
                Item::Move { from, .. } => read(*from),
                Item::Choice { of, yes, no } => {
                    read(*of);
                    count(yes, read);
                    count(no, read);
                }
                Item::Loop { condition, of, body } => {
                    count(condition, read);
                    read(*of);
                    count(body, read);
                }
            }
        }
    }
    let mut reads = Vec::new();
    let mut read = |k: usize| {
        reads.resize(reads.len().max(k + 1), 0);
        reads[k] += 1;
    };
    count(work, &mut read);
    kept.iter().for_each(|&k| (0..2).for_each(|_| read(k)));
    reads
}

/// The same operations in fewer steps, where slots are read so often in all.
///
/// Linear in the operations, however many slots there are.
pub(super) fn together(operations: &[Operation], reads: &[usize]) -> Vec<Operation> {
    let (fused, fewer) = fused(operations, reads);
    let is_read_once = |k: usize| reads.get(k).is_some_and(|n| n - fewer.get(&k).unwrap_or(&0) == 1);
    paired(&fused, &is_read_once)
}

/// The operations with products that only a contribution reads done by it, and how much less often slots are read then.
fn fused(operations: &[Operation], reads: &[usize]) -> (Vec<Operation>, HashMap<usize, usize>) {
    let mut result: Vec<Operation> = Vec::with_capacity(operations.len());
    let mut fewer = HashMap::new();
    for &operation in operations {
        if let (BlockOp::Contribution, Some(last)) = (operation.op, result.last().copied())
            && last.op == BlockOp::Math(MathOp::Mul)
            && last.to == operation.of[1]
            && reads.get(last.to) == Some(&1)
            && last.of[0] == operation.of[0]
        {
            result.pop();
            // It is read once by the contribution, not by the product as well.
            *fewer.entry(last.of[0]).or_default() += 1;
            result.push(Operation { op: BlockOp::Product, of: [last.of[0], last.of[1], 0], to: operation.to });
            continue;
        }
        result.push(operation);
    }
    (result, fewer)
}

/// The operations with those whose results only one other reads done together with it, in its place.
fn paired(operations: &[Operation], is_read_once: &impl Fn(usize) -> bool) -> Vec<Operation> {
    let mut result: Vec<Option<Operation>> = Vec::with_capacity(operations.len());
    // Which of the result wrote a slot last. One that goes is read no more.
    let mut writers: HashMap<usize, usize> = HashMap::new();
    for &operation in operations {
        let first = |side: usize| {
            let at = *writers.get(&operation.of[side])?;
            let Operation { op, of, to } = result[at]?;
            let first = as_first(op).filter(|_| is_read_once(to))?;
            let is_changed = of[..arity(op)].iter().any(|slot| writers.get(slot).is_some_and(|&last| last > at));
            (!is_changed).then(|| (at, side, first, [of[0], of[arity(op) - 1]]))
        };
        let pair = as_second(operation.op)
            .and_then(|second| Some((second, (0..2).filter_map(first).max_by_key(|first| first.0)?)));
        let operation = match pair {
            None => operation,
            Some((second, (at, side, first, [x, y]))) => {
                result[at] = None;
                let op = BlockOp::Two(Two { first, second, to_right: side == 1 });
                Operation { op, of: [x, y, operation.of[1 - side]], to: operation.to }
            }
        };
        writers.insert(operation.to, result.len());
        result.push(Some(operation));
    }
    result.into_iter().flatten().collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::scalars::Code;
    use super::*;
    use crate::ops::Function;

    const ARGUMENTS: usize = 5;
    const RESULTS: usize = 30;

    /// Operations on slots of arguments and of each other, two of which are kept, and one that writes an argument at last.
    fn operations(seed: usize) -> (Vec<Operation>, [usize; 3]) {
        let mut state = seed as u64 * 2 + 1;
        let mut below = |n: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % n
        };
        let ops = [MathOp::Add, MathOp::Sub, MathOp::Mul, MathOp::Neg, MathOp::Div].map(BlockOp::Math);
        let ops = [&ops[..], &[BlockOp::Product, BlockOp::Contribution, BlockOp::Math(MathOp::Select)]].concat();
        let mut operations: Vec<_> = (ARGUMENTS..ARGUMENTS + RESULTS)
            .map(|to| {
                // Mostly of what was computed last.
                let mut slot = || if below(3) == 0 { below(to) } else { to - 1 - below(to.min(4)) };
                let of = [slot(), slot(), slot()];
                Operation { op: ops[below(ops.len())], of, to }
            })
            .collect();
        let last = ARGUMENTS + RESULTS - 1;
        operations.push(Operation { op: BlockOp::Math(MathOp::Add), of: [0, last, 0], to: 0 });
        operations.push(Operation { op: BlockOp::Math(MathOp::Mul), of: [last - 1, 1, 0], to: last + 1 });
        (operations, [0, last + 1, last - 3])
    }

    #[test]
    fn operations_done_together_have_the_bits_of_single_ones() {
        let mut together = 0;
        for seed in 0..3000 {
            let (operations, kept) = operations(seed);
            let mut slots = [0.0; ARGUMENTS + RESULTS + 1];
            slots[..ARGUMENTS].copy_from_slice(&[1.25, -0.0, -3.5, 0.1, f64::INFINITY]);
            let mut expected = slots;
            let work: Vec<_> = operations.iter().copied().map(Item::Operation).collect();
            work.iter().zip(&operations).for_each(|(item, operation)| {
                Code::new(std::slice::from_ref(item), &[operation.to], None).run(&mut expected).unwrap();
            });
            let bits = |slots: &[f64]| kept.map(|k| if slots[k].is_nan() { 1 } else { slots[k].to_bits() });
            for new in [Code::new, Code::repeated] {
                let (code, mut slots) = (new(&work, &kept, None), slots);
                code.run(&mut slots).unwrap();
                together += operations.len() + 1 - code.len();
                assert_eq!(bits(&slots), bits(&expected), "seed {seed}");
            }
        }
        assert!(together > 6000, "{together}");
    }

    /// Random work of which every part may be a choice or a loop. The slots from `numbers` on hold 0, 1, 3, 700 and -0.0.
    pub(in super::super) struct Nest {
        pub(in super::super) state: u64,
        pub(in super::super) numbers: usize,
        pub(in super::super) slots: usize,
    }

    pub(in super::super) const NUMBERS: [f64; 5] = [0.0, 1.0, 3.0, 700.0, -0.0];

    impl Nest {
        pub(in super::super) fn below(&mut self, n: usize) -> usize {
            self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (self.state >> 33) as usize % n
        }

        fn slot(&mut self) -> usize {
            self.slots += 1;
            self.slots - 1
        }

        fn operation(&mut self, op: MathOp, of: [usize; 3]) -> (Item, usize) {
            let to = self.slot();
            (Item::Operation(Operation { op: BlockOp::Math(op), of, to }), to)
        }

        /// Appends to the slots that are known.
        pub(in super::super) fn work(&mut self, known: &mut Vec<usize>, depth: usize) -> Vec<Item> {
            let mut work = Vec::new();
            for _ in 0..1 + self.below(6) {
                let n = known.len();
                let of = [(); 3].map(|()| if self.below(2) == 0 { known[self.below(n)] } else { known[n - 1] });
                let op = [MathOp::Add, MathOp::Sub, MathOp::Mul, MathOp::Neg][self.below(4)];
                let (item, to) = self.operation(op, of);
                work.push(item);
                known.push(to);
                match self.below(8) {
                    0 if depth > 0 => self.choice(&mut work, known, depth - 1),
                    1 if depth > 0 => self.repeated(&mut work, known, depth - 1),
                    2 | 3 => {
                        let to = self.formula(&mut work, known);
                        known.push(to);
                    }
                    _ => {}
                }
            }
            work
        }

        /// Appends operations as derivatives have them.
        fn formula(&mut self, work: &mut Vec<Item>, known: &[usize]) -> usize {
            let [x, y, z] = [(); 3].map(|()| known[self.below(known.len())]);
            let [zero, one, unreached] = [0, 1, 4].map(|k| self.numbers + k);
            let kind = self.below(12);
            let mut push = |op, of| {
                let to = self.slot();
                work.push(Item::Operation(Operation { op, of, to }));
                to
            };
            let mut math = |op, of| push(BlockOp::Math(op), of);
            match kind {
                // A rate that is 0 contributes nothing.
                0..4 => {
                    let (c, rest) = match kind {
                        0 => (math(MathOp::Mul, [x, y, 0]), zero),
                        1 => (math(MathOp::Div, [x, y, 0]), x),
                        2 => (math(MathOp::Mul, [y, x, 0]), zero),
                        _ => (x, zero),
                    };
                    let is_nan = math(MathOp::IsNan, [c, 0, 0]);
                    let plus = math(MathOp::Add, [c, zero, 0]);
                    let at_rest = math(MathOp::Select, [is_nan, rest, plus]);
                    let rests = math(MathOp::Equal, [x, zero, 0]);
                    math(MathOp::Select, [rests, at_rest, c])
                }
                // Nothing comes from what is unreached.
                4 | 5 => {
                    let plus = if kind == 4 { math(MathOp::Add, [y, zero, 0]) } else { y };
                    let mask = push(BlockOp::IsUnreached, [x, 0, 0]);
                    push(BlockOp::Math(MathOp::Select), [mask, unreached, plus])
                }
                // What is not a number has no derivative.
                6 | 7 => {
                    let mask = math(MathOp::IsNan, [y, 0, 0]);
                    let c = math(MathOp::Select, [mask, y, z]);
                    if kind == 6 { c } else { push(BlockOp::Contribution, [x, c, 0]) }
                }
                8 => {
                    let c = math(MathOp::Mul, [x, y, 0]);
                    push(BlockOp::Contribution, [x, c, 0])
                }
                9 => {
                    let square = math(MathOp::Mul, [x, x, 0]);
                    math(MathOp::Function(Function::Sqrt), [square, 0, 0])
                }
                10 => {
                    let c = math(MathOp::Mul, [x, one, 0]);
                    let c = math(MathOp::Sub, [c, zero, 0]);
                    math(MathOp::Add, [zero, c, 0])
                }
                _ => {
                    let c = math(MathOp::Mul, [x, y, 0]);
                    let c = math(MathOp::Add, [c, zero, 0]);
                    let other = math(MathOp::Add, [z, zero, 0]);
                    math(MathOp::Add, [c, other, 0])
                }
            }
        }

        fn choice(&mut self, work: &mut Vec<Item>, known: &mut Vec<usize>, depth: usize) {
            let of = [(); 3].map(|()| known[self.below(known.len())]);
            let ((item, of), to) = (self.operation(MathOp::Less, of), self.slot());
            let [yes, no] = [(); 2].map(|()| {
                let mut inside = known.clone();
                let mut work = self.work(&mut inside, depth);
                work.push(Item::Move { from: inside[inside.len() - 1], to });
                work
            });
            work.extend([item, Item::Choice { of, yes, no }]);
            known.push(to);
        }

        /// 0, 1, 3 or 700 times, as the first slots say.
        fn repeated(&mut self, work: &mut Vec<Item>, known: &mut Vec<usize>, depth: usize) {
            let (counter, carry, times) = (self.slot(), self.slot(), self.numbers + self.below(4));
            work.push(Item::Move { from: times, to: counter });
            work.push(Item::Move { from: known[self.below(known.len())], to: carry });
            let (condition, of) = self.operation(MathOp::Less, [self.numbers, counter, 0]);
            let mut inside = known.clone();
            inside.push(carry);
            let mut body = self.work(&mut inside, if times == self.numbers + 3 { 0 } else { depth });
            let (less, left) = self.operation(MathOp::Sub, [counter, self.numbers + 1, 0]);
            body.push(less);
            let from = inside[inside.len() - 1];
            body.push(match self.below(3) {
                // Also of what the loop does not change.
                0 => {
                    let of = [(); 3].map(|()| if self.below(2) == 0 { known[self.below(known.len())] } else { from });
                    Item::Operation(Operation { op: BlockOp::Math(MathOp::Add), of, to: carry })
                }
                _ => Item::Move { from, to: carry },
            });
            body.push(Item::Move { from: left, to: counter });
            work.push(Item::Loop { condition: vec![condition], of, body });
            known.push(carry);
        }
    }

    /// All but those done together; simple ones come first.
    pub(in super::super) fn all_operations() -> Vec<BlockOp> {
        use BlockOp::{
            Contribution, ContributionNanOr, Hidden, IsUnreached, MulAdd, NanOr, Product, ReachedMulAdd, Resting,
            RestingProduct, RestingQuotient,
        };
        let ops = [Contribution, ContributionNanOr, Hidden, IsUnreached, MulAdd, NanOr, Product, ReachedMulAdd];
        let math = [MathOp::Add, MathOp::Sub, MathOp::Mul, MathOp::Div, MathOp::Neg, MathOp::Less, MathOp::LessEqual];
        let more = [MathOp::Equal, MathOp::IsNan, MathOp::Select, MathOp::Add, MathOp::Sub, MathOp::Mul];
        let functions = Function::ALL.iter().map(|&function| MathOp::Function(function));
        let math = math.into_iter().chain(more).chain(functions).map(BlockOp::Math);
        ops.into_iter().chain([Resting, RestingProduct, RestingQuotient]).chain(math).collect()
    }

    /// What an operation makes of numbers.
    pub(in super::super) fn result(op: BlockOp, [x, y, z]: [f64; 3]) -> f64 {
        let mut slots = [x, y, z, 0.0];
        let operation = Operation { op, of: [0, 1, 2], to: 3 };
        Code::new(&[Item::Operation(operation)], &[3], None).run(&mut slots).unwrap();
        slots[3]
    }

    /// Zeros and others.
    pub(in super::super) const ZEROS_AND_OTHERS: [f64; 8] =
        [0.0, -0.0, 1.5, -2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 5e-324];

    /// One after the other.
    pub(in super::super) fn interpret(work: &[Item], slots: &mut [f64]) {
        for item in work {
            match item {
                Item::Operation(operation) => {
                    Code::new(std::slice::from_ref(item), &[operation.to], None).run(slots).unwrap();
                }
                Item::Move { from, to } => slots[*to] = slots[*from],
                Item::Choice { of, yes, no } => interpret(if slots[*of] == 0.0 { no } else { yes }, slots),
                Item::Loop { condition, of, body } => loop {
                    interpret(condition, slots);
                    if slots[*of] == 0.0 {
                        break;
                    }
                    interpret(body, slots);
                },
            }
        }
    }

    #[test]
    fn loops_and_choices_as_jumps_have_the_bits_of_work_done_part_by_part() {
        for seed in 0..300 {
            let mut nest = Nest { state: seed * 77 + 5, numbers: 0, slots: 8 };
            let mut known = vec![5, 6, 7];
            let work = nest.work(&mut known, 3);
            let left = nest.slot();
            let mut slots = vec![0.0; nest.slots];
            slots[..5].copy_from_slice(&NUMBERS);
            slots[5..8].copy_from_slice(&[0.3, -1.2, 0.7]);
            let mut expected = slots.clone();
            interpret(&work, &mut expected);
            let kept = [known[known.len() - 1], known[known.len() / 2]];
            let codes = [Code::new, Code::repeated].map(|new| new(&work, &kept, Some(left)));
            for (run, code) in codes.iter().chain(&codes).enumerate() {
                code.run(&mut slots).unwrap();
                let bits = |slots: &[f64]| kept.map(|k| if slots[k].is_nan() { 1 } else { slots[k].to_bits() });
                assert_eq!(bits(&slots), bits(&expected), "seed {seed}, run {run}");
            }
        }
    }
}
