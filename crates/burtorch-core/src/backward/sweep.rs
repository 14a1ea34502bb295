//! The sweep where it meets more than scalar nodes: reductions, inner products, parameters, blocks.
//!
//! Promises: nodes are taken in the order of `scalars`, which this hands everything with one or two operands to.
#![allow(unsafe_code)]

use super::deferred::Deferred;
use super::scalars::{Cursor, Descent};
use super::{Gradients, Values};
use crate::graph::MAX_STORES;
use crate::graph::columns::Recorded;
use crate::graph::{Encoded, InnerOperands, OperandRun};
use crate::kernels::Mode;
use crate::ops::{Arity, Op, Reduction};
use crate::scalar::Scalar;

/// Nodes between two questions whether to stop: a few tens of microseconds.
const POLL_EVERY: u32 = 1 << 13;

pub(super) struct Sweep<'a, 'g, S: Scalar> {
    pub(super) recorded: Recorded<'a, S>,
    pub(super) extra: &'a [u32],
    /// Adjoint of node `k` at `k - base`.
    pub(super) adjoints: &'a mut [S],
    pub(super) base: u32,
    /// The lowest node touched so far.
    pub(super) low: u32,
    pub(super) scratch: &'a mut [S],
    /// Gradients of leaves, by their number; empty where the sweep is to leave them alone.
    pub(super) leaf_grads: &'a mut [S],
    pub(super) params: &'a mut [Gradients<'g, S::Elem>],
    /// For each slot of the graph, its place in `params`.
    pub(super) places: [u8; MAX_STORES],
    pub(super) skip_zero_adjoints: bool,
    /// Where weight gradients wait for those of other groups of samples, if they do.
    pub(super) deferred: Option<&'a mut Deferred<S>>,
    /// Nodes whose adjoints are anything yet, as their first contribution overwrites them; see `fresh`.
    pub(super) fresh: std::ops::Range<u32>,
    /// Those nodes when that has been done: all of them are reached.
    pub(super) overwritten: std::ops::Range<u32>,
}

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Sweeps from `root`, asking now and then whether to stop; `false` if so. Leaves are left alone.
    #[inline]
    pub(super) fn run(&mut self, root: u32, seed: S, interrupted: Option<&mut dyn FnMut() -> bool>) -> bool {
        debug_assert!((root - self.base) < self.adjoints.len() as u32);
        self.add(root, seed);
        match interrupted {
            None => {
                self.descend(root + 1, 0);
                true
            }
            Some(stop) => self.descend_polled(root, stop),
        }
    }

    #[inline(never)]
    fn descend_polled(&mut self, root: u32, stop: &mut dyn FnMut() -> bool) -> bool {
        let mut node = root + 1;
        while node > self.low {
            if stop() {
                return false;
            }
            node = self.descend(node, node.saturating_sub(POLL_EVERY));
        }
        true
    }

    /// Takes the nodes below `end` down to `floor`, leaving leaves alone. Returns the lowest node taken.
    pub(super) fn descend(&mut self, end: u32, floor: u32) -> u32 {
        if self.skip_zero_adjoints {
            self.descend_as::<true, false>(end, floor)
        } else {
            let end = self.descend_to_fresh::<false, false>(end);
            self.descend_as::<false, false>(end, floor)
        }
    }

    /// Goes on at `met`, which a cursor would not take, down to the end, and commits leaves.
    #[inline(never)]
    pub(super) fn finish(&mut self, met: u32) {
        let end = self.pull_many(met);
        let end = self.descend_to_fresh::<false, true>(end);
        self.descend_as::<false, true>(end, 0);
    }

    #[inline]
    pub(super) fn descend_as<const SKIP_ZERO: bool, const COMMIT: bool>(&mut self, mut end: u32, floor: u32) -> u32 {
        loop {
            let (recorded, base, low) = (self.recorded, self.base, self.low);
            let mut cursor = Cursor::new(recorded, self.adjoints, base, low, self.leaf_grads);
            // SAFETY: adjoints hold everything from the base, below which nothing is reached, to the root, and the
            // columns everything up to it; leaves are only committed by the sweep that has been given all gradients.
            let came = unsafe { cursor.descend::<SKIP_ZERO, COMMIT>(end, floor) };
            self.low = cursor.low;
            end = match came {
                Descent::Down(node) => return node,
                Descent::Met(node) => self.pull_many(node),
            };
        }
    }

    /// Hands the adjoint of a node on through anything that is not a unary or binary op. Returns the lowest node this took care of: the
    /// node itself, or the first output of its block.
    #[inline(never)]
    fn pull_many(&mut self, node: u32) -> u32 {
        let (op, [a, b]) = (self.recorded.ops[node as usize], self.recorded.operands[node as usize]);
        let g = self.adjoints[(node - self.base) as usize];
        match op.info().arity {
            // Whether it is frozen now decides, not whether it was when the node was built.
            Arity::Nullary if op != Op::Part => self.add_parameter(b, a as usize, g),
            Arity::Reduction => self.reduction(op, g, Encoded(a, b)),
            Arity::InnerProduct if op == Op::Linearised => self.linearised(g, a),
            Arity::InnerProduct => self.inner_product(g, a, op == Op::InnerProductWithBias),
            _ => return self.block(node),
        }
        node
    }

    /// Adds a contribution to a node's adjoint.
    #[inline(always)]
    pub(super) fn add(&mut self, node: u32, contribution: S) {
        debug_assert!(node >= self.base && ((node - self.base) as usize) < self.adjoints.len());
        // SAFETY: an operand lies below its node and, when adjoints do not start at node 0, at or above `base`, which
        // is a lower bound of all operands under the root.
        let adjoint = unsafe { self.adjoints.get_unchecked_mut((node - self.base) as usize) };
        *adjoint = *adjoint + (contribution + S::lit(0.0));
        self.low = self.low.min(node);
    }

    /// Adds a contribution to the gradient of a parameter, if it is trainable.
    #[inline(always)]
    pub(super) fn add_parameter(&mut self, slot: u32, index: usize, contribution: S) {
        self.add_to_parameter(slot, index, contribution.sum_lanes());
    }

    /// As [`Sweep::add_parameter`], of one lane or the sum of all.
    #[inline(always)]
    pub(super) fn add_to_parameter(&mut self, slot: u32, index: usize, contribution: S::Elem) {
        let store = &mut self.params[self.places[slot as usize] as usize];
        if store.frozen.is_empty() || store.is_trainable(index) {
            if let Values::Stepped(values, lr) = &mut store.values {
                values[index] = values[index] - *lr * contribution;
                return;
            }
            store.prepare(index..index + 1);
            store.grads[index] = store.grads[index] + contribution;
        }
    }

    /// Adds contributions to the gradients of consecutive parameters, those that are trainable.
    pub(super) fn add_parameters(&mut self, slot: u32, first: usize, contributions: &[S]) {
        let range = first..first + contributions.len();
        let store = &mut self.params[self.places[slot as usize] as usize];
        if !store.all_trainable(range.clone()) {
            for (index, &c) in range.zip(contributions) {
                self.add_parameter(slot, index, c);
            }
            return;
        }
        if let Values::Stepped(values, lr) = &mut store.values {
            S::descend(*lr, contributions, &mut values[range]);
            return;
        }
        let mode = store.mode(range.clone());
        let grads = &mut store.grads[range];
        match mode {
            Mode::Set => grads.iter_mut().zip(contributions).for_each(|(g, c)| *g = c.sum_lanes() + S::Elem::lit(0.0)),
            Mode::Add => grads.iter_mut().zip(contributions).for_each(|(g, c)| *g = *g + c.sum_lanes()),
        }
    }

    /// Adds contributions to a run of operands.
    #[inline(always)]
    pub(super) fn add_run(&mut self, run: OperandRun, contributions: &[S]) {
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

    fn reduction(&mut self, op: Op, g: S, operands: Encoded) {
        let Some(reduction) = Reduction::new(op) else {
            return;
        };
        let n = operands.count(self.extra);
        let scratch = std::mem::take(&mut self.scratch);
        let (contributions, gathered) = scratch.split_at_mut(n);
        let xs = match operands.contiguous() {
            Some(run) => &self.recorded.values[run.indices()],
            None => self.gather(operands, &mut gathered[..n]),
        };
        reduction.pull(g, xs, contributions);
        self.scatter(operands, contributions);
        self.scratch = scratch;
    }

    /// Copies operand values into `out`.
    pub(super) fn gather<'o>(&self, operands: Encoded, out: &'o mut [S]) -> &'o [S] {
        let mut stores: [&[S::Elem]; MAX_STORES] = [&[]; MAX_STORES];
        for (store, &place) in stores.iter_mut().zip(&self.places) {
            *store = self.params.get(place as usize).map_or(&[], |p| p.values());
        }
        operands.gather(self.extra, self.recorded.values, &stores, out);
        out
    }

    /// Adds contributions to operands, in order.
    pub(super) fn scatter(&mut self, operands: Encoded, contributions: &[S]) {
        let mut at = 0;
        operands.for_each_run(self.extra, |run| {
            self.add_run(run, &contributions[at..at + run.len as usize]);
            at += run.len as usize;
        });
    }

    /// Operands receive `g` times their partials; value and partials are constants.
    fn linearised(&mut self, g: S, record: u32) {
        let operands = InnerOperands::read(self.extra, record);
        let n = operands.x.count(self.extra);
        let scratch = std::mem::take(&mut self.scratch);
        let contributions = &mut scratch[..n];
        self.gather(operands.w, contributions);
        for value in contributions.iter_mut() {
            *value = g * *value;
        }
        self.scatter(operands.x, contributions);
        self.scratch = scratch;
    }

    fn inner_product(&mut self, g: S, record: u32, with_bias: bool) {
        let operands = InnerOperands::read(self.extra, record);
        let n = operands.x.count(self.extra);
        let scratch = std::mem::take(&mut self.scratch);
        // What x receives is g times w, and the other way round.
        for (to, from) in [(operands.x, operands.w), (operands.w, operands.x)] {
            let contributions = &mut scratch[..n];
            self.gather(from, contributions);
            for value in contributions.iter_mut() {
                *value = g * *value;
            }
            self.scatter(to, contributions);
        }
        if with_bias {
            self.add(operands.bias, g);
        }
        self.scratch = scratch;
    }
}
