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

use super::{Gradients, Values};
use crate::graph::MAX_STORES;
use crate::graph::columns::Recorded;
use crate::graph::{Encoded, InnerOperands, OperandRun};
use crate::kernels::Mode;
use crate::ops::{self, Arity, BinaryOp, Op, Reduction, UnaryOp};
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

/// Where the sweep is: columns as bare pointers, so that the loop keeps them in registers.
struct Cursor<S> {
    /// To the adjoint that node 0 has or would have; only nodes from the sweep's base to its root are there.
    adjoints: *mut S,
    /// To the value of node 0.
    values: *const S,
    /// The lowest node touched so far.
    low: u32,
}

impl<S: Scalar> Cursor<S> {
    /// # Safety
    /// `node` lies between the sweep's base and its root.
    #[inline(always)]
    unsafe fn adjoint(&self, node: u32) -> S {
        // SAFETY: by the contract of this function.
        unsafe { *self.adjoints.wrapping_add(node as usize) }
    }

    /// # Safety
    /// `node` is a node of the graph.
    #[inline(always)]
    unsafe fn value(&self, node: u32) -> S {
        // SAFETY: by the contract of this function.
        unsafe { *self.values.add(node as usize) }
    }

    /// Adds a contribution to a node's adjoint.
    ///
    /// # Safety
    /// `node` lies between the sweep's base and its root.
    #[inline(always)]
    unsafe fn add(&mut self, node: u32, contribution: S) {
        // SAFETY: by the contract of this function.
        let adjoint = unsafe { &mut *self.adjoints.wrapping_add(node as usize) };
        *adjoint = *adjoint + (contribution + S::lit(0.0));
        self.low = self.low.min(node);
    }

    /// From an unreached node, the last of the unreached nodes right below it, as far as whole eights go.
    ///
    /// # Safety
    /// `node` lies between `low` and the sweep's root.
    #[inline(always)]
    unsafe fn pass_unreached(&self, mut node: u32, floor: u32) -> u32 {
        let floor = floor.max(self.low);
        while node - floor >= 8 {
            // SAFETY: all eight lie between `low`, which is not below the sweep's base, and the root.
            let unreached = |k: usize| unsafe { (*self.adjoints.wrapping_add(node as usize - k)).is_unreached() };
            if !(1..=8).fold(true, |all, k| all & unreached(k)) {
                break;
            }
            node -= 8;
        }
        node
    }
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
        let mut cursor = self.cursor();
        while node > cursor.low && node > floor {
            node -= 1;
            // SAFETY: low <= node <= root: adjoints hold everything from low to root, the columns everything up to it.
            let g = unsafe { cursor.adjoint(node) };
            if g.is_unreached() {
                // SAFETY: as above.
                node = unsafe { cursor.pass_unreached(node, floor) };
                continue;
            }
            if SKIP_ZERO && g.all_zero() {
                continue;
            }
            // SAFETY: as above; the operands of a scalar op are nodes of the graph that lie below it.
            let (op, [a, b]) = unsafe { (self.recorded.op(node), self.recorded.operands(node)) };
            // SAFETY: as above.
            if !unsafe { cursor.pull(op, node, g, a, b) } {
                self.low = cursor.low;
                node = self.pull_many(op, node, g, a, b);
                cursor = self.cursor();
            }
        }
        self.low = cursor.low;
        node
    }

    /// The hot part of the sweep's state, in registers.
    #[inline(always)]
    fn cursor(&mut self) -> Cursor<S> {
        Cursor {
            adjoints: self.adjoints.as_mut_ptr().wrapping_sub(self.base as usize),
            values: self.recorded.values.as_ptr(),
            low: self.low,
        }
    }

    /// Hands `g` on through anything that is not a unary or binary op. Returns the lowest node this took care of: the
    /// node itself, or the first output of its block.
    #[inline(never)]
    fn pull_many(&mut self, op: Op, node: u32, g: S, a: u32, b: u32) -> u32 {
        match op.info().arity {
            // Whether it is frozen now decides, not whether it was when the node was built.
            Arity::Nullary if op != Op::Part => self.add_parameter(b, a as usize, g),
            Arity::Reduction => self.reduction(op, g, Encoded(a, b)),
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
        let store = &mut self.params[self.places[slot as usize] as usize];
        if store.frozen.is_empty() || store.is_trainable(index) {
            let contribution = contribution.sum_lanes();
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
        $($rest:tt)*
    ) => {
        impl<S: Scalar> Cursor<S> {
            /// Hands the adjoint `g` of `node` on to its operands; `false`, with nothing done, if that is not a matter
            /// of one or two of them.
            ///
            /// # Safety
            /// `node` has this op and these operands; adjoints are there for everything it can reach.
            #[inline(always)]
            unsafe fn pull(&mut self, op: Op, node: u32, g: S, a: u32, b: u32) -> bool {
                // SAFETY: by the contract of this function.
                unsafe {
                    match op {
                        Op::Leaf | Op::Constant => {}
                        $( Op::$U => self.add(a, <ops::$U as UnaryOp>::pull(g, self.value(a), self.value(node))), )*
                        $( Op::$B => {
                            let (x, y, z) = (self.value(a), self.value(b), self.value(node));
                            self.add(a, <ops::$B as BinaryOp>::pull_x(g, x, y, z));
                            self.add(b, <ops::$B as BinaryOp>::pull_y(g, x, y, z));
                        } )*
                        $( Op::$K => {
                            let (x, c, z) = (self.value(a), self.value(b), self.value(node));
                            self.add(a, <ops::$K as BinaryOp>::pull_x(g, x, c, z));
                        } )*
                        _ => return false,
                    }
                }
                true
            }
        }
    };
}

for_each_op!(define_pull);
