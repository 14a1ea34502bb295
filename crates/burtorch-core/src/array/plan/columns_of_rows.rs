//! Rows of a chain that are columns in memory: several are gathered together, so that each line of the cache is read once.
//!
//! Promises: the numbers of [`Walk::gather`]; memory is allocated when the plan is made. Does not know what reads them.

use std::ops::Range;

use super::math::ArrayFloat;
use super::memory::room;
use super::place::{TURNED, Walk};
use crate::error::Result;

/// Numbers of a chain from which on it is worth it, of rows that are gathered as a whole, and of a row up to which some rows stay
/// in the second-level cache.
const LARGE: usize = 1 << 14;
const WHOLE: usize = 1 << 12;
const ROW: usize = 1 << 13;

/// Some rows of a stream.
#[derive(Debug)]
pub(super) struct Turned<E> {
    pub(super) stream: usize,
    numbers: Vec<E>,
    held: Range<usize>,
}

impl<E: ArrayFloat> Turned<E> {
    /// For a stream of a chain of this size, if its rows are columns.
    pub(super) fn new(stream: usize, walk: &Walk, size: usize) -> Result<Option<Self>> {
        let Some([rows, row]) = walk.turned().filter(|[_, row]| size >= LARGE && *row <= ROW) else { return Ok(None) };
        let n = if rows * row <= WHOLE { rows } else { TURNED };
        Ok(Some(Turned { stream, numbers: room(row * n)?, held: 0..0 }))
    }

    /// Forgets the numbers.
    pub(super) fn begin(&mut self) {
        self.held = 0..0;
    }

    /// Numbers from `start` on, of `size`.
    pub(super) fn gather(&mut self, walk: &Walk, from: &[E], start: usize, size: usize, to: &mut [E]) {
        let mut k = 0;
        while k < to.len() {
            if !self.held.contains(&(start + k)) {
                let first = (start + k) / self.numbers.len() * self.numbers.len();
                self.held = first..size.min(first + self.numbers.len());
                walk.gather(from, first, &mut self.numbers[..self.held.len()]);
            }
            let at = start + k - self.held.start;
            let n = (to.len() - k).min(self.held.len() - at);
            to[k..k + n].copy_from_slice(&self.numbers[at..at + n]);
            k += n;
        }
    }
}
