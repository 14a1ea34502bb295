//! One instance of something per process: a child of `fork` creates its own.
//!
//! A forked child has the memory of its parent and none of its threads: code that waits for a thread, or for a lock that one
//! held, would wait for ever. So the child never uses the parent's instance.
#![allow(unsafe_code)]

use super::primitives::{AtomicPtr, Ordering};

#[derive(Debug)]
pub(super) struct PerProcess<T> {
    /// The content created first by this process; never freed.
    made: AtomicPtr<Made<T>>,
}

#[derive(Debug)]
pub(super) struct Made<T> {
    process: u32,
    content: T,
}

impl<T: Sync> PerProcess<T> {
    pub(super) const fn new(nothing: AtomicPtr<Made<T>>) -> Self {
        PerProcess { made: nothing }
    }

    /// The content of `process`, created on first use. Lock-free: if two threads create it at the same time, the later
    /// one drops its own.
    pub(super) fn get(&self, process: u32, make: impl FnOnce() -> T) -> &T {
        // Acquire pairs with Release below, so that the content is visible.
        let found = self.made.load(Ordering::Acquire);
        // SAFETY: stored content is never freed.
        if let Some(made) = unsafe { found.as_ref() }
            && made.process == process
        {
            return &made.content;
        }
        let new = Box::into_raw(Box::new(Made { process, content: make() }));
        match self.made.compare_exchange(found, new, Ordering::Release, Ordering::Acquire) {
            // SAFETY: just stored, so never freed.
            Ok(_) => unsafe { &(*new).content },
            Err(other) => {
                // SAFETY: `new` was not stored, so no other thread has it; `other` was stored by a thread of this
                // process.
                unsafe {
                    drop(Box::from_raw(new));
                    &(*other).content
                }
            }
        }
    }
}
