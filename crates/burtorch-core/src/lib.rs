//! The core of burtorch: gradients of scalar functions with the lowest latency and the least memory.
#![feature(portable_simd)]

pub mod simd;

pub mod kernels;
