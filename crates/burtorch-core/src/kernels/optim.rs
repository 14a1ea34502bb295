//! Optimiser steps over flat arrays of parameters: one pass, every number read and written once.
//!
//! Promises: the same bits for any division of the arrays into pieces.
//! Does not know names of parameters or schedules.

use super::float::{KernelFloat, Pack};
use super::levels::{Target, columns, leveled};

/// The constants of a step of gradient descent with momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum<E> {
    /// Learning rate.
    pub lr: E,
    /// The share of the velocity that is kept.
    pub momentum: E,
    /// Whether the step looks one velocity ahead (Nesterov).
    pub nesterov: bool,
    /// The multiple of x that is added to the gradient.
    pub weight_decay: E,
}

/// The constants of a step of Adam, each rounded once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam<E> {
    /// Learning rate over `1 - beta1^t` of step t = 1, 2, ...
    pub rate: E,
    /// The share of the first moment that is kept, and that of the gradient in it.
    pub first: [E; 2],
    /// The same of the second moment.
    pub second: [E; 2],
    /// `1 - beta2^t`.
    pub correction: E,
    /// Added to the root of the second moment.
    pub eps: E,
    /// The multiple of x that is added to the gradient (Adam).
    pub added: E,
    /// The share of x that is kept (AdamW).
    pub kept: E,
}

leveled! {
    /// Gradient descent: `x -= lr * g`.
    pub fn sgd_update<E>(lr: E, g: &[E], x: &mut [E]) = sgd_at;

    /// Gradient descent with weight decay: `x -= lr * (g + weight_decay * x)`.
    pub fn sgd_decay_update<E>(lr: E, weight_decay: E, g: &[E], x: &mut [E]) = sgd_decay_at;

    /// With `g' = g + weight_decay * x`: `velocity = momentum * velocity + g'`, then `x -= lr * velocity`, or
    /// `x -= lr * (g' + momentum * velocity)` with Nesterov's.
    pub fn sgd_momentum_update<E>(step: &Momentum<E>, g: &[E], velocity: &mut [E], x: &mut [E])
        = sgd_momentum_at;

    /// `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g^2`, then `x -= rate * m / (sqrt(v / c) + eps)`.
    pub fn adam_update<E>(step: &Adam<E>, g: &[E], m: &mut [E], v: &mut [E], x: &mut [E]) = adam_at;
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

#[inline(always)]
fn sgd_decay_at<E: KernelFloat, T: Target>(lr: E, weight_decay: E, g: &[E], x: &mut [E]) {
    assert_eq!(g.len(), x.len(), "kernel operands differ in length");
    columns!(E, x.len(), sgd_decay_step[T](lr, weight_decay, g, x));
}

/// # Safety
/// `j + V::LANES` is at most the length of both slices.
#[inline(always)]
unsafe fn sgd_decay_step<V: Pack, T: Target>(
    j: usize,
    lr: V::Elem,
    weight_decay: V::Elem,
    g: &[V::Elem],
    x: &mut [V::Elem],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let before = V::read(x, j);
        let g = T::mul_add(V::splat(weight_decay), before, V::read(g, j));
        T::mul_add(V::splat(-lr), g, before).write(x, j);
    }
}

#[inline(always)]
fn sgd_momentum_at<E: KernelFloat, T: Target>(step: &Momentum<E>, g: &[E], velocity: &mut [E], x: &mut [E]) {
    assert!(g.len() == x.len() && velocity.len() == x.len(), "kernel operands differ in length");
    columns!(E, x.len(), sgd_momentum_step[T](step, g, velocity, x));
}

/// # Safety
/// `j + V::LANES` is at most the length of every slice.
#[inline(always)]
unsafe fn sgd_momentum_step<V: Pack, T: Target>(
    j: usize,
    step: &Momentum<V::Elem>,
    g: &[V::Elem],
    velocity: &mut [V::Elem],
    x: &mut [V::Elem],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let before = V::read(x, j);
        let g = T::mul_add(V::splat(step.weight_decay), before, V::read(g, j));
        let momentum = V::splat(step.momentum);
        let speed = T::mul_add(momentum, V::read(velocity, j), g);
        speed.write(velocity, j);
        let along = if step.nesterov { T::mul_add(momentum, speed, g) } else { speed };
        T::mul_add(V::splat(-step.lr), along, before).write(x, j);
    }
}

#[inline(always)]
fn adam_at<E: KernelFloat, T: Target>(step: &Adam<E>, g: &[E], m: &mut [E], v: &mut [E], x: &mut [E]) {
    assert!(g.len() == x.len() && m.len() == x.len() && v.len() == x.len(), "kernel operands differ in length");
    columns!(E, x.len(), adam_step[T](step, g, m, v, x));
}

/// # Safety
/// `j + V::LANES` is at most the length of every slice.
#[inline(always)]
unsafe fn adam_step<V: Pack, T: Target>(
    j: usize,
    step: &Adam<V::Elem>,
    g: &[V::Elem],
    m: &mut [V::Elem],
    v: &mut [V::Elem],
    x: &mut [V::Elem],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let before = V::read(x, j);
        let g = T::mul_add(V::splat(step.added), before, V::read(g, j));
        let first = T::mul_add(V::splat(step.first[0]), V::read(m, j), V::splat(step.first[1]) * g);
        let square = V::splat(step.second[1]) * g * g;
        let second = T::mul_add(V::splat(step.second[0]), V::read(v, j), square);
        first.write(m, j);
        second.write(v, j);
        let root = (second / V::splat(step.correction)).sqrt() + V::splat(step.eps);
        let change = first / root;
        T::mul_add(V::splat(-step.rate), change, before * V::splat(step.kept)).write(x, j);
    }
}
