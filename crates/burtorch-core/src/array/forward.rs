//! Forward mode: the program that computes what changes of inputs change outputs by.
//!
//! Walks the instructions forwards and emits a tangent after each value that moves. Promises: tangents come from the same
//! partials as adjoints, so both modes agree at kinks; what does not move (a tangent of 0) contributes nothing, however large
//! its partial is. Knows nothing of reverse mode.

use super::activity::{active_operands, active_values};
use super::build::ArrayBuilder;
use super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Comparison, Cumulate, Dot, Element, ValueId};
use super::reverse::{Variable, prepared, values_of};
use crate::error::Result;

impl ArrayProgram {
    /// The program that multiplies the Jacobian by tangents: after the arguments it takes one tangent for each variable, and
    /// gives the outputs, then one tangent for each float output.
    pub fn jvp(&self, by: &[Variable]) -> Result<ArrayProgram> {
        let program = prepared(self, by)?;
        let variables = values_of(&program, by)?;
        let active = active_values(&program, &variables);
        let mut b = ArrayBuilder::from(program.clone());
        let mut tangents = vec![None; program.n_values()];
        for &v in &variables {
            let t = b.push(ArrayOp::Input(program.type_of(v)), &[])?;
            let t = b.at_rest_unreached(t)?;
            tangents[v.at()] = Some(b.sum_of(tangents[v.at()], Some(t))?);
        }
        for instr in program.instrs() {
            if active[instr.result.at()] && active_operands(instr, &active).next().is_some() {
                for (k, t) in moved(&mut b, instr, &tangents)?.into_iter().enumerate() {
                    tangents[instr.result.at() + k] = t;
                }
            }
        }
        let mut outputs = program.outputs().to_vec();
        for &output in program.outputs() {
            if program.type_of(output).element == Element::Float {
                outputs.push(match tangents[output.at()] {
                    Some(t) => b.reached(t)?,
                    None => {
                        let zero = b.literal(0.0)?;
                        b.broadcast_to(zero, program.type_of(output).dims)?
                    }
                });
            }
        }
        b.finish(&outputs)?.cleaned()
    }
}

impl ArrayBuilder {
    /// A tangent with what does not move marked.
    pub(super) fn at_rest_unreached(&mut self, t: ValueId) -> Result<ValueId> {
        let dims = self.dims(t);
        let zero = self.literal(0.0)?;
        let zero = self.broadcast_to(zero, dims)?;
        let rests = self.push(ArrayOp::Compare(Comparison::Equal), &[t, zero])?;
        let unreached = self.push(ArrayOp::Unreached(dims), &[])?;
        self.push(ArrayOp::Select, &[rests, unreached, t])
    }

    /// The sum of two tangents, of which one may be missing.
    pub(super) fn sum_of(&mut self, x: Option<ValueId>, y: Option<ValueId>) -> Result<ValueId> {
        match (x, y) {
            (Some(x), Some(y)) => self.push(ArrayOp::Accumulate, &[x, y]),
            (Some(t), None) | (None, Some(t)) => Ok(t),
            (None, None) => unreachable!("an active instruction has an active operand"),
        }
    }
}

/// The tangents of an active instruction's results.
fn moved(b: &mut ArrayBuilder, instr: &ArrayInstr, tangents: &[Option<ValueId>]) -> Result<Vec<Option<ValueId>>> {
    match (&instr.op, instr.operands.first().and_then(|v| tangents[v.at()])) {
        (ArrayOp::Lu, Some(t)) => Ok(vec![Some(b.lu_moved(instr.result, t)?)]),
        (ArrayOp::Qr, Some(t)) => Ok(b.qr_moved(instr.result, t)?.map(Some).to_vec()),
        _ => Ok(vec![tangent(b, instr, tangents)?]),
    }
}

