//! Lanes: the one module that names `std::simd`, the instruction level in use, and elementary functions.
//!
//! Everything else in the crate takes its vector types from here.

mod level;

pub use level::{Level, available_levels, force_level, level};
pub use std::simd::cmp::SimdPartialOrd;
pub use std::simd::{Select, Simd, StdFloat};
