//! Factorisations of small dense matrices, by rows: LU with partial pivoting, Cholesky, QR, and triangular systems.
//!
//! Promises: no heap allocation; above [`BLOCK`] rows the work is products of matrices; the same bits on every CPU level with
//! fused multiply-add. A singular matrix gives infinities and NaNs by IEEE 754. A token or Ctrl-C ends them between two
//! blocks. Does not know arrays or derivatives.

mod cholesky;
mod lu;
mod qr;
mod triangular;

use super::float::KernelFloat;
use super::levels::{Target, columns};
use super::product::product_workspace_len;
use super::reduce::axpy_step;

pub use cholesky::cholesky;
pub use lu::lu;
pub use qr::qr;
pub use triangular::{Triangle, solve_triangular};

/// Rows and columns per block.
const BLOCK: usize = 64;

/// Numbers of working memory for a matrix of `m` rows and `n` columns, or a system of `m` rows with `n` right sides.
pub fn factor_workspace_len<E: KernelFloat>(m: usize, n: usize) -> usize {
    let side = m.max(n);
    let product = product_workspace_len::<E>(side, side, BLOCK).max(product_workspace_len::<E>(BLOCK, side, side));
    product + 3 * BLOCK * side + 2 * BLOCK * BLOCK + side
}

/// Multiply-adds of a block with this many rows, without its products, which check for interrupts themselves.
fn block_work(rows: usize) -> usize {
    rows * BLOCK * BLOCK
}

/// `a * b + c`, fused where the CPU can.
#[inline(always)]
fn mul_add<E: KernelFloat, T: Target>(a: E, b: E, c: E) -> E {
    if T::FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// `y += a * x`.
#[inline(always)]
fn add_multiple<E: KernelFloat, T: Target>(a: E, x: &[E], y: &mut [E]) {
    let x = &x[..y.len()];
    columns!(E, y.len(), axpy_step[T](a, x, y));
}

/// Two rows of a matrix with `n` columns, the first one read-only.
#[inline(always)]
fn two_rows<E>(a: &mut [E], n: usize, read: usize, write: usize) -> (&[E], &mut [E]) {
    if read < write {
        let (above, below) = a.split_at_mut(write * n);
        (&above[read * n..(read + 1) * n], &mut below[..n])
    } else {
        let (above, below) = a.split_at_mut(read * n);
        (&below[..n], &mut above[write * n..(write + 1) * n])
    }
}

#[cfg(test)]
mod tests;
