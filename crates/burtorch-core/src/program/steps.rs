//! The steps of a replay: for every row of the op table its value, its contributions and its tangent.
//!
//! A step reads the slots of its instruction, computes its row, and writes slots. A replay is a list of instructions, each
//! with the address of its step, up to one that stops.
//!
//! Differences from a plain `match` on the op, with their benefits:
//! 1. An instruction contains the address of code for its op and for its kind of contribution: none, overwriting, or adding.
//!    These are known when the function is recorded, and not tested again.
//! 2. A slot holds `W` scalars, each of which may be a vector: one decoded instruction serves a block of rows.
//! 3. Steps of vectors are compiled for CPU levels, where that pays.
//! 4. A step ends with a jump to the next one: no loop, no return. That takes 2 machine instructions where a loop took
//!    11, of some 20 for a step of one number in all (a value and gradient of 25 operations: 1,563 with the call
//!    from Python before). By their calling convention steps save no registers for their caller, so nothing is pushed.
//!
//! Promises: a step computes its row and nothing else. Knows slots, not programs.
#![allow(unsafe_code)]

use super::call_steps::{CallValue, PullCall, PushCall};
use super::instr::{ADD, Body, Instr, Lists, SET, SKIP, Step, contribute, moving, tangent, width};
use super::nary::{DualMany, PullMany, PushMany, Reduce};
use crate::ops::Dual;
use crate::ops::{self, Arity, BinaryOp, Op, Properties, UnaryOp};
use crate::scalar::Scalar;
use crate::simd::Level;

