//! Parameters that for a while have other values, or their gradients in other memory.
//!
//! Promises that everything is as before afterwards, also after a panic. Knows nothing of what is computed meanwhile.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::block::Block;
use super::{Parameters, for_each_gap};
use crate::error::{Error, Result};
use crate::scalar::Float;

/// Puts the parameters' own memory back.
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

impl<'m, E: Float> Parameters<'m, E> {
    /// Runs `f` with other values, which it only reads, or other memory for gradients, each as many as there are
    /// parameters. Gradients of frozen numbers in that memory are set to 0.
    pub(crate) fn with_arrays<T>(
        &mut self,
        values: Option<&[E]>,
        grads: Option<&mut [E]>,
        f: impl FnOnce(&mut Self) -> T,
    ) -> Result<T> {
        for found in [values.map(<[E]>::len), grads.as_ref().map(|g| g.len())].into_iter().flatten() {
            if found != self.n {
                let op = "an oracle (parameters and numbers given)";
                return Err(Error::LengthMismatch { op, left: self.n, right: found });
            }
        }
        let mut guard = PutBack { params: self, values: None, grads: None };
        if let Some(values) = values {
            // SAFETY: the memory is borrowed until this function returns, when the block is gone. Nothing in this crate
            // writes values while it computes a gradient, and `f` is of this crate.
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
            // SAFETY: the memory is borrowed exclusively until this function returns, when the block is gone.
            let block = unsafe { Block::foreign(NonNull::from(grads)) };
            guard.grads = Some(std::mem::replace(&mut guard.params.grads, block));
        }
        Ok(f(guard.params))
    }
}
