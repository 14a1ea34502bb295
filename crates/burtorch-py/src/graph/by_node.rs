//! A map from nodes of a graph to data, which follows rewinds and renumbering.
//!
//! Promises: a refused allocation changes nothing; following a compaction needs no new memory. Following a rewind or a
//! compaction costs no more than the affected nodes.

use std::collections::HashMap;

use burtorch_core::Result;
use burtorch_core::memory::{list_for, refused};

const WHAT: &str = "data of nodes";

/// See the module.
pub struct ByNode<T> {
    of: HashMap<u32, T>,
    /// Above all nodes in `of`.
    end: u32,
}

impl<T> Default for ByNode<T> {
    fn default() -> Self {
        ByNode { of: HashMap::new(), end: 0 }
    }
}

/// The nodes from some line on, and memory for renumbering their data.
pub struct Young<T> {
    nodes: Vec<u32>,
    moved: Vec<(u32, T)>,
}

impl<T> ByNode<T> {
    /// The number of nodes with data.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// All entries.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.of.values()
    }

    /// The data of a node.
    pub fn get(&self, node: u32) -> Option<&T> {
        self.of.get(&node)
    }

    /// Sets the data of a node.
    pub fn insert(&mut self, node: u32, what: T) {
        self.of.insert(node, what);
        self.end = self.end.max(node.saturating_add(1));
    }

    /// Removes entries that do not pass a test.
    pub fn retain(&mut self, mut passes: impl FnMut(&T) -> bool) {
        self.of.retain(|_, what| passes(what));
    }

    /// Removes entries of nodes from `len` on.
    pub fn truncate(&mut self, len: u32) {
        if self.end <= len {
            return;
        }
        if ((self.end - len) as usize) < self.of.len() {
            for node in len..self.end {
                self.of.remove(&node);
            }
        } else {
            self.of.retain(|&node, _| node < len);
        }
        self.end = len;
    }

    /// The nodes from `line` on.
    pub fn young(&mut self, line: u32) -> Result<Young<T>> {
        let n = (self.end.saturating_sub(line) as usize).min(self.of.len());
        let (mut nodes, moved) = (list_for(n, WHAT)?, list_for(n, WHAT)?);
        if n < self.of.len() {
            nodes.extend((line..self.end).filter(|node| self.of.contains_key(node)));
        } else {
            nodes.extend(self.of.keys().filter(|&&node| node >= line));
        }
        self.of.try_reserve(nodes.len()).map_err(|_| refused::<(u32, T)>(nodes.len(), WHAT))?;
        Ok(Young { nodes, moved })
    }

    /// Moves the data of these nodes to their new numbers, and removes data of removed nodes.
    pub fn rename(&mut self, Young { nodes, mut moved }: Young<T>, new: impl Fn(u32) -> Option<u32>) {
        for node in nodes {
            if let (Some(what), Some(node)) = (self.of.remove(&node), new(node)) {
                moved.push((node, what));
            }
        }
        for (node, what) in moved {
            self.of.insert(node, what);
        }
    }
}
