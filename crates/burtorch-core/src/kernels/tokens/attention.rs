//! Causal attention over tokens: the kernel for 8 lanes where outputs were reached whole.

use super::lanes::{Reach, blank_unreached, reach};
use super::{AttentionPull, AttentionShape, TOKEN_LANES, naive};
use crate::kernels::{KernelFloat, Mode, causal_attention_backward};
use crate::scalar::Scalar;

const L: usize = TOKEN_LANES;

pub(super) fn pull<E: KernelFloat + Scalar<Elem = E>>(pull: AttentionPull<'_, E>) {
    let AttentionPull { shape, qkv, probs, out, dout, grads, scratch } = pull;
    let group = shape.width * L;
    let (mut whole, mut mixed) = (true, false);
    for dout in dout.chunks_exact(group) {
        match reach(dout) {
            Reach::Everything => {}
            Reach::WholeTokens => whole = false,
            Reach::Some => mixed = true,
        }
    }
    if mixed {
        return naive::attention_pull(AttentionPull { shape, qkv, probs, out, dout, grads, scratch });
    }
    if whole {
        return backward(shape, qkv, probs, out, dout, grads);
    }
    scratch.copy_from_slice(dout);
    for (blanked, dout) in scratch.chunks_exact_mut(group).zip(dout.chunks_exact(group)) {
        blank_unreached(dout, blanked);
    }
    backward(shape, qkv, probs, out, scratch, grads);
    if grads.iter().all(|g| g.all_finite()) {
        forget_unread(shape, dout, grads);
    } else {
        // Zero times infinity: unreached tokens must contribute nothing, so tokens are processed one at a time.
        naive::attention_pull(AttentionPull { shape, qkv, probs, out, dout, grads, scratch });
    }
}

fn backward<E: KernelFloat>(
    shape: AttentionShape,
    [q, k, v]: [&[E]; 3],
    probs: &[E],
    out: &[E],
    dout: &[E],
    grads: &mut [E],
) {
    let (dq, rest) = grads.split_at_mut(q.len());
    let (dk, dv) = rest.split_at_mut(q.len());
    causal_attention_backward::<E, L>(shape.heads, shape.width, q, k, v, probs, out, dout, dq, dk, dv, Mode::Set);
}

/// Restores "not reached" for queries of unreached tokens, and for keys and values after the last reached token.
fn forget_unread<E: Scalar>(shape: AttentionShape, dout: &[E], grads: &mut [E]) {
    let n = dout.len() / shape.width;
    let reached = |t: usize| !dout[shape.at(0, 0, t)].is_unreached();
    let last = (0..n).rev().find(|&t| reached(t));
    for t in 0..n {
        let read = last.is_some_and(|last| t <= last);
        for part in 0..3 {
            if !(read && (part > 0 || reached(t))) {
                for (h, f) in (0..shape.heads).flat_map(|h| (0..shape.d()).map(move |f| (h, f))) {
                    grads[part * dout.len() + shape.at(h, f, t)] = E::UNREACHED;
                }
            }
        }
    }
}
