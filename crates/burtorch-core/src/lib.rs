//! The core of burtorch: automatic differentiation on a CPU, with low latency and little memory.
//!
//! A [`Graph`] stores scalar nodes in columns, in the order they were built; [`Graph::backward`] is one pass over them in
//! reverse. [`Parameters`] stores the trained numbers outside the tape. [`Graph::eager`] gives operators on a graph.
#![feature(portable_simd, f128, explicit_tail_calls, rust_preserve_none_cc, alloc_error_hook, optimize_attribute)]
// Calls in place of returns are called incomplete; what is used of them, and on which targets, is said where they are.
#![allow(incomplete_features)]

#[macro_use]
pub mod ops;

pub mod draw;
pub mod error;
pub mod interrupt;
pub mod memory;
pub mod scalar;
pub mod simd;

pub mod array;
pub mod compress;
pub mod data;
pub mod graph;

pub mod backward;
pub mod eager;
pub mod kernels;
pub mod params;
pub mod program;

pub mod io;

pub mod nn;
pub mod opt;
pub mod optim;
pub mod oracle;
pub mod text;

pub mod viz;

#[cfg(feature = "erased")]
pub mod erased;

pub mod sync;

pub use backward::{Adjoints, SweepOptions};
pub use eager::{Eager, Value};
pub use error::{Error, Result};
pub use graph::{
    Branch, Branches, Capacity, CrossEntropyTarget, Graph, Imports, Joined, Mark, NodeId, Operands, Quick, Range,
    Tokens, Unevaluated, View, bytes_needed,
};
pub use ops::{Dual, Op};
pub use optim::Sgd;
pub use oracle::{Batch, LaneFloat, LaneModel, Lanes, Oracle, Overrides, Total};
pub use params::{Gradients, Init, Parameters, Shape, Slice, Tensor};
pub use program::Program;
pub use scalar::{DType, Float, RowMath, Scalar, bf16, f16};
