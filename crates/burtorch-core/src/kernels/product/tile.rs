//! Register tiles: `R` rows of A times `K` vectors of columns of B.
//!
//! Promises: one chain of multiply-adds for each element, in the order of terms. Does not know blocks or packing: operands
//! are pointers with steps.

use super::Finish;
use super::plan::{Origin, PANEL, Side};
use crate::kernels::float::{KernelFloat, Pack, line, prefetch_at, prefetch_far_at};
use crate::kernels::levels::Target;
use crate::simd::array_of;

/// Terms above which a tile has time to prefetch the next tile of C.
const LONG: usize = 32;

/// Columns of B, a few vectors at most, all rows of a block of A, and the destination of their sums.
#[derive(Clone, Copy)]
pub(super) struct Strip<E> {
    pub a: *const E,
    pub a_row: isize,
    pub a_term: isize,
    /// From [`PANEL`] rows of A to as many more.
    pub a_panel: isize,
    /// Whether rows of A are in panels: then a tile ends with one, or starts with one.
    pub packed: bool,
    /// Whether tiles prefetch what is read of A after them: see [`ask_ahead`].
    pub asks_ahead: bool,
    /// The next block of A.
    pub ahead: Side<E>,
    pub b: *const E,
    pub b_term: isize,
    /// Strips side by side.
    pub count: usize,
    /// From the columns of B of one strip to those of the next.
    pub b_next: usize,
    /// From the columns of C of one strip to those of the next.
    pub c_next: usize,
    pub c: *mut E,
    pub c_row: isize,
    /// Rows.
    pub rows: usize,
    /// Columns, where they do not fill a vector.
    pub columns: usize,
    /// Terms of the sums.
    pub depth: usize,
    pub origin: Origin<E>,
    pub finish: Finish<E>,
}

/// Computes all rows of a strip of `K` vectors of columns, or of one partial vector (`PART`).
///
/// # Safety
/// The pointers and steps of `strip` lead to numbers that may be read or, in C, written; no other thread accesses C.
#[inline(always)]
pub(super) unsafe fn strip<E: KernelFloat, T: Target, const K: usize, const PART: bool>(strip: &Strip<E>) {
    // SAFETY: as the caller promises.
    unsafe {
        match K {
            8 => {
                rows::<E, T, 1, 8, PART>(0, strip);
            }
            4 => {
                let i = if T::fits::<T::Register<E>>(24) { rows::<E, T, 6, 4, PART>(0, strip) } else { 0 };
                let i = if T::fits::<T::Register<E>>(24) { rows::<E, T, 3, 4, PART>(i, strip) } else { i };
                let i = rows::<E, T, 2, 4, PART>(i, strip);
                rows::<E, T, 1, 4, PART>(i, strip);
            }
            2 => {
                let i = rows::<E, T, 6, 2, PART>(0, strip);
                let i = rows::<E, T, 4, 2, PART>(i, strip);
                let i = rows::<E, T, 2, 2, PART>(i, strip);
                rows::<E, T, 1, 2, PART>(i, strip);
            }
            _ => {
                // 12 at a time if 8 and 4 would need more tiles.
                let many = strip.packed || matches!(strip.rows % 12, 0 | 9..);
                let i = if many { rows::<E, T, 12, 1, PART>(0, strip) } else { 0 };
                let i = rows::<E, T, 8, 1, PART>(i, strip);
                let i = rows::<E, T, 4, 1, PART>(i, strip);
                let i = rows::<E, T, 2, 1, PART>(i, strip);
                rows::<E, T, 1, 1, PART>(i, strip);
            }
        }
    }
}

/// Rows `R` at a time from `i` on, of all strips side by side; returns the first row left over.
///
/// # Safety
/// As [`strip`].
#[inline(always)]
unsafe fn rows<E: KernelFloat, T: Target, const R: usize, const K: usize, const PART: bool>(
    mut i: usize,
    strip: &Strip<E>,
) -> usize {
    while strip.rows - i >= R {
        let mut here = *strip;
        for _ in 0..strip.count {
            // SAFETY: as the caller promises.
            unsafe { tile::<T::Register<E>, T, R, K, PART>(i, &here) };
            here.b = here.b.wrapping_add(strip.b_next);
            here.c = here.c.wrapping_add(strip.c_next);
            here.asks_ahead = false;
            if let Origin::Columns(bias) = &mut here.origin {
                *bias = bias.wrapping_add(strip.c_next);
            }
        }
        i += R;
    }
    i
}

