//! Ctrl-C during long calls.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

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

    /// Whether to stop: once so, always so. May be called with or without the interpreter lock.
    pub fn stop(&mut self) -> bool {
        if self.raised.is_some() {
            return true;
        }
        if Instant::now() < self.next {
            return false;
        }
        self.raised = Python::attach(|py| py.check_signals()).err();
        self.next = Instant::now() + EVERY;
        self.raised.is_some()
    }

    /// What the handler raised, if it did.
    pub fn raised(self) -> Option<PyErr> {
        self.raised
    }
}
