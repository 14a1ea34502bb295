//! The sweep through block ops.
//!
//! A block is taken once, when the first of its outputs that is reached is met from above; then every contribution to
//! any of its outputs has been made, as users of a block come after all of it. Outputs that nobody reached contribute
//! nothing, not even zero times infinity.

mod affine;
mod cross_entropy;
mod gather;
mod map;
mod means;
mod softmax;
mod tokens;

use super::sweep::Sweep;
use crate::graph::{AffineRecord, BlockHeader, CrossEntropyRecord, GatherRecord, MapRecord, SoftmaxRecord};
use crate::ops::Op;
use crate::scalar::Scalar;

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Takes the block of which `node` is an output; returns its first output.
    #[inline(never)]
    pub(super) fn block(&mut self, node: u32) -> u32 {
        let tail = self.tail(node as usize);
        let record = self.recorded.operands[tail][0];
        // Outputs above `node` are unreached, or this block would have been met there.
        let header = BlockHeader::read(self.extra, record);
        if self.skip_zero_adjoints {
            let outputs = self.place(header.first, node);
            for adjoint in self.adjoints[outputs].iter_mut().filter(|a| a.all_zero()) {
                *adjoint = S::UNREACHED;
            }
        }
        match self.recorded.ops[tail] {
            Op::Affine => self.affine(AffineRecord::read(self.extra, record), node),
            Op::Gather => self.gather_rows(GatherRecord::read(self.extra, record), node),
            Op::Map => self.map(MapRecord::read(self.extra, record), node),
            op @ (Op::Softmax | Op::LogSoftmax) => self.softmax(op, SoftmaxRecord::read(self.extra, record), node),
            Op::CrossEntropy => self.cross_entropy(CrossEntropyRecord::read(self.extra, record), node),
            Op::MeanAndMeanSquares => self.mean_and_mean_squares(record, node),
            op => self.token_block(op, record, node),
        }
        header.first
    }

    /// The last output of the block that the node belongs to; a node that is no part of one is that itself.
    fn tail(&self, node: usize) -> usize {
        let mut tail = node;
        while self.recorded.ops[tail] == Op::Part {
            tail += 1;
        }
        tail
    }

    /// Where the adjoints of nodes `first..=last` are.
    fn place(&self, first: u32, last: u32) -> std::ops::Range<usize> {
        (first - self.base) as usize..(last + 1 - self.base) as usize
    }
}
