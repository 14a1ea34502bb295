//! Layer normalisation over tokens: `gain (x - mean)/sqrt(variance + eps) + bias`.
//!
//! Promises: mean and deviation are stored for the backward pass, as constants before the outputs. Does not know
//! residual streams.

use super::super::Graph;
use super::super::check::{Check, Checked};
use super::super::operands::{OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::op::{BlockOp, Loaded, Wanted};
use super::record::Layout;
use super::tokens::{
    BlockPlan, Evaluated, Expected, Pulled, Targets, TokenRecord, Tokens, equal, evaluated, float_parts, is_whole,
    numbers, of_nodes, of_parameters, operand_and_aside, push_tokens,
};
use crate::error::{Error, Result};
use crate::graph::View;
use crate::kernels::BlockMath;
use crate::kernels::tokens::{LayerNormPull, padded};
use crate::ops::Op;
use crate::params::{Parameters, Slice};

pub(super) struct LayerNorm;

impl<S: BlockMath> BlockOp<S> for LayerNorm {
    const OP: Op = Op::LayerNorm;
    const OVER_TOKENS: bool = true;

    /// Operands: gains, biases, inputs. The op's own parameter is the padded number of tokens.
    fn shape(operands: &[usize], own: &[usize]) -> Result<usize> {
        let width = operands[2] / own[0].max(1);
        equal("layer_norm (features and gains)", width, operands[0])?;
        equal("layer_norm (features and biases)", width, operands[1])?;
        Ok(operands[2])
    }

    fn layout(extra: &[u32], at: u32, _lanes: usize) -> Layout {
        TokenRecord::read(extra, at).layout()
    }

    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
        TokenRecord::read(extra, at).runs().for_each(f);
    }

    fn cost(extra: &[u32], at: u32) -> u64 {
        7 * u64::from(extra[at as usize + 1])
    }

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, stores: &StoreValues<'_, S::Elem>) {
        let Evaluated { record, nodes, y, .. } = evaluated(graph, at);
        let (gain, bias) = (numbers(stores, record.run(0)), numbers(stores, record.run(1)));
        let (x, stats) = operand_and_aside(nodes, record.run(2), record.run(3));
        S::token_layer_norm(x, gain, bias, record.own_float(), y, stats);
    }

    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted) {
        sweep.through_tokens(at, top, |sweep, pulled| sweep.pull_layer_norm(pulled, wanted));
    }

    fn is_whole(check: &Check<'_>, at: u32) -> Checked {
        is_whole(check, at)
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let expected = Expected::read(loaded.record, true, check)?;
        let [gain, bias, x, aside] = expected.four()?;
        of_parameters(&[gain, bias])?;
        of_nodes(&[x, aside])?;
        expected.no_numbers()?;
        let width = expected.n_out / expected.padded;
        let eps = expected.record.own_float();
        if width * expected.padded != expected.n_out
            || [x.len, gain.len, bias.len] != [expected.n_out, width, width].map(|n| n as u32)
        {
            return Err(format!(
                "has {} outputs, {} inputs, {} gains and {} biases",
                expected.n_out, x.len, gain.len, bias.len
            ));
        }
        if !(eps.is_finite() && eps >= 0.0) {
            return Err(format!("has eps {eps}, expected finite and at least 0"));
        }
        expected.aside(aside, 2 * expected.padded, &[x])?;
        expected.check.temporaries(expected.n_out as usize + LayerNormPull::<f64>::scratch_len(width as usize));
        Ok(())
    }
}

impl<S: BlockMath> Graph<'_, S> {
    /// Appends `gain (x - mean)/sqrt(variance + eps) + bias` for each token, with mean and biased variance over its
    /// features.
    pub fn layer_norm(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        x: Tokens,
        gain: Slice,
        bias: Slice,
        eps: f64,
    ) -> Result<Tokens> {
        let lengths = [gain.len(), bias.len(), x.range().len()];
        let n_out = <LayerNorm as BlockOp<S>>::shape(&lengths, &[padded(x.n())])?;
        if !(eps.is_finite() && eps >= 0.0) {
            let expected = "finite and at least 0".into();
            return Err(Error::BadArgument { what: "eps", expected, found: format!("{eps}") });
        }
        let plan = BlockPlan {
            n_out,
            n_tokens: x.n(),
            own: float_parts(eps),
            n_aside: 2 * padded(x.n()),
            zeroed: false,
            runs: [View::from(gain), View::from(bias), View::from(x.range())].into_iter(),
            numbers: &[],
            scratch: n_out + LayerNormPull::<S>::scratch_len(x.width()),
        };
        push_tokens::<LayerNorm, _, _>(self, params, plan)
    }
}

impl<S: BlockMath> Sweep<'_, '_, S> {
    fn pull_layer_norm(&mut self, pulled: Pulled<'_, '_, S>, wanted: Wanted) {
        let Pulled { record, dy, below, scratch } = pulled;
        let values = self.recorded.values;
        let [gain, bias, input, aside] = [0, 1, 2, 3].map(|k| record.run(k));
        let (x, stats) = (&values[input.range()], &values[aside.range()]);
        let mut dx = if wanted.operand(2) && self.wants(input) { Some(self.adjoints_of(input, below)) } else { None };
        self.with_targets(gain, Some(bias), &mut |targets| {
            let Targets { values: gain, first: dgain, second: dbias } = targets;
            let dx = dx.take();
            S::token_layer_norm_pull(LayerNormPull { gain, dy, x, stats, dx, dgain, dbias, scratch: &mut *scratch });
        });
    }
}
