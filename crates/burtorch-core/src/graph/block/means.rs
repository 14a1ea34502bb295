//! Mean and mean of squares of a run, as one block of two outputs.

use super::super::structure::{Check, Checked};
use super::super::{Graph, NodeId, OperandRun, Range};
use super::{Field, Layout, nodes};
use crate::error::{Error, Result};
use crate::ops::{Op, Reduction};
use crate::scalar::Scalar;

pub(super) const LAYOUT: Layout = Layout { len: 4, fields: &[Field::Node(0), Field::Node(2)] };

/// The first output, and the run.
pub(super) fn operands(extra: &[u32], at: u32) -> (u32, Range) {
    let at = at as usize;
    (extra[at], Range { start: extra[at + 2], len: extra[at + 3] })
}

/// See [`Check::block`].
pub(super) fn check(record: &[u32], check: &mut Check<'_>) -> Checked {
    if record[1] != 2 {
        return Err(format!("has {} outputs, expected 2", record[1]));
    }
    check.run(record[2], record[3], record[0])
}

pub(super) fn for_each_operand(extra: &[u32], at: u32, mut f: impl FnMut(OperandRun)) {
    f(nodes(operands(extra, at).1));
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends mean and mean of squares of a run as one block and returns the two nodes.
    pub fn reduce_mean_and_mean_squares(&mut self, x: Range) -> Result<(NodeId, NodeId)> {
        self.check_range(x)?;
        if x.is_empty() {
            return Err(Error::EmptyReduction { op: Op::MeanAndMeanSquares.name() });
        }
        let outputs = self.atomically(|graph| {
            graph.room_for(2)?;
            let first = graph.columns.len();
            let outputs = graph.push_block(Op::MeanAndMeanSquares, 2, &[first, 2, x.start, x.len])?;
            graph.evaluate_means(first, x);
            Ok(graph.finish_block(outputs))
        })?;
        Ok((NodeId(outputs.start), NodeId(outputs.start + 1)))
    }

    pub(crate) fn evaluate_means(&mut self, first: u32, x: Range) {
        let forward = |op, xs: &[S]| Reduction::new(op).map_or(S::lit(f64::NAN), |r| r.forward(xs));
        let xs = &self.columns.values()[x.indices()];
        let (mean, squares) = (forward(Op::ReduceMean, xs), forward(Op::ReduceMeanSquares, xs));
        self.columns.set_value(first, mean);
        self.columns.set_value(first + 1, squares);
    }
}
