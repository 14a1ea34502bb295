//! Allocations that may fail: lists that grow or return an error, and a handler for failures inside lists of the standard
//! library.
//!
//! Promises: the functions for lists change nothing when they fail. After `unwind_refusals` every other failure unwinds with a
//! text that begins with `REFUSED`, and the process continues. Does not know the purpose of the memory.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, set_alloc_error_hook};
use std::hint::black_box;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::error::{Error, Result};

/// An empty list with space for `n` entries.
pub fn list_for<T>(n: usize, what: &'static str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    reserve_in(&mut list, n, what)?;
    Ok(list)
}

/// Reserves `n` more entries.
pub fn reserve_in<T>(list: &mut Vec<T>, n: usize, what: &'static str) -> Result<()> {
    list.try_reserve(n).map_err(|_| refused::<T>(n, what))
}

/// A list of `n` equal entries.
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

/// Types of entries that are 0, or false, if all their bytes are 0.
///
/// # Safety
///
/// Zero bytes must be a valid entry.
#[allow(unsafe_code)]
pub unsafe trait ZeroBytes {}
macro_rules! zero_bytes {
    ($($type:ty)*) => { $(
        // SAFETY: zero bytes are the number 0, or false.
        #[allow(unsafe_code)]
        unsafe impl ZeroBytes for $type {}
    )* };
}
zero_bytes! { f64 f32 i64 bool }

/// A list of `n` entries that are 0. Pages of a long list take memory when they are first written, not here.
#[allow(unsafe_code)]
pub fn zeros<T: ZeroBytes>(n: usize, what: &'static str) -> Result<Vec<T>> {
    let layout = Layout::array::<T>(n).map_err(|_| refused::<T>(n, what))?;
    if layout.size() == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the size is above zero.
    let start = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if start.is_null() {
        return Err(refused::<T>(n, what));
    }
    // SAFETY: the allocator of lists made it for `n` entries, and zero bytes are valid ones.
    Ok(unsafe { Vec::from_raw_parts(start, n, n) })
}

/// A copy of the entries.
pub fn copied<T: Clone>(entries: &[T], what: &'static str) -> Result<Vec<T>> {
    let mut list = list_for(entries.len(), what)?;
    list.extend_from_slice(entries);
    Ok(list)
}

/// Whether this many bytes can be allocated now. An optimiser removes an unused allocation, and assumes that it succeeds.
pub fn has_room(n_bytes: usize) -> bool {
    black_box(list_for::<u8>(n_bytes, "a question")).is_ok()
}

/// The error for `n` entries that could not be allocated.
pub fn refused<T>(n: usize, what: &'static str) -> Error {
    Error::OutOfMemory { bytes: n.saturating_mul(size_of::<T>()), what }
}

/// The start of the panic text of a failed allocation.
pub const REFUSED: &str = "out of memory: ";

/// Enough for unwinding, for the error and for its text.
const RESERVE: Layout = match Layout::from_size_align(1 << 16, 16) {
    Ok(layout) => layout,
    Err(_) => Layout::new::<u128>(),
};

/// Memory that is released when an allocation fails: unwinding needs a little itself. Null while it is released.
static KEPT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// From now on a failed allocation unwinds instead of ending the process, for every list of the program.
pub fn unwind_refusals() {
    keep_reserve();
    set_alloc_error_hook(unwind);
}

/// Reserves memory for the next failure again, if there is any. Call it after the last failure has become an error.
#[allow(unsafe_code)]
pub fn keep_reserve() {
    if is_reserve_out() {
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc(RESERVE) };
        let before = KEPT.swap(start, Ordering::AcqRel);
        give_back(before);
    }
}

/// Whether a failed allocation is unwinding.
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
