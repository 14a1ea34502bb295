//! A hint for turns: for threads that are about to take a lock whose waiters sleep.
//!
//! Promises: no thread waits long, and correctness does not depend on the hint. If each thread takes the hint before the lock
//! and passes it on after the lock, the lock is free when a thread takes it, and none of them sleeps.

use super::primitives::{AtomicBool, Ordering, SPINS, pause};

/// Held by one thread at a time, of those that care.
#[derive(Debug, Default)]
pub struct TurnHint {
    is_held: AtomicBool,
}

impl TurnHint {
    /// A free hint.
    pub fn new() -> Self {
        TurnHint { is_held: AtomicBool::new(false) }
    }

    /// Takes it, or gives up after some 100 microseconds. Returns whether it was taken.
    pub fn take(&self) -> bool {
        (0..SPINS).any(|_| {
            // Acquire pairs with Release: the previous holder's writes are visible.
            let is_free = !self.is_held.load(Ordering::Relaxed);
            let take = || self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            let is_mine = is_free && take().is_ok();
            if !is_mine {
                pause();
            }
            is_mine
        })
    }

    /// Releases it; only for its holder.
    pub fn give(&self) {
        self.is_held.store(false, Ordering::Release);
    }
}
