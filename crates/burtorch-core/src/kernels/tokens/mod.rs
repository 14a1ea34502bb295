//! Block ops over several tokens, per scalar type: [`TokenMath`], with plain loops as its default.
//!
//! Tokens are in groups of 8: token t is lane `t % 8` of group `t / 8`, and a group of activations is `width x 8`
//! numbers. Places after the last token are padding.
//! Promises: a pull adds to the adjoints of inputs the contribution of each *reached* output, and leaves an input that no
//! reached output reads unchanged, so an infinite weight behind an unread output has no effect. A type of lanes
//! runs the plain loops. Does not know nodes or parameters.

pub mod naive;

mod affine;
mod attention;
mod lanes;
mod layer_norm;
mod paired;
mod product;
mod pulls;

pub(super) use lanes::add;
pub use pulls::{AffinePull, AttentionPull, AttentionShape, LayerNormPull};

use super::{KernelFloat, Mode};
use crate::scalar::Scalar;

/// Tokens per vector of the kernels.
pub const TOKEN_LANES: usize = 8;

/// Places for `n` tokens: whole groups.
pub const fn padded(n: usize) -> usize {
    n.div_ceil(TOKEN_LANES) * TOKEN_LANES
}

/// Gradients of parameters, and the effect on their existing values.
pub type GradientOut<'a, E> = Option<(&'a mut [E], Mode)>;

/// The kernels of block ops over tokens, per scalar type.
pub trait TokenMath: Scalar {
    /// Whether no number is the adjoint "not reached".
    fn all_reached(g: &[Self]) -> bool {
        g.iter().fold(true, |all, g| all & !g.is_unreached())
    }

    /// Whether all numbers are the adjoint "not reached".
    fn none_reached(g: &[Self]) -> bool {
        g.iter().fold(true, |none, g| none & g.is_unreached())
    }

    /// `y = W x + b` for each token, followed by relu with `relu`. `scratch` holds [`AffinePull::scratch_len`] numbers.
    fn token_affine(
        n_in: usize,
        w: &[Self::Elem],
        bias: Option<&[Self::Elem]>,
        relu: bool,
        x: &[Self],
        y: &mut [Self],
        _scratch: &mut [Self],
    ) {
        naive::affine(n_in, w, bias, relu, x, y);
    }

    /// The contributions to inputs, weights and biases.
    fn token_affine_pull(pull: AffinePull<'_, Self>) {
        naive::affine_pull(pull);
    }

    /// Layer normalisation; `stats` receives mean and inverse deviation, `2 x 8` for each group.
    fn token_layer_norm(
        x: &[Self],
        gain: &[Self::Elem],
        bias: &[Self::Elem],
        eps: f64,
        y: &mut [Self],
        stats: &mut [Self],
    ) {
        naive::layer_norm(x, gain, bias, eps, y, stats);
    }

    /// The contributions to inputs, gain and bias.
    fn token_layer_norm_pull(pull: LayerNormPull<'_, Self>) {
        naive::layer_norm_pull(pull);
    }

    /// Causal attention; `probs` receives the probabilities.
    fn token_attention(shape: AttentionShape, qkv: [&[Self]; 3], probs: &mut [Self], out: &mut [Self]) {
        naive::attention(shape, qkv, probs, out);
    }

    /// The contributions to queries, keys and values, in sequence in `grads`; "not reached" for none.
    fn token_attention_pull(pull: AttentionPull<'_, Self>) {
        naive::attention_pull(pull);
    }

    /// The sum of the losses of the first `n` tokens; `probs` receives the softmax of the logits. Lane k of token t has
    /// class `classes[k * n + t]`.
    fn token_cross_entropy(logits: &[Self], n: usize, classes: &[u32], probs: &mut [Self]) -> Self {
        naive::cross_entropy(logits, n, classes, probs)
    }

    /// Adds `g (p - onehot)` to the adjoints of the logits of the first `n` tokens.
    fn token_cross_entropy_pull(g: Self, n: usize, classes: &[u32], probs: &[Self], dlogits: &mut [Self]) {
        naive::cross_entropy_pull(g, n, classes, probs, dlogits);
    }
}

/// Adds every reached element of `g` to the adjoint at its index.
pub(super) fn pass_on<E: KernelFloat + Scalar>(g: &[E], to: &mut [E]) {
    if lanes::all_reached(g) {
        lanes::add_to(g, to);
    } else {
        naive::pass_on(g, to);
    }
}

/// The gradients of an op that overwrites: set to zero first.
pub(super) fn emptied<'a, E: Default + Clone>(target: GradientOut<'a, E>) -> Option<&'a mut [E]> {
    target.map(|(to, mode)| {
        if mode == Mode::Set {
            to.fill(E::default());
        }
        to
    })
}

macro_rules! kernels {
    ($($t:ty)*) => { $(
        impl TokenMath for $t {
            fn all_reached(g: &[Self]) -> bool {
                lanes::all_reached(g)
            }

            fn none_reached(g: &[Self]) -> bool {
                lanes::none_reached(g)
            }

            fn token_affine(
                n_in: usize,
                w: &[$t],
                bias: Option<&[$t]>,
                relu: bool,
                x: &[$t],
                y: &mut [$t],
                scratch: &mut [$t],
            ) {
                affine::forward(n_in, w, bias, x, y, scratch);
                if relu {
                    lanes::cut_off(y);
                }
            }

            fn token_affine_pull(pull: AffinePull<'_, Self>) {
                affine::pull(pull);
            }

            fn token_layer_norm(x: &[$t], gain: &[$t], bias: &[$t], eps: f64, y: &mut [$t], stats: &mut [$t]) {
                layer_norm::forward(x, gain, bias, eps as $t, y, stats);
            }

            fn token_layer_norm_pull(pull: LayerNormPull<'_, Self>) {
                layer_norm::pull(pull);
            }

            fn token_attention(shape: AttentionShape, [q, k, v]: [&[$t]; 3], probs: &mut [$t], out: &mut [$t]) {
                super::causal_attention_forward::<$t, TOKEN_LANES>(shape.heads, shape.width, q, k, v, probs, out);
            }

            fn token_attention_pull(pull: AttentionPull<'_, Self>) {
                attention::pull(pull);
            }

            fn token_cross_entropy(logits: &[$t], n: usize, classes: &[u32], probs: &mut [$t]) -> $t {
                lanes::cross_entropy(logits, n, classes, probs)
            }

            fn token_cross_entropy_pull(g: $t, n: usize, classes: &[u32], probs: &[$t], dlogits: &mut [$t]) {
                lanes::cross_entropy_pull(g, n, classes, probs, dlogits);
            }
        }
    )* };
}
kernels!(f32 f64);
