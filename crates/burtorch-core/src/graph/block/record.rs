//! Records of blocks: plain numbers in the operand lists, and what they name.
//!
//! Promises: a layout says of each number of a record what it names, so that renumbering, saving and loading know no op.

use super::super::Range;
use super::super::operands::OperandRun;

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

    /// The places of ops.
    pub(crate) fn ops(self) -> impl Iterator<Item = usize> {
        self.fields.iter().filter_map(|field| match *field {
            Field::Op(k) => Some(k),
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
pub(super) fn nodes(range: Range) -> OperandRun {
    OperandRun { source: 0, start: range.start, len: range.len }
}
