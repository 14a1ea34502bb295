//! Whether a thread builds constants only: the `with no_grad():` blocks that it is in.
//!
//! Promises: an operation asks one atomic number while no thread is in such a block.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many `with no_grad():` blocks all threads are in: while there is none, building asks no thread.
static NO_GRAD_BLOCKS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// How many of them this thread is in.
    static NO_GRAD: Cell<u32> = const { Cell::new(0) };
}

/// Whether any thread is in a `with no_grad():` block. Relaxed, as a thread only needs to see its own entries.
#[inline]
fn no_grad_somewhere() -> bool {
    NO_GRAD_BLOCKS.load(Ordering::Relaxed) != 0
}

/// Whether this thread is in a `with no_grad():` block.
#[inline(always)]
pub fn wants_no_grad() -> bool {
    no_grad_somewhere() && NO_GRAD.with(Cell::get) > 0
}

/// Begins a block of this thread.
pub fn begin_block() {
    NO_GRAD.with(|blocks| blocks.set(blocks.get() + 1));
    NO_GRAD_BLOCKS.fetch_add(1, Ordering::Relaxed);
}

/// Ends a block of this thread, if it is in one. Whether no thread is in one any more.
pub fn end_block() -> bool {
    let blocks = NO_GRAD.with(Cell::get);
    NO_GRAD.with(|of_thread| of_thread.set(blocks.saturating_sub(1)));
    blocks > 0 && NO_GRAD_BLOCKS.fetch_sub(1, Ordering::Relaxed) == 1
}

/// Steps out of the blocks of this thread; how many they are.
pub fn step_out() -> u32 {
    NO_GRAD.with(|blocks| blocks.replace(0))
}

/// Steps back in. Blocks that were begun meanwhile and never ended end; whether no thread is in one any more.
pub fn step_in(blocks: u32) -> bool {
    let unended = NO_GRAD.with(|of_thread| of_thread.replace(blocks));
    unended > 0 && NO_GRAD_BLOCKS.fetch_sub(unended, Ordering::Relaxed) == unended
}
