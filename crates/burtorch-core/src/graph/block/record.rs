//! Records of blocks: plain numbers in the operand lists, and the references in them.
//!
//! Promises: a layout gives the kind of reference of each number of a record, so that renumbering, saving and loading
//! know no op.

use super::super::Range;
use super::super::operands::OperandRun;

/// First output and number of outputs: the start of every record.
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

/// The references in a record, needed for renumbering. The operand lists of a record lie before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The length.
    pub(crate) len: usize,
    /// The fields that refer to something.
    pub(crate) fields: &'static [Field],
}

impl Layout {
    /// The fields that hold operands.
    pub(crate) fn lists(self) -> impl Iterator<Item = usize> {
        self.fields.iter().filter_map(|field| match *field {
            Field::Operands(k) => Some(k),
            _ => None,
        })
    }

    /// The fields that hold ops.
    pub(crate) fn ops(self) -> impl Iterator<Item = usize> {
        self.fields.iter().filter_map(|field| match *field {
            Field::Op(k) => Some(k),
            _ => None,
        })
    }
}

/// The kind of reference at a position of a record.
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
    /// Ranges of operands (source, start, length), from position `from` on; their number is at `count`.
    Runs {
        /// The position of their number.
        count: usize,
        /// The position of the first.
        from: usize,
    },
}

/// A range of nodes as an operand.
pub(super) fn nodes(range: Range) -> OperandRun {
    OperandRun { source: 0, start: range.start, len: range.len }
}
