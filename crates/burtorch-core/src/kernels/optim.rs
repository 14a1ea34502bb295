//! Optimiser steps over flat arrays of parameters: one pass, every number read and written once.
//!
//! Promises the same bits however the arrays are cut into pieces.
//! Knows nothing of parameters' names or of schedules.

use super::float::{KernelFloat, Pack};
use super::levels::{Target, columns, leveled};

leveled! {
    /// Gradient descent: `x -= lr * g`.
    pub fn sgd_update<E>(lr: E, g: &[E], x: &mut [E]) = sgd_at;
}

#[inline(always)]
fn sgd_at<E: KernelFloat, T: Target>(lr: E, g: &[E], x: &mut [E]) {
    assert_eq!(g.len(), x.len(), "kernel operands differ in length");
    columns!(E, x.len(), sgd_step[T](lr, g, x));
}

/// # Safety
/// `j + V::LANES` is at most the length of both slices.
#[inline(always)]
pub(super) unsafe fn sgd_step<V: Pack, T: Target>(j: usize, lr: V::Elem, g: &[V::Elem], x: &mut [V::Elem]) {
    // SAFETY: as the caller promises.
    unsafe { T::mul_add(V::splat(-lr), V::read(g, j), V::read(x, j)).write(x, j) }
}

leveled! {
    /// Descent with momentum and weight decay; see [`Momentum`].
    pub fn momentum_update<E>(rule: Momentum<E>, g: &[E], v: &mut [E], x: &mut [E]) = momentum_at;
}

/// `g' = g + weight_decay x`, `v = momentum v + g'`, `x -= lr v`, or `x -= lr (g' + momentum v)` with `nesterov`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum<E> {
    /// The learning rate.
    pub lr: E,
    /// How much of the velocity stays.
    pub momentum: E,
    /// Whether the step looks one velocity ahead.
    pub nesterov: bool,
    /// The factor of the decay towards zero.
    pub weight_decay: E,
}

#[inline(always)]
fn momentum_at<E: KernelFloat, T: Target>(rule: Momentum<E>, g: &[E], v: &mut [E], x: &mut [E]) {
    assert_eq!(g.len(), x.len(), "kernel operands differ in length");
    assert_eq!(v.len(), x.len(), "kernel operands differ in length");
    columns!(E, x.len(), momentum_step[T](rule, g, v, x));
}

/// # Safety
/// `j + V::LANES` is at most the length of all slices.
#[inline(always)]
unsafe fn momentum_step<V: Pack, T: Target>(
    j: usize,
    rule: Momentum<V::Elem>,
    g: &[V::Elem],
    v: &mut [V::Elem],
    x: &mut [V::Elem],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let momentum = V::splat(rule.momentum);
        let here = V::read(x, j);
        let gradient = T::mul_add(V::splat(rule.weight_decay), here, V::read(g, j));
        let velocity = T::mul_add(momentum, V::read(v, j), gradient);
        velocity.write(v, j);
        let step = if rule.nesterov { T::mul_add(momentum, velocity, gradient) } else { velocity };
        T::mul_add(V::splat(-rule.lr), step, here).write(x, j);
    }
}
