//! The outputs of a dense layer, divided among threads.
//!
//! Promises: every output is computed by one call, as on one thread, so the bits do not depend on the number of threads. No heap
//! allocation. Does not know what is computed.

use std::ops::Range;

use super::product::WORTH_A_THREAD;
use crate::sync::{self, Mutex};

/// Threads that share a layer, at most.
const MOST: usize = 32;
/// Outputs of which parts are multiples: two rows of tiles.
const CUT: usize = 12;

/// Some outputs of a layer, and their numbers.
pub(super) struct Part<'a, E> {
    /// Which outputs.
    pub outputs: Range<usize>,
    /// Their rows of a matrix with one row for each output.
    pub rows: &'a mut [E],
    /// Their biases, or the gradients of these.
    pub bias: Option<&'a mut [E]>,
    /// Working memory of this call.
    pub memory: &'a mut [E],
}

/// Calls `compute` for all of `n_out` outputs on up to `n_threads` threads. `work` counts multiply-adds of all outputs; each
/// thread takes `room` numbers of `memory`.
pub(super) fn by_outputs<E: Send>(
    (n_threads, work): (usize, usize),
    n_out: usize,
    rows: &mut [E],
    bias: Option<&mut [E]>,
    (memory, room): (&mut [E], usize),
    compute: &(dyn Fn(Part<'_, E>) + Sync),
) {
    let n_rooms = memory.len().checked_div(room).unwrap_or(MOST);
    let n_parts = n_threads.min(work / WORTH_A_THREAD).min(n_out.div_ceil(CUT)).min(n_rooms).min(MOST);
    if n_parts <= 1 {
        return compute(Part { outputs: 0..n_out, rows, bias, memory });
    }
    let (step, width) = (n_out.div_ceil(n_parts).next_multiple_of(CUT), rows.len() / n_out);
    let mut rows = rows.chunks_mut(step * width);
    let mut bias = bias.map(|bias| bias.chunks_mut(step));
    let mut memory = memory.chunks_mut(room.max(1));
    let parts: [Mutex<Option<Part<'_, E>>>; MOST] = std::array::from_fn(|k| {
        Mutex::new(rows.next().map(|rows| Part {
            outputs: k * step..k * step + rows.len() / width,
            rows,
            bias: bias.as_mut().and_then(Iterator::next),
            memory: memory.next().unwrap_or_default(),
        }))
    });
    sync::run(n_parts, n_out.div_ceil(step), &|k| {
        if let Some(part) = parts[k].lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take() {
            compute(part);
        }
    });
}
