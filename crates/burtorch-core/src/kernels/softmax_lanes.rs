//! Softmax followed by cross-entropy on `L` samples or tokens at once, each lane with its own target.
//!
//! Promises: as in `softmax`, lane by lane; sums run over classes in the order 0, 1, 2, ...
//! Does not know which lanes are in use: the caller gives a lane of padding the adjoint 0.

use super::Mode;
use super::elementwise::contribute;
use super::float::{KernelFloat, Pack};
use super::lanes::features;
use super::levels::{Target, leveled};
use crate::simd::{Elementary, Real, array_of, math};

leveled! {
    /// The softmax over classes of each lane; returns the sums of the exponentials of the shifted logits.
    pub fn softmax_forward_lanes<E, const L>(logits: &[E], probs: &mut [E]) -> [E; L] = probabilities_at;

    /// The loss of each lane; `logits` is `n_classes x L` and `probs` receives its softmax over classes.
    pub fn softmax_cross_entropy_forward_lanes<E, const L>(
        logits: &[E],
        classes: &[u32; L],
        probs: &mut [E],
    ) -> [E; L] = forward_at;

    /// The loss of each lane for target vectors, `n_classes x L` as the logits.
    pub fn softmax_cross_entropy_soft_forward_lanes<E, const L>(
        logits: &[E],
        targets: &[E],
        probs: &mut [E],
    ) -> [E; L] = soft_forward_at;

    /// `dlogits = g * (p - onehot(class))` in every lane, or `dlogits += ..`; `g` holds the adjoint of each lane's loss.
    pub fn softmax_cross_entropy_backward_lanes<E, const L>(
        g: &[E; L],
        probs: &[E],
        classes: &[u32; L],
        dlogits: &mut [E],
        mode: Mode,
    ) = backward_at;

    /// `dlogits = g * (p * sum(t) - t)` in every lane, or `dlogits += ..`.
    pub fn softmax_cross_entropy_soft_backward_lanes<E, const L>(
        g: &[E; L],
        probs: &[E],
        targets: &[E],
        dlogits: &mut [E],
        mode: Mode,
    ) = soft_backward_at;
}

/// Writes the softmax; returns each lane's greatest logit and the logarithm of its sum of shifted exponentials.
#[inline(always)]
fn softmax<E: KernelFloat, T: Target, const L: usize>(logits: &[E], probs: &mut [E]) -> (E::V<L>, E::V<L>) {
    let (max, total) = probabilities::<E, T, L>(logits, probs);
    (max, T::formula(|| math::log(total), || Elementary::log(total)))
}

#[inline(always)]
fn probabilities_at<E: KernelFloat, T: Target, const L: usize>(logits: &[E], probs: &mut [E]) -> [E; L] {
    let (_, total) = probabilities::<E, T, L>(logits, probs);
    array_of(|l| total.lane(l))
}

/// Writes the softmax; returns each lane's greatest logit and its sum of shifted exponentials.
#[inline(always)]
fn probabilities<E: KernelFloat, T: Target, const L: usize>(logits: &[E], probs: &mut [E]) -> (E::V<L>, E::V<L>) {
    let n = features::<L>(logits.len());
    assert_eq!(probs.len(), logits.len(), "kernel operands differ in length");
    let mut max = E::V::<L>::of(f64::NEG_INFINITY);
    let mut total = E::V::<L>::of(0.0);
    // SAFETY: `c < n`, and both slices hold `n * L` numbers.
    unsafe {
        for c in 0..n {
            max = max.greater_of(E::V::read(logits, c * L));
        }
        for c in 0..n {
            let shifted = E::V::<L>::read(logits, c * L) - max;
            let e = T::formula(|| math::exp(shifted), || Elementary::exp(shifted));
            e.write(probs, c * L);
            total = total + e;
        }
        let factor = E::V::<L>::of(1.0) / total;
        for c in 0..n {
            (E::V::<L>::read(probs, c * L) * factor).write(probs, c * L);
        }
    }
    (max, total)
}

#[inline(always)]
fn forward_at<E: KernelFloat, T: Target, const L: usize>(logits: &[E], classes: &[u32; L], probs: &mut [E]) -> [E; L] {
    let (max, log_sum) = softmax::<E, T, L>(logits, probs);
    array_of(|l| log_sum.lane(l) - (logits[classes[l] as usize * L + l] - max.lane(l)))
}

#[inline(always)]
fn soft_forward_at<E: KernelFloat, T: Target, const L: usize>(logits: &[E], targets: &[E], probs: &mut [E]) -> [E; L] {
    assert_eq!(targets.len(), logits.len(), "kernel operands differ in length");
    let (max, log_sum) = softmax::<E, T, L>(logits, probs);
    let mut loss = E::V::<L>::of(0.0);
    for c in 0..logits.len() / L {
        // SAFETY: `c` is below the number of classes, and both slices hold L numbers for each.
        let (z, t) = unsafe { (E::V::<L>::read(logits, c * L), E::V::<L>::read(targets, c * L)) };
        loss = T::mul_add(t, log_sum - (z - max), loss);
    }
    array_of(|l| loss.lane(l))
}

#[inline(always)]
fn backward_at<E: KernelFloat, T: Target, const L: usize>(
    g: &[E; L],
    probs: &[E],
    classes: &[u32; L],
    dlogits: &mut [E],
    mode: Mode,
) {
    let n = features::<L>(probs.len());
    assert_eq!(dlogits.len(), probs.len(), "kernel operands differ in length");
    let at: [usize; L] = array_of(|l| classes[l] as usize * L + l);
    let before: [E; L] = array_of(|l| if mode == Mode::Set { E::default() } else { dlogits[at[l]] });
    // SAFETY: `c < n`, both slices hold `n * L` numbers, and g holds L.
    unsafe {
        let g = E::V::<L>::read(g, 0);
        for c in 0..n {
            let change = g * E::V::<L>::read(probs, c * L);
            match mode {
                Mode::Set => contribute::<E::V<L>, true>(c * L, change, dlogits),
                Mode::Add => contribute::<E::V<L>, false>(c * L, change, dlogits),
            }
        }
    }
    for l in 0..L {
        dlogits[at[l]] = before[l] + (g[l] * (probs[at[l]] - E::of(1.0)) + E::default());
    }
}

#[inline(always)]
fn soft_backward_at<E: KernelFloat, T: Target, const L: usize>(
    g: &[E; L],
    probs: &[E],
    targets: &[E],
    dlogits: &mut [E],
    mode: Mode,
) {
    let n = features::<L>(probs.len());
    assert_eq!(dlogits.len(), probs.len(), "kernel operands differ in length");
    assert_eq!(targets.len(), probs.len(), "kernel operands differ in length");
    // SAFETY: `c < n`, all slices hold `n * L` numbers, and g holds L.
    unsafe {
        let g = E::V::<L>::read(g, 0);
        let mut total = E::V::<L>::of(0.0);
        for c in 0..n {
            total = total + E::V::read(targets, c * L);
        }
        for c in 0..n {
            let (p, t) = (E::V::<L>::read(probs, c * L), E::V::<L>::read(targets, c * L));
            let change = g * T::mul_add(p, total, -t);
            match mode {
                Mode::Set => contribute::<E::V<L>, true>(c * L, change, dlogits),
                Mode::Add => contribute::<E::V<L>, false>(c * L, change, dlogits),
            }
        }
    }
}
