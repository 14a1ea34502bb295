//! The sets of the results of a program, with the programs within it.
//!
//! A loop of known length is followed step by step, and so are rows, within a budget of work; otherwise all steps are taken
//! for one: carries grow until they no longer change, and slices have the sets of all steps.
//!
//! Promises: recursion only into programs within. Does not know single instructions.

use std::rc::Rc;

use super::super::instr::{
    Apart, ArrayInstr, ArrayOp, ArrayProgram, Element, Length, Loop, OverRows, Rows, Type, ValueId,
};
use super::super::reverse::{Variable, values_of};
use super::flow::{Known, Operands, result};
use super::pattern::Pattern;
use super::sets::Sets;
use crate::error::Result;

/// Numbers of values that are followed one by one in loops and rows.
const BUDGET: usize = 1 << 26;

/// Rounds in which carries may grow before they are taken to depend on all.
const ROUNDS: usize = 32;

impl ArrayProgram {
    /// The entries of the Jacobian that may differ from 0: results are rows and variables columns, in order.
    /// `None` if there are too many to know.
    pub(super) fn jacobian_pattern(&self, by: &[Variable]) -> Result<Option<Pattern>> {
        let variables = values_of(self, by)?;
        let n = variables.iter().map(|&v| self.type_of(v).dims.size()).sum();
        let mut following = Following { sets: Sets::new(n), left: BUDGET };
        let mut given = vec![Known::default(); self.inputs().len()];
        let mut start = 1;
        for (variable, v) in by.iter().zip(&variables) {
            let size = self.type_of(*v).dims.size() as u32;
            if let Variable::Input(k) = *variable {
                given[k] = Known::of_sets((start..start + size).collect());
            }
            start += size;
        }
        let results = following.program(self, &given)?;
        let Following { sets, .. } = following;
        if sets.is_full() {
            return Ok(None);
        }
        let each = self.outputs().iter().zip(&results);
        let rows = each.flat_map(|(&v, known)| (0..self.type_of(v).dims.size()).map(|k| known.set(k)));
        let rows: Vec<_> = rows.collect();
        Pattern::of_rows(rows.iter().map(|&set| sets.members(set))).map(Some)
    }
}

struct Following {
    sets: Sets,
    left: usize,
}

/// The numbers of all values of a program.
fn size(program: &ArrayProgram) -> usize {
    (0..program.n_values()).map(|v| 8 + program.type_of(ValueId(v as u32)).dims.size()).sum()
}

/// Part `k` of an array of `n` equal parts.
fn part(known: &Known, k: usize, n: usize) -> Known {
    let of = |len: usize| k * (len / n)..(k + 1) * (len / n);
    Known {
        sets: known.sets.as_ref().map(|all| all[of(all.len())].into()),
        numbers: known.numbers.as_ref().map(|all| all[of(all.len())].into()),
    }
}

impl Following {
    fn program(&mut self, program: &ArrayProgram, given: &[Known]) -> Result<Vec<Known>> {
        let mut last = vec![0; program.n_values()];
        for (at, instr) in program.instrs().iter().enumerate() {
            instr.operands.iter().for_each(|v| last[v.at()] = at);
        }
        program.outputs().iter().for_each(|v| last[v.at()] = usize::MAX);
        let mut known = vec![Known::default(); program.n_values()];
        let mut given = given.iter();
        for (at, instr) in program.instrs().iter().enumerate() {
            let operands: Vec<_> = instr.operands.iter().map(|v| known[v.at()].clone()).collect();
            for v in instr.operands.iter().filter(|v| last[v.at()] == at) {
                known[v.at()] = Known::default();
            }
            if matches!(instr.op, ArrayOp::Input(_)) {
                known[instr.result.at()] = given.next().cloned().unwrap_or_default();
                continue;
            }
            for (v, now) in program.results(at).zip(self.instr(program, instr, operands)?) {
                known[v.at()] = now;
            }
        }
        Ok(program.outputs().iter().map(|v| known[v.at()].clone()).collect())
    }

