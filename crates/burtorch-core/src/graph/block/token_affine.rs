//! A dense layer over tokens, with or without relu; features of several activations are combined, without a copy if
//! they are in one range.
//!
//! Promises: unreached outputs contribute nothing. Does not know other activations.

use super::super::Graph;
use super::super::check::{Check, Checked};
use super::super::operands::{OperandRun, StoreValues};
use super::super::sampling::Application as Sampled;
use super::super::sweep::Sweep;
use super::op::{BlockOp, Loaded, Wanted};
use super::record::Layout;
use super::tokens::{
    BlockPlan, Evaluated, Expected, Pulled, Targets, TokenRecord, Tokens, equal, evaluated, is_whole, numbers,
    of_nodes, of_parameters, places, push_tokens, same_tokens,
};
use crate::error::{Error, Result};
use crate::graph::View;
use crate::kernels::tokens::{AffinePull, TOKEN_LANES, padded};
use crate::kernels::{BlockMath, slices};
use crate::ops::Op;
use crate::params::{Parameters, Slice};
use crate::scalar::Scalar;

const L: usize = TOKEN_LANES;

pub(super) struct TokenAffine;

impl<S: BlockMath> BlockOp<S> for TokenAffine {
    const OP: Op = Op::TokenAffine;
    const OVER_TOKENS: bool = true;

    /// Operands: weights, inputs of all features. The op's own parameter is the padded number of tokens.
    fn shape(operands: &[usize], own: &[usize]) -> Result<usize> {
        let (weights, padded) = (operands[0], own[0]);
        let n_in = operands[1] / padded.max(1);
        if n_in == 0 || weights == 0 {
            return Err(Error::EmptyReduction { op: Op::TokenAffine.name() });
        }
        if !weights.is_multiple_of(n_in) {
            let what = "token_affine (inputs and columns of the weights)";
            return Err(Error::LengthMismatch { op: what, left: n_in, right: weights });
        }
        Ok(padded * (weights / n_in))
    }

    fn layout(extra: &[u32], at: u32, _lanes: usize) -> Layout {
        TokenRecord::read(extra, at).layout()
    }

    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
        TokenRecord::read(extra, at).runs().for_each(f);
    }

    fn cost(extra: &[u32], at: u32) -> u64 {
        let record = TokenRecord::read(extra, at);
        2 * u64::from(record.header.n_out) * u64::from(record.own[1])
    }

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, stores: &StoreValues<'_, S::Elem>) {
        let Evaluated { record, nodes, y, scratch } = evaluated(graph, at);
        let (layer, n_in) = (AffineParts::of(record), record.own[1] as usize);
        let len = padded(record.n_tokens) * n_in;
        let in_place = record.run(layer.n_parameters).len as usize == len;
        let (x_copy, scratch) = scratch.split_at_mut(if in_place { 0 } else { len });
        let x = gathered(record, layer.n_parameters, nodes, n_in, x_copy);
        let bias = layer.bias.map(|run| numbers(stores, run));
        S::token_affine(n_in, numbers(stores, layer.w), bias, layer.relu, x, y, scratch);
    }

    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted) {
        sweep.through_tokens(at, top, |sweep, pulled| sweep.pull_affine(pulled, wanted));
    }

    fn is_whole(check: &Check<'_>, at: u32) -> Checked {
        is_whole(check, at)
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let expected = Expected::read(loaded.record, true, check)?;
        let [how, n_in] = expected.record.own;
        let (has_bias, n_in) = (how & 2 > 0, u64::from(n_in));
        let runs: Vec<OperandRun> = expected.runs();
        let n_parameters = 1 + usize::from(has_bias);
        let Some((parameters, inputs)) = runs.split_at_checked(n_parameters).filter(|(_, x)| !x.is_empty()) else {
            return Err(format!("has {} operands", runs.len()));
        };
        of_parameters(parameters)?;
        of_nodes(inputs)?;
        expected.no_numbers()?;
        let n_features = expected.n_out / expected.padded;
        let total: u64 = inputs.iter().map(|run| u64::from(run.len)).sum();
        let whole = inputs.iter().all(|run| u64::from(run.len).is_multiple_of(expected.padded));
        if how > 3
            || !whole
            || n_in == 0
            || total != n_in * expected.padded
            || n_features * expected.padded != expected.n_out
        {
            return Err(format!("has {total} inputs and {} outputs of {n_in} features", expected.n_out));
        }
        let bias = parameters.get(1).map_or(n_features, |bias| u64::from(bias.len));
        if u64::from(parameters[0].len) != n_in * n_features || bias != n_features {
            return Err(format!("has {} weights and {bias} biases for {n_in} x {n_features}", parameters[0].len));
        }
        let [n_in, n_features, padded] = [n_in, n_features, expected.padded].map(|n| n as usize);
        let scratch = AffinePull::<S>::scratch_len(padded, n_in, n_features);
        expected.check.temporaries(3 * padded * n_in.max(n_features) + scratch);
        Ok(())
    }
}

