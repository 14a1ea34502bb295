//! Programs over arrays: their instructions, their derivatives, and how they run.
//!
//! A program is a list of typed instructions, each of which computes values of a static shape: there is one instruction for one
//! array operation, whatever its length. Elementwise instructions name rows of the op table and have operands of one shape;
//! broadcasting, transposes and slices are views, which compute nothing. A derivative is a program: reverse mode takes the
//! instructions backwards, forward mode forwards, and both give programs of the same instructions, so they nest. The
//! contribution of a row to an operand is one instruction, `Pull`, and its derivative is expanded only when it is
//! differentiated again, by running its formula on dual numbers over a scalar that records. An unreached element of an adjoint
//! is -0.0 and a contribution to a reached one is never -0.0, so unreached elements stay unreached through every instruction,
//! and infinities beside them do not spread; elements not selected by `where`, a slice, an index or a maximum are unreached.
//! Tangents follow the same rule: a zero tangent contributes nothing. An instruction may compute several values and may contain
//! other programs, as calls, loops and choices do. Parameters are values by reference, read at every call. A [`Plan`] is a
//! compiled program: instructions become blocks that fit the first-level cache, views become strides, and memory is
//! assigned once by the lifetime of values, so that a call allocates nothing.
//!
//! Promises: the type of every value is checked when it is built; first derivatives have the order and the association of the
//! eager sweep; sums have the order of `reduce_sum`; the same bits on every CPU level. Does not know graphs.
//!
//! ```
//! use burtorch_core::array::{ArrayBuilder, Argument, Element, Plan, Reduce, Variable};
//! use burtorch_core::{DType, Op};
//!
//! let mut b = ArrayBuilder::new(DType::Float64)?;
//! let x = b.input(&[3], Element::Float)?;
//! let y = b.row(Op::Sin, &[x])?;
//! let f = b.reduce(Reduce::Sum, y, None, false)?;
//! let program = b.finish(&[f])?;
//!
//! let gradient = program.gradient(&[Variable::Input(0)])?;
//! let mut plan = Plan::<f64>::new(&gradient)?;
//! plan.run(&[Argument::Float(&[0.0, 1.0, 2.0])], &[])?;
//! assert_eq!(plan.floats(0)?, [1.0, 1f64.cos(), 2f64.cos()]);
//! # Ok::<(), burtorch_core::Error>(())
//! ```

mod dims;
mod row;
mod words;

mod kinds;

mod instr;

mod control;
mod infer;
mod parts;
mod rows;
mod text;

mod build;
mod contract;
mod index;
mod linalg;
mod numpy;
mod sparse;
mod statistics;

mod expansion;

mod batch;

mod activity;
mod cleanup;
mod cone;
mod expand;
mod factors;
mod forward;
mod linear;
mod order;
mod repeated;
mod reverse;
mod simplify;
mod zero_tangents;

mod sparsity;

mod columns;
mod lower;
mod plan;

mod eager;

pub use build::ArrayBuilder;
pub use cone::{Cone, Given};
pub use control::{Checkpoint, ScanOptions};
pub use dims::{Axes, Dims, Strides};
pub use eager::{Given as OperandOfTape, Handle, Keep, OfParameters, Swept, Tape};
pub(crate) use expansion::{Expansion, MathOp, partial_of, rate_of, value_of};
pub use index::Index;
pub use instr::{
    Apart, ArrayInstr, ArrayOp, ArrayProgram, Comparison, Cumulate, Data, Dot, Element, Length, Loop, OverRows, Reduce,
    Rows, Rules, Shared, Slice, Solve, SparseDot, SparseKind, Type, ValueId, View,
};
pub(crate) use plan::compute_formula;
pub use plan::{Argument, ArrayFloat, Csr, Floats, PassingPlan, Places, Plan, PlanEntries, TakePart};
pub use reverse::Variable;
pub use row::Row;
pub use sparsity::Pattern;
