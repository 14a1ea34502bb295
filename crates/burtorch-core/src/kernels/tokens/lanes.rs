//! Common parts of the ops over tokens: detecting reached adjoints, blanking unreached tokens, and cross-entropy.

use super::{TOKEN_LANES, naive};
use crate::kernels::float::{KernelFloat, Pack};
use crate::kernels::levels::{Target, columns, leveled};
use crate::kernels::{Mode, axpy, softmax_cross_entropy_backward_lanes, softmax_cross_entropy_forward_lanes};
use crate::scalar::Scalar;
use crate::simd::{Real, Truth, array_of};

const L: usize = TOKEN_LANES;

leveled! {
    /// Whether no number is the adjoint "not reached", -0.0.
    pub fn all_reached<E>(g: &[E]) -> bool = all_reached_at;

    /// Whether none of the adjoints has been reached.
    pub fn none_reached<E>(g: &[E]) -> bool = none_reached_at;

    /// `x = max(x, 0)`, NaN where x is NaN.
    pub fn cut_off<E>(x: &mut [E]) = cut_off_at;

    /// `z = x + y`.
    pub fn add<E>(x: &[E], y: &[E], z: &mut [E]) = add_at;
}

#[inline(always)]
fn none_reached_at<E: KernelFloat, T: Target>(g: &[E]) -> bool {
    let width = E::Vector::LANES;
    let (one, zero) = (E::Vector::of(1.0), E::Vector::of(0.0));
    let unreached = |x: E::Vector| x.is_eq(zero) & one.copysign(x).is_lt(zero);
    let whole = g.len() / width * width;
    let mut found = unreached(E::Vector::read_or(&g[whole..], E::of(-0.0)));
    let mut at = 0;
    while at < whole {
        // SAFETY: `at + width <= whole`, at most the length of g.
        found = found & unreached(unsafe { E::Vector::read(g, at) });
        at += width;
    }
    found.all()
}

#[inline(always)]
fn all_reached_at<E: KernelFloat, T: Target>(g: &[E]) -> bool {
    let width = E::Vector::LANES;
    let (one, zero) = (E::Vector::of(1.0), E::Vector::of(0.0));
    let unreached = |x: E::Vector| x.is_eq(zero) & one.copysign(x).is_lt(zero);
    let whole = g.len() / width * width;
    let mut found = unreached(E::Vector::read_or(&g[whole..], E::default()));
    let mut at = 0;
    while at < whole {
        // SAFETY: `at + width <= whole`, at most the length of g.
        found = found | unreached(unsafe { E::Vector::read(g, at) });
        at += width;
    }
    !found.any()
}

#[inline(always)]
fn cut_off_at<E: KernelFloat, T: Target>(x: &mut [E]) {
    columns!(E, x.len(), cut_off_step[](x));
}

/// # Safety
/// `j + V::LANES` is at most the length of x.
#[inline(always)]
unsafe fn cut_off_step<V: Pack>(j: usize, x: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe {
        let before = V::read(x, j);
        V::select(before.is_le(V::of(0.0)), V::of(0.0), before).write(x, j);
    }
}

#[inline(always)]
fn add_at<E: KernelFloat, T: Target>(x: &[E], y: &[E], z: &mut [E]) {
    assert!(x.len() == z.len() && y.len() == z.len(), "kernel operands differ in length");
    columns!(E, z.len(), add_step[](x, y, z));
}

/// # Safety
/// `j + V::LANES` is at most the length of every slice.
#[inline(always)]
unsafe fn add_step<V: Pack>(j: usize, x: &[V::Elem], y: &[V::Elem], z: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe { (V::read(x, j) + V::read(y, j)).write(z, j) }
}

/// `to += g`; all of `g` is reached.
pub(super) fn add_to<E: KernelFloat>(g: &[E], to: &mut [E]) {
    axpy(E::of(1.0), g, to);
}

/// How the adjoints of a group were reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All of them.
    Everything,
    /// All adjoints of some tokens, and none of the others.
    WholeTokens,
    /// Otherwise.
    Some,
}

pub(super) fn reach<E: KernelFloat + Scalar>(g: &[E]) -> Reach {
    if all_reached(g) {
        return Reach::Everything;
    }
    let whole = (0..L).all(|t| {
        let n = g[t..].iter().step_by(L).filter(|g| g.is_unreached()).count();
        n == 0 || n == g.len() / L
    });
    if whole { Reach::WholeTokens } else { Reach::Some }
}

/// Sets the tokens of `x` that `g` did not reach to 0.
pub(super) fn blank_unreached<E: KernelFloat + Scalar>(g: &[E], x: &mut [E]) {
    for t in (0..L).filter(|&t| g[t].is_unreached()) {
        x[t..].iter_mut().step_by(L).for_each(|x| *x = E::default());
    }
}

/// Adds `from` to `to` for the tokens that `g` reached.
pub(super) fn pass_on_reached<E: KernelFloat + Scalar>(g: &[E], from: &[E], to: &mut [E]) {
    for t in (0..L).filter(|&t| !g[t].is_unreached()) {
        for k in (t..to.len()).step_by(L) {
            naive::pass_on(&from[k..k + 1], &mut to[k..k + 1]);
        }
    }
}

/// See [`super::TokenMath::token_cross_entropy`].
pub(super) fn cross_entropy<E: KernelFloat + Scalar>(logits: &[E], n: usize, classes: &[u32], probs: &mut [E]) -> E {
    let len = logits.len() / n.div_ceil(L);
    let mut sum = E::default();
    for ((logits, probs), classes) in logits.chunks_exact(len).zip(probs.chunks_exact_mut(len)).zip(classes.chunks(L)) {
        let losses = softmax_cross_entropy_forward_lanes::<E, L>(logits, &of_group(classes), probs);
        sum = losses[..classes.len()].iter().fold(sum, |sum, &loss| sum + loss);
    }
    sum
}

/// See [`super::TokenMath::token_cross_entropy_pull`].
pub(super) fn cross_entropy_pull<E: KernelFloat + Scalar<Elem = E>>(
    g: E,
    n: usize,
    classes: &[u32],
    probs: &[E],
    dlogits: &mut [E],
) {
    let len = probs.len() / n.div_ceil(L);
    let whole = n / L * len;
    let groups = probs[..whole].chunks_exact(len).zip(dlogits[..whole].chunks_exact_mut(len));
    for ((probs, dlogits), classes) in groups.zip(classes.chunks(L)) {
        softmax_cross_entropy_backward_lanes::<E, L>(&[g; L], probs, &of_group(classes), dlogits, Mode::Add);
    }
    if !n.is_multiple_of(L) {
        naive::cross_entropy_pull(g, n % L, &classes[n / L * L..], &probs[whole..], &mut dlogits[whole..]);
    }
}

/// The classes of one group, 0 for padding.
fn of_group(classes: &[u32]) -> [u32; L] {
    array_of(|t| classes.get(t).copied().unwrap_or(0))
}
