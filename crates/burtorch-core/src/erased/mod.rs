//! Graphs, parameters and numbers of any scalar type behind one interface, for callers that learn the type at run time.
//!
//! Promises: the same nodes, numbers and errors as the generic interface; each scalar type is compiled here once, so that a
//! crate that uses this one compiles none of them again. A call costs an indirect jump. Numbers cross the interface as
//! [`AnyNumber`] or as slices of `f64`, which hold every number of a type but float128 exactly.

mod blocks;
mod graph;
mod make;
mod number;
mod params;

pub use blocks::ErasedBlocks;
pub use graph::{ErasedGraph, Found, Seed};
pub use make::{Room, bytes_for, load_graph, make_graph, scalar_type_of};
pub use number::{AnyNumber, AnyNumbers, ScalarType};
pub use params::{AnyNumbersMut, AnyParameters, Erasable, GradientTarget};
