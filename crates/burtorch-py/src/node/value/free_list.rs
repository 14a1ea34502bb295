//! Memory of dead Values, kept for the next ones.
//!
//! Promises: each object in the list keeps its type and the reference to it, has no weak references, a reference count of zero
//! and the handle of a Value. Taking and giving ask one question each. While the list is closed both say no, so that who asks
//! it for memory need not ask for the reason: a thread that builds constants only. Guarded by the GIL.
#![allow(unsafe_code)]

#[cfg(not(any(Py_GIL_DISABLED, py_sys_config = "Py_TRACE_REFS")))]
mod list {
    use std::ptr;

    use crate::node::value::ValueObject;

    /// More than this are given back to the interpreter.
    const MOST: usize = 1024;
    /// The number of objects that a closed list pretends to have.
    const CLOSED: usize = MOST + 1;

    /// The objects, from place 1 on. Place 0 and place `CLOSED` hold null.
    static mut OBJECTS: [*mut ValueObject; MOST + 2] = [ptr::null_mut(); MOST + 2];
    /// How many there are, or `CLOSED`.
    static mut N: usize = 0;
    /// How many there are while the list is closed.
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

    /// Takes the first object from the list and brings it to life, with one reference; its `owner` is to be set.
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

    /// Keeps the memory of a dead object; `false` if there is no place.
    ///
    /// # Safety
    /// The GIL is held; `object` is dead, of the exact type and without weak references.
    #[inline(always)]
    pub unsafe fn give(object: *mut ValueObject) -> bool {
        // SAFETY: as in `take`; the place is below `CLOSED`.
        unsafe {
            // Volatile, so that what the caller asks first is decided by a jump before this is read: two instructions less.
            let n = (&raw const N).read_volatile();
            if n >= MOST {
                return false;
            }
            N = n + 1;
            *(&raw mut OBJECTS).cast::<*mut ValueObject>().add(n + 1) = object;
            true
        }
    }

    /// Closes the list: `first` finds nothing, `give` keeps nothing.
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

    /// As `first` and `take` together, also where the list is closed.
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

    /// As `give`, also where the list is closed.
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

/// Where there is no GIL, or the interpreter wants to know every object, nothing is kept.
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
