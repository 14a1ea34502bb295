//! The backward pass through a block over tokens: the destinations of adjoints and gradients.
//!
//! If the gradients of a whole tensor are requested, kernels write them in place; if only a part is requested, or the
//! tensor is updated during the backward pass, kernels write to a workspace, and the requested part is copied from
//! there. Adjoints of inputs are added to in place if an input is one range.

use std::ops::Range;

use super::TokenRecord;
use crate::graph::operands::OperandRun;
use crate::graph::sweep::Sweep;
use crate::kernels::slices;
use crate::kernels::tokens::GradientOut;
use crate::ops::Op;
use crate::scalar::{Float, Scalar};

/// A tensor's values, and the targets for its gradient and that of a second tensor, if requested.
pub(crate) struct Targets<'a, E: Float> {
    pub(crate) values: &'a [E],
    pub(crate) first: GradientOut<'a, E>,
    pub(crate) second: GradientOut<'a, E>,
}

/// The data for the backward pass of a block.
pub(crate) struct Pulled<'p, 'a, S> {
    pub(crate) record: TokenRecord<'a>,
    /// Adjoints of all outputs.
    pub(crate) dy: &'p [S],
    /// Adjoints of the nodes below the outputs.
    pub(crate) below: &'p mut [S],
    pub(crate) scratch: &'p mut [S],
}

impl<'a, S: Scalar> Sweep<'a, '_, S> {
    /// Runs `f` on the block at `at`, whose last reached output is `top`.
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

    /// The adjoints of a range of nodes in `below`.
    pub(crate) fn adjoints_of<'b>(&mut self, run: OperandRun, below: &'b mut [S]) -> &'b mut [S] {
        self.low = self.low.min(run.start);
        &mut below[(run.start - self.base) as usize..][..run.len as usize]
    }

    /// Adds the reached entries of `g` to the adjoints of the same number of nodes from the start of a range.
    pub(crate) fn pass_to(&mut self, run: OperandRun, g: &[S], below: &mut [S]) {
        if self.wants(run) {
            slices::pass_on(g, &mut self.adjoints_of(run, below)[..g.len()]);
        }
    }

    /// Whether any node of the range can receive a gradient. The last node represents its range.
    pub(crate) fn wants(&self, run: OperandRun) -> bool {
        let last = (run.start + run.len - 1) as usize;
        match self.recorded.ops[last] {
            _ if last < self.floor as usize => false,
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
        self.params[self.place_of(run)].wants_any(run.range())
    }

    /// The values of a range of parameters.
    pub(crate) fn values_of(&self, run: OperandRun) -> &[S::Elem] {
        &self.params[self.place_of(run)].values()[run.range()]
    }

    /// Runs `pull` with the values of `first` and targets for the requested gradients of `first` and `second`; runs it
    /// twice if the two cannot be written together.
    pub(crate) fn with_targets(
        &mut self,
        first: OperandRun,
        second: Option<OperandRun>,
        pull: &mut dyn FnMut(Targets<'_, S::Elem>),
    ) {
        let [a, b] = [Some(first), second].map(|run| run.filter(|run| self.is_any_trainable(*run)));
        let beside = |b: &OperandRun| {
            let (a, b) = (first.range(), b.range());
            a.end <= b.start || b.end <= a.start
        };
        let together = b.filter(|b| b.source == first.source && beside(b));
        let mut go = |values: &[S::Elem], [first, second]: [GradientOut<'_, S::Elem>; 2]| {
            pull(Targets { values, first, second });
        };
        let place = self.place_of(first);
        let tensors = [a, together].map(|run| run.map(OperandRun::range));
        self.params[place].with_targets(first.range(), tensors, &mut go);
        let Some(rest) = b.filter(|_| together.is_none()) else {
            return;
        };
        let tensors = [None, Some(rest.range())];
        match self.params.get_disjoint_mut([place, self.place_of(rest)]) {
            Ok([store, other]) => {
                other.with_targets(0..0, tensors, &mut |_, targets| go(&store.values()[first.range()], targets))
            }
            // Both lie in one `Parameters` and overlap.
            Err(_) => self.params[place].with_targets(first.range(), tensors, &mut go),
        }
    }

    /// Adds the reached entries of `g` to the gradients of the range `part` of a tensor.
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
