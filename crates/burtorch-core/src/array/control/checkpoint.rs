//! Preparation of loops for reverse mode: all carries stacked, or only those at checkpoints.
//!
//! A loop with checkpoints becomes a loop over segments, each of which is a loop: reverse mode then stores the carries at
//! the start of each segment, and those of one segment at a time.

use super::super::build::ArrayBuilder;
use super::super::dims::Dims;
use super::super::expand::copied;
use super::super::expansion::{MathOp, value_of};
use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Length, Loop, Reduce, Slice, Type, ValueId, View};
use super::body::{is_float, parts, shared};
use crate::error::Result;

/// The program with the carries of every step of its loops stacked, behind what they stack already, where `wanted` says so
/// for the instruction.
pub(in super::super) fn with_history(program: &ArrayProgram, wanted: &[bool]) -> Result<ArrayProgram> {
    copied(program, |b, at, operands| match &program.instrs()[at].op {
        ArrayOp::Loop(of) if wanted[at] => b.loop_with_history(of, operands),
        op => b.push_all(op.clone(), operands),
    })
}

/// Numbers of a step that are kept rather than computed again, at most: so many for each of a carry and of a slice, and in all steps.
pub(super) const TIMES: usize = 16;
pub(super) const MOST: usize = 1 << 23;

/// A carry is not kept for the sake of elements of it that are at most this share of its size.
const SHARE: usize = 4;

/// What takes longer to compute again than to keep: functions and products of a step, and some elements of a carry, which then
/// need not be kept whole. Nothing if that is much memory.
fn costly(of: &Loop) -> Vec<ValueId> {
    let body = &of.body.0;
    let carries = &body.inputs()[parts(of, body.inputs())[1].clone()];
    let is_costly = |instr: &&ArrayInstr| {
        let is_slow = match &instr.op {
            ArrayOp::Take { .. } | ArrayOp::View(View::Slice(_)) => {
                let [taken, whole] = [instr.result, instr.operands[0]].map(|v| body.type_of(v).dims.size());
                carries.contains(&instr.operands[0]) && SHARE * taken <= whole
            }
            ArrayOp::Row(row) => {
                value_of(*row).is_some_and(|of| of.steps.iter().any(|step| matches!(step.op, MathOp::Function(_))))
            }
            ArrayOp::Dot(dot) => {
                let [x, y] = [instr.operands[0], instr.operands[1]].map(|v| body.type_of(v).dims);
                dot.extents(&x, &y).is_ok_and(|(_, [_, k, _])| k >= 4)
            }
            ArrayOp::Reduce(kind, _) => matches!(kind, Reduce::LogSumExp | Reduce::Norm2),
            _ => false,
        };
        is_slow && is_float(body.type_of(instr.result)) && !body.outputs().contains(&instr.result)
    };
    let first = body.first_alike();
    let mut varies = vec![false; body.n_values()];
    body.inputs()[of.captures..].iter().for_each(|v| varies[v.at()] = true);
    for (at, instr) in body.instrs().iter().enumerate() {
        if instr.operands.iter().any(|v| varies[v.at()]) {
            body.results(at).for_each(|v| varies[v.at()] = true);
        }
    }
    // What is equal in all steps is computed once, before the loop.
    let is_own = |v: &ValueId| varies[v.at()] && first[v.at()] == *v;
    let values: Vec<_> = body.instrs().iter().filter(is_costly).map(|instr| instr.result).filter(is_own).collect();
    let size = |values: &[ValueId]| values.iter().map(|&v| body.type_of(v).dims.size()).sum::<usize>();
    let steps = if let Length::Fixed(n) = of.length { n } else { 1 };
    let numbers = size(&values);
    let is_little = numbers <= TIMES * size(&body.inputs()[of.captures..]) && numbers.saturating_mul(steps) <= MOST;
    if is_little { values } else { Vec::new() }
}

