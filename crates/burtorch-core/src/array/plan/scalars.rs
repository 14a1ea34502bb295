//! Operations on single numbers, as steps that jump to each other.
//!
//! The simple algorithm: for each operation, read its slots, compute, write a slot. Departures, as in `program/steps`: an
//! operation has the address of code for it, which ends with a jump to that of the next and saves no register for its caller; the
//! last computed number stays in a register, because a number that is stored and loaded again waits 5 cycles; a contribution that
//! is a product is one step, and so are two operations if only the second reads the result of the first. Branches and loops
//! are jumps; a loop pauses regularly, so that it can be interrupted. Promises: the bits of the operations on blocks. Does not know
//! programs.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::any::TypeId;

use super::super::expansion::MathOp;
use super::actions::{IsEqual, IsLess, IsLessEqual, Same, step, step_of, stop};
use super::fused::{Item, Operation, all_reads, together};
use super::jumps::{Instr, Step, again, jump, moves, two_moves, unless, unless_holds};
use super::math::{ArrayFloat, BlockOp};
#[cfg(target_arch = "x86_64")]
use super::native::Native;
use super::schedule::scheduled;
use crate::error::Result;
use crate::interrupt;
use crate::simd::Real;

impl<E> std::fmt::Debug for Instr<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} to {}", self.of, self.to)
    }
}

/// The fewest moves that one step does.
const MANY: usize = 6;

/// Steps of loops between two looks at whether to end early.
const STEPS: f64 = 256.0;

/// Operations ready to run. Every slot that they name is below `slots`, every jump ends at one of them, and the last one stops.
#[derive(Clone, Debug)]
pub(super) struct Code<E> {
    instrs: Vec<Instr<E>>,
    slots: usize,
    /// The same as machine code.
    #[cfg(target_arch = "x86_64")]
    native: Option<Native>,
    /// The slot that holds how many steps of loops come before the next pause.
    left: Option<usize>,
}

/// The operation that was appended last, and the number of its instruction.
type Last = Option<(usize, Operation)>;

impl<E: ArrayFloat> Code<E> {
    /// Makes work ready. Numbers in the slots `kept` are read afterwards; `left` is a slot of its own, if there are loops.
    pub(super) fn new(work: &[Item], kept: &[usize], left: Option<usize>) -> Self {
        let mut code = Code {
            instrs: Vec::new(),
            #[cfg(target_arch = "x86_64")]
            native: None,
            slots: left.map_or(0, |left| left + 1),
            left,
        };
        code.append(work, &all_reads(work, kept));
        code.push(stop::<E>, &[], 0);
        code
    }

    /// The same for work that is repeated: as machine code where that can be.
    pub(super) fn repeated(work: &[Item], kept: &[usize], left: Option<usize>) -> Self {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut code = Self::new(work, kept, left);
        #[cfg(target_arch = "x86_64")]
        if TypeId::of::<E>() == TypeId::of::<f64>() {
            code.native = Native::new(work, code.slots, &all_reads(work, kept), left);
        }
        code
    }

    fn append(&mut self, work: &[Item], reads: &[usize]) -> Last {
        let operation = |item: &Item| if let Item::Operation(operation) = item { Some(*operation) } else { None };
        let (mut at, mut last) = (0, None);
        while at < work.len() {
            let operations: Vec<_> = work[at..].iter().map_while(operation).collect();
            at += operations.len().max(1);
            if !operations.is_empty() {
                last = self.straight(&scheduled(&together(&operations, reads)));
                continue;
            }
            match &work[at - 1] {
                Item::Operation(_) => {}
                Item::Move { .. } => {
                    let moves = |item: &Item| if let Item::Move { from, to } = *item { Some([from, to]) } else { None };
                    let all: Vec<_> = work[at - 1..].iter().map_while(moves).collect();
                    at += all.len() - 1;
                    self.all_moves(&all);
                }
                Item::Choice { of, yes, no } => {
                    let test = self.unless(*of, reads, last);
                    self.append(yes, reads);
                    let end = self.jump(jump::<E>, &[]);
                    self.land(test);
                    self.append(no, reads);
                    self.land(end);
                }
                Item::Loop { condition, of, body } => {
                    let start = self.instrs.len();
                    let last = self.append(condition, reads);
                    let test = self.unless(*of, reads, last);
                    self.append(body, reads);
                    let back = self.instrs.len() - start;
                    self.push(again::<E>, &[self.left.unwrap_or(*of)], back as u32);
                    self.land(test);
                }
            }
        }
        last
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

    /// Appends moves: many numbers that are side by side in one step, else two in one.
    fn all_moves(&mut self, mut all: &[[usize; 2]]) {
        while let [[from, to], rest @ ..] = all {
            let n = 1 + rest.iter().zip(1..).take_while(|&(&next, k)| next == [from + k, to + k]).count();
            let n = match (n, rest) {
                (MANY.., _) => {
                    [from, to].into_iter().for_each(|first| self.slots = self.slots.max(first + n));
                    self.instrs.push(Instr { step: moves::<E>, of: [*from as u32, n as u32, 0], to: *to as u32 });
                    n
                }
                (_, [[second, to_second], ..]) => {
                    let to = self.slot(*to);
                    self.push(two_moves::<E>, &[*from, *second, *to_second], to);
                    2
                }
                _ => {
                    let to = self.slot(*to);
                    self.push(step::<Same, E, 0>, &[*from], to);
                    1
                }
            };
            all = &all[n..];
        }
    }

    /// Appends a jump that ends where [`Code::land`] is told.
    fn jump(&mut self, step: Step<E>, operands: &[usize]) -> usize {
        self.push(step, operands, 0);
        self.instrs.len() - 1
    }

    /// Appends a jump where a slot holds 0: by the comparison itself, if that comes right before it and nothing else reads the slot.
    fn unless(&mut self, of: usize, reads: &[usize], last: Last) -> usize {
        let last = last.filter(|(at, last)| at + 1 == self.instrs.len() && last.to == of && reads.get(of) == Some(&1));
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

    fn straight(&mut self, operations: &[Operation]) -> Last {
        let mut last = usize::MAX;
        for operation in operations {
            let operands = &operation.of[..operation.arity()];
            let is_last = |k: usize| operands.get(k) == Some(&last);
            let (step, to) = (step_of(operation.op, [0, 1, 2].map(is_last)), self.slot(operation.to));
            self.push(step, operands, to);
            last = operation.to;
        }
        operations.last().map(|operation| (self.instrs.len() - 1, *operation))
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
        #[cfg(target_arch = "x86_64")]
        if let Some(native) = &self.native {
            let mut work = interrupt::Work::default();
            let mut at = native.first();
            loop {
                // SAFETY: by the contract, as there is such code of f64 only.
                at = unsafe { native.run(slots.cast(), at) };
                let (Some(left), false) = (self.left, at.is_null()) else { return Ok(()) };
                // SAFETY: this slot is one of them.
                unsafe { *slots.add(left) = <E as Real>::of(STEPS) };
                work.add(self.instrs.len() * 4 * STEPS as usize)?;
            }
        }
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

    #[cfg(all(test, target_arch = "x86_64"))]
    pub(super) fn is_native(&self) -> bool {
        self.native.is_some()
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
