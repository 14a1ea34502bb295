//! The code of bundles: up to a vector's lanes of equal ops on arbitrary slots.
//!
//! In words: slots of operands are gathered into lanes, the row of the op table is applied, and lanes are stored
//! contiguously. In the reverse pass each lane's adjoint is the sum of its contributions, gathered in the order in
//! which the eager backward pass adds them, and contributions are stored contiguously; so there is no scatter, and
//! lanes are independent.
//!
//! Promises: lane k has the bits of the op on lane k's numbers. Knows slots, not programs.
#![allow(unsafe_code)]

use super::super::instr::tangent;
use super::memory::{Body, Bundle, InLanes, Lanes, Memory, Run, compiled, partials};
use super::products::{Product, ProductWithPartials, PullProductByPartials};
use super::softmax::{PullSoftmax, PushSoftmax, Softmax, SoftmaxWithPartials};
use super::units::{Key, MOST_OPERANDS, Shape};
use crate::ops::{self, BinaryOp, Op, Properties, Reduction, UnaryOp};
use crate::scalar::Scalar;
use crate::simd::Level;
use crate::simd::gather::Gather;

/// Defines a body.
macro_rules! body {
    ($(#[$doc:meta])* $name:ident $(<$o:ident: $bound:ident>)? |$b:ident, $at:ident, $l:ident| $code:block) => {
        $(#[$doc])*
        pub(super) struct $name $(<$o>($o))?;
        impl<S: InLanes, $l: Lanes<S>, $($o: $bound)?> Body<S, $l> for $name $(<$o>)? {
            $(const IS: Properties = $o::IS;)?
            #[inline(always)]
            unsafe fn run($b: &Bundle<S>, $at: Memory<S, $l>) {
                // SAFETY: by the contract of the trait.
                unsafe { $code }
            }
        }
    };
}

body!(Copied | b, at, L | { at.store(at.v, b.values, at.operand(at.v, b, 0)) });

body!(Unary<O: UnaryOp> |b, at, L| { at.store_values(b, O::forward(at.operand(at.v, b, 0))) });

body!(
    /// A value and its partial, which costs little more here and shortens the reverse pass to one multiplication.
    UnaryWithPartial<O: UnaryOp> |b, at, L| {
        let x = at.operand(at.v, b, 0);
        let y = O::forward(x);
        at.store_values(b, y);
        at.store(at.v, partials::<S, L>(b), O::pull(L::lit(1.0), x, y));
    }
);

body!(
    /// The contribution of an op with a stored partial.
    PullByPartial |b, at, L| {
        let partial = at.load(at.v, partials::<S, L>(b));
        at.store(at.d, b.to, at.inner_adjoint(b) * partial);
    }
);

body!(PullUnary<O: UnaryOp> |b, at, L| {
    let (g, x, y) = (at.inner_adjoint(b), at.old_operand(b, 0), at.load(at.v, b.values));
    at.store(at.d, b.to, O::pull(g, x, y));
});

body!(PushUnary<O: UnaryOp> |b, at, L| {
    let (t, x, y) = (at.operand(at.d, b, 0), at.old_operand(b, 0), at.load(at.v, b.values));
    at.store_tangents(b, tangent(O::IS, t, |t| O::pull(t, x, y)));
});

body!(Binary<O: BinaryOp> |b, at, L| {
    at.store_values(b, O::forward(at.operand(at.v, b, 0), at.operand(at.v, b, 1)));
});

body!(PullBinary<O: BinaryOp> |b, at, L| {
    let (x, y, z) = (at.old_operand(b, 0), at.old_operand(b, 1), at.load(at.v, b.values));
    let g = at.inner_adjoint(b);
    if b.moving & 1 != 0 {
        at.store(at.d, b.to, O::pull_x(g, x, y, z));
    }
    if b.moving & 2 != 0 {
        at.store(at.d, b.to + Memory::<S, L>::STRIDE, O::pull_y(g, x, y, z));
    }
});

body!(PushBinary<O: BinaryOp> |b, at, L| {
    let (x, y, z) = (at.old_operand(b, 0), at.old_operand(b, 1), at.load(at.v, b.values));
    let by_x = (b.moving & 3 != 2).then(|| tangent(O::IS, at.operand(at.d, b, 0), |t| O::pull_x(t, x, y, z)));
    let by_y = (b.moving & 3 != 1).then(|| tangent(O::IS, at.operand(at.d, b, 1), |t| O::pull_y(t, x, y, z)));
    at.store_tangents(b, ops::sum_of_some(by_x, by_y));
});

body!(
    /// A sum of fewer than sixteen, from left to right.
    Sum |b, at, L| {
        let first = at.operand(at.v, b, 0);
        let total = match b.n {
            // Unrolled, so that later instructions start earlier.
            4 => first + at.operand(at.v, b, 1) + at.operand(at.v, b, 2) + at.operand(at.v, b, 3),
            n => {
                let mut total = first;
                for j in 1..u32::from(n) {
                    total = total + at.operand(at.v, b, j);
                }
                total
            }
        };
        at.store_values(b, total);
    }
);

body!(
    /// Units whose adjoint is the contribution to every operand: it is computed once.
    PullThrough |b, at, L| { at.store(at.d, b.to, at.inner_adjoint(b)) }
);

body!(
    Many | b,
    at,
    L | {
        let mut xs = [L::lit(0.0); MOST_OPERANDS];
        let xs = &mut xs[..usize::from(b.n).min(MOST_OPERANDS)];
        for (x, j) in xs.iter_mut().zip(0..) {
            *x = at.operand(at.v, b, j);
        }
        at.store_values(b, value_of(b.op, xs));
    }
);

type ProductOfMany = Product<Many>;

body!(
    PullMany | b,
    at,
    L | {
        let (mut xs, mut out) = ([L::lit(0.0); MOST_OPERANDS], [L::lit(0.0); MOST_OPERANDS]);
        let n = usize::from(b.n).min(MOST_OPERANDS);
        for (x, j) in xs[..n].iter_mut().zip(0..) {
            *x = at.old_operand(b, j);
        }
        pull_of(b.op, at.inner_adjoint(b), &xs[..n], &mut out[..n]);
        for (c, j) in out[..n].iter().zip(0..) {
            at.store(at.d, b.to + j * Memory::<S, L>::STRIDE, *c);
        }
    }
);

body!(
    PushMany | b,
    at,
    L | {
        let (mut xs, mut out) = ([L::lit(0.0); MOST_OPERANDS], [L::lit(0.0); MOST_OPERANDS]);
        let n = usize::from(b.n).min(MOST_OPERANDS);
        for (x, j) in xs[..n].iter_mut().zip(0..) {
            *x = at.old_operand(b, j);
        }
        pull_of(b.op, L::lit(1.0), &xs[..n], &mut out[..n]);
        let mut total: Option<L> = None;
        for (partial, j) in out[..n].iter().zip(0..) {
            if b.moving & 1 << j != 0 {
                let term = *partial * at.operand(at.d, b, j);
                total = Some(total.map_or(term, |total| total + term));
            }
        }
        at.store_tangents(b, total.unwrap_or(L::lit(0.0)));
    }
);

body!(
    /// One node with many operands, whose values are copied to scratch.
    Lone |b, at, L| {
        let (xs, _) = lone(b, at);
        *at.v.add(b.values as usize) = crate::program::nary::value_of_operands(b.op, count(b), xs);
    }
);

body!(
    /// A sum of many: eight running sums, as everywhere.
    LoneSum |b, at, L| {
        let n = count(b) as u32;
        let mut sums = L::UNREACHED;
        let whole = n - n % L::LANES as u32;
        for j in (0..whole).step_by(L::LANES) {
            sums = sums + Gather::gather(at.v, at.slots.add((b.operands + j) as usize));
        }
        for (k, j) in (whole..n).enumerate() {
            let x = *at.v.add(*at.slots.add((b.operands + j) as usize) as usize);
            sums = sums.with_lane(k, sums.lane(k) + x);
        }
        *at.v.add(b.values as usize) = sums.sum_lanes();
    }
);

body!(
    PullLone | b,
    at,
    L | {
        let g = at.adjoint(b, b.adjoints).lane(0);
        let (xs, out) = lone(b, at);
        crate::program::nary::pull_of_operands(b.op, count(b), g, xs, out);
        std::ptr::copy_nonoverlapping(out.as_ptr(), at.d.add(b.to as usize), out.len());
    }
);

body!(
    PushLone | b,
    at,
    L | {
        let (xs, out) = lone(b, at);
        crate::program::nary::pull_of_operands(b.op, count(b), S::lit(1.0), xs, out);
        let mut total: Option<S> = None;
        for (j, &partial) in out.iter().enumerate() {
            // The second half of the list marks the operands that depend on inputs.
            if *at.slots.add(b.operands as usize + out.len() + j) != 0 {
                let term = partial * *at.d.add(*at.slots.add(b.operands as usize + j) as usize);
                total = Some(total.map_or(term, |total| total + term));
            }
        }
        *at.d.add(b.values as usize) = total.unwrap_or(S::lit(0.0));
    }
);

body!(
    /// Gradients of consecutive inputs: the sums of their contributions.
    Gradients |b, at, L| { at.store(at.d, b.to, at.adjoint(b, b.adjoints)) }
);

body!(
    /// The sum of many contributions to one adjoint.
    Gathered |b, at, L| {
        let list = std::slice::from_raw_parts(at.slots.add(b.adjoints as usize), count(b));
        let mut total = *at.d.add(list[0] as usize);
        for &slot in &list[1..] {
            total = total + *at.d.add(slot as usize);
        }
        *at.d.add(b.to as usize) = total;
    }
);

/// The number of operands of a lone node, or of contributions to one adjoint, which may exceed 16 bits.
fn count<S>(b: &Bundle<S>) -> usize {
    usize::from(b.n) | usize::from(b.moving) << 16
}

/// The operands of a lone node, gathered, and workspace for as many contributions.
///
/// # Safety
/// As for a body.
unsafe fn lone<'a, S: InLanes, L>(b: &Bundle<S>, at: Memory<S, L>) -> (&'a [S], &'a mut [S]) {
    let n = super::units::operand_count(b.op, count(b));
    // SAFETY: by the contract of this function; the two parts of the scratch do not overlap.
    unsafe {
        let xs = std::slice::from_raw_parts_mut(at.scratch, n);
        for (j, x) in xs.iter_mut().enumerate() {
            *x = *at.v.add(*at.slots.add(b.operands as usize + j) as usize);
        }
        (xs, std::slice::from_raw_parts_mut(at.scratch.add(n), n))
    }
}

#[inline(always)]
fn value_of<S: Scalar>(op: Op, xs: &[S]) -> S {
    match op {
        Op::TOTAL_PRODUCT => xs[1..].iter().fold(xs[0], |p, &x| p * x),
        op => Reduction::new(op).map_or(S::lit(f64::NAN), |r| r.forward(xs)),
    }
}

#[inline(always)]
fn pull_of<S: Scalar>(op: Op, g: S, xs: &[S], out: &mut [S]) {
    match op {
        // Called directly, so that it is compiled for the level.
        Op::TOTAL_PRODUCT => ops::products_of_others(g, xs, out),
        op => {
            if let Some(r) = Reduction::new(op) {
                r.pull(g, xs, out);
            }
        }
    }
}

/// The code of a kind of unit: values, contributions, tangents.
pub(super) struct Codes<S> {
    pub(super) value: Option<Run<S>>,
    pub(super) pull: Option<Run<S>>,
    pub(super) push: Option<Run<S>>,
}

/// Whether the adjoint of units of this op is the contribution to every operand.
pub(super) fn hands_through(op: Op) -> bool {
    op.info().is.through
}

/// The code that sums the gradients of inputs.
pub(super) fn gradients<S: InLanes>(m: usize, level: Level) -> Option<Run<S>> {
    if is_half::<S>(m) { compiled::<Gradients, S, S::Half>(level) } else { compiled::<Gradients, S, S::Lanes>(level) }
}

/// The code that sums one adjoint.
pub(super) fn gathered<S: InLanes>(level: Level) -> Option<Run<S>> {
    compiled::<Gathered, S, S::Half>(level)
}

/// Lanes of the code for `m` units.
pub(super) fn width<S: InLanes>(m: usize) -> usize {
    if is_half::<S>(m) { <S::Half as Scalar>::LANES } else { <S::Lanes as Scalar>::LANES }
}

/// Whether half a vector is enough for `m` lanes.
fn is_half<S: InLanes>(m: usize) -> bool {
    m <= <S::Half as Scalar>::LANES
}

/// The code for units of this op with few operands, in `m` lanes.
pub(super) fn codes<S: InLanes>(op: Op, m: usize, level: Level) -> Codes<S> {
    if is_half::<S>(m) { codes_in::<S, S::Half>(op, level) } else { codes_in::<S, S::Lanes>(op, level) }
}

macro_rules! define_codes {
    (
        nullary { $($nullary:tt)* }
        unary { $( #[doc = $udoc:literal] $U:ident $uname:ident $upaper:literal { $($ubody:tt)* } )* }
        binary { $( #[doc = $bdoc:literal] $B:ident $bname:ident $bpaper:literal { $($bbody:tt)* } )* }
        with_constant { $( #[doc = $kdoc:literal] $K:ident $kname:ident $kpaper:literal { $($kbody:tt)* } )* }
        $($rest:tt)*
    ) => {
        #[allow(unreachable_patterns)]
        fn codes_in<S: InLanes, L: Lanes<S>>(op: Op, level: Level) -> Codes<S> {
            macro_rules! three {
                ($value:ty, $pull:ty, $push:ty) => {
                    Codes {
                        value: compiled::<$value, S, L>(level),
                        pull: compiled::<$pull, S, L>(level),
                        push: compiled::<$push, S, L>(level),
                    }
                };
            }
            macro_rules! binary {
                ($O:ty) => {
                    match <$O>::IS.through {
                        true => three!(Binary<$O>, PullThrough, PushBinary<$O>),
                        false => three!(Binary<$O>, PullBinary<$O>, PushBinary<$O>),
                    }
                };
            }
            match op {
                Op::Constant => three!(Copied, Copied, Copied),
                $( Op::$U => three!(Unary<ops::$U>, PullUnary<ops::$U>, PushUnary<ops::$U>), )*
                $( Op::$B => binary!(ops::$B), )*
                $( Op::$K => binary!(ops::$K), )*
                Op::TOTAL => three!(Sum, PullThrough, PushMany),
                Op::TOTAL_PRODUCT => three!(ProductOfMany, PullMany, PushMany),
                Op::Softmax => three!(Softmax, PullSoftmax, PushSoftmax),
                _ => three!(Many, PullMany, PushMany),
            }
        }
    };
}

for_each_op!(define_codes);

/// The number of partials that a unit of this kind stores for the reverse pass, if there is one.
pub(super) fn n_kept(key: Key) -> u32 {
    match key.shape {
        Shape::One | Shape::Softmax => 1,
        // Its operands lie anywhere, its partials are contiguous.
        Shape::Many if key.op == Op::TOTAL_PRODUCT && (2..=4).contains(&key.n) => u32::from(key.n),
        _ => 0,
    }
}

/// The code for units that store expensive partials; `None` for other ops. Only for ops whose rows multiply the adjoint
/// by a partial, so that no bit changes.
pub(super) fn keeping_codes<S: InLanes>(op: Op, m: usize, level: Level) -> Option<Codes<S>> {
    if is_half::<S>(m) { keeping_codes_in::<S, S::Half>(op, level) } else { keeping_codes_in::<S, S::Lanes>(op, level) }
}

macro_rules! define_keeping_codes {
    (
        nullary { $($nullary:tt)* }
        unary { $( #[doc = $udoc:literal] $U:ident $uname:ident $upaper:literal { $($ubody:tt)* } )* }
        $($rest:tt)*
    ) => {
        fn keeping_codes_in<S: InLanes, L: Lanes<S>>(op: Op, level: Level) -> Option<Codes<S>> {
            if op == Op::Softmax {
                let value = compiled::<SoftmaxWithPartials, S, L>(level);
                return Some(Codes { value, ..codes_in::<S, L>(op, level) });
            }
            if op == Op::TOTAL_PRODUCT {
                let pull = compiled::<PullProductByPartials, S, L>(level);
                return Some(Codes { value: compiled::<ProductWithPartials, S, L>(level), pull, push: None });
            }
            let value = match op {
                $( Op::$U if ops::$U::IS.keeps => compiled::<UnaryWithPartial<ops::$U>, S, L>(level), )*
                _ => None,
            }?;
            Some(Codes { value: Some(value), pull: compiled::<PullByPartial, S, L>(level), push: None })
        }
    };
}

for_each_op!(define_keeping_codes);

/// The code for nodes processed one at a time. The sum of many has as many lanes as everywhere.
pub(super) fn lone_codes<S: InLanes>(op: Op, level: Level) -> Codes<S> {
    let pull = match hands_through(op) {
        true => compiled::<PullThrough, S, S::Half>(level),
        false => compiled::<PullLone, S, S::Half>(level),
    };
    let value = match op {
        Op::TOTAL => compiled::<LoneSum, S, S::Lanes>(level),
        _ => compiled::<Lone, S, S::Half>(level),
    };
    Codes { value, pull, push: compiled::<PushLone, S, S::Half>(level) }
}
