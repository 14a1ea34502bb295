//! An estimate of the cost of a run.
//!
//! Does not know time: the unit is one elementwise operation on a number.

use super::super::dims::Dims;
use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, ValueId, View};
use crate::kernels::slices;

/// An estimate of the time of a run, in elementwise operations on a number.
pub(super) fn cost(program: &ArrayProgram) -> usize {
    // A view is read once for all that take it.
    let mut is_read = vec![false; program.n_values()];
    let mut total = 0;
    for instr in program.instrs() {
        total += cost_of(program, instr);
        let takes = !matches!(instr.op, ArrayOp::View(_) | ArrayOp::Adjoint | ArrayOp::Concat(_));
        for &v in instr.operands.iter().filter(|_| takes) {
            if !std::mem::replace(&mut is_read[v.at()], true) && is_scattered(program, v) {
                total += 4 * program.type_of(v).dims.size();
            }
        }
    }
    total
}

fn cost_of(program: &ArrayProgram, instr: &ArrayInstr) -> usize {
    let size = |v: ValueId| program.type_of(v).dims.size();
    let n = size(instr.result);
    match &instr.op {
        ArrayOp::Row(_) | ArrayOp::Compare(_) | ArrayOp::Select | ArrayOp::Accumulate => n,
        ArrayOp::Pull(..) => 2 * n,
        ArrayOp::Reduce(_, axes) => {
            let dims = program.type_of(instr.operands[0]).dims;
            let inner = dims[axes.iter().last().map_or(0, |axis| axis + 1)..].iter().product::<usize>();
            let is_short = dims.size() / n.max(1) < slices::SHORT && inner < 8;
            size(instr.operands[0]) * if is_short { 5 } else { 1 }
        }
        ArrayOp::Take { .. } | ArrayOp::Copy => 5 * n,
        ArrayOp::Concat(_) => 4 * n,
        ArrayOp::ScatterAdd { .. } | ArrayOp::ScatterSet { .. } | ArrayOp::AccumulateAt(_) => {
            8 * instr.operands.last().map_or(0, |&v| size(v))
        }
        ArrayOp::Dot(dot) => {
            let [x, y] = [instr.operands[0], instr.operands[1]].map(|v| program.type_of(v).dims);
            // A call for each of many small ones.
            dot.extents(&x, &y).map_or(0, |(batch, [m, k, n])| batch.size() * (40 + m * k * n))
        }
        _ => 0,
    }
}

/// Whether the numbers of a value are read one by one, or a few at a time.
fn is_scattered(program: &ArrayProgram, mut v: ValueId) -> bool {
    let mut instr = program.instr_of(v);
    while let ArrayOp::View(view) = &instr.op {
        let (dims, from) = (program.type_of(v).dims, program.type_of(instr.operands[0]).dims);
        let last = |dims: Dims| dims.iter().rev().copied().find(|&n| n > 1).unwrap_or(1);
        let scatters = match view {
            View::Reshape(_) => false,
            View::Permute(axes) => axes.windows(2).any(|pair| pair[0] > pair[1]) && last(dims) > 1,
            View::Slice(parts) => {
                let mut run = 1;
                for (slice, &n) in parts.iter().zip(from.iter()).rev() {
                    run *= if slice.step == 1 { slice.count } else { 1 };
                    if slice.count != n {
                        break;
                    }
                }
                run < slices::SHORT && dims.size() > run
            }
            View::Broadcast(_) => from.size() > 1 && last(dims) < slices::SHORT && last(dims) != last(from),
        };
        if scatters {
            return true;
        }
        v = instr.operands[0];
        instr = program.instr_of(v);
    }
    false
}
