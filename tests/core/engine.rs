//! The core through its public interface, at the CPU level that is found: one binary, as each takes longer to build than to run.
//!
//! Tests with an allocator of their own, of the memory of a whole process, or without the harness stand beside it; so does
//! what is computed at each CPU level (`levels`).
#![feature(f128, float_erf)]

mod arrays;
mod branches;
mod chains;
mod compaction;
mod compression;
mod data;
mod draws;
mod eager;
mod edges;
#[cfg(feature = "labels")]
mod files;
mod handles;
mod nn;
mod nonfinite;
mod parameters;
mod peaks;
mod pool;
mod program;
mod reference;
mod scratch;
mod traits;