macro_rules! steps {
    ($($(#[$attribute:meta])* $name:ident)*) => { $(
        $(#[$attribute])*
        unsafe extern "rust-preserve-none" fn $name<B: Body<S>, S>(
            v: *mut S,
            d: *mut S,
            i: *const Instr<S>,
            lists: *mut Lists<S>,
        ) {
            debug_assert!(!i.is_null());
            // SAFETY: the caller keeps the contract of the body, for this instruction and its successors up to a stop.
            unsafe {
                B::run(v, d, &*i, lists);
                let next = i.add(1);
                become ((*next).step)(v, d, next, lists)
            }
        }
    )* };
}
steps! {
    plain
    /// A step of vectors that is kept small: its loops are not unrolled.
    #[optimize(size)]
    small
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    avx2
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
    avx512
}

/// Compiles a body as a step. Scalars, and rarely called functions, gain nothing from wide instructions: AVX-512 has
/// copies of quick ops and reductions, and rare ops have one copy. An x86 CPU without AVX2 runs the small steps, whose
/// body reads the width of slots from the instruction.
fn compiled<B: Body<S>, AnyWidth: Body<S>, S: Scalar>(level: Level) -> Step<S> {
    if S::LANES == 1 {
        return plain::<B, S>;
    }
    if B::IS.rare {
        return small::<AnyWidth, S>;
    }
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 if B::IS.quick => avx512::<B, S>,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx2 => avx2::<B, S>,
        _ if cfg!(target_arch = "x86_64") => small::<AnyWidth, S>,
        _ => plain::<B, S>,
    }
}

/// The modes are read from the instruction.
const AT_RUN_TIME: u8 = 255;

#[inline(always)]
fn modes_of<const M: u8, S>(i: &Instr<S>) -> (u8, u8) {
    let modes = if M == AT_RUN_TIME { i.modes } else { M };
    (modes & 3, modes >> 2)
}

struct Unary<O, const W: usize>(O);
impl<O: UnaryOp, S: Scalar, const W: usize> Body<S> for Unary<O, W> {
    const IS: Properties = O::IS;
    #[inline(always)]
    unsafe fn run(v: *mut S, _d: *mut S, i: &Instr<S>, _lists: *mut Lists<S>) {
        let w = width::<W, _>(i);
        // SAFETY: by the contract of the trait, as in every body here.
        unsafe {
            let (x, y) = (v.add(i.a as usize * w), v.add(i.c as usize * w));
            for k in 0..w {
                *y.add(k) = O::forward(*x.add(k));
            }
        }
    }
}

struct Binary<O, const W: usize>(O);
impl<O: BinaryOp, S: Scalar, const W: usize> Body<S> for Binary<O, W> {
    const IS: Properties = O::IS;
    #[inline(always)]
    unsafe fn run(v: *mut S, _d: *mut S, i: &Instr<S>, _lists: *mut Lists<S>) {
        let w = width::<W, _>(i);
        // SAFETY: as above.
        unsafe {
            let (x, y, z) = (v.add(i.a as usize * w), v.add(i.b as usize * w), v.add(i.c as usize * w));
            for k in 0..w {
                *z.add(k) = O::forward(*x.add(k), *y.add(k));
            }
        }
    }
}

/// A copy that blocks gradients.
struct Copied<const W: usize>;
impl<S: Scalar, const W: usize> Body<S> for Copied<W> {
    #[inline(always)]
    unsafe fn run(v: *mut S, _d: *mut S, i: &Instr<S>, _lists: *mut Lists<S>) {
        let w = width::<W, _>(i);
        // SAFETY: as above.
        unsafe {
            for k in 0..w {
                *v.add(i.c as usize * w + k) = *v.add(i.a as usize * w + k);
            }
        }
    }
}

struct PullUnary<O, const W: usize, const M: u8>(O);
impl<O: UnaryOp, S: Scalar, const W: usize, const M: u8> Body<S> for PullUnary<O, W, M> {
    const IS: Properties = O::IS;
    #[inline(always)]
    unsafe fn run(v: *mut S, d: *mut S, i: &Instr<S>, _lists: *mut Lists<S>) {
        let w = width::<W, _>(i);
        let (mode, _) = modes_of::<M, S>(i);
        // SAFETY: as above.
        unsafe {
            let (a, c) = (i.a as usize * w, i.c as usize * w);
            for k in 0..w {
                contribute(mode, d.add(a + k), O::pull(*d.add(c + k), *v.add(a + k), *v.add(c + k)));
            }
        }
    }
}

struct PullBinary<O, const W: usize, const M: u8>(O);
impl<O: BinaryOp, S: Scalar, const W: usize, const M: u8> Body<S> for PullBinary<O, W, M> {
    const IS: Properties = O::IS;
    #[inline(always)]
    unsafe fn run(v: *mut S, d: *mut S, i: &Instr<S>, _lists: *mut Lists<S>) {
        let w = width::<W, _>(i);
        let (to_x, to_y) = modes_of::<M, S>(i);
        // SAFETY: as above.
        unsafe {
            let (a, b, c) = (i.a as usize * w, i.b as usize * w, i.c as usize * w);
            for k in 0..w {
                let (g, x, y, z) = (*d.add(c + k), *v.add(a + k), *v.add(b + k), *v.add(c + k));
                if to_x != SKIP {
                    contribute(to_x, d.add(a + k), O::pull_x(g, x, y, z));
                }
                if to_y != SKIP {
                    contribute(to_y, d.add(b + k), O::pull_y(g, x, y, z));
                }
            }
        }
    }
}

/// The tangent of a unary op: its contribution formula applied to the operand's tangent.
struct PushUnary<O, const W: usize>(O);
impl<O: UnaryOp, S: Scalar, const W: usize> Body<S> for PushUnary<O, W> {
    const IS: Properties = O::IS;
    #[inline(always)]
    unsafe fn run(v: *mut S, d: *mut S, i: &Instr<S>, _lists: *mut Lists<S>) {
        let w = width::<W, _>(i);
        // SAFETY: as above.
        unsafe {
            let (a, c) = (i.a as usize * w, i.c as usize * w);
            for k in 0..w {
                let (x, y) = (*v.add(a + k), *v.add(c + k));
                *d.add(c + k) = tangent(O::IS, *d.add(a + k), |d| O::pull(d, x, y));
            }
        }
    }
}

struct PushBinary<O, const W: usize>(O);
impl<O: BinaryOp, S: Scalar, const W: usize> Body<S> for PushBinary<O, W> {
    const IS: Properties = O::IS;
    #[inline(always)]
    unsafe fn run(v: *mut S, d: *mut S, i: &Instr<S>, _lists: *mut Lists<S>) {
        let w = width::<W, _>(i);
        let (from_x, from_y) = modes_of::<AT_RUN_TIME, S>(i);
        // SAFETY: as above.
        unsafe {
            let (a, b, c) = (i.a as usize * w, i.b as usize * w, i.c as usize * w);
            for k in 0..w {
                let (x, y, z) = (*v.add(a + k), *v.add(b + k), *v.add(c + k));
                let by_x = (from_x != SKIP).then(|| tangent(O::IS, *d.add(a + k), |d| O::pull_x(d, x, y, z)));
                let by_y = (from_y != SKIP).then(|| tangent(O::IS, *d.add(b + k), |d| O::pull_y(d, x, y, z)));
                *d.add(c + k) = ops::sum_of_some(by_x, by_y);
            }
        }
    }
}

/// The value of a unary op on a dual number: its derivative is that of the op's row, also at kinks.
struct DualUnary<O, const W: usize>(O);
impl<O: UnaryOp, S: Scalar, const W: usize> Body<Dual<S>> for DualUnary<O, W> {
    const IS: Properties = O::IS;
    #[inline(always)]
    unsafe fn run(v: *mut Dual<S>, _d: *mut Dual<S>, i: &Instr<Dual<S>>, _lists: *mut Lists<Dual<S>>) {
        let w = width::<W, _>(i);
        // SAFETY: as above.
        unsafe {
            for k in 0..w {
                let x = *v.add(i.a as usize * w + k);
                let y = O::forward(x.v);
                let d = if i.modes & 3 == SKIP { S::lit(0.0) } else { moving(x.d, |d| O::pull(d, x.v, y)) };
                *v.add(i.c as usize * w + k) = Dual::new(y, d);
            }
        }
    }
}

struct DualBinary<O, const W: usize>(O);
impl<O: BinaryOp, S: Scalar, const W: usize> Body<Dual<S>> for DualBinary<O, W> {
    const IS: Properties = O::IS;
    #[inline(always)]
    unsafe fn run(v: *mut Dual<S>, _d: *mut Dual<S>, i: &Instr<Dual<S>>, _lists: *mut Lists<Dual<S>>) {
        let w = width::<W, _>(i);
        // SAFETY: as above.
        unsafe {
            for k in 0..w {
                let (x, y) = (*v.add(i.a as usize * w + k), *v.add(i.b as usize * w + k));
                let z = O::forward(x.v, y.v);
                let (from_x, from_y) = modes_of::<AT_RUN_TIME, _>(i);
                let by_x = (from_x != SKIP).then(|| moving(x.d, |d| O::pull_x(d, x.v, y.v, z)));
                let by_y = (from_y != SKIP).then(|| moving(y.d, |d| O::pull_y(d, x.v, y.v, z)));
                let d = ops::sum_of_some(by_x, by_y);
                *v.add(i.c as usize * w + k) = Dual::new(z, d);
            }
        }
    }
}

macro_rules! define_steps {
    (
        nullary { $($nullary:tt)* }
        unary { $( #[doc = $udoc:literal] $U:ident $uname:ident $upaper:literal { $($ubody:tt)* } )* }
        binary { $( #[doc = $bdoc:literal] $B:ident $bname:ident $bpaper:literal { $($bbody:tt)* } )* }
        with_constant { $( #[doc = $kdoc:literal] $K:ident $kname:ident $kpaper:literal { $($kbody:tt)* } )* }
        $($rest:tt)*
    ) => {
        /// The step that computes an op's value; `None` for an op that no program contains.
        pub(super) fn forward<S: Scalar, const W: usize>(op: Op, level: Level) -> Option<Step<S>> {
            Some(match op {
                Op::Constant => compiled::<Copied<W>, Copied<0>, S>(level),
                Op::Linearised => plain::<CallValue<W>, S>,
                $( Op::$U => compiled::<Unary<ops::$U, W>, Unary<ops::$U, 0>, S>(level), )*
                $( Op::$B => compiled::<Binary<ops::$B, W>, Binary<ops::$B, 0>, S>(level), )*
                $( Op::$K => compiled::<Binary<ops::$K, W>, Binary<ops::$K, 0>, S>(level), )*
                _ => return many(op, compiled::<Reduce<W>, Reduce<0>, S>(level)),
            })
        }

        /// The same on dual numbers.
        pub(super) fn forward_dual<S: Scalar, const W: usize>(op: Op, level: Level) -> Option<Step<Dual<S>>> {
            Some(match op {
                Op::Constant => compiled::<Detached<W>, Detached<0>, Dual<S>>(level),
                $( Op::$U => compiled::<DualUnary<ops::$U, W>, DualUnary<ops::$U, 0>, Dual<S>>(level), )*
                $( Op::$B => compiled::<DualBinary<ops::$B, W>, DualBinary<ops::$B, 0>, Dual<S>>(level), )*
                $( Op::$K => compiled::<DualBinary<ops::$K, W>, DualBinary<ops::$K, 0>, Dual<S>>(level), )*
                _ => return many(op, compiled::<DualMany<W>, DualMany<0>, Dual<S>>(level)),
            })
        }

        /// The step that adds an op's contributions to its operands' adjoints. Scalars have code for each pair of
        /// modes.
        pub(super) fn pull<S: Scalar, const W: usize>(op: Op, modes: u8, level: Level) -> Option<Step<S>> {
            if S::LANES > 1 || W > 1 || size_of::<S>() > 8 {
                return Some(match op {
                    Op::Linearised => plain::<PullCall<W>, S>,
                    $( Op::$U => compiled::<PullUnary<ops::$U, W, AT_RUN_TIME>, PullUnary<ops::$U, 0, AT_RUN_TIME>, S>(level), )*
                    $( Op::$B => compiled::<PullBinary<ops::$B, W, AT_RUN_TIME>, PullBinary<ops::$B, 0, AT_RUN_TIME>, S>(level), )*
                    $( Op::$K => compiled::<PullBinary<ops::$K, W, AT_RUN_TIME>, PullBinary<ops::$K, 0, AT_RUN_TIME>, S>(level), )*
                    _ => return many(op, compiled::<PullMany<W>, PullMany<0>, S>(level)),
                });
            }
            Some(match op {
                Op::Linearised => plain::<PullCall<W>, S>,
                $( Op::$U if ops::$U::IS.rare => plain::<PullUnary<ops::$U, W, AT_RUN_TIME>, S>, )*
                $( Op::$B if ops::$B::IS.rare => plain::<PullBinary<ops::$B, W, AT_RUN_TIME>, S>, )*
                $( Op::$K if ops::$K::IS.rare => plain::<PullBinary<ops::$K, W, AT_RUN_TIME>, S>, )*
                $( Op::$U => match modes {
                    SET => plain::<PullUnary<ops::$U, W, SET>, S>,
                    _ => plain::<PullUnary<ops::$U, W, ADD>, S>,
                }, )*
                $( Op::$B => match modes {
                    1 => plain::<PullBinary<ops::$B, W, 1>, S>,
                    2 => plain::<PullBinary<ops::$B, W, 2>, S>,
                    4 => plain::<PullBinary<ops::$B, W, 4>, S>,
                    5 => plain::<PullBinary<ops::$B, W, 5>, S>,
                    6 => plain::<PullBinary<ops::$B, W, 6>, S>,
                    8 => plain::<PullBinary<ops::$B, W, 8>, S>,
                    9 => plain::<PullBinary<ops::$B, W, 9>, S>,
                    _ => plain::<PullBinary<ops::$B, W, 10>, S>,
                }, )*
                $( Op::$K => match modes {
                    SET => plain::<PullBinary<ops::$K, W, SET>, S>,
                    _ => plain::<PullBinary<ops::$K, W, ADD>, S>,
                }, )*
                _ => return many(op, plain::<PullMany<W>, S>),
            })
        }

        /// The step that computes an op's tangent from those of its operands.
        pub(super) fn push<S: Scalar, const W: usize>(op: Op, level: Level) -> Option<Step<S>> {
            Some(match op {
                Op::Linearised => plain::<PushCall<W>, S>,
                $( Op::$U => compiled::<PushUnary<ops::$U, W>, PushUnary<ops::$U, 0>, S>(level), )*
                $( Op::$B => compiled::<PushBinary<ops::$B, W>, PushBinary<ops::$B, 0>, S>(level), )*
                $( Op::$K => compiled::<PushBinary<ops::$K, W>, PushBinary<ops::$K, 0>, S>(level), )*
                _ => return many(op, compiled::<PushMany<W>, PushMany<0>, S>(level)),
            })
        }
    };
}

for_each_op!(define_steps);

/// The step, if the op has many operands.
fn many<S>(op: Op, step: Step<S>) -> Option<Step<S>> {
    (matches!(op.info().arity, Arity::Reduction | Arity::InnerProduct) && op != Op::Linearised).then_some(step)
}

/// A copy of a dual number with tangent 0.
struct Detached<const W: usize>;
impl<S: Scalar, const W: usize> Body<Dual<S>> for Detached<W> {
    #[inline(always)]
    unsafe fn run(v: *mut Dual<S>, _d: *mut Dual<S>, i: &Instr<Dual<S>>, _lists: *mut Lists<Dual<S>>) {
        let w = width::<W, _>(i);
        // SAFETY: as above.
        unsafe {
            for k in 0..w {
                *v.add(i.c as usize * w + k) = Dual::new((*v.add(i.a as usize * w + k)).v, S::lit(0.0));
            }
        }
    }
}
