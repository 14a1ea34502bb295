//! Fields of instructions of array programs: types, kinds of operations, layouts, numbers.
//!
//! Promises: equal ones have one hash, shared objects by identity. Does not know instructions.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::dims::Dims;
use crate::kernels::Triangle;

/// What an array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// The float type of the program.
    Float,
    /// 64-bit integers: indices and counts; they receive no gradient.
    Int,
    /// True or false.
    Mask,
    /// Rows of which each has its nonzero numbers and where they are, as arguments only: they multiply arrays, and receive no
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

/// How sparse rows `s` multiply an array `y`. A row alone, of shape (k,), is one of them.
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
    /// Which one.
    pub kind: SparseKind,
    /// Whether the array is an adjoint: terms with an unreached number are left out, and a result without terms is unreached.
    pub adjoint: bool,
}

/// What a system of equations is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Solve {
    /// The triangle of the matrix; of a whole matrix only whether it is transposed counts.
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
