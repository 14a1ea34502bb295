//! The allocator of this binary: the system's, which counts the calls of each thread and refuses one where a test wants that.
//! By thread, as the harness and other tests allocate when they like.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    /// Allocations until one is refused; `u64::MAX` for never.
    static UNTIL: Cell<u64> = const { Cell::new(u64::MAX) };
}

struct Watched;

/// Calls of the allocator by this thread.
pub fn calls() -> u64 {
    CALLS.get()
}

/// This thread's allocations are granted `n` times, and then refused once; `u64::MAX` for never.
pub fn refuse_after(n: u64) {
    UNTIL.set(n);
}

/// From here on none is refused. Returns how many were still to be granted, `u64::MAX` if one was refused.
pub fn refuse_no_more() -> u64 {
    UNTIL.replace(u64::MAX)
}

fn count() {
    CALLS.set(CALLS.get() + 1);
}

fn is_refused() -> bool {
    match UNTIL.get() {
        u64::MAX => false,
        n => {
            UNTIL.set(if n == 0 { u64::MAX } else { n - 1 });
            n == 0
        }
    }
}

// SAFETY: allocations that are not refused are passed to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: by the contract of this method.
        if is_refused() { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count();
        // SAFETY: by the contract of this method.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: by the contract of this method.
        if is_refused() { std::ptr::null_mut() } else { unsafe { System.realloc(start, layout, size) } }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;
