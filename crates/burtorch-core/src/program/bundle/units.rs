//! Units of a program: the nodes computed together, either a single one or the few of a superinstruction.
//!
//! In words: an explicit softmax (`exp` of some numbers, their sum, each divided by the sum) is one unit; so is an op
//! whose only use is a multiplication by a constant; every other node is a separate unit.
//!
//! Promises: every node belongs to exactly one unit; intermediate results of a unit are used nowhere else. Does not
//! know the order in which units run.

use crate::ops::{Arity, Op};
use crate::program::node::{Node, Program, list_len};

/// The largest number of operands of a unit in lanes.
pub(super) const MOST_OPERANDS: usize = 15;
/// The largest softmax in lanes; a larger one is computed node by node.
pub(super) const MOST_SOFTMAX: usize = 8;

/// The computation of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// A copy that blocks gradients.
    Copy,
    /// A unary op.
    One,
    /// A binary op, or an op with a constant.
    Two,
    /// A reduction of few operands.
    Many,
    /// Exponentials, their sum, their quotients.
    Softmax,
    /// A reduction of many operands, or an inner product: one node at a time.
    Lone,
}

/// Units with equal keys may run in the lanes of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) shape: Shape,
    pub(super) op: Op,
    /// Operands per unit.
    pub(super) n: u16,
    /// A bit mask of the operands that depend on inputs; all bits if there are more operands than bits.
    pub(super) moving: u16,
    /// Whether the result is multiplied by a constant.
    pub(super) scaled: bool,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) key: Key,
    /// The node; for a softmax, the sum.
    pub(super) node: u32,
    /// The node that is its multiple; for a softmax, the start of the list of its quotients.
    pub(super) last: u32,
}

/// All units of a program.
pub(super) struct Units {
    pub(super) all: Vec<Unit>,
    /// The quotients of softmaxes, as nodes.
    pub(super) quotients: Vec<u32>,
    /// The unit of each node.
    pub(super) of: Vec<u32>,
}

impl Units {
    /// The units of a program. `is_reached` tells which nodes the reverse pass reaches, if there is one.
    pub(super) fn of(program: &Program, moves: &[bool], is_reached: impl Fn(u32) -> bool) -> Self {
        let uses = uses(program);
        let mut units = Units { all: Vec::new(), quotients: Vec::new(), of: vec![u32::MAX; program.nodes().len()] };
        let softmaxes = softmaxes(program, moves, &uses, is_reached);
        for (sum, quotients) in softmaxes {
            let n = quotients.len() as u16;
            let key = Key { shape: Shape::Softmax, op: Op::Softmax, n, moving: u16::MAX, scaled: false };
            let unit = units.all.len() as u32;
            units.all.push(Unit { key, node: sum, last: units.quotients.len() as u32 });
            for node in std::iter::once(sum).chain(quotients.iter().copied()).chain(exponentials(program, sum)) {
                units.of[node as usize] = unit;
            }
            units.quotients.extend(quotients);
        }
        for k in 0..program.nodes().len() as u32 {
            if units.of[k as usize] == u32::MAX {
                units.add(program, moves, &uses, k);
            }
        }
        units
    }

    /// Adds a unit for node `k`, including the multiple if that is its only use.
    fn add(&mut self, program: &Program, moves: &[bool], uses: &[u32], k: u32) {
        let node = program.nodes()[k as usize];
        let unit = self.all.len() as u32;
        if let Some(inner) = scaled_operand(program, uses, node)
            && self.of[inner as usize] != u32::MAX
        {
            // The operand's unit exists already, and absorbs the multiple.
            let unit = self.of[inner as usize];
            let taken = &mut self.all[unit as usize];
            if !taken.key.scaled && matches!(taken.key.shape, Shape::One | Shape::Two | Shape::Many) {
                taken.key.scaled = true;
                taken.last = k;
                self.of[k as usize] = unit;
                return;
            }
        }
        self.of[k as usize] = unit;
        self.all.push(Unit { key: key(program, moves, node), node: k, last: k });
    }

