//! Programs over few numbers as programs over single numbers: for bodies of loops with small states.
//!
//! This is the program for a batch of one row, with each number of the row as a column. Promises: the same results bit for
//! bit, as for columns. Does not know loops.

use std::sync::Arc;

use super::super::build::ArrayBuilder;
use super::super::dims::Dims;
use super::super::expansion::{Expansion, MathOp, partial_of, value_of};
use super::super::instr::{
    ArrayInstr, ArrayOp, ArrayProgram, Data, Element, Length, Loop, Shared, Type, ValueId, View,
};
use super::super::lower::lowered;
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
    if !has_few(program) {
        return Ok(None);
    }
    if are_numbers(program) {
        return Ok(Some(program.clone()));
    }
    match taken_apart(program) {
        Err(error @ (Error::OutOfMemory { .. } | Error::Interrupted)) => Err(error),
        Ok(Some(numbers)) if time_of_numbers(&numbers) < time_of_arrays(program) => Ok(Some(numbers)),
        _ => Ok(None),
    }
}

/// Whether all its arrays are short. Indices may be known integers.
fn has_few(program: &ArrayProgram) -> bool {
    let counts = unread_counts(program);
    (0..program.n_values()).all(|v| {
        let Type { dims, element } = program.type_of(ValueId(v as u32));
        let is_short = (1..=FEW).contains(&dims.size()) && matches!(element, Element::Float | Element::Mask);
        let is_index = || matches!(program.instr_of(ValueId(v as u32)).op, ArrayOp::Const(..) | ArrayOp::Integer(_));
        is_short || is_index() || counts.contains(&v)
    })
}

fn are_numbers(program: &ArrayProgram) -> bool {
    let counts = unread_counts(program);
    (0..program.n_values()).all(|v| {
        let ty = program.type_of(ValueId(v as u32));
        ty.dims.size() == 1 && matches!(ty.element, Element::Float | Element::Mask) || counts.contains(&v)
    })
}

/// Numbers of steps that nothing reads.
fn unread_counts(program: &ArrayProgram) -> Vec<usize> {
    let counts = program.instrs().iter().enumerate().filter_map(|(at, instr)| match &instr.op {
        ArrayOp::Loop(Loop { length: Length::While { .. }, .. }) => program.results(at).last(),
        _ => None,
    });
    let is_read =
        |v: &ValueId| program.outputs().contains(v) || program.instrs().iter().any(|instr| instr.operands.contains(v));
    counts.filter(|v| !is_read(v)).map(|v| v.at()).collect()
}

/// A loop or a choice, to be done on single numbers.
struct Inner {
    op: ArrayOp,
    operands: Vec<ValueId>,
    results: Vec<ValueId>,
}

/// What an argument of the program of one row stands for.
enum Given {
    Argument,
    Const(Shared<Data>),
    /// A result of this one of the loops and choices.
    Result(usize),
}

