//! The order of units, and which of them run together.
//!
//! In words: list scheduling. Among the ready units, the one with the longest path to the end determines the next kind;
//! up to a vector's lanes of that kind form a group. Paths are measured in cycles of units, and a result counts as
//! computed only some cycles after its group was chosen: a CPU that looks a few groups ahead then finds independent
//! groups among them. On the random graph of the bench that saves a sixth.
//!
//! Promises: a group comes after everything that it reads, so the reverse order of groups is valid for a reverse pass.
//! Does not know slots.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::units::{Key, Shape, Unit, Units, exponentials};
use crate::interrupt::{self, Work};
use crate::ops::Op;
use crate::program::node::Program;

/// Calls `f` with every slot that a unit reads and does not compute, in the order of its formulas; for a scaled unit,
/// then with its constant.
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

/// The largest group of units in half a vector.
const HALF: usize = 4;

/// Whether units of this kind use half a vector: sums and products of four units take fewer cycles from load to store
/// than of eight, and rare ops have only this code.
fn takes_half(key: Key) -> bool {
    key.shape == Shape::Many || key.op.info().is.rare
}

/// Units with the same key, by number.
pub(super) struct Group {
    pub(super) key: Key,
    pub(super) units: Vec<u32>,
}

/// Approximate cycles until the results of a unit can be used, and until the next group can start.
fn cycles(key: Key) -> (u64, u64) {
    let is_arithmetic = key.op == Op::Constant || key.op.info().is.quick;
    match key.shape {
        Shape::Lone => (200, 100),
        Shape::Softmax => (115, 40),
        _ if is_arithmetic => (48, 25),
        _ => (165, 50),
    }
}

/// A unit with its distance to the end: longest first, then by number.
type Candidate = (u64, Reverse<u32>);

/// The units that are ready, and those that will be.
struct Queue<'u> {
    units: &'u Units,
    heights: Vec<u64>,
    ready: HashMap<Key, BinaryHeap<Candidate>>,
    /// The time at which its operands are computed, and the unit.
    later: BinaryHeap<Reverse<(u64, u32)>>,
    now: u64,
}

impl Queue<'_> {
    fn add(&mut self, k: u32) {
        let key = self.units.all[k as usize].key;
        self.ready.entry(key).or_default().push((self.heights[k as usize], Reverse(k)));
    }

    /// Moves the units that are ready by now; if there are none, advances to the first that will be.
    fn move_on(&mut self) {
        if self.ready.values().all(BinaryHeap::is_empty)
            && let Some(&Reverse((at, _))) = self.later.peek()
        {
            self.now = self.now.max(at);
        }
        while let Some(&Reverse((at, k))) = self.later.peek()
            && at <= self.now
        {
            self.later.pop();
            self.add(k);
        }
    }

    /// The units of the next group; `None` at the end.
    fn take(&mut self, lanes: usize) -> Option<Group> {
        let tops = self.ready.iter().filter_map(|(key, heap)| heap.peek().map(|&top| (top, *key)));
        let (_, key) = tops.max_by_key(|x| x.0)?;
        let lanes = if takes_half(key) { lanes.min(HALF) } else { lanes };
        let most = if key.shape == Shape::Lone { 1 } else { lanes / super::lanes_of(key) };
        let heap = self.ready.get_mut(&key)?;
        let units = std::iter::from_fn(|| heap.pop()).take(most).map(|top| top.1.0).collect();
        Some(Group { key, units })
    }
}

/// All units in groups of up to `lanes`; `None` when interrupted.
pub(super) fn groups(program: &Program, units: &Units, lanes: usize) -> Option<Vec<Group>> {
    let n = units.all.len();
    let first = program.first_node();
    let (mut waits_for, mut users) = (vec![0_u32; n], vec![Vec::new(); n]);
    for (k, &unit) in units.all.iter().enumerate() {
        interrupt::ask_at(8 * k).ok()?;
        for_each_operand(program, unit, |x| {
            if let Some(node) = x.checked_sub(first) {
                waits_for[k] += 1;
                users[units.of[node as usize] as usize].push(k as u32);
            }
        });
    }
    let heights = heights(units, &waits_for, &users);
    let mut queue = Queue { units, heights, ready: HashMap::new(), later: BinaryHeap::new(), now: 0 };
    (0..n as u32).filter(|&k| waits_for[k as usize] == 0).for_each(|k| queue.add(k));
    let mut computed = vec![0_u64; n];
    let mut groups = Vec::new();
    let mut work = Work::default();
    while let Some(group) = queue.take(lanes) {
        work.add(64 * group.units.len()).ok()?;
        let (latency, cost) = cycles(group.key);
        // Half the latency, because the CPU reorders instructions itself.
        let at = queue.now + latency / 2;
        for &user in group.units.iter().flat_map(|&k| &users[k as usize]) {
            let user_at = &mut computed[user as usize];
            *user_at = at.max(*user_at);
            waits_for[user as usize] -= 1;
            if waits_for[user as usize] == 0 {
                queue.later.push(Reverse((*user_at, user)));
            }
        }
        groups.push(group);
        queue.now += cost;
        queue.move_on();
    }
    Some(groups)
}

/// For each unit the cycles on the longest path from it to the end.
fn heights(units: &Units, waits_for: &[u32], users: &[Vec<u32>]) -> Vec<u64> {
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
    let mut heights = vec![0_u64; left.len()];
    for &k in order.iter().rev() {
        let beyond = users[k as usize].iter().map(|&user| heights[user as usize]).max().unwrap_or(0);
        heights[k as usize] = cycles(units.all[k as usize].key).0 + beyond;
    }
    heights
}
