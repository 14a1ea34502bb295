//! The primitives of the other files here. The models replace this file by loom's counterparts.
#![allow(unsafe_code)]

use std::cell;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use crate::memory::has_room;

pub(super) use std::sync::Arc;
pub(super) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(burtorch_tsan))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(burtorch_tsan)]
pub(crate) use super::seen::{Condvar, Mutex, MutexGuard};

/// Spins in a tight loop before yielding: some 100 microseconds, about the time to wake an idle core of a virtual
/// machine.
pub(super) const SPINS: u32 = 1 << 12;

/// Further spins, yielding the core in between: a millisecond or two.
pub(super) const YIELDS: u32 = 1 << 12;

/// Between two spins.
pub(super) fn pause() {
    std::hint::spin_loop();
}

/// Yields the core between two spins.
pub(super) fn yield_now() {
    std::thread::yield_now();
}

/// Detects whether the system has run another thread in place of a spinning one.
#[derive(Debug)]
pub(super) struct Watch(Instant);

impl Watch {
    pub(super) fn new() -> Self {
        Watch(Instant::now())
    }

    /// Whether the last call was long ago: far longer than one spin takes.
    pub(super) fn was_away(&mut self) -> bool {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.0, now)) > AWAY
    }
}

/// Far more than a spin and an interrupt take, less than the time slice of a thread.
const AWAY: Duration = Duration::from_micros(500);

/// The number of threads that run at the same time.
pub(super) fn n_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Starts a detached thread and waits until it runs; returns `false` if the system refuses it, or is close to its
/// memory limit: a thread without memory for its thread-local variables ends the process, which cannot be caught. So
/// threads allocate theirs one after another.
pub(super) fn start(work: impl FnOnce() + Send + 'static) -> bool {
    if !has_room(ROOM) {
        return false;
    }
    let (runs, has_begun) = sync_channel(1);
    let work = move || {
        // The first allocation of a thread assigns its arena of the C library.
        has_room(1);
        if runs.send(()).is_ok() {
            work();
        }
    };
    let is_there = std::thread::Builder::new().name("burtorch".to_string()).spawn(work).is_ok();
    is_there && has_begun.recv().is_ok()
}

/// A stack, and an arena of the C library, which requests 128 MB. A thread without an arena takes every allocation from
/// the system, and a refused allocation cannot be reported.
const ROOM: usize = 144 << 20;

/// A cell whose owner announces each access, so that a model checker sees it.
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
