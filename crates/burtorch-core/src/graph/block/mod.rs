//! Block ops: one record that produces a range of nodes. The last node of the range is the op, the others are parts.
//!
//! Promises: a block's values equal those of its expansion into scalar nodes within the bound of its sums; a record is
//! plain numbers in the operand lists, so rewinding past it costs nothing. Parameters are read in place.
//!
//! Each kind of block is a file: its record, how it is appended and evaluated, which operands it names, how it is
//! renumbered. This file holds what they share, and asks the right one.

mod affine;
mod cross_entropy;
mod gather;
mod map;
mod means;
mod softmax;

pub use cross_entropy::Target;

pub(crate) use affine::AffineRecord;
pub(crate) use cross_entropy::CrossEntropyRecord;
pub(crate) use gather::GatherRecord;
pub(crate) use map::MapRecord;
pub(crate) use softmax::SoftmaxRecord;

use super::operands::{Encoded, OperandRun, StoreValues};
use super::structure::{Check, Checked};
use super::{Graph, Range, TokenRecord, tokens};
use crate::error::Result;
use crate::ops::Op;
use crate::scalar::{Float, Scalar};

/// First output and number of outputs: how every record begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHeader {
    pub(crate) first: u32,
    pub(crate) n_out: u32,
}

impl BlockHeader {
    pub(crate) fn read(extra: &[u32], at: u32) -> Self {
        BlockHeader { first: extra[at as usize], n_out: extra[at as usize + 1] }
    }
}

/// What a record holds besides plain numbers, so that it can be renumbered. Lists of operands that a record names lie
/// before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// How many numbers.
    pub(crate) len: usize,
    /// The places that name something.
    pub(crate) fields: &'static [Field],
}

impl Layout {
    /// The places of operands.
    pub(crate) fn lists(self) -> impl Iterator<Item = usize> {
        self.fields.iter().filter_map(|field| match *field {
            Field::Operands(k) => Some(k),
            _ => None,
        })
    }
}

/// What the number at a place of a record names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    /// A node.
    Node(usize),
    /// Operands, in two numbers.
    Operands(usize),
    /// An op.
    Op(usize),
    /// A slot of parameters.
    Slot(usize),
    /// A slot of parameters plus one, or 0 for none.
    Source(usize),
    /// As many runs of operands (source, start, length) as the number at `count` says, the first at `from`.
    Runs {
        /// Where their number is.
        count: usize,
        /// Where they begin.
        from: usize,
    },
}

/// A run of nodes as an operand.
fn nodes(range: Range) -> OperandRun {
    OperandRun { source: 0, start: range.start, len: range.len }
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends the nodes and the record of a block; values are still to be computed.
    fn push_block(&mut self, op: Op, n_out: u32, record: &[u32]) -> Result<Range> {
        self.extra.reserve(record.len())?;
        let at = self.extra.len() as u32;
        for &number in record {
            self.extra.push_reserved(number);
        }
        // These write all of their outputs.
        let zeroed = !matches!(op, Op::Affine | Op::Gather | Op::Map);
        let marked = op != Op::Gather || !self.marks_later();
        let start = self.columns.push_many_reserved(Op::Part, n_out, zeroed, marked);
        if !marked {
            self.dirty = (start, start + n_out);
        }
        self.columns.set_node(start + n_out - 1, op, at, 0);
        Ok(Range { start, len: n_out })
    }

    /// Under `no_grad`, turns the outputs into constants.
    pub(super) fn finish_block(&mut self, outputs: Range) -> Range {
        if !self.columns.is_recording() {
            for node in outputs.start..outputs.start + outputs.len {
                self.columns.set_node(node, Op::Constant, 0, 0);
            }
        }
        outputs
    }

    /// Computes a block again from its operands.
    pub(crate) fn evaluate_block(&mut self, op: Op, at: u32, stores: &StoreValues<'_, S::Elem>) {
        let extra = self.extra.as_slice();
        match op {
            Op::Affine => self.evaluate_affine(AffineRecord::read(extra, at), stores),
            Op::Gather => self.evaluate_gather(GatherRecord::read(extra, at), stores),
            Op::Map => self.evaluate_map(MapRecord::read(extra, at)),
            Op::Softmax | Op::LogSoftmax => self.evaluate_softmax(op, SoftmaxRecord::read(extra, at), stores),
            Op::CrossEntropy => self.evaluate_cross_entropy(CrossEntropyRecord::read(extra, at)),
            Op::MeanAndMeanSquares => {
                let (first, x) = means::operands(extra, at);
                self.evaluate_means(first, x);
            }
            _ => self.evaluate_tokens(op, at, stores),
        }
    }

    /// Calls `f` with every run of operands of a block.
    pub(crate) fn for_each_block_operand(&self, op: Op, at: u32, f: impl FnMut(OperandRun)) {
        let extra = self.extra.as_slice();
        match op {
            Op::Affine => AffineRecord::read(extra, at).for_each_operand(extra, f),
            Op::Gather => GatherRecord::read(extra, at).for_each_operand(f),
            Op::Map => MapRecord::read(extra, at).for_each_operand(f),
            Op::Softmax | Op::LogSoftmax => SoftmaxRecord::read(extra, at).for_each_operand(extra, f),
            Op::CrossEntropy => CrossEntropyRecord::read(extra, at).for_each_operand(f),
            Op::MeanAndMeanSquares => means::for_each_operand(extra, at, f),
            _ => TokenRecord::read(extra, at).runs().for_each(f),
        }
    }

    /// How a block's record is laid out.
    pub(crate) fn block_layout(extra: &[u32], op: Op, at: u32) -> Layout {
        layout(op, extra, at, S::LANES)
    }
}

