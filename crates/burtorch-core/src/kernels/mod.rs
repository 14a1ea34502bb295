//! Kernels: the arithmetic of block ops (dense layers, softmax, attention, optimiser steps) on plain slices.
//!
//! Contains one generic body per kernel, compiled for every CPU level and chosen by [`crate::simd::level`] at each call.
//! Promises: no heap allocation; slice lengths are checked once, at entry (a mismatch is a bug of the caller and
//! panics); the same bits on every level with fused multiply-add, and on every run. Gradients with respect to inputs
//! are never `-0.0`, the mark of an unreached node. Long ones end early if a token that the thread watches is set
//! ([`crate::sync::Stop`]), and their results are then undefined.
//! Does not know graphs, nodes or ids.
//!
//! Layouts: a weight matrix is row-major, `n_out x n_in`. "Lanes" kernels take activations of `L` samples (or tokens) at
//! once, `L` = 2, 4, 8, 16 or 64, stored lane-major: element `i` is the `L` consecutive numbers from `i * L`.

#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "a tile is written as loops over the indices of its sums")]

mod float;
mod lanes;
mod levels;

mod arithmetic;
mod gathered;
mod max_shifted;
mod reduce;
mod strips;
mod two;

mod affine;
mod affine_lanes;
mod affine_product;
mod by_outputs;
mod weight_grad_lanes;
mod weight_pieces;

mod product;

mod factor;

mod attention;
mod elementwise;
mod layer_norm;
mod rows;
mod softmax;
mod softmax_lanes;

mod optim;

mod sparse;
mod sparse_rows;

mod blocks;
mod blocks_lanes;
pub(crate) mod slices;
pub mod tokens;

pub use crate::simd::slices::{relu as relu_forward, sigmoid as sigmoid_forward, tanh as tanh_forward};
pub use affine::{
    affine_forward, affine_input_grad, affine_input_grad_add, affine_input_grad_columns, affine_input_grad_sgd_update,
    affine_sgd_update, affine_weight_grad,
};
pub use affine_lanes::{affine_forward_lanes, affine_input_grad_add_lanes, affine_input_grad_lanes};
pub use affine_product::{
    BLOCK_LANES, Working, affine_block_workspace_len, affine_forward_block, affine_input_grad_block,
    affine_sgd_update_block, affine_weight_grad_block,
};
pub use arithmetic::{
    add_products, add_slices, add_to, add_to_eight, ceilings, contributed_products, contributions, divide_slices,
    equal_slices, extreme_shares, floors, larger_of_eight, larger_to, less_equal_slices, less_slices, magnitudes,
    multiply_adds, multiply_slices, multiply_to, nan_masks, negate_slice, reached_multiply_adds, select_slices,
    shares_of_extremes, smaller_of_eight, smaller_to, square_roots, subtract_slices, sums_of_rows, unreached_masks,
};
pub use attention::{attention_probs_len, causal_attention_backward, causal_attention_forward};
pub use blocks::{BlockMath, PANEL, naive};
pub use elementwise::{relu_backward, sigmoid_backward, tanh_backward};
pub use factor::{Triangle, cholesky, factor_workspace_len, lu, qr, solve_triangular};
pub use float::KernelFloat;
pub use gathered::{add_rows, ask_for_next_rows, ask_for_rows, dots_of_rows, dots_of_rows_at_two};
pub use layer_norm::{layer_norm_forward_lanes, layer_norm_input_grad_lanes, layer_norm_weight_grad_lanes};
pub(crate) use max_shifted::row_kernels;
pub use max_shifted::{log_sum_exp, log_sum_exp_shares, norm2, norm2_shares};
pub use optim::{Adam, Momentum, adam_update, sgd_decay_update, sgd_momentum_update, sgd_update};
pub use product::{
    DESCEND_TERMS, Finish, Matrix, MatrixMut, Start, product, product_on_threads, product_workspace_len,
};
pub use reduce::{
    add_difference, all_finite, axpy, axpy_rows, count_reaching, descend, dot, dots, dots_of_columns, outer, sum,
    sum_squares,
};
pub use rows::{gather_rows, gather_rows_lanes, scatter_add_rows, scatter_add_rows_lanes};
pub use softmax::{
    softmax_cross_entropy_backward, softmax_cross_entropy_forward, softmax_cross_entropy_soft_backward,
    softmax_cross_entropy_soft_forward, softmax_forward,
};
pub use softmax_lanes::{
    softmax_cross_entropy_backward_lanes, softmax_cross_entropy_forward_lanes,
    softmax_cross_entropy_soft_backward_lanes, softmax_cross_entropy_soft_forward_lanes, softmax_forward_lanes,
};
pub use sparse::{CheckedRows, SparsePlace, sparse_add, sparse_dots};
pub use sparse_rows::{SparseRows, add_sparse_rows, dots_of_sparse_rows, dots_of_sparse_rows_at_two};
pub use strips::{Strip, StripOp, Strips, run_strips};
pub use tokens::TokenMath;
pub use two::{OneOfTwo, Two, two_steps};
pub use weight_grad_lanes::{affine_sgd_update_lanes, affine_weight_grad_lanes, weight_grad_scratch_len};
pub use weight_pieces::{OneWeight, WeightParts, affine_weight_grad_ones_lanes, affine_weight_grad_parts};

/// The effect on the numbers already in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Overwrites gradients. The same bits as filling with zeros and then adding.
    Set,
    /// Adds to the existing gradients.
    Add,
}
