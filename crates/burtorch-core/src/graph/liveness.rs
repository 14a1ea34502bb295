//! The nodes from which some roots were computed, as one bit per node.

use crate::error::{Error, Result};

/// One bit per node, and on demand the number of set bits below each. Nodes below a base are all in the set, without
/// bits.
#[derive(Debug, Default)]
pub(crate) struct NodeSet {
    /// The node of the first bit.
    pub(super) base: u32,
    pub(super) words: Vec<u64>,
    /// Set bits below each word; filled by [`NodeSet::count`].
    below: Vec<u32>,
}

impl NodeSet {
    /// Empties the set and reserves `n_nodes`. Allocates only when it grows.
    pub(crate) fn reset(&mut self, n_nodes: usize) -> Result<()> {
        self.reset_above(0, n_nodes)
    }

    /// Adds all nodes below `base` to the set and removes those from `base` to `n_nodes`. Costs nothing for the former.
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

    /// Counts the bits for [`NodeSet::rank`]. Returns the size of the set.
    pub(crate) fn count(&mut self) -> u32 {
        let mut total = self.base;
        self.below.clear();
        for word in &self.words {
            self.below.push(total);
            total += word.count_ones();
        }
        total
    }

    /// The number of nodes of the set below `node`, i.e. its number once all others are removed.
    #[inline(always)]
    pub(crate) fn rank(&self, node: u32) -> u32 {
        let Some(at) = node.checked_sub(self.base) else { return node };
        let word = at as usize / 64;
        match self.words.get(word) {
            Some(bits) => self.below[word] + (bits & ((1 << (at % 64)) - 1)).count_ones(),
            // Directly after the last word.
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
