//! Programs for each of many rows, with totals over the rows: an instruction that runs in blocks.
//!
//! Promises: a total is the sum of blocks in order, each of which is summed in an order of its own that depends on shapes only; the
//! derivative of a total is one, so no array of a gradient for each row arises. Knows nothing of how blocks run.

mod total;
mod types;

mod derivatives;
mod together;

pub(super) use together::rows_together;
