//! Forward mode of loops and choices: the tangents of carries and slices follow them.

use super::super::activity::{active_in_loop, active_values};
use super::super::build::ArrayBuilder;
use super::super::expand::inlined;
use super::super::forward::Forward;
use super::super::instr::{ArrayOp, ArrayProgram, Length, Loop, Type, ValueId};
use super::super::zero_tangents::without_rest;
use super::body::{is_float, parts, shared};
use crate::error::Result;

/// The body with tangents. Each group of its arguments is followed by the tangents of the arguments in it that move, and each
/// group of its results by the tangents of these results.
pub(in super::super) fn moved(
    body: &ArrayProgram,
    groups: &[std::ops::Range<usize>],
    moving: &[bool],
    results: &[std::ops::Range<usize>],
    moving_results: &[bool],
) -> Result<ArrayProgram> {
    let by = |body: &ArrayProgram| -> Vec<ValueId> {
        body.inputs().iter().zip(moving).filter(|(_, m)| **m).map(|(&v, _)| v).collect()
    };
    let body = inlined(body)?;
    let variables = by(&body);
    let body = without_rest(body, &variables)?;
    let active = active_values(&body, &by(&body));
    let types = body.input_types();
    let mut f = Forward { b: ArrayBuilder::new(body.dtype())?, new: Vec::new(), tangents: Vec::new() };
    let mut inputs = Vec::with_capacity(types.len());
    for group in groups {
        let values = f.b.inputs_of(&types[group.clone()])?;
        for (k, &v) in group.clone().zip(&values) {
            if moving[k] {
                let t = f.b.push(ArrayOp::Input(types[k]), &[])?;
                f.moves(v, Some(t));
            }
        }
        inputs.extend(values);
    }
    for &v in &inputs {
        if let Some(t) = f.tangent_of(v) {
            let t = f.b.as_adjoint(t)?;
            f.moves(v, Some(t));
        }
    }
    f.run(&body, &inputs, &[], &active)?;
    let mut outputs = Vec::new();
    for group in results {
        outputs.extend(group.clone().map(|k| f.new[body.outputs()[k].at()]));
        for k in group.clone().filter(|&k| moving_results[k]) {
            let v = f.new[body.outputs()[k].at()];
            outputs.push(f.tangent_of(v).map_or_else(|| f.b.unreached_like(f.b.type_of(v)), Ok)?);
        }
    }
    f.b.finish(&outputs)?.cleaned()
}

/// A condition of captures and carries that looks past their tangents.
fn condition_moved(condition: &ArrayProgram, captures: usize, moving: &[bool]) -> Result<ArrayProgram> {
    let types = condition.input_types();
    let mut b = ArrayBuilder::new(condition.dtype())?;
    let mut inputs = Vec::new();
    for group in [0..captures, captures..types.len()] {
        inputs.extend(b.inputs_of(&types[group.clone()])?);
        b.inputs_of(group.filter(|&k| moving[k]).map(|k| &types[k]))?;
    }
    let new = b.append(condition, &inputs)?;
    let outputs: Vec<_> = condition.outputs().iter().map(|v| new[v.at()]).collect();
    b.finish(&outputs)
}

impl Forward {
    /// The tangent of an operand, filled in where it does not move.
    fn filled(&mut self, v: ValueId, ty: Type) -> Result<ValueId> {
        self.tangent_of(v).map_or_else(|| self.b.unreached_like(ty), Ok)
    }

    /// Notes the tangents among results in groups, and returns the others.
    pub(super) fn sorted(
        &mut self,
        found: &[ValueId],
        groups: &[std::ops::Range<usize>],
        moving: &[bool],
    ) -> Vec<ValueId> {
        let mut found = found.iter().copied();
        let mut results = Vec::new();
        for group in groups {
            let values: Vec<_> = found.by_ref().take(group.len()).collect();
            for k in group.clone().filter(|&k| moving[k]) {
                if let Some(t) = found.next() {
                    self.moves(values[k - group.start], Some(t));
                }
            }
            results.extend(values);
        }
        results.extend(found);
        results
    }

    /// The loop with tangents beside what moves, in place of the loop itself.
    pub(in super::super) fn loop_moved(&mut self, of: &Loop, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        let first = of.first();
        let operands_of = &operands[first..];
        let body = &of.body.0;
        let is_moving: Vec<_> = operands_of.iter().map(|&v| self.tangent_of(v).is_some()).collect();
        let (moving, moving_results) = active_in_loop(of, &is_moving);
        let types = body.input_types();
        let groups = parts(of, operands_of);
        let n = body.outputs().len();
        let results = [0..of.carries, of.carries..n];
        let step = moved(body, &groups, &moving, &results, &{
            // A carry's tangent is one, whether or not this step moves it.
            let carries = moving[groups[1].clone()].iter().copied();
            carries.chain(moving_results[of.carries..].iter().copied()).collect::<Vec<_>>()
        })?;
        let count = |range: &std::ops::Range<usize>| range.clone().filter(|&k| moving[k]).count();
        let length = match &of.length {
            Length::While { condition, most } => {
                let condition = shared(condition_moved(&condition.0, of.captures, &moving)?);
                Length::While { condition, most: *most }
            }
            other => other.clone(),
        };
        let mut given = operands[..first].to_vec();
        for group in &groups {
            given.extend(&operands_of[group.clone()]);
            for k in group.clone().filter(|&k| moving[k]) {
                let t = match (&of.length, group.start == groups[2].start && k >= groups[2].start) {
                    (Length::Fixed(_), true) => self.filled(operands_of[k], self.b.type_of(operands_of[k]))?,
                    _ => self.filled(operands_of[k], types[k])?,
                };
                given.push(t);
            }
        }
        let with_tangents = Loop {
            body: shared(step),
            length,
            captures: of.captures + count(&groups[0]),
            carries: of.carries + count(&groups[1]),
            ..of.clone()
        };
        let found = self.b.push_loop(with_tangents, &given)?;
        let carries = moving[groups[1].clone()].iter().copied();
        let moving_results: Vec<_> = carries.chain(moving_results[of.carries..].iter().copied()).collect();
        Ok(self.sorted(&found, &results, &moving_results))
    }

    /// The choice between the branches with their tangents.
    pub(in super::super) fn cond_moved(
        &mut self,
        branches: [&ArrayProgram; 2],
        operands: &[ValueId],
    ) -> Result<Vec<ValueId>> {
        let moving: Vec<_> = operands[1..].iter().map(|&v| self.tangent_of(v).is_some()).collect();
        let n = branches[0].outputs().len();
        let moving_results: Vec<_> = branches[0].output_types().into_iter().map(is_float).collect();
        let (all, results) = ([(); 1].map(|()| 0..moving.len()), [(); 1].map(|()| 0..n));
        let step = |body| moved(body, &all, &moving, &results, &moving_results).map(shared);
        let op = ArrayOp::Cond { yes: step(branches[0])?, no: step(branches[1])? };
        let mut given = operands.to_vec();
        given.extend(operands[1..].iter().filter_map(|&v| self.tangent_of(v)));
        let found = self.b.push_all(op, &given)?;
        Ok(self.sorted(&found, &results, &moving_results))
    }
}
