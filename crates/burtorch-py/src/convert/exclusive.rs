//! A cell with a flag: exclusive access for one call at a time, or shared access for several.
//!
//! Promises: an access during another exclusive one, from another thread or from a callback, is a `BusyError`, never a data
//! race or a second reference.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use burtorch_core::sync::{Flag, Raised, Shared};
use pyo3::prelude::*;

use crate::convert::errors::busy;
use crate::convert::gc::{HoldsObjects, Visitor};

/// The content of a Python object that calls may change.
pub struct Guarded<T> {
    /// Set while a call has access, also without a GIL.
    in_use: Flag,
    content: UnsafeCell<T>,
    /// The noun for messages.
    what: &'static str,
}

// SAFETY: `in_use` gives access to one thread at a time, or to several that only read.
unsafe impl<T: Send + Sync> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Guards `content`; `what` is its plural noun for messages: "these parameters".
    pub fn new(content: T, what: &'static str) -> Self {
        Guarded { in_use: Flag::new(), content: UnsafeCell::new(content), what }
    }

    /// Exclusive access until the guard is dropped.
    pub fn enter(&self, py: Python<'_>) -> PyResult<Entered<'_, T>> {
        match self.in_use.raise() {
            Some(in_use) => Ok(Entered { _in_use: in_use, content: &self.content }),
            None => Err(busy(py, self.what)),
        }
    }

    /// Access for reading until the guard is dropped; others may read meanwhile.
    pub fn look(&self, py: Python<'_>) -> PyResult<Looking<'_, T>> {
        match self.in_use.share() {
            Some(in_use) => Ok(Looking { _in_use: in_use, content: &self.content }),
            None => Err(busy(py, self.what)),
        }
    }

    /// Runs `f` with exclusive access.
    #[inline]
    pub fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        let mut entered = self.enter(py)?;
        Ok(f(&mut entered))
    }
}

/// During a call with exclusive access the object is in use, so references that are not visited do no harm.
impl<T: HoldsObjects> HoldsObjects for Guarded<T> {
    fn visit(&self, visit: &mut Visitor<'_>) {
        if let Some(_in_use) = self.in_use.share() {
            // SAFETY: the flag grants shared access.
            unsafe { &*self.content.get() }.visit(visit);
        }
    }
}

/// Shared access to the content of a [`Guarded`].
pub struct Looking<'a, T> {
    _in_use: Shared<'a>,
    content: &'a UnsafeCell<T>,
}

impl<T> Deref for Looking<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while this exists, no call has exclusive access.
        unsafe { &*self.content.get() }
    }
}

/// Exclusive access to the content of a [`Guarded`].
pub struct Entered<'a, T> {
    _in_use: Raised<'a>,
    content: &'a UnsafeCell<T>,
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the flag was clear when this was created and is set while it lives, so no other call accesses the
        // content.
        unsafe { &*self.content.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.content.get() }
    }
}
