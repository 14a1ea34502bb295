//! One flat array of parameters: pages that the system provides on first use, or memory of the caller.
//!
//! Promises: untouched pages cost no memory; the address is stable unless `grow` is called. New memory is 0.
#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};

use crate::error::{Error, Result};
use crate::interrupt;
use crate::scalar::Float;

/// The largest page size of the architecture: advice for smaller pieces would affect memory outside the range.
const PAGE: usize = if cfg!(target_arch = "x86_64") { 1 << 12 } else { 1 << 16 };

#[derive(Debug)]
pub(crate) struct Block<E> {
    start: NonNull<E>,
    cap: usize,
    /// The mapping that owns the memory; `None` for the caller's memory and for an empty block.
    mapping: Option<MmapMut>,
    foreign: bool,
}

// SAFETY: a Block owns its memory, or has exclusive access by the contract of `foreign`, like a Vec.
unsafe impl<E: Send> Send for Block<E> {}
// SAFETY: shared access only reads.
unsafe impl<E: Sync> Sync for Block<E> {}

impl<E: Float> Block<E> {
    pub(crate) const fn empty() -> Self {
        Block { start: NonNull::dangling(), cap: 0, mapping: None, foreign: false }
    }

    /// # Safety
    /// The memory is initialised, aligned, and accessed by nothing else while the block lives.
    pub(crate) unsafe fn foreign(memory: NonNull<[E]>) -> Self {
        Block { start: memory.cast(), cap: memory.len(), mapping: None, foreign: true }
    }

    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign
    }

    pub(crate) fn capacity(&self) -> usize {
        self.cap
    }

    /// Moves to address space for `cap` numbers, keeping the first `n`. Untouched pages stay untouched.
    pub(crate) fn grow(&mut self, cap: usize, n: usize) -> Result<()> {
        if cap <= self.cap {
            return Ok(());
        }
        let bytes = cap.saturating_mul(size_of::<E>());
        let refused = || Error::OutOfMemory { bytes, what: "parameters" };
        if bytes > isize::MAX as usize {
            return Err(refused());
        }
        #[cfg(target_os = "linux")]
        if let Some(mapping) = &mut self.mapping {
            // SAFETY: no reference into the mapping exists, as `&mut self` shows. The mapping keeps its pages; new pages read
            // as zero.
            let longer = unsafe { mapping.remap(bytes, memmap2::RemapOptions::new().may_move(true)) };
            if longer.is_ok() {
                self.start = NonNull::new(mapping.as_mut_ptr().cast::<E>()).ok_or_else(refused)?;
                self.cap = cap;
                return Ok(());
            }
        }
        let mut mapping = MmapOptions::new().len(bytes).no_reserve_swap().map_anon().map_err(|_| refused())?;
        let old = self.start.cast::<u8>();
        for piece in interrupt::pieces_of(n.min(self.cap) * size_of::<E>(), interrupt::BYTES) {
            // SAFETY: the old block holds these bytes, all of them initialised.
            let from = unsafe { std::slice::from_raw_parts(old.as_ptr().add(piece.start), piece.len()) };
            for (from, to) in from.chunks(PAGE).zip(mapping[piece].chunks_mut(PAGE)) {
                if from.iter().any(|&byte| byte != 0) {
                    to.copy_from_slice(from);
                }
            }
        }
        interrupt::check()?;
        let start = NonNull::new(mapping.as_mut_ptr().cast::<E>()).ok_or_else(refused)?;
        *self = Block { start, cap, mapping: Some(mapping), foreign: false };
        Ok(())
    }

    /// Requests large pages for whole pages of a range, so that passes over it need fewer address lookups; a refusal
    /// changes nothing. This allocates no pages.
    pub(crate) fn prefer_large_pages(&self, range: Range<usize>) {
        #[cfg(target_os = "linux")]
        if let Some(mapping) = &self.mapping {
            const LARGE: usize = 1 << 21;
            let base = mapping.as_ptr() as usize;
            let from = (base + range.start * size_of::<E>()).next_multiple_of(LARGE) - base;
            let to = ((base + range.end * size_of::<E>()) / LARGE * LARGE).saturating_sub(base);
            if from < to {
                let _ = mapping.advise_range(memmap2::Advice::HugePage, from, to - from);
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }

    #[inline(always)]
    pub(crate) fn slice(&self, n: usize) -> &[E] {
        assert!(n <= self.cap);
        // SAFETY: the first `cap` numbers are initialised (zero pages, or by the contract of `foreign`).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), n) }
    }

    #[inline(always)]
    pub(crate) fn slice_mut(&mut self, n: usize) -> &mut [E] {
        assert!(n <= self.cap);
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), n) }
    }

    /// Sets a range of the first `n` numbers to zero and gives whole pages of it back to the system.
    pub(crate) fn discard(&mut self, range: Range<usize>, n: usize) {
        #[cfg(target_os = "linux")]
        if let Some(mapping) = &self.mapping {
            let from = (range.start * size_of::<E>()).next_multiple_of(PAGE);
            let to = range.end * size_of::<E>() / PAGE * PAGE;
            if from < to {
                // SAFETY: a private anonymous mapping reads as zero after this; no Rust reference into it exists,
                // because of `&mut self`. Arrays of other owners see zeros, as intended.
                let advice =
                    unsafe { mapping.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, to - from) };
                if advice.is_ok() {
                    let (head, tail) = (range.start..from / size_of::<E>(), to / size_of::<E>()..range.end);
                    self.slice_mut(n)[head].fill(E::lit(0.0));
                    self.slice_mut(n)[tail].fill(E::lit(0.0));
                    return;
                }
            }
        }
        // Writes only nonzero numbers, so that untouched pages stay untouched.
        for x in &mut self.slice_mut(n)[range] {
            if !x.all_zero() {
                *x = E::lit(0.0);
            }
        }
    }
}