fn taken_apart(program: &ArrayProgram) -> Result<Option<ArrayProgram>> {
    // Constants are arguments of the batch, so that they have rows too. So are results of loops and choices, whose operands are results.
    let mut b = ArrayBuilder::new(program.dtype())?;
    let mut new = vec![ValueId(0); program.n_values()];
    let (mut given, mut inner) = (Vec::new(), Vec::new());
    for (at, instr) in program.instrs().iter().enumerate() {
        let of: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
        let op = match &instr.op {
            ArrayOp::Const(dims, data) if program.type_of(instr.result).element == Element::Float => {
                given.push(Given::Const(data.clone()));
                ArrayOp::Input(Type::float(*dims))
            }
            ArrayOp::Input(ty) => {
                given.push(Given::Argument);
                ArrayOp::Input(*ty)
            }
            op @ (ArrayOp::Loop(_) | ArrayOp::Cond { .. }) => {
                let Some(op) = on_numbers(op)? else { return Ok(None) };
                let mut results = Vec::new();
                for v in program.results(at).filter(|&v| program.type_of(v).element != Element::Int) {
                    given.push(Given::Result(inner.len()));
                    new[v.at()] = b.push(ArrayOp::Input(program.type_of(v)), &[])?;
                    results.push(new[v.at()]);
                }
                inner.push(Inner { op, operands: of, results });
                continue;
            }
            op => op.clone(),
        };
        for (v, now) in program.results(at).zip(b.push_all(op, &of)?) {
            new[v.at()] = now;
        }
    }
    let mut outputs: Vec<_> = program.outputs().iter().map(|v| new[v.at()]).collect();
    inner.iter().for_each(|inner| outputs.extend(&inner.operands));
    let one = b.finish(&outputs)?.batched(&vec![Some(0); given.len()], 1)?;
    let mut apart = Apart::new(&one, &given, inner, program.outputs().len())?;
    for at in 0..one.instrs().len() {
        apart.instr(at)?;
        if apart.columns.b.so_far().instrs().len() > 2 * MOST {
            return Ok(None);
        }
    }
    apart.inner_to(apart.inner.len())?;
    let columns = &mut apart.columns;
    let outputs = one.outputs()[..program.outputs().len()].iter().map(|&v| columns.split(v));
    let outputs = outputs.collect::<Result<Vec<_>>>()?.concat();
    let numbers = simplified(&apart.columns.b.finish(&outputs)?.cleaned()?)?.cleaned()?;
    Ok((are_numbers(&numbers) && numbers.instrs().len() <= MOST).then_some(numbers))
}

/// A program of one row that is being taken apart.
struct Apart<'p> {
    columns: Columns<'p>,
    one: &'p ArrayProgram,
    inner: Vec<Inner>,
    /// Operands of loops and choices in the program of one row, one after the other.
    operands: Vec<ValueId>,
    /// Of its values, the loop or choice whose results they are.
    owners: Vec<Option<usize>>,
    /// Instructions that are done, and loops and choices.
    is_done: Vec<bool>,
    done: usize,
}

impl<'p> Apart<'p> {
    fn new(one: &'p ArrayProgram, given: &[Given], mut inner: Vec<Inner>, outputs: usize) -> Result<Self> {
        let mut columns = Columns {
            program: one,
            rows: 1,
            row: Dims::new(&[1])?,
            few: FEW,
            b: ArrayBuilder::new(one.dtype())?,
            forms: vec![Form::default(); one.n_values()],
        };
        let mut owners = vec![None; one.n_values()];
        inner.iter_mut().for_each(|inner| inner.results.clear());
        for (&v, given) in one.inputs().iter().zip(given) {
            let Type { dims, element } = one.type_of(v);
            let ty = Type { dims: columns.row, element };
            let number = |k: usize| match given {
                Given::Const(data) => match &*data.0 {
                    Data::F64(x) => Some(x[k]),
                    Data::F32(x) => Some(x[k].into()),
                    _ => None,
                },
                _ => None,
            };
            if let Given::Result(k) = *given {
                owners[v.at()] = Some(k);
                inner[k].results.push(v);
                continue;
            }
            let all = (0..dims.size()).map(|k| match number(k) {
                Some(x) => columns.b.literal(x).and_then(|x| columns.b.broadcast_to(x, ty.dims)),
                None => columns.b.push(ArrayOp::Input(ty), &[]),
            });
            columns.forms[v.at()].columns = Some(all.collect::<Result<_>>()?);
        }
        let operands = one.outputs()[outputs..].to_vec();
        let is_done = one.instrs().iter().map(|instr| matches!(instr.op, ArrayOp::Input(_))).collect();
        Ok(Apart { columns, one, inner, operands, owners, is_done, done: 0 })
    }

