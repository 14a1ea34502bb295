//! Operations on single numbers, as steps that jump to each other.
//!
//! The simple algorithm: for each operation, read its slots, compute, write a slot. Departures, as in `program/steps`: an
//! operation has the address of code for it, which ends with a jump to that of the next and saves no register for its caller; the
//! last computed number stays in a register, because a number that is stored and loaded again waits 5 cycles; a contribution that
//! is a product is one step, and so are two operations if only the second reads the result of the first. Branches and loops
//! are jumps; a loop pauses regularly, so that it can be interrupted. Promises: the bits of the operations on blocks. Does not know
//! programs.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::super::expansion::MathOp;
use super::jumps::{Instr, Number, Step, again, jump, moves, unless, unless_holds};
use super::math::{ArrayFloat, BlockOp};
use super::together::{Item, Operation, all_reads, together};
use crate::error::Result;
use crate::interrupt;
use crate::kernels::{OneOfTwo, Two};
use crate::ops::Function;
use crate::scalar::RowMath;
use crate::simd::{Level, Real, for_each_function, level};

impl<E> std::fmt::Debug for Instr<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} to {}", self.of, self.to)
    }
}

/// Steps of loops between two looks at whether to end early.
const STEPS: f64 = 256.0;

/// Operations ready to run. Every slot that they name is below `slots`, every jump ends at one of them, and the last one stops.
#[derive(Clone, Debug)]
pub(super) struct Code<E> {
    instrs: Vec<Instr<E>>,
    slots: usize,
    /// The slot that holds how many steps of loops come before the next pause.
    left: Option<usize>,
    /// The operation that was appended last, and the number of its instruction.
    last: Option<(usize, Operation)>,
}

impl<E: ArrayFloat> Code<E> {
    /// Makes work ready. Numbers in the slots `kept` are read afterwards; `left` is a slot of its own, if there are loops.
    pub(super) fn new(work: &[Item], kept: &[usize], left: Option<usize>) -> Self {
        let mut code = Code { instrs: Vec::new(), slots: left.map_or(0, |left| left + 1), left, last: None };
        code.append(work, &all_reads(work, kept));
        code.push(stop::<E>, &[], 0);
        code
    }

    fn append(&mut self, work: &[Item], reads: &[usize]) {
        let operation = |item: &Item| if let Item::Operation(operation) = item { Some(*operation) } else { None };
        let mut at = 0;
        while at < work.len() {
            let operations: Vec<_> = work[at..].iter().map_while(operation).collect();
            at += operations.len().max(1);
            if !operations.is_empty() {
                self.straight(&together(&operations, reads));
                continue;
            }
            match &work[at - 1] {
                Item::Operation(_) => {}
                &Item::Move { from, to } => {
                    let rest = work[at..].iter().zip(1..);
                    let follows = |(item, k): &(&Item, usize)| matches!(item, Item::Move { from: f, to: t } if (*f, *t) == (from + k, to + k));
                    let more = rest.take_while(follows).count();
                    at += more;
                    self.moves(from, to, more + 1);
                }
                Item::Choice { of, yes, no } => {
                    let test = self.unless(*of, reads);
                    self.append(yes, reads);
                    let end = self.jump(jump::<E>, &[]);
                    self.land(test);
                    self.append(no, reads);
                    self.land(end);
                }
                Item::Loop { condition, of, body } => {
                    let start = self.instrs.len();
                    self.append(condition, reads);
                    let test = self.unless(*of, reads);
                    self.append(body, reads);
                    let back = self.instrs.len() - start;
                    self.push(again::<E>, &[self.left.unwrap_or(*of)], back as u32);
                    self.land(test);
                }
            }
        }
    }

    /// A slot that is named.
    fn slot(&mut self, k: usize) -> u32 {
        self.slots = self.slots.max(k + 1);
        k as u32
    }

    fn push(&mut self, step: Step<E>, operands: &[usize], to: u32) {
        let mut of = [0; 3];
        for (slot, &k) in of.iter_mut().zip(operands) {
            *slot = self.slot(k);
        }
        self.instrs.push(Instr { step, of, to });
    }

    /// Appends moves of so many numbers, each to where the first goes and as far from there.
    fn moves(&mut self, from: usize, to: usize, n: usize) {
        if n == 1 {
            let to = self.slot(to);
            return self.push(step::<Same, E, 0>, &[from], to);
        }
        [from, to].into_iter().for_each(|first| self.slots = self.slots.max(first + n));
        self.instrs.push(Instr { step: moves::<E>, of: [from as u32, n as u32, 0], to: to as u32 });
    }

