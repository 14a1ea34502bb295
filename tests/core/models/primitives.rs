//! Loom's counterparts of `sync/primitives.rs`.

pub use loom::cell::UnsafeCell;
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

/// One look before sleeping shows every order that more of them would.
pub const SPINS: u32 = 1;
pub const YIELDS: u32 = 0;

pub fn pause() {
    loom::thread::yield_now();
}

pub fn yield_now() {
    loom::thread::yield_now();
}

std::thread_local! {
    /// What the model says of the machine; a model runs in one thread of the system.
    pub static CORES: std::cell::Cell<usize> = const { std::cell::Cell::new(1) };
}

/// Nobody is away in a model: going to sleep early shows no other orders than going to sleep.
pub struct Watch;

impl Watch {
    pub fn new() -> Self {
        Watch
    }

    pub fn was_away(&mut self) -> bool {
        false
    }
}

pub fn n_cores() -> usize {
    CORES.get()
}

pub fn start(work: impl FnOnce() + Send + 'static) -> bool {
    loom::thread::spawn(work);
    true
}
