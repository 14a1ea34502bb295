//! Embeddings: rows of a table gathered by index, and gradients scattered back to them.
//!
//! Promises: a row used several times adds its gradients in one order: sample by sample, each sample's positions in
//! order, or with lanes position by position, the samples of each in order. An index outside the table panics; the caller
//! checks indices of users. Does not know symbols or contexts.

use super::float::{KernelFloat, Pack};
use super::lanes::{features, in_parts, lanes_of, transposed};
use super::levels::{Target, columns, leveled};
use crate::simd::{Real, array_of};
use crate::sync::stop::Pace;

/// The weight in a `Pace` of a number that is read from a row, or added to it.
const MOVED: usize = 2 * Pace::FROM_MEMORY;

leveled! {
    /// `out` = the rows `indices` of `table`, in sequence; a row has `out.len() / indices.len()` numbers.
    pub fn gather_rows<E>(table: &[E], indices: &[u32], out: &mut [E]) = gather_at;

    /// Adds `factor` times the rows of `grad` to the rows `indices` of `table_grad`, in order. The factor 1 gives the bits
    /// of adding the rows themselves.
    pub fn scatter_add_rows<E>(factor: E, grad: &[E], indices: &[u32], table_grad: &mut [E]) = scatter_at;

    /// [`gather_rows`] for `L` samples, into lane-major `out`. `indices` holds all positions of sample 0, then of 1, ...
    pub fn gather_rows_lanes<E, const L>(table: &[E], indices: &[u32], out: &mut [E]) = gather_lanes_at;

    /// [`scatter_add_rows`] for `L` samples with lane-major `grad`: position by position, the samples of each in order.
    pub fn scatter_add_rows_lanes<E, const L>(factor: E, grad: &[E], indices: &[u32], table_grad: &mut [E])
        = scatter_lanes_at;
}

/// Numbers per row, if `indices` rows fill `total`.
#[inline(always)]
fn row_len(total: usize, indices: usize) -> usize {
    assert!(indices > 0 && total.is_multiple_of(indices), "rows must fill the output evenly");
    total / indices
}

#[inline(always)]
fn gather_at<E: KernelFloat, T: Target>(table: &[E], indices: &[u32], out: &mut [E]) {
    let width = row_len(out.len(), indices.len());
    let mut pace = Pace::new();
    for (&index, out) in indices.iter().zip(out.chunks_exact_mut(width)) {
        if !pace.goes_on(width * MOVED) {
            return;
        }
        out.copy_from_slice(&table[index as usize * width..][..width]);
    }
}

#[inline(always)]
fn scatter_at<E: KernelFloat, T: Target>(factor: E, grad: &[E], indices: &[u32], table_grad: &mut [E]) {
    let width = row_len(grad.len(), indices.len());
    let mut pace = Pace::new();
    for (&index, grad) in indices.iter().zip(grad.chunks_exact(width)) {
        if !pace.goes_on(width * MOVED) {
            return;
        }
        let row = &mut table_grad[index as usize * width..][..width];
        columns!(E, width, add_step[T](factor, grad, row));
    }
}

/// # Safety
/// `j + V::LANES` is at most the length of both slices.
#[inline(always)]
unsafe fn add_step<V: Pack, T: Target>(j: usize, factor: V::Elem, x: &[V::Elem], y: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe { T::mul_add(V::splat(factor), V::read(x, j), V::read(y, j)).write(y, j) }
}

/// Simply: `out[p * width + f][l] = table[index of sample l at position p][f]`. Departure: L features of L samples are
/// read as rows and transposed in registers, instead of one number at a time.
#[inline(always)]
fn gather_lanes_at<E: KernelFloat, T: Target, const L: usize>(table: &[E], indices: &[u32], out: &mut [E]) {
    in_parts!(gather_parts::<E; L>(table, indices, out));
}

#[inline(always)]
fn gather_parts<E: KernelFloat, const L: usize, const P: usize>(table: &[E], indices: &[u32], out: &mut [E]) {
    let positions = features::<L>(indices.len());
    let width = row_len(features::<L>(out.len()), positions);
    let mut pace = Pace::new();
    for (p, out) in out.chunks_exact_mut(width * L).enumerate() {
        if !pace.goes_on(width * L * MOVED) {
            return;
        }
        let rows: [&[E]; L] = array_of(|l| &table[indices[l * positions + p] as usize * width..][..width]);
        let mut f = 0;
        while width - f >= P {
            for lane in (0..L).step_by(P) {
                // SAFETY: `f + P <= width`, the length of every row; `out` holds `width * L` numbers.
                unsafe {
                    let block: [E::V<P>; P] = array_of(|l| E::V::read(rows[lane + l], f));
                    for (r, column) in transposed(block).into_iter().enumerate() {
                        column.write(out, (f + r) * L + lane);
                    }
                }
            }
            f += P;
        }
        for f in f..width {
            for l in 0..L {
                out[f * L + l] = rows[l][f];
            }
        }
    }
}

/// Departure from adding one number at a time: blocks of `P` features of `P` samples are transposed in registers and
/// added to their rows at once, without intermediate stores; gradients are read in memory order, all samples of some
/// features.
#[inline(always)]
fn scatter_lanes_at<E: KernelFloat, T: Target, const L: usize>(
    factor: E,
    grad: &[E],
    indices: &[u32],
    table_grad: &mut [E],
) {
    in_parts!(scatter_parts::<E, T; L>(factor, grad, indices, table_grad));
}

#[inline(always)]
fn scatter_parts<E: KernelFloat, T: Target, const L: usize, const P: usize>(
    factor: E,
    grad: &[E],
    indices: &[u32],
    table_grad: &mut [E],
) {
    let positions = features::<L>(indices.len());
    let width = row_len(features::<L>(grad.len()), positions);
    let mut pace = Pace::new();
    for (p, grad) in grad.chunks_exact(width * L).enumerate() {
        if !pace.goes_on(width * L * MOVED) {
            return;
        }
        let rows: [usize; L] = array_of(|lane| indices[lane * positions + p] as usize * width);
        let mut f = 0;
        while width - f >= P {
            for lane in (0..L).step_by(P) {
                // SAFETY: `f + P <= width`, and `grad` holds `width * L` numbers.
                let block = unsafe { lanes_of::<E, L, P>(grad, f, lane) };
                for (contribution, row) in block.into_iter().zip(&rows[lane..]) {
                    let row = &mut table_grad[row + f..][..P];
                    // SAFETY: the row is `P` numbers long.
                    unsafe { T::mul_add(E::V::splat(factor), contribution, E::V::read(row, 0)).write(row, 0) }
                }
            }
            f += P;
        }
        for f in f..width {
            for (&row, &contribution) in rows.iter().zip(&grad[f * L..][..L]) {
                let at = &mut table_grad[row + f];
                *at = T::mul_add(E::V::<1>::splat(factor), E::V::splat(contribution), E::V::splat(*at)).lane(0);
            }
        }
    }
}