    fn instr(&mut self, program: &ArrayProgram, instr: &ArrayInstr, known: Vec<Known>) -> Result<Vec<Known>> {
        match &instr.op {
            ArrayOp::Call(callee) | ArrayOp::Apart(Apart { body: callee, rules: None }) => {
                self.program(&callee.0, &known)
            }
            ArrayOp::Apart(Apart { body, .. }) => {
                let all = self.union_of_all(&known)?;
                Ok(self.filled(&body.0, all))
            }
            ArrayOp::Loop(of) => self.looped(of, &known),
            ArrayOp::Rows(rows) => self.rows(rows, &known),
            ArrayOp::Cond { yes, no } => {
                let (yes, no) = (self.program(&yes.0, &known[1..])?, self.program(&no.0, &known[1..])?);
                yes.iter().zip(&no).map(|(yes, no)| self.either(yes, no)).collect()
            }
            ArrayOp::Qr | ArrayOp::Lu => {
                let first = result(&mut self.sets, &Operands { program, instr, known })?;
                // The sign and the order of rows do not move.
                let is_qr = instr.op == ArrayOp::Qr;
                let triangle = if is_qr { self.triangle(program, instr, &first)? } else { Known::default() };
                Ok(vec![first, triangle, Known::default()])
            }
            _ => Ok(vec![result(&mut self.sets, &Operands { program, instr, known })?]),
        }
    }

    /// The second factor of QR, of whose matrix all numbers have one set.
    fn triangle(&mut self, program: &ArrayProgram, instr: &ArrayInstr, q: &Known) -> Result<Known> {
        let [q_dims, r_dims] = [instr.result, ValueId(instr.result.0 + 1)].map(|v| program.type_of(v).dims);
        let matrix = |dims: &[usize]| dims.iter().rev().take(2).product::<usize>().max(1);
        let (q_size, r_size) = (matrix(&q_dims), matrix(&r_dims));
        Ok(Known::of_sets((0..r_dims.size()).map(|k| q.set(k / r_size * q_size)).collect()))
    }

    fn union_of_all(&mut self, known: &[Known]) -> Result<u32> {
        let all = known.iter().flat_map(|known| known.sets.iter().flat_map(|sets| sets.iter().copied()));
        self.sets.union_of(all.collect())
    }

    /// Results of a program with one set for all floats.
    fn filled(&self, program: &ArrayProgram, set: u32) -> Vec<Known> {
        let of = |ty: Type| match ty.element {
            Element::Float => Known::of_sets(vec![set; ty.dims.size()]),
            _ => Known::default(),
        };
        program.output_types().into_iter().map(of).collect()
    }

