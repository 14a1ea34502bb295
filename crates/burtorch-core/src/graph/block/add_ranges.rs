//! The sum of two ranges, element by element.
//!
//! Promises the values and contributions of one node each.

use super::super::check::{Check, Checked};
use super::super::operands::{OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::super::{Graph, Range, View};
use super::op::{BlockOp, Loaded, Wanted};
use super::record::Layout;
use super::tokens::{
    BlockPlan, Evaluated, Expected, TokenRecord, Tokens, equal, evaluated, is_whole, of_nodes, push_block_of,
    same_tokens,
};
use crate::error::{Error, Result};
use crate::kernels::slices;
use crate::ops::Op;
use crate::scalar::Scalar;

pub(super) struct AddRanges;

impl<S: Scalar> BlockOp<S> for AddRanges {
    const OP: Op = Op::AddRanges;
    const OVER_TOKENS: bool = true;

    fn shape(operands: &[usize], _own: &[usize]) -> Result<usize> {
        equal("add_ranges", operands[0], operands[1])?;
        if operands[0] == 0 {
            return Err(Error::EmptyReduction { op: Op::AddRanges.name() });
        }
        Ok(operands[0])
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

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, _stores: &StoreValues<'_, S::Elem>) {
        let Evaluated { record, nodes, y: sum, .. } = evaluated(graph, at);
        let [x, y] = [0, 1].map(|k| &nodes[record.run(k).range()]);
        slices::add(x, y, sum);
    }

    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted) {
        let record = TokenRecord::read(sweep.extra, at);
        let all_adjoints = std::mem::take(&mut sweep.adjoints);
        let (below, outputs) = all_adjoints.split_at_mut((record.header.first - sweep.base) as usize);
        let met = &outputs[..(top + 1 - record.header.first) as usize];
        (0..2).filter(|&k| wanted.operand(k)).for_each(|k| sweep.pass_to(record.run(k), met, below));
        sweep.adjoints = all_adjoints;
    }

    fn is_whole(check: &Check<'_>, at: u32) -> Checked {
        is_whole(check, at)
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let expected = Expected::read(loaded.record, false, check)?;
        let runs: Vec<OperandRun> = expected.runs();
        of_nodes(&runs)?;
        expected.no_numbers()?;
        if runs.len() != 2
            || runs.iter().any(|run| u64::from(run.len) != expected.n_out)
            || expected.record.own != [0, 0]
        {
            return Err(format!("adds {} ranges, expected two of {}", runs.len(), expected.n_out));
        }
        expected.check.temporaries(expected.n_out as usize);
        Ok(())
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends `x_i + y_i` for two ranges of equal length, as one block.
    pub fn add_ranges(&mut self, x: Range, y: Range) -> Result<Range> {
        let runs = [View::from(x), View::from(y)].into_iter();
        let n_out = <AddRanges as BlockOp<S>>::shape(&[x.len(), y.len()], &[])?;
        let plan = BlockPlan {
            n_out,
            n_tokens: 0,
            own: [0; 2],
            n_aside: 0,
            zeroed: false,
            runs,
            numbers: &[],
            scratch: n_out,
        };
        push_block_of::<AddRanges, _, _>(self, &[], plan)
    }

    /// Appends `x + y` for activations of the same tokens.
    pub fn add_tokens(&mut self, x: Tokens, y: Tokens) -> Result<Tokens> {
        same_tokens("add_tokens (tokens)", &[x, y])?;
        Ok(Tokens::of(self.add_ranges(x.range(), y.range())?, x.n() as u32))
    }
}
