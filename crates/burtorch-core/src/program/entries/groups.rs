//! Operations over slices of one array.
//!
//! Operations of one kind and depth, on the same literals, form a group, in the order of their operands; so most operands
//! are contiguous, and a kernel reads them in place. Others are gathered first.
//!
//! Promises: no operation comes before its operands; no allocation in a run. Does not know derivatives.

use std::collections::HashMap;
use std::mem::discriminant;
use std::ops::Range;

use super::formulas::{Formula, Formulas, Number, UNKNOWN};
use crate::array::{MathOp, compute_formula};
use crate::error::Result;
use crate::interrupt::{self, Work};

/// The place of a group's operand, which has the length of the group.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// No operand.
    Absent,
    /// In memory, from this index on.
    Run(usize),
    /// Copies of a literal.
    Literal(usize),
    /// In memory, at the indices of a list that starts here.
    Gathered(usize),
}

/// Equal operations.
#[derive(Clone, Debug)]
struct Group {
    op: MathOp,
    of: [Source; 3],
    to: Range<usize>,
}

/// See the module header.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    n_inputs: usize,
    /// Inputs, literals, then the results of each group.
    memory: Vec<f64>,
    /// Each literal, repeated as often as groups read it.
    literals: Vec<f64>,
    groups: Vec<Group>,
    lists: Vec<u32>,
    gathered: [Vec<f64>; 3],
    entries: Vec<u32>,
    checked: Vec<Range<usize>>,
    time: usize,
}

/// A group is split if its pieces have at least this mean length.
const PIECE: usize = 24;

impl Groups {
    /// The operations for `entries` and `checked`; an absent entry is 0. `None` if one is unknown.
    pub(super) fn new(
        formulas: Formulas,
        n_inputs: usize,
        entries: &[Option<Number>],
        checked: &[Number],
    ) -> Result<Option<Self>> {
        let mut formulas = formulas;
        let zero = formulas.literal(0.0);
        let entries: Vec<_> = entries.iter().map(|entry| entry.unwrap_or(zero)).collect();
        if entries.iter().chain(checked).any(|&x| x == UNKNOWN) {
            return Ok(None);
        }
        let mut planner = Planner::new(&formulas.all, n_inputs, entries.iter().chain(checked).copied())?;
        planner.plan()?;
        let Planner { places, mut groups, .. } = planner;
        groups.entries = entries.iter().map(|&x| places[x as usize]).collect();
        groups.checked = runs(checked.iter().map(|&x| places[x as usize]).collect());
        groups.time += 8 * entries.len();
        Ok(Some(groups))
    }

    /// The approximate time of a run, in nanoseconds.
    pub(super) fn time(&self) -> usize {
        self.time / 10
    }

    pub(super) fn bytes(&self) -> usize {
        let numbers = self.memory.len() + self.literals.len() + self.gathered.iter().map(Vec::len).sum::<usize>();
        8 * numbers + 4 * (self.lists.len() + self.entries.len()) + size_of::<Group>() * self.groups.len()
    }

    /// Computes the entries at `x`; returns whether all numbers are finite.
    pub(super) fn run(&mut self, x: &[f64], to: &mut [f64]) -> Result<bool> {
        let mut work = Work::default();
        self.memory[..self.n_inputs].copy_from_slice(&x[..self.n_inputs]);
        for group in &self.groups {
            let n = group.to.len();
            work.add(n)?;
            let (before, rest) = self.memory.split_at_mut(group.to.start);
            for (source, room) in group.of.iter().zip(&mut self.gathered) {
                if let Source::Gathered(at) = *source {
                    gather(before, &self.lists[at..at + n], &mut room[..n]);
                }
            }
            let of = [0, 1, 2].map(|k| match group.of[k] {
                Source::Absent => &[][..],
                Source::Run(at) => &before[at..at + n],
                Source::Literal(at) => &self.literals[at..at + n],
                Source::Gathered(_) => &self.gathered[k][..n],
            });
            compute_formula(group.op, of, &mut rest[..n]);
        }
        work.add(to.len())?;
        gather(&self.memory, &self.entries, to);
        let mut is_finite = true;
        for entry in to.iter_mut() {
            *entry += 0.0;
            is_finite &= entry.is_finite();
        }
        for run in &self.checked {
            is_finite &= self.memory[run.clone()].iter().fold(true, |all, x| all & x.is_finite());
        }
        Ok(is_finite)
    }
}

fn gather(from: &[f64], list: &[u32], to: &mut [f64]) {
    for (to, &at) in to.iter_mut().zip(list) {
        *to = from[at as usize];
    }
}

/// Indices as contiguous ranges.
fn runs(mut places: Vec<u32>) -> Vec<Range<usize>> {
    places.sort_unstable();
    places.dedup();
    let next = |all: &[u32]| all.windows(2).position(|two| two[1] != two[0] + 1).map_or(all.len(), |at| at + 1);
    let mut rest = places.as_slice();
    let mut runs = Vec::new();
    while let Some(&first) = rest.first() {
        let n = next(rest);
        runs.push(first as usize..first as usize + n);
        rest = &rest[n..];
    }
    runs
}

/// The state of a plan under construction.
struct Planner<'f> {
    formulas: &'f [Formula],
    /// The place of each number; unused operations have none.
    places: Vec<u32>,
    /// Operations by depth.
    levels: Vec<Vec<Number>>,
    /// The start and number of the copies of a literal.
    copies: HashMap<Number, (usize, usize)>,
    groups: Groups,
}

/// The key of a group at one depth: the operation and its literals.
type Kind = (usize, u32, [Number; 3]);

