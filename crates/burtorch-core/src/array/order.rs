//! Small work before large work, so that large work stays together.
//!
//! An instruction on few numbers moves up to right behind the last of its operands. Otherwise a sum of a few numbers
//! between two instructions on many splits those into two passes over memory. Promises: the same results bit for bit, and
//! arguments in their order. Does not know plans.

use super::build::ArrayBuilder;
use super::instr::{ArrayOp, ArrayProgram, ValueId};
use crate::error::Result;

/// Numbers of a small array, at most.
const SMALL: usize = 4096;

/// Whether an instruction takes and gives few numbers, by an op that computes in blocks or looks.
fn is_small(program: &ArrayProgram, at: usize) -> bool {
    let instr = &program.instrs()[at];
    let is_light = match instr.op {
        ArrayOp::Row(_) | ArrayOp::Pull(..) | ArrayOp::Compare(_) | ArrayOp::Select | ArrayOp::Convert(_) => true,
        ArrayOp::Literal(_) | ArrayOp::Unreached(_) | ArrayOp::Integer(_) | ArrayOp::Const(..) => true,
        _ => matches!(instr.op, ArrayOp::Accumulate | ArrayOp::Reduce(..) | ArrayOp::View(_)),
    };
    let is_few = |v: ValueId| program.type_of(v).dims.size() <= SMALL;
    is_light && program.results(at).chain(instr.operands.iter().copied()).all(is_few)
}

/// The same program with small instructions as early as their operands allow.
pub(super) fn small_first(program: ArrayProgram) -> Result<ArrayProgram> {
    let is_small: Vec<_> = (0..program.instrs().len()).map(|at| is_small(&program, at)).collect();
    // The large instruction that each comes behind.
    let mut after = vec![0; program.n_values()];
    let mut order = Vec::with_capacity(is_small.len());
    for (at, instr) in program.instrs().iter().enumerate() {
        let last = instr.operands.iter().map(|v| after[v.at()]).max().unwrap_or(0);
        let place = if is_small[at] { last } else { at };
        program.results(at).for_each(|v| after[v.at()] = place);
        order.push((place, at));
    }
    let is_all_small = program.instrs().iter().zip(&is_small).all(|(instr, is)| *is || instr.operands.is_empty());
    if is_all_small || order.is_sorted() {
        return Ok(program);
    }
    order.sort_unstable();
    let mut b = ArrayBuilder::new(program.dtype())?;
    let mut new = vec![ValueId(0); program.n_values()];
    for (_, at) in order {
        let instr = &program.instrs()[at];
        let operands: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
        for (v, now) in program.results(at).zip(b.push_all(instr.op.clone(), &operands)?) {
            new[v.at()] = now;
        }
    }
    let outputs: Vec<_> = program.outputs().iter().map(|v| new[v.at()]).collect();
    b.finish(&outputs)
}

#[cfg(test)]
mod tests {
    use super::super::dims::Axes;
    use super::super::instr::{Element, Reduce};
    use super::super::row::Row;
    use super::*;
    use crate::ops::Op;
    use crate::scalar::DType;

    #[test]
    fn a_small_sum_does_not_part_large_work() {
        let mut b = ArrayBuilder::new(DType::Float64).unwrap();
        let (x, w) = (b.input(&[100, 100], Element::Float).unwrap(), b.input(&[100, 3], Element::Float).unwrap());
        let twice = b.row(Op::Add, &[x, x]).unwrap();
        let squares = b.row(Op::Sqr, &[w]).unwrap();
        let sums = b.push(ArrayOp::Reduce(Reduce::Sum, Axes::range(1, 2)), &[squares]).unwrap();
        let y = b.row(Op::Mul, &[twice, sums]).unwrap();
        let program = b.finish(&[y]).unwrap();
        let at = |program: &ArrayProgram, op: Op| {
            program.instrs().iter().position(|instr| instr.op == ArrayOp::Row(Row::Op(op))).unwrap()
        };
        assert!(at(&program, Op::Add) < at(&program, Op::Sqr));
        let program = small_first(program).unwrap();
        assert!(at(&program, Op::Sqr) < at(&program, Op::Add));
        assert_eq!(program.inputs(), [ValueId(0), ValueId(1)]);
    }
}
