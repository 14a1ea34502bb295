//! A program over many rows at once: `vmap`. If rows are done after different numbers of steps, they run in blocks.
//!
//! Promises: those of [`Batch`]; a block is done with its own rows and stays in the cache, and what no row changes is computed
//! once, before the blocks. Does not know how blocks run.

use std::sync::Arc;

use super::super::batch::Batch;
use super::super::build::ArrayBuilder;
use super::super::dims::bad;
use super::super::expand::inlined;
use super::super::instr::{ArrayOp, ArrayProgram, OverRows, Rows, Shared, ValueId};
use crate::error::Result;

/// More rows than these run in blocks, if their loops end after different numbers of steps.
const BLOCK: usize = 256;

impl ArrayProgram {
    /// The program for `rows` rows at once. `in_axes` gives for each argument the axis of the new argument along the
    /// rows, or `None` for a shared one. Every result has the rows as its first axis.
    ///
    /// ```
    /// use burtorch_core::array::{Argument, ArrayBuilder, Element, Plan};
    /// use burtorch_core::{DType, Op};
    /// let mut b = ArrayBuilder::new(DType::Float64)?;
    /// let (x, w) = (b.input(&[2], Element::Float)?, b.input(&[2], Element::Float)?);
    /// let y = b.matmul(x, w)?;
    /// let program = b.finish(&[y])?;
    /// let mut plan = Plan::<f64>::new(&program.batched(&[Some(0), None], 3)?)?;
    /// plan.run(&[Argument::Float(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), Argument::Float(&[1.0, 10.0])], &[])?;
    /// assert_eq!(plan.floats(0)?, [21.0, 43.0, 65.0]);
    /// # Ok::<(), burtorch_core::Error>(())
    /// ```
    pub fn batched(&self, in_axes: &[Option<usize>], rows: usize) -> Result<ArrayProgram> {
        if in_axes.len() != self.inputs().len() {
            return Err(bad("axes of arguments", self.inputs().len().to_string(), in_axes.len().to_string()));
        }
        let program = inlined(self)?;
        let mut batch = Batch::new(program.dtype(), rows)?;
        let mut inputs = Vec::with_capacity(in_axes.len());
        for (&v, axis) in program.inputs().iter().zip(in_axes) {
            let ty = program.type_of(v);
            inputs.push(match axis {
                Some(axis) => (batch.input(ty, *axis)?, true),
                None => (batch.b.push(ArrayOp::Input(ty), &[])?, false),
            });
        }
        let new = batch.run(&program, &inputs)?;
        if batch.ends_apart.get() && rows > BLOCK {
            return in_blocks(&program, in_axes, rows, &new);
        }
        let outputs = program.outputs().iter().map(|v| batch.with_rows(new[v.at()])).collect::<Result<Vec<_>>>()?;
        batch.b.finish(&outputs)?.pruned()
    }
}

/// The program for `rows` rows, given the axis of each argument along these and, for each value, whether rows change it.
fn in_blocks(
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
