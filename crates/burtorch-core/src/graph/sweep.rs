//! The state of a backward pass, and how contributions are added to nodes, parameters and ranges of them.
//!
//! Promises: a contribution to an adjoint is `c + 0.0`, so that a reached one is never "not reached"; frozen numbers
//! receive nothing. Does not know the order of nodes (`backward`), or ops.
#![allow(unsafe_code)]

use super::columns::Recorded;
use super::deferred::Deferred;
use super::operands::{Encoded, OperandRun};
use super::sampling::InputSampler;
use crate::kernels::{Mode, slices};
use crate::ops::Op;
use crate::params::{Gradients, Values};
use crate::scalar::{RowMath, Scalar};

/// The state of a backward pass.
pub(crate) struct Sweep<'a, 'g, S: Scalar> {
    pub(crate) recorded: Recorded<'a, S>,
    pub(crate) extra: &'a [u32],
    /// Adjoint of node `k` at `k - base`.
    pub(crate) adjoints: &'a mut [S],
    pub(crate) base: u32,
    /// The lowest reached node so far.
    pub(crate) low: u32,
    pub(crate) scratch: &'a mut [S],
    /// Threads that share a product; `scratch` is the workspace of all of them.
    pub(crate) n_threads: usize,
    /// Gradients of leaves, by their number; empty if the sweep must not change them.
    pub(crate) leaf_grads: &'a mut [S],
    pub(crate) params: &'a mut [Gradients<'g, S::Elem>],
    /// For each slot of the graph, its index in `params`.
    pub(crate) places: &'a [u32],
    pub(crate) skip_zero_adjoints: bool,
    /// Deferred weight gradients of several groups of samples, if in use.
    pub(crate) deferred: Option<&'a mut Deferred<S>>,
    /// Samples the inputs of dense layers for weight gradients, if only some are used.
    pub(crate) sampler: Option<&'a mut (dyn InputSampler<S> + 'a)>,
    /// Nodes whose adjoints are undefined until their first contribution overwrites them; see `backward/overwrite`.
    pub(crate) fresh: std::ops::Range<u32>,
    /// Nodes of `fresh` after their first contribution: all of them are reached.
    pub(crate) overwritten: std::ops::Range<u32>,
    /// No adjoint of a node below this is needed; see `backward/floor`.
    pub(crate) floor: u32,
    /// Whether the backward pass has ended early.
    pub(crate) is_over: bool,
}

