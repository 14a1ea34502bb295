//! An instruction of a replay, and its data besides slots.
//!
//! Promises: an instruction contains the address of its code. Knows neither ops' code nor programs.
#![allow(unsafe_code)]

use super::primitive::Called;
use crate::ops::{Op, Properties};
use crate::scalar::{RowMath, Scalar};

/// No contribution.
pub(super) const SKIP: u8 = 0;
/// The first contribution to a slot, which overwrites.
pub(super) const SET: u8 = 1;
/// A later contribution, which is added.
pub(super) const ADD: u8 = 2;

/// One instruction: its step and its slots.
#[derive(Debug)]
pub(super) struct Instr<S> {
    pub(super) step: Step<S>,
    /// The first operand, or the start of the operand list.
    pub(super) a: u32,
    /// The second operand, or the length of the operand list.
    pub(super) b: u32,
    /// The result.
    pub(super) c: u32,
    /// The mode of the contribution to the first operand and, from bit 2, to the second.
    pub(super) modes: u8,
    pub(super) op: Op,
    /// Scalars per slot.
    pub(super) width: u8,
}

impl<S> Clone for Instr<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Instr<S> {}

/// The lists read by steps with many operands.
#[derive(Clone, Debug)]
pub(super) struct Lists<S> {
    /// Slots times four plus the mode.
    pub(super) operands: Vec<u32>,
    /// Workspace for twice the operands of any node.
    pub(super) scratch: Vec<S>,
    /// The data of calls of primitives.
    pub(super) calls: Calls<S>,
}

/// The code of a step and of its successors up to a stop. `v` and `d` point to the slots of values and of adjoints (or
/// tangents) of the replay.
pub(super) type Step<S> =
    unsafe extern "rust-preserve-none" fn(v: *mut S, d: *mut S, i: *const Instr<S>, lists: *mut Lists<S>);

/// The end of a run of instructions.
unsafe extern "rust-preserve-none" fn stop<S>(_v: *mut S, _d: *mut S, _i: *const Instr<S>, _lists: *mut Lists<S>) {}

impl<S> Instr<S> {
    /// An instruction that ends a run.
    pub(super) fn stop() -> Self {
        Instr { step: stop::<S>, a: 0, b: 0, c: 0, modes: SKIP, op: Op::Leaf, width: 1 }
    }

    /// Whether the instruction computes something.
    pub(super) fn computes(&self) -> bool {
        self.op != Op::Leaf
    }
}

/// The operation of a step; compiled for a level by `steps`.
pub(super) trait Body<S> {
    /// The properties of its op's row; empty without a row.
    const IS: Properties = Properties::NONE;
    /// # Safety
    /// Every slot of the instruction and of its list lies in `v` and `d`; scratch holds twice its operands; nothing
    /// else accesses the memory.
    unsafe fn run(v: *mut S, d: *mut S, i: &Instr<S>, lists: *mut Lists<S>);
}

/// Scalars per slot: `W`, or the width of the instruction if `W` is 0.
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

/// The data of calls besides slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls<S> {
    pub(super) primitives: Vec<Called>,
    /// The partial of each listed operand, with as many scalars as a slot.
    pub(super) partials: Vec<S>,
    /// Workspace for three times the operands of any node.
    pub(super) numbers: Vec<f64>,
    /// For each lane, whether a primitive failed.
    pub(super) failed: Vec<bool>,
    /// Lanes in use.
    pub(super) n_lanes: usize,
}

impl<S> Calls<S> {
    /// Whether there are no calls.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.primitives.is_empty()
    }
}

/// The tangent contributed by an operand with tangent `d`: zero if `d` is zero, because the partial may be infinite.
#[inline(always)]
pub(super) fn moving<S: RowMath>(d: S, push: impl Fn(S) -> S) -> S {
    let zero = S::lit(0.0);
    S::select(d.equal(zero), zero, push(d))
}

/// The same by an op with these properties: the partials of a sum are 1.
#[inline(always)]
pub(super) fn tangent<S: RowMath>(is: Properties, d: S, push: impl Fn(S) -> S) -> S {
    if is.through { push(d) } else { moving(d, push) }
}
