//! Root mean square normalisation: `gain x / sqrt(mean of x^2 + eps)`, over a range or over the features of each token.
//!
//! Promises: the inverse of each root is stored for the backward pass, as a constant before the outputs; unreached
//! outputs contribute nothing. Does not know residual streams.

use super::super::Graph;
use super::super::check::{Check, Checked};
use super::super::operands::{OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::op::{BlockOp, Loaded, Wanted};
use super::record::Layout;
use super::tokens::{
    BlockPlan, Evaluated, Expected, Pulled, TokenRecord, equal, evaluated, float_parts, is_whole, numbers, of_nodes,
    of_parameters, operand_and_aside, push_block_of,
};
use crate::error::{Error, Result};
use crate::graph::{Range, View};
use crate::kernels::BlockMath;
use crate::kernels::tokens::{TOKEN_LANES, padded};
use crate::ops::Op;
use crate::params::Parameters;

/// How a range is divided into rows, each normalised separately: `side` rows are interleaved number by number.
#[derive(Clone, Copy)]
struct Rows {
    side: usize,
    width: usize,
}

impl Rows {
    /// The rows of activations of `n_tokens` tokens; 0 for a range that is one row.
    fn of(n_tokens: usize, width: usize) -> Self {
        Rows { side: if n_tokens > 0 { TOKEN_LANES } else { 1 }, width }
    }

    /// The number of rows for this many tokens, including padding.
    fn count(n_tokens: usize) -> usize {
        if n_tokens > 0 { padded(n_tokens) } else { 1 }
    }

    /// The index of number `i` of row `row`.
    fn at(self, row: usize, i: usize) -> usize {
        (row / self.side * self.width + i) * self.side + row % self.side
    }
}

pub(super) struct RmsNorm;

impl<S: BlockMath> BlockOp<S> for RmsNorm {
    const OP: Op = Op::RmsNorm;
    const OVER_TOKENS: bool = true;

    /// Operands: gains, inputs. The op's own parameter is the number of rows, including padding.
    fn shape(operands: &[usize], own: &[usize]) -> Result<usize> {
        if operands[0] == 0 {
            return Err(Error::EmptyReduction { op: Op::RmsNorm.name() });
        }
        equal("rms_norm (inputs, and gains times rows)", operands[1], operands[0] * own[0])?;
        Ok(operands[1])
    }

    fn layout(extra: &[u32], at: u32, _lanes: usize) -> Layout {
        TokenRecord::read(extra, at).layout()
    }

    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
        TokenRecord::read(extra, at).runs().for_each(f);
    }

    fn cost(extra: &[u32], at: u32) -> u64 {
        4 * u64::from(extra[at as usize + 1])
    }

    /// Operands: gains, inputs. The op's own parameters: eps, and the number of tokens of the inputs, 0 for a range
    /// that is one row.
    fn append(
        graph: &mut Graph<'_, S>,
        params: &[&Parameters<'_, S::Elem>],
        operands: &[View],
        own: &[f64],
    ) -> Result<Range> {
        let (&[gain @ View::Parameters(_), x @ View::Nodes(_)], &[eps, n]) = (operands, own) else {
            let expected = "parameters as gains and nodes as inputs, with eps and a number of tokens".into();
            let found = format!("{} operands and {} numbers", operands.len(), own.len());
            return Err(Error::BadArgument { what: "the operands of rms_norm", expected, found });
        };
        if !(n >= 0.0 && n <= x.len() as f64 && n.fract() == 0.0) {
            let expected = format!("an integer up to {}", x.len());
            return Err(Error::BadArgument { what: "the number of tokens", expected, found: n.to_string() });
        }
        if !(eps.is_finite() && eps >= 0.0) {
            let expected = "finite and at least 0".into();
            return Err(Error::BadArgument { what: "eps", expected, found: format!("{eps}") });
        }
        let n_tokens = n as usize;
        let n_aside = Rows::count(n_tokens);
        let n_out = <Self as BlockOp<S>>::shape(&[gain.len(), x.len()], &[n_aside])?;
        let plan = BlockPlan {
            n_out,
            n_tokens,
            own: float_parts(eps),
            n_aside,
            zeroed: false,
            runs: [gain, x].into_iter(),
            numbers: &[],
            // A copy of adjoints if some are unreached, and the contributions to the gains.
            scratch: n_out + gain.len(),
        };
        push_block_of::<Self, _, _>(graph, params, plan)
    }

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, stores: &StoreValues<'_, S::Elem>) {
        let Evaluated { record, nodes, y, .. } = evaluated(graph, at);
        let gain = numbers(stores, record.run(0));
        let (x, scales) = operand_and_aside(nodes, record.run(1), record.run(2));
        let (rows, n) = (Rows::of(record.n_tokens, gain.len()), S::lit(gain.len() as f64));
        for (row, scale) in scales.iter_mut().enumerate() {
            let squares = (0..rows.width).fold(S::lit(0.0), |sum, i| {
                let x = x[rows.at(row, i)];
                sum + x * x
            });
            *scale = S::lit(1.0) / (squares / n + S::lit(record.own_float())).sqrt();
            for (i, &gain) in gain.iter().enumerate() {
                y[rows.at(row, i)] = x[rows.at(row, i)] * *scale * S::splat(gain);
            }
        }
    }

    /// With `u = x scale` and `a = gain dy`: `dx = (a - u mean(a u)) scale`, and the gradient of each gain is the sum
    /// of `dy u`.
    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted) {
        sweep.through_tokens(at, top, |sweep, Pulled { record, dy, below, scratch }| {
            let [gain_run, x_run, scales_run] = [0, 1, 2].map(|k| record.run(k));
            let values = sweep.recorded.values;
            let (x, scales) = (&values[x_run.range()], &values[scales_run.range()]);
            let n = S::lit(f64::from(gain_run.len));
            let rows = Rows::of(record.n_tokens, gain_run.len as usize);
            let unit = |row: usize, i: usize| x[rows.at(row, i)] * scales[row];
            let reached = |row: usize, i: usize| Some(dy[rows.at(row, i)]).filter(|d| !d.is_unreached());
            if wanted.operand(1) && sweep.wants(x_run) {
                let dx = sweep.adjoints_of(x_run, below);
                let gain = sweep.values_of(gain_run);
                let part = |row: usize, i: usize| reached(row, i).map(|d| S::splat(gain[i]) * d);
                for row in 0..scales.len() {
                    let parts = || (0..rows.width).filter_map(|i| part(row, i).map(|a| (i, a)));
                    if parts().next().is_none() {
                        continue;
                    }
                    let slope = parts().fold(S::lit(0.0), |sum, (i, a)| sum + a * unit(row, i)) / n;
                    for i in 0..rows.width {
                        let own = part(row, i).unwrap_or(S::lit(0.0));
                        let dx = &mut dx[rows.at(row, i)];
                        *dx = *dx + ((own - unit(row, i) * slope) * scales[row] + S::lit(0.0));
                    }
                }
            }
            if wanted.operand(0) && sweep.is_any_trainable(gain_run) {
                let dgain = &mut scratch[..rows.width];
                for (i, dgain) in dgain.iter_mut().enumerate() {
                    *dgain = (0..scales.len())
                        .fold(S::lit(0.0), |sum, row| reached(row, i).map_or(sum, |d| sum + d * unit(row, i)));
                }
                sweep.add_parameters(gain_run.source - 1, gain_run.start as usize, dgain);
            }
        });
    }

    fn is_whole(check: &Check<'_>, at: u32) -> Checked {
        is_whole(check, at)
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let expected = Expected::read(loaded.record, loaded.record[2] > 0, check)?;
        let runs = expected.runs();
        let [gain, x, aside] = runs[..] else {
            return Err(format!("has {} operands, expected 3", runs.len()));
        };
        of_parameters(&[gain])?;
        of_nodes(&[x, aside])?;
        expected.no_numbers()?;
        let n_rows = Rows::count(expected.record.n_tokens) as u64;
        let eps = expected.record.own_float();
        if u64::from(gain.len) * n_rows != expected.n_out || u64::from(x.len) != expected.n_out {
            return Err(format!("has {} outputs, {} inputs and {} gains", expected.n_out, x.len, gain.len));
        }
        if !(eps.is_finite() && eps >= 0.0) {
            return Err(format!("has eps {eps}, expected finite and at least 0"));
        }
        expected.aside(aside, n_rows, &[x])?;
        expected.check.temporaries((expected.n_out + u64::from(gain.len)) as usize);
        Ok(())
    }
}
