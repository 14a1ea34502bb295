//! Appending a block: its nodes, and its record.

use super::super::{Graph, Range};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::scalar::Scalar;
use crate::sync::stop;

/// How to initialise the nodes of a block before they are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    /// Whether to set values to zero: needed if computing does not write all of them.
    pub(super) zeroed: bool,
    /// Whether to mark adjoints "not reached" now, not in the next backward pass.
    pub(super) marked: bool,
}

impl Fill {
    /// For outputs that computing reads or does not write.
    pub(super) const ZEROED: Fill = Fill { zeroed: true, marked: true };
    /// For outputs that computing always writes.
    pub(super) const WRITTEN: Fill = Fill { zeroed: false, marked: true };
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends the nodes and the record of a block; the caller computes the values.
    pub(super) fn push_block(&mut self, op: Op, n_out: u32, record: &[u32], fill: Fill) -> Result<Range> {
        if stop::is_over() {
            return Err(Error::Interrupted);
        }
        self.extra.reserve(record.len())?;
        let at = self.extra.len() as u32;
        for &number in record {
            self.extra.push_reserved(number);
        }
        let start = self.columns.push_many_reserved(Op::Part, n_out, fill.zeroed, fill.marked);
        if !fill.marked {
            self.dirty = (start, start + n_out);
        }
        self.columns.set_node(start + n_out - 1, op, at, 0);
        Ok(Range { start, len: n_out })
    }

    /// Under `no_grad`, turns the outputs into constants.
    pub(super) fn finish_block(&mut self, outputs: Range) -> Range {
        if !self.columns.is_tracing() {
            for node in outputs.start..outputs.start + outputs.len {
                self.columns.set_node(node, Op::Constant, 0, 0);
            }
        }
        outputs
    }
}
