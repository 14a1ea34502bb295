//! Rows of the same operands, joined: values and gradients take one pass over the data.
//!
//! Promises: the same results; common parts of two bodies are computed once. One pass over the instructions for each joined pair.

use std::sync::Arc;

use super::super::build::ArrayBuilder;
use super::super::instr::{ArrayOp, ArrayProgram, Rows, Shared, ValueId};
use crate::error::Result;

/// The program with rows joined that read the same rows and do not need each other.
pub(in super::super) fn rows_together(mut program: ArrayProgram) -> Result<ArrayProgram> {
    let mut at = 0;
    while at < program.instrs().len() {
        match partner(&program, at) {
            // What does not need them moves before them, and is asked next.
            Some((other, needs)) => program = joined(&program, at, other, &needs)?,
            None => at += 1,
        }
    }
    Ok(program)
}

fn rows_at(program: &ArrayProgram, at: usize) -> Option<&Rows> {
    match &program.instrs().get(at)?.op {
        ArrayOp::Rows(rows) => Some(rows),
        _ => None,
    }
}

/// Rows to join with those at `at`, and which instructions need these.
fn partner(program: &ArrayProgram, at: usize) -> Option<(usize, Vec<bool>)> {
    let of = rows_at(program, at)?;
    let operands = &program.instrs()[at].operands;
    let mut values = vec![false; program.n_values()];
    let mut needs = vec![false; program.instrs().len()];
    program.results(at).for_each(|v| values[v.at()] = true);
    for (k, instr) in program.instrs().iter().enumerate().skip(at + 1) {
        needs[k] = instr.operands.iter().any(|v| values[v.at()]);
        if needs[k] {
            program.results(k).for_each(|v| values[v.at()] = true);
            continue;
        }
        let Some(other) = rows_at(program, k) else { continue };
        let mapped = |of: &Rows, operands: &[ValueId], v: &ValueId| {
            operands.iter().zip(&of.mapped).any(|(operand, is_mapped)| *is_mapped && operand == v)
        };
        if other.rows == of.rows
            && operands.iter().any(|v| mapped(of, operands, v) && mapped(other, &instr.operands, v))
        {
            return Some((k, needs));
        }
    }
    None
}

/// The program with the rows at `at` and at `other` joined.
fn joined(program: &ArrayProgram, at: usize, other: usize, needs: &[bool]) -> Result<ArrayProgram> {
    let mut b = ArrayBuilder::new(program.dtype())?;
    let mut new = vec![ValueId(0); program.n_values()];
    let between = at + 1..other;
    let before = (0..at).chain(between.clone().filter(|&k| !needs[k]));
    let after = between.filter(|&k| needs[k]).chain(other + 1..program.instrs().len());
    for k in before.map(Some).chain([None]).chain(after.map(Some)) {
        let Some(k) = k else {
            let results = both(program, at, other, &mut b, &new)?;
            for (v, now) in program.results(at).chain(program.results(other)).zip(results) {
                new[v.at()] = now;
            }
            continue;
        };
        let instr = &program.instrs()[k];
        let operands: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
        for (v, now) in program.results(k).zip(b.push_all(instr.op.clone(), &operands)?) {
            new[v.at()] = now;
        }
    }
    let outputs: Vec<_> = program.outputs().iter().map(|v| new[v.at()]).collect();
    b.finish(&outputs)
}

/// The results of both, of rows that do both.
fn both(
    program: &ArrayProgram,
    at: usize,
    other: usize,
    b: &mut ArrayBuilder,
    new: &[ValueId],
) -> Result<Vec<ValueId>> {
    let mut body = ArrayBuilder::new(program.dtype())?;
    let mut operands: Vec<(ValueId, bool)> = Vec::new();
    let mut arguments = Vec::new();
    let (mut outputs, mut results, mut n_rows) = (Vec::new(), Vec::new(), 0);
    for k in [at, other] {
        let Some(of) = rows_at(program, k) else { continue };
        n_rows = of.rows;
        let mut own = Vec::with_capacity(of.mapped.len());
        let types = of.body.0.input_types();
        for ((v, &is_mapped), ty) in program.instrs()[k].operands.iter().zip(&of.mapped).zip(types) {
            let operand = (new[v.at()], is_mapped);
            own.push(match operands.iter().position(|known| *known == operand) {
                Some(known) => arguments[known],
                None => {
                    operands.push(operand);
                    arguments.push(body.push(ArrayOp::Input(ty), &[])?);
                    arguments[arguments.len() - 1]
                }
            });
        }
        let values = body.append(&of.body.0, &own)?;
        outputs.extend(of.body.0.outputs().iter().map(|v| values[v.at()]));
        results.extend_from_slice(&of.results);
    }
    let of = Rows {
        body: Shared(Arc::new(body.finish(&outputs)?.cleaned()?)),
        rows: n_rows,
        mapped: operands.iter().map(|(_, is_mapped)| *is_mapped).collect(),
        results: results.into(),
    };
    let operands: Vec<_> = operands.into_iter().map(|(v, _)| v).collect();
    b.push_all(ArrayOp::Rows(of), &operands)
}
