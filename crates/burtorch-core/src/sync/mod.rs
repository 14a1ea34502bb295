//! All atomics of the crate except the instruction level: identities, flags, and the threads of [`run`].
//!
//! Promises: the code here is model-checked (`tests/core/models.rs` compiles these files against loom); a child of
//! `fork` starts its own threads and never waits for those of its parent.

mod flag;
mod guided_chunks;
mod ordered_reduction;
mod per_process;
mod pool;
mod primitives;
#[cfg(burtorch_tsan)]
mod seen;
pub(crate) mod stop;
mod try_arc;
mod turn_hint;

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

pub use flag::{Flag, Raised, Shared};
pub use guided_chunks::GuidedChunks;
pub use ordered_reduction::{EarlyResults, OrderedReduction, Turn};
pub use pool::Pool;
pub use stop::Stop;
pub use turn_hint::TurnHint;

pub(crate) use primitives::{Mutex, MutexGuard};
pub(crate) use try_arc::TryArc;

use per_process::PerProcess;

/// The next identity to give out. Relaxed: only uniqueness matters, nothing else is published through it.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// An identity that no other graph or set of parameters of this process has.
pub(crate) fn unique_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// How many threads can run at the same time, as far as the system tells.
pub fn n_cores() -> usize {
    /// The number of cores, or 0 before the first query, which reads files. Relaxed: nothing else is published through
    /// it.
    static ANSWER: AtomicUsize = AtomicUsize::new(0);
    match ANSWER.load(Ordering::Relaxed) {
        0 => {
            let n = primitives::n_cores();
            ANSWER.store(n, Ordering::Relaxed);
            n
        }
        n => n,
    }
}

/// The threads of this process.
static POOL: PerProcess<Pool> = PerProcess::new(AtomicPtr::new(std::ptr::null_mut()));

thread_local! {
    /// The thread whose call of [`run`] this thread works for.
    static CALLER: Cell<Option<ThreadId>> = const { Cell::new(None) };
}

/// The thread whose work this is: that which called [`run`], in its tasks on other threads; otherwise this one.
pub fn caller() -> ThreadId {
    CALLER.get().unwrap_or_else(|| thread::current().id())
}

/// Restores the previous caller, also in a panic.
struct Back(Option<ThreadId>);

impl Drop for Back {
    fn drop(&mut self) {
        CALLER.set(self.0);
    }
}

/// Calls `task` with each number below `n_tasks`, on up to `n_threads` threads including the caller; returns when all
/// calls have returned. The assignment of calls to threads is unspecified.
///
/// The threads are started when first needed and stay for later calls. For a millisecond or two they spin for the next
/// call, which costs the caller nothing; later it has to wake them, which takes tens of microseconds. While another
/// thread is in this function, or if no thread can be started, the caller makes all calls itself. A panic of a task is
/// propagated once all threads have stopped. Allocates nothing once the threads exist.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// let sum = AtomicUsize::new(0);
/// burtorch_core::sync::run(2, 10, &|k| {
///     sum.fetch_add(k, Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 45);
/// ```
pub fn run(n_threads: usize, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    if n_threads <= 1 || n_tasks <= 1 {
        (0..n_tasks).for_each(task);
    } else {
        let caller = caller();
        let task = |k: usize| {
            let _before = Back(CALLER.replace(Some(caller)));
            task(k);
        };
        stop::shared(&task, |task| POOL.get(std::process::id(), Pool::new).run(n_threads, n_tasks, task));
    }
}
