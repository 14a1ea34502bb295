//! The order in which units run, and which of them run together.
//!
//! In words: list scheduling. Of the units whose operands are computed, the one with the longest way to the end decides
//! what kind comes next; up to a vector's lanes of that kind go together.
//!
//! Promises: a group comes after everything that it reads, so the groups backwards are an order for a reverse pass. Knows
//! nothing of slots.

use std::collections::{BinaryHeap, HashMap};

use super::units::{Key, Shape, Unit, Units, exponentials};
use crate::program::node::Program;

/// Calls `f` with every slot that a unit reads and does not compute, in the order of its formulas; then, for a scaled
/// one, with its constant.
pub(super) fn for_each_operand(program: &Program, unit: Unit, mut f: impl FnMut(u32)) {
    if unit.key.shape == Shape::Softmax {
        exponentials(program, unit.node).for_each(|k| f(program.nodes()[k as usize].a));
        return;
    }
    program.for_each_operand(program.nodes()[unit.node as usize], &mut f);
    if unit.key.scaled {
        f(program.nodes()[unit.last as usize].b);
    }
}

/// Units of one key, by number.
pub(super) struct Group {
    pub(super) key: Key,
    pub(super) units: Vec<u32>,
}

/// All units in groups of up to `lanes`.
pub(super) fn groups(program: &Program, units: &Units, lanes: usize) -> Vec<Group> {
    let n = units.all.len();
    let first = program.first_node();
    let (mut waits_for, mut users) = (vec![0_u32; n], vec![Vec::new(); n]);
    for (k, &unit) in units.all.iter().enumerate() {
        for_each_operand(program, unit, |x| {
            if let Some(node) = x.checked_sub(first) {
                waits_for[k] += 1;
                users[units.of[node as usize] as usize].push(k as u32);
            }
        });
    }
    let heights = heights(&waits_for, &users);
    let mut ready: HashMap<Key, BinaryHeap<(u32, std::cmp::Reverse<u32>)>> = HashMap::new();
    let add = |ready: &mut HashMap<Key, BinaryHeap<_>>, k: u32| {
        ready.entry(units.all[k as usize].key).or_default().push((heights[k as usize], std::cmp::Reverse(k)));
    };
    (0..n as u32).filter(|&k| waits_for[k as usize] == 0).for_each(|k| add(&mut ready, k));
    let mut groups = Vec::new();
    loop {
        let next = ready.iter().filter_map(|(key, heap)| heap.peek().map(|&top| (top, *key))).max_by_key(|x| x.0);
        let Some((_, key)) = next else { return groups };
        let most = if key.shape == Shape::Lone { 1 } else { lanes };
        let Some(heap) = ready.get_mut(&key) else { return groups };
        let taken: Vec<u32> = std::iter::from_fn(|| heap.pop()).take(most).map(|top| top.1.0).collect();
        for &k in &taken {
            for &user in &users[k as usize] {
                waits_for[user as usize] -= 1;
                if waits_for[user as usize] == 0 {
                    add(&mut ready, user);
                }
            }
        }
        groups.push(Group { key, units: taken });
    }
}

/// For each unit the number of units on the longest way from it to the end.
fn heights(waits_for: &[u32], users: &[Vec<u32>]) -> Vec<u32> {
    let mut left = waits_for.to_vec();
    let mut order: Vec<u32> = (0..left.len() as u32).filter(|&k| left[k as usize] == 0).collect();
    let mut at = 0;
    while at < order.len() {
        for &user in &users[order[at] as usize] {
            left[user as usize] -= 1;
            if left[user as usize] == 0 {
                order.push(user);
            }
        }
        at += 1;
    }
    let mut heights = vec![0_u32; left.len()];
    for &k in order.iter().rev() {
        heights[k as usize] = 1 + users[k as usize].iter().map(|&user| heights[user as usize]).max().unwrap_or(0);
    }
    heights
}
