//! Softmax followed by cross-entropy, on one sample: the loss of a classifier.
//!
//! Promises: no overflow: logits are shifted by their maximum, of either sign. The backward pass needs only the probabilities
//! that the forward pass stores. Does not know lanes (`softmax_lanes`) or means over a batch.

use super::Mode;
use super::elementwise::contribute;
use super::float::{KernelFloat, Pack};
use super::levels::{Target, columns, leveled};
use super::reduce::sum_at;
use crate::simd::{Real, math};

leveled! {
    /// `softmax(z)` into `probs`; returns the sum of the exponentials of the shifted logits, which is finite unless a logit
    /// is not.
    pub fn softmax_forward<E>(logits: &[E], probs: &mut [E]) -> E = probabilities_at;

    /// The loss `log(sum exp(z)) - z[class]`; `probs` receives `softmax(z)`.
    pub fn softmax_cross_entropy_forward<E>(logits: &[E], class: u32, probs: &mut [E]) -> E = forward_at;

    /// The loss `sum t * (log(sum exp(z)) - z)` for a target vector t; `probs` receives `softmax(z)`.
    pub fn softmax_cross_entropy_soft_forward<E>(logits: &[E], target: &[E], probs: &mut [E]) -> E
        = soft_forward_at;

    /// `dlogits = g * (p - onehot(class))`, or `dlogits += ..`, where g is the adjoint of the loss.
    pub fn softmax_cross_entropy_backward<E>(g: E, probs: &[E], class: u32, dlogits: &mut [E], mode: Mode)
        = backward_at;

    /// `dlogits = g * (p * sum(t) - t)`, or `dlogits += ..`.
    pub fn softmax_cross_entropy_soft_backward<E>(
        g: E,
        probs: &[E],
        target: &[E],
        dlogits: &mut [E],
        mode: Mode,
    ) = soft_backward_at;
}

/// Writes the softmax; returns the greatest logit and the logarithm of the sum of shifted exponentials.
#[inline(always)]
fn softmax<E: KernelFloat, T: Target>(logits: &[E], probs: &mut [E]) -> (E, E) {
    let (max, total) = probabilities::<E, T>(logits, probs);
    (max, math::log(E::V::<1>::splat(total)).lane(0))
}

#[inline(always)]
fn probabilities_at<E: KernelFloat, T: Target>(logits: &[E], probs: &mut [E]) -> E {
    probabilities::<E, T>(logits, probs).1
}

/// Writes the softmax; returns the greatest logit and the sum of shifted exponentials.
///
/// Simply: `m = max z; p = exp(z - m); p /= sum p`. Departure: the last part of the range is a whole vector padded with
/// -inf, whose exponentials are 0, because three scalar exponentials cost more than a vector of 16.
#[inline(always)]
fn probabilities<E: KernelFloat, T: Target>(logits: &[E], probs: &mut [E]) -> (E, E) {
    assert_eq!(logits.len(), probs.len(), "kernel operands differ in length");
    let lowest = E::of(f64::NEG_INFINITY);
    let width = E::Vector::LANES;
    let mut max = E::Vector::splat(lowest);
    for block in logits.chunks(width) {
        max = max.greater_of(E::Vector::read_or(block, lowest));
    }
    let max = max.tree_max();
    for (block, probs) in logits.chunks(width).zip(probs.chunks_mut(width)) {
        let e = math::exp(E::Vector::read_or(block, lowest) - E::Vector::splat(max));
        e.write_some(probs);
    }
    let total = sum_at::<E, T>(probs);
    columns!(E, probs.len(), scale_step[](E::of(1.0) / total, probs));
    (max, total)
}

/// # Safety
/// `j + V::LANES` is at most the length of the slice.
#[inline(always)]
unsafe fn scale_step<V: Pack>(j: usize, factor: V::Elem, x: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe { (V::read(x, j) * V::splat(factor)).write(x, j) }
}

#[inline(always)]
fn forward_at<E: KernelFloat, T: Target>(logits: &[E], class: u32, probs: &mut [E]) -> E {
    let (max, log_sum) = softmax::<E, T>(logits, probs);
    log_sum - (logits[class as usize] - max)
}

#[inline(always)]
fn soft_forward_at<E: KernelFloat, T: Target>(logits: &[E], target: &[E], probs: &mut [E]) -> E {
    assert_eq!(logits.len(), target.len(), "kernel operands differ in length");
    let (max, log_sum) = softmax::<E, T>(logits, probs);
    let mut loss = E::Vector::of(0.0);
    for (z, t) in logits.chunks(E::Vector::LANES).zip(target.chunks(E::Vector::LANES)) {
        let shifted = E::Vector::read_or(z, max) - E::Vector::splat(max);
        let t = E::Vector::read_or(t, E::default());
        loss = T::mul_add(t, E::Vector::splat(log_sum) - shifted, loss);
    }
    loss.tree_sum()
}

#[inline(always)]
fn backward_at<E: KernelFloat, T: Target>(g: E, probs: &[E], class: u32, dlogits: &mut [E], mode: Mode) {
    assert_eq!(probs.len(), dlogits.len(), "kernel operands differ in length");
    let class = class as usize;
    let before = if mode == Mode::Set { E::default() } else { dlogits[class] };
    match mode {
        Mode::Set => columns!(E, probs.len(), backward_step[true](g, probs, dlogits)),
        Mode::Add => columns!(E, probs.len(), backward_step[false](g, probs, dlogits)),
    }
    dlogits[class] = before + (g * (probs[class] - E::of(1.0)) + E::default());
}

/// # Safety
/// `j + V::LANES` is at most the length of both slices.
#[inline(always)]
unsafe fn backward_step<V: Pack, const SET: bool>(j: usize, g: V::Elem, probs: &[V::Elem], dlogits: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe { contribute::<V, SET>(j, V::splat(g) * V::read(probs, j), dlogits) }
}

#[inline(always)]
fn soft_backward_at<E: KernelFloat, T: Target>(g: E, probs: &[E], target: &[E], dlogits: &mut [E], mode: Mode) {
    assert_eq!(probs.len(), dlogits.len(), "kernel operands differ in length");
    assert_eq!(target.len(), dlogits.len(), "kernel operands differ in length");
    let total = sum_at::<E, T>(target);
    match mode {
        Mode::Set => columns!(E, probs.len(), soft_step[T, true](g, total, probs, target, dlogits)),
        Mode::Add => {
            columns!(E, probs.len(), soft_step[T, false](g, total, probs, target, dlogits))
        }
    }
}

/// # Safety
/// `j + V::LANES` is at most the length of every slice.
#[inline(always)]
unsafe fn soft_step<V: Pack, T: Target, const SET: bool>(
    j: usize,
    g: V::Elem,
    total: V::Elem,
    probs: &[V::Elem],
    target: &[V::Elem],
    dlogits: &mut [V::Elem],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let rest = T::mul_add(V::read(probs, j), V::splat(total), -V::read(target, j));
        contribute::<V, SET>(j, V::splat(g) * rest, dlogits);
    }
}
