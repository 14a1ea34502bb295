//! The sweep over scalar nodes.
//!
//! In words: give the root its seed; then, from the root down, take each node whose adjoint is not "not reached" and add
//! what its op's row says to the adjoints of its operands. Every operand lies below its node, so when a node is taken
//! all contributions to it have been made: no recursion, no visited set, no order to compute.
//!
//! Departures from that loop, and what they buy:
//! 1. "Not reached" is the adjoint -0.0 itself: contributions are `c + 0.0`, which is never -0.0. No flag to keep.
//! 2. `low`, the lowest operand touched, ends the loop: the cost follows the root's span, not the tape.
//! 3. A run of unreached nodes is passed eight at a time.
#![allow(unsafe_code)]

use super::Gradients;
use crate::graph::MAX_STORES;
use crate::graph::columns::Recorded;
use crate::graph::{Encoded, InnerOperands, OperandRun};
use crate::ops::{self, BinaryOp, Op, Reduction, UnaryOp};
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
    pub(super) params: &'a mut [Gradients<'g, S::Elem>],
    /// For each slot of the graph, its place in `params`.
    pub(super) places: [u8; MAX_STORES],
    pub(super) skip_zero_adjoints: bool,
}

impl<S: Scalar> Sweep<'_, '_, S> {
    /// Sweeps from `root`; `false` if interrupted.
    #[inline]
    pub(super) fn run(&mut self, root: u32, seed: S, interrupted: Option<&mut dyn FnMut() -> bool>) -> bool {
        debug_assert!((root - self.base) < self.adjoints.len() as u32);
        self.add(root, seed);
        match (self.skip_zero_adjoints, interrupted) {
            (false, None) => self.descend::<false>(root, 0),
            (true, None) => self.descend::<true>(root, 0),
            (skip, Some(stop)) => return self.descend_polled(root, skip, stop),
        };
        true
    }

    #[inline(never)]
    fn descend_polled(&mut self, root: u32, skip: bool, stop: &mut dyn FnMut() -> bool) -> bool {
        let mut node = root + 1;
        while node > self.low {
            if stop() {
                return false;
            }
            let floor = node.saturating_sub(POLL_EVERY);
            node = if skip { self.descend::<true>(node - 1, floor) } else { self.descend::<false>(node - 1, floor) };
        }
        true
    }

    /// Takes the nodes from `top` down, as long as they are at `floor` or above and anything below is touched.
    /// Returns the lowest node taken.
    #[inline(always)]
    fn descend<const SKIP_ZERO: bool>(&mut self, top: u32, floor: u32) -> u32 {
        let mut node = top + 1;
        while node > self.low && node > floor {
            node -= 1;
            // SAFETY: low <= node <= root, and adjoints hold everything from base <= low to root.
            let g = unsafe { *self.adjoints.get_unchecked((node - self.base) as usize) };
            if g.is_unreached() {
                node = self.pass_unreached(node, floor);
                continue;
            }
            if SKIP_ZERO && g.all_zero() {
                continue;
            }
            // SAFETY: node is at most the root, a node of the graph.
            let (op, [a, b]) = unsafe { (self.recorded.op(node), self.recorded.operands(node)) };
            node = self.pull(op, node, g, a, b);
        }
        node
    }

    /// From an unreached node, the last of the unreached nodes right below it, as far as whole eights go.
    #[inline(always)]
    fn pass_unreached(&self, mut node: u32, floor: u32) -> u32 {
        let floor = floor.max(self.low);
        while node - floor >= 8 {
            let at = (node - 8 - self.base) as usize;
            // SAFETY: base <= low <= floor <= node - 8, and node is at most the root.
            let eight = unsafe { self.adjoints.get_unchecked(at..at + 8) };
            if !eight.iter().all(S::is_unreached) {
                break;
            }
            node -= 8;
        }
        node
    }

    #[inline(always)]
    fn value(&self, node: u32) -> S {
        // SAFETY: only operands of nodes of the graph are asked for, and they are nodes of the graph.
        unsafe { self.recorded.value(node) }
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
        let store = &mut self.params[self.places[slot as usize] as usize];
        if store.frozen.is_empty() || store.is_trainable(index) {
            store.grads[index] = store.grads[index] + contribution.sum_lanes();
        }
    }

    /// Adds contributions to a run of operands.
    #[inline(always)]
    pub(super) fn add_run(&mut self, run: OperandRun, contributions: &[S]) {
        if run.source == 0 {
            for (node, &c) in (run.start..).zip(contributions) {
                self.add(node, c);
            }
        } else {
            for (index, &c) in (run.start as usize..).zip(contributions) {
                self.add_parameter(run.source - 1, index, c);
            }
        }
    }

    fn reduction(&mut self, op: Op, g: S, operands: Encoded) {
        let Some(reduction) = Reduction::new(op) else { return };
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
            *store = self.params.get(place as usize).map_or(&[], |p| p.values);
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

macro_rules! define_pull {
    (
        nullary { $($nullary:tt)* }
        unary { $( #[doc = $udoc:literal] $U:ident $uname:ident $upaper:literal { $($ubody:tt)* } )* }
        binary { $( #[doc = $bdoc:literal] $B:ident $bname:ident $bpaper:literal { $($bbody:tt)* } )* }
        with_constant { $( #[doc = $kdoc:literal] $K:ident $kname:ident $kpaper:literal { $($kbody:tt)* } )* }
        reduction { $( #[doc = $rdoc:literal] $R:ident $rname:ident $rpaper:literal { $($rbody:tt)* } )* }
        $($rest:tt)*
    ) => {
        impl<S: Scalar> Sweep<'_, '_, S> {
            /// Hands the adjoint `g` of `node` on to its operands. Returns the lowest node this took care of: the node
            /// itself, or the first output of its block.
            #[inline(always)]
            fn pull(&mut self, op: Op, node: u32, g: S, a: u32, b: u32) -> u32 {
                match op {
                    Op::Leaf | Op::Constant => {}
                    // Whether it is frozen now decides, not whether it was when the node was built.
                    Op::Param | Op::FrozenParam => self.add_parameter(b, a as usize, g),
                    $( Op::$U => {
                        let contribution = <ops::$U as UnaryOp>::pull(g, self.value(a), self.value(node));
                        self.add(a, contribution);
                    } )*
                    $( Op::$B => {
                        let (x, y, z) = (self.value(a), self.value(b), self.value(node));
                        self.add(a, <ops::$B as BinaryOp>::pull_x(g, x, y, z));
                        self.add(b, <ops::$B as BinaryOp>::pull_y(g, x, y, z));
                    } )*
                    $( Op::$K => {
                        let (x, c, z) = (self.value(a), self.value(b), self.value(node));
                        self.add(a, <ops::$K as BinaryOp>::pull_x(g, x, c, z));
                    } )*
                    $( Op::$R )|* => self.reduction(op, g, Encoded(a, b)),
                    Op::InnerProduct => self.inner_product(g, a, false),
                    Op::InnerProductWithBias => self.inner_product(g, a, true),
                    _ => return self.block(node),
                }
                node
            }
        }
    };
}

for_each_op!(define_pull);
