//! Lanes: the one module that names `std::simd`, the instruction level in use, and elementary functions.
//!
//! Everything else in the crate takes its vector types from here.

mod level;
mod provisional;

pub use level::{Level, available_levels, force_level, level};
pub use provisional::Elementary;
pub use std::simd::cmp::{SimdPartialEq, SimdPartialOrd};
pub use std::simd::num::SimdFloat;
pub use std::simd::{Mask, Select, Simd, StdFloat};
