//! The record of a block op over tokens: one layout for all of them, so that code that walks or renumbers operands
//! knows no op.

use crate::graph::block::record::{BlockHeader, Field, Layout};
use crate::graph::operands::OperandRun;

/// `first, n_out, n_tokens, n_runs, n_numbers, a, b`, then the runs (source, start, length), then the plain numbers.
pub(super) const FIXED: usize = 7;

/// A record in the operand lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenRecord<'a> {
    pub(crate) header: BlockHeader,
    /// The number of tokens, without padding.
    pub(crate) n_tokens: usize,
    /// Two numbers whose meaning depends on the op.
    pub(crate) own: [u32; 2],
    runs: &'a [[u32; 3]],
    /// Token ids or classes.
    pub(crate) numbers: &'a [u32],
}

impl<'a> TokenRecord<'a> {
    pub(crate) fn read(extra: &'a [u32], at: u32) -> Self {
        let (r, runs) = (&extra[at as usize..], Self::runs_at(extra, at));
        let n_numbers = r[4] as usize;
        TokenRecord {
            header: BlockHeader { first: r[0], n_out: r[1] },
            n_tokens: r[2] as usize,
            own: [r[5], r[6]],
            runs,
            numbers: &r[FIXED + 3 * runs.len()..][..n_numbers],
        }
    }

    /// The operands of the record at this place, without the rest of it.
    #[inline]
    fn runs_at(extra: &'a [u32], at: u32) -> &'a [[u32; 3]] {
        let r = &extra[at as usize..];
        r[FIXED..][..3 * r[3] as usize].as_chunks().0
    }

    /// Whether any operand of the record at this place is as asked.
    #[inline]
    pub(crate) fn has_run(extra: &'a [u32], at: u32, is_asked_for: impl Fn(OperandRun) -> bool) -> bool {
        Self::runs_at(extra, at).iter().any(|&[source, start, len]| is_asked_for(OperandRun { source, start, len }))
    }

    /// The layout of the record.
    pub(crate) fn layout(&self) -> Layout {
        let len = FIXED + 3 * self.runs.len() + self.numbers.len();
        Layout { len, fields: &[Field::Node(0), Field::Runs { count: 3, from: FIXED }] }
    }

    /// All operands, in order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = OperandRun> + Clone + 'a {
        self.runs.iter().map(|&[source, start, len]| OperandRun { source, start, len })
    }

    /// Operand `k`, which must exist.
    pub(crate) fn run(&self, k: usize) -> OperandRun {
        let [source, start, len] = self.runs[k];
        OperandRun { source, start, len }
    }

    /// The op's own float parameter.
    pub(crate) fn own_float(&self) -> f64 {
        f64::from_bits(u64::from(self.own[0]) | u64::from(self.own[1]) << 32)
    }

    /// The range of the outputs among values or adjoints that begin at node `base`.
    pub(crate) fn outputs(&self, base: u32) -> std::ops::Range<usize> {
        let first = (self.header.first - base) as usize;
        first..first + self.header.n_out as usize
    }
}

/// A float as two numbers of a record.
pub(crate) fn float_parts(x: f64) -> [u32; 2] {
    let bits = x.to_bits();
    [bits as u32, (bits >> 32) as u32]
}
