//! Rows of a table of parameters by index: embeddings, each lane with its own.
//!
//! Promises that only rows which are named receive a gradient. Knows nothing of symbols.

use super::super::operands::StoreValues;
use super::super::structure::{Check, Checked};
use super::super::{Graph, OperandRun, Range};
use super::{BlockHeader, Field, Layout};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::params::{Parameters, Tensor};
use crate::scalar::Scalar;

/// Rows of a table. Their indices follow the record: all positions of lane 0, then of lane 1, ...
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatherRecord {
    pub(crate) header: BlockHeader,
    pub(crate) slot: u32,
    /// The table among the values of its slot.
    pub(crate) start: u32,
    pub(crate) n_rows: u32,
    pub(crate) n_positions: u32,
    /// Where the indices are.
    indices: u32,
}

impl GatherRecord {
    const LEN: usize = 6;

    pub(crate) fn read(extra: &[u32], at: u32) -> Self {
        let r = &extra[at as usize..at as usize + Self::LEN];
        let header = BlockHeader::read(extra, at);
        let [slot, n_positions, start, n_rows] = [r[2], r[3], r[4], r[5]];
        GatherRecord { header, slot, start, n_rows, n_positions, indices: at + Self::LEN as u32 }
    }

    pub(super) fn layout(extra: &[u32], at: u32, lanes: usize) -> Layout {
        let len = Self::LEN + extra[at as usize + 3] as usize * lanes;
        Layout { len, fields: &[Field::Node(0), Field::Slot(2)] }
    }

    /// See [`Check::block`].
    pub(super) fn check(record: &[u32], check: &mut Check<'_>) -> Checked {
        let indices = &record[Self::LEN..];
        let record = Self::read(record, 0);
        let (n_out, n_positions) = (record.header.n_out, record.n_positions);
        if n_positions == 0 || !n_out.is_multiple_of(n_positions) || n_out == 0 {
            return Err(format!("has {n_positions} rows for {n_out} numbers"));
        }
        if let Some(index) = indices.iter().find(|&&index| index >= record.n_rows) {
            return Err(format!("has row {index} of {}", record.n_rows));
        }
        let n = u64::from(record.n_rows) * u64::from(n_out / n_positions);
        check.parameters(record.slot, u64::from(record.start), n)
    }

    /// Numbers in a row.
    pub(crate) fn width(&self) -> usize {
        (self.header.n_out / self.n_positions) as usize
    }

    /// The table among the values of its slot.
    pub(crate) fn table(&self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + self.n_rows as usize * self.width()
    }

    /// All positions of lane 0, then of lane 1, ...
    pub(crate) fn indices<'a>(&self, extra: &'a [u32], lanes: usize) -> &'a [u32] {
        &extra[self.indices as usize..][..self.n_positions as usize * lanes]
    }

    /// The whole table stands for the rows.
    pub(super) fn for_each_operand(&self, mut f: impl FnMut(OperandRun)) {
        let table = self.table();
        f(OperandRun { source: self.slot + 1, start: table.start as u32, len: table.len() as u32 });
    }
}

impl<S: Scalar> Graph<'_, S> {
    /// Appends rows of `table` (rows x width), one after another, as one block. `indices` holds the rows of lane 0 in
    /// their order, then those of lane 1, ...: equally many for each lane, at least one. Returns the outputs, `width`
    /// for each row of a lane. Costs a copy; the way back touches the rows named.
    ///
    /// # Errors
    /// An index that is no row, a number of indices that is no multiple of the lanes, a table of other parameters.
    pub fn gather(&mut self, params: &Parameters<'_, S::Elem>, table: Tensor, indices: &[u32]) -> Result<Range> {
        params.check_slice(table.slice())?;
        let n_rows = table.shape().dims()[0];
        if indices.is_empty() {
            return Err(Error::EmptyReduction { op: Op::Gather.name() });
        }
        if !indices.len().is_multiple_of(S::LANES) {
            let (op, right) = ("gather (lanes and indices)", indices.len());
            return Err(Error::LengthMismatch { op, left: S::LANES, right });
        }
        // Several at a time, as almost always all of them are fine.
        let found = indices.iter().copied().fold(0, u32::max);
        if found >= n_rows {
            return Err(Error::OutOfRange {
                what: "a row",
                found: u64::from(found),
                max: u64::from(n_rows).saturating_sub(1),
            });
        }
        self.atomically(|graph| graph.push_gather(params, table, indices))
    }

    fn push_gather(&mut self, params: &Parameters<'_, S::Elem>, table: Tensor, indices: &[u32]) -> Result<Range> {
        let n_rows = table.shape().dims()[0];
        let n_positions = indices.len() / S::LANES;
        let n_out = self.room_for(n_positions * (table.slice().len() / n_rows as usize))?;
        self.extra.reserve(GatherRecord::LEN + indices.len())?;
        let slot = self.slot_of(params.id())?;
        let at = self.extra.len() as u32;
        let start = table.slice().range().start as u32;
        let first = self.columns.len();
        let outputs = self.push_block(Op::Gather, n_out, &[first, n_out, slot, n_positions as u32, start, n_rows])?;
        self.extra.extend_reserved(indices);
        let stores = self.store_values(&[params]);
        self.evaluate_gather(GatherRecord::read(self.extra.as_slice(), at), &stores);
        Ok(self.finish_block(outputs))
    }

    pub(crate) fn evaluate_gather(&mut self, record: GatherRecord, stores: &StoreValues<'_, S::Elem>) {
        let table = &stores[record.slot as usize][record.table()];
        let outputs = &mut self.columns.values_mut()[record.header.first as usize..][..record.header.n_out as usize];
        S::gather(table, record.indices(self.extra.as_slice(), S::LANES), outputs);
    }
}
