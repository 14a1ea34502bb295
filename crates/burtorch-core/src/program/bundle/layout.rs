//! The layout of the numbers that bundles read and write.
//!
//! In words: values are ordered by group, contiguous within a group, with each vector in one cache line. Contributions
//! are in the order of the reverse pass. Unused lanes have space of their own; those after a lone number overlap memory
//! that is stored later. An adjoint is a list of contributions, in the order in which the eager backward pass adds
//! them; a single contribution, or an adjoint that is passed on unchanged, is not copied.
//!
//! Promises: every listed slot exists in both memories, which have the same length. Does not know code.

use super::adjoints::Adjoints;
use super::memory::{Bundle, InLanes, NO_HEAD, Run};
use super::order::{Group, for_each_operand};
use super::plan::{BundlePlan, Bundles, in_use, stride};
use super::steps::{self, Codes};
use super::units::{Shape, Unit, Units, exponentials};
use super::{lanes, lanes_of};
use crate::interrupt;
use crate::ops::Op;
use crate::program::build::Build;
use crate::program::node::Program;
use crate::simd::Level;

/// Longer lists of contributions are summed separately first.
const MOST_IN_LANES: usize = 8;

/// A program as bundles; `None` if a group has no code at this level.
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
    let mut plan = BundlePlan { program, moves, units, groups, level, build, value, lane, bundles };
    plan.forward()?;
    match build {
        Build::Values => {}
        Build::Tangent | Build::ValuesWithTangents => plan.tangents()?,
        Build::Reverse(_) => plan.reverse()?,
    }
    let mut bundles = plan.bundles;
    bundles.forward.push(Bundle::stop());
    bundles.second.push(Bundle::stop());
    bundles.len += lanes::<S>();
    bundles.slots.extend(std::iter::repeat_n(0, lanes::<S>()));
    Some(bundles)
}

