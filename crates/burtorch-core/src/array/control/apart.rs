//! Opaque programs: recomputed by reverse mode, or with their own rules of derivatives.
//!
//! Promises: without rules the values and the first derivatives of the inlined program, bit for bit if no operand occurs
//! twice. Recomputation comes after the adjoint that needs it, so none of its values live from one pass to the
//! other. Does not know who makes rules.

use super::super::batch::Batch;
use super::super::build::ArrayBuilder;
use super::super::expand::inlined;
use super::super::forward::Forward;
use super::super::instr::{Apart, ArrayInstr, ArrayOp, ArrayProgram, Rules, Shared, ValueId};
use super::super::reverse::Sweep;
use super::batch::Rowed;
use super::body::{is_float, shared};
use super::forward::moved;
use super::rules::{RulesOfRows, forward_of, reverse_of};
use crate::error::Result;

impl ArrayBuilder {
    /// The results of `body`, which is kept apart: reverse mode computes it again, or follows `rules`. What it reads of
    /// parameters becomes an operand.
    pub fn apart(
        &mut self,
        body: &ArrayProgram,
        operands: &[ValueId],
        rules: Option<Box<dyn Rules>>,
    ) -> Result<Vec<ValueId>> {
        operands.iter().try_for_each(|&v| self.check(v))?;
        self.whole(|b| {
            let body = inlined(body)?;
            let mut closed = ArrayBuilder::new(body.dtype())?;
            let mut new = vec![ValueId(0); body.n_values()];
            for (v, now) in body.inputs().iter().zip(closed.inputs_of(&body.input_types())?) {
                new[v.at()] = now;
            }
            let mut operands = operands.to_vec();
            for (at, instr) in body.instrs().iter().enumerate() {
                let of: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
                let results = match &instr.op {
                    ArrayOp::Input(_) => continue,
                    ArrayOp::Param { .. } => {
                        operands.push(b.push(instr.op.clone(), &[])?);
                        vec![closed.push(ArrayOp::Input(body.type_of(instr.result)), &[])?]
                    }
                    op => closed.push_all(op.clone(), &of)?,
                };
                for (v, now) in body.results(at).zip(results) {
                    new[v.at()] = now;
                }
            }
            let outputs: Vec<_> = body.outputs().iter().map(|v| new[v.at()]).collect();
            let rules = rules.map(|rules| Shared(std::sync::Arc::new(rules)));
            b.push_all(ArrayOp::Apart(Apart { body: shared(closed.finish(&outputs)?), rules }), &operands)
        })
    }

    /// Adjoints or tangents for what has floats among `of`: 0 where there are none and where they are unreached.
    fn seeds_of(&mut self, of: &[ValueId], seeds: &[Option<ValueId>]) -> Result<Vec<ValueId>> {
        let mut all = Vec::with_capacity(of.len());
        for (&v, seed) in of.iter().zip(seeds) {
            if !is_float(self.type_of(v)) {
                continue;
            }
            all.push(match *seed {
                Some(seed) if self.so_far().may_be_unreached(seed) => self.reached(seed)?,
                Some(seed) => seed,
                None => {
                    let zero = self.literal(0.0)?;
                    self.broadcast_to(zero, self.dims(v))?
                }
            });
        }
        Ok(all)
    }

    /// What a rule gives for its seeds, of these results and operands.
    fn ruled(&mut self, rule: &ArrayProgram, given: [&[ValueId]; 3]) -> Result<Vec<ValueId>> {
        let rule = inlined(rule)?;
        let new = self.append(&rule, &given.concat())?;
        rule.outputs().iter().map(|v| self.reached(new[v.at()])).collect()
    }
}

impl Sweep<'_> {
    /// The contributions of a program that is kept apart.
    pub(in super::super) fn apart_back(
        &mut self,
        of: &Apart,
        instr: &ArrayInstr,
        results: &[ValueId],
        gs: &[Option<ValueId>],
        active: &[bool],
    ) -> Result<()> {
        let operands = &instr.operands;
        let Some(rules) = &of.rules else {
            let body = self.body_back(&of.body.0, operands, gs, active)?;
            let after: Vec<_> = results.iter().chain(gs.iter().flatten()).copied().collect();
            let again = operands.iter().map(|&v| self.b.push(ArrayOp::After, &[&[v], &after[..]].concat()));
            let again = again.collect::<Result<Vec<_>>>()?;
            return self.add_all_of(ArrayOp::Apart(Apart { body, rules: None }), again, operands, gs, active);
        };
        let seeds = self.b.seeds_of(results, gs)?;
        let found = self.b.ruled(&reverse_of(of, &**rules.0)?, [&seeds, results, operands])?;
        let floats = operands.iter().filter(|v| is_float(self.b.type_of(**v))).copied().collect::<Vec<_>>();
        for (v, c) in floats.into_iter().zip(found) {
            if active[v.at()] {
                self.add(v, c)?;
            }
        }
        Ok(())
    }
}

impl Forward {
    /// A program that is kept apart, with the tangents of its results.
    pub(in super::super) fn apart_moved(&mut self, of: &Apart, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        let tangents: Vec<_> = operands.iter().map(|&v| self.tangent_of(v)).collect();
        let Some(rules) = &of.rules else {
            let moving: Vec<_> = tangents.iter().map(Option::is_some).collect();
            let moving_results: Vec<_> = of.body.0.output_types().into_iter().map(is_float).collect();
            let (all, results) = (&(0..moving.len()), &(0..moving_results.len()));
            let (all, results) = (std::slice::from_ref(all), std::slice::from_ref(results));
            let body = shared(moved(&of.body.0, all, &moving, results, &moving_results)?);
            let given = [operands, &tangents.into_iter().flatten().collect::<Vec<_>>()].concat();
            let found = self.b.push_all(ArrayOp::Apart(Apart { body, rules: None }), &given)?;
            return Ok(self.sorted(&found, results, &moving_results));
        };
        let results = self.b.push_all(ArrayOp::Apart(of.clone()), operands)?;
        let seeds = self.b.seeds_of(operands, &tangents)?;
        let found = self.b.ruled(&forward_of(of, &**rules.0)?, [&seeds, &results, operands])?;
        let floats = results.iter().filter(|v| is_float(self.b.type_of(**v))).copied().collect::<Vec<_>>();
        for (v, t) in floats.into_iter().zip(found) {
            self.moves(v, Some(t));
        }
        Ok(results)
    }
}

impl Batch {
    /// A program that is kept apart, for all rows.
    pub(in super::super) fn apart_of_rows(&mut self, of: &Apart, operands: &[Rowed]) -> Result<Vec<Rowed>> {
        let has_rows: Vec<_> = operands.iter().map(|v| v.1).collect();
        let given: Vec<_> = operands.iter().map(|v| v.0).collect();
        // Rules have adjoints of all rows for each result.
        let forced = vec![of.rules.is_some(); of.body.0.outputs().len()];
        let (body, flags) = self.body_of_rows(&of.body.0, &has_rows, &forced)?;
        let rows = self.rows;
        let rules = of.rules.as_ref().map(|rules| RulesOfRows { of: of.clone(), rules: rules.clone(), has_rows, rows });
        let rules = rules.map(|rules| Shared(std::sync::Arc::new(Box::new(rules) as Box<dyn Rules>)));
        let found = self.b.push_all(ArrayOp::Apart(Apart { body: shared(body), rules }), &given)?;
        Ok(found.into_iter().zip(flags).collect())
    }
}
