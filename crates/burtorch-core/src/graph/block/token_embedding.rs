//! Rows of a table, one per token, plus rows of positions.
//!
//! Promises that only the rows used receive a gradient. Does not know vocabularies.

use super::super::Graph;
use super::super::check::{Check, Checked};
use super::super::operands::{OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::op::{BlockOp, Loaded, Wanted};
use super::record::Layout;
use super::tokens::{
    BlockPlan, Evaluated, Expected, Pulled, TokenRecord, Tokens, below, evaluated, is_whole, numbers, of_parameters,
    per_lane, places, push_tokens,
};
use crate::error::{Error, Result};
use crate::graph::View;
use crate::kernels::BlockMath;
use crate::kernels::tokens::{TOKEN_LANES, padded};
use crate::ops::Op;
use crate::params::{Parameters, Slice};

const L: usize = TOKEN_LANES;

pub(super) struct TokenEmbedding;

impl<S: BlockMath> BlockOp<S> for TokenEmbedding {
    const OP: Op = Op::TokenEmbedding;
    const OVER_TOKENS: bool = true;

    /// Operands: the table, and positions if any. The op's own parameters are the width and the number of tokens.
    fn shape(operands: &[usize], own: &[usize]) -> Result<usize> {
        let [width, n] = [own[0], own[1]];
        if width == 0 || !operands[0].is_multiple_of(width) {
            let what = "token_embedding (numbers of the table and of a row)";
            return Err(Error::LengthMismatch { op: what, left: operands[0], right: width });
        }
        places(n, width)
    }

    fn layout(extra: &[u32], at: u32, _lanes: usize) -> Layout {
        TokenRecord::read(extra, at).layout()
    }

    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
        TokenRecord::read(extra, at).runs().for_each(f);
    }

    fn cost(extra: &[u32], at: u32) -> u64 {
        u64::from(extra[at as usize + 1])
    }

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, stores: &StoreValues<'_, S::Elem>) {
        let Evaluated { record, y, .. } = evaluated(graph, at);
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

    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted) {
        sweep.through_tokens(at, top, |sweep, pulled| sweep.pull_embedding(pulled, wanted));
    }

    fn is_whole(check: &Check<'_>, at: u32) -> Checked {
        is_whole(check, at)
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let expected = Expected::read(loaded.record, true, check)?;
        let [width, rest] = expected.record.own;
        let (n, width) = (expected.record.n_tokens as u64, u64::from(width));
        let runs: Vec<OperandRun> = expected.runs();
        let (table, positions) = match runs[..] {
            [table] => (table, None),
            [table, positions] => (table, Some(positions)),
            _ => return Err(format!("has {} operands, expected 1 or 2", runs.len())),
        };
        of_parameters(&runs)?;
        if width == 0
            || rest != 0
            || expected.padded * width != expected.n_out
            || !u64::from(table.len).is_multiple_of(width)
        {
            return Err(format!("has {} outputs and a table of {} in rows of {width}", expected.n_out, table.len));
        }
        if let Some(positions) = positions.filter(|positions| u64::from(positions.len) != n * width) {
            return Err(format!("has {} numbers of positions, expected {}", positions.len, n * width));
        }
        expected.classes(u64::from(table.len) / width)?;
        expected.check.temporaries(2 * expected.n_out as usize);
        Ok(())
    }
}

impl<S: BlockMath> Graph<'_, S> {
    /// Appends one row of `table` per token, plus, if given, the row of `positions` at the token's position. `table` is
    /// vocabulary x `width` by rows; `positions` has at least as many rows as there are tokens. With lanes, `tokens`
    /// are those of lane 0, then of lane 1, ...
    pub fn token_embedding(
        &mut self,
        params: &[&Parameters<'_, S::Elem>],
        table: Slice,
        positions: Option<Slice>,
        width: usize,
        tokens: &[u32],
    ) -> Result<Tokens> {
        let n = per_lane::<S>("token_embedding (lanes and tokens)", tokens)?;
        let n_out = <TokenEmbedding as BlockOp<S>>::shape(&[table.len()], &[width, n])?;
        below("token", tokens, table.len() / width)?;
        let positions = match positions {
            Some(rows) => match rows.slice(0, n * width) {
                Some(used) => Some(used),
                None => return Err(too_many_tokens(n, rows.len() / width)),
            },
            None => None,
        };
        let runs = std::iter::once(table).chain(positions).map(View::from);
        let plan = BlockPlan {
            n_out,
            n_tokens: n,
            own: [width as u32, 0],
            n_aside: 0,
            zeroed: false,
            runs,
            numbers: tokens,
            scratch: 2 * n_out,
        };
        push_tokens::<TokenEmbedding, _, _>(self, params, plan)
    }
}

impl<S: BlockMath> Sweep<'_, '_, S> {
    fn pull_embedding(&mut self, pulled: Pulled<'_, '_, S>, wanted: Wanted) {
        let Pulled { record, dy, scratch, .. } = pulled;
        let (n, width) = (record.n_tokens, record.own[0] as usize);
        let table = record.run(0);
        let table = (wanted.operand(0) && self.is_any_trainable(table)).then_some(table);
        let positions = record.runs().nth(1).filter(|&run| wanted.operand(1) && self.is_any_trainable(run));
        if table.is_none() && positions.is_none() {
            return;
        }
        let at = |t: usize, f: usize| (t / L * width + f) * L + t % L;
        let rows = &mut scratch[..n * width];
        for t in 0..n {
            (0..width).for_each(|f| rows[t * width + f] = dy[at(t, f)]);
        }
        let all_reached = S::all_reached(rows);
        if let Some(run) = positions {
            self.add_reached(run, 0..n * width, rows, all_reached);
        }
        for (t, row) in rows.chunks_exact(width).enumerate().filter(|_| table.is_some()) {
            for (lane, tokens) in record.numbers.chunks_exact(n).enumerate() {
                let first = tokens[t] as usize * width;
                let Some(run) = table else { break };
                if S::LANES == 1 {
                    self.add_reached(run, first..first + width, row, all_reached);
                    continue;
                }
                for (f, g) in row.iter().enumerate().filter(|(_, g)| !g.is_unreached()) {
                    let own = S::lit(0.0).with_lane(lane, g.lane(lane));
                    self.add_parameter(run.source - 1, run.start as usize + first + f, own);
                }
            }
        }
    }
}

fn too_many_tokens(n: usize, max: usize) -> Error {
    let expected = format!("at most {max} tokens, one per position");
    Error::BadArgument { what: "the number of tokens", expected, found: n.to_string() }
}
