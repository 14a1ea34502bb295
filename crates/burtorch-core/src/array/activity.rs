//! Which values of a program depend on which others in a way that has a derivative.
//!
//! Promises one pass over the instructions, no recursion. Knows nothing of derivatives themselves.

use super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Element, ValueId};

/// Whether a small change of operand `k` can change the result by a multiple of it.
pub(super) fn moves(op: &ArrayOp, k: usize) -> bool {
    match op {
        ArrayOp::Row(row) => row.moves(k),
        ArrayOp::Compare(_) | ArrayOp::Convert(_) | ArrayOp::ArgExtreme { .. } => false,
        ArrayOp::Select => k > 0,
        ArrayOp::Take { .. } => k == 0,
        ArrayOp::ScatterAdd { .. } => k != 1,
        ArrayOp::LuSolve(_) => k != 1 && k != 2,
        // The value moves with the operand, which is enough to know.
        ArrayOp::ReducePull(..) => k < 2,
        _ => true,
    }
}

/// The operands of an instruction that are active, by position.
pub(super) fn active_operands<'a>(instr: &'a ArrayInstr, active: &'a [bool]) -> impl Iterator<Item = usize> + 'a {
    (0..instr.operands.len()).filter(|&k| active[instr.operands[k].at()] && moves(&instr.op, k))
}

/// For each value, whether it moves with one of `with`.
pub(super) fn active_values(program: &ArrayProgram, with: &[ValueId]) -> Vec<bool> {
    let mut active = vec![false; program.n_values()];
    for v in with {
        active[v.at()] = true;
    }
    for (at, instr) in program.instrs().iter().enumerate() {
        if active_operands(instr, &active).next().is_some() {
            for v in program.results(at) {
                active[v.at()] = program.type_of(v).element == Element::Float;
            }
        }
    }
    active
}
