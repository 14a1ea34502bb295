//! Steps with many operands: reductions and inner products.
//!
//! Operands are gathered, one scalar of each, into a row; the reduction runs on it; contributions are scattered.
//!
//! Promises: the bits of the same op in the sweep. Knows slots, not programs.
#![allow(unsafe_code)]

use super::instr::{Body, Instr, Lists, SKIP, contribute, moving, width};
use crate::kernels::slices;
use crate::ops::{Dual, Op, Properties, Reduction, moved};
use crate::scalar::{RowMath, Scalar};

/// Sums of vectors are short enough to compile for every level.
const AT_EACH_LEVEL: Properties = Properties { quick: true, ..Properties::NONE };

/// The operands of a step with many operands, one scalar of each.
struct Many<'a, S> {
    operands: &'a [u32],
    xs: &'a mut [S],
    contributions: &'a mut [S],
}

impl<'a, S: Scalar> Many<'a, S> {
    /// # Safety
    /// As for a body; `n` operands are listed from `i.a`.
    #[inline(always)]
    unsafe fn of(i: &Instr<S>, n: usize, lists: *mut Lists<S>) -> Self {
        // SAFETY: nothing else accesses the lists.
        let lists = unsafe { &mut *lists };
        let operands = &lists.operands[i.a as usize..i.a as usize + n];
        let (xs, rest) = lists.scratch.split_at_mut(n);
        Many { operands, xs, contributions: &mut rest[..n] }
    }

    /// # Safety
    /// The listed slots lie in `from`.
    #[inline(always)]
    unsafe fn gather(&mut self, from: *const S, k: usize, w: usize) {
        for (x, &operand) in self.xs.iter_mut().zip(self.operands) {
            // SAFETY: by the contract of this function.
            *x = unsafe { *from.add((operand >> 2) as usize * w + k) };
        }
    }

    /// # Safety
    /// The listed slots lie in `to`.
    #[inline(always)]
    unsafe fn scatter(&self, to: *mut S, k: usize, w: usize) {
        for (&c, &operand) in self.contributions.iter().zip(self.operands) {
            // SAFETY: by the contract of this function.
            unsafe { contribute((operand & 3) as u8, to.add((operand >> 2) as usize * w + k), c) }
        }
    }
}

/// The value of a reduction or an inner product.
pub(super) struct Reduce<const W: usize>;
impl<S: Scalar, const W: usize> Body<S> for Reduce<W> {
    const IS: Properties = AT_EACH_LEVEL;
    #[inline(always)]
    unsafe fn run(v: *mut S, _d: *mut S, i: &Instr<S>, lists: *mut Lists<S>) {
        let (n, w) = (operand_count(i), width::<W, _>(i));
        // SAFETY: as above.
        unsafe {
            let mut many = Many::of(i, n, lists);
            for k in 0..w {
                many.gather(v, k, w);
                *v.add(i.c as usize * w + k) = value_of_many(i, many.xs);
            }
        }
    }
}

pub(super) struct PullMany<const W: usize>;
impl<S: Scalar, const W: usize> Body<S> for PullMany<W> {
    const IS: Properties = AT_EACH_LEVEL;
    #[inline(always)]
    unsafe fn run(v: *mut S, d: *mut S, i: &Instr<S>, lists: *mut Lists<S>) {
        let (n, w) = (operand_count(i), width::<W, _>(i));
        // SAFETY: as above.
        unsafe {
            let mut many = Many::of(i, n, lists);
            for k in 0..w {
                many.gather(v, k, w);
                pull_many(i, *d.add(i.c as usize * w + k), many.xs, many.contributions);
                many.scatter(d, k, w);
            }
        }
    }
}

/// The tangent of an op with many operands: the sum of partials times tangents.
pub(super) struct PushMany<const W: usize>;
impl<S: Scalar, const W: usize> Body<S> for PushMany<W> {
    const IS: Properties = AT_EACH_LEVEL;
    #[inline(always)]
    unsafe fn run(v: *mut S, d: *mut S, i: &Instr<S>, lists: *mut Lists<S>) {
        let (n, w) = (operand_count(i), width::<W, _>(i));
        // SAFETY: as above.
        unsafe {
            let mut many = Many::of(i, n, lists);
            for k in 0..w {
                many.gather(v, k, w);
                pull_many(i, S::lit(1.0), many.xs, many.contributions);
                let tangent = |x: &u32| *d.add((x >> 2) as usize * w + k);
                *d.add(i.c as usize * w + k) = along(many.operands, many.contributions, tangent);
            }
        }
    }
}

