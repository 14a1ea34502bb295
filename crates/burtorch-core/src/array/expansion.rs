//! A row of the op table as a list of operations: the recorded formula over [`RowMath`].
//!
//! A formula has no argument that could lead to a builder (`lit` has none at all), so its operations go to a list of the
//! current thread. Promises: the operations in the order of the formula, each once, however often it is written; the
//! list of the thread is empty before and after. A literal NaN is an operand times NaN, so that its derivative is NaN, too.
//! Does not know programs.

use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::instr::{ArrayInstr, ArrayOp};
use super::row::Row;
use crate::ops::{Dual, Function, Op, moved, row_partial, row_value, sum_of_moved};
use crate::scalar::RowMath;
use crate::simd::for_each_function;

/// One operation of [`RowMath`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MathOp {
    /// An operand of the formula.
    Operand(usize),
    Literal(f64),
    Add,
    Sub,
    Mul,
    Div,
    Neg,
    Less,
    LessEqual,
    Equal,
    IsNan,
    Select,
    Function(Function),
}

impl MathOp {
    /// The number of its operands.
    pub(crate) fn arity(self) -> usize {
        match self {
            MathOp::Operand(_) | MathOp::Literal(_) => 0,
            MathOp::Neg | MathOp::IsNan => 1,
            MathOp::Select => 3,
            MathOp::Function(function) => function.arity(),
            _ => 2,
        }
    }
}

/// An operation and its operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MathStep {
    pub(crate) op: MathOp,
    pub(crate) args: [usize; 3],
}

/// Operations in order; the last one used is the result.
#[derive(Clone, Debug)]
pub(crate) struct Expansion {
    pub(crate) steps: Vec<MathStep>,
    pub(crate) result: usize,
}

impl Expansion {
    /// Which of the first four operands the result depends on.
    pub(super) fn reads(&self) -> [bool; 4] {
        let (mut needed, mut reads) = (vec![false; self.steps.len()], [false; 4]);
        needed[self.result] = true;
        for (at, step) in self.steps.iter().enumerate().rev().filter(|(at, _)| *at <= self.result) {
            match step.op {
                _ if !needed[at] => {}
                MathOp::Operand(k) => reads.iter_mut().skip(k).take(1).for_each(|read| *read = true),
                op => step.args[..op.arity()].iter().for_each(|&arg| needed[arg] = true),
            }
        }
        reads
    }
}

thread_local! {
    static STEPS: RefCell<Vec<MathStep>> = const { RefCell::new(Vec::new()) };
}

/// A number of which only the operation that computes it is known. `FINITE`: of formulas whose results count only where all
/// are finite.
#[derive(Clone, Copy, Debug)]
struct Recorded<const FINITE: bool = false>(usize);

