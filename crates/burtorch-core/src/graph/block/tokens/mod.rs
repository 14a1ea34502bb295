//! The common parts of block ops over several tokens: layout of activations, records, appending, checking and backward
//! passes.
//!
//! Promises: parameters are read in place; padding has finite numbers that no token reads. Does not know the ops, each
//! of which is a file beside this folder.

mod append;
mod check;
mod pull;
mod record;

pub(super) use append::{BlockPlan, below, equal, per_lane, places, push_block_of, push_tokens, same_tokens};
pub(super) use check::{Expected, is_whole, of_nodes, of_parameters};
pub(super) use pull::{Pulled, Targets};
pub(crate) use record::TokenRecord;
pub(super) use record::float_parts;

use super::super::operands::{OperandRun, StoreValues};
use super::super::{Graph, NodeId, Range};
use crate::kernels::tokens::{TOKEN_LANES, padded};
use crate::scalar::Scalar;

/// Activations of several tokens: a range of nodes in groups of 8 tokens, each group `width x 8`.
///
/// Feature f of token t is node `(t / 8 * width + f) * 8 + t % 8` of the range. Places after the last token are padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tokens {
    range: Range,
    n: u32,
}

impl Tokens {
    /// The activations of `n` tokens in `range`, if a whole number of features fills it.
    pub fn new(range: Range, n: usize) -> Option<Self> {
        let fits = n > 0 && range.len > 0 && range.len().is_multiple_of(padded(n));
        fits.then_some(Tokens { range, n: n as u32 })
    }

    /// How many tokens.
    pub fn n(&self) -> usize {
        self.n as usize
    }

    /// Features of a token.
    pub fn width(&self) -> usize {
        self.range.len() / padded(self.n())
    }

    /// The nodes, padding included.
    pub fn range(&self) -> Range {
        self.range
    }

    /// Feature `f` of token `t`, if it is there.
    pub fn node(&self, t: usize, f: usize) -> Option<NodeId> {
        let at = (t / TOKEN_LANES * self.width() + f) * TOKEN_LANES + t % TOKEN_LANES;
        if t < self.n() && f < self.width() { self.range.get(at) } else { None }
    }

    /// Features `from..to` of every token without copying, which only a single group of at most 8 tokens has in one range.
    pub fn features(&self, from: usize, to: usize) -> Option<Tokens> {
        if self.n() > TOKEN_LANES || from >= to {
            return None;
        }
        let range = self.range.slice(from * TOKEN_LANES, to * TOKEN_LANES)?;
        Some(Tokens { range, n: self.n })
    }
}

impl Tokens {
    /// The activations of `n` tokens that a block returned.
    pub(super) fn of(range: Range, n: u32) -> Self {
        Tokens { range, n }
    }
}

/// The values of a range of parameters.
pub(super) fn numbers<'a, E>(stores: &StoreValues<'a, E>, run: OperandRun) -> &'a [E] {
    &stores[run.source as usize - 1][run.range()]
}

/// The data for evaluating a block.
pub(super) struct Evaluated<'g, S> {
    pub(super) record: TokenRecord<'g>,
    /// The nodes below the outputs.
    pub(super) nodes: &'g mut [S],
    pub(super) y: &'g mut [S],
    pub(super) scratch: &'g mut [S],
}

/// The data for evaluating the block at `at`.
pub(super) fn evaluated<'g, S: Scalar>(graph: &'g mut Graph<'_, S>, at: u32) -> Evaluated<'g, S> {
    let record = TokenRecord::read(graph.extra.as_slice(), at);
    let (nodes, outputs) = graph.columns.values_mut().split_at_mut(record.header.first as usize);
    let y = &mut outputs[..record.header.n_out as usize];
    Evaluated { record, nodes, y, scratch: graph.scratch.as_mut_slice() }
}

/// An operand, and the nodes after it that the block fills.
pub(super) fn operand_and_aside<S>(nodes: &mut [S], operand: OperandRun, aside: OperandRun) -> (&[S], &mut [S]) {
    let (nodes, rest) = nodes.split_at_mut(aside.start as usize);
    (&nodes[operand.range()], &mut rest[..aside.len as usize])
}
