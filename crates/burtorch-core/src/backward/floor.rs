//! What a sweep will meet: the lowest node for some gradients only, and how many dense layers.
//!
//! Promises: no gradient below that node is requested. Reads each scalar node and each block once.

use crate::graph::{AffineRecord, BlockHeader, OperandRun, TokenRecord, Topology, is_over_tokens};
use crate::ops::{Arity, Op};
use crate::params::Gradients;
use crate::scalar::Float;

/// The lowest node from `bottom` to `root` that reads a number whose gradient is asked for; the one above `root` if there is
/// none. `bottom` where a sweep may leave nothing out.
pub(super) fn floor<E: Float>(
    graph: Topology<'_>,
    params: &[Gradients<'_, E>],
    places: &[u32],
    root: u32,
    bottom: u32,
) -> u32 {
    if !params.iter().any(|store| store.prunes) {
        return bottom;
    }
    // Of the only store, if there is one: a comparison answers for most operands of a set of last layers.
    let first_wanted = if let [only] = params { only.skipped.first_left() } else { 0 };
    let wants = |run: OperandRun| {
        run.source > 0
            && run.start + run.len > first_wanted
            && params[places[run.source as usize - 1] as usize].wants_any(run.range())
    };
    let mut floor = root + 1;
    let mut node = graph.block_tail(root).unwrap_or(root) + 1;
    while node > bottom {
        node -= 1;
        let op = graph.op(node);
        if op == Op::Constant {
            // What blocks keep for the sweep, thousands of numbers of attention.
            node -= n_constants(&graph.ops[bottom as usize..node as usize]) as u32;
            continue;
        }
        let arity = op.info().arity;
        if matches!(arity, Arity::Unary | Arity::Binary | Arity::WithConstant) {
            continue;
        }
        let mut reads = false;
        if arity == Arity::Block {
            let at = graph.operands[node as usize][0];
            // The forms of records that most blocks have, a dense layer and those of a GPT, without a call for each run.
            match op {
                Op::Affine => {
                    AffineRecord::read(graph.extra, at).for_each_run(graph.extra, |run| reads = reads || wants(run))
                }
                _ if is_over_tokens(op) => reads = TokenRecord::has_run(graph.extra, at, wants),
                _ => graph.for_each_operand(node, |run| reads = reads || wants(run)),
            }
            node = BlockHeader::read(graph.extra, at).first;
        } else {
            graph.for_each_operand(node, |run| reads = reads || wants(run));
        }
        if reads {
            floor = node;
        }
    }
    floor
}

/// How many dense layers lie at or below a root.
pub(super) fn n_dense(graph: Topology<'_>, root: u32) -> usize {
    let (mut n, mut node) = (0, graph.block_tail(root).unwrap_or(root) + 1);
    while node > 0 {
        node -= 1;
        let op = graph.op(node);
        if op == Op::Constant {
            node -= n_constants(&graph.ops[..node as usize]) as u32;
        } else if op.info().arity == Arity::Block {
            n += usize::from(op == Op::Affine);
            node = BlockHeader::read(graph.extra, graph.operands[node as usize][0]).first;
        }
    }
    n
}

/// How many of the last ops are constants. Blocks of 64 are compared at once.
fn n_constants(ops: &[Op]) -> usize {
    let is_other = |found: u8, &op: &Op| found | (op as u8 ^ Op::Constant as u8);
    let are_constants = |ops: &[Op]| ops.iter().fold(0, is_other) == 0;
    let together: usize = ops.rchunks_exact(64).take_while(|ops| are_constants(ops)).map(<[Op]>::len).sum();
    together + ops[..ops.len() - together].iter().rev().take_while(|&&op| op == Op::Constant).count()
}
