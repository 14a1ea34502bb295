//! Operations on single numbers, as steps that jump to each other.
//!
//! In words: for each operation, read its slots, compute, write a slot. Departures, as in `program/steps`: an operation holds
//! the address of code for it, which ends with a jump to that of the next and keeps no register for its caller; a
//! contribution that is a product is one step. Promises the bits of the operations on blocks. Knows nothing of programs.
#![allow(unsafe_code)]

use super::super::expansion::MathOp;
use super::math::{ArrayFloat, BlockOp, arity};
use crate::ops::Function;
use crate::scalar::RowMath;
use crate::simd::{Real, for_each_function};

/// What is done with numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NumberOp {
    Of(BlockOp),
    /// Of an adjoint and a factor: what [`BlockOp::Contribution`] makes of their product.
    Product,
}

/// An operation on slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) op: NumberOp,
    pub(super) of: [usize; 3],
    pub(super) to: usize,
}

impl Operation {
    /// How many slots it reads.
    pub(super) fn arity(&self) -> usize {
        match self.op {
            NumberOp::Of(op) => arity(op),
            NumberOp::Product => 2,
        }
    }
}

type Step<E> = unsafe extern "rust-preserve-none" fn(*mut E, *const Instr<E>);

struct Instr<E> {
    step: Step<E>,
    of: [u32; 3],
    to: u32,
}

impl<E> Clone for Instr<E> {
    fn clone(&self) -> Self {
        Instr { ..*self }
    }
}

impl<E> std::fmt::Debug for Instr<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} to {}", self.of, self.to)
    }
}

/// Operations ready to run. Every slot that they name is below `slots`, and the last one stops.
#[derive(Clone, Debug)]
pub(super) struct Code<E> {
    instrs: Vec<Instr<E>>,
    slots: usize,
}

impl<E: ArrayFloat> Code<E> {
    /// Makes operations ready that are to run one after the other.
    pub(super) fn new(operations: &[Operation]) -> Self {
        let operations = fused(operations);
        let mut slots = 0;
        let mut instrs: Vec<_> = operations
            .iter()
            .map(|operation| {
                let mut of = [0; 3];
                for (slot, &k) in of.iter_mut().zip(&operation.of[..operation.arity()]) {
                    slots = slots.max(k + 1);
                    *slot = k as u32;
                }
                slots = slots.max(operation.to + 1);
                Instr { step: step_of(operation.op), of, to: operation.to as u32 }
            })
            .collect();
        instrs.push(Instr { step: stop::<E>, of: [0; 3], to: 0 });
        Code { instrs, slots }
    }

    /// Runs all.
    #[inline]
    pub(super) fn run(&self, slots: &mut [E]) {
        assert!(slots.len() >= self.slots, "fewer slots than operations name");
        // SAFETY: there is a first instruction and a last one that stops, and all slots that they name are inside of `slots`.
        unsafe { (self.instrs[0].step)(slots.as_mut_ptr(), self.instrs.as_ptr()) }
    }

    /// How many operations there are.
    pub(super) fn len(&self) -> usize {
        self.instrs.len()
    }
}

/// The operations with products that only a contribution reads done by it.
fn fused(operations: &[Operation]) -> Vec<Operation> {
    let slots = operations.iter().map(|o| o.to + 1).max().unwrap_or(0);
    let mut reads = vec![0; slots];
    for operation in operations {
        for &k in operation.of[..operation.arity()].iter().filter(|k| **k < slots) {
            reads[k] += 1;
        }
    }
    let mut result: Vec<Operation> = Vec::with_capacity(operations.len());
    for &operation in operations {
        let product = NumberOp::Of(BlockOp::Math(MathOp::Mul));
        if let (NumberOp::Of(BlockOp::Contribution), Some(last)) = (operation.op, result.last().copied())
            && last.op == product
            && last.to == operation.of[1]
            && reads[last.to] == 1
            && last.of[0] == operation.of[0]
        {
            result.pop();
            result.push(Operation { op: NumberOp::Product, of: [last.of[0], last.of[1], 0], to: operation.to });
            continue;
        }
        result.push(operation);
    }
    result
}