impl<'a, 'g, S: Scalar> Sweep<'a, 'g, S> {
    /// A backward pass from the node `low` down through a graph whose block ops have these operands and this workspace,
    /// with nothing omitted. Leaves are not changed.
    #[inline(always)]
    pub(crate) fn below(
        low: u32,
        (recorded, adjoints): (Recorded<'a, S>, &'a mut [S]),
        (extra, scratch, n_threads): (&'a [u32], &'a mut [S], u32),
        (params, places): (&'a mut [Gradients<'g, S::Elem>], &'a [u32]),
    ) -> Self {
        Sweep {
            recorded,
            extra,
            adjoints,
            base: 0,
            low,
            scratch,
            n_threads: n_threads as usize,
            leaf_grads: &mut [],
            params,
            places,
            skip_zero_adjoints: false,
            deferred: None,
            sampler: None,
            fresh: 0..0,
            overwritten: 0..0,
            floor: 0,
            is_over: false,
        }
    }
}

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Adds a contribution to a node's adjoint.
    #[inline(always)]
    pub(crate) fn add(&mut self, node: u32, contribution: S) {
        debug_assert!(node >= self.base && ((node - self.base) as usize) < self.adjoints.len());
        // SAFETY: an operand lies below its node and, when adjoints do not start at node 0, at or above `base`, which
        // is a lower bound of all operands under the root.
        let adjoint = unsafe { self.adjoints.get_unchecked_mut((node - self.base) as usize) };
        *adjoint = *adjoint + (contribution + S::lit(0.0));
        self.low = self.low.min(node);
    }

    /// Adds a contribution to the gradient of a trainable parameter.
    #[inline(always)]
    pub(crate) fn add_parameter(&mut self, slot: u32, index: usize, contribution: S) {
        self.add_to_parameter(slot, index, contribution.sum_lanes());
    }

    /// As [`Sweep::add_parameter`], for one lane or the sum of all.
    #[inline(always)]
    pub(crate) fn add_to_parameter(&mut self, slot: u32, index: usize, contribution: S::Elem) {
        let store = &mut self.params[self.places[slot as usize] as usize];
        if store.wants(index) {
            if let Values::Stepped(values, lr) = &mut store.values {
                values[index] = values[index] - *lr * contribution;
                return;
            }
            store.add(index, contribution);
        }
    }

    /// Adds contributions to the gradients of consecutive parameters, skipping frozen ones.
    pub(crate) fn add_parameters(&mut self, slot: u32, first: usize, contributions: &[S]) {
        let range = first..first + contributions.len();
        let store = &mut self.params[self.places[slot as usize] as usize];
        if let Values::Stepped(values, lr) = &mut store.values {
            for (_, piece) in store.skipped.pieces(range) {
                let part = &contributions[piece.start - first..piece.end - first];
                slices::descend(*lr, part, &mut values[piece]);
            }
            return;
        }
        for (place, piece) in store.skipped.pieces(range) {
            let part = &contributions[piece.start - first..piece.end - first];
            let (mode, grads) = store.at(place..place + part.len());
            let sums = part.iter().map(|c| c.sum_lanes());
            match mode {
                Mode::Set => grads.iter_mut().zip(sums).for_each(|(g, c)| *g = c + S::Elem::lit(0.0)),
                Mode::Add => grads.iter_mut().zip(sums).for_each(|(g, c)| *g = *g + c),
            }
        }
    }

    /// Adds contributions to a range of operands.
    #[inline(always)]
    pub(crate) fn add_run(&mut self, run: OperandRun, contributions: &[S]) {
        if run.source == 0 {
            let at = (run.start - self.base) as usize;
            for (adjoint, &c) in self.adjoints[at..at + contributions.len()].iter_mut().zip(contributions) {
                *adjoint = *adjoint + (c + S::lit(0.0));
            }
            self.low = self.low.min(run.start);
        } else {
            self.add_parameters(run.source - 1, run.start as usize, contributions);
        }
    }

    /// Copies operand values into `out`.
    pub(crate) fn gather<'o>(&self, operands: Encoded, out: &'o mut [S]) -> &'o [S] {
        let store = |slot: usize| self.params[self.places[slot] as usize].values();
        operands.gather(self.extra, self.recorded.values, store, out);
        out
    }

    /// Adds contributions to operands, in order.
    pub(crate) fn scatter(&mut self, operands: Encoded, contributions: &[S]) {
        let mut at = 0;
        operands.for_each_run(self.extra, |run| {
            self.add_run(run, &contributions[at..at + run.len as usize]);
            at += run.len as usize;
        });
    }

    /// Whether these are the nodes whose adjoints are to be overwritten.
    pub(crate) fn is_fresh(&self, nodes: &std::ops::Range<usize>) -> bool {
        !self.fresh.is_empty() && *nodes == (self.fresh.start as usize..self.fresh.end as usize)
    }

    /// Marks the adjoints that were to be overwritten "not reached", because other code is about to read them.
    pub(crate) fn mark_fresh(&mut self) {
        let nodes = std::mem::take(&mut self.fresh);
        self.adjoints[nodes.start as usize..nodes.end as usize].fill(S::UNREACHED);
    }

    /// The last output of the node's block, or the node itself if it belongs to no block.
    pub(crate) fn tail(&self, node: usize) -> usize {
        let mut tail = node;
        while self.recorded.ops[tail] == Op::Part {
            tail += 1;
        }
        tail
    }

    /// The range of the adjoints of nodes `first..=last`.
    pub(crate) fn place(&self, first: u32, last: u32) -> std::ops::Range<usize> {
        (first - self.base) as usize..(last + 1 - self.base) as usize
    }
}
