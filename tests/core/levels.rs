//! What is computed at every CPU level: elementary functions, ops, kernels, and lanes built on them.
//!
//! The level is one for the process, so tests that switch it and tests that compare bits take turns (`support`).
#![feature(f128)]

mod accuracy;
mod bits;
mod gpt;
mod kernels;
mod lanes;
mod math;
#[cfg(unix)] // it loads MPFR with dlopen
mod math_sweep;
#[path = "program/random.rs"]
#[expect(dead_code, reason = "the tests of traced functions use all of it")]
mod random;
mod support;
