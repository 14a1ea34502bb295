//! Python code on the threads that the core keeps for shared work: those of `bt.parallel`.
//!
//! Promises: the caller waits without the interpreter lock, and is one of the threads; what is raised first is raised once
//! all calls have returned. The threads go on to the core's own work without sleeping in between.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use burtorch_core::sync::{self, Baton, Portions};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::convert::arguments::Count;
use crate::graph::{PyGraph, enter_block, leave_block};

thread_local! {
    /// Of a thread that shares Python calls with others: who of them has the interpreter lock, or is about to ask for it.
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Threads that call Python code want the interpreter lock for a microsecond at a time. Who has to wait for that lock is put to
/// sleep, and waking up takes as long as fifty such turns; so they pass a baton, which they wait for awake.
struct Turn {
    baton: Arc<Baton>,
    is_mine: bool,
}

impl Turn {
    /// To be called without the interpreter lock, before asking for it.
    fn take(&mut self) {
        self.is_mine = self.is_mine || self.baton.take();
    }

    /// To be called without the interpreter lock.
    fn give(&mut self) {
        if std::mem::take(&mut self.is_mine) {
            self.baton.give();
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

/// Runs `work` without the interpreter lock.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        with_turn(Turn::give);
        let done = work();
        with_turn(Turn::take);
        done
    })
}

/// Runs `call` with the interpreter lock, in turn with others that have the same baton.
fn in_turn<T>(baton: &Arc<Baton>, call: impl FnOnce(Python<'_>) -> T) -> T {
    keep_thread_state();
    let mut mine = Turn { baton: Arc::clone(baton), is_mine: false };
    mine.take();
    let before = TURN.replace(Some(mine));
    let _back = Back(before);
    Python::attach(call)
}

/// Lets the interpreter know this thread for good, if it does not yet: making what it knows a thread by, and freeing that
/// again, takes some ten microseconds.
fn keep_thread_state() {
    // SAFETY: any thread may ask; one without a state gets one, which is left attached nowhere, as by a thread that waits.
    unsafe {
        if ffi::PyGILState_GetThisThreadState().is_null() {
            ffi::PyGILState_Ensure();
            ffi::PyEval_SaveThread();
        }
    }
}

/// Puts back, without the interpreter lock, what was a thread's turn before; a call inside a call has a turn of its own.
struct Back(Option<Turn>);

impl Drop for Back {
    fn drop(&mut self) {
        drop(TURN.replace(self.0.take()));
    }
}

/// Calls `work` so many times, on as many threads if there are, with the interpreter lock.
fn on_threads(py: Python<'_>, threads: usize, work: &(dyn Fn(Python<'_>) + Sync)) {
    // More threads than cores would wait awake for those that have none.
    let baton = (threads <= sync::n_cores()).then(|| Arc::new(Baton::new()));
    detached(py, || {
        sync::run(threads, threads, &|_| match &baton {
            Some(baton) => in_turn(baton, work),
            None => Python::attach(work),
        });
    });
}

/// What threads that call a function in branches share.
struct Calls {
    call: Py<PyAny>,
    branches: Vec<Py<PyGraph>>,
    items: Py<PyList>,
    results: Py<PyList>,
    numbers: Portions,
    errors: Mutex<BTreeMap<usize, PyErr>>,
}

impl Calls {
    /// Takes one item after the other until there is none, or a call has failed.
    fn take_items(&self, py: Python<'_>) {
        while let Some(k) = self.numbers.take().map(|portion| portion.start) {
            if let Err(error) = self.call(py, k) {
                self.numbers.stop();
                self.errors.lock().unwrap_or_else(PoisonError::into_inner).insert(k, error);
                return;
            }
        }
    }

    /// `with branches[k]: results[k] = call(items[k])`
    fn call(&self, py: Python<'_>, k: usize) -> PyResult<()> {
        py.check_signals()?;
        let branch = self.branches[k].bind(py);
        let item = self.items.bind(py).get_item(k)?;
        enter_block(branch)?;
        let result = self.call.bind(py).call1((item,));
        let left = leave_block(branch, result.is_err());
        self.results.bind(py).set_item(k, result?)?;
        left
    }
}

/// Call ``fn`` with each item, in a ``with`` block of the branch of the same number, on up to ``threads`` threads.
///
/// Once a call has failed no other begins. Items are taken in order, so all before the first that failed have been called.
///
/// Returns:
///     What the calls returned, by item.
///
/// Raises:
///     ValueError: ``threads`` is below 1, or there are not as many branches as items.
///     Exception: a KeyboardInterrupt if there was one, else what the first call by item order raised.
///
/// While another call has the threads, or where the system refuses any, the caller makes all calls.
///
/// Cost: that of the calls, some microseconds for a thread that has worked within the last millisecond, and what waking one up
/// takes otherwise.
///
/// Example:
///     >>> import burtorch as bt
///     >>> from burtorch._core import call_in_branches
///     >>> graph = bt.Graph()
///     >>> x, y = call_in_branches(bt.Value, graph.branches(2), [1.0, 2.0], 2)
///     >>> graph.join()
///     >>> (x + y).data
///     3.0
#[pyfunction]
#[pyo3(signature = (call, branches, items, threads, /))]
fn call_in_branches<'py>(
    py: Python<'py>,
    call: Py<PyAny>,
    branches: Vec<Py<PyGraph>>,
    items: &Bound<'py, PyList>,
    threads: Count,
) -> PyResult<Bound<'py, PyList>> {
    let (n, threads) = (items.len(), threads.positive("threads")?);
    if branches.len() != n {
        let message = format!("as many branches as items are needed, found {} and {n}", branches.len());
        return Err(PyValueError::new_err(message));
    }
    let results = PyList::new(py, (0..n).map(|_| py.None()))?;
    let calls = Calls {
        call,
        branches,
        items: items.clone().unbind(),
        results: results.clone().unbind(),
        numbers: Portions::new(n, threads, 1, 1),
        errors: Mutex::default(),
    };
    on_threads(py, threads, &|py| calls.take_items(py));
    let mut errors = calls.errors.into_inner().unwrap_or_else(PoisonError::into_inner);
    let interrupt = errors.iter().find(|(_, error)| error.is_instance_of::<PyKeyboardInterrupt>(py));
    match interrupt.map(|(&k, _)| k).or_else(|| errors.keys().next().copied()) {
        Some(k) => Err(errors.remove(&k).unwrap_or_else(|| PyKeyboardInterrupt::new_err(()))),
        None => Ok(results),
    }
}

/// Adds the function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(call_in_branches, m)?)
}
