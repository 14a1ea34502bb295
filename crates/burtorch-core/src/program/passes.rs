//! Rewriting programs.
//!
//! Passes that keep every bit of values and gradients: [`without_dead_code`]. Passes that change the order of sums or
//! of contributions, for `optimize="fast"`: [`shared`] (equal ops computed once) and [`chained`] (sums of products as one
//! inner product, sums of sums as one sum). Their results differ from the recorded ones by at most
//! `2 (n-1) u sum |terms|` for every sum of `n` terms they rewrite.
//!
//! Promises: inputs, outputs and the results of guards stay the same. Knows programs, not how they run.

use std::collections::HashMap;

use super::node::{Guard, Node, Parts, Program};
use crate::error::Result;
use crate::interrupt;
use crate::ops::{Arity, Op};

/// The program without nodes and constants that neither an output nor a guard needs.
pub fn without_dead_code(program: Program) -> Result<Program> {
    let mut needed = vec![false; program.n_slots()];
    let guards = program.guards().iter().flat_map(|g| [g.a, g.b]);
    for slot in program.outputs().iter().copied().chain(guards) {
        needed[slot as usize] = true;
    }
    for (k, &node) in program.nodes().iter().enumerate().rev() {
        interrupt::ask_at(k)?;
        if needed[program.first_node() as usize + k] {
            program.for_each_operand(node, |x| needed[x as usize] = true);
        }
    }
    if needed[program.n_inputs()..].iter().all(|&is_needed| is_needed) {
        return Ok(program);
    }
    rebuilt(&program, |slot| needed[slot as usize], |_, slot| slot)
}

/// Copies the nodes and constants selected by `keep`, with operands replaced by `instead` (in old slots).
fn rebuilt(program: &Program, keep: impl Fn(u32) -> bool, instead: impl Fn(&Program, u32) -> u32) -> Result<Program> {
    let (n_inputs, first) = (program.n_inputs, program.first_node());
    let mut new = vec![u32::MAX; program.n_slots()];
    let mut parts = Parts { n_inputs, n_differentiated: program.n_differentiated, ..Parts::default() };
    for slot in 0..n_inputs {
        new[slot as usize] = slot;
    }
    for (k, &x) in program.constants.iter().enumerate() {
        let slot = n_inputs + k as u32;
        if keep(slot) {
            new[slot as usize] = n_inputs + parts.constants.len() as u32;
            parts.constants.push(x);
        }
    }
    let new_first = n_inputs + parts.constants.len() as u32;
    // The number of kept nodes below each.
    let mut below = Vec::with_capacity(program.nodes.len() + 1);
    for (k, &node) in program.nodes.iter().enumerate() {
        interrupt::ask_at(k)?;
        below.push(parts.nodes.len() as u32);
        let slot = first + k as u32;
        if !keep(slot) {
            continue;
        }
        new[slot as usize] = new_first + parts.nodes.len() as u32;
        let name = |x: u32| new[instead(program, x) as usize];
        let node = match node.op.info().arity {
            Arity::Nullary | Arity::Unary => Node { a: name(node.a), ..node },
            Arity::Binary | Arity::WithConstant => Node { a: name(node.a), b: name(node.b), ..node },
            _ => {
                let at = parts.lists.len() as u32;
                parts.lists.extend(program.list(node).iter().map(|&x| name(x)));
                Node { a: at, ..node }
            }
        };
        parts.calls.extend(program.called(k as u32).map(|called| (parts.nodes.len() as u32, called.clone())));
        parts.nodes.push(node);
    }
    below.push(parts.nodes.len() as u32);
    let name = |x: u32| new[instead(program, x) as usize];
    parts.outputs = program.outputs.iter().map(|&x| name(x)).collect();
    let guard = |g: &Guard| Guard { after: below[g.after as usize], a: name(g.a), b: name(g.b), ..*g };
    parts.guards = program.guards.iter().map(guard).collect();
    Program::new(program.dtype, parts)
}

/// The program with the wanted inputs first, and for each of its inputs the original one: gradients are only with
/// respect to the wanted inputs, and a reverse pass computes nothing that only others need. `wanted` covers the first
/// inputs; later ones are not wanted.
///
/// ```
/// use burtorch_core::program::passes::differentiated_by;
/// use burtorch_core::program::{Build, Node, Parts, Program, Replay, Seeds};
/// use burtorch_core::{DType, Op};
/// // x y + y
/// let nodes = vec![Node { op: Op::Mul, a: 0, b: 1 }, Node { op: Op::Add, a: 2, b: 1 }];
/// let parts = Parts { n_inputs: 2, n_differentiated: 2, nodes, outputs: vec![3], ..Parts::default() };
/// let program = Program::new(DType::Float64, parts).unwrap();
/// let (by_y, inputs) = differentiated_by(&program, &[false, true]).unwrap();
/// assert_eq!(inputs, [1, 0]);
/// let mut replay = Replay::<f64, 1>::new(&by_y, Build::Reverse(Seeds::One(0))).unwrap();
/// replay.inputs_mut().copy_from_slice(&[3.0, 2.0]);
/// replay.values();
/// replay.reverse_one();
/// assert_eq!((replay.output(0, 0), replay.raw_gradients()), (9.0, &[3.0][..]));
/// ```
pub fn differentiated_by(program: &Program, wanted: &[bool]) -> Result<(Program, Vec<u32>)> {
    let is_wanted =
        |k: &u32| *k < program.n_differentiated && wanted.get(*k as usize).is_some_and(|&is_wanted| is_wanted);
    let (mut inputs, others): (Vec<u32>, Vec<u32>) = (0..program.n_inputs).partition(is_wanted);
    let n_differentiated = inputs.len() as u32;
    inputs.extend(others);
    let mut places = vec![0; inputs.len()];
    for (place, &input) in (0..).zip(&inputs) {
        places[input as usize] = place;
    }
    let name = |x: &mut u32| *x = places.get(*x as usize).copied().unwrap_or(*x);
    let (dtype, mut parts) = program.clone().into_parts();
    for (k, node) in parts.nodes.iter_mut().enumerate() {
        interrupt::ask_at(k)?;
        match node.op.info().arity {
            Arity::Nullary | Arity::Unary => name(&mut node.a),
            Arity::Binary | Arity::WithConstant => [&mut node.a, &mut node.b].into_iter().for_each(name),
            _ => {}
        }
    }
    parts.lists.iter_mut().chain(&mut parts.outputs).for_each(name);
    parts.guards.iter_mut().flat_map(|guard| [&mut guard.a, &mut guard.b]).for_each(name);
    Ok((Program::new(dtype, Parts { n_differentiated, ..parts })?, inputs))
}

