//! Live handles: the nodes that Python holds, so that reclaim knows which nodes are alive and can renumber them.
//!
//! Promises: every living Value and Vector of a graph is in one of its lists, by age; adding and removing are a few stores, and
//! a whole list ages at once. Guarded by the GIL, like everything that contains a handle.
#![allow(unsafe_code)]

use std::ptr;

use burtorch_core::graph::UNEVALUATED;
use burtorch_core::{NodeId, Range};

/// A place in a circular list.
#[derive(Debug)]
struct Link {
    /// Null in a handle that has never been in a list.
    before: *mut Link,
    after: *mut Link,
}

/// The nodes of one Python object.
// The link comes first, so that a link in a list is a handle.
#[derive(Debug)]
#[repr(C)]
pub struct Handle {
    link: Link,
    /// The last epoch in which `start` was known to be right.
    pub epoch: u64,
    /// First node.
    pub start: u32,
    /// Number of nodes of a run of a Vector; 0 marks the single node of a Value.
    len: u32,
}

impl Handle {
    /// The handle of a Value, in no list yet.
    #[inline(always)]
    pub const fn of_value(start: u32, epoch: u64) -> Self {
        Handle { link: Link { before: ptr::null_mut(), after: ptr::null_mut() }, epoch, start, len: 0 }
    }

    /// The handle of a run of a Vector, in no list yet.
    pub const fn of_run(run: Range, epoch: u64) -> Self {
        debug_assert!(!run.is_empty());
        Handle { len: run.len() as u32, ..Handle::of_value(run.first().index(), epoch) }
    }

    /// Whether this is part of a `ValueObject`.
    #[inline(always)]
    pub const fn is_of_value(&self) -> bool {
        self.len == 0
    }

    /// The nodes.
    #[inline(always)]
    pub fn range(&self) -> Range {
        Range::new(NodeId::from_index(self.start), self.len.max(1))
    }

    /// The last node: if it still exists, so do the others.
    #[inline(always)]
    pub fn last(&self) -> u32 {
        self.start.saturating_add(self.len.saturating_sub(1))
    }

    /// Makes the handle stale for ever: no graph has a node with this index, or this epoch. The "not evaluated" bit
    /// is clear.
    pub fn kill(&mut self) {
        (self.start, self.epoch) = (u32::MAX, !UNEVALUATED);
    }
}

/// The handles of one graph, by the number of reclaims they have survived.
#[derive(Debug)]
pub struct LiveHandles {
    /// Handles that no reclaim has examined.
    new: List,
    /// Handles that one reclaim has examined.
    young: List,
    /// Handles that several reclaims, or a full one, have examined.
    old: List,
    /// A dead handle in one of the lists, the last one before those reported by `unseen`: the lists are in order,
    /// newest first. Null if none were reported.
    seen: *mut Handle,
}

// SAFETY: the pointers are only dereferenced under the GIL, or with exclusive access to the graph.
unsafe impl Send for LiveHandles {}

// SAFETY: as above: a handle that moves to another thread is not in a list yet, or moves with its object.
unsafe impl Send for Handle {}

impl Default for LiveHandles {
    fn default() -> Self {
        LiveHandles { new: List::new(), young: List::new(), old: List::new(), seen: ptr::null_mut() }
    }
}

impl LiveHandles {
    /// Adds a new handle.
    ///
    /// # Safety
    /// `handle` stays at its address and valid until it is removed; it is in no list.
    #[inline(always)]
    pub unsafe fn add(&mut self, handle: *mut Handle) {
        debug_assert!(!handle.is_null());
        let head = self.new.head;
        // SAFETY: by the contract of this function; members of a list are valid.
        unsafe {
            let first = (*head).after;
            (*handle).link.before = head;
            (*handle).link.after = first;
            (*first).before = handle.cast();
            (*head).after = handle.cast();
        }
    }

    /// All handles, possibly including a dead one without an object. Nothing may be added meanwhile, and only the last one
    /// that was returned may be removed.
    pub fn all(&self) -> impl Iterator<Item = *mut Handle> + use<> {
        self.new.handles().chain(self.young.handles()).chain(self.old.handles())
    }

    /// Calls `f` with every handle that was added since [`LiveHandles::set_seen`], the newest first.
    pub fn for_each_unseen(&self, mut f: impl FnMut(&mut Handle)) {
        let all = [&self.new, &self.young, &self.old].into_iter().flat_map(List::handles);
        // SAFETY: as in `List::for_each`.
        all.take_while(|&handle| handle != self.seen).for_each(|handle| f(unsafe { &mut *handle }));
    }

