//! The loops over blocks of a product.
//!
//! Promises: blocks of terms are summed in order, each on top of the one before. Does not know registers.

use super::Finish;
use super::pack::{block_of_a, row_of_b, strip_of_b};
use super::plan::{Job, Origin, PANEL, Plan, Side, aside_len, is_narrow, panels_len};
use super::small::small;
use super::tile::{Strip, strip};
use crate::kernels::float::KernelFloat;
use crate::kernels::levels::Target;
use crate::simd::Real;
use crate::sync::stop::Pace;

/// The body of [`super::product`].
#[inline(always)]
pub(super) fn all<E: KernelFloat, T: Target>(job: &Job<E>, workspace: &mut [E]) {
    let job = job.oriented();
    if small::<E, T>(&job) {
        return;
    }
    let plan = Plan::new::<E, T>(&job);
    // Skips to the start of a cache line.
    let skipped = workspace.as_ptr().align_offset(64).min(workspace.len());
    let workspace = &mut workspace[skipped..];
    let mut pace = Pace::new();
    for q in 0..job.count as isize {
        // SAFETY: the steps lead to further matrices, which were checked.
        unsafe {
            let mut one = job;
            one.a.at = one.a.at.wrapping_offset(q * job.a.next);
            one.b.at = one.b.at.wrapping_offset(q * job.b.next);
            one.c = one.c.wrapping_offset(q * job.c_next);
            if !single::<E, T>(&one, &plan, workspace, &mut pace) {
                return;
            }
        }
    }
}

/// The width of the next strip in vectors, with `left` columns left; 0 if less than one vector.
#[inline(always)]
fn vectors<E: KernelFloat, T: Target>(left: usize, rows: usize) -> usize {
    let whole = left / T::Register::<E>::LANES;
    if rows == 1 && whole >= 8 {
        8
    } else if whole >= 4 && (rows <= 2 || T::fits::<T::Register<E>>(24)) {
        4
    } else if whole >= 2 {
        2
    } else {
        whole
    }
}

/// Computes one product; `false` if it ended early.
///
/// # Safety
/// The elements of all operands may be read, or written.
#[inline(always)]
unsafe fn single<E: KernelFloat, T: Target>(job: &Job<E>, plan: &Plan, workspace: &mut [E], pace: &mut Pace) -> bool {
    let lanes = T::Register::<E>::LANES;
    let (aside, workspace) = workspace.split_at_mut(if job.c_column == 1 { 0 } else { aside_len(job.m, job.n) });
    let (for_b, for_a) = if plan.pack_b {
        workspace.split_at_mut(plan.columns.min(job.n.next_multiple_of(lanes)) * plan.depth.min(job.k))
    } else {
        workspace.split_at_mut(0)
    };
    debug_assert!(
        !plan.pack_a || for_a.len() >= panels_len(plan.rows.min(job.m), plan.depth.min(job.k), size_of::<E>())
    );
    // SAFETY: as the caller promises.
    unsafe {
        for j in (0..job.n).step_by(plan.columns) {
            let columns = plan.columns.min(job.n - j);
            // Without terms there is one empty block, so that sums are still initialised and finished.
            for p in (0..job.k.max(1)).step_by(plan.depth) {
                let depth = plan.depth.min(job.k - p);
                if plan.pack_b {
                    block_of_b::<E, T>(job, j, columns, p, depth, for_b.as_mut_ptr());
                    if !pace.goes_on(columns * depth * Pace::FROM_MEMORY) {
                        return false;
                    }
                }
                for i in (0..job.m).step_by(plan.rows) {
                    let rows = plan.rows.min(job.m - i);
                    let a = job.a.from(i, p);
                    let a = if plan.pack_a { block_of_a::<E, T>(&a, rows, depth, for_a.as_mut_ptr()) } else { a };
                    let (at, size) = ([i, j, p], [rows, columns, depth]);
                    if !strips::<E, T>(job, plan, at, size, &a, for_b.as_ptr(), aside, pace) {
                        return false;
                    }
                }
            }
        }
    }
    true
}

/// Rows of B packed together.
const GROUP: usize = 8;

/// Packs a block of B, strip by strip.
///
/// # Safety
/// As [`single`].
#[inline(always)]
unsafe fn block_of_b<E: KernelFloat, T: Target>(
    job: &Job<E>,
    j: usize,
    columns: usize,
    p: usize,
    depth: usize,
    to: *mut E,
) {
    let lanes = T::Register::<E>::LANES;
    let b = job.b.from(j, p);
    // A few rows at a time: few enough streams of reads for the prefetcher, and contiguous stretches of writes, because
    // the same row of two strips may be a power of two apart.
    let group = if b.outer == 1 { GROUP } else { depth.max(1) };
    // SAFETY: as the caller promises.
    unsafe {
        for q in (0..depth).step_by(group) {
            let rows = group.min(depth - q);
            let mut c = 0;
            while c < columns {
                let width = width::<E, T>(columns - c, job.m);
                let padded = width.next_multiple_of(lanes);
                let to = to.add(c * depth + q * padded);
                if b.outer == 1 {
                    for r in 0..rows {
                        row_of_b::<E, T>(b.from(c, q + r).at, width, to.add(r * padded));
                    }
                } else {
                    strip_of_b::<E, T>(&b.from(c, q), width, rows, to);
                }
                c += width;
            }
        }
    }
}

