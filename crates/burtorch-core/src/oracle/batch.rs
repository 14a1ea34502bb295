//! Batches: samples one after another, and a last group padded to whole lanes.
//!
//! Promises: the padding of a group is a sample of it, so that it can be computed. Does not know models.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::nn::{Input, Label};
use crate::scalar::Float;

/// Samples one after another: `n` equal parts of `x` and of `y`.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a, E> {
    x: Input<'a, E>,
    y: Label<'a, E>,
    n: usize,
}

impl<'a, E> Batch<'a, E> {
    /// `n` samples, at least one.
    pub fn new(x: Input<'a, E>, y: Label<'a, E>, n: usize) -> Result<Self> {
        if n == 0 {
            return Err(Error::EmptyReduction { op: "the loss" });
        }
        for (what, len) in [
            ("a batch (samples and numbers of its inputs)", x.len()),
            ("a batch (samples and numbers of its labels)", y.len()),
        ] {
            if len == 0 || len % n != 0 {
                return Err(Error::LengthMismatch { op: what, left: n, right: len });
            }
        }
        Ok(Batch { x, y, n })
    }

    /// How many samples.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Sample `k` as a batch of its own, if there is one.
    pub fn sample(&self, k: usize) -> Option<Batch<'a, E>> {
        (k < self.n).then(|| {
            let (x, y) = self.samples(k..k + 1);
            Batch { x, y, n: 1 }
        })
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Numbers of inputs and of labels of one sample.
    pub(super) fn widths(&self) -> (usize, usize) {
        (self.x.len() / self.n, self.y.len() / self.n)
    }

    /// The samples of a range, which ends at or before the length.
    pub(super) fn samples(&self, range: Range<usize>) -> (Input<'a, E>, Label<'a, E>) {
        let (n_x, n_y) = self.widths();
        let part = |n: usize| range.start * n..range.end * n;
        (self.x.part(part(n_x)), self.y.part(part(n_y)))
    }
}

/// Room for a group that is filled up.
#[derive(Debug)]
pub(super) struct Padding<E> {
    tokens: Vec<u32>,
    numbers: Vec<E>,
    classes: Vec<u32>,
    label_numbers: Vec<E>,
}

impl<E: Float> Padding<E> {
    pub(super) const fn new() -> Self {
        Padding { tokens: Vec::new(), numbers: Vec::new(), classes: Vec::new(), label_numbers: Vec::new() }
    }

    /// Bytes reserved.
    pub(super) fn bytes(&self) -> usize {
        let symbols = self.tokens.capacity() + self.classes.capacity();
        symbols * size_of::<u32>() + (self.numbers.capacity() + self.label_numbers.capacity()) * size_of::<E>()
    }

    /// The samples of a range, and its last one again until there are `n`.
    pub(super) fn fill<'s>(
        &'s mut self,
        batch: &Batch<'s, E>,
        range: Range<usize>,
        n: usize,
    ) -> Result<(Input<'s, E>, Label<'s, E>)> {
        let (x, y) = batch.samples(range);
        let (n_x, n_y) = batch.widths();
        let x = match x {
            Input::Tokens(tokens) => Input::Tokens(repeat_last(&mut self.tokens, tokens, n_x, n)?),
            Input::Numbers(numbers) => Input::Numbers(repeat_last(&mut self.numbers, numbers, n_x, n)?),
        };
        let y = match y {
            Label::Classes(classes) => Label::Classes(repeat_last(&mut self.classes, classes, n_y, n)?),
            Label::Probabilities(p) => Label::Probabilities(repeat_last(&mut self.label_numbers, p, n_y, n)?),
            Label::Numbers(numbers) => Label::Numbers(repeat_last(&mut self.label_numbers, numbers, n_y, n)?),
        };
        Ok((x, y))
    }
}

/// `from`, then its last `width` numbers again, until there are `n` times `width`.
fn repeat_last<'s, T: Copy>(room: &'s mut Vec<T>, from: &[T], width: usize, n: usize) -> Result<&'s [T]> {
    let bytes = n * width * size_of::<T>();
    room.clear();
    room.try_reserve(n * width).map_err(|_| Error::OutOfMemory { bytes, what: "a group of samples" })?;
    room.extend_from_slice(from);
    while room.len() < n * width {
        room.extend_from_within(room.len() - width..);
    }
    Ok(room)
}
