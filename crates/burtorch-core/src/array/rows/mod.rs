//! Programs for each of many rows, with totals over the rows: an instruction that runs in blocks.
//!
//! Promises: a total is the sum of blocks in order, each of which is summed in its own order that depends on shapes only; the
//! derivative of a total is one, so there is never an array with a gradient for each row. Does not know how blocks run.

mod sums;
mod total;
mod types;

mod blocks;
mod derivatives;
mod together;

pub(super) use sums::are_sums;
pub(super) use together::rows_together;
