//! The values of blocks over tokens, computed when they are appended and by `recompute`.

use super::TokenRecord;
use crate::graph::Graph;
use crate::graph::operands::{OperandRun, StoreValues};
use crate::kernels::tokens::{AttentionShape, TOKEN_LANES, padded};
use crate::ops::Op;
use crate::scalar::Scalar;

const L: usize = TOKEN_LANES;

/// Numbers of a run of parameters.
fn numbers<'a, E>(stores: &StoreValues<'a, E>, run: OperandRun) -> &'a [E] {
    &stores[run.source as usize - 1][run.range()]
}

impl<S: Scalar> Graph<'_, S> {
    pub(crate) fn evaluate_tokens(&mut self, op: Op, at: u32, stores: &StoreValues<'_, S::Elem>) {
        let record = TokenRecord::read(self.extra.as_slice(), at);
        let (nodes, outputs) = self.columns.values_mut().split_at_mut(record.header.first as usize);
        let y = &mut outputs[..record.header.n_out as usize];
        match op {
            Op::TokenEmbedding => embed::<S>(record, stores, y),
            Op::TokenAffine => affine(record, stores, nodes, self.scratch.as_mut_slice(), y),
            Op::LayerNorm => {
                let (gain, bias) = (numbers(stores, record.run(0)), numbers(stores, record.run(1)));
                let (x, stats) = operand_and_aside(nodes, record.run(2), record.run(3));
                S::token_layer_norm(x, gain, bias, record.own_float(), y, stats);
            }
            Op::CausalAttention => {
                let shape = attention_shape(record);
                let (nodes, aside) = nodes.split_at_mut(record.run(3).start as usize);
                let qkv = [0, 1, 2].map(|k| &nodes[record.run(k).range()]);
                S::token_attention(shape, qkv, &mut aside[..record.run(3).len as usize], y);
            }
            Op::TokenCrossEntropy => {
                let (logits, probs) = operand_and_aside(nodes, record.run(0), record.run(1));
                let sum = S::token_cross_entropy(logits, record.n_tokens, record.numbers, probs);
                y[0] = sum / S::lit(record.n_tokens as f64);
            }
            _ => S::add_ranges(&nodes[record.run(0).range()], &nodes[record.run(1).range()], y),
        }
    }
}

/// An operand, and the nodes after it that the block fills.
fn operand_and_aside<S>(nodes: &mut [S], operand: OperandRun, aside: OperandRun) -> (&[S], &mut [S]) {
    let (nodes, rest) = nodes.split_at_mut(aside.start as usize);
    (&nodes[operand.range()], &mut rest[..aside.len as usize])
}

/// The shape that a record of attention holds.
pub(crate) fn attention_shape(record: TokenRecord<'_>) -> AttentionShape {
    AttentionShape { heads: record.own[0] as usize, width: record.own[1] as usize }
}

fn embed<S: Scalar>(record: TokenRecord<'_>, stores: &StoreValues<'_, S::Elem>, y: &mut [S]) {
    let (n, width) = (record.n_tokens, record.own[0] as usize);
    let table = numbers(stores, record.run(0));
    let positions = record.runs().nth(1).map(|run| numbers(stores, run));
    if padded(n) > n {
        y.fill(S::lit(0.0));
    }
    for t in 0..n {
        for f in 0..width {
            let mut sum = S::lit(0.0);
            for (lane, tokens) in record.numbers.chunks_exact(n).enumerate() {
                sum = sum.with_lane(lane, table[tokens[t] as usize * width + f]);
            }
            let place = (t / L * width + f) * L + t % L;
            y[place] = positions.map_or(sum, |rows| sum + S::splat(rows[t * width + f]));
        }
    }
}

fn affine<S: Scalar>(
    record: TokenRecord<'_>,
    stores: &StoreValues<'_, S::Elem>,
    nodes: &[S],
    scratch: &mut [S],
    y: &mut [S],
) {
    let (layer, n_in) = (AffineParts::of(record), record.own[1] as usize);
    let x = gathered(record, layer.n_parameters, nodes, n_in, scratch);
    let bias = layer.bias.map(|run| numbers(stores, run));
    S::token_affine(n_in, numbers(stores, layer.w), bias, layer.relu, x, y);
}

/// What the record of a dense layer says besides its inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AffineParts {
    pub(crate) w: OperandRun,
    pub(crate) bias: Option<OperandRun>,
    pub(crate) relu: bool,
    /// Runs of parameters, which come before those of inputs.
    pub(crate) n_parameters: usize,
}

impl AffineParts {
    pub(crate) fn of(record: TokenRecord<'_>) -> Self {
        let has_bias = record.own[0] & 2 > 0;
        let bias = has_bias.then(|| record.run(1));
        AffineParts { w: record.run(0), bias, relu: record.own[0] & 1 > 0, n_parameters: 1 + usize::from(has_bias) }
    }
}

/// The inputs from operand `from` on as one list of activations: in place where it is one range, else in `scratch`.
pub(crate) fn gathered<'a, S: Scalar>(
    record: TokenRecord<'_>,
    from: usize,
    nodes: &'a [S],
    n_in: usize,
    scratch: &'a mut [S],
) -> &'a [S] {
    let only = record.run(from);
    let groups = padded(record.n_tokens) / L;
    if only.len as usize == groups * n_in * L {
        return &nodes[only.range()];
    }
    let mut at = 0;
    for group in 0..groups {
        for run in record.runs().skip(from) {
            let len = run.len as usize / groups;
            let start = run.start as usize + group * len;
            scratch[at..at + len].copy_from_slice(&nodes[start..start + len]);
            at += len;
        }
    }
    &scratch[..at]
}
