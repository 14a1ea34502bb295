//! Where the gradient of a part of a batch goes.

use crate::params::{Gradients, Parameters, Written};
use crate::scalar::Float;

/// Where a gradient goes.
pub(super) enum Sink<'a, 'p, E: Float> {
    /// To the gradients of the parameters.
    Own(&'a mut Parameters<'p, E>),
    /// To memory of its own, one number per parameter, so that several threads may read the parameters.
    Apart(&'a Parameters<'p, E>, &'a mut [E]),
}

impl<'p, E: Float> Sink<'_, 'p, E> {
    pub(super) fn params(&self) -> &Parameters<'p, E> {
        match self {
            Sink::Own(params) => params,
            Sink::Apart(params, _) => params,
        }
    }

    /// For a sweep that overwrites what `written` does not know.
    pub(super) fn gradients<'b>(&'b mut self, written: &'b mut Written) -> Gradients<'b, E> {
        match self {
            Sink::Own(params) => params.overwritten_gradients(written),
            Sink::Apart(params, grads) => params.gradients_apart(grads, written),
        }
    }

    pub(super) fn start(&mut self, written: &mut Written) {
        match self {
            Sink::Own(params) => {
                let (_, grads, frozen) = params.split_for_sweep();
                written.start(frozen, grads);
            }
            Sink::Apart(params, grads) => written.start(params.frozen(), grads),
        }
    }

    pub(super) fn finish(&mut self, written: &mut Written) {
        match self {
            Sink::Own(params) => written.finish(params.grads_mut()),
            Sink::Apart(_, grads) => written.finish(grads),
        }
    }
}