/// The record of a dense layer without its inputs.
#[derive(Clone, Copy, Debug)]
struct AffineParts {
    w: OperandRun,
    bias: Option<OperandRun>,
    relu: bool,
    /// Ranges of parameters, which come before those of inputs.
    n_parameters: usize,
}

impl AffineParts {
    fn of(record: TokenRecord<'_>) -> Self {
        let has_bias = record.own[0] & 2 > 0;
        let bias = has_bias.then(|| record.run(1));
        AffineParts { w: record.run(0), bias, relu: record.own[0] & 1 > 0, n_parameters: 1 + usize::from(has_bias) }
    }
}

/// The inputs from operand `from` on as one list of activations: in place if contiguous, otherwise copied to `scratch`.
fn gathered<'a, S: Scalar>(
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

impl<S: BlockMath> Graph<'_, S> {
    /// Appends `W x + b` for each token, followed by relu with `relu`. `x` are activations of the same tokens, whose
    /// features are concatenated without copying; `w` is `n_out x n_in` by rows.
    pub fn token_affine(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        x: &[Tokens],
        w: Slice,
        bias: Option<Slice>,
        relu: bool,
    ) -> Result<Tokens> {
        let n_in: usize = x.iter().map(Tokens::width).sum();
        let n = same_tokens("token_affine (tokens)", x)?;
        let places_out = <TokenAffine as BlockOp<S>>::shape(&[w.len(), n_in * padded(n)], &[padded(n)])?;
        let n_out = places_out / padded(n);
        if let Some(bias) = bias {
            equal("token_affine (outputs and biases)", n_out, bias.len())?;
        }
        let own = [u32::from(relu) | u32::from(bias.is_some()) << 1, n_in as u32];
        let parameters = std::iter::once(w).chain(bias).map(View::from);
        let runs = parameters.chain(x.iter().map(|x| View::from(x.range())));
        let places = places(n, n_in.max(n_out))?;
        // A backward pass needs copies of the inputs, their adjoints and the outputs' adjoints, and the kernel's
        // workspace.
        let scratch = 3 * places + AffinePull::<S>::scratch_len(padded(n), n_in, n_out);
        push_tokens::<TokenAffine, _, _>(
            self,
            params,
            BlockPlan { n_out: places_out, n_tokens: n, own, n_aside: 0, zeroed: false, runs, numbers: &[], scratch },
        )
    }
}

impl<S: BlockMath> Sweep<'_, '_, S> {
    fn pull_affine(&mut self, pulled: Pulled<'_, '_, S>, wanted: Wanted) {
        let Pulled { record, dy, below, scratch } = pulled;
        let (layer, n_in) = (AffineParts::of(record), record.own[1] as usize);
        let values = self.recorded.values;
        let y = &values[record.outputs(0)];
        let inputs = || record.runs().skip(layer.n_parameters);
        let len = padded(record.n_tokens) * n_in;
        let in_place = record.run(layer.n_parameters).len as usize == len;
        let (copies, scratch) = scratch.split_at_mut(if in_place { 0 } else { 2 * len });
        let (x_copy, dx_copy) = copies.split_at_mut(copies.len() / 2);
        let x = gathered(record, layer.n_parameters, values, n_in, x_copy);
        let wanted = wanted.operand(layer.n_parameters) && inputs().any(|run| self.wants(run));
        let mut dx = match (wanted, in_place) {
            (false, _) => None,
            (true, true) => Some(self.adjoints_of(record.run(layer.n_parameters), below)),
            (true, false) => {
                dx_copy.fill(S::UNREACHED);
                Some(&mut *dx_copy)
            }
        };
        let mut sampler = self.sampler.take();
        let store = &self.params[self.places[layer.w.source as usize - 1] as usize];
        let x = match sampler.as_mut().filter(|_| store.wants_any(layer.w.range())) {
            Some(sampler) => {
                let (node, cut, weights) = (record.header.first, layer.relu.then_some(y), layer.w.range());
                sampler.begin();
                sampler.add(Sampled { node, along: L, n_in, x, dy, cut, weights, skipped: store.skipped });
                sampler.sampled()
            }
            None => x,
        };
        self.with_targets(layer.w, layer.bias, &mut |targets| {
            let Targets { values: w, first: dw, second: db } = targets;
            let dx = dx.take();
            S::token_affine_pull(AffinePull {
                n_in,
                w,
                relu: layer.relu,
                dy,
                y,
                x,
                dx,
                dw,
                db,
                scratch: &mut *scratch,
            });
        });
        self.sampler = sampler;
        if wanted && !in_place {
            self.scatter_features(inputs(), padded(record.n_tokens) / L, dx_copy, below);
        }
    }

    /// Adds each group's part of `dx` to the ranges that hold its features.
    fn scatter_features(
        &mut self,
        runs: impl Iterator<Item = OperandRun> + Clone,
        groups: usize,
        dx: &[S],
        below: &mut [S],
    ) {
        let mut at = 0;
        for group in 0..groups {
            for run in runs.clone() {
                let len = run.len / groups as u32;
                let part = OperandRun { start: run.start + group as u32 * len, len, ..run };
                slices::pass_on(&dx[at..at + len as usize], self.adjoints_of(part, below));
                at += len as usize;
            }
        }
    }
}
