//! Causal attention over tokens: where its numbers stand, and the kernel for 8 lanes where outputs were reached whole.

use super::lanes::{Reach, blank_unreached, reach};
use super::{TOKEN_LANES, naive};
use crate::kernels::{KernelFloat, Mode, attention_probs_len, causal_attention_backward};
use crate::scalar::Scalar;

const L: usize = TOKEN_LANES;

/// Heads, and the features of all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// How many heads.
    pub heads: usize,
    /// Features of a query, key or value, over all heads.
    pub width: usize,
}

impl AttentionShape {
    /// Features of a head.
    pub fn d(self) -> usize {
        self.width / self.heads
    }

    /// How many probabilities there are for `groups` of tokens.
    pub fn probs_len(self, groups: usize) -> usize {
        attention_probs_len::<L>(self.heads, groups)
    }

    /// Every head and every place of a token in `len` activations.
    pub(super) fn queries(self, len: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..self.heads).flat_map(move |h| (0..len / self.width).map(move |t| (h, t)))
    }

    /// Where feature `f` of head `h` of token `t` stands.
    pub(super) fn at(self, h: usize, f: usize, t: usize) -> usize {
        (t / L * self.width + h * self.d() + f) * L + t % L
    }

    /// Where the probability of token `s` for the query of token `t` stands.
    pub(super) fn pair(self, h: usize, t: usize, s: usize) -> usize {
        let g = t / L;
        (g * (g + 1) / 2 * self.heads + h * (g + 1)) * L * L + s * L + t % L
    }
}

/// Attention whose outputs have adjoints, and where to put what they contribute.
#[derive(Debug)]
pub struct AttentionPull<'a, S> {
    /// Heads and width.
    pub shape: AttentionShape,
    /// Queries, keys and values.
    pub qkv: [&'a [S]; 3],
    /// What the forward pass left.
    pub probs: &'a [S],
    /// Outputs.
    pub out: &'a [S],
    /// Their adjoints.
    pub dout: &'a [S],
    /// Receives the contributions to queries, keys and values, one after the other.
    pub grads: &'a mut [S],
    /// Working memory, as long as the outputs.
    pub scratch: &'a mut [S],
}

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
        // Zero times infinity: one at a time, the tokens that were not reached contribute nothing.
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

/// Takes back the zeros that queries of unreached tokens received, and keys and values after the last reached one.
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
