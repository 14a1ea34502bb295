//! The division of a product: which operand lies along vectors, what is packed, and the sizes of blocks.
//!
//! Promises: no choice made here changes a result. Knows vectors only by their length.

use super::{Finish, Matrix, MatrixMut, Start};
use crate::kernels::float::KernelFloat;
use crate::kernels::levels::Target;
use crate::simd::Real;

/// An operand: where it starts, and how far apart its elements are.
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
    /// The same operand from row (or column) `outer` and term `inner` on.
    #[inline(always)]
    pub(super) fn from(&self, outer: usize, inner: usize) -> Self {
        let at = outer as isize * self.outer + inner as isize * self.inner;
        Self { at: self.at.wrapping_offset(at), ..*self }
    }
}

/// Multiply-adds from which a thread of its own is worth waking.
const PIECE: u128 = 1 << 18;
/// Rows or columns of which pieces are multiples.
const CUT: usize = 16;

/// Where chains start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<E> {
    Number(E),
    Output,
    Rows(*const E),
    Columns(*const E),
}

/// A product whose shapes were checked: all elements that the steps lead to lie in the slices of the caller.
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

    /// How many pieces are worth a thread each, up to `most`.
    pub(super) fn pieces(&self, most: usize) -> usize {
        let work = self.count as u128 * self.m as u128 * self.n as u128 * self.k as u128;
        let parts = if self.count > 1 { self.count } else { self.m.max(self.n).div_ceil(CUT) };
        parts.min(most).min((work / PIECE) as usize).max(1)
    }

    /// One of `of` pieces of C: some of its matrices, of its rows or of its columns.
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

    /// The same product with its vectors along rows of C that are contiguous, if it has any.
    #[inline(always)]
    pub(super) fn oriented(self) -> Self {
        let vector = self.m == 1 || self.n == 1;
        let turn = if vector { self.n < self.m } else { self.c_column != 1 && self.c_row == 1 };
        if turn { self.transposed() } else { self }
    }
}

/// Sizes of blocks, and which operands are packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub pack_a: bool,
    /// Whether tiles ask for rows of A ahead, which are read once and lie far apart.
    pub asks_ahead: bool,
    /// How many terms ahead tiles prefetch terms of A, which lie far apart; 0 for never.
    pub asks_terms: usize,
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
/// The largest number of terms in a block. A strip of B is 64 KB or less: tiles read it from the second-level cache as fast as
/// they compute, while a block of A (24 KB of f32) stays in the first-level cache. At 1024 x 1024 x 1024: 7 % faster than 128
/// terms.
const DEPTH: usize = 256;
/// The smallest number of terms in a block, if there are as many.
pub(super) const STEP_DEPTH: usize = 64;
/// Rows of A in a block of this many terms.
const DEEP_ROWS: usize = 24;
/// Bytes of the terms of B in a block that is read in place: half of the first-level cache.
const STRIP: usize = 16 << 10;
/// Bytes of an operand up to which its elements are read where they lie.
const SMALL: usize = 48 << 10;
/// Bytes of B from which it comes from memory row by row, for a few rows of A.
const LARGE: usize = 256 << 10;

/// Rows of A up to which packing B costs more than it saves, where B is read from one stretch of memory.
const FEW: usize = 192;
/// Bytes of a row of B up to which some of them stay in the first-level cache.
const SHORT: usize = 512;

impl Plan {
    #[inline(always)]
    pub(super) fn new<E: KernelFloat, T: Target>(job: &Job<E>) -> Self {
        let lanes = T::Register::<E>::LANES;
        let size = size_of::<E>();
        let (m, n, k) = (job.m, job.n, job.k);
        let neighbours = job.b.outer == 1 || n == 1;
        let is_large = m * k * size > SMALL;
        let (by_terms, by_rows) = (job.a.outer == 1, job.a.inner == 1);
        // For few strips of B, A is read where it lies, asked for ahead. But tiles of many rows, which may lie a power of two apart,
        // would find them in few sets of the cache.
        let is_narrow = n <= 8 * lanes;
        let one_vector = n < 2 * lanes;
        let lies = is_narrow && (by_terms || by_rows && !one_vector);
        let asks_ahead = is_large && lies && by_rows && k >= 32;
        let read = Self {
            pack_a: is_large && !lies,
            asks_ahead,
            asks_terms: 0,
            pack_b: false,
            rows: ROWS,
            columns: n,
            depth: DEPTH,
        };
        if !neighbours && m <= 8 {
            // Strips that are used a few times and not kept.
            let depth = (2 * STRIP / (4 * lanes * size)).min(DEPTH);
            return Self { pack_a: false, asks_ahead: false, pack_b: true, rows: m, columns: 4 * lanes, depth, ..read };
        }
        // Packed, one strip would be as it lies.
        let few = m < FEW || n <= if T::fits::<T::Register<E>>(24) { 4 } else { 2 } * lanes;
        if neighbours && few && job.b.inner == n as isize && n * size <= SHORT {
            let depth = (STRIP / (n * size)).clamp(STEP_DEPTH, DEPTH);
            let asks_terms = if is_large && by_terms { depth } else { 0 };
            return Self { asks_terms, depth, ..read };
        }
        if !neighbours || (m >= 24 && n * k * size > SMALL) {
            // Terms of A that lie far apart are better read once.
            let pack_a = read.pack_a || (is_large && by_terms && !one_vector);
            let rows = if is_narrow { ROWS } else { (DEEP_ROWS * DEPTH / k.clamp(1, DEPTH) / 12 * 12).min(ROWS) };
            return Self { pack_a, pack_b: true, rows, columns: BLOCK / k.clamp(1, DEPTH) / size / 128 * 128, ..read };
        }
        if m <= 4 && n * k * size > LARGE {
            let depth = if let Finish::Descend(_) = job.finish { STEP_DEPTH } else { 8 };
            return Self { pack_a: false, asks_ahead: false, rows: m, depth, ..read };
        }
        read
    }
}

/// How many numbers of working memory a product of `m x k` and `k x n` needs: what is packed at a time, 1.4 MB at most.
pub const fn workspace_len<E>(m: usize, n: usize, k: usize) -> usize {
    let size = size_of::<E>();
    let (one, other) = (blocks_len(m, n, k, size), blocks_len(n, m, k, size));
    (if one > other { one } else { other }) + 64 / size
}

/// Packed blocks of A and B, and [`aside_len`].
const fn blocks_len(m: usize, n: usize, k: usize, size: usize) -> usize {
    let line = 64 / size;
    let a = at_most(m, ROWS) * (at_most(k, DEPTH) + 2 * line);
    let b = at_most(n.next_multiple_of(line) * at_most(k, DEPTH), BLOCK / size);
    a + b + aside_len(m, n)
}

/// Numbers of a strip of C whose columns are not neighbours: all rows of a block, up to 8 vectors.
pub(super) const fn aside_len(m: usize, n: usize) -> usize {
    at_most(m, ROWS) * at_most(n, 8 * 16)
}

const fn at_most(n: usize, top: usize) -> usize {
    if n < top { n } else { top }
}
