//! Kernels: the arithmetic of block ops (dense layers, softmax, attention, optimiser steps) on plain slices.
//!
//! Holds one generic body per kernel, compiled for every CPU level and chosen by [`crate::simd::level`] at each call.
//! Promises: no heap allocation; slice lengths are checked once, at entry (a mismatch is a bug of the caller and
//! panics); the same bits on every level with fused multiply-add, and on every run. Gradients with respect to inputs
//! are never `-0.0`, the mark of a node that no path reached.
//! Knows nothing of graphs, nodes or ids.
//!
//! Layouts: a weight matrix is row-major, `n_out x n_in`. "Lanes" kernels take activations of `L` samples (or tokens) at
//! once, `L` = 4, 8 or 16, stored lane-major: element `i` is the `L` consecutive numbers from `i * L`.

#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "a tile is written as loops over the indices of its sums")]

mod float;
mod levels;

mod affine;
mod affine_lanes;
mod optim;
mod reduce;
mod weight_grad_lanes;

mod blocks;

pub use affine::{affine_forward, affine_input_grad, affine_input_grad_add, affine_sgd_update, affine_weight_grad};
pub use affine_lanes::{affine_forward_lanes, affine_input_grad_add_lanes, affine_input_grad_lanes};
pub use blocks::{BlockMath, naive};
pub use float::KernelFloat;
pub use optim::sgd_update;
pub use reduce::{axpy, dot, sum, sum_squares};
pub use weight_grad_lanes::{affine_weight_grad_lanes, weight_grad_scratch_len};

/// What a kernel does with the numbers already in its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Overwrites them. The same bits as filling with zeros and then adding.
    Set,
    /// Continues the sum they hold.
    Add,
}
