//! Forward mode: the program that computes tangents of outputs from tangents of inputs.
//!
//! Takes the instructions in order and emits a tangent after each value with a nonzero one. Promises: tangents come from the same
//! partials as adjoints, so both modes agree at kinks; a tangent of 0 contributes nothing, however large its partial is. Does
//! not know reverse mode.

use super::activity::{active_operands, active_values};
use super::build::ArrayBuilder;
use super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Cumulate, Dot, Element, ValueId};
use super::reverse::{Variable, prepared, values_of};
use crate::error::Result;

impl ArrayProgram {
    /// The program that multiplies the Jacobian by tangents: after the arguments it takes one tangent for each variable, and
    /// gives the outputs, then one tangent for each float output.
    pub fn jvp(&self, by: &[Variable]) -> Result<ArrayProgram> {
        let program = prepared(self, by)?;
        let variables = values_of(&program, by)?;
        let active = active_values(&program, &variables);
        let mut f = Forward { b: ArrayBuilder::new(program.dtype())?, new: Vec::new(), tangents: Vec::new() };
        let types = program.input_types();
        let inputs = f.b.inputs_of(&types)?;
        let mut moving = Vec::new();
        // Parameters come first: tangents are arguments after all others.
        let params: Vec<_> = program.instrs().iter().filter(|i| matches!(i.op, ArrayOp::Param { .. })).collect();
        let params = params.iter().map(|i| f.b.push(i.op.clone(), &[])).collect::<Result<Vec<_>>>()?;
        for variable in by {
            let v = match *variable {
                Variable::Input(k) => inputs[k],
                Variable::Param(k) => params[k],
            };
            let t = f.b.push(ArrayOp::Input(f.b.type_of(v)), &[])?;
            moving.push((v, f.b.at_rest_unreached(t)?));
        }
        for (v, t) in moving {
            let before = f.tangent_of(v);
            let t = f.b.sum_of(before, Some(t))?;
            f.moves(v, t);
        }
        f.run(&program, &inputs, &params, &active)?;
        let Forward { mut b, new, tangents } = f;
        let mut outputs: Vec<_> = program.outputs().iter().map(|v| new[v.at()]).collect();
        for (k, &output) in program.outputs().iter().enumerate() {
            if program.type_of(output).element == Element::Float {
                outputs.push(match tangents.get(outputs[k].at()).copied().flatten() {
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

/// A pass over a program's instructions, each of which is copied and followed by its tangent.
pub(super) struct Forward {
    pub(super) b: ArrayBuilder,
    /// The new value of each value of the program.
    pub(super) new: Vec<ValueId>,
    /// The tangents of values of the new program.
    pub(super) tangents: Vec<Option<ValueId>>,
}

impl Forward {
    pub(super) fn tangent_of(&self, v: ValueId) -> Option<ValueId> {
        self.tangents.get(v.at()).copied().flatten()
    }

    pub(super) fn moves(&mut self, v: ValueId, t: Option<ValueId>) {
        if v.at() >= self.tangents.len() {
            self.tangents.resize(v.at() + 1, None);
        }
        self.tangents[v.at()] = t;
    }

    /// All instructions, with these values for inputs and parameters.
    pub(super) fn run(
        &mut self,
        program: &ArrayProgram,
        inputs: &[ValueId],
        params: &[ValueId],
        active: &[bool],
    ) -> Result<()> {
        self.new = vec![ValueId(0); program.n_values()];
        for (v, &now) in program.inputs().iter().zip(inputs).chain(program.params().iter().zip(params)) {
            self.new[v.at()] = now;
        }
        for (at, instr) in program.instrs().iter().enumerate() {
            if matches!(instr.op, ArrayOp::Input(_) | ArrayOp::Param { .. }) {
                continue;
            }
            let operands: Box<[_]> = instr.operands.iter().map(|v| self.new[v.at()]).collect();
            let is_active =
                program.results(at).any(|v| active[v.at()]) && active_operands(instr, active).next().is_some();
            let results = match &instr.op {
                ArrayOp::Loop(of) if is_active => self.loop_moved(of, &operands)?,
                ArrayOp::Cond { yes, no } if is_active => self.cond_moved([&yes.0, &no.0], &operands)?,
                ArrayOp::Rows(rows) if is_active => self.rows_moved(rows, &operands)?,
                ArrayOp::Apart(apart) if is_active => self.apart_moved(apart, &operands)?,
                op => {
                    let results = self.b.push_all(op.clone(), &operands)?;
                    if is_active {
                        let mapped = ArrayInstr { op: op.clone(), operands, result: results[0] };
                        self.tangents.resize(self.b.so_far().n_values(), None);
                        for (k, t) in moved(&mut self.b, &mapped, &self.tangents)?.into_iter().enumerate() {
                            self.moves(results[k], t);
                        }
                    }
                    results
                }
            };
            for (v, now) in program.results(at).zip(results) {
                self.new[v.at()] = now;
            }
        }
        Ok(())
    }
}

impl ArrayBuilder {
    /// The sum of two tangents, each of which may be absent.
    pub(super) fn sum_of(&mut self, x: Option<ValueId>, y: Option<ValueId>) -> Result<Option<ValueId>> {
        match (x, y) {
            (Some(x), Some(y)) => self.push(ArrayOp::Accumulate, &[x, y]).map(Some),
            (one, other) => Ok(one.or(other)),
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
    // What it may move with need not move: no curvature comes of a straight row.
    if (0..of.len()).all(|k| t(k).is_none()) {
        return Ok(None);
    }
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
                    let c = if row.masks() { b.at_rest_unreached(c)? } else { c };
                    total = b.sum_of(total, Some(c))?;
                }
            }
            return Ok(total);
        }
        &ArrayOp::Pull(row, to) => {
            let by_g = match t(0) {
                Some(t) => {
                    let all: Vec<_> = [t].iter().chain(&of[1..]).copied().collect();
                    let c = b.push(instr.op.clone(), &all)?;
                    Some(b.hidden_with(of[0], c)?)
                }
                None => None,
            };
            let by_operands = b.bent_pull(row, to.into(), of, [t(1), t(2)])?;
            return b.sum_of(by_g, by_operands);
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
            return b.sum_of(by_g, by_x);
        }
        &ArrayOp::Cumulate { kind: Cumulate::Recurrence, axis, reverse } => {
            let by_factor = match t(0) {
                Some(t) => {
                    let before = b.shifted(z, axis, !reverse)?;
                    Some(b.adjoint_product(t, before)?)
                }
                None => None,
            };
            let Some(terms) = b.sum_of(by_factor, t(1))? else { return Ok(None) };
            let t = b.push(ArrayOp::Cumulate { kind: Cumulate::Recurrence, axis, reverse }, &[of[0], terms])?;
            b.reached(t)
        }
        ArrayOp::Dot(Dot { transposed, .. }) => {
            let by_x = t(0).map(|t| b.adjoint_dot(*transposed, t, of[1])).transpose()?;
            let by_y = t(1).map(|t| b.adjoint_dot(*transposed, of[0], t)).transpose()?;
            return b.sum_of(by_x, by_y);
        }
        ArrayOp::Sparse(dot) => {
            let t = filled(b, 1)?;
            b.adjoint_sparse(dot.kind, of[0], t)
        }
        ArrayOp::Accumulate => return b.sum_of(t(0), t(1)),
        ArrayOp::ScatterAdd { .. } | ArrayOp::ScatterSet { .. } => {
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
            return b.solve_moved(instr, by_matrix, by_side);
        }
        ArrayOp::Adjoint | ArrayOp::After => filled(b, 0),
        ArrayOp::View(_) | ArrayOp::Copy | ArrayOp::Concat(_) | ArrayOp::AccumulateAt(_) | ArrayOp::Cumulate { .. } => {
            let all = (0..of.len()).map(|k| filled(b, k)).collect::<Result<Vec<_>>>()?;
            b.push(instr.op.clone(), &all)
        }
        _ => return Ok(None),
    }
    .map(Some)
}
