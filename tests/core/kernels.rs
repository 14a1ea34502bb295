//! Every kernel against a plain f64 loop, at odd sizes, sizes below one vector, and size 0; the same bits on every
//! CPU level with fused multiply-add, and on every run.
#![allow(clippy::needless_range_loop, reason = "references are written as loops over indices")]

#[path = "kernels/affine.rs"]
mod affine;
#[path = "kernels/affine_lanes.rs"]
mod affine_lanes;
#[path = "kernels/attention.rs"]
mod attention;
#[path = "kernels/elementwise.rs"]
mod elementwise;
#[path = "kernels/layer_norm.rs"]
mod layer_norm;
#[path = "kernels/optim.rs"]
mod optim;
#[path = "kernels/paired.rs"]
mod paired;
#[path = "kernels/reduce.rs"]
mod reduce;
#[path = "kernels/rows.rs"]
mod rows;
#[path = "kernels/softmax.rs"]
mod softmax;
#[path = "kernels/support.rs"]
mod support;
