//! The core through its public interface, at the CPU level that is found: one binary, as each takes longer to build than to run.
//!
//! Tests without the harness stand beside it; so does what is computed at each CPU level (`levels`).
#![feature(f128)]

#[cfg(feature = "labels")]
mod allocation_failure;
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
mod heap;
mod in_buffers;
mod memory;
mod nn;
mod no_alloc;
mod nonfinite;
mod parameters;
mod peaks;
mod pool;
mod program;
mod reference;
mod scratch;
mod traits;
