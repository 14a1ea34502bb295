//! Array programs in the checkpoint format: a program of all instructions comes back equal, and every cut, flipped bit and forged
//! number is refused or makes a program that is valid.

use std::sync::Arc;

use burtorch_core::array::{
    Argument, ArrayBuilder, ArrayOp, ArrayProgram, Comparison, Cumulate, Data, Dims, Element, Length, Loop, OverRows,
    Plan, Reduce, Row, Shared, Slice, ValueId, Variable, View,
};
use burtorch_core::io::{Header, Kind, Reader, Writer};
use burtorch_core::ops::Function;
use burtorch_core::{DType, Error, Op, Result};

use super::{damage, forged};

/// `x -> x sin(x)`, for two numbers.
fn body() -> Result<ArrayProgram> {
    let mut b = ArrayBuilder::new(DType::Float64)?;
    let x = b.input(&[2], Element::Float)?;
    let sin = b.row(Op::Sin, &[x])?;
    let y = b.row(Op::Mul, &[x, sin])?;
    b.finish(&[y])
}

fn shared(program: ArrayProgram) -> Shared<ArrayProgram> {
    Shared(Arc::new(program))
}

/// The determinant of a 2 x 2 matrix as that of larger ones.
fn det_by_factors(b: &mut ArrayBuilder, a: ValueId) -> Result<ValueId> {
    let factors = b.push_all(ArrayOp::Lu, &[a])?;
    let flat = b.view(factors[0], View::Reshape(Dims::new(&[4])?))?;
    let diagonal = b.view(flat, View::Slice([Slice { start: 0, step: 3, count: 2 }].into()))?;
    let product = b.reduce(Reduce::Prod, diagonal, Some(&[-1]), false)?;
    b.row(Op::Mul, &[factors[2], product])
}

/// A loop that starts at `x` and continues below 100, and its condition.
fn growing(b: &mut ArrayBuilder, x: ValueId) -> Result<Vec<ValueId>> {
    let mut step = ArrayBuilder::new(DType::Float64)?;
    let c = step.input(&[2], Element::Float)?;
    let twice = step.row(Op::Add, &[c, c])?;
    let twice = step.push(ArrayOp::Adjoint, &[twice])?;
    let step = step.finish(&[twice])?;
    let mut condition = ArrayBuilder::new(DType::Float64)?;
    let c = condition.input(&[2], Element::Float)?;
    let sum = condition.reduce(Reduce::Sum, c, None, false)?;
    let most = condition.literal(100.0)?;
    let less = condition.compare(Comparison::Less, &[sum, most])?;
    let condition = shared(condition.finish(&[less])?);
    let length = Length::While { condition, most: Some(5) };
    let of = Loop { body: shared(step), length, reverse: false, captures: 0, carries: 1, checkpoint: None };
    b.push_all(ArrayOp::Loop(of), &[x])
}

