//! For test builds: an allocator that fails on request. A wheel does not contain it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use burtorch_core::memory::is_reserve_out;
use pyo3::prelude::*;

/// Allocations until one fails; `usize::MAX` for never.
static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Whether all later ones fail, too.
static REST: AtomicBool = AtomicBool::new(false);
static N_REFUSED: AtomicUsize = AtomicUsize::new(0);

struct Refusing;

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

fn is_refused() -> bool {
    // Emergency reserves are not limited: their size is not modelled.
    if LEFT.load(Relaxed) == usize::MAX || is_reserve_out() {
        return false;
    }
    let after = |left| match left {
        usize::MAX => None,
        0 => Some(if REST.load(Relaxed) { 0 } else { usize::MAX }),
        left => Some(left - 1),
    };
    let is_refused = LEFT.fetch_update(Relaxed, Relaxed, after) == Ok(0);
    N_REFUSED.fetch_add(usize::from(is_refused), Relaxed);
    is_refused
}

// SAFETY: allocations that are not refused are passed to the system's allocator.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the contract of this method.
        if is_refused() { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the contract of this method.
        if is_refused() { std::ptr::null_mut() } else { unsafe { System.alloc_zeroed(layout) } }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by the contract of this method.
        if is_refused() { std::ptr::null_mut() } else { unsafe { System.realloc(start, layout, size) } }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: by the contract of this method.
        unsafe { System.dealloc(start, layout) }
    }
}

/// Refuses the allocation after the next ``n``, and with ``rest`` all later ones; without ``n`` stops refusing. Returns
/// the number of refusals since the last call.
#[pyfunction]
#[pyo3(signature = (n = None, rest = false, /))]
fn _refuse(n: Option<usize>, rest: bool) -> usize {
    REST.store(rest, Relaxed);
    LEFT.store(n.unwrap_or(usize::MAX), Relaxed);
    N_REFUSED.swap(0, Relaxed)
}

/// Adds the function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_refuse, m)?)
}
