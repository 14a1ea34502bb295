//! A dense layer over many tokens, as products of matrices: weights are read from memory once for all of them.
//!
//! Promises: an output is one chain of multiply-adds from the bias over the inputs in their order; gradients have the bits of
//! those computed group by group. Does not know which adjoints were reached.

use super::{GradientOut, TOKEN_LANES};
use crate::kernels::product::{Finish, Matrix, MatrixMut, Start, product, product_workspace_len};
use crate::kernels::{KernelFloat, Mode, affine_weight_grad_lanes};

const L: usize = TOKEN_LANES;

/// Groups of tokens, and weights, above which matrix products are faster than the kernels for one group, including
/// copies.
const GROUPS: usize = 4;
const WEIGHTS: usize = 1 << 12;

/// Whether a layer is computed as a matrix product. Depends only on sizes, so the bits are the same everywhere.
pub(super) const fn is_product(n_groups: usize, n_in: usize, n_out: usize) -> bool {
    n_groups >= GROUPS && n_in.saturating_mul(n_out) >= WEIGHTS
}

/// Workspace of forward and backward passes: copies of `x`, `dx` and `dy`, and the workspace of a product.
pub(super) const fn scratch_len<E>(n_groups: usize, n_in: usize, n_out: usize) -> usize {
    if !is_product(n_groups, n_in, n_out) {
        return 0;
    }
    let n = n_groups * L;
    let forward = product_workspace_len::<E>(n_out, n, n_in);
    let input_grad = product_workspace_len::<E>(n_in, n, n_out);
    let weight_grad = product_workspace_len::<E>(n_out, n_in, n);
    let most = if forward > input_grad { forward } else { input_grad };
    2 * n * (n_in + n_out) + if most > weight_grad { most } else { weight_grad }
}

/// Copies groups of tokens into one matrix, with `width` rows of all tokens.
fn joined<E: Copy>(groups: &[E], n: usize, to: &mut [E]) {
    let width = groups.len() / n;
    for (f, row) in to.chunks_exact_mut(n).enumerate() {
        for (g, tokens) in row.chunks_exact_mut(L).enumerate() {
            tokens.copy_from_slice(&groups[(g * width + f) * L..][..L]);
        }
    }
}

/// The reverse of [`joined`].
fn parted<E: Copy>(matrix: &[E], n: usize, groups: &mut [E]) {
    let width = groups.len() / n;
    for (f, row) in matrix.chunks_exact(n).enumerate() {
        for (g, tokens) in row.chunks_exact(L).enumerate() {
            groups[(g * width + f) * L..][..L].copy_from_slice(tokens);
        }
    }
}

/// `y = W x + b` for each token.
pub(super) fn forward<E: KernelFloat>(
    n_in: usize,
    w: &[E],
    bias: Option<&[E]>,
    x: &[E],
    y: &mut [E],
    scratch: &mut [E],
) {
    let (n, n_out) = (x.len() / n_in, w.len() / n_in);
    let (inputs, rest) = scratch.split_at_mut(x.len());
    let (outputs, workspace) = rest.split_at_mut(y.len());
    joined(x, n, inputs);
    let start = bias.map_or(Start::Number(-E::default()), Start::Rows);
    let (w, inputs) = (Matrix::by_rows(w, n_out, n_in), Matrix::by_rows(inputs, n_in, n));
    product(start, w, inputs, MatrixMut::by_rows(outputs, n_out, n), Finish::AsIs, workspace);
    parted(outputs, n, y);
}

/// A backward pass of groups whose outputs were all reached.
pub(super) struct Pull<'a, E> {
    pub n_in: usize,
    pub w: &'a [E],
    pub dy: &'a [E],
    pub x: &'a [E],
    pub dx: Option<&'a mut [E]>,
    pub dw: GradientOut<'a, E>,
    pub db: GradientOut<'a, E>,
    pub scratch: &'a mut [E],
}

/// `dx += W^T dy` for each token, `dw = sum dy x^T` and `db = sum dy`, or the same added.
pub(super) fn pull<E: KernelFloat>(pull: Pull<'_, E>) {
    let Pull { n_in, w, dy, x, dx, dw, db, scratch } = pull;
    let (n, n_out) = (x.len() / n_in, w.len() / n_in);
    let (outputs, rest) = scratch.split_at_mut(dy.len());
    joined(dy, n, outputs);
    let outputs = Matrix::by_rows(outputs, n_out, n);
    let (inputs, workspace) = rest.split_at_mut(x.len());
    if let Some(dx) = dx {
        joined(dx, n, inputs);
        let w = Matrix::by_rows(w, n_out, n_in).transposed();
        product(Start::Output, w, outputs, MatrixMut::by_rows(inputs, n_in, n), Finish::Reached, workspace);
        parted(inputs, n, dx);
    }
    if let Some((dw, mode)) = dw {
        joined(x, n, inputs);
        let start = if mode == Mode::Set { Start::Number(E::default()) } else { Start::Output };
        let inputs = Matrix::by_rows(inputs, n_in, n).transposed();
        product(start, outputs, inputs, MatrixMut::by_rows(dw, n_out, n_in), Finish::AsIs, workspace);
    }
    if let Some((db, mut mode)) = db {
        for dy in dy.chunks_exact(n_out * L) {
            affine_weight_grad_lanes::<E, L>(&[dy], &[&[]], &mut [], Some(&mut *db), mode, &mut []);
            mode = Mode::Add;
        }
    }
}
