//! Arrays of a graph: operations evaluated at once, and a reverse pass over their nodes.
//!
//! An operation is a small program of one call of the builder, so it has the instructions, kernels and adjoint rules
//! of a traced function. A program is compiled once (`kernel`) and cached by its structure, with separate forward and reverse
//! passes (`split`); an array is a result of a node (`node`), which stores the operands of its reverse pass; a `tape` takes nodes
//! from the last to the first (`walk`). Promises: sums of adjoints have the order and the association of the reverse pass of the
//! whole program, so gradients have its bits; unreferenced nodes are freed at once, without recursion.

mod kernel;
mod node;
mod split;
mod tape;
mod walk;

pub use node::{Handle, Keep};
pub use tape::{Given, OfParameters, Swept, Tape};
