//! The nonzero pattern of a Jacobian or Hessian, and a small number of directions that recover it.
//!
//! Each slot has the set of inputs it depends on; a node's set is the union of its operands'. Two inputs meet in the Hessian
//! if an op is nonlinear in them together. Columns without a common row get one colour, and one direction.
//!
//! Promises: a pattern contains every entry that is nonzero for some input. Linear in nodes times the inputs of each. Does
//! not know values.

use super::node::{Node, Program};
use crate::error::Result;
use crate::interrupt::{self, Work};
use crate::ops::{Arity, Bend, Op, bend, bend_of_many};

/// Entries by row, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Where each row begins, and where the last one ends.
    pub starts: Vec<usize>,
    /// The columns.
    pub columns: Vec<u32>,
}

impl Pattern {
    fn of_rows<'r>(rows: impl Iterator<Item = &'r [u32]>) -> Result<Self> {
        let mut work = Work::default();
        let mut pattern = Pattern { starts: vec![0], columns: Vec::new() };
        for row in rows {
            work.add(1 + row.len())?;
            pattern.columns.extend(row);
            pattern.starts.push(pattern.columns.len());
        }
        Ok(pattern)
    }

    /// The columns of a row.
    pub fn row(&self, k: usize) -> &[u32] {
        &self.columns[self.starts[k]..self.starts[k + 1]]
    }

    /// How many rows.
    pub fn n_rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// A colour for each of `n` columns, such that no two columns of one row share one; greedy. Returns the colours
    /// and how many there are. Asks now and then whether to end early.
    pub fn colours(&self, n: usize) -> Result<(Vec<u32>, usize)> {
        let mut work = Work::default();
        let mut rows_of: Vec<Vec<u32>> = vec![Vec::new(); n];
        for k in 0..self.n_rows() {
            work.add(4 * self.row(k).len())?;
            for &c in self.row(k) {
                rows_of[c as usize].push(k as u32);
            }
        }
        let mut colours = vec![u32::MAX; n];
        let mut taken_by: Vec<u32> = Vec::new();
        for column in 0..n {
            work.add(taken_by.len())?;
            for &row in &rows_of[column] {
                work.add(self.row(row as usize).len())?;
                for &other in self.row(row as usize) {
                    if let Some(taken) = taken_by.get_mut(colours[other as usize] as usize) {
                        *taken = column as u32;
                    }
                }
            }
            let free = taken_by.iter().position(|&by| by != column as u32).unwrap_or(taken_by.len());
            if free == taken_by.len() {
                taken_by.push(u32::MAX);
            }
            colours[column] = free as u32;
        }
        Ok((colours, taken_by.len()))
    }
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

/// For each slot, the differentiated inputs it depends on, ascending.
fn dependencies(program: &Program) -> Result<Vec<Vec<u32>>> {
    let mut work = Work::default();
    let mut all: Vec<Vec<u32>> = vec![Vec::new(); program.n_slots()];
    for (k, set) in all.iter_mut().take(program.n_differentiated()).enumerate() {
        set.push(k as u32);
    }
    for (k, &node) in program.nodes().iter().enumerate() {
        if node.op == Op::Constant {
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
        all[program.first_node() as usize + k] = set;
    }
    interrupt::check().map(|()| all)
}

/// Which inputs each output depends on. Asks now and then whether to end early.
pub fn jacobian_pattern(program: &Program) -> Result<Pattern> {
    let all = dependencies(program)?;
    Pattern::of_rows(program.outputs().iter().map(|&x| all[x as usize].as_slice()))
}

/// Which pairs of inputs can have a second derivative of the first output; symmetric. Asks now and then whether to end early.
pub fn hessian_pattern(program: &Program) -> Result<Pattern> {
    let n = program.n_differentiated();
    let sets = dependencies(program)?;
    let mut work = Work::default();
    let mut rows: Vec<Vec<u32>> = vec![Vec::new(); n];
    let mut cache: [Option<Bend>; 256] = [None; 256];
    let mut meet = |a: u32, b: u32| -> Result<()> {
        work.add(1)?;
        let (xs, ys) = (&sets[a as usize], &sets[b as usize]);
        for (each, with) in [(xs, ys), (ys, xs)] {
            for &x in each {
                work.add(8 + with.len())?;
                rows[x as usize].extend(with);
            }
        }
        Ok(())
    };
    let reached = reached_from_output(program);
    for (k, &node) in program.nodes().iter().enumerate() {
        if !reached[program.first_node() as usize + k] || node.op == Op::Constant {
            continue;
        }
        let is_many = matches!(node.op.info().arity, Arity::Reduction | Arity::InnerProduct);
        let bend =
            *cache[node.op as usize].get_or_insert_with(|| if is_many { bend_of_many(node.op) } else { bend(node.op) });
        match node.op.info().arity {
            Arity::InnerProduct if node.op == Op::Linearised => {
                let list = program.list(node);
                for (i, &x) in list.iter().enumerate() {
                    list[i..].iter().try_for_each(|&y| meet(x, y))?;
                }
            }
            Arity::InnerProduct => {
                let list = program.list(node);
                (0..node.b as usize).try_for_each(|i| meet(list[i], list[node.b as usize + i]))?;
            }
            Arity::Reduction => meet_many(program, node, bend, &mut meet)?,
            _ => {
                if bend.xx {
                    meet(node.a, node.a)?;
                }
                if bend.xy {
                    meet(node.a, node.b)?;
                }
                if bend.yy {
                    meet(node.b, node.b)?;
                }
            }
        }
    }
    for row in &mut rows {
        work.add(16 * row.len())?;
        row.sort_unstable();
        row.dedup();
    }
    Pattern::of_rows(rows.iter().map(Vec::as_slice))
}

fn meet_many(program: &Program, node: Node, bend: Bend, meet: &mut impl FnMut(u32, u32) -> Result<()>) -> Result<()> {
    let list = program.list(node);
    for (i, &x) in list.iter().enumerate() {
        if bend.xx {
            meet(x, x)?;
        }
        if bend.xy {
            list[..i].iter().try_for_each(|&y| meet(x, y))?;
        }
    }
    Ok(())
}

/// The slots that the first output depends on, itself included.
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
