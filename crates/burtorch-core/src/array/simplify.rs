//! Simplification: removes work on unreached adjoints, as in derivatives of derivatives, factors of 1, reductions of one number,
//! and stored numbers that no partial reads.
//!
//! Promises: the same results bit for bit: an unreached number is -0.0, which changes no sum. Does not know plans.

use std::collections::HashMap;

use super::build::ArrayBuilder;
use super::expand::copied;
use super::expansion::partial_of;
use super::instr::{ArrayOp, ArrayProgram, Comparison, Data, Dot, Element, Reduce, ValueId, View};
use super::row::Row;
use crate::error::Result;
use crate::ops::Op;
use crate::scalar::DType;

/// What is known of values.
#[derive(Default)]
struct Facts {
    /// Values that are unreached throughout.
    unreached: Vec<bool>,
    /// Masks of values that are unreached where it holds and nowhere else.
    masks: HashMap<ValueId, ValueId>,
    /// The number that a value is throughout.
    numbers: Vec<Option<f64>>,
    /// Whether a mask holds throughout, or nowhere.
    holds: Vec<Option<bool>>,
    /// Values that are -0.0 nowhere.
    reached: Vec<bool>,
}

/// The same program with fewer instructions.
pub(super) fn simplified(program: &ArrayProgram) -> Result<ArrayProgram> {
    let mut facts = Facts::default();
    copied(program, |b, at, operands| {
        let instr = &program.instrs()[at];
        let (op, operands) = as_first(instr.op.clone(), read_by(&instr.op, operands));
        let results = match facts.known(b, &op, &operands)? {
            Some(v) => vec![v],
            None => b.push_all(op, &operands)?,
        };
        if let [v] = results[..] {
            facts.learn(b, v);
        }
        Ok(results)
    })
}

/// The operands; the adjoint replaces each operand that the partial does not read.
fn read_by(op: &ArrayOp, of: &[ValueId]) -> Vec<ValueId> {
    let ArrayOp::Pull(row, k) = *op else { return of.to_vec() };
    let reads = partial_of(row, k.into()).map_or([false; 4], |formula| formula.reads());
    let last = of.len() - 1;
    // The value is the last operand, and the fourth of the formula.
    let is_read = |at: usize| at == 0 || reads[at] || at == last && reads[3];
    of.iter().enumerate().map(|(at, &v)| if is_read(at) { v } else { of[0] }).collect()
}

/// What a product contributes to its second operand, as what it contributes to the first where they are exchanged: the two
/// are one where a number is multiplied by itself.
fn as_first(op: ArrayOp, of: Vec<ValueId>) -> (ArrayOp, Vec<ValueId>) {
    const PRODUCT: Row = Row::Op(Op::Mul);
    match op {
        ArrayOp::Pull(PRODUCT, 1) => (ArrayOp::Pull(PRODUCT, 0), vec![of[0], of[0], of[1], of[0]]),
        op => (op, of),
    }
}

/// The element that all of these are equal to.
pub(super) fn all_of<T: Copy, K: PartialEq>(all: &[T], key: impl Fn(&T) -> K) -> Option<T> {
    let first = all.first()?;
    all.iter().all(|x| key(x) == key(first)).then_some(*first)
}

impl Facts {
    fn number(&self, v: ValueId) -> Option<f64> {
        self.numbers.get(v.at()).copied().flatten()
    }

    fn is_one(&self, v: ValueId) -> bool {
        self.number(v) == Some(1.0)
    }

    fn is_zero(&self, v: ValueId) -> bool {
        self.number(v).is_some_and(|x| x.to_bits() == 0)
    }

    fn holds(&self, v: ValueId) -> Option<bool> {
        self.holds.get(v.at()).copied().flatten()
    }

    /// The answer of a comparison of known numbers.
    fn answer(&self, how: Comparison, of: &[ValueId]) -> Option<bool> {
        let x = self.number(of[0])?;
        Some(match (how, of.get(1)) {
            (Comparison::IsNan, _) => x.is_nan(),
            (Comparison::IsUnreached, _) => x.to_bits() == (-0f64).to_bits(),
            (Comparison::Less, Some(&y)) => x < self.number(y)?,
            (Comparison::LessEqual, Some(&y)) => x <= self.number(y)?,
            (Comparison::Equal, Some(&y)) => x == self.number(y)?,
            _ => return None,
        })
    }

    fn is_reached(&self, v: ValueId) -> bool {
        self.reached.get(v.at()).is_some_and(|is| *is)
    }

    fn is_unreached(&self, v: ValueId) -> bool {
        self.unreached.get(v.at()).is_some_and(|is| *is)
    }

