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