/// # Safety
/// There are no more than the slots that the instruction before named.
unsafe extern "rust-preserve-none" fn stop<E>(_slots: *mut E, _at: *const Instr<E>) {}

/// Code for one operation.
trait Number {
    fn of<E: ArrayFloat>(x: E, y: E, z: E) -> E;
}

/// # Safety
/// The slots that instructions name, up to one that stops, lie behind `slots`.
unsafe extern "rust-preserve-none" fn step<O: Number, E: ArrayFloat>(slots: *mut E, at: *const Instr<E>) {
    debug_assert!(!at.is_null());
    // SAFETY: by the contract. Slots that the operation does not take are 0, which is one of them.
    unsafe {
        let [x, y, z] = (*at).of.map(|k| *slots.add(k as usize));
        *slots.add((*at).to as usize) = O::of(x, y, z);
        let next = at.add(1);
        become ((*next).step)(slots, next)
    }
}

fn mask<E: ArrayFloat>(holds: bool) -> E {
    <E as Real>::of(f64::from(u8::from(holds)))
}

macro_rules! numbers {
    ($($name:ident($x:ident, $y:ident, $z:ident) => $value:expr;)*) => { $(
        struct $name;
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
    IsNan(x, y, z) => mask(x != x);
    Choice(x, y, z) => if x == E::default() { z } else { y };
    IsUnreached(x, y, z) => mask(x.is_unreached());
    Contribution(x, y, z) => if x.is_unreached() { x } else { y + E::default() };
    Product(x, y, z) => if x.is_unreached() { x } else { x * y + E::default() };
    Same(x, y, z) => x;
    Root(x, y, z) => Real::sqrt(x);
    Magnitude(x, y, z) => Real::abs(x);
    Floor(x, y, z) => RowMath::floor(x);
    Ceil(x, y, z) => RowMath::ceil(x);
}

fn step_of<E: ArrayFloat>(op: NumberOp) -> Step<E> {
    let op = match op {
        NumberOp::Product => return step::<Product, E>,
        NumberOp::Of(BlockOp::IsUnreached) => return step::<IsUnreached, E>,
        NumberOp::Of(BlockOp::Contribution) => return step::<Contribution, E>,
        NumberOp::Of(BlockOp::Math(op)) => op,
    };
    match op {
        MathOp::Add => step::<Sum, E>,
        MathOp::Sub => step::<Difference, E>,
        MathOp::Mul => step::<Times, E>,
        MathOp::Div => step::<Quotient, E>,
        MathOp::Neg => step::<Negative, E>,
        MathOp::Less => step::<IsLess, E>,
        MathOp::LessEqual => step::<IsLessEqual, E>,
        MathOp::Equal => step::<IsEqual, E>,
        MathOp::IsNan => step::<IsNan, E>,
        MathOp::Select => step::<Choice, E>,
        MathOp::Function(function) => functions::step_of_function(function),
        MathOp::Operand(_) | MathOp::Literal(_) => step::<Same, E>,
    }
}

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

            pub(super) fn step_of_function<E: ArrayFloat>(function: Function) -> Step<E> {
                match function {
                    $( Function::$row => step::<$row, E>, )*
                    $( Function::$hrow => step::<$hrow, E>, )*
                    $( Function::$row2 => step::<$row2, E>, )*
                    $( Function::$hrow2 => step::<$hrow2, E>, )*
                    Function::Sqrt => step::<Root, E>,
                    Function::Abs => step::<Magnitude, E>,
                    Function::Floor => step::<super::Floor, E>,
                    Function::Ceil => step::<super::Ceil, E>,
                }
            }
        };
    }

    for_each_function!(steps);
}
