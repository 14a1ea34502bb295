//! Block ops of a graph of any scalar type that supports them.

use super::params::{AnyParameters, Erasable, typed};
use crate::error::{Error, Result};
use crate::graph::{CrossEntropyTarget, Graph, NodeId, Range, Tokens, View};
use crate::kernels::BlockMath;
use crate::nn::{Activation, CharMlp, Gpt, Linear};
use crate::ops::Op;
use crate::params::{Parameters, Slice, Tensor};
use crate::scalar::{Float, Scalar};

/// The block ops of [`Graph`], by the same names.
pub trait ErasedBlocks {
    /// A block op on plain operands; see [`Graph::append_block`].
    fn append_block(&mut self, op: Op, params: &[&AnyParameters], operands: &[View], own: &[f64]) -> Result<Range>;

    /// `f(W x + b)`.
    fn affine(
        &mut self,
        params: &[&AnyParameters],
        x: &[View],
        w: Slice,
        bias: Option<Slice>,
        activation: Activation,
    ) -> Result<Range>;

    /// Consecutive dense layers; `None` for an empty list.
    fn dense(&mut self, params: &[&AnyParameters], x: &[View], layers: &[Linear]) -> Result<Option<Range>>;

    /// Rows of a table.
    fn gather(&mut self, params: &[&AnyParameters], table: Tensor, indices: &[u32]) -> Result<Range>;

    /// The cross-entropy of a softmax.
    fn softmax_cross_entropy(&mut self, logits: Range, target: CrossEntropyTarget<'_>) -> Result<NodeId>;

    /// One row of a table per token.
    fn token_embedding(
        &mut self,
        params: &[&AnyParameters],
        table: Slice,
        positions: Option<Slice>,
        width: usize,
        tokens: &[u32],
    ) -> Result<Tokens>;

    /// A dense layer for each token.
    fn token_affine(
        &mut self,
        params: &[&AnyParameters],
        x: &[Tokens],
        w: Slice,
        bias: Option<Slice>,
        relu: bool,
    ) -> Result<Tokens>;

    /// A layer norm of each token.
    fn layer_norm(
        &mut self,
        params: &[&AnyParameters],
        x: Tokens,
        gain: Slice,
        bias: Slice,
        eps: f64,
    ) -> Result<Tokens>;

    /// Causal attention.
    fn causal_attention(&mut self, q: Tokens, k: Tokens, v: Tokens, heads: usize) -> Result<Tokens>;

    /// The logits of a character model; with lanes, the context of lane 0 comes first.
    fn char_mlp(&mut self, params: &[&AnyParameters], model: &CharMlp, tokens: &[u32]) -> Result<Range>;

    /// The logits of a GPT.
    fn gpt(&mut self, params: &[&AnyParameters], model: &Gpt, tokens: &[u32]) -> Result<Tokens>;

    /// The mean cross-entropy of tokens.
    fn token_cross_entropy(&mut self, logits: Tokens, classes: &[u32]) -> Result<NodeId>;

    /// The sum of two runs.
    fn add_ranges(&mut self, x: Range, y: Range) -> Result<Range>;
}

impl<S: BlockMath + Scalar<Elem: Erasable>> ErasedBlocks for Graph<'static, S> {
    fn append_block(&mut self, op: Op, params: &[&AnyParameters], operands: &[View], own: &[f64]) -> Result<Range> {
        typed(params, |params| Graph::append_block(self, op, params, operands, own))
    }

    fn affine(
        &mut self,
        params: &[&AnyParameters],
        x: &[View],
        w: Slice,
        bias: Option<Slice>,
        activation: Activation,
    ) -> Result<Range> {
        typed(params, |params| Graph::affine(self, params, x, w, bias).and_then(|y| activation.apply(self, y)))
    }

    fn dense(&mut self, params: &[&AnyParameters], x: &[View], layers: &[Linear]) -> Result<Option<Range>> {
        typed(params, |params| {
            let mut outputs: Option<Range> = None;
            for layer in layers {
                let one = outputs.map(View::Nodes);
                let x = one.as_ref().map_or(x, std::slice::from_ref);
                let before = Graph::affine(self, params, x, layer.weight().slice(), layer.bias().map(|b| b.slice()))?;
                outputs = Some(layer.activation().apply(self, before)?);
            }
            Ok(outputs)
        })
    }

    fn gather(&mut self, params: &[&AnyParameters], table: Tensor, indices: &[u32]) -> Result<Range> {
        typed(params, |params| Graph::gather(self, owner(params, table)?, table, indices))
    }

    fn softmax_cross_entropy(&mut self, logits: Range, target: CrossEntropyTarget<'_>) -> Result<NodeId> {
        Graph::softmax_cross_entropy(self, logits, target)
    }

    fn token_embedding(
        &mut self,
        params: &[&AnyParameters],
        table: Slice,
        positions: Option<Slice>,
        width: usize,
        tokens: &[u32],
    ) -> Result<Tokens> {
        typed(params, |params| Graph::token_embedding(self, params, table, positions, width, tokens))
    }

    fn token_affine(
        &mut self,
        params: &[&AnyParameters],
        x: &[Tokens],
        w: Slice,
        bias: Option<Slice>,
        relu: bool,
    ) -> Result<Tokens> {
        typed(params, |params| Graph::token_affine(self, params, x, w, bias, relu))
    }

    fn layer_norm(
        &mut self,
        params: &[&AnyParameters],
        x: Tokens,
        gain: Slice,
        bias: Slice,
        eps: f64,
    ) -> Result<Tokens> {
        typed(params, |params| Graph::layer_norm(self, params, x, gain, bias, eps))
    }

    fn causal_attention(&mut self, q: Tokens, k: Tokens, v: Tokens, heads: usize) -> Result<Tokens> {
        Graph::causal_attention(self, q, k, v, heads)
    }

    fn char_mlp(&mut self, params: &[&AnyParameters], model: &CharMlp, tokens: &[u32]) -> Result<Range> {
        typed(params, |params| model.logits(self, owner(params, model.embedding())?, tokens))
    }

    fn gpt(&mut self, params: &[&AnyParameters], model: &Gpt, tokens: &[u32]) -> Result<Tokens> {
        typed(params, |params| model.logits(self, owner(params, model.tokens())?, tokens))
    }

    fn token_cross_entropy(&mut self, logits: Tokens, classes: &[u32]) -> Result<NodeId> {
        Graph::token_cross_entropy(self, logits, classes)
    }

    fn add_ranges(&mut self, x: Range, y: Range) -> Result<Range> {
        Graph::add_ranges(self, x, y)
    }
}

/// The parameters that own a tensor.
fn owner<'a, 'm, E: Float>(params: &[&'a Parameters<'m, E>], tensor: Tensor) -> Result<&'a Parameters<'m, E>> {
    let found = params.iter().find(|p| p.id() == tensor.slice().store());
    found.copied().ok_or(Error::MissingParameters)
}
