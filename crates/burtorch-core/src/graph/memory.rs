//! The memory of a graph: columns that grow together without ever aborting, or that lie in the caller's memory.
//!
//! Contains raw storage only: `Column` is a pointer and a capacity. Promises: growth either succeeds or changes
//! nothing; a rewind frees nothing, so a steady state makes no heap call. Does not know ops.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::error::{Error, Result};

/// The source of a column's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The global allocator; doubles when full.
    Growing,
    /// The global allocator, never grows.
    Fixed,
    /// The caller's memory, never grows, never freed here.
    Foreign,
}

/// A typed block of memory without a length.
#[derive(Debug)]
pub(crate) struct Column<T: Copy> {
    /// Start of `cap` entries, aligned for `T`; dangling while `cap` is 0.
    start: NonNull<T>,
    /// The capacity in entries.
    cap: usize,
    /// Whether `start` came from the global allocator.
    owned: bool,
    _entries: PhantomData<T>,
}

// SAFETY: a Column owns its memory (or, when foreign, has it exclusively by the contract of `foreign`), like a Vec.
unsafe impl<T: Copy + Send> Send for Column<T> {}
// SAFETY: shared access only reads, through methods that take `&self`.
unsafe impl<T: Copy + Sync> Sync for Column<T> {}

impl<T: Copy> Column<T> {
    /// Without memory yet.
    pub(crate) const fn empty() -> Self {
        Column { start: NonNull::dangling(), cap: 0, owned: true, _entries: PhantomData }
    }

    /// Memory of the caller.
    ///
    /// # Safety
    /// `start` is aligned for `T` and valid for reads and writes of `cap` entries, with no other access, while the column lives.
    pub(crate) unsafe fn foreign(start: NonNull<T>, cap: usize) -> Self {
        debug_assert!(start.as_ptr().is_aligned());
        Column { start, cap, owned: false, _entries: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.cap
    }

    #[inline(always)]
    pub(crate) fn ptr(&self) -> *mut T {
        self.start.as_ptr()
    }

    /// Grows to `cap` entries in all, and keeps the content.
    pub(crate) fn grow(&mut self, cap: usize, what: &'static str) -> Result<()> {
        debug_assert!(self.owned);
        if cap <= self.cap {
            return Ok(());
        }
        let refused = || Error::OutOfMemory { bytes: cap.saturating_mul(size_of::<T>()), what };
        let wanted = Layout::array::<T>(cap).map_err(|_| refused())?;
        let start = if self.cap == 0 {
            // SAFETY: the layout has a size above zero, as cap > 0 and T is not zero-sized.
            unsafe { std::alloc::alloc(wanted) }
        } else {
            // SAFETY: the block was allocated with this layout, and the new size is not zero and fits, as `wanted` exists.
            unsafe { std::alloc::realloc(self.ptr().cast(), self.layout(), wanted.size()) }
        };
        self.start = NonNull::new(start.cast::<T>()).ok_or_else(refused)?;
        self.cap = cap;
        Ok(())
    }

    fn layout(&self) -> Layout {
        // The same computation succeeded when the memory was allocated.
        Layout::array::<T>(self.cap).unwrap_or(Layout::new::<T>())
    }
}

impl<T: Copy> Drop for Column<T> {
    fn drop(&mut self) {
        if self.owned && self.cap > 0 {
            // SAFETY: the block was allocated by the global allocator with this layout.
            unsafe { std::alloc::dealloc(self.ptr().cast(), self.layout()) }
        }
    }
}

/// Fills uninitialised places with copies of an entry.
pub(crate) fn fill<T: Copy>(places: &mut [MaybeUninit<T>], entry: T) -> &mut [T] {
    places.fill(MaybeUninit::new(entry));
    // SAFETY: all of them are initialised now.
    unsafe { places.assume_init_mut() }
}

/// A side array: a stack over a column, for data that only some nodes need.
#[derive(Debug)]
pub(crate) struct Stack<T: Copy> {
    column: Column<T>,
    /// Entries in use, all initialised.
    len: usize,
    origin: Origin,
    name: &'static str,
}

impl<T: Copy> Stack<T> {
    pub(crate) const fn new(name: &'static str, origin: Origin) -> Self {
        Stack { column: Column::empty(), len: 0, origin, name }
    }

    pub(crate) fn over(column: Column<T>, name: &'static str) -> Self {
        Stack { column, len: 0, origin: Origin::Foreign, name }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn capacity(&self) -> usize {
        self.column.capacity()
    }

    /// Reserves `more` entries beyond the length, whatever the origin, or returns an error.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, more: usize) -> Result<()> {
        if self.column.capacity() - self.len >= more { Ok(()) } else { self.reserve_slow(more) }
    }

    #[cold]
    #[inline(never)]
    fn reserve_slow(&mut self, more: usize) -> Result<()> {
        let need = self.len.saturating_add(more);
        // Places in side arrays are 32 bits wide.
        if need > u32::MAX as usize {
            return Err(Error::IndexExhausted { limit: u32::MAX });
        }
        if self.origin != Origin::Growing {
            return Err(Error::GraphFull { column: self.name, need, have: self.capacity() });
        }
        self.column.grow(need.max(2 * self.capacity()).clamp(64, u32::MAX as usize), self.name)
    }

    /// Space for exactly `cap` entries in all, for a stack that will not grow.
    pub(crate) fn preallocate(&mut self, cap: usize) -> Result<()> {
        self.column.grow(cap, self.name)
    }

    /// Appends without growing; call [`Stack::reserve`] first.
    #[inline(always)]
    pub(crate) fn push_reserved(&mut self, entry: T) {
        debug_assert!(self.len < self.column.capacity());
        if self.len < self.column.capacity() {
            // SAFETY: the index is below the capacity.
            unsafe { self.column.ptr().add(self.len).write(entry) }
            self.len += 1;
        }
    }

    /// Appends as many of `entries` as fit; call [`Stack::reserve`] first.
    pub(crate) fn extend_reserved(&mut self, entries: &[T]) {
        debug_assert!(entries.len() <= self.column.capacity() - self.len);
        let n = entries.len().min(self.column.capacity() - self.len);
        // SAFETY: there is room for `n` more entries, and no reference to them exists.
        unsafe { self.column.ptr().add(self.len).copy_from_nonoverlapping(entries.as_ptr(), n) }
        self.len += n;
    }

    /// Appends `n` copies of `entry`, and returns them to be overwritten.
    pub(crate) fn append_copies(&mut self, entry: T, n: usize) -> Result<&mut [T]> {
        let first = self.len;
        fill(self.spare(n)?, entry);
        // SAFETY: initialised by the line above.
        unsafe { self.adopt(n) };
        Ok(&mut self.as_mut_slice()[first..])
    }

    /// The next `n` places, uninitialised.
    pub(crate) fn spare(&mut self, n: usize) -> Result<&mut [MaybeUninit<T>]> {
        self.reserve(n)?;
        // SAFETY: there is room for `n` more entries, and `MaybeUninit` needs no initialisation; `&mut self` makes the
        // access exclusive.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.column.ptr().add(self.len).cast(), n) })
    }

    /// Turns the next `n` uninitialised places into entries.
    ///
    /// # Safety
    /// They are reserved and initialised.
    pub(crate) unsafe fn adopt(&mut self, n: usize) {
        debug_assert!(self.column.capacity() - self.len >= n);
        self.len += n;
    }

    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: the first `len` entries are initialised and owned by this stack.
        unsafe { std::slice::from_raw_parts(self.column.ptr(), self.len) }
    }

    #[inline(always)]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.column.ptr(), self.len) }
    }

    #[inline(always)]
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}
