//! Ctrl-C during long calls.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use burtorch_core::interrupt;
use burtorch_core::sync::Stop;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};

use crate::convert::entry::{check_signals, left, raise_later};
use crate::convert::errors::is_final;
use crate::convert::stop::stopped;

/// Time between two checks: far below what a person notices, far above the cost of a check.
const EVERY: Duration = Duration::from_millis(5);

/// Checks now and then whether a signal handler raised.
pub struct Poll {
    next: Instant,
    raised: Option<PyErr>,
}

impl Poll {
    /// Checks for the first time when the call has run for a while.
    pub fn new() -> Self {
        Poll { next: Instant::now() + EVERY, raised: None }
    }

    /// Whether to stop: once true, always true. May be called with or without the GIL.
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
        // Other threads may take the GIL, if this one holds it, as between operations of Python.
        let let_others_and_check = |py: Python<'_>| {
            py.detach(|| ());
            check_signals(py)
        };
        self.raised = Python::attach(let_others_and_check).err();
        self.next = Instant::now() + EVERY;
        self.raised.is_some()
    }

    /// The exception of the handler, if any.
    pub fn raised(self) -> Option<PyErr> {
        self.raised
    }
}

thread_local! {
    /// The state of the current work on this thread, after its first check.
    static NOW: Cell<Option<Poll>> = const { Cell::new(None) };
    /// The exception that ended the last work early, until it is raised.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Runs long work of the core that checks now and then whether to end early: with `Interrupted` if a signal handler raised. No
/// reference into a graph, or into anything else that handlers could reach, may be in use. An exception of a handler after the
/// end of the work is raised after the call, or ends the next work of the same call before it starts.
pub fn asked<T>(work: impl FnOnce() -> burtorch_core::Result<T>) -> burtorch_core::Result<T> {
    let before = begin()?;
    let done = catch_unwind(AssertUnwindSafe(|| interrupt::asking(ask, work)));
    end(before);
    done.unwrap_or_else(|panic| resume_unwind(panic))
}

fn ask() -> bool {
    // Taken out, because a handler may start such work itself.
    let mut poll = NOW.take().unwrap_or_else(Poll::new);
    let is_over = poll.stop();
    NOW.set(Some(poll));
    is_over
}

/// The state of the enclosing work, removed until `end`. Refuses to begin after a pending error.
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

/// Runs the handlers of pending signals, and raises their exceptions later.
fn check_later(py: Python<'_>) {
    if let Err(error) = py.check_signals() {
        raise_later(py, error);
    }
}

/// The result of a call into Python, or nothing if it raised, for callers that return no error. Handlers of signals run before
/// it; their exceptions, interrupts, exits and MemoryErrors are raised later.
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

/// The text of an object, for callers that return no error; "?" if it raised. Formatting an object itself hides what `__str__` or
/// the handler of a signal raises, and so an interrupt.
pub fn text_of(object: &Bound<'_, PyAny>) -> String {
    match object.cast::<PyString>() {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => {
            quietly(object.py(), || Ok(object.str()?.to_string_lossy().into_owned())).unwrap_or_else(|| "?".into())
        }
    }
}

/// The error of something that failed two ways: the later one, with the earlier as its cause if that says something else.
pub fn failed_twice(py: Python<'_>, earlier: &PyErr, later: PyErr) -> PyErr {
    let is_new = text_of(earlier.value(py)) != text_of(later.value(py));
    if is_new && !is_final(py, &later) && later.cause(py).is_none() {
        later.set_cause(py, Some(earlier.clone_ref(py)));
    }
    later
}

/// The representation of an object.
pub fn repr_of(object: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(object.repr()?.to_string_lossy().into_owned())
}

/// Objects between two checks while Python objects are read: a fraction of a millisecond.
const OBJECTS: usize = 1 << 12;

/// The result of `read` on all items, with checks for signals in between.
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

/// Checks for signals now and then in a loop over Python objects at position `k`.
#[inline]
pub fn ask_at(py: Python<'_>, k: usize) -> PyResult<()> {
    if k.is_multiple_of(OBJECTS) && k > 0 { check_signals(py) } else { Ok(()) }
}

/// Ends work of the core with an exception of a callback.
pub fn failed(error: PyErr) -> burtorch_core::Error {
    RAISED.set(Some(error));
    burtorch_core::Error::Interrupted
}

/// The exception for work that ended early: that of the handler.
pub fn interrupted(message: String) -> PyErr {
    RAISED.take().unwrap_or_else(|| PyKeyboardInterrupt::new_err(message))
}
