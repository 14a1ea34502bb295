//! Instructions of array programs, and programs.
//!
//! Promises: equal instructions compare equal (and have one hash), constants and programs by identity; every value is assigned
//! once, before it is used. Type rules are in `infer`. Does not know how instructions run.

use std::fmt::Debug;

use super::dims::{Axes, Dims};
use super::row::Row;
use crate::error::Result;
use crate::scalar::DType;

pub use super::kinds::{
    Comparison, Cumulate, Data, Dot, Element, Reduce, Shared, Slice, Solve, SparseDot, SparseKind, Type, View,
};

/// The operation of an instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArrayOp {
    /// An argument.
    Input(Type),
    /// Numbers of `Parameters` number `set`, read at every call.
    Param {
        /// Which of the call's parameters.
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
    /// An unreached adjoint.
    Unreached(Dims),
    /// An elementwise operation, of operands of equal shape.
    Row(Row),
    /// The contribution of an elementwise operation to its operand `k`: of the adjoint, the operands and the value.
    Pull(Row, u8),
    /// A comparison of operands of equal shape.
    Compare(Comparison),
    /// A selection by a mask from two operands.
    Select,
    /// The same numbers as another element: to integers toward zero, to a mask by `!= 0`. The result has no derivative, so
    /// floats as floats are constants of derivatives.
    Convert(Element),
    /// A reduction, which removes its axes.
    Reduce(Reduce, Axes),
    /// The contribution of a reduction to its operand: of the adjoint, the operand and the value. Not for sums.
    ReducePull(Reduce, Axes),
    /// The index of the first largest number along an axis, or of the smallest; a NaN counts as both.
    ArgExtreme {
        /// The axis, which is removed.
        axis: usize,
        /// Whether it is the largest.
        largest: bool,
    },
    /// The indices that sort each row along the last axis, in ascending order: equal numbers keep their order, and NaNs
    /// come last.
    ArgSort,
    /// How many elements of a row of sorted ones come before each element of the other operand: those that are smaller, or,
    /// from the right, those that are not larger. NaNs come last.
    Search {
        /// From the right.
        right: bool,
    },
    /// A running result along an axis, or from its end.
    Cumulate {
        /// The kind.
        kind: Cumulate,
        /// The axis.
        axis: usize,
        /// From the last to the first.
        reverse: bool,
    },
    /// A product of matrices.
    Dot(Dot),
    /// A product of sparse rows and an array.
    Sparse(SparseDot),
    /// A view of the operand; nothing is computed.
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
    /// Of a sum, indices and contributions: adds those, in order, at the places that [`ArrayOp::Take`] reads.
    ScatterAdd {
        /// The axis of the sum.
        axis: usize,
        /// Axes that all have.
        batch: usize,
    },
    /// Of an array of any elements, indices and elements: the array with those at the places that [`ArrayOp::Take`] reads, the last
    /// one of those with equal indices.
    ScatterSet {
        /// The axis of the array.
        axis: usize,
        /// Axes that all have.
        batch: usize,
    },
    /// The sum of an adjoint and a contribution.
    Accumulate,
    /// A term of a product of matrices: the product of two operands added to the third, rounded once if the CPU can. Of an
    /// adjoint and a factor: the third operand if the adjoint is unreached.
    MulAdd {
        /// Whether the first operand is an adjoint.
        of_adjoint: bool,
    },
    /// The same, with the contribution added to a slice.
    AccumulateAt(Box<[Slice]>),
    /// The operand as an adjoint: elements that are -0.0 are unreached. Bodies of loops start so with adjoints of other steps.
    Adjoint,
    /// The first operand, available after the others: nothing is computed, and results from it come after them and are not
    /// merged with equal earlier results.
    After,
    /// Factors of square matrices by rows: `U`, with `L` below its diagonal; which row of the matrix each row of `L U` is; and
    /// the sign of that permutation.
    Lu,
    /// The lower factor of symmetric matrices; only their lower triangles are read.
    Cholesky,
    /// Factors of matrices `(.., m, n)` with `m >= n`: `Q` with orthonormal columns, and the upper triangle `R`.
    Qr,
    /// Solutions of triangular systems, of the triangles and right sides `(.., n, m)`.
    TriSolve(Solve),
    /// Solutions of linear systems, of the matrices, their two factors from [`ArrayOp::Lu`], and right sides `(.., n, m)`.
    /// Differentiated by the matrices, from which the factors are known to come, and not by the factors.
    LuSolve(Solve),
    /// All instructions of another program, on these operands. One result for each of its outputs.
    Call(Shared<ArrayProgram>),
    /// The same, opaque until derivatives have been taken.
    Apart(Apart),
    /// A loop over the instructions of another program.
    Loop(Loop),
    /// The instructions of a program for each of many rows.
    Rows(Rows),
    /// The instructions of one of two programs, on these operands after the predicate, a mask of shape ().
    Cond {
        /// The branch for true.
        yes: Shared<ArrayProgram>,
        /// The branch for false.
        no: Shared<ArrayProgram>,
    },
}

