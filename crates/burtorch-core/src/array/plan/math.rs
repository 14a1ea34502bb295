//! Operations of formulas on blocks of numbers.
//!
//! Promises the bits of the operation on one number, on every CPU level. Knows nothing of where blocks come from.

use super::super::expansion::MathOp;
use crate::kernels::{self, KernelFloat, Two};
use crate::memory::ZeroBytes;
use crate::ops::Function;
use crate::scalar::Float;
use crate::simd::{Elementary, Real, for_each_function, slices};

/// A float that arrays hold: `f32` or `f64`.
pub trait ArrayFloat: KernelFloat + Float + ZeroBytes {}
impl ArrayFloat for f32 {}
impl ArrayFloat for f64 {}

/// What is done with blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BlockOp {
    Math(MathOp),
    IsUnreached,
    /// Of an adjoint and a contribution: unreached, or never -0.0.
    Contribution,
    /// Of an adjoint and a factor: what [`BlockOp::Contribution`] makes of their product.
    Product,
    /// A product and a third number.
    MulAdd,
    /// The same of an adjoint and a factor.
    ReachedMulAdd,
    /// Of an adjoint and a number: unreached, or the number. This and the next ones are of single numbers only.
    Hidden,
    /// The first number if it is NaN, else the second.
    NanOr,
    /// Of an adjoint and two numbers: what [`BlockOp::Contribution`] makes of [`BlockOp::NanOr`].
    ContributionNanOr,
    /// Of a rate and a multiple of it: the multiple; where the rate is 0 it is 0 rather than NaN, and never -0.0.
    Resting,
    /// The same of a product of the rate.
    RestingProduct,
    /// The same of a quotient; where it is NaN, the rate.
    RestingQuotient,
    /// Two operations in one pass.
    Two(Two),
}

/// How many blocks it takes.
pub(super) fn arity(op: BlockOp) -> usize {
    match op {
        BlockOp::IsUnreached => 1,
        BlockOp::Contribution | BlockOp::Product | BlockOp::Hidden | BlockOp::NanOr => 2,
        BlockOp::Resting | BlockOp::RestingProduct | BlockOp::RestingQuotient => 2,
        BlockOp::ContributionNanOr | BlockOp::MulAdd | BlockOp::ReachedMulAdd | BlockOp::Two(_) => 3,
        BlockOp::Math(op) => op.arity(),
    }
}

/// Computes a block from the operands of a formula's operation; further ones are not read.
pub(crate) fn compute_formula<E: ArrayFloat>(op: MathOp, of: [&[E]; 3], to: &mut [E]) {
    compute(BlockOp::Math(op), of, to);
}

/// Computes a block from as many as the operation takes; the others are not looked at.
pub(super) fn compute<E: ArrayFloat>(op: BlockOp, [x, y, z]: [&[E]; 3], to: &mut [E]) {
    match op {
        BlockOp::IsUnreached => kernels::unreached_masks(x, to),
        BlockOp::Contribution => kernels::contributions(x, y, to),
        BlockOp::Product => kernels::contributed_products(x, y, to),
        BlockOp::Hidden | BlockOp::NanOr | BlockOp::ContributionNanOr => {}
        BlockOp::Resting | BlockOp::RestingProduct | BlockOp::RestingQuotient => {}
        BlockOp::MulAdd => kernels::multiply_adds(x, y, z, to),
        BlockOp::ReachedMulAdd => kernels::reached_multiply_adds(x, y, z, to),
        BlockOp::Two(two) => kernels::two_steps(two, x, y, z, to),
        BlockOp::Math(op) => match op {
            MathOp::Add => kernels::add_slices(x, y, to),
            MathOp::Sub => kernels::subtract_slices(x, y, to),
            MathOp::Mul => kernels::multiply_slices(x, y, to),
            MathOp::Div => kernels::divide_slices(x, y, to),
            MathOp::Neg => kernels::negate_slice(x, to),
            MathOp::Less => kernels::less_slices(x, y, to),
            MathOp::LessEqual => kernels::less_equal_slices(x, y, to),
            MathOp::Equal => kernels::equal_slices(x, y, to),
            MathOp::IsNan => kernels::nan_masks(x, to),
            MathOp::Select => kernels::select_slices(x, y, z, to),
            MathOp::Function(function) => of_function(function, x, y, to),
            MathOp::Operand(_) | MathOp::Literal(_) => {}
        },
    }
}

/// A function of two arguments, a vector at a time.
fn pairwise<E: ArrayFloat>(x: &[E], y: &[E], to: &mut [E], f: impl Fn(E::Vector, E::Vector) -> E::Vector) {
    let width = <E::Vector as Real>::LANES;
    let whole = to.len() / width * width;
    let chunks = x.chunks_exact(width).zip(y.chunks_exact(width));
    for ((x, y), to) in chunks.zip(to.chunks_exact_mut(width)) {
        f(E::Vector::load(x), E::Vector::load(y)).store(to);
    }
    if whole < to.len() {
        let (mut last_x, mut last_y) = ([E::default(); 16], [E::default(); 16]);
        let n = to.len() - whole;
        last_x[..n].copy_from_slice(&x[whole..]);
        last_y[..n].copy_from_slice(&y[whole..]);
        f(E::Vector::load(&last_x), E::Vector::load(&last_y)).store(&mut last_x);
        to[whole..].copy_from_slice(&last_x[..n]);
    }
}

macro_rules! on_blocks {
    (
        op { $($(#[$doc:meta])* $name:ident $row:ident { $($body:tt)* })* }
        op2 { $($(#[$doc2:meta])* $name2:ident $row2:ident { $($body2:tt)* })* }
        exact { $($exact:tt)* }
        helper { $($(#[$hdoc:meta])* $hname:ident $hrow:ident { $($hbody:tt)* })* }
        helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hrow2:ident { $($hbody2:tt)* })* }
        slice { $($slice:tt)* }
    ) => {
        fn of_function<E: ArrayFloat>(function: Function, x: &[E], y: &[E], to: &mut [E]) {
            match function {
                $( Function::$row => slices::$name(x, to), )*
                $( Function::$hrow => slices::$hname(x, to), )*
                $( Function::$row2 => pairwise(x, y, to, Elementary::$name2), )*
                $( Function::$hrow2 => pairwise(x, y, to, Elementary::$hname2), )*
                Function::Sqrt => kernels::square_roots(x, to),
                Function::Abs => kernels::magnitudes(x, to),
                Function::Floor => kernels::floors(x, to),
                Function::Ceil => kernels::ceilings(x, to),
            }
        }
    };
}

for_each_function!(on_blocks);
