//! The nonzero pattern of a Jacobian or Hessian, and a small number of directions that recover it.
//!
//! Each slot has the set of inputs it depends on; a node's set is the union of its operands'. Two inputs meet in the Hessian
//! if an op is nonlinear in them together. Columns without a common row get one colour, and one direction.
//!
//! Promises: a pattern contains every entry that is nonzero for some input. Linear in nodes times the inputs of each. Does
//! not know values.

use super::node::Program;
pub use crate::array::Pattern;
use crate::error::Result;
use crate::interrupt::{self, Work};
use crate::ops::{Arity, Bend, Op, bend, bend_of_many};

/// Whether one sorted set is part of another.
fn is_subset(part: &[u32], of: &[u32]) -> bool {
    part.len() <= of.len() && part.iter().all(|x| of.binary_search(x).is_ok())
}

/// The union of sorted sets.
fn union(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut all = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        all.push(a[i].min(b[j]));
        let (x, y) = (a[i], b[j]);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    all.extend(&a[i..]);
    all.extend(&b[j..]);
    all
}

/// For each slot in `needed`, the differentiated inputs on which it depends, ascending.
fn dependencies(program: &Program, mut needed: Vec<bool>) -> Result<Vec<Vec<u32>>> {
    let first = program.first_node() as usize;
    for (k, &node) in program.nodes().iter().enumerate().rev() {
        if needed[first + k] && node.op != Op::Constant {
            program.for_each_operand(node, |x| needed[x as usize] = true);
        }
    }
    let mut work = Work::default();
    let mut all: Vec<Vec<u32>> = vec![Vec::new(); program.n_slots()];
    for (k, set) in all.iter_mut().take(program.n_differentiated()).enumerate() {
        set.push(k as u32);
    }
    for (k, &node) in program.nodes().iter().enumerate() {
        if node.op == Op::Constant || !needed[first + k] {
            continue;
        }
        let mut set = Vec::new();
        work.add(8)?;
        program.for_each_operand(node, |x| {
            let operand = &all[x as usize];
            if work.add(set.len() + operand.len()).is_err() {
                set.clear();
            } else if set.is_empty() {
                set.clone_from(operand);
            } else if !operand.is_empty() && *operand != set {
                set = union(&set, operand);
            }
        });
        all[first + k] = set;
    }
    interrupt::check().map(|()| all)
}

/// The inputs on which each output depends. Interruptible.
pub fn jacobian_pattern(program: &Program) -> Result<Pattern> {
    let mut needed = vec![false; program.n_slots()];
    program.outputs().iter().for_each(|&x| needed[x as usize] = true);
    let all = dependencies(program, needed)?;
    Pattern::of_rows(program.outputs().iter().map(|&x| all[x as usize].as_slice()))
}

/// The pairs of inputs in which the first output can have a nonzero second derivative; symmetric. Interruptible.
pub fn hessian_pattern(program: &Program) -> Result<Pattern> {
    match hessian_pattern_within(program, usize::MAX)? {
        Some(pattern) => Ok(pattern),
        None => unreachable!("no pattern takes so much"),
    }
}