/// A loop: a body that maps carries to carries, step by step.
///
/// Operands: the number of steps if they are counted, then captures (equal in all steps), carries, and slices. The body takes captures,
/// carries and, for each array of slices, that of the step; it returns the carries of the next step, then the stacked results.
/// Results: the last carries, the stacked results, and of a `While` loop the number of steps.
///
/// Arrays of slices have the steps as their first axis. If the number of steps is not fixed they are *stacks* instead,
/// represented by a value of shape () with the number of steps; only counted loops read them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// One step. It reads no parameters: these are captures.
    pub body: Shared<ArrayProgram>,
    /// The number of steps.
    pub length: Length,
    /// From the last slice to the first.
    pub reverse: bool,
    /// The number of captures.
    pub captures: usize,
    /// The number of carries.
    pub carries: usize,
    /// In reverse mode, carries are stored only every so many steps, and those in between are recomputed.
    pub checkpoint: Option<usize>,
}

/// An opaque program, differentiated as a whole. Its operands are those of the body.
///
/// Without rules reverse mode stores only the operands, and recomputes the values between them and the results.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Apart {
    /// Its instructions. It reads no parameters: these are operands.
    pub body: Shared<ArrayProgram>,
    /// Its rules, in place of the derivatives of its instructions.
    pub rules: Option<Shared<Box<dyn Rules>>>,
}

/// User-defined derivatives of a program.
pub trait Rules: Debug + Send + Sync {
    /// The name of the function.
    fn name(&self) -> &str;
    /// Equal for rules of one function.
    fn key(&self) -> usize;
    /// The program from an adjoint for each float result, then the results and the operands, to the adjoint of each
    /// float operand; `None` if only [`Rules::forward`] is known. It is linear in the adjoints.
    fn reverse(&self) -> Result<Option<ArrayProgram>>;
    /// The program from a tangent for each float operand, then the results and the operands, to the tangent of
    /// each float result; `None` if only [`Rules::reverse`] is known. It is linear in the tangents.
    fn forward(&self) -> Result<Option<ArrayProgram>>;
}

/// A program for each of many rows: `vmap` with totals over the rows. It runs in blocks of rows that stay in cache, so
/// only operands and results are as long as the rows.
///
/// Operands: those of the body, of which mapped ones have the rows as their first axis and the others are shared. Results: those
/// of the body, with the rows as their first axis or summed over them: within a block, then block after block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// One row. It reads no parameters: these are shared operands.
    pub body: Shared<ArrayProgram>,
    /// The number of rows.
    pub rows: usize,
    /// Which operands are mapped.
    pub mapped: Box<[bool]>,
    /// The kind of each result.
    pub results: Box<[OverRows]>,
}

/// The combination of the results of all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OverRows {
    /// All of them, along a first axis.
    Each,
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
}

/// The number of steps of a loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Length {
    /// A fixed number.
    Fixed(usize),
    /// The first operand, an integer of shape () from a `While` loop.
    Counted,
    /// As long as a program of captures and carries returns true.
    While {
        /// The program, whose result is a mask of shape ().
        condition: Shared<ArrayProgram>,
        /// The largest number.
        most: Option<usize>,
    },
}

impl Loop {
    /// The position of the first capture among the operands.
    pub(super) fn first(&self) -> usize {
        usize::from(self.length == Length::Counted)
    }

    /// The number of stacked results of a step.
    pub(super) fn stacked(&self) -> usize {
        self.body.0.outputs.len() - self.carries
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
    /// The operation.
    pub op: ArrayOp,
    /// Its operands.
    pub operands: Box<[ValueId]>,
    /// Its first result: results are numbered in the order of instructions.
    pub result: ValueId,
}

/// The type and source of a value.
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

    /// The values read from parameters, in the order of their first use.
    pub fn params(&self) -> &[ValueId] {
        &self.params
    }

    /// The results.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// The number of values.
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

    /// Whether elements of a value may be unreached adjoints.
    pub(super) fn may_be_unreached(&self, value: ValueId) -> bool {
        self.known[value.at()].may_be_unreached
    }

    /// The instruction that computes a value.
    pub(super) fn instr_of(&self, v: ValueId) -> &ArrayInstr {
        &self.instrs[self.instrs.partition_point(|instr| instr.result <= v) - 1]
    }

    /// The elements at the indices along an axis of `n`, if they are known and all inside.
    pub(super) fn known_indices(&self, v: ValueId, n: usize) -> Option<Vec<usize>> {
        let numbers = match &self.instr_of(v).op {
            ArrayOp::Integer(number) => std::slice::from_ref(number),
            ArrayOp::Const(_, data) => match &*data.0 {
                Data::Int(numbers) => numbers,
                _ => return None,
            },
            _ => return None,
        };
        let n = n as i64;
        let inside = |&i: &i64| Some(if i < 0 { i + n } else { i }).filter(|i| (0..n).contains(i)).map(|i| i as usize);
        numbers.iter().map(inside).collect()
    }

    /// The results of an instruction.
    pub(super) fn results(&self, at: usize) -> impl Iterator<Item = ValueId> + use<> {
        let end = self.instrs.get(at + 1).map_or(self.known.len() as u32, |next| next.result.0);
        (self.instrs[at].result.0..end).map(ValueId)
    }

    /// This program with other results.
    pub(super) fn with_outputs(mut self, outputs: Vec<ValueId>) -> Self {
        self.outputs = outputs;
        self
    }
}