/// Programs that have every instruction between them.
pub fn programs() -> Vec<ArrayProgram> {
    let make = || {
        let mut b = ArrayBuilder::new(DType::Float64)?;
        let (x, a) = (b.input(&[2], Element::Float)?, b.input(&[2, 2], Element::Float)?);
        let (i, mask) = (b.input(&[2], Element::Int)?, b.input(&[2], Element::Mask)?);
        let s = b.input(&[2, 2], Element::Sparse)?;
        let w = b.param(0, 1, &[2])?;
        let two = b.push(ArrayOp::Integer(2), &[])?;
        let constants = [Data::F64(vec![0.5, -0.0]), Data::Int(vec![1, -1]), Data::Mask(vec![true, false])];
        let constants = constants.map(|data| ArrayOp::Const(Dims::new(&[2]).unwrap(), Shared(Arc::new(data))));
        let mut all = vec![two];
        for constant in constants {
            all.push(b.push(constant, &[])?);
        }
        let unreached = b.push(ArrayOp::Unreached(Dims::new(&[2])?), &[])?;
        let y = b.row(Op::Mul, &[x, w])?;
        all.push(b.push(ArrayOp::Row(Row::Helper(Function::TanhGrad)), &[x, y])?);
        let pull = b.push(ArrayOp::Pull(Row::Op(Op::Mul), 1), &[y, x, w, y])?;
        all.extend([pull, b.push(ArrayOp::Accumulate, &[unreached, pull])?, b.push(ArrayOp::Adjoint, &[x])?]);
        all.push(b.where_(mask, x, y)?);
        all.push(b.detach(x)?);
        let largest = b.reduce(Reduce::Max, x, None, false)?;
        all.push(
            b.push(ArrayOp::ReducePull(Reduce::Max, burtorch_core::array::Axes::range(0, 1)), &[largest, x, largest])?,
        );
        all.extend([b.arg_extreme(x, 0, true)?, b.argsort(x, 0)?, b.sort(a, 0)?, b.median(a, 1)?, b.cumsum(x, 0)?]);
        all.push(b.push(ArrayOp::Cumulate { kind: Cumulate::Recurrence, axis: 0, reverse: true }, &[x, y])?);
        all.extend([b.matmul(a, x)?, b.matmul(s, x)?, b.transpose(a, &[1, 0])?]);
        let repeated = b.broadcast_to(x, Dims::new(&[3, 2])?)?;
        all.extend([b.push(ArrayOp::Copy, &[repeated])?, b.concatenate(&[x, y], 0)?, b.take(x, i, 0)?]);
        let slices = [Slice { start: 1, step: -1, count: 2 }];
        all.push(b.slice(x, &slices)?);
        all.push(b.push(ArrayOp::AccumulateAt(slices.into()), &[x, y])?);
        all.push(b.push(ArrayOp::ScatterAdd { axis: 0, batch: 0 }, &[x, i, y])?);
        all.extend([b.solve(a, x)?, det_by_factors(&mut b, a)?, b.cholesky(a)?, b.lstsq(a, x)?]);
        all.extend(growing(&mut b, x)?);
        let of = Loop {
            body: shared(body()?),
            length: Length::Fixed(3),
            reverse: true,
            captures: 0,
            carries: 1,
            checkpoint: Some(2),
        };
        all.extend(b.push_all(ArrayOp::Loop(of), &[x])?);
        let predicate = b.compare(Comparison::Less, &[largest, largest])?;
        let (yes, no) = (shared(body()?), shared(body()?));
        all.extend(b.push_all(ArrayOp::Cond { yes: yes.clone(), no }, &[predicate, x])?);
        all.extend(b.push_all(ArrayOp::Call(yes), &[x])?);
        let whole = b.finish(&all)?;
        let mut small = ArrayBuilder::new(DType::Float64)?;
        let x = small.input(&[2], Element::Float)?;
        let last = growing(&mut small, x)?[0];
        let sum = small.reduce(Reduce::Sum, last, None, false)?;
        let gradient = small.finish(&[sum])?.gradient(&[Variable::Input(0)])?;
        let rows = body()?.over_rows(&[Some(0)], &[OverRows::Sum], 3)?;
        let narrow = {
            let mut b = ArrayBuilder::new(DType::Float32)?;
            let (x, dims) = (b.input(&[2], Element::Float)?, Dims::new(&[2])?);
            let c = b.push(ArrayOp::Const(dims, Shared(Arc::new(Data::F32(vec![0.1, 0.2])))), &[])?;
            let y = b.row(Op::Mul, &[x, c])?;
            b.finish(&[y])?
        };
        let placed = {
            let mut b = ArrayBuilder::new(DType::Float64)?;
            let (x, i) = (b.input(&[2], Element::Float)?, b.input(&[2], Element::Int)?);
            let y = b.scatter_set(x, i, x)?;
            b.finish(&[y])?
        };
        Ok::<_, Error>(vec![
            whole,
            gradient.clone(),
            gradient.without_calls()?,
            rows.clone(),
            rows.jvp(&[Variable::Input(0)])?,
            narrow,
            placed,
        ])
    };
    make().unwrap()
}

