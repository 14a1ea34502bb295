//! A free list of Values.
//!
//! Promises: each object in the list keeps its type and the reference to it, has no weak references, a reference count of zero
//! and the handle of a Value. Taking and giving make one check each. While the list is closed, because a thread builds only
//! constants, both fail, so callers need not check for that. Guarded by the GIL.
#![allow(unsafe_code)]

#[cfg(not(any(Py_GIL_DISABLED, py_sys_config = "Py_TRACE_REFS")))]
mod list {
    use std::ptr;

    use crate::node::value::ValueObject;

    /// Further objects are freed.
    const MOST: usize = 1024;
    /// The number of objects that a closed list reports.
    const CLOSED: usize = MOST + 1;

    /// The objects, from position 1 on. Position 0 and position `CLOSED` hold null.
    static mut OBJECTS: [*mut ValueObject; MOST + 2] = [ptr::null_mut(); MOST + 2];
    /// The number of objects, or `CLOSED`.
    static mut N: usize = 0;
    /// The number of objects while the list is closed.
    static mut N_BEHIND: usize = 0;

    /// A dead object, or null.
    ///
    /// # Safety
    /// The GIL is held.
    #[inline(always)]
    pub unsafe fn first() -> *mut ValueObject {
        // SAFETY: the lock makes this thread the only one here; the number is never above `CLOSED`.
        unsafe { *(&raw const OBJECTS).cast::<*mut ValueObject>().add(N) }
    }

    /// Takes the first object from the list, with one reference; the caller sets its `owner`.
    ///
    /// # Safety
    /// The GIL is held; `object` is what `first` returned, and not null.
    #[inline(always)]
    pub unsafe fn take(object: *mut ValueObject) {
        debug_assert!(!object.is_null());
        // SAFETY: the lock makes this thread the only one here; a listed object's memory is ours. From zero references,
        // one more makes one.
        unsafe {
            N -= 1;
            pyo3::ffi::Py_INCREF(object.cast());
        }
    }

    /// Adds a dead object; `false` if the list is full.
    ///
    /// # Safety
    /// The GIL is held; `object` is dead, of the exact type and without weak references.
    #[inline(always)]
    pub unsafe fn give(object: *mut ValueObject) -> bool {
        // SAFETY: as in `take`; the place is below `CLOSED`.
        unsafe {
            // Volatile, so that the caller's first check is a jump before this read: two instructions less.
            let n = (&raw const N).read_volatile();
            if n >= MOST {
                return false;
            }
            N = n + 1;
            *(&raw mut OBJECTS).cast::<*mut ValueObject>().add(n + 1) = object;
            true
        }
    }

    /// Closes the list: `first` finds nothing, `give` adds nothing.
    ///
    /// # Safety
    /// The GIL is held.
    pub unsafe fn close() {
        // SAFETY: the lock makes this thread the only one here.
        unsafe {
            if N != CLOSED {
                (N_BEHIND, N) = (N, CLOSED);
            }
        }
    }

    /// Opens the list again.
    ///
    /// # Safety
    /// The GIL is held.
    pub unsafe fn open() {
        // SAFETY: the lock makes this thread the only one here.
        unsafe {
            if N == CLOSED {
                N = N_BEHIND;
            }
        }
    }

    /// As `first` and `take` together, even if the list is closed.
    ///
    /// # Safety
    /// The GIL is held.
    pub unsafe fn take_any() -> *mut ValueObject {
        // SAFETY: as for `first` and `take`, with the list as it is when open.
        unsafe {
            let was_closed = N == CLOSED;
            open();
            let object = first();
            if !object.is_null() {
                take(object);
            }
            if was_closed {
                close();
            }
            object
        }
    }

    /// As `give`, even if the list is closed.
    ///
    /// # Safety
    /// As for `give`.
    pub unsafe fn give_any(object: *mut ValueObject) -> bool {
        // SAFETY: as for `give`, with the list as it is when open.
        unsafe {
            let was_closed = N == CLOSED;
            open();
            let kept = give(object);
            if was_closed {
                close();
            }
            kept
        }
    }
}

/// Without a GIL, or if the interpreter must know every object, the list stays empty.
#[cfg(any(Py_GIL_DISABLED, py_sys_config = "Py_TRACE_REFS"))]
#[allow(clippy::missing_safety_doc, reason = "as above, but nothing can go wrong")]
mod list {
    use crate::node::value::ValueObject;

    pub unsafe fn first() -> *mut ValueObject {
        std::ptr::null_mut()
    }

    pub unsafe fn take(_object: *mut ValueObject) {}

    pub unsafe fn give(_object: *mut ValueObject) -> bool {
        false
    }

    pub unsafe fn close() {}

    pub unsafe fn open() {}

    pub unsafe fn take_any() -> *mut ValueObject {
        std::ptr::null_mut()
    }

    pub unsafe fn give_any(_object: *mut ValueObject) -> bool {
        false
    }
}

pub use list::*;
