//! Loops, choices, and opaque programs: instructions that contain programs.
//!
//! Type rules, builder methods, and the rules of derivatives and batches. Promises: a rolled loop has the values and the first
//! derivatives of the unrolled one bit for bit, as long as each step returns every carry as a separate value, starts
//! from different values, and reads a capture either as a whole or by one view. Does not know how loops run.

mod types;

mod body;
mod build;
mod checkpoint;
mod counters;
mod hoist;

mod at_once;
mod batch;
mod forward;
mod reverse;
mod unread;

mod apart;
mod rules;

pub(super) use at_once::with_steps_at_once;
pub use build::{Checkpoint, ScanOptions};
pub(super) use checkpoint::with_history;
pub(super) use forward::moved;
pub(super) use hoist::hoisted;
pub(super) use types::infer_cond;
pub(super) use unread::without_unread;
