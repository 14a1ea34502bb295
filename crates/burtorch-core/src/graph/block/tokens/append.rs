//! Appending a block over tokens: its record, its nodes, and the checks common to all such blocks.

use super::Tokens;
use crate::error::{Error, Result};
use crate::graph::block::op::BlockOp;
use crate::graph::{Graph, Range, View};
use crate::kernels::tokens::padded;
use crate::ops::Op;
use crate::params::Parameters;
use crate::scalar::Scalar;
use crate::sync::stop;

/// A block over tokens to be appended: everything except the place of its outputs.
pub(crate) struct BlockPlan<'p, I> {
    pub(crate) n_out: usize,
    pub(crate) n_tokens: usize,
    pub(crate) own: [u32; 2],
    /// Nodes besides the outputs that the block fills, readable but not differentiated: its last operand.
    pub(crate) n_aside: usize,
    /// Whether to set those to zero first, because evaluation does not write all of them.
    pub(crate) zeroed: bool,
    pub(crate) runs: I,
    pub(crate) numbers: &'p [u32],
    pub(crate) scratch: usize,
}

/// As [`push_block_of`], for outputs that are activations.
pub(crate) fn push_tokens<B: BlockOp<S>, S: Scalar, I: Iterator<Item = View> + Clone>(
    graph: &mut Graph<'_, S>,
    params: &[&Parameters<'_, S::Elem>],
    plan: BlockPlan<'_, I>,
) -> Result<Tokens> {
    let n = plan.n_tokens as u32;
    Ok(Tokens::of(push_block_of::<B, S, I>(graph, params, plan)?, n))
}

/// Checks the operands, appends nodes and record, and computes the values.
pub(crate) fn push_block_of<B: BlockOp<S>, S: Scalar, I: Iterator<Item = View> + Clone>(
    graph: &mut Graph<'_, S>,
    params: &[&Parameters<'_, S::Elem>],
    plan: BlockPlan<'_, I>,
) -> Result<Range> {
    for view in plan.runs.clone() {
        graph.check_view(view, params)?;
    }
    if stop::is_over() {
        return Err(Error::Interrupted);
    }
    graph.atomically(|graph| {
        let n_out = graph.room_for(plan.n_aside + plan.n_out)? - plan.n_aside as u32;
        graph.reserve_scratch(plan.scratch)?;
        let n_runs = plan.runs.clone().count() + usize::from(plan.n_aside > 0);
        graph.extra.reserve(7 + 3 * n_runs + plan.numbers.len())?;
        let aside = graph.columns.push_many_reserved(Op::Constant, plan.n_aside as u32, plan.zeroed, true);
        let (at, first) = (graph.extra.len() as u32, graph.columns.len());
        let fixed = [first, n_out, plan.n_tokens as u32, n_runs as u32, plan.numbers.len() as u32];
        list(graph, fixed.into_iter().chain(plan.own));
        for view in plan.runs {
            let run = match view {
                View::Nodes(range) => [0, range.start, range.len],
                View::Parameters(slice) => [graph.slot_of(slice.store)? + 1, slice.start, slice.len],
            };
            list(graph, run);
        }
        if plan.n_aside > 0 {
            list(graph, [0, aside, plan.n_aside as u32]);
        }
        list(graph, plan.numbers.iter().copied());
        let start = graph.columns.push_many_reserved(Op::Part, n_out, false, true);
        graph.columns.set_node(start + n_out - 1, B::OP, at, 0);
        let stores = graph.store_values(params)?;
        B::evaluate(graph, at, &stores);
        Ok(graph.finish_block(Range { start, len: n_out }))
    })
}

/// Appends to the operand lists, which have room.
fn list<S: Scalar>(graph: &mut Graph<'_, S>, numbers: impl IntoIterator<Item = u32>) {
    for number in numbers {
        graph.extra.push_reserved(number);
    }
}

pub(crate) fn equal(op: &'static str, left: usize, right: usize) -> Result<()> {
    if left == right { Ok(()) } else { Err(Error::LengthMismatch { op, left, right }) }
}

/// The number of tokens, equal for all.
pub(crate) fn same_tokens(op: &'static str, x: &[Tokens]) -> Result<usize> {
    let n = x.first().map_or(0, Tokens::n);
    for x in x {
        equal(op, n, x.n())?;
    }
    Ok(n)
}

/// The number of entries per lane.
pub(crate) fn per_lane<S: Scalar>(op: &'static str, numbers: &[u32]) -> Result<usize> {
    if numbers.is_empty() {
        return Err(Error::EmptyReduction { op: "a block over tokens" });
    }
    if numbers.len().is_multiple_of(S::LANES) {
        return Ok(numbers.len() / S::LANES);
    }
    Err(Error::LengthMismatch { op, left: S::LANES, right: numbers.len() })
}

pub(crate) fn below(what: &'static str, found: &[u32], n: usize) -> Result<()> {
    match found.iter().find(|&&x| x as usize >= n) {
        Some(&x) => Err(Error::OutOfRange { what, found: u64::from(x), max: (n as u64).saturating_sub(1) }),
        None => Ok(()),
    }
}

/// The size of activations of `width` features and `n` tokens, including padding.
pub(crate) fn places(n: usize, width: usize) -> Result<usize> {
    padded(n).checked_mul(width).filter(|&n| n <= u32::MAX as usize).ok_or(Error::IndexExhausted { limit: u32::MAX })
}
