//! The sweep through a block over tokens: where adjoints and gradients of its operands go.
//!
//! Where all numbers of a tensor are trainable, kernels write its gradient in place; a tensor frozen in part, or one
//! stepped during the sweep, takes its contributions one by one. Adjoints of inputs are added to in place where an
//! input is one range.

use std::ops::Range;

use super::TokenRecord;
use crate::graph::operands::OperandRun;
use crate::graph::sweep::Sweep;
use crate::kernels::slices;
use crate::kernels::tokens::GradientOut;
use crate::ops::Op;
use crate::params::Values;
use crate::scalar::{Float, Scalar};

/// A tensor's values, and where gradients of it and of a second tensor may be written as a whole.
pub(crate) struct Targets<'a, E: Float> {
    pub(crate) values: &'a [E],
    pub(crate) first: GradientOut<'a, E>,
    pub(crate) second: GradientOut<'a, E>,
}

/// What the sweep through a block works on.
pub(crate) struct Pulled<'p, 'a, S> {
    pub(crate) record: TokenRecord<'a>,
    /// Adjoints of all outputs.
    pub(crate) dy: &'p [S],
    /// Adjoints of the nodes below the outputs.
    pub(crate) below: &'p mut [S],
    pub(crate) scratch: &'p mut [S],
}

impl<'a, S: Scalar> Sweep<'a, '_, S> {
    /// Runs `f` on the block at `at`, of whose outputs `top` is the last that was reached.
    pub(crate) fn through_tokens(&mut self, at: u32, top: u32, f: impl FnOnce(&mut Self, Pulled<'_, 'a, S>)) {
        let record = TokenRecord::read(self.extra, at);
        let all_scratch = std::mem::take(&mut self.scratch);
        let all_adjoints = std::mem::take(&mut self.adjoints);
        let (below, outputs) = all_adjoints.split_at_mut((record.header.first - self.base) as usize);
        let (n_met, n_out) = ((top + 1 - record.header.first) as usize, record.header.n_out as usize);
        let (copy, scratch) = all_scratch.split_at_mut(if n_met < n_out { n_out } else { 0 });
        let dy = if n_met < n_out {
            copy[..n_met].copy_from_slice(&outputs[..n_met]);
            copy[n_met..].fill(S::UNREACHED);
            copy
        } else {
            &outputs[..n_out]
        };
        f(self, Pulled { record, dy, below, scratch });
        self.scratch = all_scratch;
        self.adjoints = all_adjoints;
    }

    /// The adjoints of a run of nodes among those `below`.
    pub(crate) fn adjoints_of<'b>(&mut self, run: OperandRun, below: &'b mut [S]) -> &'b mut [S] {
        self.low = self.low.min(run.start);
        &mut below[(run.start - self.base) as usize..][..run.len as usize]
    }

    /// Adds the reached ones of `g` to the adjoints of as many nodes from the start of a run.
    pub(crate) fn pass_to(&mut self, run: OperandRun, g: &[S], below: &mut [S]) {
        if self.wants(run) {
            slices::pass_on(g, &mut self.adjoints_of(run, below)[..g.len()]);
        }
    }

    /// Whether some node of the run can receive a gradient. The last node of a range speaks for it.
    pub(crate) fn wants(&self, run: OperandRun) -> bool {
        let last = (run.start + run.len - 1) as usize;
        match self.recorded.ops[last] {
            Op::Constant => run.range().any(|node| self.recorded.ops[node] != Op::Constant),
            Op::TokenEmbedding => {
                let record = TokenRecord::read(self.extra, self.recorded.operands[last][0]);
                record.header.first != run.start || record.runs().any(|tensor| self.is_any_trainable(tensor))
            }
            _ => true,
        }
    }

    pub(crate) fn place_of(&self, run: OperandRun) -> usize {
        self.places[run.source as usize - 1] as usize
    }

    pub(crate) fn is_any_trainable(&self, run: OperandRun) -> bool {
        self.params[self.place_of(run)].any_trainable(run.range())
    }

    /// The values of a run of parameters.
    pub(crate) fn values_of(&self, run: OperandRun) -> &[S::Elem] {
        &self.params[self.place_of(run)].values()[run.range()]
    }

    /// Whether kernels may write the gradient of all of a tensor.
    pub(crate) fn is_whole(&self, run: OperandRun) -> bool {
        let store = &self.params[self.place_of(run)];
        matches!(store.values, Values::Kept(_)) && store.all_trainable(run.range())
    }

    /// Values of `first`, and targets for the gradients of `first` and `second`, those that [`Sweep::is_whole`].
    pub(crate) fn targets(
        &mut self,
        first: OperandRun,
        second: Option<OperandRun>,
    ) -> (Targets<'_, S::Elem>, [bool; 2]) {
        let beside = |second: &OperandRun| {
            let (a, b) = (first.range(), second.range());
            second.source == first.source && (a.end <= b.start || b.end <= a.start)
        };
        let second_whole = second.filter(|second| beside(second) && self.is_whole(*second));
        let first_whole = self.is_whole(first);
        let pieces = [
            !first_whole && self.is_any_trainable(first),
            second_whole.is_none() && second.is_some_and(|second| self.is_any_trainable(second)),
        ];
        let place = self.place_of(first);
        let store = &mut self.params[place];
        let modes =
            (first_whole.then(|| store.mode(first.range())), second_whole.map(|second| store.mode(second.range())));
        let values: &[S::Elem] = match &store.values {
            Values::Kept(values) => values,
            Values::Stepped(values, _) => values,
        };
        // Tensors that overlap are not both whole, so the ranges are apart.
        let none = 0..0;
        let ranges = [first.range(), second_whole.map_or(none, OperandRun::range)];
        let (a, b) = match store.grads.get_disjoint_mut(ranges) {
            Ok([a, b]) if first_whole => (Some(a), Some(b)),
            Ok([_, b]) => (None, Some(b)),
            Err(_) => (None, None),
        };
        let values = &values[first.range()];
        let (a, b) = (a.zip(modes.0), b.zip(modes.1));
        (Targets { values, first: a, second: b }, pieces)
    }

    /// Adds the reached ones of `g` to the gradients of numbers `part` of a tensor.
    pub(crate) fn add_reached(&mut self, run: OperandRun, part: Range<usize>, g: &[S], all_reached: bool) {
        let start = run.start as usize + part.start;
        if all_reached {
            return self.add_parameters(run.source - 1, start, g);
        }
        for (k, &g) in g.iter().enumerate().filter(|(_, g)| !g.is_unreached()) {
            self.add_parameter(run.source - 1, start + k, g);
        }
    }
}
