//! Programs: traced functions of numbers, replayed at other inputs without running the recorded code.
//!
//! A [`Program`] is the result of a trace: inputs, constants, ops in the order they were built, outputs, and the guards
//! under which it is valid. [`Replay`] runs it forwards, backwards and along a direction; [`batch`] runs it over rows in
//! lanes; [`mod@derive`] assembles Jacobians and Hessians; [`passes`] rewrites it.
//!
//! Promises: a replay gives the bits of the recorded eager graph, values and gradients; a failed guard stops it before it
//! returns a result. Does not know where programs come from, or Python.

mod build;
mod instr;
mod node;
pub mod primitive;
mod record;
mod slots;
mod steps;

mod call_steps;
mod nary;

mod reuse;

mod instructions;

mod bundle;

mod carrier;
mod guards;
mod replay;

mod array_file;
mod array_numbers;
pub mod batch;
pub mod derive;
mod entries;
mod file;
pub mod inline;
pub mod passes;
pub mod sparse;
pub mod sparsity;
mod text;

pub use build::{Build, Seeds};
pub use carrier::Carrier;
pub use node::{Comparison, Guard, Node, Operand, Parts, Program};
pub use record::Recording;
pub use replay::Replay;
