//! The destination of the gradient of a part of a batch.

use std::ops::Range;

use crate::error::Result;
use crate::params::{Emission, Gradients, InFlight, Parameters, Skipped, Written};
use crate::scalar::Float;

/// Where a gradient goes.
pub(super) enum Sink<'a, 'p, E: Float> {
    /// To the gradients of the parameters.
    Own(&'a mut Parameters<'p, E>),
    /// To other memory, so that several threads may read the parameters.
    Apart(&'a Parameters<'p, E>, &'a mut [E], Asked<'a>),
    /// To memory that a range leaves when it is handed on.
    InFlight(&'a Parameters<'p, E>, &'a mut InFlight<E>),
}

/// Which gradients are asked for, and what becomes of the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) skipped: Skipped<'a>,
    /// Places that are left as they are; all others that receive nothing are set to 0.
    pub(super) untouched: &'a [Range<u32>],
}

impl<'a> Asked<'a> {
    /// All but those of frozen numbers, which are left as they are.
    pub(super) fn all<E: Float>(params: &'a Parameters<'_, E>) -> Self {
        Asked { skipped: Skipped::in_place(params.frozen()), untouched: params.frozen() }
    }
}

impl<'p, E: Float> Sink<'_, 'p, E> {
    pub(super) fn params(&self) -> &Parameters<'p, E> {
        match self {
            Sink::Own(params) => params,
            Sink::Apart(params, ..) | Sink::InFlight(params, _) => params,
        }
    }

    /// For a sweep that overwrites what `written` does not know.
    pub(super) fn gradients<'b>(&'b mut self, written: &'b mut Written<E>) -> Gradients<'b, E> {
        let mut gradients = match self {
            Sink::Own(params) => params.overwritten_gradients(written),
            Sink::Apart(params, grads, asked) => params.gradients_apart(grads, asked.skipped, written),
            Sink::InFlight(params, in_flight) => {
                let (grads, places) = in_flight.split();
                params.gradients_apart(grads, places, written)
            }
        };
        gradients.prunes = !gradients.skipped.is_empty();
        gradients
    }

    /// Finds places for gradients that are handed on in this order.
    pub(super) fn place(&mut self, order: &[Emission]) -> Result<()> {
        match self {
            Sink::InFlight(_, in_flight) => in_flight.place(order),
            _ => Ok(()),
        }
    }

    pub(super) fn start(&mut self, written: &mut Written<E>) {
        match self {
            Sink::Own(params) => {
                let (_, grads, frozen) = params.split_for_sweep();
                written.start(frozen, grads);
            }
            Sink::Apart(_, grads, asked) => written.start(asked.untouched, grads),
            Sink::InFlight(..) => written.start(&[], &mut []),
        }
    }

    pub(super) fn finish(&mut self, written: &mut Written<E>) {
        match self {
            Sink::Own(params) => written.finish(params.grads_mut()),
            Sink::Apart(_, grads, _) => written.finish(grads),
            Sink::InFlight(..) => {}
        }
    }
}
