//! How exact every op is: against the table of 200-bit results, and against f128 at special and at random points.
//!
//! What is measured here against the bounds of the op table is what docs/ops.md prints.
#![feature(f128)]

#[path = "accuracy/document.rs"]
mod document;
#[path = "accuracy/halves.rs"]
mod halves;
#[path = "accuracy/points.rs"]
mod points;
#[path = "accuracy/reductions.rs"]
mod reductions;
#[path = "accuracy/sweep.rs"]
mod sweep;
#[path = "accuracy/table.rs"]
mod table;
#[path = "accuracy/ulp.rs"]
mod ulp;