    /// A value that the result is equal to.
    fn known(&mut self, b: &mut ArrayBuilder, op: &ArrayOp, of: &[ValueId]) -> Result<Option<ValueId>> {
        let is_unreached = |k: usize| self.is_unreached(of[k]);
        let becomes_unreached = match op {
            ArrayOp::View(_) | ArrayOp::Copy | ArrayOp::After | ArrayOp::Pull(..) | ArrayOp::ReducePull(..) => {
                is_unreached(0)
            }
            ArrayOp::Reduce(Reduce::Sum, _) => is_unreached(0) && b.dims(of[0]).size() > 0,
            ArrayOp::Select => is_unreached(1) && is_unreached(2),
            ArrayOp::Accumulate => is_unreached(0) && is_unreached(1),
            ArrayOp::Dot(dot) => (0..2).any(|k| dot.adjoint[k] && is_unreached(k)),
            _ => false,
        };
        if becomes_unreached {
            let types: Vec<_> = of.iter().map(|&v| b.type_of(v)).collect();
            let dims = op.infer(&types)?[0].dims;
            return b.push(ArrayOp::Unreached(dims), &[]).map(Some);
        }
        if let ArrayOp::Compare(how) = *op
            && let Some(answer) = self.answer(how, of)
        {
            let mask = b.mask(answer)?;
            self.learn(b, mask);
            return b.broadcast_to(mask, b.dims(of[0])).map(Some);
        }
        if let ArrayOp::Row(Row::Op(Op::Add | Op::AddConstant)) = *op
            && let (Some(x), true) = (self.number(of[0]), self.is_zero(of[1]))
        {
            let sum = b.literal(x + 0.0)?;
            self.learn(b, sum);
            return b.broadcast_to(sum, b.dims(of[0])).map(Some);
        }
        Ok(match op {
            ArrayOp::Accumulate if is_unreached(0) => Some(of[1]),
            ArrayOp::MulAdd { of_adjoint: true } if is_unreached(0) => Some(of[2]),
            ArrayOp::Accumulate | ArrayOp::AccumulateAt(_) if is_unreached(1) => Some(of[0]),
            ArrayOp::Compare(Comparison::IsUnreached) => self.masks.get(&of[0]).copied(),
            ArrayOp::Select if self.holds(of[0]).is_some() => {
                Some(of[if self.holds(of[0]) == Some(true) { 1 } else { 2 }])
            }
            ArrayOp::Row(Row::Op(Op::Mul)) if self.is_one(of[0]) => Some(of[1]),
            ArrayOp::Row(Row::Op(Op::Mul | Op::Div)) if self.is_one(of[1]) => Some(of[0]),
            ArrayOp::Row(Row::Op(Op::AddConstant)) if self.is_zero(of[1]) && self.is_reached(of[0]) => Some(of[0]),
            ArrayOp::Pull(Row::Op(Op::Mul), 0) if self.is_one(of[2]) => Some(of[0]),
            ArrayOp::Reduce(Reduce::Sum | Reduce::Prod | Reduce::Max | Reduce::Min, axes)
                if b.type_of(of[0]).element == Element::Float && axes.iter().all(|axis| b.dims(of[0])[axis] == 1) =>
            {
                Some(b.view(of[0], View::Reshape(b.dims(of[0]).reduced(*axes, false)))?)
            }
            ArrayOp::Select if is_unreached(1) && self.masks.get(&of[2]) == Some(&of[0]) => Some(of[2]),
            _ => None,
        })
    }

    /// A literal that numbers of the program have without rounding.
    fn rounded(&self, b: &ArrayBuilder, x: f64) -> Option<f64> {
        (b.so_far().dtype() == DType::Float64 || f64::from(x as f32) == x).then_some(x)
    }

    fn learn(&mut self, b: &ArrayBuilder, v: ValueId) {
        self.unreached.resize(b.so_far().n_values(), false);
        let n_values = b.so_far().n_values();
        self.reached.resize(n_values, false);
        self.numbers.resize(n_values, None);
        self.holds.resize(n_values, None);
        let Some(instr) = b.so_far().instrs().last().filter(|instr| instr.result == v) else { return };
        match instr.op {
            ArrayOp::Unreached(_) => (self.unreached[v.at()], self.numbers[v.at()]) = (true, Some(-0.0)),
            ArrayOp::Literal(bits) => self.numbers[v.at()] = self.rounded(b, f64::from_bits(bits)),
            ArrayOp::Const(_, ref data) => match &*data.0 {
                Data::F64(x) => self.numbers[v.at()] = all_of(x, |x| x.to_bits()),
                Data::F32(x) => self.numbers[v.at()] = all_of(x, |x| x.to_bits()).map(f64::from),
                Data::Mask(x) => self.holds[v.at()] = all_of(x, |x| *x),
                Data::Int(_) => {}
            },
            ArrayOp::View(_) => {
                let of = instr.operands[0];
                (self.numbers[v.at()], self.holds[v.at()]) = (self.number(of), self.holds(of));
                self.reached[v.at()] = self.is_reached(of);
            }
            ArrayOp::Row(Row::Op(Op::AddConstant)) => self.reached[v.at()] = self.is_zero(instr.operands[1]),
            // Each sum begins with 0.
            ArrayOp::Dot(Dot { adjoint: [false, false], .. }) => {
                let dims = b.dims(v);
                self.reached[v.at()] = dims[dims.rank() - 2..].iter().all(|&n| n > 1);
            }
            ArrayOp::Select
                if self.is_unreached(instr.operands[1]) && !b.so_far().may_be_unreached(instr.operands[2]) =>
            {
                self.masks.insert(v, instr.operands[0]);
            }
            _ => {}
        }
    }
}
