//! Every kernel against a plain f64 loop, at odd sizes, sizes below one vector, and size 0; the same bits on every
//! CPU level with fused multiply-add, and on every run.
#![allow(clippy::needless_range_loop, reason = "references are written as loops over indices")]

#[path = "kernels/affine.rs"]
mod affine;
#[path = "kernels/affine_lanes.rs"]
mod affine_lanes;
#[path = "kernels/optim.rs"]
mod optim;
#[path = "kernels/reduce.rs"]
mod reduce;
#[path = "kernels/support.rs"]
mod support;