/// The tangent of an active instruction's result.
fn tangent(b: &mut ArrayBuilder, instr: &ArrayInstr, tangents: &[Option<ValueId>]) -> Result<Option<ValueId>> {
    let (of, z) = (&instr.operands, instr.result);
    let t = |k: usize| tangents[of[k].at()].filter(|_| super::activity::moves(&instr.op, k));
    let filled = |b: &mut ArrayBuilder, k: usize| match t(k) {
        Some(t) => Ok(t),
        None => b.push(ArrayOp::Unreached(b.dims(of[k])), &[]),
    };
    match &instr.op {
        ArrayOp::Row(row) => {
            let mut total = None;
            for k in 0..of.len() {
                if let Some(t) = t(k) {
                    let c = b.pull(*row, k, t, of, z)?;
                    total = Some(b.sum_of(total, Some(c))?);
                }
            }
            return Ok(total);
        }
        ArrayOp::Pull(row, to) => {
            let Some(t) = t(0) else { return Ok(None) };
            let all: Vec<_> = [t].iter().chain(&of[1..]).copied().collect();
            let c = b.push(ArrayOp::Pull(*row, *to), &all)?;
            b.hidden_with(of[0], c)
        }
        ArrayOp::Select => {
            let (yes, no) = (filled(b, 1)?, filled(b, 2)?);
            b.push(ArrayOp::Select, &[of[0], yes, no])
        }
        &ArrayOp::Reduce(kind, axes) => {
            let t = filled(b, 0)?;
            b.moved_reduction(kind, axes, of[0], z, t)
        }
        &ArrayOp::ReducePull(kind, axes) => {
            let by_g = match t(0) {
                Some(t) => Some(b.push(ArrayOp::ReducePull(kind, axes), &[t, of[1], of[2]])?),
                None => None,
            };
            let by_x = match t(1) {
                Some(t) => b.bent_reduction(kind, axes, [of[0], of[1], of[2]], t)?,
                None => None,
            };
            return if by_g.or(by_x).is_some() { b.sum_of(by_g, by_x).map(Some) } else { Ok(None) };
        }
        &ArrayOp::Cumulate { kind: Cumulate::Recurrence, axis, reverse } => {
            let by_factor = match t(0) {
                Some(t) => {
                    let before = b.shifted(z, axis, !reverse)?;
                    Some(b.adjoint_product(t, before)?)
                }
                None => None,
            };
            let terms = b.sum_of(by_factor, t(1))?;
            let t = b.push(ArrayOp::Cumulate { kind: Cumulate::Recurrence, axis, reverse }, &[of[0], terms])?;
            b.reached(t)
        }
        ArrayOp::Dot(Dot { transposed, .. }) => {
            let by_x = t(0).map(|t| b.adjoint_dot(*transposed, t, of[1])).transpose()?;
            let by_y = t(1).map(|t| b.adjoint_dot(*transposed, of[0], t)).transpose()?;
            b.sum_of(by_x, by_y)
        }
        ArrayOp::Accumulate => b.sum_of(t(0), t(1)),
        ArrayOp::ScatterAdd { .. } => {
            let (sum, c) = (filled(b, 0)?, filled(b, 2)?);
            b.push(instr.op.clone(), &[sum, of[1], c])
        }
        ArrayOp::Take { .. } => {
            let t = filled(b, 0)?;
            b.push(instr.op.clone(), &[t, of[1]])
        }
        // What moves numbers moves tangents.
        ArrayOp::Cholesky => {
            let t = filled(b, 0)?;
            b.cholesky_moved(z, t)
        }
        ArrayOp::TriSolve(_) | ArrayOp::LuSolve(_) => {
            let (by_matrix, by_side) = (t(0), t(of.len() - 1));
            b.solve_moved(instr, by_matrix, by_side)
        }
        ArrayOp::Adjoint => filled(b, 0),
        ArrayOp::View(_) | ArrayOp::Copy | ArrayOp::Concat(_) | ArrayOp::AccumulateAt(_) | ArrayOp::Cumulate { .. } => {
            let all = (0..of.len()).map(|k| filled(b, k)).collect::<Result<Vec<_>>>()?;
            b.push(instr.op.clone(), &all)
        }
        _ => return Ok(None),
    }
    .map(Some)
}
