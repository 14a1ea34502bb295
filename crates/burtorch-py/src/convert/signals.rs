//! Ctrl-C during long calls.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use burtorch_core::interrupt;
use burtorch_core::sync::Stop;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyIterator;

use crate::convert::entry::{check_signals, left, raise_later};
use crate::convert::errors::is_final;
use crate::convert::stop::stopped;

/// Between two questions to the interpreter: far below what a person notices, far above what a question costs.
const EVERY: Duration = Duration::from_millis(5);

/// Asks the interpreter now and then whether a signal handler raised.
pub struct Poll {
    next: Instant,
    raised: Option<PyErr>,
}

impl Poll {
    /// Asks for the first time when the call has taken a while.
    pub fn new() -> Self {
        Poll { next: Instant::now() + EVERY, raised: None }
    }

    /// Whether to stop: once so, always so. May be called with or without the GIL.
    pub fn stop(&mut self) -> bool {
        if self.raised.is_some() {
            return true;
        }
        if Stop::ends_work() {
            self.raised = Some(Python::attach(stopped));
            return true;
        }
        if Instant::now() < self.next {
            return false;
        }
        self.raised = Python::attach(check_signals).err();
        self.next = Instant::now() + EVERY;
        self.raised.is_some()
    }

    /// The exception of the handler, if any.
    pub fn raised(self) -> Option<PyErr> {
        self.raised
    }
}

thread_local! {
    /// Of the work in hand on this thread, once it has asked.
    static NOW: Cell<Option<Poll>> = const { Cell::new(None) };
    /// The exception that ended the last work early, until it is raised.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Runs long work of the core that asks now and then whether to end early: with `Interrupted` where a signal handler raised. No
/// reference into a graph or anything else that handlers could reach may be in use. What handlers raise when the work has
/// been done is raised after the call, or ends the next work of the same call before it begins.
pub fn asked<T>(work: impl FnOnce() -> burtorch_core::Result<T>) -> burtorch_core::Result<T> {
    let before = begin()?;
    let done = catch_unwind(AssertUnwindSafe(|| interrupt::asking(ask, work)));
    end(before);
    done.unwrap_or_else(|panic| resume_unwind(panic))
}

fn ask() -> bool {
    // Taken out, as a handler may do such work itself.
    let mut poll = NOW.take().unwrap_or_else(Poll::new);
    let is_over = poll.stop();
    NOW.set(Some(poll));
    is_over
}

/// What the work around this one has, taken out until `end`. Refuses to begin after an error that is left.
fn begin() -> burtorch_core::Result<Option<Poll>> {
    if let Some(error) = left() {
        RAISED.set(Some(error));
        return Err(burtorch_core::Error::Interrupted);
    }
    Ok(NOW.take())
}

fn end(before: Option<Poll>) {
    if let Some(poll) = NOW.replace(before) {
        match poll.raised {
            None => Python::attach(check_later),
            raised => RAISED.set(raised),
        }
    }
}

/// Runs the handlers of signals that have come, and raises later what they raise.
fn check_later(py: Python<'_>) {
    if let Err(error) = py.check_signals() {
        raise_later(py, error);
    }
}

/// What a call into Python gave, or nothing where it raised, for callers that pass no error on. Handlers of signals run before
/// it; what they raise, interrupts, exits and wants of memory are raised later.
pub fn quietly<T>(py: Python<'_>, call: impl FnOnce() -> PyResult<T>) -> Option<T> {
    check_later(py);
    call()
        .map_err(|error| {
            if is_final(py, &error) {
                raise_later(py, error)
            }
        })
        .ok()
}

/// Objects between two questions while Python's objects are read: a fraction of a millisecond.
const OBJECTS: usize = 1 << 12;

/// What `read` makes of all items, with questions about signals in between.
pub fn read_at_length<'py, T>(
    items: Bound<'py, PyIterator>,
    mut read: impl FnMut(Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let py = items.py();
    let mut all = Vec::new();
    for (k, object) in items.enumerate() {
        ask_at(py, k)?;
        all.push(read(object?)?);
    }
    Ok(all)
}

/// Asks about signals now and then in a loop over Python's objects that is at `k`.
#[inline]
pub fn ask_at(py: Python<'_>, k: usize) -> PyResult<()> {
    if k.is_multiple_of(OBJECTS) && k > 0 { check_signals(py) } else { Ok(()) }
}

/// Ends work of the core with an exception of what it called.
pub fn failed(error: PyErr) -> burtorch_core::Error {
    RAISED.set(Some(error));
    burtorch_core::Error::Interrupted
}

/// The exception for work that ended early: what the handler raised.
pub fn interrupted(message: String) -> PyErr {
    RAISED.take().unwrap_or_else(|| PyKeyboardInterrupt::new_err(message))
}