    fn either(&mut self, x: &Known, y: &Known) -> Result<Known> {
        let numbers = if x.numbers == y.numbers { x.numbers.clone() } else { None };
        let sets = match (&x.sets, &y.sets) {
            (Some(xs), Some(ys)) if !Rc::ptr_eq(xs, ys) => {
                Some(xs.iter().zip(&ys[..]).map(|(&x, &y)| self.sets.union(x, y)).collect::<Result<Rc<[u32]>>>()?)
            }
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        Ok(Known { sets, numbers })
    }

    /// The union of the `n` parts of an array.
    fn folded(&mut self, known: &Known, n: usize) -> Result<Known> {
        let Some(all) = &known.sets else { return Ok(Known::default()) };
        let size = all.len() / n.max(1);
        let each = (0..size).map(|k| self.sets.union_of((0..n).map(|part| all[part * size + k]).collect()));
        Ok(Known::of_sets(each.collect::<Result<_>>()?))
    }

    /// Whether a program may be followed so often.
    fn affords(&mut self, times: usize, program: &ArrayProgram) -> bool {
        let n = times.saturating_mul(size(program));
        let affords = n <= self.left;
        if affords {
            self.left -= n;
        }
        affords
    }

    fn looped(&mut self, of: &Loop, known: &[Known]) -> Result<Vec<Known>> {
        let (body, known) = (&of.body.0, &known[of.first()..]);
        let (captures, rest) = known.split_at(of.captures);
        let (carries, slices) = rest.split_at(of.carries);
        if let Length::Fixed(n) = of.length
            && self.affords(n, body)
        {
            let mut carries = carries.to_vec();
            let mut stacked = vec![vec![Known::default(); n]; of.stacked()];
            for step in 0..n {
                let step = if of.reverse { n - 1 - step } else { step };
                let slices = slices.iter().map(|all| part(all, step, n));
                let given: Vec<_> = captures.iter().chain(&carries).cloned().chain(slices).collect();
                let mut found = self.program(body, &given)?;
                let rows = found.split_off(of.carries);
                carries = found;
                stacked.iter_mut().zip(rows).for_each(|(all, row)| all[step] = row);
            }
            let dims = body.outputs()[of.carries..].iter().map(|&v| body.type_of(v).dims.size());
            carries.extend(stacked.iter().zip(dims).map(|(rows, size)| joined(rows, size)));
            return Ok(carries);
        }
        let sizes = body.inputs()[of.captures + of.carries..].iter().map(|&v| body.type_of(v).dims.size());
        let mut given = captures.to_vec();
        given.extend(carries.iter().cloned().map(without_numbers));
        for (all, size) in slices.iter().zip(sizes) {
            // A stack has one step's sets already.
            let n = all.sets.as_ref().map_or(1, |all| all.len() / size.max(1));
            given.push(self.folded(all, n)?);
        }
        let mut found = self.grown(body, &mut given, of)?;
        if let Length::Fixed(n) = of.length {
            for all in &mut found[of.carries..] {
                *all = joined(&vec![all.clone(); n], all.sets.as_ref().map_or(0, |all| all.len()));
            }
        }
        found.truncate(body.outputs().len());
        found.push(Known::default());
        Ok(found)
    }

    /// The results of a step after which carries no longer grow.
    fn grown(&mut self, body: &ArrayProgram, given: &mut [Known], of: &Loop) -> Result<Vec<Known>> {
        for round in 0.. {
            let mut found: Vec<_> = self.program(body, given)?.into_iter().map(without_numbers).collect();
            let carries = &mut given[of.captures..of.captures + of.carries];
            let mut is_same = true;
            for (carry, now) in carries.iter_mut().zip(&mut found) {
                let more = self.either(carry, now)?;
                is_same &= more.sets == carry.sets;
                (*carry, *now) = (more.clone(), more);
            }
            if is_same {
                return Ok(found);
            }
            if round == ROUNDS {
                let all = self.union_of_all(given)?;
                let floats = body.inputs()[of.captures..of.captures + of.carries].iter();
                let filled = floats.map(|&v| match body.type_of(v) {
                    ty if ty.element == Element::Float => Known::of_sets(vec![all; ty.dims.size()]),
                    _ => Known::default(),
                });
                for (carry, full) in given[of.captures..of.captures + of.carries].iter_mut().zip(filled) {
                    *carry = full;
                }
            }
        }
        unreachable!("carries grow to all variables")
    }

    fn rows(&mut self, of: &Rows, known: &[Known]) -> Result<Vec<Known>> {
        let body = &of.body.0;
        let steps = if self.affords(of.rows, body) { of.rows } else { 1 };
        let mut results: Vec<Vec<Known>> = vec![Vec::new(); body.outputs().len()];
        for row in 0..steps {
            let mut given = Vec::with_capacity(known.len());
            for (known, &mapped) in known.iter().zip(&of.mapped[..]) {
                given.push(match mapped {
                    true if steps == of.rows => part(known, row, of.rows),
                    true => self.folded(known, of.rows)?,
                    false => known.clone(),
                });
            }
            results.iter_mut().zip(self.program(body, &given)?).for_each(|(all, one)| all.push(one));
        }
        let mut found = Vec::with_capacity(results.len());
        for ((mut all, over), &v) in results.into_iter().zip(&of.results[..]).zip(body.outputs()) {
            if steps == 1 {
                all = vec![all[0].clone(); of.rows];
            }
            let joined = joined(&all, body.type_of(v).dims.size());
            found.push(if *over == OverRows::Each { joined } else { self.folded(&joined, of.rows)? });
        }
        Ok(found)
    }
}

fn without_numbers(known: Known) -> Known {
    Known { numbers: None, ..known }
}

/// Parts of this size, one after the other.
fn joined(parts: &[Known], size: usize) -> Known {
    let is_moving = parts.iter().any(|part| part.sets.is_some());
    let is_known = !parts.is_empty() && parts.iter().all(|part| part.numbers.is_some());
    let places = || parts.iter().flat_map(|part| (0..size).map(move |k| (part, k)));
    Known {
        sets: is_moving.then(|| places().map(|(part, k)| part.set(k)).collect()),
        numbers: is_known.then(|| places().map(|(part, k)| part.numbers.as_ref().map_or(0, |all| all[k])).collect()),
    }
}
