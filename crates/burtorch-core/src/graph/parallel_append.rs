//! Nodes that several threads append at once: the places behind the last node, one piece for each thread's work.
//!
//! Promises: a piece is filled before it is returned, and the graph grows only when all have been; which thread fills
//! which piece changes nothing. Does not know the meaning of the nodes.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::columns::{Columns, Spare};
use crate::error::{Error, Result};
use crate::memory::list_for;
use crate::ops::Op;
use crate::scalar::Scalar;
use crate::sync::{self, Mutex};

/// The initial content of a piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start<'a, S> {
    /// The number of nodes.
    pub(super) len: u32,
    /// The op of all of them.
    pub(super) op: Op,
    /// Their values, if the length is the same; otherwise they are 0.
    pub(super) values: &'a [S],
}

/// Nodes that are being appended. Operands are 0 at first, or undefined for parts of blocks.
#[derive(Debug)]
pub(super) struct Places<'a, S> {
    /// The node number of the first.
    pub(super) first: u32,
    ops: &'a mut [Op],
    operands: &'a mut [[u32; 2]],
    values: &'a mut [S],
}

impl<S: Scalar> Places<'_, S> {
    /// Sets node `at` (its number in the graph).
    pub(super) fn set_node(&mut self, at: u32, op: Op, a: u32, b: u32) {
        let k = (at - self.first) as usize;
        (self.ops[k], self.operands[k]) = (op, [a, b]);
    }

    pub(super) fn set_value(&mut self, at: u32, value: S) {
        self.values[(at - self.first) as usize] = value;
    }
}

impl<'a, S: Scalar> Spare<'a, S> {
    /// The first `n` entries, and the rest.
    fn split(self, n: u32) -> (Self, Self) {
        let Spare { first, n_filled, ops, operands, values, adjoints } = self;
        let of_both = (n_filled.min(n), n_filled.saturating_sub(n));
        let at = n as usize;
        let (ops, operands, values, adjoints) =
            (ops.split_at_mut(at), operands.split_at_mut(at), values.split_at_mut(at), adjoints.split_at_mut(at));
        (
            Spare {
                first,
                n_filled: of_both.0,
                ops: ops.0,
                operands: operands.0,
                values: values.0,
                adjoints: adjoints.0,
            },
            Spare {
                first: first + n,
                n_filled: of_both.1,
                ops: ops.1,
                operands: operands.1,
                values: values.1,
                adjoints: adjoints.1,
            },
        )
    }

    fn fill(self, start: Start<'_, S>) -> Places<'a, S> {
        self.ops.fill(MaybeUninit::new(start.op));
        // The operands of a part are never read, so they may keep old values.
        let kept = if start.op == Op::Part { self.n_filled as usize } else { 0 };
        self.operands[kept..].fill(MaybeUninit::new([0, 0]));
        self.adjoints.fill(MaybeUninit::new(S::UNREACHED));
        if start.values.len() == self.values.len() {
            self.values.write_copy_of_slice(start.values);
        } else {
            self.values.fill(MaybeUninit::new(S::lit(0.0)));
        }
        // SAFETY: all three were filled above, or before.
        unsafe {
            Places {
                first: self.first,
                ops: self.ops.assume_init_mut(),
                operands: self.operands.assume_init_mut(),
                values: self.values.assume_init_mut(),
            }
        }
    }
}

impl<S: Scalar> Columns<S> {
    /// Appends one piece after another, each filled and passed to `work` with its number, on at most `n_threads` threads.
    /// On an error nothing is appended.
    pub(super) fn append_pieces(
        &mut self,
        n_threads: usize,
        starts: &[Start<'_, S>],
        work: &(dyn Fn(usize, Places<'_, S>) + Sync),
    ) -> Result<()> {
        let n = starts.iter().map(|start| u64::from(start.len)).sum::<u64>();
        let n = u32::try_from(n).map_err(|_| Error::IndexExhausted { limit: u32::MAX })?;
        self.reserve(n)?;
        let mut pieces = list_for(starts.len(), "pieces of a joined graph")?;
        let mut rest = self.spare(n);
        for start in starts {
            let (piece, others) = rest.split(start.len);
            pieces.push(Mutex::new(Some(piece)));
            rest = others;
        }
        sync::run(n_threads, pieces.len(), &|k| {
            let piece = pieces[k].lock().ok().and_then(|mut piece| piece.take());
            if let Some(piece) = piece {
                work(k, piece.fill(starts[k]));
            }
        });
        let all_filled = pieces.iter().all(|piece| matches!(piece.lock().as_deref(), Ok(None)));
        assert!(all_filled, "every piece is the task of a thread");
        drop(pieces);
        // SAFETY: the pieces were the next `n` entries of every column, and each was filled.
        unsafe { self.adopt(n) }
        Ok(())
    }
}
