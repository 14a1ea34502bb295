//! Arrays of a graph: operations evaluated at once, and a reverse pass over what was done.
//!
//! In words: an operation is a small program of one call of the builder, so it has the instructions, kernels and adjoint rules
//! of a traced function. A program is made ready once (`kernel`) and kept by what it is, its forward and its reverse pass
//! apart (`split`); an array is a result of a node (`node`), which holds what its reverse pass reads; a `tape` walks nodes
//! from the last to the first (`walk`). Promises: sums of adjoints have the order and the association of the reverse pass of the
//! whole program, so gradients have its bits; nodes that nothing holds go at once, without recursion.

mod kernel;
mod node;
mod split;
mod tape;
mod walk;

pub use node::{Handle, Keep};
pub use tape::{Given, OfParameters, Swept, Tape};
