//! The mean over tokens of the softmax cross-entropy of their logits.
//!
//! Promises: probabilities are stored for the backward pass, as constants before the loss. Does not know the source of
//! the logits.

use super::super::check::{Check, Checked};
use super::super::operands::{OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::super::{Graph, NodeId, View};
use super::op::{BlockOp, Loaded, Wanted};
use super::record::Layout;
use super::tokens::{
    BlockPlan, Evaluated, Expected, Pulled, TokenRecord, Tokens, below, equal, evaluated, is_whole, of_nodes,
    operand_and_aside, per_lane, push_block_of,
};
use crate::error::Result;
use crate::kernels::BlockMath;
use crate::ops::Op;

pub(super) struct TokenCrossEntropy;

impl<S: BlockMath> BlockOp<S> for TokenCrossEntropy {
    const OP: Op = Op::TokenCrossEntropy;
    const OVER_TOKENS: bool = true;

    /// The operand is the logits.
    fn shape(_operands: &[usize], _own: &[usize]) -> Result<usize> {
        Ok(1)
    }

    fn layout(extra: &[u32], at: u32, _lanes: usize) -> Layout {
        TokenRecord::read(extra, at).layout()
    }

    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
        TokenRecord::read(extra, at).runs().for_each(f);
    }

    fn cost(extra: &[u32], at: u32) -> u64 {
        5 * u64::from(TokenRecord::read(extra, at).run(0).len)
    }

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, _stores: &StoreValues<'_, S::Elem>) {
        let Evaluated { record, nodes, y, .. } = evaluated(graph, at);
        let (logits, probs) = operand_and_aside(nodes, record.run(0), record.run(1));
        let sum = S::token_cross_entropy(logits, record.n_tokens, record.numbers, probs);
        y[0] = sum / S::lit(record.n_tokens as f64);
    }

    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted) {
        sweep.through_tokens(at, top, |sweep, Pulled { record, dy, below, .. }| {
            let probs = &sweep.recorded.values[record.run(1).range()];
            if wanted.operand(0) && sweep.wants(record.run(0)) {
                let g = dy[0] / S::lit(record.n_tokens as f64);
                let dlogits = sweep.adjoints_of(record.run(0), below);
                S::token_cross_entropy_pull(g, record.n_tokens, record.numbers, probs, dlogits);
            }
        });
    }

    fn is_whole(check: &Check<'_>, at: u32) -> Checked {
        is_whole(check, at)
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let expected = Expected::read(loaded.record, true, check)?;
        let runs: Vec<OperandRun> = expected.runs();
        let [logits, aside] = runs[..] else {
            return Err(format!("has {} operands, expected 2", runs.len()));
        };
        of_nodes(&runs)?;
        let width = u64::from(logits.len) / expected.padded;
        if expected.n_out != 1 || width * expected.padded != u64::from(logits.len) || expected.record.own != [0, 0] {
            return Err(format!(
                "has {} logits of {} tokens, {} outputs",
                logits.len, expected.record.n_tokens, expected.n_out
            ));
        }
        expected.aside(aside, u64::from(logits.len), &[logits])?;
        expected.classes(width)
    }
}

impl<S: BlockMath> Graph<'_, S> {
    /// Appends the mean over tokens of `log(sum exp z) - z[class]`. With lanes, `classes` are those of lane 0, then of
    /// lane 1, ... The probabilities are nodes before the loss, through which no gradient flows.
    pub fn token_cross_entropy(&mut self, logits: Tokens, classes: &[u32]) -> Result<NodeId> {
        let n = per_lane::<S>("token_cross_entropy (lanes and classes)", classes)?;
        equal("token_cross_entropy (tokens and classes)", logits.n(), n)?;
        below("class", classes, logits.width())?;
        let n_aside = logits.range().len();
        let runs = std::iter::once(View::from(logits.range()));
        let plan =
            BlockPlan { n_out: 1, n_tokens: n, own: [0; 2], n_aside, zeroed: true, runs, numbers: classes, scratch: 0 };
        Ok(push_block_of::<TokenCrossEntropy, _, _>(self, &[], plan)?.first())
    }
}
