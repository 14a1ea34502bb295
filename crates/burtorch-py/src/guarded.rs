//! A cell that the interpreter's lock and a flag guard together: exclusive access for one call at a time.
//!
//! Promises: a second access while one is under way, from another thread or from inside a callback, is a `BusyError`,
//! never a data race or a second reference.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
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

    /// Exclusive access until the guard goes.
    pub fn enter(&self, py: Python<'_>) -> PyResult<Entered<'_, T>> {
        if self.in_use.swap(true, Ordering::Acquire) {
            return Err(busy(py, self.what));
        }
        Ok(Entered { _in_use: InUse(&self.in_use), content: &self.content })
    }

    /// Runs `f` with exclusive access.
    #[inline]
    pub fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        let mut entered = self.enter(py)?;
        Ok(f(&mut entered))
    }
}

/// Exclusive access to what a [`Guarded`] holds.
pub struct Entered<'a, T> {
    _in_use: InUse<'a>,
    content: &'a UnsafeCell<T>,
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the flag was down when this was made and is up while it lives, so nobody else reaches the content.
        unsafe { &*self.content.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.content.get() }
    }
}