    /// Appends a jump that ends where [`Code::land`] is told.
    fn jump(&mut self, step: Step<E>, operands: &[usize]) -> usize {
        self.push(step, operands, 0);
        self.instrs.len() - 1
    }

    /// Appends a jump where a slot holds 0: by the comparison itself, if that comes right before it and nothing else reads the slot.
    fn unless(&mut self, of: usize, reads: &[usize]) -> usize {
        let last = self
            .last
            .take()
            .filter(|(at, last)| at + 1 == self.instrs.len() && last.to == of && reads.get(of) == Some(&1));
        let step = match last.map(|(_, last)| last.op) {
            Some(BlockOp::Math(MathOp::Less)) => unless_holds::<IsLess, E>,
            Some(BlockOp::Math(MathOp::LessEqual)) => unless_holds::<IsLessEqual, E>,
            Some(BlockOp::Math(MathOp::Equal)) => unless_holds::<IsEqual, E>,
            _ => return self.jump(unless::<E>, &[of]),
        };
        self.instrs.pop();
        self.jump(step, &last.map_or([of; 2], |(_, last)| [last.of[0], last.of[1]]))
    }

    /// Lets a jump end at the next instruction.
    fn land(&mut self, jump: usize) {
        self.instrs[jump].to = (self.instrs.len() - jump) as u32;
    }

    fn straight(&mut self, operations: &[Operation]) {
        let mut last = usize::MAX;
        for operation in operations {
            let operands = &operation.of[..operation.arity()];
            let is_last = |k: usize| operands.get(k) == Some(&last);
            let (step, to) = (step_of(operation.op, [0, 1, 2].map(is_last)), self.slot(operation.to));
            self.push(step, operands, to);
            self.last = Some((self.instrs.len() - 1, *operation));
            last = operation.to;
        }
    }

    /// Runs all; an error if it is to end early, which work without loops never does.
    #[inline]
    pub(super) fn run(&self, slots: &mut [E]) -> Result<()> {
        assert!(slots.len() >= self.slots && !self.instrs.is_empty(), "fewer slots than operations name");
        // SAFETY: there is a first instruction and a last one that stops, jumps end between them, and all slots that they name are
        // inside of `slots`.
        unsafe { self.run_on(slots.as_mut_ptr()) }
    }

    /// # Safety
    /// Behind `slots` lie as many as the code names.
    #[inline(always)]
    unsafe fn run_on(&self, slots: *mut E) -> Result<()> {
        let mut at = self.instrs.as_ptr();
        let mut work = interrupt::Work::default();
        loop {
            // SAFETY: by the contract; a pause is at an instruction.
            unsafe {
                at = ((*at).step)(slots, at, E::default());
                let (Some(left), false) = (self.left, at.is_null()) else { return Ok(()) };
                *slots.add(left) = <E as Real>::of(STEPS);
            }
            work.add(self.instrs.len() * 4 * STEPS as usize)?;
        }
    }

    /// Runs all `n` times, with numbers read before each and written before and after it, and moves from slot to slot after it.
    pub(super) fn repeat(
        &self,
        n: usize,
        slots: &mut [E],
        (reads, from): (&mut [Cursor], &[&[E]]),
        ([before, after], to): ([&mut [Cursor]; 2], &mut [Vec<E>]),
        moves: &[(usize, usize)],
    ) -> Result<()> {
        let is_slot = |slot: usize| slot < slots.len();
        let writes = || before.iter().chain(after.iter());
        assert!(
            slots.len() >= self.slots && reads.iter().chain(writes()).all(|c| is_slot(c.slot)),
            "a slot is missing"
        );
        assert!(moves.iter().all(|&(from, to)| is_slot(from) && is_slot(to)), "a slot is missing");
        assert!(reads.iter().all(|c| c.is_inside(n, from)) && writes().all(|c| c.is_inside(n, to)), "a list ends");
        let slots = slots.as_mut_ptr();
        for _ in 0..n {
            // SAFETY: slots and the places of all cursors in `n` steps were checked above; instructions are as in `run`.
            unsafe {
                for c in reads.iter_mut() {
                    *slots.add(c.slot) = *from.get_unchecked(c.list).as_ptr().add(c.next());
                }
                for c in before.iter_mut() {
                    *to.get_unchecked_mut(c.list).as_mut_ptr().add(c.next()) = *slots.add(c.slot);
                }
                self.run_on(slots)?;
                for c in after.iter_mut() {
                    *to.get_unchecked_mut(c.list).as_mut_ptr().add(c.next()) = *slots.add(c.slot);
                }
                moves.iter().for_each(|&(from, to)| *slots.add(to) = *slots.add(from));
            }
        }
        Ok(())
    }