pub(super) struct DualMany<const W: usize>;
impl<S: Scalar, const W: usize> Body<Dual<S>> for DualMany<W> {
    #[inline(always)]
    unsafe fn run(v: *mut Dual<S>, _d: *mut Dual<S>, i: &Instr<Dual<S>>, lists: *mut Lists<Dual<S>>) {
        let (n, w) = (operand_count(i), width::<W, _>(i));
        // SAFETY: as above.
        unsafe {
            let mut many = Many::of(i, n, lists);
            for k in 0..w {
                many.gather(v, k, w);
                let z = value_of_many(i, many.xs);
                pull_many(i, Dual::lit(1.0), many.xs, many.contributions);
                let mut d: Option<S> = None;
                for ((&operand, x), p) in many.operands.iter().zip(many.xs.iter()).zip(many.contributions.iter()) {
                    if operand as u8 & 3 != SKIP {
                        let term = moved(x.d, || x.d * p.v);
                        d = Some(d.map_or(term, |d| d + term));
                    }
                }
                *v.add(i.c as usize * w + k) = Dual::new(z.v, d.unwrap_or(S::lit(0.0)));
            }
        }
    }
}

/// The sum of partials times tangents, over operands that depend on inputs.
#[inline(always)]
fn along<S: Scalar>(operands: &[u32], partials: &[S], tangent: impl Fn(&u32) -> S) -> S {
    let mut total: Option<S> = None;
    for (operand, &partial) in operands.iter().zip(partials) {
        if *operand as u8 & 3 != SKIP {
            let term = moving(tangent(operand), |t| partial * t);
            total = Some(total.map_or(term, |total| total + term));
        }
    }
    total.unwrap_or(S::lit(0.0))
}

/// The length of the instruction's operand list.
#[inline(always)]
fn operand_count<S>(i: &Instr<S>) -> usize {
    match i.op {
        Op::InnerProduct => 2 * i.b as usize,
        Op::InnerProductWithBias => 2 * i.b as usize + 1,
        _ => i.b as usize,
    }
}

#[inline(always)]
fn value_of_many<S: Scalar>(i: &Instr<S>, xs: &[S]) -> S {
    value_of_operands(i.op, i.b as usize, xs)
}

/// The value of a reduction or an inner product; `n` is the second field of its node.
#[inline(always)]
pub(super) fn value_of_operands<S: Scalar>(op: Op, n: usize, xs: &[S]) -> S {
    match op {
        Op::InnerProduct => slices::dot(&xs[..n], &xs[n..]),
        Op::InnerProductWithBias => slices::dot_and_bias(&xs[..n], &xs[n..2 * n], xs[2 * n]),
        op => Reduction::new(op).map_or(S::lit(f64::NAN), |r| r.forward(xs)),
    }
}

/// Writes the contribution of the adjoint `g` to each operand.
#[inline(always)]
fn pull_many<S: Scalar>(i: &Instr<S>, g: S, xs: &[S], out: &mut [S]) {
    pull_of_operands(i.op, i.b as usize, g, xs, out);
}

/// Writes the contribution of the adjoint `g` to each operand; `n` is the second field of the node.
#[inline(always)]
pub(super) fn pull_of_operands<S: Scalar>(op: Op, n: usize, g: S, xs: &[S], out: &mut [S]) {
    match op {
        Op::InnerProduct | Op::InnerProductWithBias => {
            for k in 0..n {
                out[k] = g * xs[n + k];
                out[n + k] = g * xs[k];
            }
            if let Some(bias) = out.get_mut(2 * n) {
                *bias = g;
            }
        }
        op => {
            if let Some(r) = Reduction::new(op) {
                r.pull(g, xs, out);
            }
        }
    }
}
