//! Claims on memory that a Graph or Parameters use: no other object may use it at the same time.
//!
//! Promises: the caller's memory is claimed once at a time, even by different or partly overlapping views; memory
//! shared by arrays of a Graph or of Parameters is not claimed while they live. Knows addresses only: memory mapped
//! twice has two.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

use crate::convert::errors::derived;

/// The addresses of some numbers.
type Span = Range<usize>;

/// The memory in use.
struct InUse {
    /// Memory of callers, by the number of its claim.
    claimed: Vec<(u64, Span)>,
    /// Our own memory shared by arrays: a number of the owner, the addresses, and the number of arrays.
    shared: Vec<(u64, [Span; N_KINDS], Arc<AtomicUsize>)>,
    last: u64,
}

/// Values, gradients, and adjoints.
const N_KINDS: usize = 3;

static IN_USE: Mutex<InUse> = Mutex::new(InUse { claimed: Vec::new(), shared: Vec::new(), last: 0 });

fn in_use() -> MutexGuard<'static, InUse> {
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InUse {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn is_free(&self, memory: &Span) -> bool {
        let overlaps = |other: &Span| memory.start < other.end && other.start < memory.end;
        let is_shared = |(_, spans, n_arrays): &(u64, [Span; N_KINDS], Arc<AtomicUsize>)| {
            n_arrays.load(Ordering::Acquire) > 0 && spans.iter().any(overlaps)
        };
        !self.claimed.iter().any(|(_, other)| overlaps(other)) && !self.shared.iter().any(is_shared)
    }
}

/// The right to work in some memory, until it is dropped.
pub struct Claim(u64);

impl Claim {
    /// Claims these bytes, or is a `BusyError`.
    pub fn of(py: Python<'_>, memory: Span, what: &str) -> PyResult<Claim> {
        let mut all = in_use();
        if !all.is_free(&memory) {
            drop(all);
            let message = format!(
                "another Graph or other Parameters use the memory of {what}, or a part of it; use separate memory, \
                 or drop the other first"
            );
            return Err(derived(py, "BusyError", message));
        }
        all.claimed.try_reserve(1).map_err(|_| PyMemoryError::new_err("no memory for a list of what is in use"))?;
        let number = all.number();
        all.claimed.push((number, memory));
        Ok(Claim(number))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        in_use().claimed.retain(|(number, _)| *number != self.0);
    }
}

/// Which memory of an object arrays share.
#[derive(Default)]
pub struct Shared {
    /// The number of arrays; the notes count while it is not 0.
    pub n_arrays: Arc<AtomicUsize>,
    noted: Mutex<(u64, [Span; N_KINDS])>,
}

impl Shared {
    /// Records the memory of a kind that an array is to share. Takes the global lock only for a change.
    pub fn note(&self, kind: usize, span: Span) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, spans) = &mut *noted;
        let Some(known) = spans.get_mut(kind) else { return };
        if *known == span {
            return;
        }
        *known = span;
        let mut all = in_use();
        if *number == 0 {
            *number = all.number();
            all.shared.push((*number, spans.clone(), Arc::clone(&self.n_arrays)));
        } else if let Some(mine) = all.shared.iter_mut().find(|(other, ..)| other == number) {
            mine.1 = spans.clone();
        }
    }

    /// As `note`, where numbers never move, so that arrays are not counted: extends the note.
    pub fn extend(&self, kind: usize, span: Span) {
        self.n_arrays.store(1, Ordering::Release);
        let known = self.noted.lock().unwrap_or_else(PoisonError::into_inner).1.get(kind).cloned().unwrap_or_default();
        let is_new = known.is_empty();
        let whole = known.start.min(span.start)..known.end.max(span.end);
        self.note(kind, if is_new { span } else { whole });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let number = self.noted.lock().unwrap_or_else(PoisonError::into_inner).0;
        if number != 0 {
            in_use().shared.retain(|(other, ..)| *other != number);
        }
    }
}