    /// How many operations there are.
    pub(super) fn len(&self) -> usize {
        self.instrs.len()
    }
}

/// Where a step of a loop reads or writes a number: its slot, the list, the place, and how far from there that of the next step is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub(super) slot: usize,
    pub(super) list: usize,
    pub(super) at: usize,
    pub(super) by: isize,
}

impl Cursor {
    /// Whether the places of `n` steps lie in their list.
    pub(super) fn is_inside<E, L: AsRef<[E]>>(&self, n: usize, lists: &[L]) -> bool {
        let Some(len) = lists.get(self.list).map(|list| list.as_ref().len()) else { return false };
        let last = (n as isize - 1).checked_mul(self.by).and_then(|by| self.at.checked_add_signed(by));
        n == 0 || self.at < len && last.is_some_and(|last| last < len)
    }

    /// The place, and goes on to the next one.
    #[inline(always)]
    fn next(&mut self) -> usize {
        let at = self.at;
        self.at = at.wrapping_add_signed(self.by);
        at
    }
}

/// # Safety
/// There are no more than the slots that the instruction before named.
unsafe extern "rust-preserve-none" fn stop<E>(_slots: *mut E, _at: *const Instr<E>, _last: E) -> *const Instr<E> {
    std::ptr::null()
}

macro_rules! steps {
    ($($(#[$attribute:meta])* $name:ident)*) => { $(
        /// Of which operands the number computed last is one: bit 0 is the first, bit 1 the second, bit 2 the third.
        ///
        /// # Safety
        /// The slots that instructions name, up to one that stops, lie behind `slots`.
        $(#[$attribute])*
        unsafe extern "rust-preserve-none" fn $name<O: Number, E: ArrayFloat, const LAST: u8>(
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
struct Both<A, B, const TO_RIGHT: bool>(PhantomData<(A, B)>);

impl<A: Number, B: Number, const TO_RIGHT: bool> Number for Both<A, B, TO_RIGHT> {
    #[inline(always)]
    fn of<E: ArrayFloat>(x: E, y: E, z: E) -> E {
        let t = A::of(x, y, y);
        if TO_RIGHT { B::of(z, t, t) } else { B::of(t, z, z) }
    }
}

/// Two operations as a step.
fn both<A: Number, E: ArrayFloat>(Two { second, to_right, .. }: Two, last: [bool; 3]) -> Step<E> {
    fn both<A: Number, B: Number, E: ArrayFloat>(to_right: bool, last: [bool; 3]) -> Step<E> {
        fn step_with<O: Number, E: ArrayFloat>(last: [bool; 3]) -> Step<E> {
            match last {
                [true, false, false] => step::<O, E, 1>,
                [false, true, false] => step::<O, E, 2>,
                [false, false, true] => step::<O, E, 4>,
                _ => step::<O, E, 0>,
            }
        }
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
    IsNan(x, y, z) => mask(x.partial_cmp(&x).is_none());
    IsUnreached(x, y, z) => mask(x.is_unreached());
    Hidden(x, y, z) => if x.is_unreached() { unreached() } else { y };
    Contribution(x, y, z) => if x.is_unreached() { unreached() } else { y + E::default() };
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

fn step_of<E: ArrayFloat>(op: BlockOp, all: [bool; 3]) -> Step<E> {
    let [first, second, third] = all;
    let last = [first, second];
    let op = match op {
        BlockOp::MulAdd => return added::<TimesPlus, FusedTimesPlus, E>(third && !first && !second),
        BlockOp::ReachedMulAdd => return added::<ReachedTimesPlus, ReachedFused, E>(third && !first && !second),
        BlockOp::Product => return compiled::<Product, E>(last),
        BlockOp::IsUnreached => return compiled::<IsUnreached, E>(last),
        BlockOp::Contribution => return compiled::<Contribution, E>(last),
        BlockOp::Hidden => return compiled::<Hidden, E>(last),
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
