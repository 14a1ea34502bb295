//! A flag for one exclusive holder or several shared ones, without waiting.

use super::primitives::{AtomicUsize, Ordering};

/// Whether something is in use, exclusively or shared. A holder keeps the flag until its guard is dropped; no call
/// waits.
#[derive(Debug, Default)]
pub struct Flag(AtomicUsize);

/// An exclusive holder; otherwise the number counts shared holders.
const ALONE: usize = usize::MAX;

/// The flag is up for one holder; it goes down with this guard, also in a panic.
#[derive(Debug)]
pub struct Raised<'a>(&'a Flag);

/// The flag is up for one of several holders.
#[derive(Debug)]
pub struct Shared<'a>(&'a Flag);

impl Flag {
    /// A flag that is down.
    pub fn new() -> Self {
        Flag(AtomicUsize::new(0))
    }

    /// Takes the flag exclusively; `None` if it is taken.
    #[inline]
    pub fn raise(&self) -> Option<Raised<'_>> {
        // Acquire pairs with Release when guards are dropped, so that earlier holders' accesses happen before this
        // one's.
        self.0.compare_exchange(0, ALONE, Ordering::Acquire, Ordering::Relaxed).is_ok().then(|| Raised(self))
    }

    /// Takes the flag shared with others; `None` if it is taken exclusively.
    #[inline]
    pub fn share(&self) -> Option<Shared<'_>> {
        let mut n = self.0.load(Ordering::Relaxed);
        while n < ALONE - 1 {
            match self.0.compare_exchange_weak(n, n + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Shared(self)),
                Err(other) => n = other,
            }
        }
        None
    }

    /// Whether the flag is up at this moment, for messages.
    pub fn is_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

impl Drop for Raised<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with Acquire in `raise` and `share`.
        self.0.0.store(0, Ordering::Release);
    }
}

impl Drop for Shared<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with Acquire in `raise`.
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}
