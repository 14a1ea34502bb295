//! The sweep over scalar nodes.
//!
//! The simple algorithm: give the root its seed; then, from the root down, take each node whose adjoint is not "not reached"
//! and add the contributions of its op's row to the adjoints of its operands. Every operand lies below its node, so when a node
//! is taken all contributions to it have been made: no recursion, no visited set, no order to compute.
//!
//! Departures from that loop, with their benefits:
//! 1. "Not reached" is the adjoint -0.0 itself: contributions are `c + 0.0`, which is never -0.0. No flag to keep.
//! 2. `low`, the lowest operand touched, ends the loop: the cost follows the root's span, not the tape.
//! 3. A run of unreached nodes is skipped eight at a time.
//! 4. The loop keeps bare pointers in registers and names every opcode, so that its jump needs no check; it stops at a
//!    node with many operands, and a sweep without such nodes never sets up their state. With 5, 390 instructions
//!    became 220 for the tiny graph of the benches.
//!    Rows of rare ops are elsewhere, so that the loop stays small.
//! 5. If nothing can stop a sweep half way, a leaf is committed when it is reached: its adjoint is complete then.
#![allow(unsafe_code)]

use crate::graph::columns::Recorded;
use crate::ops::{self, Arity, BinaryOp, Op, Properties, UnaryOp};
use crate::scalar::Scalar;

/// Sweeps from `root` as far as scalar nodes go, committing leaves: most often all the way, without the state of a whole
/// [`Sweep`]. Returns how far it came, and the lowest node touched.
#[inline(always)]
pub(super) fn sweep_scalars<S: Scalar>(
    recorded: Recorded<'_, S>,
    adjoints: &mut [S],
    leaf_grads: &mut [S],
    root: u32,
    seed: S,
) -> (Descent, u32) {
    debug_assert!((root as usize) < adjoints.len());
    let mut cursor = Cursor::new(recorded, adjoints, 0, root, leaf_grads);
    // SAFETY: the root is a node of the graph, so all it reaches is in these columns; these are the gradients of all
    // leaves.
    let came = unsafe {
        cursor.add(root, seed);
        cursor.descend_by(Way::COMMITTING, root + 1, 0)
    };
    (came, cursor.low)
}

/// How a cursor takes nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Nodes whose adjoint is zero are passed over.
    pub(super) skip_zero: bool,
    /// Adjoints of leaves are added to their gradients.
    pub(super) commit: bool,
}

impl Way {
    /// That of most sweeps.
    pub(super) const COMMITTING: Self = Way { skip_zero: false, commit: true };
}

/// Whether a sweep over this type has its loop compiled for the usual way, with every row but those of rare ops in it. For
/// other types, rows of a few instructions are in the loop; of scalars that are larger than a register no row is.
const fn is_number<S: Scalar>() -> bool {
    S::LANES == 1 && size_of::<S>() == size_of::<S::Compute>() && size_of::<S>() <= 8
}

/// Whether a row is not in the loop but in [`pull_apart`].
const fn is_apart<S: Scalar>(is: Properties) -> bool {
    is.rare || !is_number::<S>() && (!is.quick || size_of::<S>() > 64)
}

/// Hands the adjoint `g` of `node` on by the row of its op, whichever that is. Returns the lowest node that received some.
/// The loop over single numbers ends where it would have to be called, as a call there costs it registers.
///
/// # Safety
/// `op` has one or two operands, and `node` has this op and these operands; adjoints and values, which begin with those of
/// node 0, are there for all of them.
#[inline(never)]
pub(super) unsafe fn pull_apart<S: Scalar>(
    adjoints: *mut S,
    values: *const S,
    op: Op,
    node: u32,
    g: S,
    [a, b]: [u32; 2],
) -> u32 {
    debug_assert!(!values.is_null() && a < node);
    // SAFETY: by the contract of this function.
    unsafe {
        let add = |node: u32, contribution: S| {
            let adjoint = &mut *adjoints.wrapping_add(node as usize);
            *adjoint = *adjoint + (contribution + S::lit(0.0));
        };
        let value = |node: u32| *values.add(node as usize);
        if op.info().arity == Arity::Unary {
            if let Some(to_x) = ops::pull_unary(op, g, value(a), value(node)) {
                add(a, to_x);
            }
            return a;
        }
        if let Some((to_x, to_y)) = ops::pull_binary(op, g, value(a), value(b), value(node)) {
            add(a, to_x);
            if op.info().arity == Arity::Binary {
                add(b, to_y);
                return a.min(b);
            }
        }
        a
    }
}