impl ArrayBuilder {
    /// The results of the loop. What is stacked and passed on too is stacked as a carry of the next step, where its adjoint
    /// begins, as in the unrolled program.
    fn loop_with_history(&mut self, of: &Loop, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        let Length::Fixed(n @ 1..) = of.length else { return self.loop_with_carries(of, operands) };
        let body = &of.body.0;
        let (carries, stacked) = body.outputs().split_at(of.carries);
        let same: Vec<_> = stacked.iter().map(|v| carries.iter().position(|carry| carry == v)).collect();
        let before = &body.inputs()[parts(of, body.inputs())[1].clone()];
        let outputs = stacked.iter().zip(&same).map(|(v, same)| same.map_or(*v, |k| before[k]));
        let outputs: Vec<_> = carries.iter().copied().chain(outputs).collect();
        let other = Loop { body: shared((**body).clone().with_outputs(outputs)), ..of.clone() };
        let mut results = self.loop_with_carries(&other, operands)?;
        for (j, same) in same.into_iter().enumerate() {
            let Some(k) = same else { continue };
            let extents = [&[1], &self.dims(results[k])[..]].concat();
            let last = self.reshape(results[k], &extents)?;
            let start = usize::from(!of.reverse);
            let others = self.slice(results[of.carries + j], &[Slice { start, step: 1, count: n - 1 }])?;
            let all = if of.reverse { [last, others] } else { [others, last] };
            results[of.carries + j] = self.concatenate(&all, 0)?;
        }
        Ok(results)
    }

    /// The results of the loop without its history, so that they stand for those of the loop; the history follows from there.
    fn loop_with_carries(&mut self, of: &Loop, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        if let (Length::Fixed(n), Some(every)) = (&of.length, of.checkpoint)
            && every < *n
        {
            return self.loop_in_segments(of, *n, every, operands);
        }
        let body = &of.body.0;
        let carries = &body.inputs()[parts(of, body.inputs())[1].clone()];
        let kept = costly(of);
        let more = kept.len() + of.carries;
        let outputs: Vec<_> = body.outputs().iter().chain(&kept).chain(carries).copied().collect();
        let with = Loop { body: shared((**body).clone().with_outputs(outputs)), ..of.clone() };
        let mut results = self.push_all(ArrayOp::Loop(with), operands)?;
        let own = of.carries + of.stacked();
        results.drain(own..own + more);
        Ok(results)
    }

    /// A loop of `n` steps as one over segments of `every` steps, and one for the rest.
    fn loop_in_segments(&mut self, of: &Loop, n: usize, every: usize, operands: &[ValueId]) -> Result<Vec<ValueId>> {
        let [captures, carries, slices] = parts(of, operands);
        let (segments, rest) = (n / every, n % every);
        // The rest comes last: at the end, or at the start of a loop that runs backwards.
        let (whole, left) = if of.reverse { ((rest, n - rest), (0, rest)) } else { ((0, n - rest), (n - rest, rest)) };
        let inner = Loop { length: Length::Fixed(every), checkpoint: None, ..of.clone() };
        let types = of.body.0.input_types();
        let cut = |n: usize, ty: &Type| Ok(Type { dims: Dims::new(&[&[n], &ty.dims[..]].concat())?, ..*ty });
        let mut segment = ArrayBuilder::new(self.so_far().dtype())?;
        let mut arguments = segment.inputs_of(&types[..carries.end])?;
        for ty in &types[carries.end..] {
            arguments.extend(segment.inputs_of([&cut(every, ty)?])?);
        }
        let outputs = segment.push_all(ArrayOp::Loop(inner), &arguments)?;
        let outer = Loop {
            body: shared(segment.finish(&outputs)?),
            length: Length::Fixed(segments),
            checkpoint: None,
            ..of.clone()
        };
        let part = |b: &mut ArrayBuilder, v: ValueId, (start, count)| b.slice(v, &[Slice { start, step: 1, count }]);
        let mut of_whole = operands[..carries.end].to_vec();
        for &v in &operands[slices.clone()] {
            let x = part(self, v, whole)?;
            let extents = [&[segments, every], &self.dims(v)[1..]].concat();
            of_whole.push(self.reshape(x, &extents)?);
        }
        let mut results = self.loop_with_carries(&outer, &of_whole)?;
        for v in &mut results[of.carries..] {
            let extents = [&[segments * every], &self.dims(*v)[2..]].concat();
            *v = self.reshape(*v, &extents)?;
        }
        if rest == 0 {
            return Ok(results);
        }
        let last = Loop { length: Length::Fixed(rest), checkpoint: None, ..of.clone() };
        let mut of_rest = operands[captures].to_vec();
        of_rest.extend(&results[..of.carries]);
        for &v in &operands[slices] {
            of_rest.push(part(self, v, left)?);
        }
        let mut last = self.loop_with_carries(&last, &of_rest)?;
        for (last, before) in last[of.carries..].iter_mut().zip(&results[of.carries..]) {
            let both = if of.reverse { [*last, *before] } else { [*before, *last] };
            *last = self.concatenate(&both, 0)?;
        }
        Ok(last)
    }
}
