//! Worker threads, and the gate through which they get work.
//!
//! One caller at a time opens the gate with a job, takes tasks of it like the workers, closes the gate when none is left, and
//! waits until no worker is inside. A thread that wakes up late finds the gate closed and has missed nothing, so a caller
//! never waits for a thread to wake up. Promises: every task is called once; when `run` returns no thread
//! touches the job; no allocation once the threads exist.
#![allow(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::primitives::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, SPINS, UnsafeCell, Watch, YIELDS,
    n_cores, pause, start, yield_now,
};

/// Threads that share the tasks of a job. They stop when the pool is dropped.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    /// Whether a caller is in `run`. Acquire on entry pairs with Release on exit: calls do not overlap.
    in_use: AtomicBool,
    /// Threads started so far; only the caller in `run` writes it.
    n_workers: AtomicUsize,
    /// The number of cores when threads were last started: the query reads files.
    n_cores: AtomicUsize,
}

/// The gate's bits: the job's number in the upper half, then the number of threads inside, then whether it is open.
const OPEN: u64 = 1;
const ONE_INSIDE: u64 = 2;
const INSIDE: u64 = (1 << 32) - 2;
const NEXT_JOB: u64 = 1 << 32;

const fn job_number(gate: u64) -> u64 {
    gate >> 32
}

#[derive(Debug)]
struct Shared {
    /// See `OPEN`. Opening (Release) pairs with entering (Acquire): a thread that enters sees the job. Leaving
    /// (Release) pairs with the caller's wait (Acquire): the caller sees the results.
    gate: AtomicU64,
    /// Written by the caller while the gate is closed and no thread is inside; read by threads inside.
    job: UnsafeCell<Job>,
    /// The next task to take.
    next: AtomicUsize,
    /// The largest number of threads inside.
    limit: AtomicUsize,
    /// Whether idle threads spin at the gate for a while before they sleep.
    looks: AtomicBool,
    /// The number of spinning threads.
    n_looking: AtomicUsize,
    state: Mutex<GateState>,
    /// Notified when the gate opens, or the pool is dropped.
    opened: Condvar,
    /// Notified when the last thread leaves a closed gate.
    left: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// Threads that wait for `opened`.
    n_asleep: usize,
    /// Whether the caller waits for `left`.
    caller_waits: bool,
    /// Whether threads must stop.
    ends: bool,
    /// The panic of a task.
    panic: Option<Panic>,
}

/// The payload of a panic.
struct Panic(Box<dyn Any + Send>);

impl std::fmt::Debug for Panic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Panic")
    }
}

#[derive(Clone, Copy, Debug)]
struct Job {
    /// Valid from the opening of the gate until no thread is inside.
    task: *const Task,
    n_tasks: usize,
}

type Task = dyn Fn(usize) + Sync + 'static;

// SAFETY: the gate ensures that either threads read the job or only the caller writes it; a task is Sync.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// A pool without threads; `run` starts them on demand.
    pub fn new() -> Self {
        fn nothing(_: usize) {}
        let shared = Shared {
            gate: AtomicU64::new(0),
            job: UnsafeCell::new(Job { task: &(nothing as fn(usize)) as *const fn(usize) as *const Task, n_tasks: 0 }),
            next: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            looks: AtomicBool::new(false),
            n_looking: AtomicUsize::new(0),
            state: Mutex::new(GateState::default()),
            opened: Condvar::new(),
            left: Condvar::new(),
        };
        Pool {
            shared: Arc::new(shared),
            in_use: AtomicBool::new(false),
            n_workers: AtomicUsize::new(0),
            n_cores: AtomicUsize::new(1),
        }
    }

    /// Calls `task` with each number below `n_tasks` on up to `n_threads` threads, the caller included. If another call
    /// is in progress, the caller makes all calls itself.
    pub fn run(&self, n_threads: usize, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let wanted = n_threads.min(n_tasks).saturating_sub(1);
        if wanted == 0 || self.in_use.swap(true, Ordering::Acquire) {
            return (0..n_tasks).for_each(task);
        }
        let _in_use = InUse(&self.in_use);
        let n_workers = self.grow(wanted);
        if n_workers == 0 {
            return (0..n_tasks).for_each(task);
        }
        // SAFETY: only the lifetime changes: `Closing` ensures that no thread is inside when this call returns.
        let task = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync), *const Task>(task) };
        // With more threads than cores, spinning would take time from working threads.
        self.shared.looks.store(wanted < self.n_cores.load(Ordering::Relaxed), Ordering::Relaxed);
        self.shared.open(Job { task, n_tasks }, wanted.min(n_workers));
        let closing = Closing(&self.shared);
        self.shared.take_tasks();
        drop(closing);
        let panic = self.shared.lock().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic.0);
        }
    }

    /// Starts threads until there are `wanted`, or the system refuses. Returns their number.
    fn grow(&self, wanted: usize) -> usize {
        let mut n = self.n_workers.load(Ordering::Relaxed);
        if n < wanted {
            let served = job_number(self.shared.gate.load(Ordering::Relaxed));
            while n < wanted {
                let shared = Arc::clone(&self.shared);
                if !start(move || shared.work(served)) {
                    break;
                }
                n += 1;
                // Stored at once, because starting the next thread may unwind.
                self.n_workers.store(n, Ordering::Relaxed);
            }
            self.n_cores.store(n_cores(), Ordering::Relaxed);
        }
        n
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.opened.notify_all();
    }
}

