//! Lanes: the one module that names `std::simd`, the instruction level in use, and elementary functions.
//!
//! Everything else in the crate takes its vector types from here. Inside a kernel compiled for a level call the bodies
//! in [`math`]; elsewhere call [`Elementary`] or [`slices`], which choose the level themselves. All give the same bits.

mod level;
pub(crate) mod paired;
mod real;

pub mod math;

#[cfg(any(test, all(windows, target_env = "gnu")))]
mod fused;

mod functions;
pub(crate) use functions::for_each_function;

mod array_of;
mod elementary;
pub(crate) mod gather;
pub mod pairs;
mod reach;
pub mod slices;
pub(crate) mod twins;

pub(crate) use array_of::array_of;
pub use elementary::Elementary;
pub(crate) use elementary::is_rare;
pub use level::{Level, available_levels, force_level, level};
pub(crate) use reach::{Places, REACH, list_f32, list_f64, reach_f32, reach_f64};
pub use real::{Bits, Real, Truth};
pub use std::simd::cmp::{SimdPartialEq, SimdPartialOrd};
pub use std::simd::num::{SimdFloat, SimdUint};
pub use std::simd::{Mask, Select, Simd, StdFloat};

/// Four f32 lanes. The aliases also serve crates that do not enable portable SIMD themselves.
pub type F32x4 = Simd<f32, 4>;
/// Eight f32 lanes.
pub type F32x8 = Simd<f32, 8>;
/// Sixteen f32 lanes.
pub type F32x16 = Simd<f32, 16>;
/// Sixty-four f32 lanes: four registers of AVX-512.
pub type F32x64 = Simd<f32, 64>;
/// Two f64 lanes.
pub type F64x2 = Simd<f64, 2>;
/// Four f64 lanes.
pub type F64x4 = Simd<f64, 4>;
/// Eight f64 lanes.
pub type F64x8 = Simd<f64, 8>;
/// Sixty-four f64 lanes: eight registers of AVX-512.
pub type F64x64 = Simd<f64, 64>;
