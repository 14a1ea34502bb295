//! The lowest node of a sweep for some gradients only.
//!
//! Promises: no gradient below it is requested. Reads each scalar node and each block once.

use crate::graph::{BlockHeader, OperandRun, TokenRecord, Topology, is_over_tokens};
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
        // What blocks keep for the sweep, thousands of numbers of attention.
        node -= n_constants(&graph.ops[bottom as usize..node as usize]) as u32;
        if node == bottom {
            break;
        }
        node -= 1;
        let op = graph.op(node);
        let arity = op.info().arity;
        if matches!(arity, Arity::Unary | Arity::Binary | Arity::WithConstant) {
            continue;
        }
        let mut reads = false;
        if arity == Arity::Block {
            let at = graph.operands[node as usize][0];
            // Most blocks of a GPT, whose records have one form.
            match is_over_tokens(op) {
                true => reads = TokenRecord::read(graph.extra, at).runs().any(wants),
                false => graph.for_each_operand(node, |run| reads = reads || wants(run)),
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

/// How many of the last ops are constants. Blocks of 64 are compared at once.
fn n_constants(ops: &[Op]) -> usize {
    if ops.last() != Some(&Op::Constant) {
        return 0;
    }
    let are_constants = |ops: &[Op]| ops.iter().fold(true, |all, &op| all & (op == Op::Constant));
    let together: usize = ops.rchunks_exact(64).take_while(|ops| are_constants(ops)).map(<[Op]>::len).sum();
    together + ops[..ops.len() - together].iter().rev().take_while(|&&op| op == Op::Constant).count()
}