/// Releases the pool, also in a panic.
struct InUse<'a>(&'a AtomicBool);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Closes the gate and waits until no thread is inside, also if a task panics in the caller.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        // No code panics while it holds the lock, so a poisoned state is still consistent.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Publishes a job and wakes as many threads as needed.
    fn open(&self, job: Job, wanted: usize) {
        // SAFETY: the gate is closed and no thread is inside, so no thread reads the job.
        self.job.with_mut(|place| unsafe { *place = job });
        self.next.store(0, Ordering::Relaxed);
        self.limit.store(wanted, Ordering::Relaxed);
        let closed = self.gate.load(Ordering::Relaxed);
        debug_assert_eq!(closed & (INSIDE | OPEN), 0);
        self.gate.store(closed.wrapping_add(NEXT_JOB) | OPEN, Ordering::Release);
        // A thread checks the gate again under the lock before it sleeps: either it is counted here, or it has seen the
        // job.
        let asleep = self.lock().n_asleep;
        // Waking takes the caller many microseconds, and spinning threads do not need it.
        let looking = self.n_looking.load(Ordering::Relaxed);
        for _ in 0..asleep.min(wanted.saturating_sub(looking)) {
            self.opened.notify_one();
        }
    }

    fn close(&self) {
        let mut gate = self.gate.fetch_and(!OPEN, Ordering::AcqRel);
        let looks = if self.looks.load(Ordering::Relaxed) { SPINS + YIELDS } else { 0 };
        for k in 0..looks {
            if gate & INSIDE == 0 {
                return;
            }
            if k < SPINS {
                pause();
            } else {
                yield_now();
            }
            gate = self.gate.load(Ordering::Acquire);
        }
        let mut state = self.lock();
        while self.gate.load(Ordering::Acquire) & INSIDE != 0 {
            state.caller_waits = true;
            state = self.left.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.caller_waits = false;
    }

    /// The main loop of a thread. `served` is the number of the last job it has seen.
    fn work(&self, mut served: u64) {
        while let Some(job) = self.wait_for_job(served) {
            served = job;
            if self.enter(job) {
                self.take_tasks();
                self.leave();
            }
        }
    }

    /// The number of a job other than `served` with an open gate; `None` when the pool is dropped.
    fn wait_for_job(&self, served: u64) -> Option<u64> {
        if let Some(job) = self.look_for_job(served) {
            return Some(job);
        }
        let mut state = self.lock();
        loop {
            if state.ends {
                return None;
            }
            if let Some(job) = self.open_job(served) {
                return Some(job);
            }
            state.n_asleep += 1;
            state = self.opened.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            state.n_asleep -= 1;
        }
    }

    /// The number of the job with an open gate, if it is not `served`.
    fn open_job(&self, served: u64) -> Option<u64> {
        let gate = self.gate.load(Ordering::Acquire);
        (gate & OPEN != 0 && job_number(gate) != served).then(|| job_number(gate))
    }

    /// Spins for the next job before sleeping, because jobs often follow one another and waking up takes as long as a
    /// small one: first in a tight loop, then yielding the core to other threads, for a millisecond or two. If another
    /// thread wants the core, it sleeps at once: the system then wakes it on a free core, while a runnable thread may
    /// wait for a long time behind the caller on the caller's core.
    fn look_for_job(&self, served: u64) -> Option<u64> {
        if !self.looks.load(Ordering::Relaxed) {
            return None;
        }
        self.n_looking.fetch_add(1, Ordering::Relaxed);
        let mut watch = Watch::new();
        let mut found = None;
        for k in 0..SPINS + YIELDS {
            found = self.open_job(served);
            if found.is_some() || (k >= SPINS || k % 64 == 63) && watch.was_away() {
                break;
            }
            if k < SPINS {
                pause();
            } else {
                yield_now();
            }
        }
        self.n_looking.fetch_sub(1, Ordering::Relaxed);
        found
    }

    /// Enters, if the gate is still open for this job and there is room.
    fn enter(&self, job: u64) -> bool {
        let mut gate = self.gate.load(Ordering::Acquire);
        loop {
            let n_inside = (gate & INSIDE) / ONE_INSIDE;
            if gate & OPEN == 0 || job_number(gate) != job || n_inside >= self.limit.load(Ordering::Relaxed) as u64 {
                return false;
            }
            match self.gate.compare_exchange_weak(gate, gate + ONE_INSIDE, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => gate = other,
            }
        }
    }

    fn leave(&self) {
        let before = self.gate.fetch_sub(ONE_INSIDE, Ordering::Release);
        if before & OPEN == 0 && before & INSIDE == ONE_INSIDE {
            let waits = self.lock().caller_waits;
            if waits {
                self.left.notify_one();
            }
        }
    }

    /// Takes tasks until none is left. Called by threads inside, or by the caller.
    fn take_tasks(&self) {
        // SAFETY: while a thread is inside, or the caller in `run`, the job is not written.
        let job = self.job.with(|job| unsafe { *job });
        loop {
            // Relaxed: only that each number is taken once matters.
            let k = self.next.fetch_add(1, Ordering::Relaxed);
            if k >= job.n_tasks {
                return;
            }
            // SAFETY: the caller of `run` keeps the task alive until no thread is inside.
            let task = unsafe { &*job.task };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task(k))) {
                // Prevents further tasks from starting.
                self.next.store(job.n_tasks, Ordering::Relaxed);
                self.lock().panic.get_or_insert(Panic(panic));
                return;
            }
        }
    }
}