/// # Safety
/// As [`strip`], and `i + R <= strip.rows`.
#[inline(always)]
unsafe fn tile<V: Pack, T: Target, const R: usize, const K: usize, const PART: bool>(i: usize, strip: &Strip<V::Elem>) {
    debug_assert!(i + R <= strip.rows);
    let mask = V::first(if PART { strip.columns } else { 0 });
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums: [[V; K]; R] = start::<V, R, K, PART>(i, strip, mask);
        let first = strip.a.offset((i / PANEL) as isize * strip.a_panel + (i % PANEL) as isize * strip.a_row);
        let a: [*const V::Elem; R] =
            array_of(|r| first.offset((r / PANEL) as isize * strip.a_panel + (r % PANEL) as isize * strip.a_row));
        let mut b = strip.b;
        let mut at = 0;
        if strip.depth >= LONG {
            for r in R..2 * R {
                for k in 0..K {
                    prefetch_at(strip.c.wrapping_offset((i + r) as isize * strip.c_row).wrapping_add(k * V::LANES));
                }
            }
        }
        let most = if strip.asks_ahead { line::<V::Elem>() } else { strip.depth };
        let mut p = 0;
        while p < strip.depth {
            if strip.asks_ahead {
                ask_ahead(i, p, &a, at, strip);
            }
            let terms = most.min(strip.depth - p);
            for _ in 0..terms {
                let columns: [V; K] = array_of(|k| read::<V, PART>(b.add(k * V::LANES), mask));
                for r in 0..R {
                    let factor = V::splat(*a[r].offset(at));
                    for k in 0..K {
                        sums[r][k] = T::mul_add(factor, columns[k], sums[r][k]);
                    }
                }
                at += strip.a_term;
                b = b.offset(strip.b_term);
            }
            p += terms;
        }
        end::<V, T, R, K, PART>(i, strip, mask, sums);
    }
}

/// Prefetches for a tile of `R` rows from `i` on, before as many of its terms as a cache line holds, from `p` on: either
/// these terms of the rows of the next tile, or, where A is packed, a term of the next block. A few lines at a time, as more
/// would delay the reads of the tile itself. With a panel for each number in a line the tiles prefetch the whole block.
#[inline(always)]
fn ask_ahead<E: Copy, const R: usize>(i: usize, p: usize, a: &[*const E; R], at: isize, strip: &Strip<E>) {
    if !strip.packed {
        for row in a {
            prefetch_at(row.wrapping_offset(at + R as isize * strip.a_row));
        }
    } else {
        let term = strip.ahead.from(0, i / PANEL * strip.depth.div_ceil(line::<E>()) + p / line::<E>()).at;
        for i in (0..strip.rows).step_by(line::<E>()) {
            prefetch_far_at(term.wrapping_add(i));
        }
    }
}

#[inline(always)]
unsafe fn read<V: Pack, const PART: bool>(from: *const V::Elem, mask: V::Mask) -> V {
    // SAFETY: as the caller promises.
    unsafe { if PART { V::read_masked(from, mask) } else { V::read(std::slice::from_raw_parts(from, V::LANES), 0) } }
}

/// The initial sums.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn start<V: Pack, const R: usize, const K: usize, const PART: bool>(
    i: usize,
    strip: &Strip<V::Elem>,
    mask: V::Mask,
) -> [[V; K]; R] {
    let mut sums = [[V::splat(V::Elem::default()); K]; R];
    // SAFETY: as the caller promises.
    unsafe {
        match strip.origin {
            Origin::Number(number) => {
                for r in 0..R {
                    for k in 0..K {
                        sums[r][k] = V::splat(number);
                    }
                }
            }
            Origin::Rows(bias) => {
                for r in 0..R {
                    for k in 0..K {
                        sums[r][k] = V::splat(*bias.add(i + r));
                    }
                }
            }
            Origin::Columns(bias) => {
                for r in 0..R {
                    for k in 0..K {
                        sums[r][k] = read::<V, PART>(bias.add(k * V::LANES), mask);
                    }
                }
            }
            Origin::Output => {
                for r in 0..R {
                    let row = strip.c.offset((i + r) as isize * strip.c_row);
                    for k in 0..K {
                        sums[r][k] = read::<V, PART>(row.add(k * V::LANES), mask);
                    }
                }
            }
        }
    }
    sums
}

/// Stores the sums.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn end<V: Pack, T: Target, const R: usize, const K: usize, const PART: bool>(
    i: usize,
    strip: &Strip<V::Elem>,
    mask: V::Mask,
    mut sums: [[V; K]; R],
) {
    if strip.finish == Finish::Reached {
        for r in 0..R {
            for k in 0..K {
                sums[r][k] = sums[r][k] + V::splat(V::Elem::default());
            }
        }
    }
    // SAFETY: as the caller promises.
    unsafe {
        for r in 0..R {
            let row = strip.c.offset((i + r) as isize * strip.c_row);
            for k in 0..K {
                if let Finish::Descend(lr) = strip.finish {
                    let before = read::<V, PART>(row.add(k * V::LANES), mask);
                    sums[r][k] = T::mul_add(V::splat(-lr), sums[r][k], before);
                }
                if PART {
                    sums[r][k].write_masked(row, mask);
                } else {
                    sums[r][k].write(std::slice::from_raw_parts_mut(row.add(k * V::LANES), V::LANES), 0);
                }
            }
        }
    }
}