fn layout(op: Op, extra: &[u32], at: u32, lanes: usize) -> Layout {
    match op {
        Op::Affine => AffineRecord::LAYOUT,
        Op::Gather => GatherRecord::layout(extra, at, lanes),
        Op::Map => MapRecord::LAYOUT,
        Op::Softmax | Op::LogSoftmax => SoftmaxRecord::LAYOUT,
        Op::CrossEntropy => CrossEntropyRecord::layout(extra, at, lanes),
        Op::MeanAndMeanSquares => means::LAYOUT,
        _ => TokenRecord::read(extra, at).layout(),
    }
}

/// Whether this is a block over tokens, whose records have one form.
pub(crate) fn is_over_tokens(op: Op) -> bool {
    matches!(
        op,
        Op::TokenEmbedding
            | Op::TokenAffine
            | Op::LayerNorm
            | Op::CausalAttention
            | Op::TokenCrossEntropy
            | Op::AddRanges
    )
}

impl Check<'_> {
    /// Checks the record of a block of `n_out` outputs whose tail is `node`: what lies at `at`, behind its lists.
    pub(super) fn block(&mut self, node: u32, op: Op, at: u32) -> Checked {
        // The shortest record has four numbers, which is all that `layout` looks at but for blocks over tokens.
        self.numbers(at, 4)?;
        if is_over_tokens(op) {
            tokens::check_is_whole(self, at)?;
        }
        let layout = layout(op, self.extra, at, self.lanes);
        let mut n_in = 0;
        let mut inner = op;
        for field in layout.fields {
            match *field {
                Field::Operands(k) => {
                    self.numbers(at, layout.len)?;
                    let [a, b] = [self.extra[at as usize + k], self.extra[at as usize + k + 1]];
                    let first = self.extra[at as usize];
                    n_in += self.operands(Encoded(a, b), first)?;
                }
                Field::Op(k) => inner = self.translate(at as usize + k)?,
                _ => {}
            }
        }
        let place = self.record(at, layout.len)?;
        let record = &self.extra[place].to_vec()[..];
        if record[0] != node - self.n_parts || record[1] != self.n_parts + 1 {
            return Err(format!("is the end of a block of {} outputs from {}", record[1], record[0]));
        }
        match op {
            Op::Affine => AffineRecord::check(record, n_in, self),
            Op::Gather => GatherRecord::check(record, self),
            Op::Map => MapRecord::check(record, inner, self),
            Op::Softmax | Op::LogSoftmax => SoftmaxRecord::check(record, n_in, self),
            Op::CrossEntropy => CrossEntropyRecord::check(record, self),
            Op::MeanAndMeanSquares => means::check(record, self),
            _ => tokens::check(op, record, self),
        }
    }
}

/// Block ops are for the element types that have kernels.
pub const fn has_kernels<E: Float>() -> bool {
    matches!(E::DTYPE, crate::scalar::DType::Float32 | crate::scalar::DType::Float64)
}
