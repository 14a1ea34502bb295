//! Labels: names of nodes, for drawings, files and people. The feature `labels`, on by default, contains all of it.
//!
//! Promises: a label costs the memory of its text, a graph without labels one empty list; operations, sweeps and rewinds do no
//! work for labels. A label follows its node through reclaim, joining and files, and is removed with the node: it stores its
//! epoch, as a handle does, so that a rewind need not scan labels.

use super::{Graph, NodeId, Renumbering, Spliced};
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// The labels of a graph, by ascending node.
pub(crate) type Labels = Vec<Label>;

#[derive(Clone, Debug)]
pub(crate) struct Label {
    node: u32,
    epoch: u64,
    text: String,
}

impl<S: Scalar> Graph<'_, S> {
    /// Gives a node a label, in place of an earlier one; an empty label removes it. Fast for the newest node, linear in the
    /// number of labels for others.
    ///
    /// ```
    /// let mut graph = burtorch_core::Graph::<f64>::new();
    /// let x = graph.leaf(3.0).unwrap();
    /// graph.set_label(x, "x").unwrap();
    /// assert_eq!((graph.label(x), graph.labelled("x")), (Some("x"), Some(x)));
    /// graph.clear().unwrap();
    /// assert_eq!(graph.labelled("x"), None);
    /// ```
    #[optimize(size)]
    pub fn set_label(&mut self, node: NodeId, label: &str) -> Result<()> {
        self.check_exists(node)?;
        // Remove labels of nodes that a rewind removed.
        let n = self.columns.len();
        while self.labels.last().is_some_and(|last| last.node >= n) {
            self.labels.pop();
        }
        self.put_label(node, label)
    }

    /// As [`Graph::set_label`], for a node that may be appended later.
    #[optimize(size)]
    fn put_label(&mut self, node: NodeId, label: &str) -> Result<()> {
        let refused = |_| Error::OutOfMemory { bytes: size_of::<Label>() + label.len(), what: "labels" };
        let mut text = String::new();
        text.try_reserve_exact(label.len()).map_err(refused)?;
        self.labels.try_reserve(1).map_err(refused)?;
        text.push_str(label);
        let new = Label { node: node.0, epoch: self.epoch, text };
        match self.labels.binary_search_by_key(&node.0, |label| label.node) {
            Ok(at) if label.is_empty() => drop(self.labels.remove(at)),
            Ok(at) => self.labels[at] = new,
            Err(_) if label.is_empty() => {}
            Err(at) => self.labels.insert(at, new),
        }
        Ok(())
    }

    /// The label of a node, if it has one.
    pub fn label(&self, node: NodeId) -> Option<&str> {
        let at = self.labels.binary_search_by_key(&node.0, |label| label.node).ok()?;
        self.living(&self.labels[at])
    }

    /// The first node with this label.
    #[optimize(size)]
    pub fn labelled(&self, text: &str) -> Option<NodeId> {
        self.labels().find(|&(_, label)| label == text).map(|(node, _)| node)
    }

    /// Nodes and their labels, in building order.
    #[optimize(size)]
    pub fn labels(&self) -> impl Iterator<Item = (NodeId, &str)> + Clone {
        self.labels.iter().filter_map(|label| Some((NodeId(label.node), self.living(label)?)))
    }

    #[optimize(size)]
    fn living<'a>(&self, label: &'a Label) -> Option<&'a str> {
        self.check(NodeId(label.node), label.epoch).is_ok().then_some(label.text.as_str())
    }

    /// Removes the labels of nodes at `n` and above.
    pub(super) fn drop_labels_from(&mut self, n: u32) {
        self.labels.retain(|label| label.node < n);
    }

    /// Before a compaction: removes the labels of removed nodes.
    pub(super) fn drop_stale_labels(&mut self) {
        let mut labels = std::mem::take(&mut self.labels);
        labels.retain(|label| self.living(label).is_some());
        self.labels = labels;
    }

    /// After a compaction above `base`: labels move with the kept nodes.
    pub(super) fn renumber_labels(labels: &mut Labels, base: u32, new: &Renumbering<'_>) {
        labels.retain_mut(|label| match new.kept(label.node) {
            _ if label.node < base => true,
            Some(node) => {
                (label.node, label.epoch) = (node, new.epoch());
                true
            }
            None => false,
        });
    }

    /// Copies the labels of a graph that is joined to this one, whose nodes may be appended later. Existing labels
    /// stay.
    #[optimize(size)]
    pub(super) fn join_labels(&mut self, other: &Graph<'static, S>, moved: &Spliced) -> Result<()> {
        for (node, label) in other.labels() {
            if let Some(new) = moved.node(node).filter(|&new| self.label(new).is_none()) {
                self.put_label(new, label)?;
            }
        }
        Ok(())
    }
}
