//! The division of a product: which operand lies along vectors, what is packed, and the sizes of blocks.
//!
//! Promises: no choice made here changes a result. Knows vectors only by their length.

use super::{Finish, Matrix, MatrixMut, Start};
use crate::kernels::float::{KernelFloat, line};
use crate::kernels::levels::Target;
use crate::simd::Real;

/// An operand: its first element and its steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<E> {
    pub at: *const E,
    /// Along the rows of A, or the columns of B.
    pub outer: isize,
    /// Along the dimension that is summed.
    pub inner: isize,
    /// From one matrix to the next.
    pub next: isize,
}

impl<E: Copy> Side<E> {
    /// The operand from row (or column) `outer` and term `inner` on.
    #[inline(always)]
    pub(super) fn from(&self, outer: usize, inner: usize) -> Self {
        let at = outer as isize * self.outer + inner as isize * self.inner;
        Self { at: self.at.wrapping_offset(at), ..*self }
    }
}

/// Multiply-adds that justify waking another thread.
pub const WORTH_A_THREAD: usize = 1 << 18;
/// Pieces are multiples of this many rows or columns.
const CUT: usize = 16;

/// The initial values of sums.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<E> {
    Number(E),
    Output,
    Rows(*const E),
    Columns(*const E),
}

/// A product with checked shapes: all elements reached by the steps lie in the caller's slices.
#[derive(Clone, Copy, Debug)]
pub struct Job<E> {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) count: usize,
    pub(super) a: Side<E>,
    pub(super) b: Side<E>,
    pub(super) c: *mut E,
    pub(super) c_row: isize,
    pub(super) c_column: isize,
    pub(super) c_next: isize,
    pub(super) origin: Origin<E>,
    pub(super) finish: Finish<E>,
}

impl<E: KernelFloat> Job<E> {
    pub(super) fn new(
        a: &Matrix<'_, E>,
        b: &Matrix<'_, E>,
        c: MatrixMut<'_, E>,
        start: Start<'_, E>,
        finish: Finish<E>,
    ) -> Self {
        let (x, y, z) = (a.shape, b.shape, c.shape);
        Self {
            m: z.rows,
            n: z.columns,
            k: x.columns,
            count: c.count,
            a: Side {
                at: a.data.as_ptr().wrapping_add(x.start),
                outer: x.row_step,
                inner: x.column_step,
                next: x.next,
            },
            b: Side {
                at: b.data.as_ptr().wrapping_add(y.start),
                outer: y.column_step,
                inner: y.row_step,
                next: y.next,
            },
            c: c.data.as_mut_ptr().wrapping_add(z.start),
            c_row: z.row_step,
            c_column: z.column_step,
            c_next: z.next,
            origin: match start {
                Start::Number(number) => Origin::Number(number),
                Start::Output => Origin::Output,
                Start::Rows(bias) => Origin::Rows(bias.as_ptr()),
                Start::Columns(bias) => Origin::Columns(bias.as_ptr()),
            },
            finish,
        }
    }

    /// `Cᵀ = Bᵀ Aᵀ`.
    fn transposed(self) -> Self {
        Self {
            m: self.n,
            n: self.m,
            a: self.b,
            b: self.a,
            c_row: self.c_column,
            c_column: self.c_row,
            origin: match self.origin {
                Origin::Rows(bias) => Origin::Columns(bias),
                Origin::Columns(bias) => Origin::Rows(bias),
                other => other,
            },
            ..self
        }
    }

    /// The number of pieces, each worth a thread, up to `most`.
    pub(super) fn pieces(&self, most: usize) -> usize {
        let work = self.count as u128 * self.m as u128 * self.n as u128 * self.k as u128;
        let parts = if self.count > 1 { self.count } else { self.m.max(self.n).div_ceil(CUT) };
        parts.min(most).min((work / WORTH_A_THREAD as u128) as usize).max(1)
    }

    /// One of `of` pieces of C: a subset of its matrices, rows or columns.
    pub(super) fn piece(&self, index: usize, of: usize) -> Self {
        let share = |n: usize, unit: usize| {
            let units = n.div_ceil(unit);
            let (from, to) = (index * units / of * unit, ((index + 1) * units / of * unit).min(n));
            (from, to - from)
        };
        let mut piece = *self;
        if self.count > 1 {
            let from;
            (from, piece.count) = share(self.count, 1);
            piece.a.at = self.a.at.wrapping_offset(from as isize * self.a.next);
            piece.b.at = self.b.at.wrapping_offset(from as isize * self.b.next);
            piece.c = self.c.wrapping_offset(from as isize * self.c_next);
        } else if self.m >= self.n {
            let from;
            (from, piece.m) = share(self.m, CUT);
            piece.a = self.a.from(from, 0);
            piece.c = self.c.wrapping_offset(from as isize * self.c_row);
            if let Origin::Rows(bias) = self.origin {
                piece.origin = Origin::Rows(bias.wrapping_add(from));
            }
        } else {
            let from;
            (from, piece.n) = share(self.n, CUT);
            piece.b = self.b.from(from, 0);
            piece.c = self.c.wrapping_offset(from as isize * self.c_column);
            if let Origin::Columns(bias) = self.origin {
                piece.origin = Origin::Columns(bias.wrapping_add(from));
            }
        }
        piece
    }

    /// The same product with its vectors along contiguous rows of C, if possible.
    #[inline(always)]
    pub(super) fn oriented(self) -> Self {
        let vector = self.m == 1 || self.n == 1;
        let turn = if vector { self.n < self.m } else { self.c_column != 1 && self.c_row == 1 };
        if turn { self.transposed() } else { self }
    }
}

