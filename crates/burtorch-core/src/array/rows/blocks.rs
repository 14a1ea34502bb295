//! A batch whose rows are done after different numbers of steps, as rows that run in blocks.
//!
//! Promises: the results of the batch; a block is done with its own rows and stays in the cache; what no row changes is
//! computed once, before the blocks. Does not know how blocks run.

use std::sync::Arc;

use super::super::batch::Batch;
use super::super::build::ArrayBuilder;
use super::super::instr::{ArrayOp, ArrayProgram, OverRows, Rows, Shared, ValueId};
use crate::error::Result;

/// The program for `rows` rows, given the axis of each argument along these and, for each value, whether rows change it.
pub(in super::super) fn in_blocks(
    program: &ArrayProgram,
    in_axes: &[Option<usize>],
    rows: usize,
    of_all: &[(ValueId, bool)],
) -> Result<ArrayProgram> {
    let has_rows = |v: &ValueId| of_all[v.at()].1;
    let mut whole = Batch::new(program.dtype(), rows)?;
    let mut before = vec![ValueId(0); program.n_values()];
    for (&v, axis) in program.inputs().iter().zip(in_axes) {
        let ty = program.type_of(v);
        before[v.at()] = match axis {
            Some(axis) => whole.input(ty, *axis)?,
            None => whole.b.push(ArrayOp::Input(ty), &[])?,
        };
    }
    let instrs = || program.instrs().iter().enumerate().filter(|(_, instr)| !matches!(instr.op, ArrayOp::Input(_)));
    for (at, instr) in instrs().filter(|(at, _)| !program.results(*at).any(|v| has_rows(&v))) {
        let operands: Vec<_> = instr.operands.iter().map(|v| before[v.at()]).collect();
        for (v, now) in program.results(at).zip(whole.b.push_all(instr.op.clone(), &operands)?) {
            before[v.at()] = now;
        }
    }
    let in_rows = || instrs().filter(|(at, _)| program.results(*at).any(|v| has_rows(&v)));
    let mut given: Vec<_> =
        in_rows().flat_map(|(_, instr)| &instr.operands).chain(program.outputs()).copied().collect();
    let is_input = |v: &ValueId| program.inputs().contains(v);
    given.retain(|v| !has_rows(v) || is_input(v));
    given.sort_unstable();
    given.dedup();
    let mut body = ArrayBuilder::new(program.dtype())?;
    let mut within = vec![ValueId(0); program.n_values()];
    for v in &given {
        within[v.at()] = body.push(ArrayOp::Input(program.type_of(*v)), &[])?;
    }
    for (at, instr) in in_rows() {
        let operands: Vec<_> = instr.operands.iter().map(|v| within[v.at()]).collect();
        for (v, now) in program.results(at).zip(body.push_all(instr.op.clone(), &operands)?) {
            within[v.at()] = now;
        }
    }
    let outputs: Vec<_> = program.outputs().iter().map(|v| within[v.at()]).collect();
    let of = Rows {
        body: Shared(Arc::new(body.finish(&outputs)?.pruned()?)),
        rows,
        mapped: given.iter().map(has_rows).collect(),
        results: vec![OverRows::Each; outputs.len()].into(),
    };
    let operands: Vec<_> = given.iter().map(|v| before[v.at()]).collect();
    let results = whole.b.push_all(ArrayOp::Rows(of), &operands)?;
    whole.b.finish(&results)?.pruned()
}
