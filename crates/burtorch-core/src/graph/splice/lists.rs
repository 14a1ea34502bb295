//! Operand lists being copied from a joined graph to the other one.

use crate::error::{Error, Result};
use crate::graph::memory::Stack;
use crate::graph::renumber::Lists;

/// The reserved space is too small.
pub(super) struct Overflow;

/// Operand lists that are copied to a region of another graph, which has room for all of them.
pub(super) struct Region<'a> {
    pub(super) old: &'a [u32],
    pub(super) new: &'a mut [u32],
    /// The start of the region in the other graph.
    pub(super) base: usize,
    /// The length in use.
    pub(super) len: usize,
}

impl Region<'_> {
    fn extend(&mut self, numbers: &[u32]) -> std::result::Result<usize, Overflow> {
        let room = self.new.get_mut(self.len..self.len + numbers.len()).ok_or(Overflow)?;
        room.copy_from_slice(numbers);
        self.len += numbers.len();
        Ok(self.len - numbers.len())
    }
}

impl Lists for Region<'_> {
    type Refused = Overflow;

    fn old(&self) -> &[u32] {
        self.old
    }

    fn base(&self) -> usize {
        self.base
    }

    fn bring(&mut self, from: usize, n: usize) -> std::result::Result<usize, Overflow> {
        let old = self.old;
        self.extend(&old[from..from + n])
    }

    fn new_mut(&mut self) -> &mut [u32] {
        self.new
    }

    fn append(&mut self, numbers: [u32; 3]) -> std::result::Result<usize, Overflow> {
        self.extend(&numbers)
    }
}

/// Operand lists that are appended to those of another graph.
pub(super) struct Across<'a> {
    pub(super) old: &'a [u32],
    pub(super) new: &'a mut Stack<u32>,
}

impl Across<'_> {
    fn extend(&mut self, numbers: &[u32]) -> Result<usize> {
        let at = self.new.len();
        self.new.reserve(numbers.len())?;
        for &number in numbers {
            self.new.push_reserved(number);
        }
        Ok(at)
    }
}

impl Lists for Across<'_> {
    type Refused = Error;

    fn old(&self) -> &[u32] {
        self.old
    }

    fn bring(&mut self, from: usize, n: usize) -> Result<usize> {
        let old = self.old;
        self.extend(&old[from..from + n])
    }

    fn new_mut(&mut self) -> &mut [u32] {
        self.new.as_mut_slice()
    }

    fn append(&mut self, numbers: [u32; 3]) -> Result<usize> {
        self.extend(&numbers)
    }
}
