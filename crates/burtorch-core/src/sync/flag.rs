//! A flag that one holder at a time can raise: exclusive use without waiting.

use super::primitives::{AtomicBool, Ordering};

/// Whether something is in use. Whoever raises the flag has it until the guard goes; nobody waits.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

/// The flag is up; it goes down with this guard, also in a panic.
#[derive(Debug)]
pub struct Raised<'a>(&'a Flag);

impl Flag {
    /// A flag that is down.
    pub fn new() -> Self {
        Flag(AtomicBool::new(false))
    }

    /// Raises the flag; `None` if it is up already.
    #[inline]
    pub fn raise(&self) -> Option<Raised<'_>> {
        // Acquire: pairs with Release in `drop`, so that the holder sees what the one before wrote.
        if self.0.swap(true, Ordering::Acquire) { None } else { Some(Raised(self)) }
    }

    /// Whether the flag is up at this moment, for messages.
    pub fn is_up(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Raised<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with Acquire in `raise`.
        self.0.0.store(false, Ordering::Release);
    }
}
