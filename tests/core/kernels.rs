//! Every kernel against a plain f64 loop, at odd sizes, sizes below one vector, and size 0; the same bits on every
//! CPU level with fused multiply-add, and on every run.
#![allow(clippy::needless_range_loop, reason = "references are written as loops over indices")]

mod affine;
mod affine_lanes;
mod attention;
mod chosen_rows;
mod elementwise;
mod largest;
mod layer_norm;
mod max_shifted;
mod optim;
mod paired;
mod product;
mod reduce;
mod rows;
mod softmax;
mod stops;
mod strips;
mod token_product;
mod weight_parts;