/// Where the sweep is among scalar nodes: columns as bare pointers, so that the loop keeps them in registers.
pub(super) struct Cursor<S> {
    /// To the adjoint that node 0 has or would have; only nodes from the sweep's base to its root are there.
    adjoints: *mut S,
    /// To the value, the opcode and the operands of node 0.
    values: *const S,
    ops: *const Op,
    operands: *const [u32; 2],
    /// To the gradient of leaf 0.
    leaf_grads: *mut S,
    /// The lowest node touched so far.
    pub(super) low: u32,
}

/// How far a cursor came.
pub(super) enum Descent {
    /// Everything down to this node, which may be far below the last one touched, has been taken.
    Down(u32),
    /// This node is not a matter of one or two operands: it has not been taken.
    Met(u32),
}

impl<S: Scalar> Cursor<S> {
    /// A cursor over adjoints that start with the one of node `base`. Nothing below `low` is touched yet.
    #[inline(always)]
    pub(super) fn new(
        recorded: Recorded<'_, S>,
        adjoints: &mut [S],
        base: u32,
        low: u32,
        leaf_grads: &mut [S],
    ) -> Self {
        Cursor {
            adjoints: adjoints.as_mut_ptr().wrapping_sub(base as usize),
            values: recorded.values.as_ptr(),
            ops: recorded.ops.as_ptr(),
            operands: recorded.operands.as_ptr(),
            leaf_grads: leaf_grads.as_mut_ptr(),
            low,
        }
    }

    /// Takes the nodes below `end`, as long as they are at `floor` or above and anything below is touched.
    ///
    /// # Safety
    /// Nodes below `end` exist. Adjoints are there for `low` and everything above it, and for all that can be reached
    /// from there. Where leaves are committed, so are the gradients of all of them.
    #[inline(always)]
    pub(super) unsafe fn descend_by(&mut self, way: Way, end: u32, floor: u32) -> Descent {
        debug_assert!(!self.leaf_grads.is_null());
        // SAFETY: by the contract of this function.
        unsafe {
            if is_number::<S>() && way == Way::COMMITTING {
                self.descend::<true>(way, end, floor)
            } else {
                self.descend::<false>(way, end, floor)
            }
        }
    }

    /// As [`Cursor::descend_by`]; with `USUAL`, compiled for [`Way::COMMITTING`].
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn descend<const USUAL: bool>(&mut self, way: Way, end: u32, floor: u32) -> Descent {
        debug_assert!(!self.leaf_grads.is_null());
        let way = if USUAL { Way::COMMITTING } else { way };
        let mut cursor = Cursor { ..*self };
        let mut node = end;
        while node > cursor.low && node > floor {
            node -= 1;
            // SAFETY: low <= node < end, so that the columns and adjoints hold it; the operands of a scalar op are nodes
            // of the graph that lie below it.
            unsafe {
                let g = cursor.adjoint(node);
                if g.is_unreached() {
                    node = cursor.pass_unreached(node, floor);
                    continue;
                }
                if way.skip_zero && g.all_zero() {
                    continue;
                }
                let op = *cursor.ops.add(node as usize);
                let [a, b] = *cursor.operands.add(node as usize);
                if !cursor.pull(way.commit, op, node, g, a, b) {
                    self.low = cursor.low;
                    return Descent::Met(node);
                }
            }
        }
        self.low = cursor.low;
        Descent::Down(node)
    }

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

