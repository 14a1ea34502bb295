//! Parameters in a sweep: their values, the destination of gradients, and the treatment of existing ones.
//!
//! Promises: gradients of skipped numbers do not change; the first contribution to a number overwrites it if that was
//! requested. Does not know graphs.

use std::ops::Range;

use super::{Parameters, Skipped, WantedSet, Written};
use crate::error::{Error, Result};
use crate::kernels::Mode;
use crate::scalar::Float;

/// Values of a `Parameters`, and where the sweep adds their gradients.
#[derive(Debug)]
pub struct Gradients<'a, E> {
    pub(crate) store: u64,
    pub(crate) values: Values<'a, E>,
    /// Gradients, in the layout of `skipped`.
    pub(crate) grads: &'a mut [E],
    pub(crate) skipped: Skipped<'a>,
    /// The ranges written so far, if existing gradients are to be overwritten.
    pub(crate) written: Option<&'a mut Written<E>>,
    /// Whether the backward pass may omit adjoints on which no requested gradient depends.
    pub(crate) prunes: bool,
    /// Workspace for the gradient of a whole tensor of which only a part is requested, unless `written` provides it.
    pub(super) stage: Vec<E>,
}

/// How a backward pass uses the values of parameters.
#[derive(Debug)]
pub(crate) enum Values<'a, E> {
    /// Reads them; contributions are added to gradients.
    Kept(&'a [E]),
    /// Updates each value by its contributions at once, `x -= lr c`, and leaves gradients unchanged. Correct if each
    /// number is read by one node only, because a backward pass reads the operands of a node before it changes them.
    Stepped(&'a mut [E], E),
}

impl<E: Float> Gradients<'_, E> {
    /// The values.
    #[inline(always)]
    pub(crate) fn values(&self) -> &[E] {
        match &self.values {
            Values::Kept(values) => values,
            Values::Stepped(values, _) => values,
        }
    }

    /// Whether the gradients of all numbers of the range are requested.
    #[inline(always)]
    pub(crate) fn wants_all(&self, range: Range<usize>) -> bool {
        self.skipped.leaves_all(range)
    }

    /// Whether the gradient of any number of the range is requested.
    #[inline(always)]
    pub(crate) fn wants_any(&self, range: Range<usize>) -> bool {
        self.skipped.leaves_any(range)
    }

    /// Whether the gradient of this number is requested.
    #[inline(always)]
    pub(crate) fn wants(&self, index: usize) -> bool {
        self.skipped.leaves_any(index..index + 1)
    }

    /// The places of the gradients of a range that is requested as a whole.
    #[inline(always)]
    pub(crate) fn places(&self, range: Range<usize>) -> Range<usize> {
        let start = self.skipped.place(range.start);
        start..start + range.len()
    }

    /// The places of the requested gradients of a range; if gradients lie at the places of their numbers, those of the
    /// other numbers too.
    fn span(&self, range: Range<usize>) -> Range<usize> {
        if !self.skipped.moves() || range.is_empty() {
            return range;
        }
        let last = range.end - 1;
        self.skipped.place(range.start)..self.skipped.place(last) + usize::from(self.wants(last))
    }

    /// How to store gradients at these places, given contributions to all of them.
    #[inline(always)]
    pub(super) fn mode_at(&mut self, places: Range<usize>) -> Mode {
        let fresh = self.written.as_mut().is_some_and(|written| written.claim(places, self.grads));
        if fresh { Mode::Set } else { Mode::Add }
    }

    /// The gradients of a range that is requested as a whole, and how to store them.
    #[inline(always)]
    pub(crate) fn whole(&mut self, range: Range<usize>) -> (Mode, &mut [E]) {
        self.at(self.places(range))
    }

    /// The gradients at these places, and how to store them.
    #[inline(always)]
    pub(crate) fn at(&mut self, places: Range<usize>) -> (Mode, &mut [E]) {
        (self.mode_at(places.clone()), &mut self.grads[places])
    }

    /// Prepares the gradients of a range for contributions to some of it.
    pub(crate) fn prepare(&mut self, range: Range<usize>) {
        let span = self.span(range);
        if !span.is_empty() && self.mode_at(span.clone()) == Mode::Set {
            self.grads[span].fill(E::lit(0.0));
        }
    }

    /// The gradients of a range of which some are requested, how to store them, and what is skipped there.
    pub(crate) fn pieces(&mut self, range: Range<usize>) -> (Mode, &mut [E], &[Range<u32>]) {
        let (span, skipped) = (self.span(range.clone()), self.skipped.within(&range));
        let mode = if span.is_empty() { Mode::Add } else { self.mode_at(span.clone()) };
        if mode == Mode::Set && !self.skipped.moves() {
            for gap in skipped {
                let (start, end) = (range.start.max(gap.start as usize), range.end.min(gap.end as usize));
                self.grads[start..end].fill(E::lit(0.0));
            }
        }
        (mode, &mut self.grads[span], skipped)
    }

    /// Adds a contribution to the gradient of a requested number.
    #[inline(always)]
    pub(crate) fn add(&mut self, index: usize, contribution: E) {
        let place = self.skipped.place(index);
        if self.mode_at(place..place + 1) == Mode::Set {
            self.grads[place] = E::lit(0.0);
        }
        self.grads[place] = self.grads[place] + contribution;
    }
}

