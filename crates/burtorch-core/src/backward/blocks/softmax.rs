//! The sweep through a softmax or its logarithm.

use super::super::sweep::Sweep;
use crate::graph::SoftmaxRecord;
use crate::ops::{Op, softmax_pull};
use crate::scalar::Scalar;

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Hands what outputs up to `top` have received on to the operands.
    pub(super) fn softmax(&mut self, op: Op, record: SoftmaxRecord, top: u32) {
        let (first, n) = (record.header.first as usize, record.header.n_out as usize);
        let scratch = std::mem::take(&mut self.scratch);
        let contributions = &mut scratch[..n];
        let adjoints = &self.adjoints[self.place(record.header.first, top)];
        softmax_pull(op, adjoints, &self.recorded.values[first..first + n], contributions);
        self.scatter(record.x, contributions);
        self.scratch = scratch;
    }
}
