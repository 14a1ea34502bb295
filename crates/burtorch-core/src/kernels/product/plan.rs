//! How a product is cut: which operand lies along vectors, what is packed, and the sizes of blocks.
//!
//! Promises that no choice made here shows in a result. Knows nothing of vectors beyond how many numbers one holds.

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
    pub(super) finish: Finish,
}

impl<E: KernelFloat> Job<E> {
    pub(super) fn new(
        a: &Matrix<'_, E>,
        b: &Matrix<'_, E>,
        c: MatrixMut<'_, E>,
        start: Start<'_, E>,
        finish: Finish,
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

    /// The same product with its vectors along rows of C that are contiguous, if it has any.
    #[inline(always)]
    pub(super) fn oriented(self) -> Self {
        let (rows, columns) = (self.m == 1 || self.c_row == 1, self.n == 1 || self.c_column == 1);
        let turn = if rows && columns { self.n == 1 && self.m > 1 } else { rows };
        if turn { self.transposed() } else { self }
    }
}

/// Sizes of blocks, and which operands are packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub pack_a: bool,
    pub pack_b: bool,
    /// Rows of A in a block.
    pub rows: usize,
    /// Columns of B in a block.
    pub columns: usize,
    /// Terms of the sums that a packed block of B holds.
    pub terms: usize,
    /// Terms that a tile sums before the next tile.
    pub depth: usize,
}

/// Terms that a packed block holds: with [`COLUMNS`], a block of B takes half a second-level cache of 2 MB.
const TERMS: usize = 512;
/// Rows of A in a block.
const ROWS: usize = 96;
/// Terms that a tile sums: a strip of B (256 bytes wide, 32 KB) stays in the first-level cache.
const DEPTH: usize = 128;
/// Bytes of the columns in a block.
const COLUMNS: usize = 2048;

impl Plan {
    #[inline(always)]
    pub(super) fn new<E: KernelFloat, T: Target>(job: &Job<E>) -> Self {
        let lanes = T::Register::<E>::LANES;
        let (m, n, k) = (job.m, job.n, job.k);
        let size = size_of::<E>();
        let direct = job.b.outer == 1 || n == 1;
        let pack_b = !direct || (m >= 24 && n * k * size > 16 << 10);
        let pack_a = n > 4 * lanes && m * k * size > 16 << 10;
        if !pack_b && m <= 4 && n * k * size > 256 << 10 {
            return Self { pack_a: false, pack_b, rows: m, columns: n, terms: k.max(1), depth: 8 };
        }
        if !pack_b {
            return Self { pack_a, pack_b, rows: ROWS, columns: n, terms: TERMS, depth: 2 * DEPTH };
        }
        if m <= 8 {
            let columns = 4 * lanes;
            return Self { pack_a: false, pack_b, rows: m, columns, terms: DEPTH, depth: DEPTH };
        }
        let columns = COLUMNS / size;
        let terms = TERMS;
        let depth = if T::fits::<T::Register<E>>(24) { DEPTH } else { 2 * DEPTH };
        Self { pack_a, pack_b, rows: ROWS, columns, terms, depth }
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
    let terms = at_most(k, TERMS);
    let a = at_most(m, ROWS) * (terms + 2 * 64 / size);
    let b = at_most(n.next_multiple_of(64 / size), COLUMNS / size) * terms;
    a + b + aside_len(m, n)
}

/// Numbers of a strip of C whose columns are not neighbours: all rows of a block, up to 8 vectors.
pub(super) const fn aside_len(m: usize, n: usize) -> usize {
    at_most(m, ROWS) * at_most(n, 8 * 16)
}

const fn at_most(n: usize, top: usize) -> usize {
    if n < top { n } else { top }
}