fn push<const FINITE: bool>(op: MathOp, args: [usize; 3]) -> Recorded<FINITE> {
    let is_same = |a: &MathStep| match (a.op, op) {
        (MathOp::Literal(a), MathOp::Literal(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    };
    STEPS.with_borrow_mut(|steps| {
        let known = steps.iter().position(|a| a.args == args && is_same(a));
        Recorded(known.unwrap_or_else(|| {
            steps.push(MathStep { op, args });
            steps.len() - 1
        }))
    })
}

macro_rules! operators {
    ($($trait:ident $name:ident)*) => { $(
        impl<const FINITE: bool> $trait for Recorded<FINITE> {
            type Output = Self;
            fn $name(self, other: Self) -> Self {
                push(MathOp::$trait, [self.0, other.0, 0])
            }
        }
    )* };
}
operators!(Add add Sub sub Mul mul Div div);

impl<const FINITE: bool> Neg for Recorded<FINITE> {
    type Output = Self;
    fn neg(self) -> Self {
        push(MathOp::Neg, [self.0, 0, 0])
    }
}

macro_rules! recorded {
    (
        op { $($(#[$doc:meta])* $name:ident $row:ident { $($body:tt)* })* }
        op2 { $($(#[$doc2:meta])* $name2:ident $row2:ident { $($body2:tt)* })* }
        exact { $($(#[$edoc:meta])* $exact:ident $erow:ident { $from:ident })* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hrow:ident { $($hbody:tt)* })* }
        helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hrow2:ident { $($hbody2:tt)* })* }
        slice { $($slice:tt)* }
    ) => {
        recorded! { $($name $row)* $($exact $erow)* $($hname $hrow)* ; $($name2 $row2)* $($hname2 $hrow2)* }
    };
    ($($name:ident $row:ident)* ; $($name2:ident $row2:ident)*) => {
        $( fn $name(self) -> Self { push(MathOp::Function(Function::$row), [self.0, 0, 0]) } )*
        $( fn $name2(self, y: Self) -> Self { push(MathOp::Function(Function::$row2), [self.0, y.0, 0]) } )*
    };
}

impl<const FINITE: bool> RowMath for Recorded<FINITE> {
    type Mask = Self;
    const RECORDS: bool = true;
    const IS_FINITE: bool = FINITE;

    fn all_zero(self) -> bool {
        STEPS.with_borrow(|steps| matches!(steps[self.0].op, MathOp::Literal(x) if x == 0.0))
    }
    fn lit(x: f64) -> Self {
        let literal = push(MathOp::Literal(x), [0; 3]);
        // Step 1 is the first operand that is not an adjoint, or the only one.
        if x.is_nan() { literal * Recorded(1) } else { literal }
    }
    fn less(self, other: Self) -> Self {
        push(MathOp::Less, [self.0, other.0, 0])
    }
    fn less_equal(self, other: Self) -> Self {
        push(MathOp::LessEqual, [self.0, other.0, 0])
    }
    fn equal(self, other: Self) -> Self {
        push(MathOp::Equal, [self.0, other.0, 0])
    }
    fn nan_mask(self) -> Self {
        push(MathOp::IsNan, [self.0, 0, 0])
    }
    fn select(mask: Self, yes: Self, no: Self) -> Self {
        push(MathOp::Select, [mask.0, yes.0, no.0])
    }

    for_each_function!(recorded);
}

/// Runs a formula of so many operands on recorded numbers.
fn record<const N: usize, const FINITE: bool>(
    formula: impl FnOnce([Recorded<FINITE>; N]) -> Option<Recorded<FINITE>>,
) -> Option<Expansion> {
    STEPS.with_borrow_mut(Vec::clear);
    let operands = std::array::from_fn(|k| push(MathOp::Operand(k), [0; 3]));
    let result = formula(operands);
    let steps = STEPS.with_borrow_mut(std::mem::take);
    result.map(|result| Expansion { steps, result: result.0 })
}

fn partial<S: RowMath>(row: Row, k: usize, [g, x, y, z]: [S; 4]) -> Option<S> {
    match row {
        Row::Op(op) => row_partial(op, k, g, x, y, z),
        Row::Helper(function) => function.partial(k, g, x, y, z),
    }
}

/// The value of a row, with operands 1 and 2.
pub(crate) fn value_of(row: Row) -> Option<Expansion> {
    record::<_, false>(|[_, x, y, _]| match row {
        Row::Op(op) => row_value(op, x, y),
        Row::Helper(function) => Some(function.value(x, y)),
    })
}

/// The contribution of a row to operand `k`, with the adjoint as operand 0, operands 1 and 2, and the value as operand 3.
pub(crate) fn partial_of(row: Row, k: usize) -> Option<Expansion> {
    record::<_, false>(|operands: [_; 4]| partial(row, k, operands))
}

/// The factor of a contribution that is a product of an adjoint and it, if a function is part of it.
pub(super) fn factor_of(instr: &ArrayInstr) -> Option<Expansion> {
    let ArrayOp::Pull(row, k) = instr.op else { return None };
    let mut formula = partial_of(row, k.into())?;
    let step = formula.steps[formula.result];
    let is_adjoint = |arg: usize| formula.steps[arg].op == MathOp::Operand(0);
    let factor = match (step.op, is_adjoint(step.args[0]), is_adjoint(step.args[1])) {
        (MathOp::Mul, true, false) => step.args[1],
        (MathOp::Mul, false, true) => step.args[0],
        _ => return None,
    };
    formula.result = factor;
    formula.steps.truncate(factor + 1);
    let has_function = formula.steps.iter().any(|step| matches!(step.op, MathOp::Function(_) | MathOp::Div));
    (has_function && !formula.reads()[0]).then_some(formula)
}

/// How fast that contribution changes where the first operand changes as fast as operand 4 and the second as operand 5, of
/// which those take part that `moving` says; the value changes with them. `None` where it never does.
pub(super) fn bend_of(row: Row, k: usize, moving: [bool; 2]) -> Option<Expansion> {
    record::<_, false>(|[g, x, y, z, x_rate, y_rate]| {
        let rest = Recorded::lit(0.0);
        let rates = [if moving[0] { x_rate } else { rest }, if moving[1] { y_rate } else { rest }];
        let steps = [0, 1].map(|j| moved(rates[j], || partial(row, j, [rates[j], x, y, z]).unwrap_or(rest)));
        let z = Dual::new(z, sum_of_moved(steps[0], steps[1]));
        let [x, y] = [Dual::new(x, rates[0]), Dual::new(y, rates[1])];
        let c = partial(row, k, [Dual::new(g, rest), x, y, z])?;
        // What is not a number has no derivative.
        (!c.d.all_zero()).then(|| Recorded::select(c.v.nan_mask(), c.v, c.d))
    })
}

/// How fast the contribution of an op to operand `k` changes, with the adjoint, the operands and the value as operands 0 to 3,
/// where those that `moving` says change as fast as operands 4 to 7. `None` where it never changes. What rests may meet
/// an infinite partial: the result counts only where everything that is computed from it is finite.
pub(crate) fn rate_of(op: Op, k: usize, moving: [bool; 4]) -> Option<Expansion> {
    record::<8, true>(|operands| {
        let rest = Recorded::lit(0.0);
        let both = |at: usize| Dual::new(operands[at], if moving[at] { operands[4 + at] } else { rest });
        let c = row_partial(op, k, both(0), both(1), both(2), both(3))?;
        (!c.d.all_zero()).then_some(c.d)
    })
}
