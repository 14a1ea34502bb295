//! Derivatives of rows, which are rows.
//!
//! Promises: adjoints of shared operands are totals, those of mapped ones stay with their rows. Forward values are
//! recomputed; [`rows_together`](super::rows_together) joins both if nothing is between them.

use std::slice::from_ref;
use std::sync::Arc;

use super::super::activity::active_outputs;
use super::super::control::moved;
use super::super::forward::Forward;
use super::super::instr::{ArrayInstr, ArrayOp, Element, OverRows, Rows, Shared, ValueId};
use super::super::reverse::{Sweep, Variable};
use super::super::row::Row;
use crate::error::Result;
use crate::ops::Op;

impl Sweep<'_> {
    /// What rows contribute to their operands.
    pub(in super::super) fn rows_back(
        &mut self,
        of: &Rows,
        instr: &ArrayInstr,
        gs: &[Option<ValueId>],
        active: &[bool],
    ) -> Result<()> {
        let moves = |v: &ValueId| active[v.at()] && self.b.type_of(*v).element == Element::Float;
        let by: Vec<_> = (0..instr.operands.len()).filter(|&k| moves(&instr.operands[k])).collect();
        let (mut operands, mut mapped) = (instr.operands.to_vec(), of.mapped.to_vec());
        let mut seeded = Vec::with_capacity(gs.len());
        for (g, over) in gs.iter().zip(&of.results) {
            seeded.push(match g {
                Some(g) => Some(self.b.so_far().may_be_unreached(*g)),
                None => None,
            });
            let Some(mut g) = *g else { continue };
            if *over == OverRows::Mean {
                let rows = self.b.literal(of.rows as f64)?;
                let rows = self.b.broadcast_to(rows, self.b.dims(g))?;
                g = self.b.pull(Row::Op(Op::Div), 0, g, &[rows, rows], rows)?;
            }
            operands.push(g);
            mapped.push(*over == OverRows::Each);
        }
        let variables: Vec<_> = by.iter().map(|&k| Variable::Input(k)).collect();
        let body = of.body.0.pulled_back(&variables, &seeded)?;
        let results = by.iter().map(|&k| if of.mapped[k] { OverRows::Each } else { OverRows::Sum }).collect();
        let back = Rows { body: Shared(Arc::new(body)), rows: of.rows, mapped: mapped.into(), results };
        let found = self.b.push_all(ArrayOp::Rows(back), &operands)?;
        for (&k, g) in by.iter().zip(found) {
            self.add(instr.operands[k], g)?;
        }
        Ok(())
    }
}

impl Forward {
    /// The rows with tangents beside what moves, in place of the rows themselves.
    pub(in super::super) fn rows_moved(&mut self, of: &Rows, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        let body = &of.body.0;
        let moving: Vec<_> = operands.iter().map(|&v| self.tangent_of(v).is_some()).collect();
        let moving_results = active_outputs(body, &moving);
        let (n, m) = (operands.len(), body.outputs().len());
        let body = moved(body, from_ref(&(0..n)), &moving, from_ref(&(0..m)), &moving_results)?;
        let with_moving = |k: usize| moving[k].then_some(k);
        let given: Vec<_> =
            operands.iter().copied().chain(operands.iter().filter_map(|&v| self.tangent_of(v))).collect();
        let mapped = (0..n).chain((0..n).filter_map(with_moving)).map(|k| of.mapped[k]).collect();
        let results = (0..m).chain((0..m).filter(|&k| moving_results[k])).map(|k| of.results[k]).collect();
        let all = Rows { body: Shared(Arc::new(body)), rows: of.rows, mapped, results };
        let mut found = self.b.push_all(ArrayOp::Rows(all), &given)?;
        let tangents = found.split_off(m);
        for (k, t) in (0..m).filter(|&k| moving_results[k]).zip(tangents) {
            self.moves(found[k], Some(t));
        }
        Ok(found)
    }
}
