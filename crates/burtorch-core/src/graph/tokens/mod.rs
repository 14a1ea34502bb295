//! Block ops over several tokens: embedding, dense layer, layer norm, attention, cross-entropy, residual sums.
//!
//! Promises: a block's values equal those of its expansion into scalar nodes within the bound of its sums; parameters are
//! read in place; the places of padding hold finite numbers that no token reads.
//! Does not know derivatives (`backward/tokens`).

mod build;
mod check;
mod evaluate;
mod record;

pub(crate) use check::{check, check_is_whole};
pub(crate) use evaluate::{AffineParts, attention_shape, gathered};
pub(crate) use record::TokenRecord;

use super::{NodeId, Range};
use crate::kernels::tokens::{TOKEN_LANES, padded};

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
