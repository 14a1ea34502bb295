//! The sweep over other nodes than scalar ones: reductions, inner products, parameters, blocks.
//!
//! Promises: nodes are taken in the order of `scalars`, which handles every node with one or two operands.
#![allow(unsafe_code)]

use super::scalars::{Cursor, Descent, Way, pull_apart};
use crate::graph::{Encoded, InnerOperands, Sweep};
use crate::ops::{Arity, Op, Reduction};
use crate::scalar::Scalar;

/// Nodes between two questions whether to stop: a few tens of microseconds.
const POLL_EVERY: u32 = 1 << 13;

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
        while node > self.low.max(self.floor) {
            if stop() {
                return false;
            }
            node = self.descend(node, node.saturating_sub(POLL_EVERY));
        }
        true
    }

    /// Takes the nodes below `end` down to `floor`, leaving leaves alone. Returns the lowest node taken.
    pub(super) fn descend(&mut self, end: u32, floor: u32) -> u32 {
        let (way, floor) = (Way { skip_zero: self.skip_zero_adjoints, commit: false }, floor.max(self.floor));
        let end = if way.skip_zero { end } else { self.descend_to_fresh(way, end) };
        self.descend_as(way, end, floor)
    }

    /// Goes on at `met`, which a cursor would not take, down to the end, and commits leaves.
    #[inline(never)]
    pub(super) fn finish(&mut self, met: u32) {
        let end = self.pull_many(met);
        let end = self.descend_to_fresh(Way::COMMITTING, end);
        self.descend_as(Way::COMMITTING, end, 0);
    }

    #[inline]
    pub(super) fn descend_as(&mut self, way: Way, mut end: u32, floor: u32) -> u32 {
        loop {
            let (recorded, base, low) = (self.recorded, self.base, self.low);
            let mut cursor = Cursor::new(recorded, self.adjoints, base, low, self.leaf_grads);
            // SAFETY: adjoints hold everything from the base, below which nothing is reached, to the root, and the
            // columns everything up to it; leaves are only committed by the sweep that has been given all gradients.
            let came = unsafe { cursor.descend_by(way, end, floor) };
            self.low = cursor.low;
            end = match came {
                Descent::Down(node) => return node,
                Descent::Met(node) => self.pull_many(node),
            };
        }
    }

    /// Hands the adjoint of a node on through anything that the loop over scalar nodes does not take. Returns the lowest node this took care of: the
    /// node itself, or the first output of its block.
    #[inline(never)]
    fn pull_many(&mut self, node: u32) -> u32 {
        let (op, [a, b]) = (self.recorded.ops[node as usize], self.recorded.operands[node as usize]);
        let g = self.adjoints[(node - self.base) as usize];
        match op.info().arity {
            // Whether it is frozen now decides, not whether it was when the node was built.
            Arity::Nullary if op != Op::Part => self.add_parameter(b, a as usize, g),
            Arity::Unary | Arity::Binary | Arity::WithConstant => self.rare(op, node, g, [a, b]),
            Arity::Reduction => self.reduction(op, g, Encoded(a, b)),
            Arity::InnerProduct if op == Op::Linearised => self.linearised(g, a),
            Arity::InnerProduct => self.inner_product(g, a, op == Op::InnerProductWithBias),
            _ => return self.block(node),
        }
        node
    }

    /// An op whose row is not in the loop.
    fn rare(&mut self, op: Op, node: u32, g: S, operands: [u32; 2]) {
        let adjoints = self.adjoints.as_mut_ptr().wrapping_sub(self.base as usize);
        // SAFETY: as in `descend_as`: adjoints and values hold all that the node, which has this op, can reach.
        let low = unsafe { pull_apart(adjoints, self.recorded.values.as_ptr(), op, node, g, operands) };
        self.low = self.low.min(low);
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
