//! Ends work early from another thread, or at a time.
//!
//! Promises: once a token is set, work that watches it ends before its next block op or sample. A question costs a look at a
//! flag of the thread where nobody watches.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

    /// The same token, which counts as set after this time too. No deadline where the clock has no such time.
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

    /// Runs work that ends early once it is set: sweeps end before their next block op with
    /// [`Error::Interrupted`](crate::Error::Interrupted), and [`Stop::ends_work`] says so to what else asks on this thread.
    ///
    /// ```
    /// use burtorch_core::interrupt;
    /// use burtorch_core::sync::Stop;
    /// use burtorch_core::{Error, Graph, Op};
    /// let stop = Stop::new();
    /// let mut graph = Graph::<f64>::new();
    /// let x = graph.vector(&vec![0.5; 1 << 20]).unwrap();
    /// stop.set();
    /// let tanh = stop.watched(|| interrupt::asking(Stop::ends_work, || graph.map(Op::Tanh, x)));
    /// assert_eq!(tanh, Err(Error::Interrupted));
    /// assert!(!Stop::ends_work());
    /// ```
    pub fn watched<T>(&self, work: impl FnOnce() -> T) -> T {
        watching(Some(&Watch { stop: self.clone(), ends_sweeps: true, ends_all: true }), work)
    }

    /// Whether the token is set that [`Stop::watched`] was called with on this thread.
    pub fn ends_work() -> bool {
        IS_WATCHED.get() && asked(|watch| watch.ends_all)
    }

    /// Whether it is set, or the deadline has passed.
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed) || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// What work on this thread watches.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) stop: Stop,
    /// Whether a sweep that has begun ends too.
    pub(crate) ends_sweeps: bool,
    /// Whether all work ends that asks, rather than that of an oracle which knows what to keep.
    pub(crate) ends_all: bool,
}

thread_local! {
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Puts back what was watched before, also in a panic.
struct Back(Option<Watch>);

impl Drop for Back {
    fn drop(&mut self) {
        exchange(self.0.take());
    }
}

fn exchange(watch: Option<Watch>) -> Option<Watch> {
    IS_WATCHED.set(watch.is_some());
    WATCH.with(|now| now.replace(watch))
}

/// Runs work that watches a token, if there is one.
pub(crate) fn watching<T>(watch: Option<&Watch>, work: impl FnOnce() -> T) -> T {
    let Some(watch) = watch else {
        return work();
    };
    let _before = Back(exchange(Some(watch.clone())));
    work()
}

/// Whether the token that work on this thread watches is set.
#[inline]
pub(crate) fn is_over() -> bool {
    IS_WATCHED.get() && asked(|_| true)
}

/// The same for a sweep that has begun.
#[inline]
pub(crate) fn is_sweep_over() -> bool {
    IS_WATCHED.get() && asked(|watch| watch.ends_sweeps)
}

#[inline(never)]
fn asked(counts: impl FnOnce(&Watch) -> bool) -> bool {
    WATCH.with_borrow(|watch| watch.as_ref().is_some_and(|watch| counts(watch) && watch.stop.is_set()))
}
