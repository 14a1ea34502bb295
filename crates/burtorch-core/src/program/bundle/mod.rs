//! Large programs at single points: equal ops that do not depend on each other run together, in a vector's lanes.
//!
//! In words: [`units`] finds superinstructions, [`order`] groups equal units by list scheduling, [`layout`] assigns
//! slots and writes the lists of operands, [`adjoints`] those of contributions, [`memory`] defines the bundles and
//! their memory, [`steps`], [`products`] and [`softmax`] the code. A random graph of 10,000 ops runs in about a third
//! of the time of a run node by node.
//!
//! Promises: values, gradients and tangents have the bits of a run node by node. Programs with too little parallelism,
//! or with guards, run node by node. Does not know batches, which have lanes of their own.

mod units;

mod order;

mod memory;
mod products;
mod softmax;
mod steps;

mod plan;

mod adjoints;
mod layout;

use super::build::{Build, Seeds};
use super::node::Program;
use crate::interrupt;
use crate::simd::Level;
pub(super) use memory::Bundle;
use memory::InLanes;
pub(super) use plan::Bundles;

/// The smallest number of nodes; smaller programs run node by node.
const FEWEST_NODES: usize = 96;
/// The largest number of nodes; for more, a plan would take too much memory.
const MOST_NODES: usize = 1 << 22;

/// Whether a program has the size and the ops for bundles.
pub(super) fn may_be_worth_it(program: &Program) -> bool {
    let is_plain = program.guards().is_empty() && program.calls.is_empty();
    is_plain && (FEWEST_NODES..=MOST_NODES).contains(&program.nodes().len())
}

/// A program as bundles if that is faster or, with `always`, if it is possible; otherwise, or when interrupted, `None`.
pub(super) fn bundles<S: InLanes>(program: &Program, build: Build, level: Level, always: bool) -> Option<Bundles<S>> {
    let is_plain = program.guards().is_empty() && program.calls.is_empty();
    if !is_plain || program.nodes().len() > MOST_NODES {
        return None;
    }
    let moves = program.moves();
    let still = program.outputs().iter().any(|&x| !moves[x as usize]);
    if build.has_tangents() && still {
        return None;
    }
    let reached = reached(program, build, &moves);
    if interrupt::is_over() {
        return None;
    }
    let units = units::Units::of(program, &moves, |k| reached[k as usize]);
    let groups = order::groups(program, &units, lanes::<S>())?;
    // Gathering costs about as much as two scalar instructions.
    let in_use: usize = groups.iter().map(|group| group.units.len() * lanes_of(group.key)).sum();
    if in_use < 2 * groups.len() && !always {
        return None;
    }
    layout::plan(program, build, level, &moves, &units, &groups)
}

fn lanes<S: InLanes>() -> usize {
    use crate::scalar::Scalar;
    <S::Lanes as Scalar>::LANES
}

/// The number of lanes of a unit.
fn lanes_of(key: units::Key) -> usize {
    if key.shape == units::Shape::Softmax { softmax::width(key.n) as usize } else { 1 }
}

/// Whether an output is a seed of the reverse pass.
fn is_seed(build: Build, output: usize) -> bool {
    match build {
        Build::Reverse(Seeds::All) => true,
        Build::Reverse(Seeds::One(k)) => k == output,
        _ => false,
    }
}

/// The nodes that the reverse pass reaches; all nodes without a reverse pass.
fn reached(program: &Program, build: Build, moves: &[bool]) -> Vec<bool> {
    let first = program.first_node();
    if !matches!(build, Build::Reverse(_)) {
        return vec![true; program.nodes().len()];
    }
    let mut reached = vec![false; program.n_slots()];
    for (k, &output) in program.outputs().iter().enumerate() {
        reached[output as usize] |= is_seed(build, k);
    }
    for (k, &node) in program.nodes().iter().enumerate().rev() {
        let slot = first as usize + k;
        reached[slot] &= moves[slot];
        if reached[slot] {
            program.for_each_operand(node, |x| reached[x as usize] |= moves[x as usize]);
        }
    }
    reached.split_off(first as usize)
}
