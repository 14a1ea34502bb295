//! Copies of blocks of the operands, in the order in which tiles read them.
//!
//! Promises: moves numbers and never changes them. Does not know sums.

use super::plan::{PANEL, Side};
use crate::kernels::float::{KernelFloat, Pack, line, prefetch_at};
use crate::kernels::levels::Target;
use crate::simd::{Real, array_of};

/// Packs `columns` adjacent elements of one row of B, padded with zeros to whole vectors.
///
/// # Safety
/// The elements may be read, and `to` has room.
#[inline(always)]
pub(super) unsafe fn row_of_b<E: KernelFloat, T: Target>(from: *const E, columns: usize, to: *mut E) {
    let lanes = T::Register::<E>::LANES;
    // SAFETY: as the caller promises.
    unsafe {
        let mut j = 0;
        while columns - j >= lanes {
            let numbers = T::Register::<E>::read(std::slice::from_raw_parts(from.add(j), lanes), 0);
            numbers.write(std::slice::from_raw_parts_mut(to.add(j), lanes), 0);
            j += lanes;
        }
        if j < columns {
            let numbers = T::Register::<E>::read_masked(from.add(j), T::Register::<E>::first(columns - j));
            numbers.write(std::slice::from_raw_parts_mut(to.add(j), lanes), 0);
        }
    }
}

/// Packs `terms` terms of `columns` columns of B that are not adjacent, in the layout of [`row_of_b`].
///
/// # Safety
/// The elements may be read, and `to` has room.
#[inline(always)]
pub(super) unsafe fn strip_of_b<E: KernelFloat, T: Target>(from: &Side<E>, columns: usize, terms: usize, to: *mut E) {
    let lanes = T::Register::<E>::LANES;
    let width = columns.next_multiple_of(lanes);
    // SAFETY: as the caller promises.
    unsafe {
        for j in (0..columns).step_by(lanes) {
            let (part, to) = (from.from(j, 0), to.add(j));
            beside::<T::Register<E>>(&part, lanes.min(columns - j), terms, to, width);
        }
    }
}

/// Packs `count` columns of B, or rows of A, as a vector of numbers per term. Lanes after these are unspecified.
///
/// # Safety
/// As [`strip_of_b`].
#[inline(always)]
unsafe fn beside<V: Pack>(from: &Side<V::Elem>, count: usize, terms: usize, to: *mut V::Elem, width: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        if from.inner != 1 || 2 * count <= V::LANES {
            gathered::<V>(from, count, 0, terms, to, width);
        } else if size_of::<V::Elem>() == 4 {
            turned::<V, 4>(from, count, terms, to, width);
        } else {
            turned::<V, 2>(from, count, terms, to, width);
        }
    }
}

/// Packs a vector of columns whose terms are contiguous, term by term.
///
/// Simply: `to[p][j] = from[j][p]`. Departure: as many squares of 16 bytes by 16 bytes as fill a vector are transposed
/// at once; reading them side by side costs less than moving numbers across a register.
///
/// # Safety
/// As [`strip_of_b`].
#[inline(always)]
unsafe fn turned<V: Pack, const PIECE: usize>(
    from: &Side<V::Elem>,
    count: usize,
    terms: usize,
    to: *mut V::Elem,
    width: usize,
) {
    debug_assert!(PIECE * size_of::<V::Elem>() == 16 && count > 0);
    // SAFETY: as the caller promises.
    unsafe {
        for p in (0..terms / PIECE * PIECE).step_by(PIECE) {
            let mut rows: [V; PIECE] =
                array_of(|r| V::read_pieces(|piece| from.from((piece * PIECE + r).min(count - 1), 0).at.add(p)));
            for _ in 0..PIECE.ilog2() {
                let before = rows;
                for r in 0..PIECE / 2 {
                    [rows[2 * r], rows[2 * r + 1]] = before[r].interleaved_pieces(before[r + PIECE / 2]);
                }
            }
            for (q, row) in rows.into_iter().enumerate() {
                row.write(std::slice::from_raw_parts_mut(to.add((p + q) * width), V::LANES), 0);
            }
        }
        gathered::<V>(from, count, terms / PIECE * PIECE, terms, to, width);
    }
}

#[inline(always)]
unsafe fn gathered<V: Pack>(
    from: &Side<V::Elem>,
    count: usize,
    first: usize,
    terms: usize,
    to: *mut V::Elem,
    width: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        for p in first..terms {
            for j in 0..count {
                *to.add(p * width + j) = *from.at.offset(j as isize * from.outer + p as isize * from.inner);
            }
            for j in count..V::LANES {
                *to.add(p * width + j) = V::Elem::default();
            }
        }
    }
}

/// How many terms ahead packing prefetches.
const AHEAD: isize = 4;

/// Packs `terms` terms of `rows` rows of A from `from` on. Rows whose terms are adjacent lie in panels of [`PANEL`] rows
/// then, which a tile reads from one end to the other. Where rows are adjacent, each term is copied as it is.
///
/// # Safety
/// The elements may be read, and `to` has room for [`panels_len`](super::plan::panels_len) numbers.
#[inline(always)]
pub(super) unsafe fn block_of_a<E: KernelFloat, T: Target>(
    from: &Side<E>,
    rows: usize,
    terms: usize,
    to: *mut E,
) -> Side<E> {
    // SAFETY: as the caller promises. Vectors of 8 numbers are written in ascending order, so that the two after a panel's
    // term are overwritten by what belongs there.
    unsafe {
        if from.outer != 1 {
            for i in (0..rows).step_by(PANEL) {
                beside::<E::V<8>>(&from.from(i, 0), PANEL.min(rows - i), terms, to.add(i * terms), PANEL);
            }
            return Side { at: to, outer: 1, inner: PANEL as isize, next: 0 };
        }
        let width = rows.next_multiple_of(line::<E>());
        for p in 0..terms {
            let column = from.at.offset(p as isize * from.inner);
            for i in (0..rows).step_by(line::<E>()) {
                // Prefetches later terms, which are far apart.
                prefetch_at(column.wrapping_offset(AHEAD * from.inner).wrapping_add(i));
            }
            row_of_b::<E, T>(column, rows, to.add(p * width));
        }
        Side { at: to, outer: 1, inner: width as isize, next: 0 }
    }
}
