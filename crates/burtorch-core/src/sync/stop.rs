//! Early end of work from another thread, or at a deadline.
//!
//! Promises: once a token is set, work that watches it ends before its next block op or sample, and within a kernel after some
//! tens of microseconds. A thread that has seen it set keeps that state even if the token is cleared: an incomplete result of a
//! kernel never passes for a complete one. If no token is watched, a check reads one flag of the thread.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// A token that any thread sets, to end the work that watches it; with a deadline if it has one.
///
/// ```
/// use burtorch_core::sync::Stop;
/// use std::time::Duration;
/// let stop = Stop::new();
/// let late = stop.after(Duration::from_secs(3600));
/// std::thread::spawn(move || stop.set()).join().unwrap();
/// assert!(late.is_set());
/// assert!(Stop::new().after(Duration::ZERO).is_set());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Stop {
    /// A token that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same token, which counts as set after this time too. No deadline if it exceeds the range of the clock.
    pub fn after(&self, time: Duration) -> Self {
        let new = Instant::now().checked_add(time);
        let deadline = self.deadline.into_iter().chain(new).min();
        Stop { flag: Arc::clone(&self.flag), deadline }
    }

    /// Sets the token.
    pub fn set(&self) {
        // Relaxed, here and below: nothing else is published through it.
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Takes it back, for the next use.
    pub fn clear(&self) {
        self.flag.store(false, Ordering::Relaxed);
    }

    /// Runs work that ends early once the token is set: backward passes and kernels end with [`Error::Interrupted`],
    /// and [`Stop::ends_work`] returns true to other checks on this thread. This also returns that error, whatever the
    /// work returns.
    ///
    /// ```
    /// use burtorch_core::interrupt;
    /// use burtorch_core::sync::Stop;
    /// use burtorch_core::{Error, Graph, Op};
    /// let stop = Stop::new();
    /// let mut graph = Graph::<f64>::new();
    /// let x = graph.vector(&vec![0.5; 1 << 20]).unwrap();
    /// stop.set();
    /// let tanh = stop.watched(|| graph.map(Op::Tanh, x));
    /// assert_eq!(tanh, Err(Error::Interrupted));
    /// assert!(!Stop::ends_work());
    /// ```
    pub fn watched<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let watch = Watch { stop: self.clone(), ends_sweeps: true, ends_all: true, leaves: false };
        let (done, has_ended) = watching(Some(&watch), || (work(), has_ended()));
        if has_ended { Err(Error::Interrupted) } else { Ok(done) }
    }

    /// Whether the token is set that [`Stop::watched`] was called with on this thread.
    pub fn ends_work() -> bool {
        STATE.get() != State::Nobody && asked(|watch| watch.ends_all)
    }

    /// Whether it is set, or the deadline has passed.
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed) || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// The token that work on this thread checks, and the work that it ends.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) stop: Stop,
    /// Whether a backward pass in progress ends too.
    pub(crate) ends_sweeps: bool,
    /// Whether all interruptible work ends, or only oracles, which keep partial results.
    pub(crate) ends_all: bool,
    /// Whether what an oracle has written stays as it is when it ends.
    pub(crate) leaves: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No check.
    Nobody,
    Watched,
    /// The work was told to end.
    Over,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Nobody) };
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
    /// The check made by kernels.
    static QUESTION: Cell<fn() -> bool> = const { Cell::new(is_over) };
}

/// Runs work whose kernels call `question`, which checks tokens too.
pub(crate) fn kernels_asking<T>(question: fn() -> bool, work: impl FnOnce() -> T) -> T {
    struct Back(fn() -> bool);
    impl Drop for Back {
        fn drop(&mut self) {
            QUESTION.set(self.0);
        }
    }
    let _before = Back(QUESTION.replace(question));
    work()
}

/// Restores the previous state, also in a panic.
struct Back(State, Option<Watch>);

impl Drop for Back {
    fn drop(&mut self) {
        STATE.set(self.0);
        WATCH.with(|now| now.replace(self.1.take()));
    }
}

fn exchange(state: State, watch: Option<Watch>) -> Back {
    Back(STATE.replace(state), WATCH.with(|now| now.replace(watch)))
}

/// Runs work that checks a token, if there is one.
pub(crate) fn watching<T>(watch: Option<&Watch>, work: impl FnOnce() -> T) -> T {
    let Some(watch) = watch else {
        return work();
    };
    let _before = exchange(State::Watched, Some(watch.clone()));
    work()
}

/// Runs a backward pass, which is completed if the watch does not end backward passes.
pub(crate) fn sweeping<T>(watch: Option<&Watch>, sweep: impl FnOnce() -> T) -> T {
    if watch.is_none_or(|watch| watch.ends_sweeps) {
        return sweep();
    }
    let _before = exchange(State::Nobody, None);
    sweep()
}

/// Gives a task to several threads, each with the checks of this one.
pub(super) fn shared(task: &(dyn Fn(usize) + Sync), run: impl FnOnce(&(dyn Fn(usize) + Sync))) {
    if STATE.get() == State::Nobody {
        return run(task);
    }
    let (watch, ends) = (WATCH.with_borrow(Clone::clone), AtomicBool::new(has_ended()));
    run(&|k| {
        watching(watch.as_ref(), || {
            task(k);
            if has_ended() {
                ends.store(true, Ordering::Relaxed);
            }
        });
    });
    // Ended threads were joined, so this load comes after their stores.
    if ends.into_inner() {
        STATE.set(State::Over);
    }
}

/// Whether the token checked on this thread is set.
#[inline]
pub(crate) fn is_over() -> bool {
    STATE.get() != State::Nobody && asked(|_| true)
}

/// Whether the work was told to end: later results may be incomplete.
#[inline]
pub(crate) fn has_ended() -> bool {
    STATE.get() == State::Over
}

/// An error if the work was told to end.
#[inline]
pub(crate) fn check() -> Result<()> {
    if has_ended() { Err(Error::Interrupted) } else { Ok(()) }
}

/// Checks before work that is completed once begun.
pub(crate) fn before_sweep() -> Result<()> {
    if is_over() { Err(Error::Interrupted) } else { Ok(()) }
}

#[inline(never)]
fn asked(counts: impl FnOnce(&Watch) -> bool) -> bool {
    let is_over = |watch: &Watch| counts(watch) && (has_ended() || watch.stop.is_set());
    let answer = WATCH.with_borrow(|watch| watch.as_ref().is_some_and(is_over));
    if answer {
        STATE.set(State::Over);
    }
    answer
}

/// Checks within a kernel, at intervals of work. After an interrupt the kernel stops, and its output is undefined: the
/// caller notices by [`check`].
#[derive(Debug)]
pub(crate) struct Pace {
    left: usize,
}

impl Pace {
    /// Multiply-adds between two checks: 5 to 20 microseconds, depending on register width.
    const WORK: usize = 1 << 18;
    /// The weight of a number read from memory.
    pub(crate) const FROM_MEMORY: usize = 8;

    #[inline(always)]
    pub(crate) fn new() -> Self {
        Pace { left: Self::WORK }
    }

    /// Whether to do this many more multiply-adds.
    #[inline(always)]
    pub(crate) fn goes_on(&mut self, work: usize) -> bool {
        match self.left.checked_sub(work) {
            Some(left) => {
                self.left = left;
                true
            }
            None => self.ask(),
        }
    }

    #[cold]
    #[inline(never)]
    fn ask(&mut self) -> bool {
        let goes_on = !QUESTION.get()();
        // After an interrupt the next call checks again.
        self.left = if goes_on { Self::WORK } else { 0 };
        goes_on
    }
}
