//! Reserved regions: a graph's columns reserve memory after its nodes for its branches, which are then joined without
//! copying.
//!
//! Promises: a region belongs to one branch until it is dropped; until then the graph appends nothing there, but moves
//! if it has to grow; a branch that outgrows its region moves to separate memory; the memory is freed when neither the
//! graph nor any branch uses it. The borrow checker cannot ensure this, because a branch may outlive its graph.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::Columns;
use crate::error::{Error, Result};
use crate::graph::memory::{Column, Origin};
use crate::memory::list_for;
use crate::ops::Op;
use crate::scalar::Scalar;
use crate::sync::TryArc;

/// Columns shared by a graph and its branches.
#[derive(Debug)]
struct Whole<S: Scalar> {
    ops: Column<Op>,
    operands: Column<[u32; 2]>,
    values: Column<S>,
    adjoints: Column<S>,
    cap: u32,
}

/// A part of shared columns.
#[derive(Debug)]
pub(super) struct ReservedRegion<S: Scalar> {
    whole: TryArc<Whole<S>>,
    /// The first entry: 0 for the graph that reserves the region.
    start: u32,
}

impl<S: Scalar> Whole<S> {
    /// Columns over `cap` entries from `start`, of which `once_filled` were initialised before.
    ///
    /// # Safety
    /// No other part overlaps these entries while the result exists.
    unsafe fn part(whole: TryArc<Self>, start: u32, cap: u32, once_filled: u32) -> Columns<S> {
        fn from<T: Copy>(column: &Column<T>, start: u32, cap: u32) -> Column<T> {
            debug_assert!(start as usize + cap as usize <= column.capacity());
            // SAFETY: the entries are within the column, and by the contract above no other part overlaps them.
            unsafe { Column::foreign(NonNull::new_unchecked(column.ptr().add(start as usize)), cap as usize) }
        }
        let columns = &*whole;
        let mut part = Columns::over(
            from(&columns.ops, start, cap),
            from(&columns.operands, start, cap),
            from(&columns.values, start, cap),
            from(&columns.adjoints, start, cap),
        );
        part.origin = Origin::Growing;
        part.once_filled = once_filled;
        part.place = Some(ReservedRegion { whole, start });
        part
    }
}

impl<S: Scalar> Columns<S> {
    /// Reserves consecutive regions of these sizes for branches after the last node. Until they are dropped or joined,
    /// this graph cannot grow in place. `None` if the graph does not own its memory.
    pub(in crate::graph) fn reserve_regions(&mut self, sizes: &[u32]) -> Result<Option<Vec<Self>>> {
        self.take_back();
        if self.origin != Origin::Growing || self.place.is_some() {
            return Ok(None);
        }
        let n = sizes.iter().map(|&size| u64::from(size)).sum::<u64>();
        self.reserve(u32::try_from(n).map_err(|_| Error::IndexExhausted { limit: self.limit })?)?;
        let mut places = list_for(sizes.len(), "places of branches")?;
        let (len, once_filled) = (self.len, self.once_filled);
        let whole = self.share()?;
        let mut start = len;
        for &size in sizes {
            let filled = once_filled.saturating_sub(start).min(size);
            // SAFETY: all regions fit behind `len` and do not overlap; this graph's part ends at `len`.
            places.push(unsafe { Whole::part(whole.share(), start, size, filled) });
            start += size;
        }
        Ok(Some(places))
    }

    /// Makes the memory shareable; these columns then end with the last node.
    fn share(&mut self) -> Result<TryArc<Whole<S>>> {
        let take = Whole {
            ops: std::mem::replace(&mut self.ops, Column::empty()),
            operands: std::mem::replace(&mut self.operands, Column::empty()),
            values: std::mem::replace(&mut self.values, Column::empty()),
            adjoints: std::mem::replace(&mut self.adjoints, Column::empty()),
            cap: self.cap,
        };
        match TryArc::new(take) {
            Ok(whole) => {
                // SAFETY: no other part exists yet.
                let mut own = unsafe { Whole::part(whole.share(), 0, self.len, self.once_filled.min(self.len)) };
                own.take_settings(self);
                own.len = self.len;
                // The memory has moved to `whole`, so this drops nothing.
                *self = own;
                Ok(whole)
            }
            Err(whole) => {
                self.own(whole);
                Err(Error::OutOfMemory { bytes: size_of::<Whole<S>>(), what: "places of branches" })
            }
        }
    }

