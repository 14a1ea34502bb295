//! The differentiable dependencies between values of a program.
//!
//! Promises: one pass over the instructions, no recursion except into the bodies of loops. Does not know derivatives.

use super::instr::{Apart, ArrayInstr, ArrayOp, ArrayProgram, Element, Length, Loop, ValueId};

/// Whether a small change of operand `k` can change the result by a multiple of it.
pub(super) fn moves(op: &ArrayOp, k: usize) -> bool {
    match op {
        ArrayOp::Row(row) => row.moves(k),
        ArrayOp::Compare(_) | ArrayOp::Convert(_) | ArrayOp::ArgExtreme { .. } => false,
        ArrayOp::ArgSort | ArrayOp::Search { .. } => false,
        ArrayOp::Select => k > 0,
        ArrayOp::Take { .. } | ArrayOp::After => k == 0,
        ArrayOp::ScatterAdd { .. } | ArrayOp::ScatterSet { .. } => k != 1,
        ArrayOp::LuSolve(_) => k != 1 && k != 2,
        ArrayOp::Sparse(_) => k == 1,
        // The value moves with operands, which is enough to know.
        &ArrayOp::Pull(row, to) => k == 0 || k <= row.arity() && row.bends(to.into(), k - 1),
        ArrayOp::ReducePull(..) => k < 2,
        _ => true,
    }
}

/// The operands of an instruction that are active, by position.
pub(super) fn active_operands<'a>(instr: &'a ArrayInstr, active: &'a [bool]) -> impl Iterator<Item = usize> + 'a {
    (0..instr.operands.len()).filter(|&k| active[instr.operands[k].at()] && moves(&instr.op, k))
}

/// For each value, whether it depends differentiably on one of `with`.
pub(super) fn active_values(program: &ArrayProgram, with: &[ValueId]) -> Vec<bool> {
    let mut active = vec![false; program.n_values()];
    for v in with {
        active[v.at()] = true;
    }
    for (at, instr) in program.instrs().iter().enumerate() {
        if active_operands(instr, &active).next().is_some() {
            let of: Vec<_> = instr.operands.iter().map(|v| active[v.at()]).collect();
            let moving = match &instr.op {
                ArrayOp::Loop(l) => Some(active_in_loop(l, &of[l.first()..]).1),
                ArrayOp::Cond { yes, no } => {
                    let moving = [yes, no].map(|branch| active_outputs(&branch.0, &of[1..]));
                    Some(moving[0].iter().zip(&moving[1]).map(|(yes, no)| *yes || *no).collect())
                }
                ArrayOp::Rows(rows) => Some(active_outputs(&rows.body.0, &of)),
                ArrayOp::Apart(Apart { body, rules: None }) => Some(active_outputs(&body.0, &of)),
                _ => None,
            };
            for (k, v) in program.results(at).enumerate() {
                // A stack moves as the numbers in it do, though what stands for it is an integer.
                active[v.at()] = match &moving {
                    Some(moving) => moving.get(k).copied().unwrap_or(false),
                    None => program.type_of(v).element == Element::Float,
                };
            }
        }
    }
    active
}

/// Which results of a program depend differentiably on those arguments.
pub(super) fn active_outputs(program: &ArrayProgram, arguments: &[bool]) -> Vec<bool> {
    let moving = program.inputs().iter().zip(arguments).filter(|(_, moves)| **moves).map(|(&v, _)| v);
    let floats: Vec<_> = moving.filter(|&v| program.type_of(v).element == Element::Float).collect();
    let active = active_values(program, &floats);
    program.outputs().iter().map(|v| active[v.at()]).collect()
}

/// Which arguments and results of a loop's body are active, in some step, given the active operands.
pub(super) fn active_in_loop(of: &Loop, operands: &[bool]) -> (Vec<bool>, Vec<bool>) {
    let body = &of.body.0;
    let is_float = |v: &ValueId| body.type_of(*v).element == Element::Float;
    let mut inputs: Vec<_> = body.inputs().iter().zip(operands).map(|(v, moves)| *moves && is_float(v)).collect();
    loop {
        let mut outputs = active_outputs(body, &inputs);
        let carries = &mut inputs[of.captures..of.captures + of.carries];
        let more: Vec<_> = carries.iter().zip(&outputs).map(|(input, output)| *input || *output).collect();
        if *carries == *more {
            // After no step a carry is what it was.
            if !matches!(of.length, Length::Fixed(1..)) {
                outputs[..of.carries].copy_from_slice(carries);
            }
            return (inputs, outputs);
        }
        carries.copy_from_slice(&more);
    }
}
