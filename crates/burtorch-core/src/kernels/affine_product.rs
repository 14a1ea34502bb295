//! A dense layer on 64 samples at once: forward, both gradients and a step, as products of matrices.
//!
//! Promises: the sums of `affine_lanes` and `weight_grad_lanes` in the same order, so the same bits lane by lane and for any
//! number of threads; but weights are read from memory only once for 64 samples. Does not know graphs.

use super::by_outputs::by_outputs;
use super::float::KernelFloat;
use super::product::{Finish, Matrix, MatrixMut, Start, product_on_threads, product_workspace_len};
use super::{Mode, affine_sgd_update_lanes, affine_weight_grad_lanes, weight_grad_scratch_len};
use crate::simd::{Level, level};

/// Samples of a block.
pub const BLOCK_LANES: usize = 64;

/// The number of outputs from which a weight gradient is computed as a matrix product with many registers; for fewer,
/// transposing inputs by panels is cheaper: by up to a tenth in f32.
const fn many<E>() -> usize {
    if size_of::<E>() == 4 { 256 } else { 64 }
}

/// Whether the weight gradient of so many outputs is a matrix product, for which `working` must have the memory.
fn is_product<E>(n_in: usize, n_out: usize, working: &Working<'_, E>) -> bool {
    let len = working.n_threads * product_workspace_len::<E>(n_out, n_in, BLOCK_LANES);
    working.memory.len() >= len && (n_out >= many::<E>() || level() != Level::Avx512)
}

/// The workspace of a kernel, whose content does not matter, and the number of threads that may share the work.
#[derive(Debug)]
pub struct Working<'a, S> {
    /// Of one thread after the other.
    pub memory: &'a mut [S],
    /// Threads, at least one.
    pub n_threads: usize,
}

impl<'a, S> Working<'a, S> {
    /// For the thread that calls.
    pub fn alone(memory: &'a mut [S]) -> Self {
        Working { memory, n_threads: 1 }
    }
}

/// How many numbers of working memory the kernels of a block need for each thread.
pub const fn affine_block_workspace_len<E>(n_in: usize, n_out: usize) -> usize {
    let forward = product_workspace_len::<E>(n_out, BLOCK_LANES, n_in);
    let input_grad = product_workspace_len::<E>(n_in, BLOCK_LANES, n_out);
    let weight_grad = product_workspace_len::<E>(n_out, n_in, BLOCK_LANES);
    let most = if forward > input_grad { forward } else { input_grad };
    if most > weight_grad { most } else { weight_grad }
}

/// `y = W x + b` in every lane: `x` is `n_in x 64`, `y` is `n_out x 64`, `w` is `n_out x n_in`.
pub fn affine_forward_block<E: KernelFloat>(
    w: &[E],
    bias: Option<&[E]>,
    x: &[E],
    y: &mut [E],
    working: Working<'_, E>,
) {
    let [n_in, n_out] = features(w, x, y);
    let start = bias.map_or(Start::Number(-E::default()), Start::Rows);
    let (w, x) = (Matrix::by_rows(w, n_out, n_in), Matrix::by_rows(x, n_in, BLOCK_LANES));
    let y = MatrixMut::by_rows(y, n_out, BLOCK_LANES);
    product_on_threads(working.n_threads, start, w, x, y, Finish::AsIs, working.memory);
}

/// `dx = W^T dy` in every lane, or `dx += W^T dy`.
pub fn affine_input_grad_block<E: KernelFloat>(w: &[E], dy: &[E], dx: &mut [E], mode: Mode, working: Working<'_, E>) {
    let [n_in, n_out] = features(w, dx, dy);
    let start = start_of(mode);
    let (w, dy) = (Matrix::by_rows(w, n_out, n_in).transposed(), Matrix::by_rows(dy, n_out, BLOCK_LANES));
    let dx = MatrixMut::by_rows(dx, n_in, BLOCK_LANES);
    product_on_threads(working.n_threads, start, w, dy, dx, Finish::Reached, working.memory);
}

