//! Memory of a replay's slots: numbers that begin on a cache line.
//!
//! A vector stored across two cache lines reaches later loads some seven cycles later than one within a line (measured:
//! 10.7 ns from store to store against 8.5 for eight lanes, 8.8 against 6.4 for four), and in a deep program every number
//! waits for the one before. So bundles align their stores to lines, counted from here.
//!
//! Promises: the memory moves only when it is cloned. Does not know the content of slots.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

use crate::error::{Error, Result};
use crate::interrupt::{self, pieces};

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line(MaybeUninit<[u8; 64]>);

/// See the module header.
#[derive(Clone, Debug)]
pub(super) struct Slots<S> {
    lines: Vec<Line>,
    /// The number of entries, all initialised.
    len: usize,
    marker: PhantomData<S>,
}

impl<S> Default for Slots<S> {
    fn default() -> Self {
        Slots { lines: Vec::new(), len: 0, marker: PhantomData }
    }
}

impl<S: Copy> Slots<S> {
    /// `n` copies, or an error without memory.
    pub(super) fn filled(n: usize, x: S) -> Result<Self> {
        assert!(align_of::<S>() <= align_of::<Line>());
        let bytes = n.saturating_mul(size_of::<S>());
        let mut lines = Vec::new();
        let n_lines = bytes.div_ceil(size_of::<Line>());
        lines.try_reserve_exact(n_lines).map_err(|_| Error::OutOfMemory { bytes, what: "the slots of a program" })?;
        lines.resize(n_lines, Line(MaybeUninit::uninit()));
        let first = lines.as_mut_ptr().cast::<S>();
        for k in pieces(n).flatten() {
            // SAFETY: the lines are aligned for the numbers, have room for `n` of them, and are not shared.
            unsafe { first.add(k).write(x) }
        }
        interrupt::check()?;
        Ok(Slots { lines, len: n, marker: PhantomData })
    }
}

impl<S> Deref for Slots<S> {
    type Target = [S];
    #[inline(always)]
    fn deref(&self) -> &[S] {
        // SAFETY: the constructor initialised this many numbers in the lines, which are aligned for them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl<S> DerefMut for Slots<S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [S] {
        // SAFETY: as in `deref`; the lines are borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}