/// The same, or `None` if finding it takes more than `most` elementary operations.
pub(super) fn hessian_pattern_within(program: &Program, most: usize) -> Result<Option<Pattern>> {
    let mut pairs = Vec::new();
    for_each_pair(program, |a, b| pairs.push((a, b)))?;
    let mut needed = vec![false; program.n_slots()];
    pairs.iter().for_each(|&(a, b)| (needed[a as usize], needed[b as usize]) = (true, true));
    let sets = dependencies(program, needed)?;
    let mut work = Work::default();
    let mut rows = vec![Row::default(); program.n_differentiated()];
    // The last pair, and the one with most entries: later ones within these add none. Sets grow from node to node.
    let (mut done, mut last, mut largest) = (0_usize, None, None);
    for (a, b) in pairs.into_iter().rev() {
        let (xs, ys) = (&sets[a as usize], &sets[b as usize]);
        let size = xs.len() * ys.len();
        let is_within = |pair: Option<(u32, u32)>| {
            pair.is_some_and(|(a, b)| is_subset(xs, &sets[a as usize]) && is_subset(ys, &sets[b as usize]))
        };
        work.add(xs.len() + ys.len())?;
        if is_within(last) || is_within(largest) {
            continue;
        }
        last = Some((a, b));
        if largest.is_none_or(|(a, b)| sets[a as usize].len() * sets[b as usize].len() < size) {
            largest = last;
        }
        let n = 8 + xs.len() + ys.len() + 2 * xs.len() * ys.len();
        done = done.saturating_add(n);
        if done > most {
            return Ok(None);
        }
        work.add(n)?;
        for (each, with) in [(xs, ys), (ys, xs)] {
            each.iter().for_each(|&x| rows[x as usize].extend(with));
        }
    }
    for row in &mut rows {
        work.add(16 * row.columns.len())?;
        row.sort();
    }
    Pattern::of_rows(rows.iter().map(|row| row.columns.as_slice())).map(Some)
}

/// The columns of a row while they are collected, with repetitions.
#[derive(Clone, Default)]
struct Row {
    columns: Vec<u32>,
    /// The number of columns when they were sorted last.
    sorted: usize,
}

impl Row {
    fn extend(&mut self, columns: &[u32]) {
        self.columns.extend(columns);
        // At most twice the distinct columns, so that memory stays proportional to the pattern.
        if self.columns.len() > 64 + 2 * self.sorted {
            self.sort();
        }
    }

    fn sort(&mut self) {
        self.columns.sort_unstable();
        self.columns.dedup();
        self.sorted = self.columns.len();
    }
}

/// Calls `meet` with the pairs of operands in which a node, on which the first output depends, has a second derivative.
fn for_each_pair(program: &Program, mut meet: impl FnMut(u32, u32)) -> Result<()> {
    let mut work = Work::default();
    let mut cache: [Option<Bend>; 256] = [None; 256];
    let reached = reached_from_output(program);
    for (k, &node) in program.nodes().iter().enumerate() {
        if !reached[program.first_node() as usize + k] || node.op == Op::Constant {
            continue;
        }
        let is_many = matches!(node.op.info().arity, Arity::Reduction | Arity::InnerProduct);
        let bend =
            *cache[node.op as usize].get_or_insert_with(|| if is_many { bend_of_many(node.op) } else { bend(node.op) });
        let list = program.list(node);
        work.add(8 + list.len())?;
        match node.op.info().arity {
            Arity::InnerProduct if node.op == Op::Linearised => {
                for (i, &x) in list.iter().enumerate() {
                    work.add(list.len())?;
                    list[i..].iter().for_each(|&y| meet(x, y));
                }
            }
            Arity::InnerProduct => (0..node.b as usize).for_each(|i| meet(list[i], list[node.b as usize + i])),
            Arity::Reduction => {
                for (i, &x) in list.iter().enumerate() {
                    if bend.xx {
                        meet(x, x);
                    }
                    if bend.xy {
                        work.add(i)?;
                        list[..i].iter().for_each(|&y| meet(x, y));
                    }
                }
            }
            _ => {
                let pairs = [(bend.xx, node.a, node.a), (bend.xy, node.a, node.b), (bend.yy, node.b, node.b)];
                pairs.iter().filter(|pair| pair.0).for_each(|&(_, x, y)| meet(x, y));
            }
        }
    }
    Ok(())
}

/// The slots on which the first output depends, including itself.
fn reached_from_output(program: &Program) -> Vec<bool> {
    let mut reached = vec![false; program.n_slots()];
    reached[program.outputs()[0] as usize] = true;
    for (k, &node) in program.nodes().iter().enumerate().rev() {
        if reached[program.first_node() as usize + k] && node.op != Op::Constant {
            program.for_each_operand(node, |x| reached[x as usize] = true);
        }
    }
    reached
}
