//! Operations on single numbers in the order in which they wait least for each other.
//!
//! The simple algorithm: as they come. Departure: of those whose operands are there the next one is that with the longest way to
//! the end, in cycles; one that reads the number computed last, which is in a register, has a start. Promises: the same numbers:
//! each operation comes after those whose results it reads or overwrites, and those that read what it overwrites. Does not know
//! how they run.

use std::collections::HashMap;

use super::super::expansion::MathOp;
use super::fused::Operation;
use super::math::BlockOp;
use crate::ops::Function;

/// More at once take too long.
const MOST: usize = 256;

/// What a number takes to memory and back, in cycles.
const MEMORY: usize = 5;

/// The operations in another order. A comparison at the end stays there.
pub(super) fn scheduled(operations: &[Operation]) -> Vec<Operation> {
    operations.chunks(MOST).flat_map(ordered).collect()
}

/// Who must come before each, and how.
struct Links {
    /// The operations after each, and whether they read its result.
    after: Vec<Vec<(usize, bool)>>,
    /// How many come before each.
    before: Vec<usize>,
}

impl Links {
    fn new(operations: &[Operation]) -> Self {
        let n = operations.len();
        let mut links = Links { after: vec![Vec::new(); n], before: vec![0; n] };
        // The operation that wrote a slot last, and those that have read it since.
        let mut slots: HashMap<usize, (Option<usize>, Vec<usize>)> = HashMap::new();
        for (at, operation) in operations.iter().enumerate() {
            for of in &operation.of[..operation.arity()] {
                let (writer, readers) = slots.entry(*of).or_default();
                writer.iter().for_each(|&writer| links.link(writer, at, true));
                readers.push(at);
            }
            let (writer, readers) = slots.entry(operation.to).or_default();
            let earlier = writer.iter().chain(&*readers).filter(|&&earlier| earlier != at);
            earlier.for_each(|&earlier| links.link(earlier, at, false));
            (*writer, *readers) = (Some(at), Vec::new());
        }
        let is_comparison = |operation: &Operation| {
            matches!(operation.op, BlockOp::Math(MathOp::Less | MathOp::LessEqual | MathOp::Equal))
        };
        if n > 1 && is_comparison(&operations[n - 1]) {
            (0..n - 1).for_each(|at| links.link(at, n - 1, false));
        }
        links
    }

    fn link(&mut self, from: usize, to: usize, reads: bool) {
        self.after[from].push((to, reads));
        self.before[to] += 1;
    }
}

fn ordered(operations: &[Operation]) -> Vec<Operation> {
    let Links { after, mut before } = Links::new(operations);
    let mut way = vec![0; operations.len()];
    for at in (0..operations.len()).rev() {
        let most = after[at].iter().map(|&(next, reads)| way[next] + if reads { 0 } else { 1 }).max();
        way[at] = most.unwrap_or(0) + cycles(operations[at].op);
    }
    let mut ready: Vec<_> = (0..operations.len()).filter(|&at| before[at] == 0).collect();
    let mut result: Vec<Operation> = Vec::with_capacity(operations.len());
    while !ready.is_empty() {
        let last = result.last().map(|last| last.to);
        let urgency = |&at: &usize| {
            let operation = &operations[at];
            let is_next = last.is_some_and(|last| operation.of[..operation.arity()].contains(&last));
            (way[at] + if is_next { MEMORY } else { 0 }, usize::MAX - at)
        };
        let Some(k) = (0..ready.len()).max_by_key(|&k| urgency(&ready[k])) else { break };
        let at = ready.swap_remove(k);
        result.push(operations[at]);
        for &(next, _) in &after[at] {
            before[next] -= 1;
            if before[next] == 0 {
                ready.push(next);
            }
        }
    }
    result
}

/// About how long a result takes.
fn cycles(op: BlockOp) -> usize {
    match op {
        BlockOp::Two(_) => 8,
        BlockOp::Math(MathOp::Div) | BlockOp::RestingQuotient => 14,
        BlockOp::Math(MathOp::Function(Function::Sqrt)) => 20,
        BlockOp::Math(MathOp::Function(Function::Abs)) => 2,
        BlockOp::Math(MathOp::Function(_)) => 40,
        _ => 4,
    }
}
