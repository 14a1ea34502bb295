//! Sparse Jacobians: the pattern of entries that may differ from 0, and a program that computes these from few directions.
//!
//! Each number of a value has the set of variables on which it depends, and the set of a result is the union of those of
//! operands, instruction by instruction. Columns without a common row share one direction.
//!
//! Promises: a pattern contains every entry that is nonzero for some arguments. Known indices and masks are used; otherwise
//! an element that is indexed is any of its axis. Does not know matrix formats.

mod compressed;
mod flow;
mod nested;
mod pattern;
mod places;
mod sets;

pub use pattern::Pattern;
