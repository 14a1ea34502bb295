//! Instructions of array programs: what they are and what they hold.
//!
//! Promises that equal instructions are equal (and have one hash), constants and programs by identity. Type rules are in
//! `infer`, programs in `program`; knows nothing of how instructions run.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::dims::{Axes, Dims};
use super::row::Row;
use crate::scalar::DType;

/// What an array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// The float type of the program.
    Float,
    /// 64-bit integers: indices and counts; they receive no gradient.
    Int,
    /// True or false.
    Mask,
}

/// Shape and element of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// The shape.
    pub dims: Dims,
    /// The element.
    pub element: Element,
}

impl Type {
    /// An array of floats.
    pub fn float(dims: Dims) -> Self {
        Type { dims, element: Element::Float }
    }
}

/// A comparison of two floats or of two integers, or a question about one float.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `x < y`.
    Less,
    /// `x <= y`.
    LessEqual,
    /// `x == y`.
    Equal,
    /// Is it a NaN?
    IsNan,
    /// Is it an adjoint that no path reached?
    IsUnreached,
}

/// A reduction over axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// The sum, in the order of `reduce_sum`; 0 of nothing.
    Sum,
    /// The product, from the first to the last; 1 of nothing.
    Prod,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The logarithm of the sum of exponentials.
    LogSumExp,
    /// The square root of the sum of squares.
    Norm2,
}

/// A running result along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cumulate {
    /// The sum of the numbers up to each.
    Sum,
    /// Of operands a and b: `h[i] = a[i] h[i - 1] + b[i]`, from 0. Products, and the reverse pass of products, are of this kind.
    Recurrence,
}

/// Every `step`-th of an axis, `count` of them from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The first.
    pub start: usize,
    /// The distance, which may be negative.
    pub step: isize,
    /// How many.
    pub count: usize,
}

impl Slice {
    /// A whole axis.
    pub fn all(extent: usize) -> Self {
        Slice { start: 0, step: 1, count: extent }
    }

    /// Whether it stays inside of an axis.
    pub(super) fn fits(self, extent: usize) -> bool {
        let last = self.count.checked_sub(1).map(|n| self.start as i128 + n as i128 * self.step as i128);
        last.is_none_or(|last| self.start < extent && (0..extent as i128).contains(&last))
    }
}

/// Another look at the same numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// The same numbers in C order with another shape.
    Reshape(Dims),
    /// Axis k of the result is axis `axes[k]` of the operand.
    Permute(Box<[usize]>),
    /// One slice for each axis.
    Slice(Box<[Slice]>),
    /// Axes of extent 1, and new axes before the first, repeat the same numbers.
    Broadcast(Dims),
}

/// How a product of matrices reads its operands: `(batch .., m, k)` times `(batch .., k, n)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Dot {
    /// Whether the last two axes of each operand are exchanged.
    pub transposed: [bool; 2],
    /// Whether each operand is an adjoint: terms with an unreached number are left out, and a result without terms is
    /// unreached.
    pub adjoint: [bool; 2],
}

/// Numbers of a constant array.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// For a program of float64.
    F64(Vec<f64>),
    /// For a program of float32.
    F32(Vec<f32>),
    /// Integers.
    Int(Vec<i64>),
    /// A mask.
    Mask(Vec<bool>),
}

impl Data {
    /// How many numbers.
    pub(super) fn len(&self) -> usize {
        match self {
            Data::F64(x) => x.len(),
            Data::F32(x) => x.len(),
            Data::Int(x) => x.len(),
            Data::Mask(x) => x.len(),
        }
    }
}

