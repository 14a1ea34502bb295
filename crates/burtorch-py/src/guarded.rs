//! A cell that the interpreter's lock and a flag guard together: exclusive access for one call at a time.
//!
//! Promises: a second access while one is under way, from another thread or from inside a callback, is a `BusyError`,
//! never a data race or a second reference.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use crate::errors::busy;

/// What a Python object holds and calls may change.
pub struct Guarded<T> {
    /// True while somebody has access. Acquire on entry pairs with Release on exit, so that a thread that enters sees
    /// what the last one wrote, also without an interpreter lock.
    in_use: AtomicBool,
    content: UnsafeCell<T>,
    /// The noun for messages.
    what: &'static str,
}

// SAFETY: `in_use` lets one thread at a time reach the content.
unsafe impl<T: Send> Sync for Guarded<T> {}

/// Gives the flag back, also when the closure panics.
struct InUse<'a>(&'a AtomicBool);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T> Guarded<T> {
    /// Guards `content`; `what` is its plural noun for messages: "these parameters".
    pub fn new(content: T, what: &'static str) -> Self {
        Guarded { in_use: AtomicBool::new(false), content: UnsafeCell::new(content), what }
    }

    /// Runs `f` with exclusive access.
    #[inline]
    pub fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        if self.in_use.swap(true, Ordering::Acquire) {
            return Err(busy(py, self.what));
        }
        let _in_use = InUse(&self.in_use);
        // SAFETY: the flag was down and is up now, so nobody else has a reference to the content.
        Ok(f(unsafe { &mut *self.content.get() }))
    }
}
