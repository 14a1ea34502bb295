//! Embeddings: rows of a table gathered by index, and gradients scattered back to them.
//!
//! Promises that a row used several times adds its gradients sample by sample, each sample's positions in order, whether
//! samples come one at a time or in lanes. An index past the table panics; the caller checks what users pass.
//! Knows nothing of symbols or contexts.

use super::float::{KernelFloat, Pack};
use super::lanes::{features, transpose, transposed};
use super::levels::{Target, columns, leveled};

leveled! {
    /// `out` = the rows `indices` of `table`, one after the other; a row holds `out.len() / indices.len()` numbers.
    pub fn gather_rows<E>(table: &[E], indices: &[u32], out: &mut [E]) = gather_at;

    /// Adds the rows of `grad` to the rows `indices` of `table_grad`, in order.
    pub fn scatter_add_rows<E>(grad: &[E], indices: &[u32], table_grad: &mut [E]) = scatter_at;

    /// [`gather_rows`] for `L` samples, into lane-major `out`. `indices` holds all positions of sample 0, then of 1, ...
    pub fn gather_rows_lanes<E, const L>(table: &[E], indices: &[u32], out: &mut [E]) = gather_lanes_at;

    /// [`scatter_add_rows`] for `L` samples with lane-major `grad`; `scratch` is at least as long as `grad`.
    pub fn scatter_add_rows_lanes<E, const L>(
        grad: &[E],
        indices: &[u32],
        table_grad: &mut [E],
        scratch: &mut [E],
    ) = scatter_lanes_at;
}

/// Numbers in a row, where `indices` of them fill `total`.
#[inline(always)]
fn row_len(total: usize, indices: usize) -> usize {
    assert!(indices > 0 && total.is_multiple_of(indices), "rows must fill the output evenly");
    total / indices
}

#[inline(always)]
fn gather_at<E: KernelFloat, T: Target>(table: &[E], indices: &[u32], out: &mut [E]) {
    let width = row_len(out.len(), indices.len());
    for (&index, out) in indices.iter().zip(out.chunks_exact_mut(width)) {
        out.copy_from_slice(&table[index as usize * width..][..width]);
    }
}

#[inline(always)]
fn scatter_at<E: KernelFloat, T: Target>(grad: &[E], indices: &[u32], table_grad: &mut [E]) {
    let width = row_len(grad.len(), indices.len());
    for (&index, grad) in indices.iter().zip(grad.chunks_exact(width)) {
        let row = &mut table_grad[index as usize * width..][..width];
        columns!(E, width, add_step[](grad, row));
    }
}

/// # Safety
/// `j + V::LANES` is at most the length of both slices.
#[inline(always)]
unsafe fn add_step<V: Pack>(j: usize, x: &[V::Elem], y: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe { (V::read(y, j) + V::read(x, j)).write(y, j) }
}

/// Simply: `out[p * width + f][l] = table[index of sample l at position p][f]`. Departure: L features of L samples are
/// read as rows and turned in registers, instead of one number at a time.
#[inline(always)]
fn gather_lanes_at<E: KernelFloat, T: Target, const L: usize>(table: &[E], indices: &[u32], out: &mut [E]) {
    let positions = features::<L>(indices.len());
    let width = row_len(features::<L>(out.len()), positions);
    for (p, out) in out.chunks_exact_mut(width * L).enumerate() {
        let rows: [&[E]; L] = std::array::from_fn(|l| &table[indices[l * positions + p] as usize * width..][..width]);
        let mut f = 0;
        while width - f >= L {
            // SAFETY: `f + L <= width`, the length of every row; `out` holds `width * L` numbers.
            unsafe {
                let block: [E::V<L>; L] = std::array::from_fn(|l| E::V::read(rows[l], f));
                for (r, column) in transposed(block).into_iter().enumerate() {
                    column.write(out, (f + r) * L);
                }
            }
            f += L;
        }
        for f in f..width {
            for l in 0..L {
                out[f * L + l] = rows[l][f];
            }
        }
    }
}

/// Departure from adding one number at a time: each position is turned on its own, so that rows of the scratch are
/// `width` apart and not a whole sample, whose power-of-two length would make them fight for one cache set.
#[inline(always)]
fn scatter_lanes_at<E: KernelFloat, T: Target, const L: usize>(
    grad: &[E],
    indices: &[u32],
    table_grad: &mut [E],
    scratch: &mut [E],
) {
    let positions = features::<L>(indices.len());
    let width = row_len(features::<L>(grad.len()), positions);
    let scratch = &mut scratch[..grad.len()];
    for (grad, rows) in grad.chunks_exact(width * L).zip(scratch.chunks_exact_mut(width * L)) {
        transpose::<E, L>(grad, rows);
    }
    for l in 0..L {
        for p in 0..positions {
            let grad = &scratch[(p * L + l) * width..][..width];
            let row = &mut table_grad[indices[l * positions + p] as usize * width..][..width];
            columns!(E, width, add_step[](grad, row));
        }
    }
}
