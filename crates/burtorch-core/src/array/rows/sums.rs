//! Sums that loops of a batch add up, as totals over the rows that the loops add up instead.
//!
//! The adjoint of what a loop captures is a carry to which each step adds. Promises: a loop keeps no array with a row for each
//! adjoint of a shared value; the values of a sum of rows within rounding. Does not know what is totalled.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::batch::Batch;
use super::super::dims::Dims;
use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Length, Loop, Shared, Type, ValueId};
use crate::error::Result;

/// A carry to which a loop adds contributions and that nothing else in it reads.
struct Sum {
    /// In the order in which they are added.
    contributions: Vec<ValueId>,
    may_begin_unreached: bool,
}

/// Which carries of a loop of a known number of steps are such sums.
fn sums_of(of: &Loop) -> Vec<Option<Sum>> {
    let body = &of.body.0;
    let mut n_reads = vec![0; body.n_values()];
    let read = body.instrs().iter().flat_map(|instr| &instr.operands[..]);
    read.chain(body.outputs()).for_each(|v| n_reads[v.at()] += 1);
    let sum = |k: usize| {
        let (begin, mut v) = (body.inputs()[of.captures + k], body.outputs()[k]);
        let mut sum = Sum { contributions: Vec::new(), may_begin_unreached: false };
        while v != begin && n_reads[v.at()] == 1 {
            let ArrayInstr { op, operands, .. } = body.instr_of(v);
            match op {
                ArrayOp::Accumulate => sum.contributions.push(operands[1]),
                ArrayOp::Adjoint => sum.may_begin_unreached = true,
                _ => return None,
            }
            v = operands[0];
        }
        sum.contributions.reverse();
        (v == begin && n_reads[begin.at()] == 1 && !sum.contributions.is_empty()).then_some(sum)
    };
    let is_known = matches!(of.length, Length::Fixed(_) | Length::Counted);
    (0..of.carries).map(|k| if is_known { sum(k) } else { None }).collect()
}

/// Those of them that a loop of a batch adds up for each of so many rows. What no row changes has no rows.
fn sums_of_rows(of: &Loop, rows: usize) -> Vec<Option<Sum>> {
    let body = &of.body.0;
    let has_rows = |k: usize| body.type_of(body.inputs()[of.captures + k]).dims.first() == Some(&rows);
    sums_of(of).into_iter().enumerate().map(|(k, sum)| sum.filter(|_| has_rows(k))).collect()
}

impl Batch {
    /// New carries: one for the total of each carry that is a sum.
    fn totals_of(&mut self, body: &ArrayProgram, captures: usize, sums: &[Option<Sum>]) -> Result<Vec<ValueId>> {
        let mut totals = Vec::new();
        for (k, _) in sums.iter().enumerate().filter(|(_, sum)| sum.is_some()) {
            let ty = body.type_of(body.inputs()[captures + k]);
            totals.push(self.b.push(ArrayOp::Input(Type { dims: Dims::new(&ty.dims[1..])?, ..ty }), &[])?);
        }
        Ok(totals)
    }
}

/// For each result of a loop whether it is such a sum.
pub(in super::super) fn are_sums(of: &Loop) -> impl Iterator<Item = bool> {
    sums_of(of).into_iter().map(|sum| sum.is_some()).chain(std::iter::repeat(false))
}

/// What the carries of a loop begin with that are sums, if result `k` is one of them.
pub(super) fn begins_of_sums(of: &Loop, instr: &ArrayInstr, k: usize, rows: usize) -> Vec<ValueId> {
    let sums = sums_of_rows(of, rows);
    if !sums.get(k).is_some_and(Option::is_some) {
        return vec![];
    }
    let begins = &instr.operands[of.first() + of.captures..];
    begins.iter().zip(&sums).filter(|(_, sum)| sum.is_some()).map(|(&begin, _)| begin).collect()
}

/// Totals over the rows of values of a batch.
pub(super) struct Totals<'a> {
    pub(super) batch: &'a mut Batch,
    pub(super) found: HashMap<ValueId, ValueId>,
}

impl Totals<'_> {
    /// The total of a carry to which a loop adds, given those of what such carries begin with: by a loop that adds totals to
    /// all of them.
    pub(super) fn loop_total(
        &mut self,
        v: ValueId,
        instr: &ArrayInstr,
        of: &Loop,
        begins: &[ValueId],
    ) -> Result<ValueId> {
        let sums = sums_of_rows(of, self.batch.rows);
        let carries = of.captures..of.captures + of.carries;
        let body = &of.body.0;
        let mut inner = Batch::new(body.dtype(), self.batch.rows)?;
        let (mut arguments, mut totals) = (Vec::new(), Vec::new());
        for (k, ty) in body.input_types().into_iter().enumerate() {
            if k == carries.end {
                totals = inner.totals_of(body, of.captures, &sums)?;
            }
            arguments.push(inner.b.push(ArrayOp::Input(ty), &[])?);
        }
        if totals.is_empty() {
            totals = inner.totals_of(body, of.captures, &sums)?;
        }
        let values = inner.b.append(body, &arguments)?;
        for (total, sum) in totals.iter_mut().zip(sums.iter().flatten()) {
            if sum.may_begin_unreached {
                *total = inner.b.as_adjoint(*total)?;
            }
            for c in &sum.contributions {
                let c = Totals { batch: &mut inner, found: HashMap::new() }.of(values[c.at()])?;
                *total = inner.b.push(ArrayOp::Accumulate, &[*total, c])?;
            }
        }
        let mut outputs: Vec<_> = body.outputs().iter().map(|v| values[v.at()]).collect();
        outputs.splice(of.carries..of.carries, totals);
        let (before, slices) = instr.operands.split_at(of.first() + carries.end);
        let operands = [before, begins, slices].concat();
        let all = Loop {
            body: Shared(Arc::new(inner.b.finish(&outputs)?)),
            carries: of.carries + begins.len(),
            ..of.clone()
        };
        let found = self.batch.b.push_all(ArrayOp::Loop(all), &operands)?;
        let places = (0..of.carries).filter(|&k| sums[k].is_some());
        for (k, &total) in places.zip(&found[of.carries..]) {
            self.found.insert(ValueId(instr.result.0 + k as u32), total);
        }
        Ok(self.found[&v])
    }
}
