//! Gradients of tensors for kernels that write a whole tensor: in place, or in a workspace if only a part is requested.
//!
//! Promises: the requested numbers have the same bits either way. The workspace is that of the largest such tensors.

use std::ops::Range;

use super::gradients::{Gradients, Values};
use super::{Skipped, apart};
use crate::kernels::Mode;
use crate::kernels::tokens::GradientOut;
use crate::scalar::Float;

/// Up to two disjoint tensors.
pub(crate) type Tensors = [Option<Range<usize>>; 2];

/// A kernel that takes values and the targets of two tensors' gradients.
type Pull<'a, E> = &'a mut dyn FnMut(&[E], [GradientOut<'_, E>; 2]);

impl<E: Float> Gradients<'_, E> {
    /// Whether kernels may write the gradients of these tensors in place.
    fn is_direct(&self, tensors: &Tensors) -> bool {
        let is_whole = |range: &Range<usize>| self.wants_all(range.clone());
        matches!(self.values, Values::Kept(_)) && tensors.iter().flatten().all(is_whole)
    }

    /// Runs `pull` with the values of a range and targets for the gradients of tensors, and keeps the requested
    /// gradients.
    pub(crate) fn with_targets(&mut self, values: Range<usize>, tensors: Tensors, pull: Pull<'_, E>) {
        let is_direct = self.is_direct(&tensors);
        let lens = tensors.each_ref().map(|range| range.as_ref().map_or(0, ExactSizeIterator::len));
        if !is_direct {
            self.fill_stage(&tensors);
        }
        let places = tensors.clone().map(|range| range.filter(|_| is_direct).map(|range| self.places(range)));
        let modes = places.clone().map(|places| places.map_or(Mode::Add, |places| self.mode_at(places)));
        let all: &[E] = match &self.values {
            Values::Kept(values) => values,
            Values::Stepped(values, _) => values,
        };
        let stage = match &mut self.written {
            Some(written) => &mut written.stage,
            None => &mut self.stage,
        };
        let [first, second] = match (is_direct, places) {
            (false, _) => {
                let (first, second) = stage[..lens[0] + lens[1]].split_at_mut(lens[0]);
                [Some(first), Some(second)]
            }
            (true, [Some(first), Some(second)]) => {
                let (first, second) = apart(self.grads, first, second);
                [Some(first), Some(second)]
            }
            (true, [first, second]) => {
                let is_first = first.is_some();
                let one = first.or(second).map(|places| &mut self.grads[places]);
                if is_first { [one, None] } else { [None, one] }
            }
        };
        let asked = |k: usize, target| if tensors[k].is_some() { target } else { None };
        let target = |k: usize, target: Option<_>| asked(k, target).map(|grads| (grads, modes[k]));
        pull(&all[values], [target(0, first), target(1, second)]);
        if !is_direct {
            self.empty_stage(&tensors);
        }
    }

    /// Prepares the workspace for the gradients; requested ones continue their sums there.
    fn fill_stage(&mut self, tensors: &Tensors) {
        let adds = matches!(self.values, Values::Kept(_));
        for range in tensors.iter().flatten().filter(|_| adds) {
            self.prepare(range.clone());
        }
        let Gradients { grads, skipped, written, stage, .. } = self;
        let stage = written.as_mut().map_or(stage, |written| &mut written.stage);
        stage.clear();
        stage.resize(tensors.iter().flatten().map(ExactSizeIterator::len).sum(), E::lit(0.0));
        for_each_piece(*skipped, tensors, |at, place, piece| {
            if adds {
                stage[at..at + piece.len()].copy_from_slice(&grads[place..place + piece.len()]);
            }
        });
    }

    /// Copies the requested gradients out of the workspace.
    fn empty_stage(&mut self, tensors: &Tensors) {
        let Gradients { values, grads, skipped, written, stage, .. } = self;
        let stage = written.as_mut().map_or(stage, |written| &mut written.stage);
        for_each_piece(*skipped, tensors, |at, place, piece| {
            let found = &stage[at..at + piece.len()];
            match values {
                Values::Kept(_) => grads[place..place + piece.len()].copy_from_slice(found),
                Values::Stepped(values, lr) => {
                    values[piece].iter_mut().zip(found).for_each(|(x, &g)| *x = *x - *lr * g);
                }
            }
        });
    }
}

/// Calls `f` with each requested piece of the tensors: its place in the workspace, the place of its gradients, and its
/// numbers.
fn for_each_piece(skipped: Skipped<'_>, tensors: &Tensors, mut f: impl FnMut(usize, usize, Range<usize>)) {
    let mut before = 0;
    for range in tensors.iter().flatten() {
        skipped.pieces(range.clone()).for_each(|(place, piece)| f(before + piece.start - range.start, place, piece));
        before += range.len();
    }
}