/// `dW = sum over samples of dy x^T` and `db = sum of dy`, or the same added. As a matrix product if the workspace is
/// large enough; it takes more than the panel of [`affine_weight_grad_lanes`].
pub fn affine_weight_grad_block<E: KernelFloat>(
    dy: &[E],
    x: &[E],
    dw: &mut [E],
    db: Option<&mut [E]>,
    mode: Mode,
    working: Working<'_, E>,
) {
    let [n_in, n_out] = features(dw, x, dy);
    if is_product(n_in, n_out, &working) {
        if db.is_some() {
            affine_weight_grad_lanes::<E, BLOCK_LANES>(&[dy], &[&[]], &mut [], db, mode, &mut []);
        }
        return weight_grad_product(start_of(mode), dy, x, dw, Finish::AsIs, working);
    }
    let (threads, room) = ((working.n_threads, dw.len() * BLOCK_LANES), weight_grad_scratch_len(n_in, BLOCK_LANES));
    by_outputs(threads, n_out, dw, db, (working.memory, room), &|part| {
        let dy = &[rows_of(dy, &part.outputs, BLOCK_LANES)];
        affine_weight_grad_lanes::<E, BLOCK_LANES>(dy, &[x], part.rows, part.bias, mode, part.memory);
    });
}

/// `W -= lr dy x^T` and `b -= lr dy`, summed over samples: the bits of [`affine_weight_grad_block`] that sets, and a step.
pub fn affine_sgd_update_block<E: KernelFloat>(
    lr: E,
    dy: &[E],
    x: &[E],
    w: &mut [E],
    bias: Option<&mut [E]>,
    working: Working<'_, E>,
) {
    let [n_in, n_out] = features(w, x, dy);
    if is_product(n_in, n_out, &working) {
        if bias.is_some() {
            affine_sgd_update_lanes::<E, BLOCK_LANES>(lr, &[dy], &[&[]], &mut [], bias, &mut []);
        }
        return weight_grad_product(Start::Number(E::default()), dy, x, w, Finish::Descend(lr), working);
    }
    let (threads, room) = ((working.n_threads, w.len() * BLOCK_LANES), weight_grad_scratch_len(n_in, BLOCK_LANES));
    by_outputs(threads, n_out, w, bias, (working.memory, room), &|part| {
        let dy = &[rows_of(dy, &part.outputs, BLOCK_LANES)];
        affine_sgd_update_lanes::<E, BLOCK_LANES>(lr, dy, &[x], part.rows, part.bias, part.memory);
    });
}

/// `to = dy x^T`, from `start` on.
fn weight_grad_product<E: KernelFloat>(
    start: Start<'_, E>,
    dy: &[E],
    x: &[E],
    to: &mut [E],
    finish: Finish<E>,
    working: Working<'_, E>,
) {
    let [n_in, n_out] = features(to, x, dy);
    let x = Matrix::by_rows(x, n_in, BLOCK_LANES).transposed();
    let (dy, to) = (Matrix::by_rows(dy, n_out, BLOCK_LANES), MatrixMut::by_rows(to, n_out, n_in));
    product_on_threads(working.n_threads, start, dy, x, to, finish, working.memory);
}

/// The rows, of `width` numbers each, of some outputs.
fn rows_of<'a, E>(matrix: &'a [E], outputs: &std::ops::Range<usize>, width: usize) -> &'a [E] {
    &matrix[outputs.start * width..outputs.end * width]
}

fn start_of<E: Default>(mode: Mode) -> Start<'static, E> {
    match mode {
        Mode::Set => Start::Number(E::default()),
        Mode::Add => Start::Output,
    }
}

/// The numbers of inputs and outputs.
fn features<E>(w: &[E], x: &[E], y: &[E]) -> [usize; 2] {
    let [n_in, n_out] = [x, y].map(|x| super::lanes::features::<BLOCK_LANES>(x.len()));
    assert_eq!(w.len(), n_out * n_in, "a weight matrix must hold n_out x n_in numbers");
    [n_in, n_out]
}
