//! The instructions that run in chains of blocks, and their costs there.
//!
//! Does not know the order of work.

use super::super::columns::LONG;
use super::super::instr::{ArrayOp, ArrayProgram, Element, ValueId, View};

/// Where an instruction finds an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Read {
    /// In a block of the same chain.
    Block(ValueId),
    /// Where its operands lie.
    Again(ValueId),
    Place,
}

/// Whether blocks of floats are computed by it.
pub(super) fn is_elementwise(program: &ArrayProgram, at: usize) -> bool {
    let instr = &program.instrs()[at];
    let of_ints = instr.operands.iter().any(|&v| program.type_of(v).element == Element::Int);
    let to_int = program.type_of(instr.result).element == Element::Int;
    !of_ints && !to_int && instr.op.is_elementwise()
}

/// Whether it joins arrays along one axis as columns, side by side.
pub(super) fn joins_columns(program: &ArrayProgram, at: usize) -> bool {
    let instr = &program.instrs()[at];
    let ty = program.type_of(instr.result);
    let is_column = |v: &ValueId| program.type_of(*v).dims[1] == 1;
    let is_even = instr.op == ArrayOp::Concat(1) && ty.dims.rank() == 2 && ty.element != Element::Int;
    is_even && ty.dims[0] >= LONG && instr.operands.iter().all(is_column)
}

/// What an instruction of a chain takes: its operands but for indices, or the arrays whose views it joins as columns.
pub(super) fn chained(program: &ArrayProgram, at: usize) -> Vec<ValueId> {
    let instr = &program.instrs()[at];
    let column = |v: ValueId| {
        let of = program.instr_of(v);
        let is_flat =
            matches!(of.op, ArrayOp::View(View::Reshape(_))) && program.type_of(of.operands[0]).dims.rank() == 1;
        if is_flat { of.operands[0] } else { v }
    };
    match instr.op {
        ArrayOp::Concat(_) => instr.operands.iter().map(|&v| column(v)).collect(),
        ArrayOp::Take { .. } => vec![instr.operands[0]],
        ArrayOp::ScatterAdd { .. } => vec![instr.operands[0], instr.operands[2]],
        _ => instr.operands.to_vec(),
    }
}