/// Equal ops of equal operands computed once. Contributions to a shared node are added before they are propagated.
pub fn shared(program: &Program) -> Result<Program> {
    let first = program.first_node();
    let mut same: Vec<u32> = (0..program.n_slots() as u32).collect();
    let mut seen: HashMap<(Op, Vec<u32>), u32> = HashMap::new();
    for (k, &node) in program.nodes().iter().enumerate() {
        interrupt::ask_at(8 * k)?;
        let slot = first + k as u32;
        let mut operands = Vec::new();
        program.for_each_operand(node, |x| operands.push(same[x as usize]));
        if node.op.info().is.commutative {
            operands.sort_unstable();
        }
        if node.op == Op::Linearised {
            // Calls are never merged: this pass knows neither the primitive nor whether it is deterministic.
            continue;
        }
        same[slot as usize] = *seen.entry((node.op, operands)).or_insert(slot);
    }
    let merged = rebuilt(program, |slot| same[slot as usize] == slot, |_, slot| same[slot as usize])?;
    without_dead_code(merged)
}

/// A sum under construction: its terms, and the operands of terms that are products without other uses.
#[derive(Default)]
struct Sum {
    products: Vec<(u32, u32)>,
    plain: Vec<u32>,
    terms: Vec<u32>,
}

/// Chains of additions whose parts have no other uses, as one inner product or one sum. Chains of fewer than four terms
/// stay.
pub fn chained(program: &Program) -> Result<Program> {
    let first = program.first_node();
    let mut uses = vec![0_u32; program.n_slots()];
    for &node in program.nodes() {
        program.for_each_operand(node, |x| uses[x as usize] += 1);
    }
    for &slot in program.outputs().iter().chain(program.guards().iter().flat_map(|g| [&g.a, &g.b])) {
        uses[slot as usize] += 2;
    }
    let is_sum = |x: u32| program.node(x).is_some_and(|node| node.op == Op::SUM);
    let mut inside = vec![false; program.n_slots()];
    for (k, &node) in program.nodes().iter().enumerate() {
        if is_sum(first + k as u32) {
            for x in [node.a, node.b] {
                inside[x as usize] = is_sum(x) && uses[x as usize] == 1;
            }
        }
    }
    let (dtype, mut parts) = program.clone().into_parts();
    for (k, &node) in program.nodes().iter().enumerate() {
        interrupt::ask_at(8 * k)?;
        let slot = first + k as u32;
        if node.op != Op::SUM || inside[slot as usize] {
            continue;
        }
        let sum = gather(program, slot, &inside, &uses);
        if sum.terms.len() >= 4 {
            parts.nodes[k] = write(&sum, &mut parts);
        }
    }
    without_dead_code(Program::new(dtype, parts)?)
}

/// The terms of the chain that ends at `slot`, from left to right, without recursion.
fn gather(program: &Program, slot: u32, inside: &[bool], uses: &[u32]) -> Sum {
    let mut sum = Sum::default();
    let mut open = vec![slot];
    while let Some(x) = open.pop() {
        match program.node(x) {
            Some(node) if x == slot || inside[x as usize] => {
                open.extend([node.b, node.a]);
                continue;
            }
            Some(Node { op: Op::PRODUCT, a, b }) if uses[x as usize] == 1 => sum.products.push((a, b)),
            _ => sum.plain.push(x),
        }
        sum.terms.push(x);
    }
    sum
}

/// The node for a chain: an inner product if all terms but one are products, otherwise a sum.
fn write(sum: &Sum, parts: &mut Parts) -> Node {
    let a = parts.lists.len() as u32;
    let n = sum.products.len();
    if n < 3 || sum.plain.len() > 1 {
        parts.lists.extend(&sum.terms);
        return Node { op: Op::TOTAL, a, b: sum.terms.len() as u32 };
    }
    parts.lists.extend(sum.products.iter().map(|p| p.0));
    parts.lists.extend(sum.products.iter().map(|p| p.1));
    parts.lists.extend(&sum.plain);
    let op = if sum.plain.is_empty() { Op::InnerProduct } else { Op::InnerProductWithBias };
    Node { op, a, b: n as u32 }
}
