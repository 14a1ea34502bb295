//! A value with several owners: freed by the last of them. As `Arc`, but a failed allocation is an error.
//!
//! Promises: the only remaining owner sees the writes of the others before they dropped it.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::primitives::{AtomicUsize, Ordering};

/// A shared owner of a `T`.
#[derive(Debug)]
pub(crate) struct TryArc<T>(NonNull<Inner<T>>);

#[derive(Debug)]
struct Inner<T> {
    n_owners: AtomicUsize,
    content: T,
}

// SAFETY: as for `Arc`: any owner may be the last one, on its thread, and owners share the content.
unsafe impl<T: Send + Sync> Send for TryArc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for TryArc<T> {}

impl<T> TryArc<T> {
    /// The only owner of `content`, which is returned if there is no memory.
    pub(crate) fn new(content: T) -> Result<Self, T> {
        // A vector's allocation can fail without aborting.
        let mut room = Vec::new();
        if room.try_reserve_exact(1).is_err() {
            return Err(content);
        }
        room.push(Inner { n_owners: AtomicUsize::new(1), content });
        Ok(TryArc(NonNull::from(Box::leak(room.into_boxed_slice())).cast()))
    }

    /// Another owner.
    pub(crate) fn share(&self) -> Self {
        // Relaxed: the caller is an owner, so the content stays.
        self.inner().n_owners.fetch_add(1, Ordering::Relaxed);
        TryArc(self.0)
    }

    /// The number of owners. If it is one, it stays so, and earlier owners' accesses are visible.
    pub(crate) fn n_owners(&self) -> usize {
        self.inner().n_owners.load(Ordering::Acquire)
    }

    /// Whether both own the same content.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// The content, if this is the only owner.
    pub(crate) fn take(self) -> Result<T, Self> {
        if self.n_owners() > 1 {
            return Err(self);
        }
        // SAFETY: the only owner, which is not dropped below.
        let content = unsafe { into_content(self.0) };
        std::mem::forget(self);
        Ok(content)
    }

    fn inner(&self) -> &Inner<T> {
        // SAFETY: owned content exists.
        unsafe { self.0.as_ref() }
    }
}

/// # Safety
/// The pointer of the last owner, which is not used again.
unsafe fn into_content<T>(inner: NonNull<Inner<T>>) -> T {
    let slice = NonNull::slice_from_raw_parts(inner, 1);
    // SAFETY: `new` leaked a boxed slice of one.
    let content = unsafe { Box::from_raw(slice.as_ptr()) };
    let mut content = content.into_vec();
    match content.pop() {
        Some(inner) => inner.content,
        None => unreachable!("a slice of one"),
    }
}

impl<T> std::ops::Deref for TryArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner().content
    }
}

impl<T> Drop for TryArc<T> {
    fn drop(&mut self) {
        // Release for the last owner. Acquire: the last owner sees the others' accesses.
        if self.inner().n_owners.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: this was the last owner.
            drop(unsafe { into_content(self.0) });
        }
    }
}
