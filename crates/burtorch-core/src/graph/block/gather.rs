//! Rows of a table of parameters by index: embeddings, each lane with its own.
//!
//! Promises that only the rows used receive a gradient. Does not know the meaning of the indices.

use super::super::check::{Check, Checked};
use super::super::operands::{OperandRun, StoreValues};
use super::super::sweep::Sweep;
use super::super::{Graph, Range};
use super::append::Fill;
use super::op::{BlockOp, Loaded, Wanted};
use super::record::{BlockHeader, Field, Layout};
use crate::error::{Error, Result};
use crate::kernels::{BlockMath, slices};
use crate::ops::Op;
use crate::params::{Parameters, Tensor, Values};
use crate::scalar::RowMath;

/// Rows of a table. Their indices follow the record: all positions of lane 0, then of lane 1, ...
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatherRecord {
    pub(crate) header: BlockHeader,
    pub(crate) slot: u32,
    /// The table's start among the values of its slot.
    pub(crate) start: u32,
    pub(crate) n_rows: u32,
    pub(crate) n_positions: u32,
    /// The start of the indices.
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

    /// Numbers in a row.
    pub(crate) fn width(&self) -> usize {
        (self.header.n_out / self.n_positions) as usize
    }

    /// The range of the table among the values of its slot.
    pub(crate) fn table(&self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + self.n_rows as usize * self.width()
    }

    /// All positions of lane 0, then of lane 1, ...
    pub(crate) fn indices<'a>(&self, extra: &'a [u32], lanes: usize) -> &'a [u32] {
        &extra[self.indices as usize..][..self.n_positions as usize * lanes]
    }
}

pub(super) struct Gather;

impl<S: BlockMath> BlockOp<S> for Gather {
    const OP: Op = Op::Gather;

    /// The operand is the table; the op's own parameters are the row width and the number of rows read.
    fn shape(operands: &[usize], own: &[usize]) -> Result<usize> {
        match (operands, own) {
            (&[table], &[width, n]) if width > 0 && table.is_multiple_of(width) && n > 0 => Ok(width * n),
            _ => Err(Error::EmptyReduction { op: Op::Gather.name() }),
        }
    }

    fn layout(extra: &[u32], at: u32, lanes: usize) -> Layout {
        let len = GatherRecord::LEN + extra[at as usize + 3] as usize * lanes;
        Layout { len, fields: &[Field::Node(0), Field::Slot(2)] }
    }

    /// The whole table is the operand.
    fn for_each_operand(extra: &[u32], at: u32, f: &mut dyn FnMut(OperandRun)) {
        let record = GatherRecord::read(extra, at);
        let table = record.table();
        f(OperandRun { source: record.slot + 1, start: table.start as u32, len: table.len() as u32 });
    }

    fn cost(extra: &[u32], at: u32) -> u64 {
        u64::from(GatherRecord::read(extra, at).header.n_out)
    }

    fn evaluate(graph: &mut Graph<'_, S>, at: u32, stores: &StoreValues<'_, S::Elem>) {
        graph.evaluate_gather(GatherRecord::read(graph.extra.as_slice(), at), stores);
    }

    fn pull(sweep: &mut Sweep<'_, '_, S>, at: u32, top: u32, wanted: Wanted) {
        if wanted.operand(0) {
            sweep.gather_rows(GatherRecord::read(sweep.extra, at), top);
        }
    }