impl<S: InLanes> BundlePlan<'_, S> {
    fn codes(&self, group: &Group) -> Codes<S> {
        match group.key.shape {
            Shape::Lone => steps::lone_codes(group.key.op, self.level),
            _ => self
                .keeping_codes(group)
                .unwrap_or_else(|| steps::codes(group.key.op, in_use(group) as usize, self.level)),
        }
    }

    /// The code of a group that keeps partials for the reverse pass.
    fn keeping_codes(&self, group: &Group) -> Option<Codes<S>> {
        let pays = steps::n_kept(group.key) > 0 && group.key.moving != 0;
        let pays = pays && matches!(self.build, Build::Reverse(_));
        if pays { steps::keeping_codes(group.key.op, in_use(group) as usize, self.level) } else { None }
    }

    pub(super) fn unit(&self, k: u32) -> Unit {
        self.units.all[k as usize]
    }

    /// The slot of a value.
    fn slot(&self, x: u32) -> u32 {
        x.checked_sub(self.program.first_node()).map_or(x, |node| self.value[node as usize])
    }

    /// Assigns slots to values and writes the lists of operands.
    fn forward(&mut self) -> Option<()> {
        let mut next = self.program.first_node();
        for (g, group) in self.groups.iter().enumerate() {
            interrupt::ask_at(64 * g).ok()?;
            let (m, stride) = (in_use(group), stride::<S>(group));
            let first = next.next_multiple_of(stride);
            for (k, lane) in group.units.iter().zip((0..).step_by(lanes_of(group.key))) {
                self.lane[*k as usize] = (g as u32, lane as u16);
                next = first + self.place(self.unit(*k), first + lane, stride) * stride;
            }
            if self.keeping_codes(group).is_some() {
                next += steps::n_kept(group.key) * stride;
            }
            let operands = self.list_operands(group);
            let one_constant = group.key.scaled && self.have_one_constant(group);
            let listed = operands + u32::from(group.key.n) * m;
            let constants = if one_constant { self.bundles.slots[listed as usize] } else { listed };
            let lone = (group.key.shape == Shape::Lone)
                .then(|| self.program.nodes()[self.unit(group.units[0]).node as usize].b);
            self.bundles.forward.push(Bundle {
                run: self.codes(group).value?,
                operands,
                constants,
                adjoints: 0,
                head: NO_HEAD,
                values: first,
                to: 0,
                m: m as u16,
                n: lone.map_or(group.key.n, |n| n as u16),
                k: 0,
                moving: lone.map_or(group.key.moving, |n| (n >> 16) as u16),
                op: group.key.op,
                scaled: group.key.scaled,
                one_constant,
            });
        }
        self.bundles.len = next as usize;
        self.bundles.outputs = self.program.outputs().iter().map(|&x| self.slot(x)).collect();
        Some(())
    }

    /// Assigns slots to the nodes of a unit, the first at `at`, `stride` slots apart; returns the number of vectors
    /// used.
    fn place(&mut self, unit: Unit, at: u32, stride: u32) -> u32 {
        if unit.key.shape == Shape::Softmax {
            for (slot, k) in (at..).zip(exponentials(self.program, unit.node)) {
                self.value[k as usize] = slot;
            }
            self.value[unit.node as usize] = at + stride;
            for (slot, &k) in (at + 2 * stride..).zip(self.units.results(unit)) {
                self.value[k as usize] = slot;
            }
            return 3;
        }
        self.value[unit.node as usize] = at;
        if unit.key.scaled {
            self.value[unit.last as usize] = at + stride;
            return 2;
        }
        1
    }

    /// Whether all units of a scaled group have the same constant.
    fn have_one_constant(&self, group: &Group) -> bool {
        let constant = |k: u32| {
            let node = self.program.nodes()[self.unit(k).last as usize];
            self.program.constant(node.b).map(f64::to_bits)
        };
        let first = constant(group.units[0]);
        first.is_some() && group.units.iter().all(|&k| constant(k) == first)
    }

    /// Lists operands: the first of each unit, the second of each, ...; those of a softmax in sequence, filled up with
    /// its first; for a lone node also which of them depend on inputs.
    fn list_operands(&mut self, group: &Group) -> u32 {
        let at = self.bundles.slots.len();
        let of_each: Vec<Vec<u32>> = group.units.iter().map(|&k| self.operands(self.unit(k))).collect();
        if group.key.shape == Shape::Softmax {
            for operands in &of_each {
                for j in 0..lanes_of(group.key) {
                    let slot = self.slot(operands.get(j).copied().unwrap_or(operands[0]));
                    self.bundles.slots.push(slot);
                }
            }
            return at as u32;
        }
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

    /// Tangents have the same layout as values.
    fn tangents(&mut self) -> Option<()> {
        let values = std::mem::take(&mut self.bundles.forward);
        for (group, &bundle) in self.groups.iter().zip(&values) {
            let tangents =
                if self.group_moves(group) { Some(Bundle { run: self.codes(group).push?, ..bundle }) } else { None };
            self.bundles.forward.push(bundle);
            match self.build {
                Build::Tangent => self.bundles.second.extend(tangents),
                _ => self.bundles.forward.extend(tangents),
            }
        }
        Some(())
    }

    fn group_moves(&self, group: &Group) -> bool {
        group.key.op != Op::Constant && (group.key.moving != 0 || group.key.shape == Shape::Lone)
    }

    fn reverse(&mut self) -> Option<()> {
        let mut adjoints = Adjoints::new(self, self.build);
        adjoints.hand_back(self)?;
        let mut next = adjoints.next + lanes::<S>() as u32;
        for g in (0..self.groups.len()).rev() {
            interrupt::ask_at(64 * g).ok()?;
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

    /// The reverse pass of a group. Long lists of contributions are summed first, into slots from `next`.
    fn pull(&mut self, g: usize, run: Run<S>, adjoints: &mut Adjoints, next: &mut u32) -> Option<Bundle<S>> {
        let (units, groups) = (self.units, self.groups);
        let group = &groups[g];
        let mut lists: Vec<Vec<u32>> = Vec::new();
        for &k in &group.units {
            let unit = self.unit(k);
            for j in 0..lanes_of(group.key) {
                let is_softmax = group.key.shape == Shape::Softmax;
                let node = if is_softmax { units.results(unit).get(j).copied() } else { Some(unit.last) };
                let Some(node) = node else {
                    lists.push(Vec::new());
                    continue;
                };
                let list = std::mem::take(&mut adjoints.of[(self.program.first_node() + node) as usize]);
                lists.push(self.shortened(list, next)?);
            }
        }
        let (at, k, head) = self.list_adjoints(&mut lists, adjoints.nothing);
        Some(Bundle { run, adjoints: at, head, to: adjoints.to[g], k, ..self.bundles.forward[g] })
    }

    /// Lists contributions: the first of each lane, the second of each, ...; shorter lists are padded at the front, so
    /// that the last contribution comes last in all. A first contribution shared by all lanes, as from a sum over
    /// everything, is removed and returned. The lanes of empty lists are unused.
    fn list_adjoints(&mut self, lists: &mut [Vec<u32>], nothing: u32) -> (u32, u16, u32) {
        let at = self.bundles.slots.len() as u32;
        let mut heads = lists.iter().filter_map(|list| list.first().copied());
        let first = heads.next();
        let head = first.filter(|&first| heads.all(|head| head == first));
        if head.is_some() {
            for list in lists.iter_mut().filter(|list| !list.is_empty()) {
                list.remove(0);
            }
        }
        let least = usize::from(head.is_none());
        let k = lists.iter().map(Vec::len).max().unwrap_or(0).max(least);
        for j in 0..k {
            let entry = |list: &Vec<u32>| (j + list.len()).checked_sub(k).map_or(nothing, |at| list[at]);
            self.bundles.slots.extend(lists.iter().map(entry));
        }
        (at, k as u16, head.unwrap_or(NO_HEAD))
    }

    /// The list itself, or for a long list the slot of its sum.
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
            constants: 0,
            adjoints,
            head: NO_HEAD,
            values: 0,
            to,
            m: 1,
            n: n as u16,
            k: 0,
            moving: (n >> 16) as u16,
            op: Op::TOTAL,
            scaled: false,
            one_constant: false,
        });
        Some(vec![to])
    }

    fn gradients(&mut self, adjoints: &mut Adjoints, next: &mut u32) -> Option<()> {
        let n = self.program.n_differentiated();
        for first in (0..n).step_by(lanes::<S>()) {
            let m = lanes::<S>().min(n - first);
            let mut lists = Vec::with_capacity(m);
            for x in first..first + m {
                let mut list = std::mem::take(&mut adjoints.of[x]);
                if list.is_empty() {
                    list.push(adjoints.nothing);
                }
                lists.push(self.shortened(list, next)?);
            }
            let (at, k, head) = self.list_adjoints(&mut lists, adjoints.nothing);
            self.bundles.second.push(Bundle {
                run: steps::gradients(m, self.level)?,
                operands: 0,
                constants: 0,
                adjoints: at,
                head,
                values: 0,
                to: first as u32,
                m: m as u16,
                n: 0,
                k,
                moving: 0,
                op: Op::TOTAL,
                scaled: false,
                one_constant: false,
            });
        }
        Some(())
    }
}
