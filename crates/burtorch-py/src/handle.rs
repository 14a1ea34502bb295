//! Live handles: which nodes Python still holds, so that reclaim knows what is alive and can renumber it.
//!
//! Promises: every living Value, Vector and mark of a graph is in its list exactly once, and knows its place there;
//! adding and removing take constant time. Guarded by the interpreter lock, like everything a handle is part of.
#![allow(unsafe_code)]

use burtorch_core::graph::UNEVALUATED;

/// The slot of a handle that is in no list.
const NO_SLOT: u32 = u32::MAX;

/// The nodes that one Python object stands for.
#[derive(Debug)]
pub struct Handle {
    /// First node.
    pub start: u32,
    /// Number of nodes; 1 for a Value.
    pub len: u32,
    /// The epoch in which `start` was last known to be right.
    pub epoch: u64,
    /// This handle's place in the list of its graph.
    slot: u32,
}

impl Handle {
    /// A handle that is in no list yet.
    #[inline(always)]
    pub const fn new(start: u32, len: u32, epoch: u64) -> Self {
        Handle { start, len, epoch, slot: NO_SLOT }
    }

    /// Makes the handle stale for ever: no graph has a node with this index, or is in this epoch. The bit that would say
    /// "not evaluated" is clear.
    pub fn kill(&mut self) {
        (self.start, self.epoch) = (u32::MAX, !UNEVALUATED);
    }
}

/// The handles of one graph.
#[derive(Debug, Default)]
pub struct LiveHandles {
    /// Each points to a handle inside a living Python object, which removes itself before it goes.
    list: Vec<*mut Handle>,
}

// SAFETY: the pointers are only followed under the interpreter lock, or with exclusive access to the graph.
unsafe impl Send for LiveHandles {}

impl LiveHandles {
    /// Whether one more handle needs no memory.
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.list.len() < self.list.capacity()
    }

    /// Adds a handle. `false` if there is no memory for its entry; then nothing has changed.
    ///
    /// # Safety
    /// `handle` stays where it is, and valid, until it is removed.
    pub unsafe fn add(&mut self, handle: *mut Handle) -> bool {
        if !self.has_room() && self.list.try_reserve(self.list.len().max(64)).is_err() {
            return false;
        }
        // SAFETY: there is room, and the rest by the contract of this function.
        unsafe { self.add_reserved(handle) }
        true
    }

    /// Adds a handle where there is room.
    ///
    /// # Safety
    /// There is room; `handle` stays where it is, and valid, until it is removed.
    #[inline(always)]
    pub unsafe fn add_reserved(&mut self, handle: *mut Handle) {
        debug_assert!(self.has_room());
        let n = self.list.len();
        // SAFETY: by the contract of this function.
        unsafe {
            (*handle).slot = n as u32;
            self.list.as_mut_ptr().add(n).write(handle);
            self.list.set_len(n + 1);
        }
    }

    /// Removes a handle; the last one takes its place. Does nothing for a handle that is in no list.
    ///
    /// # Safety
    /// `handle` is valid, and in no list but this one.
    #[inline(always)]
    pub unsafe fn remove(&mut self, handle: *mut Handle) {
        // SAFETY: valid by the contract of this function; a slot other than NO_SLOT is the handle's place in this list, so
        // the list is not empty; the others in the list are valid by the contract of `add`.
        unsafe {
            let slot = (*handle).slot;
            if slot == NO_SLOT {
                return;
            }
            debug_assert!(self.list.get(slot as usize) == Some(&handle));
            let last = self.list.len() - 1;
            let entries = self.list.as_mut_ptr();
            let moved = *entries.add(last);
            *entries.add(slot as usize) = moved;
            (*moved).slot = slot;
            (*handle).slot = NO_SLOT;
            self.list.set_len(last);
        }
    }

    /// Calls `f` with every handle.
    pub fn for_each(&self, mut f: impl FnMut(&mut Handle)) {
        for &handle in &self.list {
            // SAFETY: valid while in the list; no other reference to it exists under the interpreter lock.
            f(unsafe { &mut *handle });
        }
    }

    /// How many handles are alive.
    pub fn len(&self) -> usize {
        self.list.len()
    }
}
