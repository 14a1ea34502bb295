//! Where bundles find and leave numbers.
//!
//! In words: values lie in the order in which groups run, side by side within a group. What units hand back lies in the
//! order of the reverse pass, so that lanes which spill over the end of a region fall on what is stored later. An
//! adjoint is a list of contributions, in the order in which the eager sweep adds them; where only one is to be added,
//! or an op hands its adjoint on as it is, nothing is copied.
//!
//! Promises: every slot listed exists in both memories, which are equally long. Knows nothing of code.

use super::memory::{Bundle, InLanes, Run};
use super::order::{Group, for_each_operand};
use super::steps::{self, Codes};
use super::units::{Shape, Unit, Units, exponentials, operand_count};
use super::{is_seed, lanes};
use crate::ops::Op;
use crate::program::node::Program;
use crate::program::replay::Build;
use crate::simd::Level;

/// Longer lists of contributions are added up one by one beforehand.
const MOST_IN_LANES: usize = 8;

/// A program in bundles.
#[derive(Clone, Debug)]
pub(in crate::program) struct Bundles<S> {
    pub(in crate::program) forward: Vec<Bundle<S>>,
    pub(in crate::program) second: Vec<Bundle<S>>,
    /// Slots, as bundles list them.
    pub(in crate::program) slots: Vec<u32>,
    /// Length of each memory.
    pub(in crate::program) len: usize,
    /// The slots of outputs.
    pub(in crate::program) outputs: Vec<u32>,
    /// For each seed its place among the seeds and its slot.
    pub(in crate::program) seeds: Vec<(usize, u32)>,
    /// The slot of adjoints that holds -0.0, which added to anything leaves it as it is.
    pub(in crate::program) nothing: u32,
}

/// What the parts of a plan share.
struct Plan<'p, S> {
    program: &'p Program,
    moves: &'p [bool],
    units: &'p Units,
    groups: &'p [Group],
    level: Level,
    /// The slot of each node's value.
    value: Vec<u32>,
    /// The group of each unit, and its lane there.
    lane: Vec<(u32, u16)>,
    bundles: Bundles<S>,
}

/// A program in bundles; `None` where a group has no code at this level.
pub(super) fn plan<S: InLanes>(
    program: &Program,
    build: Build,
    level: Level,
    moves: &[bool],
    units: &Units,
    groups: &[Group],
) -> Option<Bundles<S>> {
    let bundles = Bundles {
        forward: Vec::new(),
        second: Vec::new(),
        slots: Vec::new(),
        len: 0,
        outputs: Vec::new(),
        seeds: Vec::new(),
        nothing: 0,
    };
    let value = vec![0; program.nodes().len()];
    let lane = vec![(0, 0); units.all.len()];
    let mut plan = Plan { program, moves, units, groups, level, value, lane, bundles };
    plan.forward()?;
    match build {
        Build::Values => {}
        Build::Tangent => plan.tangents()?,
        Build::Reverse(_) => plan.reverse(build)?,
    }
    let mut bundles = plan.bundles;
    bundles.len += lanes::<S>();
    bundles.slots.extend(std::iter::repeat_n(0, lanes::<S>()));
    Some(bundles)
}

