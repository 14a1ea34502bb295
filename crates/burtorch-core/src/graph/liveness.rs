//! Which nodes some roots were computed from, as one bit per node.

use super::BlockHeader;
use super::topology::Topology;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::ops::{Arity, Op};

/// One bit per node, and on demand how many set bits lie below each. Nodes below a base are all in the set, without bits.
#[derive(Debug, Default)]
pub(crate) struct NodeSet {
    /// The node of the first bit.
    base: u32,
    words: Vec<u64>,
    /// Set bits below each word; filled by [`NodeSet::count`].
    below: Vec<u32>,
}

impl NodeSet {
    /// Empties the set and makes room for `n_nodes`. Allocates only when it grows.
    pub(crate) fn reset(&mut self, n_nodes: usize) -> Result<()> {
        self.reset_above(0, n_nodes)
    }

    /// Takes all nodes below `base` into the set and those from `base` to `n_nodes` out. Costs nothing for the former.
    pub(crate) fn reset_above(&mut self, base: u32, n_nodes: usize) -> Result<()> {
        let n_words = n_nodes.saturating_sub(base as usize).div_ceil(64);
        self.base = base;
        self.words.clear();
        self.below.clear();
        let refused = |_| Error::OutOfMemory { bytes: n_words * 12, what: "a set of nodes" };
        self.words.try_reserve(n_words).map_err(refused)?;
        self.below.try_reserve(n_words).map_err(refused)?;
        self.words.resize(n_words, 0);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn contains(&self, node: u32) -> bool {
        match node.checked_sub(self.base) {
            Some(at) => self.words.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1),
            None => true,
        }
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, node: u32) {
        if let Some(at) = node.checked_sub(self.base) {
            self.words[at as usize / 64] |= 1 << (at % 64);
        }
    }

    #[inline]
    pub(crate) fn insert_range(&mut self, start: u32, len: u32) {
        for node in start.max(self.base)..start + len {
            self.insert(node);
        }
    }

    /// Counts the set bits, so that [`NodeSet::rank`] can be asked. Returns how many nodes the set has.
    pub(crate) fn count(&mut self) -> u32 {
        let mut total = self.base;
        self.below.clear();
        for word in &self.words {
            self.below.push(total);
            total += word.count_ones();
        }
        total
    }

    /// How many nodes of the set lie below `node`: its number once only the set is left.
    #[inline(always)]
    pub(crate) fn rank(&self, node: u32) -> u32 {
        let Some(at) = node.checked_sub(self.base) else { return node };
        let word = at as usize / 64;
        match self.words.get(word) {
            Some(bits) => self.below[word] + (bits & ((1 << (at % 64)) - 1)).count_ones(),
            // Right behind the last word.
            None => self.words.last().map_or(self.base, |bits| bits.count_ones() + self.below[self.words.len() - 1]),
        }
    }

    /// Calls `f` with each node of the set from the base on, ascending.
    #[inline]
    pub(crate) fn for_each(&self, mut f: impl FnMut(u32)) {
        for (k, &word) in self.words.iter().enumerate() {
            let mut bits = word;
            while bits != 0 {
                f(self.base + k as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }
}

impl Topology<'_> {
    /// Adds to `set`, which holds roots, everything they were computed from. One pass downwards to the set's base, 64 nodes
    /// at a time where there are none; blocks are taken whole. Asks now and then whether to end early.
    pub(crate) fn mark_reachable(self, set: &mut NodeSet) -> Result<()> {
        for k in (0..set.words.len()).rev() {
            interrupt::ask_at(64 * k)?;
            // Operands lie below their node, so only bits below the one in hand can still appear in this word.
            let mut not_taken = u64::MAX;
            loop {
                let bits = set.words[k] & not_taken;
                if bits == 0 {
                    break;
                }
                let bit = 63 - bits.leading_zeros();
                not_taken = (1 << bit) - 1;
                self.mark_operands(set.base + k as u32 * 64 + bit, set);
            }
        }
        Ok(())
    }

    #[inline]
    fn mark_operands(self, node: u32, set: &mut NodeSet) {
        let mut tail = node;
        let mut op = self.op(node);
        if op == Op::Part {
            // Met from above: if the next output is in the set, the block was taken whole with it.
            if set.contains(node + 1) {
                return;
            }
            tail = self.block_tail(node).unwrap_or(node);
            op = self.op(tail);
        }
        if op.info().arity == Arity::Block {
            let header = BlockHeader::read(self.extra, self.operands[tail as usize][0]);
            set.insert_range(header.first, header.n_out);
        }
        self.for_each_operand(tail, |run| {
            if let Some(range) = run.nodes() {
                set.insert_range(range.start, range.len);
            }
        });
    }
}
