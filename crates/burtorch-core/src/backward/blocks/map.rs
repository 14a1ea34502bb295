//! The sweep through unary ops over ranges.

use super::super::sweep::Sweep;
use crate::graph::MapRecord;
use crate::scalar::Scalar;

impl<S: Scalar> Sweep<'_, '_, S> {
    pub(super) fn map(&mut self, record: MapRecord, top: u32) {
        let first = record.header.first;
        let n = (top + 1 - first) as usize;
        let x = &self.recorded.values[record.x.indices()][..n];
        let y = &self.recorded.values[first as usize..][..n];
        // Inputs lie below outputs, so their adjoints can be written while those of the outputs are read.
        let (below, outputs) = self.adjoints.split_at_mut((first - self.base) as usize);
        let inputs = &mut below[(record.x.start - self.base) as usize..][..n];
        S::map_pull(record.op, &outputs[..n], x, y, inputs);
        self.low = self.low.min(record.x.start);
    }
}