impl<E: Float> Parameters<'_, E> {
    /// The parameters as a sweep takes them: gradients are added to their own.
    #[inline(always)]
    pub fn gradients(&mut self) -> Gradients<'_, E> {
        let store = self.id();
        let (values, grads, frozen) = self.split_for_sweep();
        Gradients {
            store,
            values: Values::Kept(values),
            grads,
            skipped: Skipped::in_place(frozen),
            written: None,
            prunes: false,
            stage: Vec::new(),
        }
    }

    /// As [`Parameters::gradients`], for the numbers of a set, or for none if the set belongs to other parameters: a
    /// backward pass may end when the set has no reader below.
    pub fn gradients_in<'a>(&'a mut self, wanted: &'a WantedSet, is_own: bool) -> Result<Gradients<'a, E>> {
        static ALL: Range<u32> = 0..u32::MAX;
        if is_own {
            wanted.check(self)?;
        }
        let skipped = Skipped::in_place(if is_own { wanted.outside() } else { std::slice::from_ref(&ALL) });
        Ok(Gradients { skipped, prunes: true, ..self.gradients() })
    }

    /// As [`Parameters::gradients`], but the first contribution to a gradient overwrites it, as tracked by `written`.
    pub(crate) fn overwritten_gradients<'a>(&'a mut self, written: &'a mut Written<E>) -> Gradients<'a, E> {
        Gradients { written: Some(written), ..self.gradients() }
    }

    /// As [`Parameters::overwritten_gradients`], for unskipped numbers, in separate memory.
    pub(crate) fn gradients_apart<'a>(
        &'a self,
        grads: &'a mut [E],
        skipped: Skipped<'a>,
        written: &'a mut Written<E>,
    ) -> Gradients<'a, E> {
        Gradients { written: Some(written), ..self.gradients_of(grads, skipped) }
    }

    /// The gradients of unskipped numbers, added to `grads`.
    pub(crate) fn gradients_of<'a>(&'a self, grads: &'a mut [E], skipped: Skipped<'a>) -> Gradients<'a, E> {
        let values = Values::Kept(self.values());
        Gradients { store: self.id(), values, grads, skipped, written: None, prunes: false, stage: Vec::new() }
    }

    /// Runs `f`, which must make one backward pass, with gradients that replace the existing ones: the first
    /// contribution to a number overwrites it, and numbers without a contribution are 0 afterwards. Avoids a pass that
    /// sets all to 0.
    ///
    /// ```
    /// use burtorch_core::{Graph, Init, Parameters};
    /// let mut params = Parameters::<f64>::new(0);
    /// let w = params.tensor(&[3], None, Init::Constant(2.0), true).unwrap();
    /// params.grads_mut().fill(7.0);
    /// let mut graph = Graph::<f64>::new();
    /// let y = graph.parameter(&params, w.slice(), 1).unwrap();
    /// params.overwrite_gradients(|gradients| graph.backward_with(y, 1.0, &mut [gradients])).unwrap();
    /// assert_eq!(params.grads(), &[0.0, 1.0, 0.0]);
    /// ```
    pub fn overwrite_gradients<R>(&mut self, f: impl FnOnce(Gradients<'_, E>) -> R) -> R {
        let mut written = Written::new();
        let (_, grads, frozen) = self.split_for_sweep();
        written.start(frozen, grads);
        let result = f(self.overwritten_gradients(&mut written));
        written.finish(self.grads_mut());
        result
    }

    /// As [`Parameters::overwrite_gradients`], with the gradient of all parameters in `grads`, which is as long; those of
    /// frozen numbers are 0 there.
    pub fn overwrite_gradients_in<R>(&self, grads: &mut [E], f: impl FnOnce(Gradients<'_, E>) -> R) -> Result<R> {
        self.check_room(grads)?;
        let mut written = Written::new();
        for range in self.frozen() {
            grads[range.start as usize..range.end as usize].fill(E::lit(0.0));
        }
        written.start(self.frozen(), grads);
        let result = f(self.gradients_apart(grads, Skipped::in_place(self.frozen()), &mut written));
        written.finish(grads);
        Ok(result)
    }

    fn check_room(&self, grads: &[E]) -> Result<()> {
        if grads.len() == self.len() {
            return Ok(());
        }
        let (need, have) = (self.len(), grads.len());
        Err(Error::BufferTooSmall { what: "a gradient of all parameters", need, have })
    }

    /// The parameters for a backward pass that updates their values instead of writing gradients.
    pub(crate) fn stepped(&mut self, lr: E) -> Gradients<'_, E> {
        let store = self.id();
        let (values, frozen) = self.split_for_descent();
        Gradients {
            store,
            values: Values::Stepped(values, lr),
            grads: &mut [],
            skipped: Skipped::in_place(frozen),
            written: None,
            prunes: false,
            stage: Vec::new(),
        }
    }

    /// As [`Parameters::gradients`], but gradients are added to `grads`, which has one entry per parameter.
    pub fn gradients_into<'a>(&'a self, grads: &'a mut [E]) -> Result<Gradients<'a, E>> {
        self.check_room(grads)?;
        Ok(self.gradients_of(grads, Skipped::in_place(self.frozen())))
    }
}

