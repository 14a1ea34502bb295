//! The sweep through rows of a table.

use super::super::Values;
use super::super::sweep::Sweep;
use crate::graph::GatherRecord;
use crate::scalar::Scalar;

impl<S: Scalar> Sweep<'_, '_, S> {
    pub(super) fn gather_rows(&mut self, record: GatherRecord, top: u32) {
        let first = record.header.first;
        let n_out = record.header.n_out as usize;
        let table = record.table();
        let store = &mut self.params[self.places[record.slot as usize] as usize];
        if !store.any_trainable(table.clone()) {
            return;
        }
        let grad = &self.adjoints[(first - self.base) as usize..(top + 1 - self.base) as usize];
        let all_reached = self.overwritten == (first..top + 1) || grad.len() == n_out && S::all_reached(grad);
        if all_reached && store.all_trainable(table.clone()) {
            let (indices, width) = (record.indices(self.extra, S::LANES), record.width());
            if let Values::Stepped(values, lr) = &mut store.values {
                return S::scatter_add(-*lr, grad, indices, &mut values[table]);
            }
            // A table that is mostly named is readied at once, another row by row.
            if 2 * indices.len() >= record.n_rows as usize {
                store.prepare(table.clone());
            } else {
                for &row in indices {
                    let start = table.start + row as usize * width;
                    store.prepare(start..start + width);
                }
            }
            S::scatter_add(S::Elem::lit(1.0), grad, indices, &mut store.grads[table]);
            return;
        }
        self.gather_row_by_row(record, top);
    }

    /// Where some outputs were not reached, or some rows are frozen.
    fn gather_row_by_row(&mut self, record: GatherRecord, top: u32) {
        let (first, width) = (record.header.first, record.width());
        let indices = record.indices(self.extra, S::LANES);
        let n_positions = record.n_positions as usize;
        let table = record.table();
        for (k, node) in (first..=top).enumerate() {
            let g = self.adjoints[(node - self.base) as usize];
            if g.is_unreached() {
                continue;
            }
            for lane in 0..S::LANES {
                let row = indices[lane * n_positions + k / width] as usize;
                self.add_to_parameter(record.slot, table.start + row * width + k % width, g.lane(lane));
            }
        }
    }
}
