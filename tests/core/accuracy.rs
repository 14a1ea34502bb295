//! How exact every op is: against the table of 200-bit results, and against f128 at special and at random points.
//!
//! What is measured here against the bounds of the op table is what docs/ops.md prints.

mod document;
mod halves;
mod points;
mod quadruple;
mod reductions;
mod sweep;
mod table;
mod ulp;
