//! Columns as they are read and overwritten: single nodes, and whole columns as slices.
#![allow(unsafe_code)]

use super::Columns;
use crate::ops::Op;
use crate::scalar::Scalar;

/// The columns that a sweep only reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded<'a, S> {
    pub(crate) ops: &'a [Op],
    pub(crate) operands: &'a [[u32; 2]],
    pub(crate) values: &'a [S],
}

impl<S: Scalar> Columns<S> {
    #[inline(always)]
    pub(crate) fn op(&self, at: u32) -> Op {
        self.ops()[at as usize]
    }

    #[inline(always)]
    pub(crate) fn operands(&self, at: u32) -> [u32; 2] {
        self.all_operands()[at as usize]
    }

    #[inline(always)]
    pub(crate) fn value(&self, at: u32) -> S {
        self.values()[at as usize]
    }

    /// The value of an existing node.
    ///
    /// # Safety
    /// `at` is a node of this graph.
    #[inline(always)]
    pub(crate) unsafe fn value_unchecked(&self, at: u32) -> S {
        debug_assert!(at < self.len);
        // SAFETY: by the contract of this function; entries below `len` are initialised.
        unsafe { *self.values.ptr().add(at as usize) }
    }

    #[inline(always)]
    pub(crate) fn set_value(&mut self, at: u32, value: S) {
        self.values_mut()[at as usize] = value;
    }

    #[inline(always)]
    pub(crate) fn adjoint(&self, at: u32) -> S {
        self.adjoints()[at as usize]
    }

    #[inline(always)]
    pub(crate) fn set_adjoint(&mut self, at: u32, adjoint: S) {
        self.split_for_sweep().1[at as usize] = adjoint;
    }

    pub(crate) fn ops(&self) -> &[Op] {
        // SAFETY: entries below `len` are initialised.
        unsafe { std::slice::from_raw_parts(self.ops.ptr(), self.len as usize) }
    }

    pub(crate) fn all_operands(&self) -> &[[u32; 2]] {
        // SAFETY: entries below `len` are initialised.
        unsafe { std::slice::from_raw_parts(self.operands.ptr(), self.len as usize) }
    }

    #[inline(always)]
    pub(crate) fn values(&self) -> &[S] {
        // SAFETY: entries below `len` are initialised.
        unsafe { std::slice::from_raw_parts(self.values.ptr(), self.len as usize) }
    }

    #[inline(always)]
    pub(crate) fn values_mut(&mut self) -> &mut [S] {
        // SAFETY: entries below `len` are initialised; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.values.ptr(), self.len as usize) }
    }

    pub(crate) fn adjoints(&self) -> &[S] {
        // SAFETY: entries below `len` are initialised.
        unsafe { std::slice::from_raw_parts(self.adjoints.ptr(), self.len as usize) }
    }

    /// The columns that a backward pass reads, and the adjoints that it writes.
    #[inline(always)]
    pub(crate) fn split_for_sweep(&mut self) -> (Recorded<'_, S>, &mut [S]) {
        let len = self.len as usize;
        // SAFETY: entries below `len` are initialised, and the adjoint column is separate memory.
        let adjoints = unsafe { std::slice::from_raw_parts_mut(self.adjoints.ptr(), len) };
        (
            // SAFETY: as above.
            unsafe {
                Recorded {
                    ops: std::slice::from_raw_parts(self.ops.ptr(), len),
                    operands: std::slice::from_raw_parts(self.operands.ptr(), len),
                    values: std::slice::from_raw_parts(self.values.ptr(), len),
                }
            },
            adjoints,
        )
    }

    /// The columns that a backward pass reads.
    pub(crate) fn recorded(&self) -> Recorded<'_, S> {
        Recorded { ops: self.ops(), operands: self.all_operands(), values: self.values() }
    }
}