    fn own(&mut self, whole: Whole<S>) {
        let Whole { ops, operands, values, adjoints, cap } = whole;
        (self.ops, self.operands, self.values, self.adjoints, self.cap) = (ops, operands, values, adjoints, cap);
        self.set_recording(self.recording);
    }

    fn take_settings(&mut self, other: &Self) {
        (self.limit, self.pause) = (other.limit, other.pause);
        self.set_recording(other.recording);
    }

    /// Whether these are all the reserved regions, in order, each full.
    pub(in crate::graph) fn are_back<'a>(&self, places: impl Iterator<Item = &'a Self>) -> bool {
        let (mut n_nodes, mut n_places) = (0, 0);
        for columns in places {
            if !self.is_next(n_nodes, columns) {
                return false;
            }
            n_nodes += columns.len;
            n_places += 1;
        }
        self.place.as_ref().is_some_and(|place| place.whole.n_owners() == n_places + 1)
    }

    /// Whether this is the full region `n` nodes after the last one.
    fn is_next(&self, n: u32, columns: &Self) -> bool {
        let (Some(own), Some(other)) = (&self.place, &columns.place) else { return false };
        own.start == 0 && other.whole.is(&own.whole) && other.start == self.len + n && columns.len == columns.cap
    }

    /// Takes the reserved region back if no branch uses it. Returns whether it did.
    pub(in crate::graph) fn take_back(&mut self) -> bool {
        let Some(place) = self.place.take_if(|place| place.start == 0) else { return false };
        match place.whole.take() {
            Ok(whole) => {
                self.own(whole);
                true
            }
            Err(whole) => {
                self.place = Some(ReservedRegion { whole, start: 0 });
                false
            }
        }
    }

    /// Moves to memory that is not shared, with room for `cap` nodes.
    pub(in crate::graph) fn leave(&mut self, cap: u32) -> Result<()> {
        let mut own = Self::new(self.origin, self.limit);
        own.preallocate(cap.max(self.len))?;
        let n = self.len as usize;
        // SAFETY: each new column has room for all nodes, and the old columns hold them.
        unsafe {
            own.ops.ptr().copy_from_nonoverlapping(self.ops.ptr(), n);
            own.operands.ptr().copy_from_nonoverlapping(self.operands.ptr(), n);
            own.values.ptr().copy_from_nonoverlapping(self.values.ptr(), n);
            own.adjoints.ptr().copy_from_nonoverlapping(self.adjoints.ptr(), n);
        }
        (own.len, own.once_filled) = (self.len, self.len);
        own.take_settings(self);
        *self = own;
        Ok(())
    }

    /// Turns the nodes of all reserved regions into nodes of this graph; their columns are empty afterwards. Returns
    /// `false`, unchanged, if these are not [all of them](Columns::are_back).
    pub(in crate::graph) fn take_in<'a>(&mut self, places: impl Iterator<Item = &'a mut Self>) -> bool {
        let mut n = 0;
        let mut are_back = true;
        for columns in places {
            are_back = are_back && self.is_next(n, columns);
            n += columns.len;
            *columns = Columns::new(Origin::Growing, u32::MAX);
        }
        are_back = are_back && self.take_back();
        if are_back {
            // SAFETY: the regions were consecutive from the last node on, and each was initialised in every column.
            unsafe { self.adopt(n) }
        }
        are_back
    }

    /// Whether some of this memory is, or may be, part of another graph.
    pub(in crate::graph) fn is_shared(&self) -> bool {
        self.place.is_some()
    }

    /// The nodes, for changing their operands.
    pub(in crate::graph) fn nodes_mut(&mut self) -> (&[Op], &mut [[u32; 2]]) {
        let len = self.len as usize;
        // SAFETY: entries below `len` are initialised; `&mut self` makes the access exclusive, and the columns do not
        // overlap.
        unsafe {
            (std::slice::from_raw_parts(self.ops.ptr(), len), std::slice::from_raw_parts_mut(self.operands.ptr(), len))
        }
    }
}
