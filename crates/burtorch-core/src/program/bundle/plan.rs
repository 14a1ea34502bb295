//! A program as bundles, and the state of planning.
//!
//! Promises: the slots of a group are as far apart as its code has lanes. Does not know how slots are assigned.

use super::memory::{Bundle, InLanes};
use super::order::Group;
use super::units::{Shape, Units};
use super::{lanes_of, steps};
use crate::program::build::Build;
use crate::program::node::Program;
use crate::simd::Level;

/// A program in bundles.
#[derive(Clone, Debug)]
pub(in crate::program) struct Bundles<S> {
    pub(in crate::program) forward: Vec<Bundle<S>>,
    pub(in crate::program) second: Vec<Bundle<S>>,
    /// Lists of slots.
    pub(in crate::program) slots: Vec<u32>,
    /// The length of each memory.
    pub(in crate::program) len: usize,
    /// The slots of outputs.
    pub(in crate::program) outputs: Vec<u32>,
    /// For each seed its index among the seeds and its slot.
    pub(in crate::program) seeds: Vec<(usize, u32)>,
    /// The slot of adjoints that holds -0.0, the neutral element of addition.
    pub(in crate::program) nothing: u32,
}

/// State shared by the parts of a plan.
pub(super) struct BundlePlan<'p, S> {
    pub(super) program: &'p Program,
    pub(super) moves: &'p [bool],
    pub(super) units: &'p Units,
    pub(super) groups: &'p [Group],
    pub(super) level: Level,
    pub(super) build: Build,
    /// The slot of each node's value.
    pub(super) value: Vec<u32>,
    /// The group and the lane of each unit.
    pub(super) lane: Vec<(u32, u16)>,
    pub(super) bundles: Bundles<S>,
}

/// The distance in slots between the vectors of a group: the lanes of its code. Lone nodes have no vectors.
pub(super) fn stride<S: InLanes>(group: &Group) -> u32 {
    if group.key.shape == Shape::Lone { 1 } else { steps::width::<S>(in_use(group) as usize) as u32 }
}

/// How many lanes a group uses.
pub(super) fn in_use(group: &Group) -> u32 {
    (group.units.len() * lanes_of(group.key)) as u32
}
