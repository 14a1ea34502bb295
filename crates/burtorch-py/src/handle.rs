//! Live handles: which nodes Python still holds, so that reclaim knows what is alive and can renumber it.
//!
//! Promises: every living Value, Vector and mark of a graph is in its list exactly once, and knows its place there;
//! adding and removing take constant time. Guarded by the interpreter lock, like everything a handle is part of.
#![allow(unsafe_code)]

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
        Handle { start, len, epoch, slot: u32::MAX }
    }

    /// Makes the handle stale for ever: no graph has a node with this index.
    pub fn kill(&mut self) {
        self.start = u32::MAX;
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
    /// Adds a handle. `false` if there is no memory for its entry; then nothing has changed.
    ///
    /// # Safety
    /// `handle` stays where it is, and valid, until it is removed.
    #[inline(always)]
    pub unsafe fn add(&mut self, handle: *mut Handle) -> bool {
        if self.list.len() == self.list.capacity() && !self.grow() {
            return false;
        }
        // SAFETY: valid by the contract of this function.
        unsafe { (*handle).slot = self.list.len() as u32 }
        self.list.push(handle);
        true
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        self.list.try_reserve(self.list.len().max(64)).is_ok()
    }

    /// Removes a handle; the last one takes its place. Does nothing for a handle that was never added.
    ///
    /// # Safety
    /// `handle` is valid.
    #[inline(always)]
    pub unsafe fn remove(&mut self, handle: *mut Handle) {
        // SAFETY: valid by the contract of this function; the others in the list by that of `add`.
        unsafe {
            let slot = (*handle).slot as usize;
            if self.list.get(slot) != Some(&handle) {
                return;
            }
            self.list.swap_remove(slot);
            if let Some(&moved) = self.list.get(slot) {
                (*moved).slot = slot as u32;
            }
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
