//! Constant folding when a plan is made.
//!
//! Promises: the bits that a run would compute, and no more memory than a few megabytes: larger constants are computed in each
//! run. Errors are left to the run. Does not know chains.

use std::sync::Arc;

use super::super::build::ArrayBuilder;
use super::super::expand::copied;
use super::super::instr::{ArrayOp, ArrayProgram, Data, Shared, Type, ValueId};
use super::super::simplify::{all_of, simplified};
use super::{ArrayFloat, Plan};
use crate::error::{Error, Result};

/// Numbers of a constant that is kept, at most, and of all of them.
const MOST: usize = 1 << 16;
const MOST_OF_ALL: usize = 1 << 19;

/// The program with what depends on constants alone as constants.
pub(super) fn folded<E: ArrayFloat>(program: ArrayProgram) -> Result<ArrayProgram> {
    let roots = roots(&program);
    if roots.is_empty() {
        return Ok(program);
    }
    let made = match evaluated::<E>(&program, &roots) {
        Err(error @ (Error::OutOfMemory { .. } | Error::Interrupted)) => return Err(error),
        Ok(Some(made)) => made,
        _ => return Ok(program),
    };
    let mut of: Vec<Option<Data>> = (0..program.n_values()).map(|_| None).collect();
    roots.iter().zip(made).for_each(|(root, made)| of[root.at()] = Some(made));
    let program = copied(&program, |b, at, operands| {
        let instr = &program.instrs()[at];
        match of[instr.result.at()].take() {
            Some(made) => Ok(vec![constant(b, program.type_of(instr.result), made)?]),
            None => b.push_all(instr.op.clone(), operands),
        }
    })?;
    simplified(&program)?.cleaned()
}

/// Values that are computed of constants alone, as far as something else needs them.
fn roots(program: &ArrayProgram) -> Vec<ValueId> {
    let mut is_const = vec![false; program.n_values()];
    let mut is_wanted = vec![false; program.n_values()];
    for (at, instr) in program.instrs().iter().enumerate() {
        let is_own = match instr.op {
            ArrayOp::Const(..) | ArrayOp::Literal(_) | ArrayOp::Integer(_) | ArrayOp::Unreached(_) => true,
            ArrayOp::Input(_) | ArrayOp::Param { .. } | ArrayOp::Call(_) | ArrayOp::Apart(_) => false,
            ArrayOp::Loop(_) | ArrayOp::Cond { .. } | ArrayOp::Rows(_) => false,
            _ => program.results(at).count() == 1 && instr.operands.iter().all(|v| is_const[v.at()]),
        };
        is_const[instr.result.at()] = is_own;
        if !is_own {
            instr.operands.iter().for_each(|v| is_wanted[v.at()] = true);
        }
    }
    program.outputs().iter().for_each(|v| is_wanted[v.at()] = true);
    let (mut roots, mut total) = (Vec::new(), 0);
    for instr in program.instrs().iter().rev() {
        let v = instr.result;
        if !(is_const[v.at()] && is_wanted[v.at()]) || instr.operands.is_empty() {
            continue;
        }
        let size = program.type_of(v).dims.size();
        let is_view = matches!(instr.op, ArrayOp::View(_) | ArrayOp::Adjoint | ArrayOp::After);
        if !is_view && size <= MOST && total + size <= MOST_OF_ALL {
            total += size;
            roots.push(v);
        } else {
            instr.operands.iter().for_each(|v| is_wanted[v.at()] = true);
        }
    }
    roots
}

/// Their numbers; nothing where a matrix is singular, which every run is to say.
fn evaluated<E: ArrayFloat>(program: &ArrayProgram, roots: &[ValueId]) -> Result<Option<Vec<Data>>> {
    let mut b = ArrayBuilder::new(program.dtype())?;
    let mut new: Vec<Option<ValueId>> = vec![None; program.n_values()];
    for instr in program.instrs() {
        let operands: Option<Vec<_>> = instr.operands.iter().map(|v| new[v.at()]).collect();
        let is_own = !matches!(instr.op, ArrayOp::Input(_) | ArrayOp::Param { .. });
        let is_one = is_own && !matches!(instr.op, ArrayOp::Loop(_) | ArrayOp::Cond { .. } | ArrayOp::Call(_));
        if let Some(operands) = operands.filter(|_| is_one) {
            let results = b.push_all(instr.op.clone(), &operands)?;
            new[instr.result.at()] = results.first().copied().filter(|_| results.len() == 1);
        }
    }
    let outputs: Vec<_> = roots.iter().filter_map(|v| new[v.at()]).collect();
    let mut plan = Plan::<E>::prepared(&b.finish(&outputs)?.cleaned()?, None, None)?;
    plan.run(&[], &[])?;
    if plan.singular().is_some() {
        return Ok(None);
    }
    (0..roots.len()).map(|k| plan.data(k)).collect::<Result<_>>().map(Some)
}

/// The constant, or one number in its shape.
fn constant(b: &mut ArrayBuilder, ty: Type, data: Data) -> Result<ValueId> {
    let one = match &data {
        Data::F64(x) => all_of(x, |x| x.to_bits()).map(|x| b.literal(x)),
        Data::F32(x) => all_of(x, |x| x.to_bits()).map(|x| b.literal(x.into())),
        Data::Int(x) => all_of(x, |x| *x).map(|x| b.push(ArrayOp::Integer(x), &[])),
        Data::Mask(x) => all_of(x, |x| *x).map(|x| b.mask(x)),
    };
    match one {
        Some(one) => {
            let one = one?;
            b.broadcast_to(one, ty.dims)
        }
        None => b.push(ArrayOp::Const(ty.dims, Shared(Arc::new(data))), &[]),
    }
}
