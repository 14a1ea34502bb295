//! Instructions of lists of operations on single numbers, and the steps that move numbers and jump: branches and loops.
//!
//! Promises: as `scalars`, which makes the lists. Does not know operations.
#![allow(unsafe_code)]

use super::math::ArrayFloat;
use crate::simd::Real;

/// Of the slots, the instruction, and the number that the step before computed; where a run pauses, or null at its end.
pub(super) type Step<E> = unsafe extern "rust-preserve-none" fn(*mut E, *const Instr<E>, E) -> *const Instr<E>;

pub(super) struct Instr<E> {
    pub(super) step: Step<E>,
    pub(super) of: [u32; 3],
    pub(super) to: u32,
}

impl<E> Clone for Instr<E> {
    fn clone(&self) -> Self {
        Instr { ..*self }
    }
}

/// Code for one operation.
pub(super) trait Number {
    /// Whether all operands are read before it, rather than where they are needed.
    const EAGER: bool = false;

    fn of<E: ArrayFloat>(x: E, y: E, z: E) -> E;
}

/// Goes on so many instructions later.
///
/// # Safety
/// There are so many, and those that follow may run on these slots.
pub(super) unsafe extern "rust-preserve-none" fn jump<E>(
    slots: *mut E,
    at: *const Instr<E>,
    last: E,
) -> *const Instr<E> {
    debug_assert!(!at.is_null());
    // SAFETY: by the contract.
    unsafe {
        let next = at.add((*at).to as usize);
        become ((*next).step)(slots, next, last)
    }
}

/// Moves so many numbers, the first one first.
///
/// # Safety
/// As of [`step`], of all slots from which and to which it moves.
pub(super) unsafe extern "rust-preserve-none" fn moves<E: ArrayFloat>(
    slots: *mut E,
    at: *const Instr<E>,
    last: E,
) -> *const Instr<E> {
    debug_assert!(!at.is_null());
    // SAFETY: by the contract.
    unsafe {
        let Instr { of: [from, n, _], to, .. } = &*at;
        let (from, to) = (slots.add(*from as usize), slots.add(*to as usize));
        for k in 0..*n as usize {
            *to.add(k) = *from.add(k);
        }
        let next = at.add(1);
        become ((*next).step)(slots, next, last)
    }
}

/// Moves two numbers, the first one first.
///
/// # Safety
/// As of [`step`].
pub(super) unsafe extern "rust-preserve-none" fn two_moves<E: ArrayFloat>(
    slots: *mut E,
    at: *const Instr<E>,
    _last: E,
) -> *const Instr<E> {
    debug_assert!(!at.is_null());
    // SAFETY: by the contract.
    unsafe {
        let Instr { of: [from, second, to_second], to, .. } = &*at;
        *slots.add(*to as usize) = *slots.add(*from as usize);
        let number = *slots.add(*second as usize);
        *slots.add(*to_second as usize) = number;
        let next = at.add(1);
        become ((*next).step)(slots, next, number)
    }
}

/// Goes on so many instructions later if a slot holds 0, else at the next one.
///
/// # Safety
/// As of [`jump`].
pub(super) unsafe extern "rust-preserve-none" fn unless<E: ArrayFloat>(
    slots: *mut E,
    at: *const Instr<E>,
    last: E,
) -> *const Instr<E> {
    debug_assert!(!at.is_null());
    // SAFETY: by the contract.
    unsafe {
        if *slots.add((*at).of[0] as usize) == E::default() {
            let next = at.add((*at).to as usize);
            become ((*next).step)(slots, next, last)
        }
        let next = at.add(1);
        become ((*next).step)(slots, next, last)
    }
}

/// Goes on so many instructions later unless a comparison of two slots holds, else at the next one.
///
/// # Safety
/// As of [`jump`].
pub(super) unsafe extern "rust-preserve-none" fn unless_holds<O: Number, E: ArrayFloat>(
    slots: *mut E,
    at: *const Instr<E>,
    last: E,
) -> *const Instr<E> {
    debug_assert!(!at.is_null());
    // SAFETY: by the contract.
    unsafe {
        let (x, y) = (*slots.add((*at).of[0] as usize), *slots.add((*at).of[1] as usize));
        if O::of(x, y, y) == E::default() {
            let next = at.add((*at).to as usize);
            become ((*next).step)(slots, next, last)
        }
        let next = at.add(1);
        become ((*next).step)(slots, next, last)
    }
}

/// Goes on so many instructions earlier, or pauses there where no more steps are left.
///
/// # Safety
/// As of [`jump`], of those before it.
pub(super) unsafe extern "rust-preserve-none" fn again<E: ArrayFloat>(
    slots: *mut E,
    at: *const Instr<E>,
    last: E,
) -> *const Instr<E> {
    debug_assert!(!at.is_null());
    // SAFETY: by the contract.
    unsafe {
        let (next, left) = (at.sub((*at).to as usize), slots.add((*at).of[0] as usize));
        *left = *left - <E as Real>::of(1.0);
        if *left <= E::default() {
            return next;
        }
        become ((*next).step)(slots, next, last)
    }
}
