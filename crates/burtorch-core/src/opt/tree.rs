//! Sums of the clients' vectors by one fixed binary tree over the clients' numbers.
//!
//! Node j of level k stands for the clients from j 2^k to (j + 1) 2^k; its sum is that of its left half plus that of its right
//! half, or that of the only half with participating clients. Promises: the sum is a function of the vectors and numbers alone,
//! however clients are divided among threads and processes, as long as each adds complete subtrees.

use std::ops::Range;

use crate::error::Result;
use crate::memory;

/// A sum of clients in ascending order. Its memory is reused by the next sum.
#[derive(Debug, Default)]
pub(super) struct TreeSum {
    /// Subtrees not joined yet, leftmost first; entries from `len` on are spare memory.
    nodes: Vec<Node>,
    len: usize,
    /// The clients added here; `usize::MAX` as the end if no clients follow.
    range: Range<usize>,
}

/// A subtree.
#[derive(Debug, Default)]
struct Node {
    /// A client of the subtree.
    client: usize,
    /// The level of the common ancestor with the previous subtree.
    level: u32,
    sum: Vec<f64>,
}

const WHAT: &str = "a sum over clients";

/// The level of the lowest common ancestor of two clients.
fn common_level(a: usize, b: usize) -> u32 {
    usize::BITS - (a ^ b).leading_zeros()
}

impl TreeSum {
    /// Starts a sum over clients in this range.
    pub(super) fn begin(&mut self, range: Range<usize>) {
        (self.len, self.range) = (0, range);
    }

    /// Adds the vector of a client, or of a complete subtree that contains it: returns `width` zeros to fill in.
    pub(super) fn push(&mut self, client: usize, width: usize) -> Result<&mut [f64]> {
        let level = self.last().map_or(0, |last| common_level(last.client, client));
        self.join_below(level);
        if self.len == self.nodes.len() {
            memory::reserve_in(&mut self.nodes, 1, WHAT)?;
            self.nodes.push(Node::default());
        }
        let node = &mut self.nodes[self.len];
        (node.client, node.level) = (client, level);
        node.sum.clear();
        memory::reserve_in(&mut node.sum, width, WHAT)?;
        node.sum.resize(width, 0.0);
        self.len += 1;
        Ok(&mut node.sum)
    }

    /// Finishes the sum: joins the remaining subtrees where possible.
    pub(super) fn end(&mut self) {
        self.join_below(u32::MAX);
    }

    /// A client and the sum of each remaining subtree: a single one if the range has all clients.
    pub(super) fn roots(&self) -> impl ExactSizeIterator<Item = (usize, &[f64])> {
        self.nodes[..self.len].iter().map(|node| (node.client, &node.sum[..]))
    }

    fn last(&self) -> Option<&Node> {
        self.len.checked_sub(1).map(|last| &self.nodes[last])
    }

    fn join_below(&mut self, level: u32) {
        while self.len >= 2 {
            let (before, top) = self.nodes[..self.len].split_at_mut(self.len - 1);
            let (left, right) = (&mut before[self.len - 2], &top[0]);
            if right.level >= level || !is_inside(right, &self.range) {
                return;
            }
            left.sum.iter_mut().zip(&right.sum).for_each(|(left, right)| *left += right);
            self.len -= 1;
        }
    }
}

/// Whether the common ancestor with the left neighbour has all its clients in the range.
fn is_inside(node: &Node, range: &Range<usize>) -> bool {
    let size = 1 << node.level;
    let start = node.client & !(size - 1);
    start >= range.start && start + size <= range.end
}

/// The range as complete subtrees of at most 2^`level` clients; there are no clients from `n` on.
pub(super) fn subtrees(range: Range<usize>, n: usize, level: u32) -> impl Iterator<Item = Range<usize>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let fits = |size: usize| at.is_multiple_of(size) && (at + size <= range.end || range.end == n);
        let size = (0..=level).rev().map(|level| 1 << level).find(|&size| fits(size)).unwrap_or(1);
        let found = at..range.end.min(at + size);
        at = found.end;
        (!found.is_empty()).then_some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(k: usize) -> f64 {
        (k as f64 + 0.3).sin() * 10f64.powi(k as i32 % 7 - 3)
    }

    /// The definition, by recursion.
    fn plain(node: Range<usize>, present: &dyn Fn(usize) -> bool) -> Option<f64> {
        if node.len() == 1 {
            return present(node.start).then(|| number(node.start));
        }
        let middle = node.start + node.len() / 2;
        match (plain(node.start..middle, present), plain(middle..node.end, present)) {
            (Some(left), Some(right)) => Some(left + right),
            (left, right) => left.or(right),
        }
    }

    #[test]
    fn the_sum_is_that_of_the_tree_for_every_division() {
        for n in 1..40usize {
            for skip in [1, 2, 3, 7] {
                let present = |k: usize| k < n && k.is_multiple_of(skip);
                let expected = plain(0..n.next_power_of_two(), &present);
                for cut in 0..=n {
                    let mut total = TreeSum::default();
                    total.begin(0..usize::MAX);
                    for range in [0..cut, cut..n] {
                        let mut part = TreeSum::default();
                        part.begin(range.start..if range.end == n { usize::MAX } else { range.end });
                        for block in subtrees(range, n, 2) {
                            for k in block.filter(|&k| present(k)) {
                                part.push(k, 1).unwrap()[0] = number(k);
                            }
                        }
                        part.end();
                        assert!(part.roots().len() <= 2 * (usize::BITS - n.leading_zeros()) as usize);
                        for (client, sum) in part.roots() {
                            total.push(client, 1).unwrap().copy_from_slice(sum);
                        }
                    }
                    total.end();
                    assert_eq!(total.roots().map(|(_, sum)| sum[0]).next(), expected);
                    assert!(total.roots().len() <= 1);
                }
            }
        }
    }
}