    fn check(loaded: Loaded<'_>, check: &mut Check<'_>) -> Checked {
        let indices = &loaded.record[GatherRecord::LEN..];
        let record = GatherRecord::read(loaded.record, 0);
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
}

impl<S: BlockMath> Graph<'_, S> {
    /// Appends rows of `table` (rows x width), in sequence, as one block. `indices` holds the rows of lane 0 in their
    /// order, then those of lane 1, ...: equally many for each lane, at least one. Returns the outputs, `width` for
    /// each row of a lane. Costs a copy; the backward pass only touches the rows used.
    ///
    /// # Errors
    ///
    /// An index out of range, a number of indices that is not a multiple of the lanes, or a table of other parameters.
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
        // Checks several at a time, because indices are almost always valid.
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
        let shape = <Gather as BlockOp<S>>::shape(
            &[table.slice().len()],
            &[table.slice().len() / n_rows as usize, n_positions],
        );
        let n_out = self.room_for(shape?)?;
        self.extra.reserve(GatherRecord::LEN + indices.len())?;
        let slot = self.slot_of(params.id())?;
        let at = self.extra.len() as u32;
        let start = table.slice().range().start as u32;
        let first = self.columns.len();
        let record = [first, n_out, slot, n_positions as u32, start, n_rows];
        let fill = Fill { marked: !self.marks_later(), ..Fill::WRITTEN };
        let outputs = self.push_block(Op::Gather, n_out, &record, fill)?;
        self.extra.extend_reserved(indices);
        let stores = self.store_values(&[params])?;
        self.evaluate_gather(GatherRecord::read(self.extra.as_slice(), at), &stores);
        Ok(self.finish_block(outputs))
    }

    fn evaluate_gather(&mut self, record: GatherRecord, stores: &StoreValues<'_, S::Elem>) {
        let table = &stores[record.slot as usize][record.table()];
        let outputs = &mut self.columns.values_mut()[record.header.first as usize..][..record.header.n_out as usize];
        slices::gather(table, record.indices(self.extra.as_slice(), S::LANES), outputs);
    }
}

impl<S: BlockMath> Sweep<'_, '_, S> {
    fn gather_rows(&mut self, record: GatherRecord, top: u32) {
        let first = record.header.first;
        let n_out = record.header.n_out as usize;
        let table = record.table();
        let store = &mut self.params[self.places[record.slot as usize] as usize];
        if !store.wants_any(table.clone()) {
            return;
        }
        let grad = &self.adjoints[(first - self.base) as usize..(top + 1 - self.base) as usize];
        let all_reached = self.overwritten == (first..top + 1) || grad.len() == n_out && S::all_reached(grad);
        if all_reached && store.wants_all(table.clone()) {
            let (indices, width) = (record.indices(self.extra, S::LANES), record.width());
            if let Values::Stepped(values, lr) = &mut store.values {
                return S::scatter_add(-*lr, grad, indices, &mut values[table]);
            }
            // If most rows are used, the whole table is prepared at once, otherwise row by row.
            if 2 * indices.len() >= record.n_rows as usize {
                store.prepare(table.clone());
            } else {
                for &row in indices {
                    let start = table.start + row as usize * width;
                    store.prepare(start..start + width);
                }
            }
            let places = store.places(table);
            S::scatter_add(S::Elem::lit(1.0), grad, indices, &mut store.grads[places]);
            return;
        }
        self.gather_row_by_row(record, top);
    }

    /// The case of unreached outputs or unrequested gradients.
    fn gather_row_by_row(&mut self, record: GatherRecord, top: u32) {
        let (first, width) = (record.header.first, record.width());
        let (indices, table) = (record.indices(self.extra, S::LANES), record.table());
        let grad = &self.adjoints[(first - self.base) as usize..(top + 1 - self.base) as usize];
        let store = &mut self.params[self.places[record.slot as usize] as usize];
        let n_positions = record.n_positions as usize;
        // Prepares the whole table once: rows without a contribution must end as 0 anyway.
        if matches!(store.values, Values::Kept(_)) {
            store.prepare(table.clone());
        }
        for (position, grad) in grad.chunks(width).enumerate() {
            for lane in 0..S::LANES {
                let row = table.start + indices[lane * n_positions + position] as usize * width;
                for (place, piece) in store.skipped.pieces(row..row + grad.len()) {
                    let g = &grad[piece.start - row..piece.end - row];
                    if let Values::Stepped(values, lr) = &mut store.values {
                        let reached = values[piece].iter_mut().zip(g).filter(|(_, g)| !g.is_unreached());
                        reached.for_each(|(x, g)| *x = *x - *lr * g.lane(lane));
                        continue;
                    }
                    let reached = store.grads[place..].iter_mut().zip(g).filter(|(_, g)| !g.is_unreached());
                    reached.for_each(|(to, g)| *to = *to + g.lane(lane));
                }
            }
        }
    }
}
