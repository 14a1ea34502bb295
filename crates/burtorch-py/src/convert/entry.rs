//! The boundary to C: every function that C calls through a pointer runs inside one of these. A panic cannot pass through C code.
//!
//! Promises: a panic becomes a Python error; the GIL token comes from here, so that PyO3 knows that the GIL is held and releases
//! dropped objects at once. Otherwise it keeps them until it is entered elsewhere, which may be never. Both are checked:
//! `tests/python/test_boundary.py` reads the sources.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use burtorch_core::memory::REFUSED;
use pyo3::ffi;
use pyo3::panic::PanicException;
use pyo3::prelude::*;

use crate::convert::errors;

/// Messages of panics about missing memory: from the core, from lists larger than the address space, and from PyO3 if
/// the interpreter created no object.
const NO_MEMORY: [&str; 4] = [REFUSED, "capacity overflow", "Python API call failed", "PyObject pointer is null"];

/// Turns a refused allocation into a `MemoryError`, here and wherever PyO3 ends a panic: each of them makes a `PanicException`
/// from the panic's text, and the error raised by its constructor takes its place.
pub fn unwind_refusals(py: Python<'_>) -> PyResult<()> {
    burtorch_core::memory::unwind_refusals();
    static INIT: Method = Method(UnsafeCell::new(ffi::PyMethodDef {
        ml_name: c"__init__".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: told },
        ml_flags: ffi::METH_O,
        ml_doc: c"Tells lack of memory from other panics.".as_ptr(),
    }));
    // SAFETY: the definition is static and constant; a null pointer means that a Python error is set.
    let init = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCFunction_New(INIT.0.get(), ptr::null_mut()))? };
    py.get_type::<PanicException>().setattr("__init__", init)
}

/// As a static for C.
struct Method(UnsafeCell<ffi::PyMethodDef>);

// SAFETY: the interpreter only reads it.
unsafe impl Sync for Method {}

unsafe extern "C" fn told(_: *mut ffi::PyObject, text: *mut ffi::PyObject) -> *mut ffi::PyObject {
    caught(|| {
        // SAFETY: the interpreter passed a live object, and its lock is held. This allocates no Rust memory and little
        // Python memory, whose lack already has its own error.
        unsafe {
            let mut n = 0;
            let bytes =
                if ffi::PyUnicode_Check(text) != 0 { ffi::PyUnicode_AsUTF8AndSize(text, &mut n) } else { ptr::null() };
            if bytes.is_null() {
                ffi::PyErr_Clear();
                return ffi::compat::Py_NewRef(ffi::Py_None());
            }
            let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), n.unsigned_abs());
            if NO_MEMORY.iter().any(|start| bytes.starts_with(start.as_bytes())) {
                ffi::PyErr_SetObject(ffi::PyExc_MemoryError, text);
                burtorch_core::memory::keep_reserve();
                return ptr::null_mut();
            }
            ffi::compat::Py_NewRef(ffi::Py_None())
        }
    })
}

/// The return value of a C function with a Python error set.
pub trait Failed {
    /// The return value of a failed call.
    const FAILED: Self;
    /// Whether the caller checks for an error; the caller of a destructor does not.
    const IS_SEEN: bool = true;
}

impl<T> Failed for *mut T {
    const FAILED: Self = ptr::null_mut();
}

impl Failed for c_int {
    const FAILED: Self = -1;
}

impl Failed for ffi::Py_hash_t {
    const FAILED: Self = -1;
}

impl Failed for () {
    const FAILED: Self = ();
    const IS_SEEN: bool = false;
}

/// Runs `f`; a panic becomes a `PanicException`. Costs nothing without a panic.
#[inline(always)]
pub fn caught<R: Failed>(f: impl FnOnce() -> R) -> R {
    // A panic leaves the graph consistent: nodes are appended completely, or removed by a rewind.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(panic) => {
            report(panic, R::IS_SEEN);
            R::FAILED
        }
    }
}