    /// The results that other units read.
    pub(super) fn results(&self, unit: Unit) -> &[u32] {
        if unit.key.shape == Shape::Softmax {
            &self.quotients[unit.last as usize..][..unit.key.n as usize]
        } else {
            &[]
        }
    }
}

/// The number of uses of each slot; more than one for outputs and guards.
fn uses(program: &Program) -> Vec<u32> {
    let mut uses = vec![0_u32; program.n_slots()];
    for &node in program.nodes() {
        program.for_each_operand(node, |x| uses[x as usize] += 1);
    }
    for &slot in program.outputs().iter().chain(program.guards().iter().flat_map(|g| [&g.a, &g.b])) {
        uses[slot as usize] += 2;
    }
    uses
}

fn key(program: &Program, moves: &[bool], node: Node) -> Key {
    let mut moving = 0_u16;
    let mut n = 0;
    program.for_each_operand(node, |x| {
        if moves[x as usize] {
            moving |= 1 << n.min(15);
        }
        n += 1;
    });
    let shape = match node.op.info().arity {
        Arity::Nullary => Shape::Copy,
        Arity::Unary => Shape::One,
        Arity::Binary | Arity::WithConstant => Shape::Two,
        Arity::Reduction if list_len(node).is_some_and(|n| n <= MOST_OPERANDS) => Shape::Many,
        _ => Shape::Lone,
    };
    let n = if shape == Shape::Lone { 0 } else { n as u16 };
    Key { shape, op: node.op, n, moving, scaled: false }
}

/// The operand of a multiplication by a constant, if it is a node without other uses.
fn scaled_operand(program: &Program, uses: &[u32], node: Node) -> Option<u32> {
    let inner = node.a.checked_sub(program.first_node())?;
    (node.op == Op::SCALED && uses[node.a as usize] == 1).then_some(inner)
}

/// The exponentials that a sum adds, as nodes.
pub(super) fn exponentials(program: &Program, sum: u32) -> impl Iterator<Item = u32> + '_ {
    let first = program.first_node();
    program.list(program.nodes()[sum as usize]).iter().map(move |&x| x - first)
}

/// Sums of exponentials whose only uses are the quotients of each exponential by the sum, in order; with the quotients.
fn softmaxes(
    program: &Program,
    moves: &[bool],
    uses: &[u32],
    is_reached: impl Fn(u32) -> bool,
) -> Vec<(u32, Vec<u32>)> {
    let first = program.first_node();
    let mut quotients: Vec<Vec<u32>> = vec![Vec::new(); program.nodes().len()];
    for (k, &node) in program.nodes().iter().enumerate() {
        if node.op == Op::QUOTIENT
            && let Some(sum) = node.b.checked_sub(first)
            && program.nodes()[sum as usize].op == Op::TOTAL
        {
            quotients[sum as usize].push(k as u32);
        }
    }
    let is_softmax = |sum: usize, quotients: &[u32]| {
        let slot = first + sum as u32;
        let xs = program.list(program.nodes()[sum]);
        let is_exp = |x: u32| {
            program.node(x).is_some_and(|node| node.op == Op::EXPONENTIAL) && uses[x as usize] == 2 && moves[x as usize]
        };
        !quotients.is_empty()
            && quotients.len() == xs.len()
            && xs.len() <= MOST_SOFTMAX
            && uses[slot as usize] as usize == xs.len()
            && xs.iter().zip(quotients).all(|(&x, &q)| is_exp(x) && program.nodes()[q as usize].a == x && is_reached(q))
    };
    let found = quotients.into_iter().enumerate().filter(|(sum, quotients)| is_softmax(*sum, quotients));
    found.map(|(sum, quotients)| (sum as u32, quotients)).collect()
}

/// The number of listed operands of a node, from its op and second field.
pub(super) fn operand_count(op: Op, b: usize) -> usize {
    match op {
        Op::InnerProduct => 2 * b,
        Op::InnerProductWithBias => 2 * b + 1,
        _ => b,
    }
}