impl<S: InLanes> Plan<'_, S> {
    fn codes(&self, group: &Group) -> Codes<S> {
        match group.key.shape {
            Shape::Lone => steps::lone_codes(group.key.op, self.level),
            _ => steps::codes(group.key.op, self.level),
        }
    }

    fn unit(&self, k: u32) -> Unit {
        self.units.all[k as usize]
    }

    /// The slot of a value.
    fn slot(&self, x: u32) -> u32 {
        x.checked_sub(self.program.first_node()).map_or(x, |node| self.value[node as usize])
    }

    /// Gives slots to values and writes the lists of operands.
    fn forward(&mut self) -> Option<()> {
        let mut next = self.program.first_node();
        for (g, group) in self.groups.iter().enumerate() {
            let (m, first) = (group.units.len() as u32, next);
            for (lane, &k) in group.units.iter().enumerate() {
                self.lane[k as usize] = (g as u32, lane as u16);
                next = next.max(self.place(self.unit(k), first + lane as u32, m) + m - lane as u32);
            }
            let operands = self.list_operands(group);
            let lone = (group.key.shape == Shape::Lone)
                .then(|| self.program.nodes()[self.unit(group.units[0]).node as usize].b);
            self.bundles.forward.push(Bundle {
                run: self.codes(group).value?,
                operands,
                adjoints: 0,
                values: first,
                to: 0,
                m: m as u16,
                n: lone.map_or(group.key.n, |n| n as u16),
                k: 0,
                moving: lone.map_or(group.key.moving, |n| (n >> 16) as u16),
                op: group.key.op,
                scaled: group.key.scaled,
            });
        }
        self.bundles.len = next as usize;
        self.bundles.outputs = self.program.outputs().iter().map(|&x| self.slot(x)).collect();
        Some(())
    }

    /// Places the nodes of a unit, `m` slots apart; returns the slot of the last.
    fn place(&mut self, unit: Unit, first: u32, m: u32) -> u32 {
        if unit.key.shape == Shape::Softmax {
            let n = u32::from(unit.key.n);
            for (j, k) in exponentials(self.program, unit.node).enumerate() {
                self.value[k as usize] = first + j as u32 * m;
            }
            self.value[unit.node as usize] = first + n * m;
            for (j, &k) in self.units.results(unit).iter().enumerate() {
                self.value[k as usize] = first + (n + 1 + j as u32) * m;
            }
            return first + 2 * n * m;
        }
        self.value[unit.node as usize] = first;
        if unit.key.scaled {
            self.value[unit.last as usize] = first + m;
            return first + m;
        }
        first
    }

    /// Lists operands: the first of each unit, the second of each ...; for a lone node also which of them move.
    fn list_operands(&mut self, group: &Group) -> u32 {
        let at = self.bundles.slots.len();
        let of_each: Vec<Vec<u32>> = group.units.iter().map(|&k| self.operands(self.unit(k))).collect();
        for j in 0..of_each[0].len() {
            for operands in &of_each {
                let slot = self.slot(operands[j]);
                self.bundles.slots.push(slot);
            }
        }
        if group.key.shape == Shape::Lone {
            let moving = of_each[0].iter().map(|&x| u32::from(self.moves[x as usize]));
            self.bundles.slots.extend(moving);
        }
        at as u32
    }

    fn operands(&self, unit: Unit) -> Vec<u32> {
        let mut operands = Vec::new();
        for_each_operand(self.program, unit, |x| operands.push(x));
        operands
    }

    /// Tangents lie as values do.
    fn tangents(&mut self) -> Option<()> {
        for (group, bundle) in self.groups.iter().zip(self.bundles.forward.clone()) {
            if self.group_moves(group) {
                self.bundles.second.push(Bundle { run: self.codes(group).push?, ..bundle });
            }
        }
        Some(())
    }

    fn group_moves(&self, group: &Group) -> bool {
        group.key.op != Op::Constant && (group.key.moving != 0 || group.key.shape == Shape::Lone)
    }

    fn reverse(&mut self, build: Build) -> Option<()> {
        let mut adjoints = Adjoints::new(self, build);
        adjoints.hand_back(self);
        let mut next = adjoints.next + lanes::<S>() as u32;
        for g in (0..self.groups.len()).rev() {
            if adjoints.runs[g] {
                let run = self.codes(&self.groups[g]).pull?;
                let bundle = self.pull(g, run, &mut adjoints, &mut next)?;
                self.bundles.second.push(bundle);
            }
        }
        self.gradients(&mut adjoints, &mut next)?;
        self.bundles.seeds = adjoints.seeds;
        self.bundles.nothing = adjoints.nothing;
        self.bundles.len = self.bundles.len.max(next as usize);
        Some(())
    }

    /// The reverse pass of a group. Long lists of contributions are added up first, into slots from `next`.
    fn pull(&mut self, g: usize, run: Run<S>, adjoints: &mut Adjoints, next: &mut u32) -> Option<Bundle<S>> {
        let group = &self.groups[g];
        let (units, groups) = (self.units, self.groups);
        let n_results = if group.key.shape == Shape::Softmax { group.key.n } else { 1 };
        let mut lists: Vec<Vec<u32>> = Vec::new();
        for j in 0..usize::from(n_results) {
            for &k in &groups[g].units {
                let unit = self.unit(k);
                let node = units.results(unit).get(j).copied().unwrap_or(unit.last);
                let list = std::mem::take(&mut adjoints.of[(self.program.first_node() + node) as usize]);
                lists.push(self.shortened(list, next)?);
            }
        }
        let (at, k) = self.list_adjoints(&lists, groups[g].units.len(), adjoints.nothing);
        Some(Bundle { run, adjoints: at, to: adjoints.to[g], k, ..self.bundles.forward[g] })
    }

    /// Lists contributions, padded to equal length: for each run of `m` lists the first of each, the second of each ...
    fn list_adjoints(&mut self, lists: &[Vec<u32>], m: usize, nothing: u32) -> (u32, u16) {
        let at = self.bundles.slots.len() as u32;
        let k = lists.iter().map(Vec::len).max().unwrap_or(0).max(1);
        for of_one_result in lists.chunks(m) {
            for j in 0..k {
                self.bundles.slots.extend(of_one_result.iter().map(|list| list.get(j).copied().unwrap_or(nothing)));
            }
        }
        (at, k as u16)
    }

    /// A list, or where it is long the slot to which its sum goes.
    fn shortened(&mut self, list: Vec<u32>, next: &mut u32) -> Option<Vec<u32>> {
        if list.len() <= MOST_IN_LANES {
            return Some(list);
        }
        let to = *next;
        *next += 1;
        let adjoints = self.bundles.slots.len() as u32;
        let n = list.len();
        self.bundles.slots.extend(list);
        self.bundles.second.push(Bundle {
            run: steps::gathered(self.level)?,
            operands: 0,
            adjoints,
            values: 0,
            to,
            m: 1,
            n: n as u16,
            k: 0,
            moving: (n >> 16) as u16,
            op: Op::ReduceSum,
            scaled: false,
        });
        Some(vec![to])
    }

    fn gradients(&mut self, adjoints: &mut Adjoints, next: &mut u32) -> Option<()> {
        let n = self.program.n_differentiated();
        for first in (0..n).step_by(lanes::<S>()) {
            let m = lanes::<S>().min(n - first);
            let mut lists = Vec::with_capacity(m);
            for x in first..first + m {
                lists.push(self.shortened(std::mem::take(&mut adjoints.of[x]), next)?);
            }
            let (at, k) = self.list_adjoints(&lists, m, adjoints.nothing);
            self.bundles.second.push(Bundle {
                run: steps::gradients(self.level)?,
                operands: 0,
                adjoints: at,
                values: 0,
                to: first as u32,
                m: m as u16,
                n: 0,
                k,
                moving: 0,
                op: Op::ReduceSum,
                scaled: false,
            });
        }
        Some(())
    }
}