/// Block sizes, and which operands are packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub pack_a: bool,
    /// Whether tiles prefetch what is read of A after them.
    pub asks_ahead: bool,
    pub pack_b: bool,
    /// Rows of A in a block.
    pub rows: usize,
    /// Columns of B in a block.
    pub columns: usize,
    /// Terms of the sums in a block, which a tile sums before the next tile.
    pub depth: usize,
}

/// Bytes of a block of B, which stays in the second-level cache.
const BLOCK: usize = 1 << 20;
/// Rows of A in a block, at most.
const ROWS: usize = 96;
/// Terms in a block, at most. A strip of B (32 KB or less) stays in the first-level cache.
const DEPTH: usize = 256;
/// Bytes of an operand below which it is not packed.
const SMALL: usize = 48 << 10;
/// Bytes of B above which it is streamed from memory row by row, for a few rows of A.
const LARGE: usize = 256 << 10;

/// Rows of a packed panel of A.
pub(super) const PANEL: usize = 6;
/// Numbers written after the last panel, at most.
pub(super) const SPILL: usize = 8 - PANEL;
/// Bytes of a row of a narrow B: a block of it, for all rows of A, stays in the first-level cache.
const NARROW: usize = 512;
/// Bytes of A below which a narrow product reads it in place: it stays in the second-level cache.
const IN_PLACE: usize = 512 << 10;
/// Terms in a block of the widest narrow product, or where A is packed.
const NARROW_DEPTH: usize = 64;

/// Whether a product has few columns, like a dense layer of 64 samples: A is large beside B and C, and read once.
#[inline(always)]
pub(super) fn is_narrow<E>(job: &Job<E>) -> bool {
    job.n * size_of::<E>() <= NARROW
}

impl Plan {
    #[inline(always)]
    pub(super) fn new<E: KernelFloat, T: Target>(job: &Job<E>) -> Self {
        let plan = Self::of_shapes::<E, T>(job);
        // A step needs the whole sum.
        let depth = if let Finish::Descend(_) = job.finish { plan.depth.max(job.k) } else { plan.depth };
        Self { depth, ..plan }
    }

    #[inline(always)]
    fn of_shapes<E: KernelFloat, T: Target>(job: &Job<E>) -> Self {
        let lanes = T::Register::<E>::LANES;
        let size = size_of::<E>();
        let (m, n, k) = (job.m, job.n, job.k);
        // Strips are 4 vectors wide with many registers, otherwise 2.
        let wide = T::fits::<T::Register<E>>(24);
        let neighbours = job.b.outer == 1 || n == 1;
        let is_large = m * k * size > SMALL;
        let (rows, depth) = if wide { (ROWS / 2, DEPTH / 2) } else { (ROWS, DEPTH) };
        if !neighbours && m <= 8 {
            // Strips are used a few times and then discarded.
            return Self { pack_a: false, asks_ahead: false, pack_b: true, rows: m, columns: 4 * lanes, depth };
        }
        if is_narrow(job) {
            // Rows of A are read in place; terms that lie apart would share few sets of the second-level cache.
            let pack_a = m * k * size >= IN_PLACE && job.a.outer == 1 && n >= 2 * lanes;
            let asks_ahead = is_large && k >= 32 && (pack_a || job.a.inner == 1);
            let pack_b = !neighbours || (m >= 24 && job.b.inner != n as isize);
            // As many panels as a cache line has numbers: see `tile`.
            let rows = if pack_a { PANEL * line::<E>() } else { ROWS };
            let columns = n.next_multiple_of(lanes);
            // The fewer columns, the more terms in the same memory.
            let depth = if pack_a { NARROW_DEPTH } else { (NARROW_DEPTH * NARROW / (n * size)).clamp(1, DEPTH) };
            return Self { pack_a, asks_ahead, pack_b, rows, columns, depth };
        }
        if !neighbours || (m >= 24 && n * k * size > SMALL) {
            let columns = BLOCK / depth / size;
            return Self { pack_a: is_large, asks_ahead: false, pack_b: true, rows, columns, depth };
        }
        if m <= 4 && n * k * size > LARGE {
            return Self { pack_a: false, asks_ahead: false, pack_b: false, rows: m, columns: n, depth: 8 };
        }
        Self { pack_a: is_large, asks_ahead: false, pack_b: false, rows: ROWS, columns: n, depth: DEPTH }
    }
}

/// The workspace of a product of `m x k` and `k x n`: the packed blocks, 1.4 MB at most.
pub const fn workspace_len<E>(m: usize, n: usize, k: usize) -> usize {
    let size = size_of::<E>();
    let (one, other) = (blocks_len(m, n, k, size), blocks_len(n, m, k, size));
    (if one > other { one } else { other }) + 64 / size
}

/// The sizes of packed blocks of A and B, and [`aside_len`].
const fn blocks_len(m: usize, n: usize, k: usize, size: usize) -> usize {
    let line = 64 / size;
    let a = panels_len(at_most(m, ROWS), at_most(k, DEPTH), size);
    let b = at_most(n.next_multiple_of(line) * at_most(k, DEPTH), BLOCK / size);
    a + b + aside_len(m, n)
}

/// A packed block of A: whole panels, or whole cache lines of rows.
pub(super) const fn panels_len(rows: usize, terms: usize, size: usize) -> usize {
    let (panels, lines) = (rows.next_multiple_of(PANEL), rows.next_multiple_of(64 / size));
    (if panels > lines { panels } else { lines }) * terms + SPILL
}

/// Workspace for a strip of C whose columns are not adjacent: all rows of a block, up to 8 vectors.
pub(super) const fn aside_len(m: usize, n: usize) -> usize {
    at_most(m, ROWS) * at_most(n, 8 * 16)
}

const fn at_most(n: usize, top: usize) -> usize {
    if n < top { n } else { top }
}
