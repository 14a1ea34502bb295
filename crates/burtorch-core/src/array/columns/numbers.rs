//! Programs over few numbers as programs over single numbers: for bodies of loops with small states.
//!
//! This is the program for a batch of one row, with each number of the row as a column. Promises: the same results bit for
//! bit, as for columns. Does not know loops.

use super::super::build::ArrayBuilder;
use super::super::dims::Dims;
use super::super::expansion::{Expansion, MathOp, partial_of, value_of};
use super::super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Data, Element, Shared, Type, ValueId};
use super::super::simplify::simplified;
use super::{Columns, Form};
use crate::error::{Error, Result};

/// Numbers of an array, at most.
const FEW: usize = 64;

/// Instructions on single numbers, at most.
const MOST: usize = 8192;

/// A program that takes and gives every number of the arguments and results of this one as an array of one number, in C order, if
/// that takes less time.
pub(in super::super) fn in_numbers(program: &ArrayProgram) -> Result<Option<ArrayProgram>> {
    let are_few = |v: usize| {
        let Type { dims, element } = program.type_of(ValueId(v as u32));
        (1..=FEW).contains(&dims.size()) && matches!(element, Element::Float | Element::Mask)
    };
    let is_index =
        |v: usize| matches!(program.instr_of(ValueId(v as u32)).op, ArrayOp::Const(..) | ArrayOp::Integer(_));
    if !(0..program.n_values()).all(|v| are_few(v) || is_index(v)) {
        return Ok(None);
    }
    if (0..program.n_values()).all(|v| is_number(program, v)) {
        return Ok(Some(program.clone()));
    }
    match taken_apart(program) {
        Err(error @ (Error::OutOfMemory { .. } | Error::Interrupted)) => Err(error),
        Ok(Some(numbers)) if time_of_numbers(&numbers) < time_of_arrays(program) => Ok(Some(numbers)),
        _ => Ok(None),
    }
}

fn taken_apart(program: &ArrayProgram) -> Result<Option<ArrayProgram>> {
    // Constants are arguments of the batch, so that they have rows too.
    let mut b = ArrayBuilder::new(program.dtype())?;
    let mut new = vec![ValueId(0); program.n_values()];
    let mut given: Vec<Option<Shared<Data>>> = Vec::new();
    for (at, instr) in program.instrs().iter().enumerate() {
        let of: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
        let op = match &instr.op {
            ArrayOp::Const(dims, data) if program.type_of(instr.result).element == Element::Float => {
                given.push(Some(data.clone()));
                ArrayOp::Input(Type::float(*dims))
            }
            ArrayOp::Input(ty) => {
                given.push(None);
                ArrayOp::Input(*ty)
            }
            op => op.clone(),
        };
        for (v, now) in program.results(at).zip(b.push_all(op, &of)?) {
            new[v.at()] = now;
        }
    }
    let outputs: Vec<_> = program.outputs().iter().map(|v| new[v.at()]).collect();
    let one = b.finish(&outputs)?.batched(&vec![Some(0); given.len()], 1)?;

    let mut columns = Columns {
        program: &one,
        rows: 1,
        row: Dims::new(&[1])?,
        few: FEW,
        b: ArrayBuilder::new(program.dtype())?,
        forms: vec![Form::default(); one.n_values()],
    };
    for (&v, data) in one.inputs().iter().zip(&given) {
        let Type { dims, element } = one.type_of(v);
        let ty = Type { dims: columns.row, element };
        let number = |k: usize| match data.as_ref().map(|data| &*data.0) {
            Some(Data::F64(x)) => Some(x[k]),
            Some(Data::F32(x)) => Some(x[k].into()),
            _ => None,
        };
        let all = (0..dims.size()).map(|k| match number(k) {
            Some(x) => columns.b.literal(x).and_then(|x| columns.b.broadcast_to(x, ty.dims)),
            None => columns.b.push(ArrayOp::Input(ty), &[]),
        });
        columns.forms[v.at()].columns = Some(all.collect::<Result<_>>()?);
    }
    for at in 0..one.instrs().len() {
        if !matches!(one.instrs()[at].op, ArrayOp::Input(_)) {
            columns.instr(at)?;
        }
        if columns.b.so_far().instrs().len() > 2 * MOST {
            return Ok(None);
        }
    }
    let outputs = one.outputs().iter().map(|&v| columns.split(v)).collect::<Result<Vec<_>>>()?.concat();
    let numbers = simplified(&columns.b.finish(&outputs)?.cleaned()?)?.cleaned()?;
    let are_numbers = (0..numbers.n_values()).all(|v| is_number(&numbers, v)) && numbers.instrs().len() <= MOST;
    Ok(are_numbers.then_some(numbers))
}

fn is_number(program: &ArrayProgram, v: usize) -> bool {
    let ty = program.type_of(ValueId(v as u32));
    ty.dims.size() == 1 && matches!(ty.element, Element::Float | Element::Mask)
}

/// How many operations and how many functions an instruction computes for each number.
fn steps(instr: &ArrayInstr) -> [usize; 2] {
    let formula: Option<Expansion> = match instr.op {
        ArrayOp::Row(row) => value_of(row),
        ArrayOp::Pull(row, k) => partial_of(row, k.into()),
        ArrayOp::Input(_) | ArrayOp::Literal(_) | ArrayOp::Const(..) | ArrayOp::Unreached(_) => return [0; 2],
        ArrayOp::View(_) | ArrayOp::Adjoint | ArrayOp::After | ArrayOp::Integer(_) => return [0; 2],
        _ => return [1, 0],
    };
    let of = |wanted: fn(&MathOp) -> bool| {
        formula.iter().flat_map(|formula| &formula.steps).filter(|step| wanted(&step.op)).count()
    };
    [
        of(|op| !matches!(op, MathOp::Operand(_) | MathOp::Literal(_) | MathOp::Function(_)))
            + usize::from(matches!(instr.op, ArrayOp::Pull(..))),
        of(|op| matches!(op, MathOp::Function(_))),
    ]
}

/// About how long a run over single numbers takes, in tenths of a nanosecond.
fn time_of_numbers(program: &ArrayProgram) -> usize {
    program.instrs().iter().map(steps).map(|[operations, functions]| 13 * operations + 90 * functions).sum()
}

/// The same of a run over arrays.
fn time_of_arrays(program: &ArrayProgram) -> usize {
    let time = |instr: &ArrayInstr| {
        let n =
            instr.operands.iter().chain([&instr.result]).map(|&v| program.type_of(v).dims.size()).max().unwrap_or(1);
        let [operations, functions] = steps(instr);
        match &instr.op {
            ArrayOp::Dot(dot) => {
                let [x, y] = [instr.operands[0], instr.operands[1]].map(|v| program.type_of(v).dims);
                dot.extents(&x, &y).map_or(0, |(batch, [m, k, n])| 600 + batch.size() * m * k * n * 2)
            }
            op if op.is_elementwise() => operations * (150 + 2 * n) + functions * (200 + 20 * n),
            _ => operations * (250 + 5 * n),
        }
    };
    program.instrs().iter().map(time).sum()
}
