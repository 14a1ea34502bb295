//! Causal attention over tokens, head by head.
//!
//! Promises: probabilities are stored for the backward pass, as constants before the outputs. Does not know
//! projections.

use super::super::Graph;
use super::super::check::{Check, Checked};
use super::super::operands::{OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::op::{BlockOp, Loaded, Wanted};
use super::record::Layout;
use super::tokens::{
    BlockPlan, Evaluated, Expected, Pulled, TokenRecord, Tokens, equal, evaluated, is_whole, of_nodes, push_tokens,
    same_tokens,
};
use crate::error::{Error, Result};
use crate::graph::View;
use crate::kernels::BlockMath;
use crate::kernels::tokens::{AttentionPull, AttentionShape, TOKEN_LANES, padded};
use crate::ops::Op;

pub(super) struct CausalAttention;

impl<S: BlockMath> BlockOp<S> for CausalAttention {
    const OP: Op = Op::CausalAttention;
    const OVER_TOKENS: bool = true;

    /// Operands: queries, keys, values. The op's own parameter is the padded number of tokens.
    fn shape(operands: &[usize], own: &[usize]) -> Result<usize> {
        let width = |k: usize| operands[k] / own[0].max(1);
        equal("causal_attention (features of queries and keys)", width(0), width(1))?;
        equal("causal_attention (features of queries and values)", width(0), width(2))?;
        Ok(operands[0])
    }

    fn layout(extra: &[u32], at: u32, _lanes: usize) -> Layout {
        TokenRecord::read(extra, at).layout()
    }

    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
        TokenRecord::read(extra, at).runs().for_each(f);
    }

    fn cost(extra: &[u32], at: u32) -> u64 {
        let record = TokenRecord::read(extra, at);
        2 * u64::from(record.header.n_out) * (record.n_tokens as u64 + 1)
    }

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, _stores: &StoreValues<'_, S::Elem>) {
        let Evaluated { record, nodes, y, .. } = evaluated(graph, at);
        let (nodes, aside) = nodes.split_at_mut(record.run(3).start as usize);
        let qkv = [0, 1, 2].map(|k| &nodes[record.run(k).range()]);
        S::token_attention(attention_shape(record), qkv, &mut aside[..record.run(3).len as usize], y);
    }

    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted) {
        sweep.through_tokens(at, top, |sweep, pulled| sweep.pull_attention(pulled, wanted));
    }

    fn is_whole(check: &Check<'_>, at: u32) -> Checked {
        is_whole(check, at)
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let expected = Expected::read(loaded.record, true, check)?;
        let [q, k, v, aside] = expected.four()?;
        of_nodes(&[q, k, v, aside])?;
        expected.no_numbers()?;
        let [heads, width] = expected.record.own;
        let lengths = [q.len, k.len, v.len].map(u64::from);
        if heads == 0 || !width.is_multiple_of(heads) || expected.padded * u64::from(width) != expected.n_out {
            return Err(format!("has {heads} heads, {width} features and {} outputs", expected.n_out));
        }
        if lengths != [expected.n_out; 3] {
            return Err(format!("has operands of {lengths:?}, expected {}", expected.n_out));
        }
        let shape = AttentionShape { heads: heads as usize, width: width as usize };
        let probs = shape.probs_len(expected.padded as usize / TOKEN_LANES);
        expected.aside(aside, probs as u64, &[q, k, v])?;
        expected.check.temporaries(5 * expected.n_out as usize);
        Ok(())
    }
}

/// The shape stored in a record of attention.
fn attention_shape(record: TokenRecord<'_>) -> AttentionShape {
    AttentionShape { heads: record.own[0] as usize, width: record.own[1] as usize }
}

impl<S: BlockMath> Graph<'_, S> {
    /// Appends causal attention: each head, of `width / heads` features, mixes the values of the tokens up to its own by
    /// the softmax of `q k / sqrt(width / heads)`. The probabilities are nodes too, through which no gradient flows.
    pub fn causal_attention(&mut self, q: Tokens, k: Tokens, v: Tokens, heads: usize) -> Result<Tokens> {
        let n = same_tokens("causal_attention (tokens)", &[q, k, v])?;
        let n_out = <CausalAttention as BlockOp<S>>::shape(&[q, k, v].map(|x| x.range().len()), &[padded(n)])?;
        let shape = AttentionShape { heads, width: q.width() };
        if heads == 0 || !shape.width.is_multiple_of(heads) {
            let expected = format!("a divisor of the {} features", shape.width);
            return Err(Error::BadArgument { what: "the number of heads", expected, found: heads.to_string() });
        }
        let plan = BlockPlan {
            n_out,
            n_tokens: n,
            own: [heads as u32, shape.width as u32],
            n_aside: shape.probs_len(padded(n) / TOKEN_LANES),
            zeroed: false,
            runs: [q, k, v].map(|part| View::from(part.range())).into_iter(),
            numbers: &[],
            scratch: 5 * n_out,
        };
        push_tokens::<CausalAttention, _, _>(self, &[], plan)
    }
}

impl<S: BlockMath> Sweep<'_, '_, S> {
    fn pull_attention(&mut self, pulled: Pulled<'_, '_, S>, wanted: Wanted) {
        let Pulled { record, dy: dout, below, scratch } = pulled;
        let values = self.recorded.values;
        let len = dout.len();
        let (grads, scratch) = scratch.split_at_mut(3 * len);
        S::token_attention_pull(AttentionPull {
            shape: attention_shape(record),
            qkv: [0, 1, 2].map(|k| &values[record.run(k).range()]),
            probs: &values[record.run(3).range()],
            out: &values[record.outputs(0)],
            dout,
            grads,
            scratch: &mut scratch[..len],
        });
        for (k, grads) in grads.chunks_exact(len).enumerate().filter(|&(k, _)| wanted.operand(k)) {
            self.pass_to(record.run(k), grads, below);
        }
    }
}
