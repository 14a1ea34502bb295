//! `TraceError`: operations without a meaning while a function is traced, and whether a trace is running.
//!
//! Promises: while no function is traced in any thread, the check costs one load.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;

use crate::convert::errors::derived;
use crate::convert::signals::quietly;

/// The number of functions being traced in all threads; at 0 nothing else is checked.
static N_TRACING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of nested traces on this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Whether a body traced with Values has reached an operation that needs Arrays.
    static NEEDS_ARRAYS: Cell<NeedsArrays> = const { Cell::new(NeedsArrays::No) };
    /// Whether a Value or Vector has been refused beside an Array.
    static MET_VALUES: Cell<bool> = const { Cell::new(false) };
    /// Whether a Tensor with several axes was used elementwise on a graph without Arrays.
    static MET_AXES: Cell<bool> = const { Cell::new(false) };
}

/// Whether a body that failed with Values should be traced with Arrays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NeedsArrays {
    /// It failed for another reason.
    #[default]
    No,
    /// Arrays may support the operation that Vectors do not; otherwise the first error counts.
    Perhaps,
    /// It reached an operation that accepts only Arrays.
    Surely,
}

/// Whether a function is traced in this thread.
#[inline(always)]
pub fn is_tracing() -> bool {
    N_TRACING.load(Ordering::Relaxed) != 0 && DEPTH.get() > 0
}

/// Begins a trace in this thread.
pub fn begin_tracing() {
    N_TRACING.fetch_add(1, Ordering::Relaxed);
    DEPTH.set(DEPTH.get() + 1);
}

/// Ends it.
pub fn end_tracing() {
    N_TRACING.fetch_sub(1, Ordering::Relaxed);
    DEPTH.set(DEPTH.get() - 1);
}

/// Whether a body traced with Values has reached an operation that needs Arrays; read once.
pub fn needed_arrays() -> NeedsArrays {
    NEEDS_ARRAYS.take()
}

/// Records that a body has failed with Vectors in an operation that Arrays may support.
pub fn may_need_arrays() {
    if NEEDS_ARRAYS.get() == NeedsArrays::No {
        NEEDS_ARRAYS.set(NeedsArrays::Perhaps);
    }
}

/// Records that a Value or Vector has been refused beside an Array.
pub fn meet_values() {
    MET_VALUES.set(true);
}

/// Whether one has been since the last call of this function.
pub fn met_values() -> bool {
    MET_VALUES.take()
}

/// Records that a Tensor with several axes was used elementwise on a graph without Arrays, which gives a Vector of all its numbers.
pub fn meet_axes() {
    MET_AXES.set(true);
}

/// Whether one has been since the last call of this function.
pub fn met_axes() -> bool {
    MET_AXES.take()
}

/// Refuses Values where Arrays are needed. A trace that ends with this error is repeated with Arrays.
pub fn needs_arrays(py: Python<'_>, what: &str) -> PyErr {
    NEEDS_ARRAYS.set(if is_tracing() { NeedsArrays::Surely } else { NeedsArrays::No });
    let message = format!(
        "{what} takes numbers, arrays, and Arrays of a traced function, found Values; call it in a \
                           function that bt.function traces, or with their numbers"
    );
    derived(py, "TraceError", message)
}

/// Runs `f` as if no trace of this thread were running.
pub fn outside_tracing<T>(f: impl FnOnce() -> T) -> T {
    let depth = DEPTH.replace(0);
    let result = catch_unwind(AssertUnwindSafe(f));
    DEPTH.set(depth);
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Refuses that a traced body reads a number of burtorch's state which no replay would read again.
#[inline(always)]
pub fn refuse_reading(what: &str) -> PyResult<()> {
    if is_tracing() { Err(read_while_recording(what)) } else { Ok(()) }
}

#[cold]
#[inline(never)]
fn read_while_recording(what: &str) -> PyErr {
    let message = format!(
        "{what} would be fixed at its current number in the trace; pass it as an argument, or make it a bt.parameter"
    );
    Python::attach(|py| error_here(py, &message))
}

/// The current file and line of Python.
fn line(py: Python<'_>) -> String {
    let frame = || -> PyResult<String> {
        let frame = py.import("sys")?.call_method0("_getframe")?;
        let file: String = frame.getattr("f_code")?.getattr("co_filename")?.extract()?;
        let line: u32 = frame.getattr("f_lineno")?.extract()?;
        Ok(format!("{file}:{line}"))
    };
    quietly(py, frame).unwrap_or_else(|| "unknown line".into())
}

/// A `TraceError` that ends with the current line of Python.
pub fn error_here(py: Python<'_>, message: &str) -> PyErr {
    derived(py, "TraceError", format!("{message} ({})", line(py)))
}

/// Reading a traced Value as a number.
pub fn reading_refused() -> PyErr {
    Python::attach(|py| {
        error_here(
            py,
            "float(), int(), round(), math functions and .data of a traced Value would fix it at its current number; \
             compute with the Value itself, with bt.exp(v) instead of math.exp(v), or use v.detach()",
        )
    })
}

/// An operation without a meaning while a function is traced.
pub fn not_in_a_trace(py: Python<'_>, what: &str) -> PyErr {
    error_here(py, &format!("{what} is not possible while a function is traced: a replay would not repeat it"))
}

/// `no_grad` in a traced function.
pub fn no_grad_refused() -> PyErr {
    Python::attach(|py| {
        error_here(py, "no_grad() inside a traced function would turn inputs into constants; use v.detach()")
    })
}
