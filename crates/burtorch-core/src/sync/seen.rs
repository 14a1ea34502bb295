//! A lock and a condition visible to ThreadSanitizer: those of the standard library sleep in code that was compiled without
//! it, so it reports their synchronisation as races. Compiled with `--cfg burtorch_tsan` only.
//!
//! Promises: mutual exclusion, and writes under the lock are visible under it. Waits by polling: slow, but
//! correct.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::yield_now;

/// Like `std::sync::LockResult`, for locks that are never poisoned.
type Locked<T> = Result<T, Never<T>>;

/// An error that does not exist.
#[derive(Debug)]
pub(crate) struct Never<T>(Infallible, std::marker::PhantomData<T>);

impl<T> Never<T> {
    /// Never called.
    pub(crate) fn into_inner(self) -> T {
        match self.0 {}
    }
}

/// Like `std::sync::Mutex`.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    /// Acquire on entry pairs with Release on exit.
    is_held: AtomicBool,
    content: UnsafeCell<T>,
}

// SAFETY: the content is accessed through the guard only, of which there is one at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub(crate) const fn new(content: T) -> Self {
        Mutex { is_held: AtomicBool::new(false), content: UnsafeCell::new(content) }
    }

    pub(crate) fn lock(&self) -> Locked<MutexGuard<'_, T>> {
        while self.is_held.swap(true, Ordering::Acquire) {
            yield_now();
        }
        Ok(MutexGuard(self))
    }

    pub(crate) fn into_inner(self) -> Locked<T> {
        Ok(self.content.into_inner())
    }

    pub(crate) fn get_mut(&mut self) -> Locked<&mut T> {
        Ok(self.content.get_mut())
    }
}

/// Like `std::sync::MutexGuard`.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T>(&'a Mutex<T>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.0.content.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.content.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.0.is_held.store(false, Ordering::Release);
    }
}

/// Like `std::sync::Condvar`, whose waits may end spuriously: these always do.
#[derive(Debug, Default)]
pub(crate) struct Condvar;

impl Condvar {
    pub(crate) const fn new() -> Self {
        Condvar
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> Locked<MutexGuard<'a, T>> {
        let mutex = guard.0;
        drop(guard);
        yield_now();
        mutex.lock()
    }

    pub(crate) fn notify_one(&self) {}

    pub(crate) fn notify_all(&self) {}
}