/// Runs `f`, which uses Python objects beyond the raw ones: a panic becomes a Python error, and dropped objects are released.
/// Call with the GIL held. Costs some ten nanoseconds if PyO3 has not been entered yet.
#[inline]
pub fn entered<R: Failed>(f: impl FnOnce(Python<'_>) -> R) -> R {
    caught(|| attached(f))
}

/// As `entered`, inside it or `caught`.
#[inline]
pub fn attached<R>(f: impl FnOnce(Python<'_>) -> R) -> R {
    let mut f = Some(f);
    let done = Python::try_attach(|py| f.take().map(|f| f(py)));
    match (done.flatten(), f) {
        (Some(done), _) => done,
        // The interpreter is shutting down, or its collector is running: no object can be returned. SAFETY: the caller
        // holds the lock.
        (None, Some(f)) => f(unsafe { Python::assume_attached() }),
        (None, None) => unreachable!("a closure that ran has a result"),
    }
}

/// The exceptions to raise as soon as Python code runs again, and the threads of the calls that left them.
static LATER: Mutex<Vec<(usize, PyErr)>> = Mutex::new(Vec::new());
/// The number of these exceptions, read at every check. Relaxed, because the lock publishes them.
static N_LATER: AtomicUsize = AtomicUsize::new(0);

/// An identifier of this thread.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| ptr::from_ref(here).addr())
}

fn take_later(is_wanted: impl Fn(usize) -> bool) -> Option<PyErr> {
    if N_LATER.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut later = LATER.lock().unwrap_or_else(PoisonError::into_inner);
    let at = later.iter().position(|&(thread, _)| is_wanted(thread))?;
    N_LATER.store(later.len() - 1, Ordering::Relaxed);
    Some(later.remove(at).1)
}

/// Raises an exception as soon as Python code runs again, or this thread checks for signals: for work that cannot return it.
pub fn raise_later(py: Python<'_>, error: PyErr) {
    extern "C" fn raise(_: *mut c_void) -> c_int {
        caught(|| {
            attached(|py| match take_later(|_| true) {
                Some(error) => {
                    error.restore(py);
                    -1
                }
                // A check for signals has raised it already.
                None => 0,
            })
        })
    }
    {
        let mut later = LATER.lock().unwrap_or_else(PoisonError::into_inner);
        later.push((this_thread(), error));
        N_LATER.store(later.len(), Ordering::Relaxed);
    }
    // SAFETY: under the GIL.
    if unsafe { ffi::Py_AddPendingCall(Some(raise), ptr::null_mut()) } != 0
        && let Some(error) = left()
    {
        error.write_unraisable(py, None);
    }
}

/// The exceptions that earlier work of this thread left.
pub fn left() -> Option<PyErr> {
    take_later(|thread| thread == this_thread())
}

/// Checks whether a signal handler raised, now or in earlier work of this call.
pub fn check_signals(py: Python<'_>) -> PyResult<()> {
    left().map_or_else(|| py.check_signals(), Err)
}

/// Runs a `tp_traverse`, which sets no Python error: references that were not visited count as held from outside.
#[inline(always)]
pub fn visited(f: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(0)
}

/// Sets the error for a panic, or prints it if the caller does not check for errors.
#[cold]
#[inline(never)]
fn report(panic: Box<dyn Any + Send>, is_seen: bool) {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("panic of burtorch").to_owned();
    // The destructor of the payload may panic, which must not happen here.
    std::mem::forget(panic);
    let set = || {
        attached(|py| {
            let error = PanicException::new_err(text);
            if is_seen { error.restore(py) } else { error.write_unraisable(py, None) }
        });
    };
    let _ = catch_unwind(AssertUnwindSafe(set));
}

/// Sets the Python error for a core error and returns null.
#[cold]
#[inline(never)]
pub fn raise(error: burtorch_core::Error) -> *mut ffi::PyObject {
    attached(|py| errors::to_python(py, error).restore(py));
    ptr::null_mut()
}

/// Sets a Python error and returns null.
#[cold]
#[inline(never)]
pub fn raise_python(error: PyErr) -> *mut ffi::PyObject {
    attached(|py| error.restore(py));
    ptr::null_mut()
}
