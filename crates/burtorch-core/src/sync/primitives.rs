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

/// How often to look again in a tight loop before going to sleep: some 100 microseconds, about what waking up an idle
/// core of a virtual machine takes.
pub(super) const SPINS: u32 = 1 << 12;

/// How often to look after that, leaving the core to others in between: a millisecond or two.
pub(super) const YIELDS: u32 = 1 << 12;

/// Between two looks.
pub(super) fn pause() {
    std::hint::spin_loop();
}

/// Between two looks of one who is in no hurry.
pub(super) fn yield_now() {
    std::thread::yield_now();
}

/// Tells one who looks again and again whether the system has had another thread in its place meanwhile.
#[derive(Debug)]
pub(super) struct Watch(Instant);

impl Watch {
    pub(super) fn new() -> Self {
        Watch(Instant::now())
    }

    /// Whether it is long since this was last asked: far longer than a look takes.
    pub(super) fn was_away(&mut self) -> bool {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.0, now)) > AWAY
    }
}

/// Far more than a look and an interrupt take, less than the turn of a thread that has a core to itself.
const AWAY: Duration = Duration::from_micros(500);

/// How many threads run at the same time.
pub(super) fn n_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Starts a detached thread and waits until it runs; returns `false` if the system refuses it, or is close to its memory limit: a
/// thread without memory for its own variables ends the process, and this cannot be caught. So threads take theirs one by one.
pub(super) fn start(work: impl FnOnce() + Send + 'static) -> bool {
    if !has_room(ROOM) {
        return false;
    }
    let (runs, has_begun) = sync_channel(1);
    let work = move || {
        // The first memory of a thread decides which arena of the C library it has.
        has_room(1);
        if runs.send(()).is_ok() {
            work();
        }
    };
    let is_there = std::thread::Builder::new().name("burtorch".to_string()).spawn(work).is_ok();
    is_there && has_begun.recv().is_ok()
}

/// A stack, and an arena of the C library, which asks for 128 MB. A thread without one takes every allocation from the system, and
/// has nothing to end an allocation with that the system refuses.
const ROOM: usize = 144 << 20;

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