impl<E: Float> Gradients<'_, E> {
    /// The gradients of weights and biases, which are disjoint, and how to store both.
    pub(crate) fn grads_of_layer(
        &mut self,
        weights: Range<usize>,
        bias: Option<Range<usize>>,
    ) -> (Mode, &mut [E], Option<&mut [E]>) {
        let weights = self.places(weights);
        let mut mode = self.mode_at(weights.clone());
        let Some(bias) = bias.map(|bias| self.places(bias)) else {
            return (mode, &mut self.grads[weights], None);
        };
        let bias_mode = self.mode_at(bias.clone());
        if mode != bias_mode {
            let fresh = if mode == Mode::Set { &weights } else { &bias };
            self.grads[fresh.clone()].fill(E::lit(0.0));
            mode = Mode::Add;
        }
        let (dw, db) = apart(self.grads, weights, bias);
        (mode, dw, Some(db))
    }
}

/// Two disjoint ranges of a slice.
pub(crate) fn apart<E>(all: &mut [E], first: Range<usize>, second: Range<usize>) -> (&mut [E], &mut [E]) {
    if second.start >= first.end {
        let (low, high) = all.split_at_mut(second.start);
        return (&mut low[first], &mut high[..second.len()]);
    }
    let (low, high) = all.split_at_mut(first.start);
    (&mut high[..first.len()], &mut low[second])
}