    fn instr(&mut self, at: usize) -> Result<()> {
        if !std::mem::replace(&mut self.is_done[at], true) {
            let of = &self.one.instrs()[at].operands;
            let needed = of.iter().filter_map(|v| self.owners[v.at()]).max();
            self.inner_to(needed.map_or(0, |k| k + 1))?;
            of.iter().try_for_each(|&v| self.value(v))?;
            self.columns.instr(at)?;
        }
        Ok(())
    }

    fn value(&mut self, v: ValueId) -> Result<()> {
        self.instr(self.one.instrs().partition_point(|instr| instr.result <= v) - 1)
    }

    /// Loops and choices before the one with this number.
    fn inner_to(&mut self, end: usize) -> Result<()> {
        while self.done < end {
            let k = self.done;
            self.done += 1;
            let n = self.inner[k].operands.len();
            let operands: Vec<_> = self.operands.drain(..n).collect();
            let mut of = Vec::new();
            for v in operands {
                // What has no rows gets them behind all else.
                self.value(v)?;
                of.extend(self.columns.split(v)?);
            }
            let Inner { op, results, .. } = &self.inner[k];
            if let (ArrayOp::Cond { .. }, Some(predicate)) = (op, of.first_mut()) {
                *predicate = self.columns.b.view(*predicate, View::Reshape(Dims::SCALAR))?;
            }
            let mut numbers = self.columns.b.push_all(op.clone(), &of)?.into_iter();
            for v in results {
                let n = self.one.type_of(*v).dims.size();
                self.columns.forms[v.at()].columns = Some(numbers.by_ref().take(n).collect());
            }
        }
        Ok(())
    }
}

/// A loop or a choice on single numbers, if its programs are such, it takes no slices and stacks nothing.
fn on_numbers(op: &ArrayOp) -> Result<Option<ArrayOp>> {
    let whole = |program: &ArrayProgram| -> Result<Option<Shared<ArrayProgram>>> {
        let program = lowered(program)?;
        let numbers = if has_few(&program) { taken_apart(&program)? } else { None };
        Ok(numbers.map(|numbers| Shared(Arc::new(numbers))))
    };
    let count = |values: &[ValueId], program: &ArrayProgram| -> usize {
        values.iter().map(|&v| program.type_of(v).dims.size()).sum()
    };
    Ok(match op {
        ArrayOp::Cond { yes, no } => match (whole(&yes.0)?, whole(&no.0)?) {
            (Some(yes), Some(no)) => Some(ArrayOp::Cond { yes, no }),
            _ => None,
        },
        ArrayOp::Loop(of) => {
            let (inputs, body) = (of.body.0.inputs(), &of.body.0);
            if inputs.len() > of.captures + of.carries || body.outputs().len() > of.carries {
                return Ok(None);
            }
            let length = match &of.length {
                Length::Fixed(n) => Length::Fixed(*n),
                Length::While { condition, most } => match whole(&condition.0)? {
                    Some(condition) => {
                        let condition = Shared(Arc::new(with_scalars(&condition.0)?));
                        Length::While { condition, most: *most }
                    }
                    None => return Ok(None),
                },
                Length::Counted => return Ok(None),
            };
            let captures = count(&inputs[..of.captures], body);
            let carries = count(&inputs[of.captures..], body);
            whole(body)?.map(|body| ArrayOp::Loop(Loop { body, length, captures, carries, ..of.clone() }))
        }
        _ => None,
    })
}

/// The program with results of shape ().
fn with_scalars(program: &ArrayProgram) -> Result<ArrayProgram> {
    let mut b = ArrayBuilder::new(program.dtype())?;
    let mut new = vec![ValueId(0); program.n_values()];
    for (at, instr) in program.instrs().iter().enumerate() {
        let of: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
        for (v, now) in program.results(at).zip(b.push_all(instr.op.clone(), &of)?) {
            new[v.at()] = now;
        }
    }
    let outputs = program.outputs().iter().map(|v| b.view(new[v.at()], View::Reshape(Dims::SCALAR)));
    let outputs = outputs.collect::<Result<Vec<_>>>()?;
    b.finish(&outputs)
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
