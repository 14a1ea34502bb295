//! Elementwise operations: rows of the op table, and the helpers that their partials call.
//!
//! Promises: [`Row`] represents each operation in one way. Does not know shapes.

use crate::ops::{Arity, Function, Op, bend};

/// An elementwise operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    /// A unary or binary op of the table, or one with a constant.
    Op(Op),
    /// A partial of some op that has a formula of its own.
    Helper(Function),
}

impl Row {
    /// The row of an op; `None` if it is not elementwise.
    pub fn new(op: Op) -> Option<Self> {
        matches!(op.info().arity, Arity::Unary | Arity::Binary | Arity::WithConstant).then_some(Row::Op(op))
    }

    /// How many operands it takes: one or two.
    pub fn arity(self) -> usize {
        match self {
            Row::Op(op) => 1 + usize::from(op.info().arity != Arity::Unary),
            Row::Helper(function) => function.arity(),
        }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Row::Op(op) => op.name(),
            Row::Helper(function) => function.name(),
        }
    }

    /// Whether it is defined on integers, exactly.
    pub fn of_integers(self) -> bool {
        use Op::{Abs, Add, FloorDivide, Max, Min, Mul, Neg, Remainder, Sign, Sqr, Sub};
        matches!(self, Row::Op(Abs | Add | FloorDivide | Max | Min | Mul | Neg | Remainder | Sign | Sqr | Sub))
    }

    /// Whether it passes nothing on to an operand that is not chosen.
    pub fn masks(self) -> bool {
        matches!(self, Row::Op(op) if op.info().is.masks)
    }

    /// Whether it contributes to operand `k`.
    pub fn moves(self, k: usize) -> bool {
        match self {
            Row::Op(op) => k == 0 || op.info().arity == Arity::Binary,
            Row::Helper(Function::TanhGrad | Function::Polygamma) => k == 0,
            Row::Helper(_) => true,
        }
    }

    /// Whether what it contributes to operand `k` moves with operand `j`, too, and not with its adjoint alone.
    pub fn bends(self, k: usize, j: usize) -> bool {
        match self {
            Row::Op(op) => bend(op).of(k, j),
            Row::Helper(function) => j < function.arity(),
        }
    }

    /// Whether operand `k` receives the adjoint as it is.
    pub fn passes_on(self, k: usize) -> bool {
        match self {
            Row::Op(op) => op.info().is.through || op == Op::DIFFERENCE && k == 0,
            Row::Helper(_) => false,
        }
    }
}

impl From<Function> for Row {
    fn from(function: Function) -> Self {
        function.op().map_or(Row::Helper(function), Row::Op)
    }
}
