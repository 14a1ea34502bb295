//! What the other files here are made of. The models replace this file by loom's counterparts.
#![allow(unsafe_code)]

use std::cell;

pub(super) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// How often to look again before going to sleep: some 100 microseconds, about what waking up an idle core of a virtual
/// machine takes.
pub(super) const SPINS: u32 = 1 << 12;

/// Between two looks.
pub(super) fn pause() {
    std::hint::spin_loop();
}

/// How many threads run at the same time.
pub(super) fn n_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Starts a thread that nobody waits for; `false` if the system refuses.
pub(super) fn start(work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name("burtorch".to_string()).spawn(work).is_ok()
}

/// A cell whose owner says when it is accessed, so that a model can see it.
#[derive(Debug)]
pub(super) struct UnsafeCell<T>(cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) const fn new(content: T) -> Self {
        UnsafeCell(cell::UnsafeCell::new(content))
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