    /// Marks all present handles as seen.
    pub fn set_seen(&mut self) {
        self.forget_seen();
        let mut seen = Box::new(Handle::of_value(0, 0));
        seen.kill();
        self.seen = Box::into_raw(seen);
        // SAFETY: new memory, which is freed after removal from its list.
        unsafe { self.add(self.seen) }
    }

    /// Marks all handles as unseen.
    pub fn forget_seen(&mut self) {
        let seen = std::mem::replace(&mut self.seen, ptr::null_mut());
        if !seen.is_null() {
            // SAFETY: from a box, and in a list since then.
            unsafe {
                unlink(seen);
                drop(Box::from_raw(seen));
            }
        }
    }

    /// Calls `f` with every handle, possibly including a dead one without an object.
    pub fn for_each(&self, mut f: impl FnMut(&mut Handle)) {
        self.for_each_not_old(&mut f);
        self.old.for_each(&mut f);
    }

    /// Calls `f` with every handle that is not old.
    pub fn for_each_not_old(&self, mut f: impl FnMut(&mut Handle)) {
        self.new.for_each(&mut f);
        self.young.for_each(&mut f);
    }

    /// Another reclaim: the young become old, and the new become young. Constant time.
    pub fn grow_older(&mut self) {
        self.young.move_to(&mut self.old);
        self.new.move_to(&mut self.young);
    }

    /// A reclaim that examined all nodes: all become old.
    pub fn grow_old(&mut self) {
        self.grow_older();
        self.grow_older();
    }

    /// The number of live handles. Linear time.
    pub fn len(&self) -> usize {
        let mut n = 0;
        self.for_each(|_| n += 1);
        n - usize::from(!self.seen.is_null())
    }
}

impl Drop for LiveHandles {
    fn drop(&mut self) {
        self.forget_seen();
    }
}

/// Takes a handle out of its list. The handle does not record this: it is about to be dropped, or added to another list.
///
/// # Safety
/// `handle` is valid and in a list.
#[inline(always)]
pub unsafe fn unlink(handle: *mut Handle) {
    // SAFETY: by the contract of this function; neighbours in a list are valid.
    unsafe {
        debug_assert!(!(*handle).link.before.is_null());
        let Link { before, after } = (*handle).link;
        (*before).after = after;
        (*after).before = before;
    }
}

/// Makes a handle a list by itself, from which it may be removed.
///
/// # Safety
/// `handle` is valid and in no list.
pub unsafe fn link_alone(handle: *mut Handle) {
    debug_assert!(!handle.is_null());
    // SAFETY: by the contract of this function.
    unsafe { (*handle).link = Link { before: handle.cast(), after: handle.cast() } };
}

/// A circular list; its head is not a handle.
#[derive(Debug)]
struct List {
    /// From a box, so that its address is fixed.
    head: *mut Link,
}

impl List {
    fn new() -> Self {
        let head = Box::into_raw(Box::new(Link { before: ptr::null_mut(), after: ptr::null_mut() }));
        // SAFETY: new memory that is not shared.
        unsafe { ((*head).before, (*head).after) = (head, head) };
        List { head }
    }

    /// Moves all handles to another list.
    fn move_to(&mut self, other: &mut List) {
        let (from, to) = (self.head, other.head);
        // SAFETY: the heads live as long as the lists, and list members are valid.
        unsafe {
            let (first, last) = ((*from).after, (*from).before);
            if first == from {
                return;
            }
            let next = (*to).after;
            ((*to).after, (*first).before) = (first, to);
            ((*last).after, (*next).before) = (next, last);
            ((*from).after, (*from).before) = (from, from);
        }
    }

    fn for_each(&self, mut f: impl FnMut(&mut Handle)) {
        // SAFETY: a handle is valid while in the list; no other reference to it exists under the GIL.
        self.handles().for_each(|handle| f(unsafe { &mut *handle }));
    }

    /// The handles in order. The list must not change during the iteration.
    fn handles(&self) -> impl Iterator<Item = *mut Handle> + use<> {
        let head = self.head;
        // SAFETY: the head lives as long as the list.
        let mut at = unsafe { (*head).after };
        std::iter::from_fn(move || {
            (at != head).then(|| {
                let handle = at.cast::<Handle>();
                // SAFETY: every link but the head is the first field of a handle, valid while in the list.
                at = unsafe { (*at).after };
                handle
            })
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: from a box. Objects with handles own their graph, so the list is empty when the graph is dropped; a
        // branch whose handles have moved is empty too.
        unsafe {
            debug_assert!((*self.head).after == self.head);
            drop(Box::from_raw(self.head));
        }
    }
}
