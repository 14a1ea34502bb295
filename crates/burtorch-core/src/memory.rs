//! Allocations that may fail: lists that grow or return an error, and a handler for failures inside lists of the standard
//! library.
//!
//! Promises: the functions for lists change nothing when they fail. After `unwind_refusals` every other failure unwinds with a
//! text that begins with `REFUSED`, and the process continues. Does not know the purpose of the memory.

use std::alloc::{Layout, alloc, dealloc, set_alloc_error_hook};
use std::hint::black_box;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::error::{Error, Result};

/// An empty list with room for `n` entries.
pub fn list_for<T>(n: usize, what: &'static str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    reserve_in(&mut list, n, what)?;
    Ok(list)
}

/// Makes room for `n` more entries.
pub fn reserve_in<T>(list: &mut Vec<T>, n: usize, what: &'static str) -> Result<()> {
    list.try_reserve(n).map_err(|_| refused::<T>(n, what))
}

/// A list of `n` times the same entry.
pub fn filled<T: Clone>(entry: T, n: usize, what: &'static str) -> Result<Vec<T>> {
    let mut list = list_for(n, what)?;
    // Copies of what is there already are faster than entries one by one; pieces stay in the first-level cache.
    list.resize(n.min(64), entry);
    while list.len() < n {
        let piece = (n - list.len()).min(list.len()).min(1 << 11);
        list.extend_from_within(..piece);
    }
    Ok(list)
}

/// A copy of the entries.
pub fn copied<T: Clone>(entries: &[T], what: &'static str) -> Result<Vec<T>> {
    let mut list = list_for(entries.len(), what)?;
    list.extend_from_slice(entries);
    Ok(list)
}

/// Whether so many bytes can be allocated now. An optimiser drops an allocation that nobody looks at, and takes it to succeed.
pub fn has_room(n_bytes: usize) -> bool {
    black_box(list_for::<u8>(n_bytes, "a question")).is_ok()
}

/// The error for `n` entries that there is no memory for.
pub fn refused<T>(n: usize, what: &'static str) -> Error {
    Error::OutOfMemory { bytes: n.saturating_mul(size_of::<T>()), what }
}

/// How the text of a refusal that unwinds begins.
pub const REFUSED: &str = "out of memory: ";

/// Enough for unwinding, for the error and for its text.
const RESERVE: Layout = match Layout::from_size_align(1 << 16, 16) {
    Ok(layout) => layout,
    Err(_) => Layout::new::<u128>(),
};

/// Memory that is given back to the allocator when it refuses some: unwinding needs a little itself. Null while it is out.
static KEPT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// From now on a refusal unwinds instead of ending the process, for every list of the program that this is a part of.
pub fn unwind_refusals() {
    keep_reserve();
    set_alloc_error_hook(unwind);
}

/// Keeps memory for the next refusal again, if there is any. To be called when an error has been made of the last one.
#[allow(unsafe_code)]
pub fn keep_reserve() {
    if is_reserve_out() {
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc(RESERVE) };
        let before = KEPT.swap(start, Ordering::AcqRel);
        give_back(before);
    }
}

/// Whether a refusal is on its way.
pub fn is_reserve_out() -> bool {
    KEPT.load(Ordering::Relaxed).is_null()
}

#[allow(unsafe_code)]
fn give_back(start: *mut u8) {
    if !start.is_null() {
        // SAFETY: it came from `alloc` with this layout, and the swap that took it out made it this caller's alone.
        unsafe { dealloc(start, RESERVE) }
    }
}

fn unwind(layout: Layout) {
    give_back(KEPT.swap(std::ptr::null_mut(), Ordering::AcqRel));
    let n = layout.size();
    // Without the hook for panics, which would print.
    resume_unwind(Box::new(format!("{REFUSED}{n} bytes were refused; free memory or use smaller sizes")))
}
