//! Code for each operation on single numbers, as steps that jump to each other.
//!
//! Promises: the bits of the operations on blocks. Does not know the order of operations.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::super::expansion::MathOp;
use super::jumps::{Instr, Number, Step};
use super::math::{ArrayFloat, BlockOp};
use crate::kernels::{OneOfTwo, Two};
use crate::ops::Function;
use crate::scalar::RowMath;
use crate::simd::{Level, Real, for_each_function, level};

/// # Safety
/// There are no more than the slots that the instruction before named.
pub(super) unsafe extern "rust-preserve-none" fn stop<E>(
    _slots: *mut E,
    _at: *const Instr<E>,
    _last: E,
) -> *const Instr<E> {
    std::ptr::null()
}

macro_rules! steps {
    ($($(#[$attribute:meta])* $name:ident)*) => { $(
        /// Of which operands the number computed last is one: bit 0 is the first, bit 1 the second, bit 2 the third.
        ///
        /// # Safety
        /// The slots that instructions name, up to one that stops, lie behind `slots`.
        $(#[$attribute])*
        pub(super) unsafe extern "rust-preserve-none" fn $name<O: Number, E: ArrayFloat, const LAST: u8>(
            slots: *mut E,
            at: *const Instr<E>,
            last: E,
        ) -> *const Instr<E> {
            debug_assert!(!at.is_null());
            // SAFETY: by the contract. Slots that the operation does not take are 0, which is one of them.
            unsafe {
                let slot = |k: usize| {
                    let slot = slots.add((*at).of[k] as usize);
                    if O::EAGER { slot.read_volatile() } else { *slot }
                };
                let x = if LAST & 1 > 0 { last } else { slot(0) };
                let y = if LAST & 2 > 0 { last } else { slot(1) };
                let z = if LAST & 4 > 0 { last } else { slot(2) };
                let result = O::of(x, y, z);
                *slots.add((*at).to as usize) = result;
                let next = at.add(1);
                become ((*next).step)(slots, next, result)
            }
        }
    )* };
}

steps! {
    step
    /// The CPU fuses.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "fma"))]
    fused_step
}

/// Two operations, the second of which reads the result of the first as its left or its right operand.
pub(super) struct Both<A, B, const TO_RIGHT: bool>(PhantomData<(A, B)>);

impl<A: Number, B: Number, const TO_RIGHT: bool> Number for Both<A, B, TO_RIGHT> {
    #[inline(always)]
    fn of<E: ArrayFloat>(x: E, y: E, z: E) -> E {
        let t = A::of(x, y, y);
        if TO_RIGHT { B::of(z, t, t) } else { B::of(t, z, z) }
    }
}

/// An operation of three operands as a step.
fn step_with<O: Number, E: ArrayFloat>(last: [bool; 3]) -> Step<E> {
    match last {
        [true, false, false] => step::<O, E, 1>,
        [false, true, false] => step::<O, E, 2>,
        [false, false, true] => step::<O, E, 4>,
        _ => step::<O, E, 0>,
    }
}

/// Two operations as a step.
fn both<A: Number, E: ArrayFloat>(Two { second, to_right, .. }: Two, last: [bool; 3]) -> Step<E> {
    fn both<A: Number, B: Number, E: ArrayFloat>(to_right: bool, last: [bool; 3]) -> Step<E> {
        if to_right { step_with::<Both<A, B, true>, E>(last) } else { step_with::<Both<A, B, false>, E>(last) }
    }
    match second {
        OneOfTwo::Add => both::<A, Sum, E>(to_right, last),
        OneOfTwo::Sub => both::<A, Difference, E>(to_right, last),
        OneOfTwo::Mul => both::<A, Times, E>(to_right, last),
        OneOfTwo::Contribution => both::<A, Contribution, E>(to_right, last),
        OneOfTwo::Product | OneOfTwo::Neg => both::<A, Product, E>(to_right, last),
    }
}

/// An operation as a step.
fn compiled<O: Number, E: ArrayFloat>(last: [bool; 2]) -> Step<E> {
    match last {
        [false, false] => step::<O, E, 0>,
        [true, false] => step::<O, E, 1>,
        [false, true] => step::<O, E, 2>,
        [true, true] => step::<O, E, 3>,
    }
}

/// A multiply-add as a step: the sum so far comes in a register, as most terms follow each other.
fn added<O: Number, Fused: Number, E: ArrayFloat>(is_last: bool) -> Step<E> {
    match (level() == Level::Baseline, is_last) {
        (true, false) => step::<O, E, 0>,
        (true, true) => step::<O, E, 4>,
        (false, false) => fused_step::<Fused, E, 0>,
        (false, true) => fused_step::<Fused, E, 4>,
    }
}

/// A function as a step: one that is rarely worth a register.
fn called<O: Number, E: ArrayFloat>(last: [bool; 2]) -> Step<E> {
    if last == [true, false] { step::<O, E, 1> } else { step::<O, E, 0> }
}

/// Out of line, so that nothing waits for the comparison.
#[cold]
#[inline(never)]
fn unreached<E: ArrayFloat>() -> E {
    E::UNREACHED
}

/// Out of line for the same reason.
#[cold]
#[inline(never)]
fn found<E: ArrayFloat>(x: E) -> E {
    x
}

#[inline(always)]
fn nan_or<E: ArrayFloat>(x: E, y: E) -> E {
    if x.partial_cmp(&x).is_none() { found(x) } else { y }
}

/// A multiple of a rate, which is `rest` where that is 0 and it is NaN.
#[inline(always)]
fn resting<E: ArrayFloat>(rate: E, multiple: E, rest: E) -> E {
    if rate == E::default() { at_rest(multiple, rest) } else { multiple }
}

#[cold]
#[inline(never)]
fn at_rest<E: ArrayFloat>(multiple: E, rest: E) -> E {
    if multiple.partial_cmp(&multiple).is_none() { rest } else { multiple + E::default() }
}

#[inline(always)]
fn mask<E: ArrayFloat>(holds: bool) -> E {
    <E as Real>::of(f64::from(u8::from(holds)))
}

macro_rules! numbers {
    ($($name:ident($x:ident, $y:ident, $z:ident) => $value:expr;)*) => { $(
        pub(super) struct $name;
        impl Number for $name {
            #[inline(always)]
            fn of<E: ArrayFloat>($x: E, $y: E, $z: E) -> E {
                let _ = ($x, $y, $z);
                $value
            }
        }
    )* };
}

numbers! {
    Sum(x, y, z) => x + y;
    Difference(x, y, z) => x - y;
    Times(x, y, z) => x * y;
    Quotient(x, y, z) => x / y;
    Negative(x, y, z) => -x;
    IsLess(x, y, z) => mask(x < y);
    IsLessEqual(x, y, z) => mask(x <= y);
    IsEqual(x, y, z) => mask(x == y);
    IsNan(x, y, z) => mask(x.partial_cmp(&x).is_none());
    IsUnreached(x, y, z) => mask(x.is_unreached());
    Hidden(x, y, z) => if x.is_unreached() { unreached() } else { y };
    Contribution(x, y, z) => if x.is_unreached() { unreached() } else { y + E::default() };
    NanOr(x, y, z) => nan_or(x, y);
    ContributionNanOr(x, y, z) => if x.is_unreached() { unreached() } else { nan_or(y, z) + E::default() };
    Resting(x, y, z) => resting(x, y, E::default());
    RestingProduct(x, y, z) => resting(x, x * y, E::default());
    RestingQuotient(x, y, z) => resting(x, x / y, x);
    Product(x, y, z) => if x.is_unreached() { unreached() } else { x * y + E::default() };
    TimesPlus(x, y, z) => x * y + z;
    ReachedTimesPlus(x, y, z) => if x.is_unreached() { z } else { x * y + z + E::default() };
    FusedTimesPlus(x, y, z) => Real::mul_add(x, y, z);
    ReachedFused(x, y, z) => if x.is_unreached() { z } else { Real::mul_add(x, y, z) + E::default() };
    Same(x, y, z) => x;
    Root(x, y, z) => Real::sqrt(x);
    Magnitude(x, y, z) => Real::abs(x);
    Floor(x, y, z) => RowMath::floor(x);
    Ceil(x, y, z) => RowMath::ceil(x);
}

/// Of two numbers that are both there already, so that nothing waits for the address of the one.
struct Choice;

impl Number for Choice {
    const EAGER: bool = true;

    #[inline(always)]
    fn of<E: ArrayFloat>(x: E, y: E, z: E) -> E {
        std::hint::select_unpredictable(x == E::default(), z, y)
    }
}

/// The code for an operation, of whose operands these are the number computed last.
pub(super) fn step_of<E: ArrayFloat>(op: BlockOp, all: [bool; 3]) -> Step<E> {
    let [first, second, third] = all;
    let last = [first, second];
    let op = match op {
        BlockOp::MulAdd => return added::<TimesPlus, FusedTimesPlus, E>(third && !first && !second),
        BlockOp::ReachedMulAdd => return added::<ReachedTimesPlus, ReachedFused, E>(third && !first && !second),
        BlockOp::Product => return compiled::<Product, E>(last),
        BlockOp::IsUnreached => return compiled::<IsUnreached, E>(last),
        BlockOp::Contribution => return compiled::<Contribution, E>(last),
        BlockOp::Hidden => return compiled::<Hidden, E>(last),
        BlockOp::NanOr => return compiled::<NanOr, E>(last),
        BlockOp::ContributionNanOr => return step_with::<ContributionNanOr, E>(all),
        BlockOp::Resting => return compiled::<Resting, E>(last),
        BlockOp::RestingProduct => return compiled::<RestingProduct, E>(last),
        BlockOp::RestingQuotient => return compiled::<RestingQuotient, E>(last),
        BlockOp::Two(two) => {
            return match two.first {
                OneOfTwo::Add => both::<Sum, E>(two, all),
                OneOfTwo::Sub => both::<Difference, E>(two, all),
                OneOfTwo::Mul => both::<Times, E>(two, all),
                OneOfTwo::Neg => both::<Negative, E>(two, all),
                OneOfTwo::Product | OneOfTwo::Contribution => both::<Product, E>(two, all),
            };
        }
        BlockOp::Math(op) => op,
    };
    match op {
        MathOp::Add => compiled::<Sum, E>(last),
        MathOp::Sub => compiled::<Difference, E>(last),
        MathOp::Mul => compiled::<Times, E>(last),
        MathOp::Div => compiled::<Quotient, E>(last),
        MathOp::Neg => compiled::<Negative, E>(last),
        MathOp::Less => compiled::<IsLess, E>(last),
        MathOp::LessEqual => compiled::<IsLessEqual, E>(last),
        MathOp::Equal => compiled::<IsEqual, E>(last),
        MathOp::IsNan => compiled::<IsNan, E>(last),
        MathOp::Select => compiled::<Choice, E>(last),
        MathOp::Function(function) => functions::step_of_function(function, last),
        MathOp::Operand(_) | MathOp::Literal(_) => compiled::<Same, E>(last),
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use functions::function_of;

mod functions {
    //! A step for each elementary function.
    use super::*;
    use crate::simd::Elementary;

    macro_rules! steps {
        (
            op { $($(#[$doc:meta])* $name:ident $row:ident { $($body:tt)* })* }
            op2 { $($(#[$doc2:meta])* $name2:ident $row2:ident { $($body2:tt)* })* }
            exact { $($exact:tt)* }
            helper { $($(#[$hdoc:meta])* $hname:ident $hrow:ident { $($hbody:tt)* })* }
            helper2 { $($(#[$hdoc2:meta])* $hname2:ident $hrow2:ident { $($hbody2:tt)* })* }
            slice { $($slice:tt)* }
        ) => {
            $( struct $row; impl Number for $row {
                fn of<E: ArrayFloat>(x: E, _: E, _: E) -> E { Elementary::$name(x) }
            } )*
            $( struct $hrow; impl Number for $hrow {
                fn of<E: ArrayFloat>(x: E, _: E, _: E) -> E { Elementary::$hname(x) }
            } )*
            $( struct $row2; impl Number for $row2 {
                fn of<E: ArrayFloat>(x: E, y: E, _: E) -> E { Elementary::$name2(x, y) }
            } )*
            $( struct $hrow2; impl Number for $hrow2 {
                fn of<E: ArrayFloat>(x: E, y: E, _: E) -> E { Elementary::$hname2(x, y) }
            } )*

            /// A function that machine code calls; of one number, the first one.
            #[cfg(target_arch = "x86_64")]
            pub(in super::super) fn function_of(function: Function) -> extern "sysv64" fn(f64, f64) -> f64 {
                extern "sysv64" fn of<O: Number>(x: f64, y: f64) -> f64 {
                    O::of(x, y, y)
                }
                match function {
                    $( Function::$row => of::<$row>, )*
                    $( Function::$hrow => of::<$hrow>, )*
                    $( Function::$row2 => of::<$row2>, )*
                    $( Function::$hrow2 => of::<$hrow2>, )*
                    Function::Sqrt => of::<Root>,
                    Function::Abs => of::<Magnitude>,
                    Function::Floor => of::<super::Floor>,
                    Function::Ceil => of::<super::Ceil>,
                }
            }

            pub(super) fn step_of_function<E: ArrayFloat>(function: Function, last: [bool; 2]) -> Step<E> {
                match function {
                    $( Function::$row => called::<$row, E>(last), )*
                    $( Function::$hrow => called::<$hrow, E>(last), )*
                    $( Function::$row2 => called::<$row2, E>(last), )*
                    $( Function::$hrow2 => called::<$hrow2, E>(last), )*
                    Function::Sqrt => called::<Root, E>(last),
                    Function::Abs => called::<Magnitude, E>(last),
                    Function::Floor => called::<super::Floor, E>(last),
                    Function::Ceil => called::<super::Ceil, E>(last),
                }
            }
        };
    }

    for_each_function!(steps);
}
