//! The contributions of units to the adjoints of their operands, in the order of the eager backward pass.
//!
//! Promises: every contribution is listed once, and a unit without contributions does not run. Does not know code.

use super::memory::InLanes;
use super::order::Group;
use super::plan::{BundlePlan, stride};
use super::units::{Shape, exponentials, operand_count};
use super::{is_seed, lanes, steps};
use crate::interrupt;
use crate::program::build::{Build, Seeds};

/// The contributions to every slot of the program.
pub(super) struct Adjoints {
    pub(super) of: Vec<Vec<u32>>,
    pub(super) seeds: Vec<(usize, u32)>,
    pub(super) nothing: u32,
    /// For each group, the first slot of its contributions.
    pub(super) to: Vec<u32>,
    /// Whether a group contributes anything.
    pub(super) runs: Vec<bool>,
    /// The first slot after all contributions.
    pub(super) next: u32,
}

impl Adjoints {
    /// Assigns slots: gradients, -0.0, seeds, then the contributions of groups, the last group first.
    pub(super) fn new<S: InLanes>(plan: &BundlePlan<'_, S>, build: Build) -> Self {
        let mut of = vec![Vec::new(); plan.program.n_slots()];
        let nothing = plan.program.n_differentiated + lanes::<S>() as u32;
        let mut next = nothing + 1;
        let mut seeds = Vec::new();
        for (k, &output) in plan.program.outputs().iter().enumerate() {
            if is_seed(build, k) && plan.moves[output as usize] {
                let place = if matches!(build, Build::Reverse(Seeds::All)) { k } else { 0 };
                seeds.push((place, next));
                of[output as usize].push(next);
                next += 1;
            }
        }
        let mut to = vec![0; plan.groups.len()];
        for (g, group) in plan.groups.iter().enumerate().rev() {
            let stride = stride::<S>(group);
            to[g] = next.next_multiple_of(stride);
            next = to[g] + n_handed_back(plan, group) * stride;
        }
        let runs = vec![false; plan.groups.len()];
        Adjoints { of, seeds, nothing, to, runs, next }
    }

    /// Lists the contributions of nodes in the order of the eager backward pass.
    pub(super) fn hand_back<S: InLanes>(&mut self, plan: &BundlePlan<'_, S>) -> Option<()> {
        let first = plan.program.first_node();
        for node in (0..plan.program.nodes().len() as u32).rev() {
            interrupt::ask_at(8 * node as usize).ok()?;
            let k = plan.units.of[node as usize];
            let unit = plan.unit(k);
            let (g, lane) = plan.lane[k as usize];
            let (g, stride) = (g as usize, stride::<S>(&plan.groups[g as usize]));
            let to = self.to[g] + u32::from(lane);
            if unit.key.shape == Shape::Softmax {
                if let Some(j) = exponentials(plan.program, unit.node).position(|exp| exp == node) {
                    self.runs[g] = true;
                    self.of[plan.program.nodes()[node as usize].a as usize].push(to + j as u32);
                }
                continue;
            }
            let slot = (first + unit.last) as usize;
            if node != unit.node || self.of[slot].is_empty() || !plan.moves[slot] {
                continue;
            }
            let through = steps::hands_through(unit.key.op);
            let same = (through && !unit.key.scaled && self.of[slot].len() == 1).then(|| self.of[slot][0]);
            self.runs[g] |= same.is_none();
            let mut j = 0;
            plan.program.for_each_operand(plan.program.nodes()[node as usize], |x| {
                if plan.moves[x as usize] {
                    self.of[x as usize].push(same.unwrap_or(if through { to } else { to + j * stride }));
                }
                j += 1;
            });
        }
        Some(())
    }
}

/// The number of contributions per lane of this group.
fn n_handed_back<S>(plan: &BundlePlan<'_, S>, group: &Group) -> u32 {
    match group.key.shape {
        _ if steps::hands_through(group.key.op) => 1,
        Shape::Copy => 0,
        Shape::One | Shape::Softmax => 1,
        Shape::Two => 2,
        Shape::Many => u32::from(group.key.n),
        Shape::Lone => {
            let node = plan.program.nodes()[plan.units.all[group.units[0] as usize].node as usize];
            operand_count(node.op, node.b as usize) as u32
        }
    }
}
