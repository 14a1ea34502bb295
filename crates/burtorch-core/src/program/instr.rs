//! An instruction of a replay, and its data besides slots.
//!
//! Promises: an instruction contains the address of its code. Knows neither ops' code nor programs.
#![allow(unsafe_code)]

use super::primitive::Called;
use crate::ops::{Op, Properties};
use crate::scalar::Scalar;

/// No contribution.
pub(super) const SKIP: u8 = 0;
/// The first contribution to a slot: it overwrites.
pub(super) const SET: u8 = 1;
/// A later contribution.
pub(super) const ADD: u8 = 2;

/// One instruction: what to do, with which slots.
#[derive(Debug)]
pub(super) struct Instr<S> {
    pub(super) step: Step<S>,
    /// First operand, or where its list begins.
    pub(super) a: u32,
    /// Second operand, or how many are listed.
    pub(super) b: u32,
    /// The result.
    pub(super) c: u32,
    /// What to do for the first and, from bit 2, for the second operand.
    pub(super) modes: u8,
    pub(super) op: Op,
    /// Scalars of a slot.
    pub(super) width: u8,
}

impl<S> Clone for Instr<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Instr<S> {}

/// What steps with many operands read.
#[derive(Clone, Debug)]
pub(super) struct Lists<S> {
    /// Slots times four, plus what to do for each.
    pub(super) operands: Vec<u32>,
    /// Room for twice the operands of any node.
    pub(super) scratch: Vec<S>,
    /// What calls of primitives need.
    pub(super) calls: Calls<S>,
}

/// The code of a step, and of all that follow up to one that stops. `v` and `d` point to slots of values and of adjoints
/// (or tangents), as many as the replay has.
pub(super) type Step<S> =
    unsafe extern "rust-preserve-none" fn(v: *mut S, d: *mut S, i: *const Instr<S>, lists: *mut Lists<S>);

/// Where a run of instructions ends.
unsafe extern "rust-preserve-none" fn stop<S>(_v: *mut S, _d: *mut S, _i: *const Instr<S>, _lists: *mut Lists<S>) {}

impl<S> Instr<S> {
    /// An instruction that ends a run.
    pub(super) fn stop() -> Self {
        Instr { step: stop::<S>, a: 0, b: 0, c: 0, modes: SKIP, op: Op::Leaf, width: 1 }
    }

    /// Whether it computes something.
    pub(super) fn computes(&self) -> bool {
        self.op != Op::Leaf
    }
}

/// What a step does; compiled for a level by `steps`.
pub(super) trait Body<S> {
    /// What the row of its op says; nothing where there is no row.
    const IS: Properties = Properties::NONE;
    /// # Safety
    /// Every slot of the instruction and of its list lies in `v` and `d`; scratch holds twice its operands; nothing else
    /// uses the memory.
    unsafe fn run(v: *mut S, d: *mut S, i: &Instr<S>, lists: *mut Lists<S>);
}

/// Scalars of a slot: `W`, or where that is 0 as many as the instruction says.
#[inline(always)]
pub(super) fn width<const W: usize, S>(i: &Instr<S>) -> usize {
    if W == 0 { i.width.into() } else { W }
}

/// Makes a contribution of mode `mode` to a slot.
///
/// # Safety
/// `at` may be written.
#[inline(always)]
pub(super) unsafe fn contribute<S: Scalar>(mode: u8, at: *mut S, contribution: S) {
    // SAFETY: by the contract of this function.
    unsafe {
        match mode {
            SET => *at = contribution,
            ADD => *at = *at + contribution,
            _ => {}
        }
    }
}

/// What calls need besides slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls<S> {
    pub(super) primitives: Vec<Called>,
    /// For each listed operand its partial: as many scalars as a slot has.
    pub(super) partials: Vec<S>,
    /// Room for three times the operands of any node.
    pub(super) numbers: Vec<f64>,
    /// For each lane whether a primitive failed.
    pub(super) failed: Vec<bool>,
    /// How many lanes are in use.
    pub(super) n_lanes: usize,
}

impl<S> Calls<S> {
    /// Whether there are any.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.primitives.is_empty()
    }
}