    /// Adds an adjoint to the gradient of a leaf.
    ///
    /// # Safety
    /// The graph has a leaf of this number, and its gradients are there.
    #[inline(always)]
    unsafe fn commit(&mut self, leaf: u32, adjoint: S) {
        // SAFETY: by the contract of this function.
        let grad = unsafe { &mut *self.leaf_grads.add(leaf as usize) };
        *grad = *grad + adjoint;
    }

    /// As [`pull_apart`]; `true`.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn pull_apart(&mut self, op: Op, node: u32, g: S, operands: [u32; 2]) -> bool {
        debug_assert!(!self.adjoints.is_null());
        // SAFETY: by the contract of this function.
        let low = unsafe { pull_apart(self.adjoints, self.values, op, node, g, operands) };
        self.low = self.low.min(low);
        true
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

macro_rules! define_pull {
    (
        nullary { $( #[doc = $ndoc:literal] $N:ident $nname:ident $npaper:literal )* }
        unary { $( #[doc = $udoc:literal] $U:ident $uname:ident $upaper:literal { $($ubody:tt)* } )* }
        binary { $( #[doc = $bdoc:literal] $B:ident $bname:ident $bpaper:literal { $($bbody:tt)* } )* }
        with_constant { $( #[doc = $kdoc:literal] $K:ident $kname:ident $kpaper:literal { $($kbody:tt)* } )* }
        reduction { $( #[doc = $rdoc:literal] $R:ident $rname:ident $rpaper:literal { $($rbody:tt)* } )* }
        inner_product { $( #[doc = $idoc:literal] $I:ident $iname:ident $ipaper:literal { $($ibody:tt)* } )* }
        block { $( #[doc = $odoc:literal] $O:ident $oname:ident )* }
    ) => {
        impl<S: Scalar> Cursor<S> {
            /// Hands the adjoint `g` of `node` on to its operands; `false`, with nothing done, if that is not a matter
            /// of one or two of them.
            ///
            /// # Safety
            /// `node` has this op and these operands; adjoints are there for everything it can reach, and with `commit`
            /// gradients for all leaves.
            #[inline(always)]
            unsafe fn pull(&mut self, commit: bool, op: Op, node: u32, g: S, a: u32, b: u32) -> bool {
                debug_assert!(!self.adjoints.is_null());
                // SAFETY: by the contract of this function.
                unsafe {
                    // Every op is named, so that the jump needs no check; the last arm takes what those before left.
                    #[allow(unreachable_patterns)]
                    match op {
                        Op::Leaf => if commit { self.commit(a, g) },
                        Op::Constant | Op::Imported => {}
                        $( Op::$U => {
                            if is_apart::<S>(ops::$U::IS) {
                                return !is_number::<S>() && self.pull_apart(op, node, g, [a, b]);
                            }
                            self.add(a, <ops::$U as UnaryOp>::pull(g, self.value(a), self.value(node)));
                        } )*
                        $( Op::$B => {
                            if is_apart::<S>(ops::$B::IS) {
                                return !is_number::<S>() && self.pull_apart(op, node, g, [a, b]);
                            }
                            let (x, y, z) = (self.value(a), self.value(b), self.value(node));
                            self.add(a, <ops::$B as BinaryOp>::pull_x(g, x, y, z));
                            self.add(b, <ops::$B as BinaryOp>::pull_y(g, x, y, z));
                        } )*
                        $( Op::$K => {
                            if is_apart::<S>(ops::$K::IS) {
                                return !is_number::<S>() && self.pull_apart(op, node, g, [a, b]);
                            }
                            let (x, c, z) = (self.value(a), self.value(b), self.value(node));
                            self.add(a, <ops::$K as BinaryOp>::pull_x(g, x, c, z));
                        } )*
                        $( Op::$N )|* | $( Op::$R )|* | $( Op::$I )|* | $( Op::$O )|* => return false,
                    }
                }
                true
            }
        }
    };
}

for_each_op!(define_pull);
