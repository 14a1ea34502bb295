//! Queries about a whole graph: its memory, and its first node that is not finite.

use super::columns::bytes_per_node;
use super::operands::OperandRun;
use super::{Graph, NodeId};
use crate::ops::Op;
use crate::scalar::Scalar;

/// Bytes that a graph uses, by column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Number of nodes.
    pub nodes: usize,
    /// One byte per node.
    pub opcodes: usize,
    /// Two ids per node.
    pub operands: usize,
    /// One scalar per node.
    pub values: usize,
    /// One scalar per node.
    pub adjoints: usize,
    /// Lists of operands and records of block ops.
    pub operand_lists: usize,
    /// Index and accumulated gradient of each leaf.
    pub leaves: usize,
    /// Temporaries of block ops.
    pub temporaries: usize,
    /// All reserved bytes, in use or not.
    pub reserved: usize,
    /// The part for adjoints.
    pub reserved_adjoints: usize,
}

/// The result of [`Graph::find_nonfinite`].
#[derive(Clone, Debug, PartialEq)]
pub struct NonFinite<S> {
    /// The node.
    pub node: NodeId,
    /// Its op.
    pub op: Op,
    /// Its value.
    pub value: S,
    /// Its adjoint in the last sweep.
    pub adjoint: S,
    /// Whether the value is not finite (otherwise the adjoint).
    pub in_value: bool,
    /// Its operands.
    pub inputs: Vec<OperandRun>,
}

impl<S: Scalar> Graph<'_, S> {
    /// Bytes in use by column, and all reserved bytes.
    pub fn memory(&self) -> Memory {
        let n = self.columns.len() as usize;
        Memory {
            nodes: n,
            opcodes: n * size_of::<Op>(),
            operands: n * size_of::<[u32; 2]>(),
            values: n * size_of::<S>(),
            adjoints: n * size_of::<S>(),
            operand_lists: self.extra.len() * 4,
            leaves: self.leaves.len() as usize * (4 + size_of::<S>()),
            temporaries: self.scratch.len() * size_of::<S>(),
            reserved: self.columns.capacity() as usize * bytes_per_node::<S>()
                + self.extra.capacity() * 4
                + self.leaves.capacity() as usize * (4 + size_of::<S>())
                + self.scratch.capacity() * size_of::<S>()
                + self.rewinds.capacity() * 16
                + self.spares.iter().map(|spare| spare.memory().reserved).sum::<usize>()
                + self.spare_temporaries.iter().map(|spare| spare.capacity() * size_of::<S>()).sum::<usize>(),
            reserved_adjoints: self.columns.capacity() as usize * size_of::<S>(),
        }
    }

    /// The first node whose value, or adjoint of the last sweep, is infinite or NaN. Linear in the number of nodes.
    pub fn find_nonfinite(&self) -> Option<NonFinite<S>> {
        let adjoints = self.columns.adjoints();
        let values = self.columns.values();
        let found = (0..values.len()).find(|&k| !values[k].all_finite() || !adjoints[k].all_finite())?;
        let node = NodeId(found as u32);
        let mut inputs = Vec::new();
        self.for_each_operand(node, |run| inputs.push(run));
        Some(NonFinite {
            node,
            op: self.columns.op(node.0),
            value: values[found],
            adjoint: adjoints[found],
            in_value: !values[found].all_finite(),
            inputs,
        })
    }
}
