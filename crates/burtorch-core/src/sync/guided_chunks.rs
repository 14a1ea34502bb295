//! A range of equal tasks that several threads divide among themselves while they work.
//!
//! Promises: each task is in one portion; portions are taken in order, large ones first and small ones at the end, so that all
//! threads finish at about the same time. After a stop no thread gets another. Which thread gets which is unspecified.

use std::ops::Range;

use super::primitives::{AtomicUsize, Ordering};

/// Marks an end before the last chunk was taken.
const STOPPED: usize = usize::MAX;

/// The remaining numbers below `n`.
#[derive(Debug)]
pub struct GuidedChunks {
    /// The first number not taken, or `STOPPED`. Relaxed: only that each is taken once matters; joining the threads
    /// publishes their results.
    next: AtomicUsize,
    n: usize,
    n_threads: usize,
    /// Chunks are multiples of this, except the last.
    least: usize,
    most: usize,
}

impl GuidedChunks {
    /// The numbers below `n`, for this many threads, in chunks of at least `least` and at most `most`.
    pub fn new(n: usize, n_threads: usize, least: usize, most: usize) -> Self {
        GuidedChunks { next: AtomicUsize::new(0), n, n_threads: n_threads.max(1), least: least.max(1), most }
    }

    /// The next chunk; `None` when all are taken.
    pub fn take(&self) -> Option<Range<usize>> {
        let mut first = self.next.load(Ordering::Relaxed);
        while first < self.n {
            let end = first + self.size(self.n - first);
            match self.next.compare_exchange_weak(first, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(first..end),
                Err(other) => first = other,
            }
        }
        None
    }

    /// A quarter of a thread's share of the rest.
    fn size(&self, left: usize) -> usize {
        let share = left / (4 * self.n_threads) / self.least * self.least;
        share.min(self.most).max(self.least).min(left)
    }

    /// Ends the division: no thread gets another chunk.
    pub fn stop(&self) {
        // A modification like those of `take`: once stopped, it stays so.
        self.next.swap(STOPPED, Ordering::Relaxed);
    }

    /// Whether all are taken, or the division was stopped.
    pub fn is_over(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.n
    }

    /// Whether the division was stopped.
    pub fn is_stopped(&self) -> bool {
        self.next.load(Ordering::Relaxed) == STOPPED
    }
}