impl<'f> Planner<'f> {
    fn new(formulas: &'f [Formula], n_inputs: usize, roots: impl Iterator<Item = Number>) -> Result<Self> {
        let mut needed = vec![false; formulas.len()];
        roots.for_each(|x| needed[x as usize] = true);
        for (k, formula) in formulas.iter().enumerate().rev() {
            interrupt::ask_at(k)?;
            if needed[k] {
                formula.of[..formula.op.arity()].iter().for_each(|&x| needed[x as usize] = true);
            }
        }
        let (mut places, mut depths) = (vec![u32::MAX; formulas.len()], vec![0_u32; formulas.len()]);
        let mut memory = vec![0.0; n_inputs];
        let mut levels: Vec<Vec<Number>> = Vec::new();
        for (k, formula) in formulas.iter().enumerate() {
            interrupt::ask_at(k)?;
            match formula.op {
                MathOp::Operand(input) => places[k] = input as u32,
                _ if !needed[k] => {}
                MathOp::Literal(x) => {
                    places[k] = memory.len() as u32;
                    memory.push(x);
                }
                op => {
                    let depth = formula.of[..op.arity()].iter().map(|&x| depths[x as usize]).max().unwrap_or(0);
                    depths[k] = depth + 1;
                    levels.resize_with(levels.len().max(depth as usize + 1), Vec::new);
                    levels[depth as usize].push(k as Number);
                }
            }
        }
        let groups = Groups {
            n_inputs,
            memory,
            literals: Vec::new(),
            groups: Vec::new(),
            lists: Vec::new(),
            gathered: [Vec::new(), Vec::new(), Vec::new()],
            entries: Vec::new(),
            checked: Vec::new(),
            time: 0,
        };
        Ok(Planner { formulas, places, levels, copies: HashMap::new(), groups })
    }

    /// Assigns each operation to a group, and each group to a place.
    fn plan(&mut self) -> Result<()> {
        let mut kinds: HashMap<_, usize> = HashMap::new();
        let mut work = Work::default();
        for level in std::mem::take(&mut self.levels) {
            work.add(64 * level.len())?;
            let mut sorted: Vec<(Kind, [u32; 3], Number)> = Vec::with_capacity(level.len());
            for k in level {
                let Formula { op, of } = self.formulas[k as usize];
                let function = if let MathOp::Function(function) = op { function as u32 } else { 0 };
                let next = kinds.len();
                let kind = *kinds.entry((discriminant(&op), function)).or_insert(next);
                let literals = [0, 1, 2].map(|at| if self.is_literal(op, of, at) { of[at] } else { UNKNOWN });
                sorted.push(((kind, function, literals), of.map(|x| self.places[x as usize]), k));
            }
            sorted.sort_unstable();
            for group in sorted.chunk_by(|a, b| a.0 == b.0) {
                self.add(group);
            }
        }
        self.copy_literals();
        let longest = self.groups.groups.iter().map(|group| group.to.len()).max().unwrap_or(0);
        self.groups.gathered = [0; 3].map(|_| vec![0.0; longest]);
        Ok(())
    }

    fn is_literal(&self, op: MathOp, of: [Number; 3], at: usize) -> bool {
        at < op.arity() && matches!(self.formulas[of[at] as usize].op, MathOp::Literal(_))
    }

    /// Adds operations of one kind, split into pieces with contiguous operands if these are long.
    fn add(&mut self, group: &[(Kind, [u32; 3], Number)]) {
        let Formula { op, of } = self.formulas[group[0].2 as usize];
        let is_literal = [0, 1, 2].map(|at| self.is_literal(op, of, at));
        let breaks = |at: usize| group.windows(2).filter(move |two| two[1].1[at] != two[0].1[at] + 1).count();
        let lies_in_row = [0, 1, 2]
            .map(|at| at < op.arity() && !is_literal[at] && (1 + breaks(at)) * PIECE <= group.len().max(PIECE));
        let goes_on = |a: &(Kind, [u32; 3], Number), b: &(Kind, [u32; 3], Number)| {
            (0..3).all(|at| !lies_in_row[at] || b.1[at] == a.1[at] + 1)
        };
        for piece in group.chunk_by(goes_on) {
            let n = piece.len();
            let to = self.groups.memory.len();
            self.groups.memory.resize(to + n, 0.0);
            for (k, (.., number)) in piece.iter().enumerate() {
                self.places[*number as usize] = (to + k) as u32;
            }
            let mut cost = if let MathOp::Function(_) = op { 40 } else { 3 };
            let of = [0, 1, 2].map(|at| {
                if at >= op.arity() {
                    return Source::Absent;
                }
                if lies_in_row[at] {
                    return Source::Run(piece[0].1[at] as usize);
                }
                if is_literal[at] {
                    let copies = self.copies.entry(of[at]).or_default();
                    copies.1 = copies.1.max(n);
                    return Source::Literal(of[at] as usize);
                }
                cost += 8;
                let first = self.groups.lists.len();
                self.groups.lists.extend(piece.iter().map(|one| one.1[at]));
                Source::Gathered(first)
            });
            self.groups.time += 150 + n * cost;
            self.groups.groups.push(Group { op, of, to: to..to + n });
        }
    }

    /// Repeats literals as often as groups need them.
    fn copy_literals(&mut self) {
        let Groups { literals, groups, .. } = &mut self.groups;
        let mut all: Vec<_> = self.copies.iter_mut().collect();
        all.sort_unstable_by_key(|(literal, _)| **literal);
        for (&literal, copies) in all {
            let MathOp::Literal(x) = self.formulas[literal as usize].op else { continue };
            copies.0 = literals.len();
            literals.resize(literals.len() + copies.1, x);
        }
        for source in groups.iter_mut().flat_map(|group| &mut group.of) {
            if let Source::Literal(literal) = source {
                *literal = self.copies.get(&(*literal as Number)).map_or(0, |copies| copies.0);
            }
        }
    }
}