/// The file of a program alone.
pub fn file_of(program: &ArrayProgram) -> Vec<u8> {
    let mut writer = Writer::new(Header::new(Kind::PROGRAM)).unwrap();
    program.write(&mut writer).unwrap();
    writer.finish().unwrap()
}

/// The program in a file that holds nothing else.
pub fn read(bytes: &[u8]) -> Result<ArrayProgram> {
    let mut reader = Reader::open(bytes, Kind::PROGRAM)?;
    let program = ArrayProgram::read(&mut reader)?;
    reader.finish()?;
    Ok(program)
}

#[test]
fn programs_of_all_instructions_are_restored() {
    let mut names = Vec::new();
    for program in programs() {
        let bytes = file_of(&program);
        let again = read(&bytes).unwrap();
        assert!(again.is_same(&program), "{program}\n{again}");
        assert_eq!((file_of(&again), again.to_string()), (bytes, program.to_string()));
        assert_eq!((again.input_types(), again.output_types()), (program.input_types(), program.output_types()));
        names.extend(program.instrs().iter().map(|instr| format!("{:?}", std::mem::discriminant(&instr.op))));
    }
    names.sort();
    names.dedup();
    // All variants of `ArrayOp`.
    assert_eq!(names.len(), 36, "{names:?}");
}

#[test]
fn a_program_from_a_file_has_the_same_bits() {
    let gradient = &programs()[1];
    let run = |program: &ArrayProgram| {
        let mut plan = Plan::<f64>::new(program).unwrap();
        plan.run(&[Argument::Float(&[0.3, 0.7])], &[]).unwrap();
        plan.floats(0).unwrap().to_vec()
    };
    let found = run(&read(&file_of(gradient)).unwrap());
    assert_eq!(found, run(gradient));
    assert_eq!(found, [32.0, 32.0]);
}

#[test]
fn every_prefix_and_every_flipped_bit_is_refused() {
    for program in programs() {
        let bytes = file_of(&program);
        for n in 0..bytes.len() {
            assert!(matches!(read(&bytes[..n]), Err(Error::Format { .. })), "{n}");
        }
        for k in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[k] ^= 1 << (k % 8);
            assert!(matches!(read(&flipped), Err(Error::Format { .. })), "{k}");
        }
    }
}

/// With matching checksums, a damaged file is refused or gives a valid program.
#[test]
fn forged_programs_are_refused_or_valid() {
    let mut valid = 0;
    for (k, program) in programs().iter().enumerate() {
        let bytes = file_of(program);
        for seed in 0..4_000 {
            let file = forged(&bytes, |payload| {
                let damaged = damage(payload, seed * 7 + k as u64);
                let n = payload.len().min(damaged.len());
                payload[..n].copy_from_slice(&damaged[..n]);
            });
            match read(&file) {
                Ok(program) => {
                    valid += 1;
                    let size = |v| program.type_of(v).dims.size();
                    if program.instrs().iter().all(|instr| size(instr.result) < 1 << 12) {
                        let _ = program.to_string();
                        let _ = Plan::<f64>::new(&program);
                        let _ = program.vjp(&[Variable::Input(0)]);
                    }
                }
                Err(Error::Format { .. }) => {}
                Err(error) => panic!("{error:?} at seed {seed}"),
            }
        }
    }
    assert!(valid > 100, "{valid}");
}

#[test]
fn programs_that_hold_each_other_too_often_are_refused() {
    let mut program = body().unwrap();
    for _ in 0..40 {
        let mut b = ArrayBuilder::new(DType::Float64).unwrap();
        let x = b.input(&[2], Element::Float).unwrap();
        let held = shared(program);
        let y = b.push(ArrayOp::Call(held.clone()), &[x]).unwrap();
        let z = b.push(ArrayOp::Call(held), &[y]).unwrap();
        program = b.finish(&[z]).unwrap();
    }
    let error = read(&file_of(&program)).unwrap_err().to_string();
    assert!(error.contains("nested"), "{error}");
}
