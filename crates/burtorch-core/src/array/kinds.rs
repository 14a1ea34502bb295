//! Fields of instructions of array programs: types, kinds of operations, layouts, numbers.
//!
//! Promises: equal ones have one hash, shared objects by identity. Does not know instructions.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::dims::Dims;
use crate::kernels::Triangle;

/// The element type of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// The float type of the program.
    Float,
    /// 64-bit integers: indices and counts; they receive no gradient.
    Int,
    /// A mask: true or false.
    Mask,
    /// Sparse rows, each with its nonzero numbers and their columns, as arguments only: they multiply arrays, and receive no
    /// gradient.
    Sparse,
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

/// A comparison of two floats or of two integers, or a test of one float.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `x < y`.
    Less,
    /// `x <= y`.
    LessEqual,
    /// `x == y`.
    Equal,
    /// Whether it is a NaN.
    IsNan,
    /// Whether it is an unreached adjoint.
    IsUnreached,
}

/// A reduction over axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// The sum, in the order of `reduce_sum`; 0 if empty.
    Sum,
    /// The product, from the first to the last; 1 if empty.
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

/// A slice: every `step`-th element of an axis, `count` of them from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The first.
    pub start: usize,
    /// The step, which may be negative.
    pub step: isize,
    /// The number of elements.
    pub count: usize,
}

impl Slice {
    /// A whole axis.
    pub fn all(extent: usize) -> Self {
        Slice { start: 0, step: 1, count: extent }
    }

    /// Whether it stays inside an axis.
    pub(super) fn fits(self, extent: usize) -> bool {
        let last = self.count.checked_sub(1).map(|n| self.start as i128 + n as i128 * self.step as i128);
        last.is_none_or(|last| self.start < extent && (0..extent as i128).contains(&last))
    }
}

/// A view of the same numbers.
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

/// The operands of a product of matrices: `(batch .., m, k)` times `(batch .., k, n)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Dot {
    /// Whether the last two axes of each operand are swapped.
    pub transposed: [bool; 2],
    /// Whether each operand is an adjoint: terms with an unreached number are skipped, and a result without terms is
    /// unreached.
    pub adjoint: [bool; 2],
}

/// The kind of product of sparse rows `s` and an array `y`. A single row, of shape (k,), is one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SparseKind {
    /// `(m, k)` times `(k, n)` is `(m, n)`; of a row alone `(n,)`.
    Times,
    /// The same with a matrix for each row: `(m, k, n)` in place of `(k, n)`.
    Each,
    /// The outer product of each row with one of `(m, n)`: `(m, k, n)`; of a row alone and `(n,)`, `(k, n)`.
    Outer,
    /// The sum of these over the rows: `(k, n)`.
    Total,
}

/// A product with sparse rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SparseDot {
    /// The kind.
    pub kind: SparseKind,
    /// Whether the array is an adjoint: terms with an unreached number are skipped, and a result without terms is unreached.
    pub adjoint: bool,
}

/// The kind of a system of equations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Solve {
    /// The triangle of the matrix; for a whole matrix only its transposition counts.
    pub triangle: Triangle,
    /// Whether right sides are adjoints: columns without a reached element stay unreached.
    pub adjoint: bool,
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
    /// The number of elements.
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
#[derive(Debug)]
pub struct Shared<T>(pub Arc<T>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}
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

impl Reduce {
    /// Its name in NumPy or burtorch.
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

    /// Whether it is defined for integers.
    pub(super) fn of_integers(self) -> bool {
        !matches!(self, Reduce::LogSumExp | Reduce::Norm2)
    }
}