/// A shared object, equal to itself only.
#[derive(Clone, Debug)]
pub struct Shared<T>(pub Arc<T>);

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl<T> Eq for Shared<T> {}
impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArrayOp {
    /// An argument.
    Input(Type),
    /// Numbers of `Parameters` number `set`, read at every call.
    Param {
        /// Which of the parameters that a call is given.
        set: u32,
        /// The first number.
        start: usize,
        /// The shape.
        dims: Dims,
    },
    /// A float, as the bits of an f64.
    Literal(u64),
    /// An integer.
    Integer(i64),
    /// An array of numbers.
    Const(Dims, Shared<Data>),
    /// An adjoint that no path has reached.
    Unreached(Dims),
    /// An elementwise operation, of operands of equal shape.
    Row(Row),
    /// What an elementwise operation contributes to its operand `k`: of the adjoint, the operands and the value.
    Pull(Row, u8),
    /// A comparison of operands of equal shape.
    Compare(Comparison),
    /// Of a mask and two operands.
    Select,
    /// The same numbers as another element: to integers toward zero, to a mask by `!= 0`.
    Convert(Element),
    /// A reduction, which takes its axes away.
    Reduce(Reduce, Axes),
    /// What a reduction contributes to its operand: of the adjoint, the operand and the value. No sum.
    ReducePull(Reduce, Axes),
    /// The index of the first largest number along an axis, or of the smallest; a NaN counts as both.
    ArgExtreme {
        /// The axis, which is taken away.
        axis: usize,
        /// The largest?
        largest: bool,
    },
    /// A running result along an axis, or from its end.
    Cumulate {
        /// What.
        kind: Cumulate,
        /// The axis.
        axis: usize,
        /// From the last to the first.
        reverse: bool,
    },
    /// A product of matrices.
    Dot(Dot),
    /// Another look at the operand; nothing is computed.
    View(View),
    /// The operand's numbers in C order.
    Copy,
    /// The operands one after the other along an axis.
    Concat(usize),
    /// Elements along an axis by index; the axes of the indices take its place. Negative indices count from the end. `batch`
    /// leading axes belong to both operands.
    Take {
        /// The axis of the first operand.
        axis: usize,
        /// Axes that both have.
        batch: usize,
    },
    /// Of a sum, indices and contributions: adds those, in order, where [`ArrayOp::Take`] would have found them.
    ScatterAdd {
        /// The axis of the sum.
        axis: usize,
        /// Axes that all have.
        batch: usize,
    },
    /// The sum of an adjoint and a contribution.
    Accumulate,
    /// The same where the contribution is to a slice.
    AccumulateAt(Box<[Slice]>),
    /// All instructions of another program, on these operands. One result for each of its outputs.
    Call(Shared<ArrayProgram>),
}

impl Reduce {
    /// The name that NumPy or burtorch has for it.
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "sum",
            Reduce::Prod => "prod",
            Reduce::Max => "max",
            Reduce::Min => "min",
            Reduce::LogSumExp => "logsumexp",
            Reduce::Norm2 => "norm2",
        }
    }

    /// Whether integers have it.
    pub(super) fn of_integers(self) -> bool {
        !matches!(self, Reduce::LogSumExp | Reduce::Norm2)
    }
}

/// A value of a program: result of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(super) u32);

impl ValueId {
    /// Its number: results are numbered in the order of instructions.
    pub fn index(self) -> usize {
        self.at()
    }

    pub(super) fn at(self) -> usize {
        self.0 as usize
    }
}

/// An instruction with its operands and its first result.
#[derive(Clone, Debug)]
pub struct ArrayInstr {
    /// What it does.
    pub op: ArrayOp,
    /// What it takes.
    pub operands: Box<[ValueId]>,
    /// What it gives: results are numbered in the order of instructions.
    pub result: ValueId,
}

/// What is known of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) ty: Type,
    pub(super) may_be_unreached: bool,
}

/// A program over arrays with static shapes: a list of instructions, each value assigned once.
///
/// Made by an `ArrayBuilder`; see the module's documentation.
#[derive(Clone, Debug)]
pub struct ArrayProgram {
    pub(super) dtype: DType,
    pub(super) instrs: Vec<ArrayInstr>,
    pub(super) known: Vec<Known>,
    pub(super) inputs: Vec<ValueId>,
    pub(super) params: Vec<ValueId>,
    pub(super) outputs: Vec<ValueId>,
}

impl ArrayProgram {
    /// The float type: float32 or float64.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The instructions, operands first.
    pub fn instrs(&self) -> &[ArrayInstr] {
        &self.instrs
    }

    /// The arguments.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// The values that are read from parameters, in the order in which they were first named.
    pub fn params(&self) -> &[ValueId] {
        &self.params
    }

    /// The results.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// How many values it has.
    pub fn n_values(&self) -> usize {
        self.known.len()
    }

    /// The type of a value.
    pub fn type_of(&self, value: ValueId) -> Type {
        self.known[value.at()].ty
    }

    /// The types of the arguments.
    pub fn input_types(&self) -> Vec<Type> {
        self.inputs.iter().map(|&v| self.type_of(v)).collect()
    }

    /// The types of the results.
    pub fn output_types(&self) -> Vec<Type> {
        self.outputs.iter().map(|&v| self.type_of(v)).collect()
    }

    /// Whether elements of a value may be adjoints that no path reached.
    pub(super) fn may_be_unreached(&self, value: ValueId) -> bool {
        self.known[value.at()].may_be_unreached
    }

    /// The results of an instruction.
    pub(super) fn results(&self, at: usize) -> impl Iterator<Item = ValueId> + use<> {
        let end = self.instrs.get(at + 1).map_or(self.known.len() as u32, |next| next.result.0);
        (self.instrs[at].result.0..end).map(ValueId)
    }

    /// This with other results.
    pub(super) fn with_outputs(mut self, outputs: Vec<ValueId>) -> Self {
        self.outputs = outputs;
        self
    }
}
