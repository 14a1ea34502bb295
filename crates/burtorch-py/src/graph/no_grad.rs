//! Whether a thread builds only constants: its `with no_grad():` blocks.
//!
//! Promises: an operation reads one atomic number while no thread is in such a block.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of active `with no_grad():` blocks of all threads: at 0, building checks no thread.
static NO_GRAD_BLOCKS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The number of active blocks of this thread.
    static NO_GRAD: Cell<u32> = const { Cell::new(0) };
}

/// Whether any thread is in a `with no_grad():` block. Relaxed, because a thread must only see its own entries.
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

/// Ends a block of this thread, if there is one. Returns whether no thread is in a block any more.
pub fn end_block() -> bool {
    let blocks = NO_GRAD.with(Cell::get);
    NO_GRAD.with(|of_thread| of_thread.set(blocks.saturating_sub(1)));
    blocks > 0 && NO_GRAD_BLOCKS.fetch_sub(1, Ordering::Relaxed) == 1
}

/// Leaves the blocks of this thread temporarily; returns their number.
pub fn step_out() -> u32 {
    NO_GRAD.with(|blocks| blocks.replace(0))
}

/// Re-enters them. Blocks begun meanwhile and never ended end; returns whether no thread is in a block any more.
pub fn step_in(blocks: u32) -> bool {
    let unended = NO_GRAD.with(|of_thread| of_thread.replace(blocks));
    unended > 0 && NO_GRAD_BLOCKS.fetch_sub(unended, Ordering::Relaxed) == unended
}
