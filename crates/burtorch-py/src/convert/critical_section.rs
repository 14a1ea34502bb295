//! Locks of Python objects on interpreters without a GIL: free-threaded CPython.
//!
//! Promises: on other interpreters this file only forwards calls. A lock is the object's own, which the interpreter takes for its
//! own operations (a critical section of CPython): it is released while its thread waits for anything, so there is no deadlock, and
//! other threads may then use the object, as under a GIL.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;

#[cfg(not(Py_GIL_DISABLED))]
mod held {
    use super::ffi;

    /// Runs `f`; the GIL is held.
    ///
    /// # Safety
    /// None here; elsewhere `a` and `b` are living objects, or objects that are being deallocated.
    #[inline(always)]
    pub unsafe fn section<R>(_a: *mut ffi::PyObject, _b: *mut ffi::PyObject, f: impl FnOnce() -> R) -> R {
        f()
    }
}

#[cfg(Py_GIL_DISABLED)]
mod held {
    use super::ffi;

    /// A critical section of one object, or of two. It must not move after it has begun.
    pub struct Section(ffi::PyCriticalSection2);

    impl Section {
        /// A section that has not begun.
        pub fn new() -> Self {
            // SAFETY: zeros are a section that has not begun.
            Section(unsafe { std::mem::zeroed() })
        }

        /// Begins it.
        ///
        /// # Safety
        /// Living objects, or objects that are being deallocated; the thread is attached to the interpreter. The section stays at its
        /// address, is dropped by this thread, and after all later ones.
        pub unsafe fn begin(&mut self, a: *mut ffi::PyObject, b: *mut ffi::PyObject) {
            debug_assert!(!a.is_null() && !b.is_null());
            // SAFETY: by the contract of this function; two that are the same are taken once.
            unsafe { ffi::PyCriticalSection2_Begin(&raw mut self.0, a, b) };
        }
    }

    impl Drop for Section {
        fn drop(&mut self) {
            // SAFETY: begun at this address, by this thread; sections end in the reverse order.
            unsafe { ffi::PyCriticalSection2_End(&raw mut self.0) }
        }
    }

    /// Runs `f` while no other thread has the lock of one of these objects.
    ///
    /// # Safety
    /// Living objects, or objects that are being deallocated; the thread is attached to the interpreter.
    pub unsafe fn section<R>(a: *mut ffi::PyObject, b: *mut ffi::PyObject, f: impl FnOnce() -> R) -> R {
        debug_assert!(!a.is_null() && !b.is_null());
        let mut section = Section::new();
        // SAFETY: by the contract of this function; it stays where it is until it ends.
        unsafe { section.begin(a, b) };
        f()
    }
}

#[cfg(Py_GIL_DISABLED)]
pub use held::Section;
pub use held::section;

/// Runs `f` while no other thread has the lock of this object.
#[inline(always)]
pub fn locked<R>(object: &Bound<'_, PyAny>, f: impl FnOnce() -> R) -> R {
    // SAFETY: a living object on an attached thread.
    unsafe { section(object.as_ptr(), object.as_ptr(), f) }
}

/// The object whose address a word holds, if it is not null.
///
/// # Safety
/// The word lies in `keeps`, whose lock everything takes that changes it.
#[inline]
pub unsafe fn object_at<'py>(keeps: &Bound<'py, PyAny>, at: *const usize) -> Option<Bound<'py, PyAny>> {
    debug_assert!(!at.is_null());
    // SAFETY: by the contract of this function: the word is not changed before there is a reference.
    locked(keeps, || unsafe { Bound::from_borrowed_ptr_or_opt(keeps.py(), *at as *mut ffi::PyObject) })
}

/// A reference to an object that another thread may be deallocating; `None` if so.
///
/// # Safety
/// The memory of an object of which references of this kind are taken (`may_be_found`); the thread is attached.
#[inline]
pub unsafe fn living<'py>(py: Python<'py>, object: *mut ffi::PyObject) -> Option<Bound<'py, PyAny>> {
    debug_assert!(!object.is_null());
    // SAFETY: by the contract of this function. Under a GIL an object dies in one step.
    unsafe {
        #[cfg(Py_GIL_DISABLED)]
        return (ffi::PyUnstable_TryIncRef(object) != 0).then(|| Bound::from_owned_ptr(py, object));
        #[cfg(not(Py_GIL_DISABLED))]
        return (ffi::Py_REFCNT(object) > 0).then(|| Bound::from_borrowed_ptr(py, object));
    }
}

/// Announces that [`living`] will be asked for this object.
///
/// # Safety
/// A new object.
#[inline(always)]
pub unsafe fn may_be_found(object: *mut ffi::PyObject) {
    #[cfg(Py_GIL_DISABLED)]
    // SAFETY: by the contract of this function.
    unsafe {
        ffi::PyUnstable_EnableTryIncRef(object)
    };
    let _ = object;
}
