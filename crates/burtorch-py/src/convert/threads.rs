//! Work without the GIL, and Python code on the core's worker threads.
//!
//! Promises: the caller waits without the GIL, and is one of the threads; they continue with the core's own work without sleeping
//! in between.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::sync::Arc;

use burtorch_core::memory::has_room;
use burtorch_core::sync::{self, TurnHint};
use pyo3::ffi;
use pyo3::prelude::*;

thread_local! {
    /// For a thread that shares Python calls with others: the hint that tells which thread may take the GIL.
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Threads that call Python code need the GIL for a microsecond at a time. A thread that waits for the GIL sleeps, and
/// waking up takes as long as fifty such calls; so threads pass a hint, and spin while they wait for it.
struct Turn {
    hint: Arc<TurnHint>,
    is_mine: bool,
}

impl Turn {
    /// Call without the GIL, before taking it.
    fn take(&mut self) {
        self.is_mine = self.is_mine || self.hint.take();
    }

    /// Call without the GIL.
    fn give(&mut self) {
        if std::mem::take(&mut self.is_mine) {
            self.hint.give();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.give();
    }
}

fn with_turn(f: impl FnOnce(&mut Turn)) {
    TURN.with_borrow_mut(|turn| turn.as_mut().map_or((), f));
}

/// Runs `work` without the GIL.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        with_turn(Turn::give);
        let done = work();
        with_turn(Turn::take);
        done
    })
}

/// Runs `call` with the GIL, in turn with the other threads that share the hint.
fn in_turn<T>(hint: &Arc<TurnHint>, call: impl FnOnce(Python<'_>) -> T) -> T {
    keep_thread_state();
    let mut mine = Turn { hint: Arc::clone(hint), is_mine: false };
    mine.take();
    let before = TURN.replace(Some(mine));
    let _back = Back(before);
    Python::attach(call)
}

/// Registers this thread with the interpreter for good: creating and freeing the state of a thread takes some ten
/// microseconds.
fn keep_thread_state() {
    // SAFETY: any thread may call this; a thread without a state gets one, and is detached again, like a waiting
    // thread.
    unsafe {
        if ffi::PyGILState_GetThisThreadState().is_null() {
            ffi::PyGILState_Ensure();
            ffi::PyEval_SaveThread();
        }
    }
}

/// Restores a thread's earlier turn, without the GIL; a nested call has its own turn.
struct Back(Option<Turn>);

impl Drop for Back {
    fn drop(&mut self) {
        drop(TURN.replace(self.0.take()));
    }
}

/// Whether this thread may take the GIL. CPython ends the process if it has no memory for a thread's state.
fn may_attach() -> bool {
    /// The thread state, and other allocations before it.
    const ROOM: usize = 16 << 20;
    // SAFETY: any thread may call this.
    unsafe { !ffi::PyGILState_GetThisThreadState().is_null() || has_room(ROOM) }
}

/// Calls `work`, which does all remaining work, on this many threads if there are as many, with the GIL.
pub fn on_threads(py: Python<'_>, threads: usize, work: &(dyn Fn(Python<'_>) + Sync)) {
    // With more threads than cores, spinning would take time from working threads. Without a GIL there is nothing to wait for.
    let hint = (cfg!(not(Py_GIL_DISABLED)) && threads <= sync::n_cores()).then(|| Arc::new(TurnHint::new()));
    detached(py, || {
        sync::run(threads, threads, &|_| match &hint {
            _ if !may_attach() => {}
            Some(hint) => in_turn(hint, work),
            None => Python::attach(work),
        });
    });
    // Possibly none of the calls above was made.
    work(py);
}