/// The contributions to every slot of the program.
struct Adjoints {
    of: Vec<Vec<u32>>,
    seeds: Vec<(usize, u32)>,
    nothing: u32,
    /// For each group the first slot of what it hands back.
    to: Vec<u32>,
    /// Whether a group has anything to do.
    runs: Vec<bool>,
    /// Behind everything that is handed back.
    next: u32,
}

impl Adjoints {
    /// Gives slots: gradients, -0.0, seeds, then what groups hand back, the last group first.
    fn new<S: InLanes>(plan: &Plan<'_, S>, build: Build) -> Self {
        let mut of = vec![Vec::new(); plan.program.n_slots()];
        let nothing = plan.program.n_differentiated + lanes::<S>() as u32;
        let mut next = nothing + 1;
        let mut seeds = Vec::new();
        for (k, &output) in plan.program.outputs().iter().enumerate() {
            if is_seed(build, k) && plan.moves[output as usize] {
                let place = if matches!(build, Build::Reverse(crate::program::replay::Seeds::All)) { k } else { 0 };
                seeds.push((place, next));
                of[output as usize].push(next);
                next += 1;
            }
        }
        let mut to = vec![0; plan.groups.len()];
        for (g, group) in plan.groups.iter().enumerate().rev() {
            to[g] = next;
            next += n_handed_back(plan, group) * group.units.len() as u32;
        }
        let runs = vec![false; plan.groups.len()];
        Adjoints { of, seeds, nothing, to, runs, next }
    }

    /// Takes the nodes in the order of the eager sweep and lists what they contribute.
    fn hand_back<S: InLanes>(&mut self, plan: &Plan<'_, S>) {
        let first = plan.program.first_node();
        for node in (0..plan.program.nodes().len() as u32).rev() {
            let k = plan.units.of[node as usize];
            let unit = plan.unit(k);
            let (g, lane) = plan.lane[k as usize];
            let (g, m) = (g as usize, plan.groups[g as usize].units.len() as u32);
            let to = self.to[g] + u32::from(lane);
            if unit.key.shape == Shape::Softmax {
                if let Some(j) = exponentials(plan.program, unit.node).position(|exp| exp == node) {
                    self.runs[g] = true;
                    self.of[plan.program.nodes()[node as usize].a as usize].push(to + j as u32 * m);
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
                    self.of[x as usize].push(same.unwrap_or(if through { to } else { to + j * m }));
                }
                j += 1;
            });
        }
    }
}

/// How many numbers a unit of this group hands back.
fn n_handed_back<S>(plan: &Plan<'_, S>, group: &Group) -> u32 {
    match group.key.shape {
        _ if steps::hands_through(group.key.op) => 1,
        Shape::Copy => 0,
        Shape::One => 1,
        Shape::Two => 2,
        Shape::Many | Shape::Softmax => u32::from(group.key.n),
        Shape::Lone => {
            let node = plan.program.nodes()[plan.units.all[group.units[0] as usize].node as usize];
            operand_count(node.op, node.b as usize) as u32
        }
    }
}
