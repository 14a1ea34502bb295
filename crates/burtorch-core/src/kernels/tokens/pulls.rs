//! Arguments of the reverse pass of blocks over tokens: operands, adjoints, and gradients. The layout of heads of attention.

use super::{GradientOut, TOKEN_LANES, product};
use crate::kernels::attention_probs_len;
use crate::scalar::Scalar;

const L: usize = TOKEN_LANES;

/// The backward pass of a dense layer: the outputs' adjoints, and the destination of the contributions.
#[derive(Debug)]
pub struct AffinePull<'a, S: Scalar> {
    /// Inputs of the layer.
    pub n_in: usize,
    /// Weights, `n_out x n_in`.
    pub w: &'a [S::Elem],
    /// Whether outputs were cut off at 0.
    pub relu: bool,
    /// Adjoints of the outputs.
    pub dy: &'a [S],
    /// Outputs.
    pub y: &'a [S],
    /// Inputs.
    pub x: &'a [S],
    /// Adjoints of the inputs, added to.
    pub dx: Option<&'a mut [S]>,
    /// Gradients of the weights.
    pub dw: GradientOut<'a, S::Elem>,
    /// Gradients of the biases.
    pub db: GradientOut<'a, S::Elem>,
    /// Working memory, [`AffinePull::scratch_len`] numbers.
    pub scratch: &'a mut [S],
}

impl<S: Scalar> AffinePull<'_, S> {
    /// How much working memory a layer needs over `padded` tokens, forward or back.
    pub const fn scratch_len(padded: usize, n_in: usize, n_out: usize) -> usize {
        let group = L * (n_out + 3 * n_in);
        let all = if S::LANES == 1 { product::scratch_len::<S::Elem>(padded / L, n_in, n_out) } else { 0 };
        if all > group { all } else { group }
    }
}

/// The backward pass of a layer normalisation: the outputs' adjoints, and the destination of the contributions.
#[derive(Debug)]
pub struct LayerNormPull<'a, S: Scalar> {
    /// Gains, one per feature.
    pub gain: &'a [S::Elem],
    /// Adjoints of the outputs.
    pub dy: &'a [S],
    /// Inputs.
    pub x: &'a [S],
    /// Mean and inverse deviation, as the forward pass left them.
    pub stats: &'a [S],
    /// Adjoints of the inputs, added to.
    pub dx: Option<&'a mut [S]>,
    /// Gradients of the gains.
    pub dgain: GradientOut<'a, S::Elem>,
    /// Gradients of the biases.
    pub dbias: GradientOut<'a, S::Elem>,
    /// Working memory, [`LayerNormPull::scratch_len`] numbers.
    pub scratch: &'a mut [S],
}

impl<S: Scalar> LayerNormPull<'_, S> {
    /// How much working memory a pull needs for `n` features.
    pub const fn scratch_len(n: usize) -> usize {
        L * 3 * n
    }
}

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

    /// The number of probabilities for `groups` of tokens.
    pub fn probs_len(self, groups: usize) -> usize {
        attention_probs_len::<L>(self.heads, groups)
    }

    /// Every head and every index of a token in `len` activations.
    pub(super) fn queries(self, len: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..self.heads).flat_map(move |h| (0..len / self.width).map(move |t| (h, t)))
    }

    /// The index of feature `f` of head `h` of token `t`.
    pub(super) fn at(self, h: usize, f: usize, t: usize) -> usize {
        (t / L * self.width + h * self.d() + f) * L + t % L
    }

    /// The index of the probability of token `s` for the query of token `t`.
    pub(super) fn pair(self, h: usize, t: usize, s: usize) -> usize {
        let g = t / L;
        (g * (g + 1) / 2 * self.heads + h * (g + 1)) * L * L + s * L + t % L
    }
}

/// The backward pass of attention: the outputs' adjoints, and the destination of the contributions.
#[derive(Debug)]
pub struct AttentionPull<'a, S> {
    /// Heads and width.
    pub shape: AttentionShape,
    /// Queries, keys and values.
    pub qkv: [&'a [S]; 3],
    /// The probabilities stored by the forward pass.
    pub probs: &'a [S],
    /// Outputs.
    pub out: &'a [S],
    /// Their adjoints.
    pub dout: &'a [S],
    /// Receives the contributions to queries, keys and values, in sequence.
    pub grads: &'a mut [S],
    /// Working memory, as long as the outputs.
    pub scratch: &'a mut [S],
}
