//! Parameters with temporary values, or with gradients in other memory.
//!
//! Promises: everything is restored afterwards, also after a panic. Does not know the computation.
#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr::NonNull;

use super::block::Block;
use super::{Parameters, Skipped, for_each_gap};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::scalar::Float;
use crate::sync::stop;

/// Restores the parameters' own memory.
struct PutBack<'p, 'm, E: Float> {
    params: &'p mut Parameters<'m, E>,
    values: Option<Block<E>>,
    grads: Option<Block<E>>,
}

impl<E: Float> Drop for PutBack<'_, '_, E> {
    fn drop(&mut self) {
        if let Some(values) = self.values.take() {
            self.params.values = values;
        }
        if let Some(grads) = self.grads.take() {
            self.params.grads = grads;
        }
    }
}

/// The gradient of a batch while threads add their parts to it.
pub(crate) struct Sum<'a, E> {
    grads: &'a mut [E],
    frozen: &'a [Range<u32>],
}

impl<'a, E: Float> Sum<'a, E> {
    /// The whole of this memory.
    pub(crate) fn of(grads: &'a mut [E]) -> Self {
        Sum { grads, frozen: &[] }
    }

    /// Adds a range of the gradient of a part of the batch; returns the sums of that range.
    pub(crate) fn add_range(&mut self, range: Range<usize>, part: &[E]) -> &mut [E] {
        for (_, piece) in Skipped::in_place(self.frozen).pieces(range.clone()) {
            let part = &part[piece.start - range.start..piece.end - range.start];
            self.grads[piece].iter_mut().zip(part).for_each(|(g, &x)| *g = *g + x);
        }
        &mut self.grads[range]
    }

    /// How many numbers a part has.
    pub(crate) fn len(&self) -> usize {
        self.grads.len()
    }

    /// Adds the gradient of a part of the batch, of equal length; with `overwrites`, replaces the existing one.
    /// Interruptible.
    pub(crate) fn add(&mut self, part: &[E], overwrites: bool) {
        for_each_gap(self.frozen, self.grads.len(), |range| {
            let (grads, part) = (&mut self.grads[range.clone()], &part[range]);
            for (grads, part) in grads.chunks_mut(interrupt::PIECE / 4).zip(part.chunks(interrupt::PIECE / 4)) {
                if stop::is_over() {
                    return;
                }
                if overwrites {
                    grads.copy_from_slice(part);
                } else {
                    grads.iter_mut().zip(part).for_each(|(g, &x)| *g = *g + x);
                }
            }
        });
    }
}

impl<'m, E: Float> Parameters<'m, E> {
    /// Runs `f` with the parameters, without access to gradients, and with the gradients separately, so that several
    /// threads may read the former while one writes the latter.
    pub(crate) fn with_grads_apart<T>(&mut self, f: impl FnOnce(&Self, Sum<'_, E>) -> T) -> T {
        let n = self.n;
        let own = std::mem::replace(&mut self.grads, Block::empty());
        let mut guard = PutBack { params: self, values: None, grads: Some(own) };
        let PutBack { params, grads, .. } = &mut guard;
        let params = &**params;
        let grads = grads.as_mut().map_or(&mut [][..], |block| block.slice_mut(n));
        f(params, Sum { grads, frozen: &params.frozen })
    }

    /// Runs `f` with other values, which it only reads, or other memory for gradients, of the same length as the
    /// parameters. Gradients of frozen numbers in that memory are set to 0.
    pub(crate) fn with_arrays<T>(
        &mut self,
        values: Option<&[E]>,
        grads: Option<&mut [E]>,
        f: impl FnOnce(&mut Self) -> T,
    ) -> Result<T> {
        let point = values.map(|values| ("an oracle (its parameters, and the point)", values.len()));
        let memory =
            grads.as_ref().map(|grads| ("an oracle (its parameters, and memory for their gradient)", grads.len()));
        for (op, found) in [point, memory].into_iter().flatten() {
            if found != self.n {
                return Err(Error::LengthMismatch { op, left: self.n, right: found });
            }
        }
        let mut guard = PutBack { params: self, values: None, grads: None };
        if let Some(values) = values {
            // SAFETY: the memory is borrowed until this function returns, and the block is dropped before. No code of
            // this crate writes values while it computes a gradient, and `f` is part of this crate.
            let block = unsafe { Block::foreign(NonNull::from(values)) };
            guard.values = Some(std::mem::replace(&mut guard.params.values, block));
        }
        if let Some(grads) = grads {
            let mut live = 0;
            for_each_gap(&guard.params.frozen, guard.params.n, |range| {
                grads[live..range.start].fill(E::lit(0.0));
                live = range.end;
            });
            grads[live..].fill(E::lit(0.0));
            // SAFETY: the memory is borrowed exclusively until this function returns, and the block is dropped before.
            let block = unsafe { Block::foreign(NonNull::from(grads)) };
            guard.grads = Some(std::mem::replace(&mut guard.params.grads, block));
        }
        Ok(f(guard.params))
    }
}