/// The number of columns of the next strip, with `left` left.
#[inline(always)]
fn width<E: KernelFloat, T: Target>(left: usize, rows: usize) -> usize {
    match vectors::<E, T>(left, rows) {
        0 => left,
        vectors => vectors * T::Register::<E>::LANES,
    }
}

/// Bytes of the strips of B side by side: half a first-level cache.
const SIDE: usize = 16 << 10;

/// The number of strips of `width` columns that each row of tiles passes over before the next, with `left` columns left.
/// Simply: one. Departure: all of them where B is narrow, so that rows of A come from memory once; and where strips are
/// short, as many as the first-level cache holds. With one, the next tile reads sums whose addresses differ from those just
/// stored by a multiple of the row; where that is a multiple of 4096 bytes, they wait for the stores: 71 GFLOP/s became 92
/// (AVX2, f32, 64 terms).
#[inline(always)]
fn side_by_side<E: KernelFloat, T: Target>(job: &Job<E>, width: usize, left: usize, depth: usize) -> usize {
    if job.c_column != 1 {
        1
    } else if is_narrow(job) {
        left / width
    } else if T::fits::<T::Register<E>>(24) {
        1
    } else {
        (SIDE / (width * depth.max(1) * size_of::<E>())).min(left / width).max(1)
    }
}

/// Computes all strips of one block; `false` if it ended early.
///
/// # Safety
/// As [`single`].
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a block, where it is read, and working memory")]
unsafe fn strips<E: KernelFloat, T: Target>(
    job: &Job<E>,
    plan: &Plan,
    [i, j, p]: [usize; 3],
    [rows, columns, depth]: [usize; 3],
    a: &Side<E>,
    mut packed: *const E,
    aside: &mut [E],
    pace: &mut Pace,
) -> bool {
    let lanes = T::Register::<E>::LANES;
    let element = |(at, row): (*mut E, isize), i: usize, j: usize| {
        at.wrapping_offset(i as isize * row + j as isize * job.c_column)
    };
    let mut c = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while c < columns {
            let width = width::<E, T>(columns - c, job.m);
            let count = side_by_side::<E, T>(job, width, columns - c, depth);
            if !pace.goes_on(rows * count * width * depth) {
                return false;
            }
            let (b, b_term) = if plan.pack_b {
                (packed, width.next_multiple_of(lanes) as isize)
            } else {
                (job.b.at.offset((j + c) as isize + p as isize * job.b.inner), job.b.inner)
            };
            let mut here = Strip {
                a: a.at,
                a_row: a.outer,
                a_term: a.inner,
                a_panel: if plan.pack_a && job.a.outer != 1 {
                    (PANEL * depth) as isize
                } else {
                    PANEL as isize * a.outer
                },
                packed: plan.pack_a,
                asks_ahead: plan.asks_ahead && c == 0,
                ahead: if i + rows < job.m { job.a.from(i + rows, p) } else { job.a.from(0, p + depth) },
                b,
                b_term,
                count,
                b_next: if plan.pack_b { width * depth } else { width },
                c_next: width,
                c: job.c.offset(i as isize * job.c_row + (j + c) as isize * job.c_column),
                c_row: job.c_row,
                rows,
                columns: width,
                depth,
                origin: match job.origin {
                    _ if p > 0 => Origin::Output,
                    Origin::Rows(bias) => Origin::Rows(bias.add(i)),
                    Origin::Columns(bias) => Origin::Columns(bias.add(j + c)),
                    other => other,
                },
                finish: if p + depth == job.k { job.finish } else { Finish::AsIs },
            };
            let place = (here.c, here.c_row);
            if job.c_column != 1 {
                (here.c, here.c_row) = (aside.as_mut_ptr(), width as isize);
                if matches!(here.origin, Origin::Output) || matches!(here.finish, Finish::Descend(_)) {
                    for at in 0..rows * width {
                        aside[at] = *element(place, at / width, at % width);
                    }
                }
            }
            match width / lanes {
                8 => strip::<E, T, 8, false>(&here),
                4 => strip::<E, T, 4, false>(&here),
                2 => strip::<E, T, 2, false>(&here),
                1 => strip::<E, T, 1, false>(&here),
                _ => strip::<E, T, 1, true>(&here),
            }
            if job.c_column != 1 {
                for at in 0..rows * width {
                    *element(place, at / width, at % width) = aside[at];
                }
            }
            packed = packed.wrapping_add(count * width.next_multiple_of(lanes) * depth);
            c += count * width;
        }
    }
    true
}
