//! The GPT of the paper: a transformer that reads tokens and predicts the next one.

use super::{Input, Label, Model, NamedTensors, check_below, check_len, within};
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, Tokens};
use crate::kernels::BlockMath;
use crate::kernels::tokens::TOKEN_LANES;
use crate::params::{Init, Parameters, Slice, Tensor};
use crate::scalar::Float;

/// The sizes of a [`Gpt`]. The default is the paper's: 46,289 parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GptShape {
    /// Symbols.
    pub vocab: usize,
    /// The most tokens it reads at once.
    pub context: usize,
    /// The number of blocks.
    pub layers: usize,
    /// Heads of attention in each.
    pub heads: usize,
    /// Features of a token.
    pub width: usize,
    /// Width of a feed-forward layer, in widths.
    pub expansion: usize,
    /// The constant that layer norms add to the variance.
    pub eps: f64,
    /// Whether there is a layer norm after the last block.
    pub final_norm: bool,
}

impl Default for GptShape {
    fn default() -> Self {
        GptShape { vocab: 65, context: 8, layers: 6, heads: 6, width: 24, expansion: 4, eps: 1e-5, final_norm: false }
    }
}

/// Gain and bias of a layer norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    gain: Tensor,
    bias: Tensor,
    eps: f64,
}

impl LayerNorm {
    /// Appends gains of 1 and biases of 0 for `width` features, named `name.weight` and `name.bias`.
    pub fn new<E: Float>(params: &mut Parameters<'_, E>, width: usize, eps: f64, name: Option<&str>) -> Result<Self> {
        if !(eps.is_finite() && eps >= 0.0) {
            let expected = "finite and at least 0".into();
            return Err(Error::BadArgument { what: "eps", expected, found: format!("{eps}") });
        }
        params.all_or_nothing(|params| {
            let gain = params.tensor(&[width], part(name, "weight").as_deref(), Init::Constant(1.0), true)?;
            let bias = params.tensor(&[width], part(name, "bias").as_deref(), Init::Constant(0.0), true)?;
            Ok(LayerNorm { gain, bias, eps })
        })
    }

    /// Its tensors by name.
    pub fn named_tensors(&self) -> NamedTensors {
        vec![("weight".into(), self.gain), ("bias".into(), self.bias)]
    }

    /// Appends it to `x`.
    pub fn apply<S: BlockMath>(
        &self,
        graph: &mut Graph<'_, S>,
        params: &Parameters<'_, S::Elem>,
        x: Tokens,
    ) -> Result<Tokens> {
        graph.layer_norm(&[params], x, self.gain.slice(), self.bias.slice(), self.eps)
    }
}

const ATTENTION_PARTS: [&str; 5] = ["query.weight", "key.weight", "value.weight", "output.weight", "output.bias"];

/// Causal attention of several heads: queries, keys and values without biases, and a mixing layer with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    heads: usize,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    o_bias: Tensor,
}

impl Attention {
    /// Appends its tensors, named `name.query.weight`, ... as [`Attention::named_tensors`] has them.
    pub fn new<E: Float>(
        params: &mut Parameters<'_, E>,
        width: usize,
        heads: usize,
        name: Option<&str>,
    ) -> Result<Self> {
        if heads == 0 || !width.is_multiple_of(heads) {
            let expected = format!("a divisor of the width {width}");
            return Err(Error::BadArgument { what: "the number of heads", expected, found: heads.to_string() });
        }
        params.all_or_nothing(|params| {
            let [q, k, v, o, bias] = ATTENTION_PARTS.map(|which| part(name, which));
            let mut square = |name: Option<String>| params.tensor(&[width, width], name.as_deref(), Init::Glorot, true);
            let (q, k, v, o) = (square(q)?, square(k)?, square(v)?, square(o)?);
            let o_bias = params.tensor(&[width], bias.as_deref(), Init::Constant(0.0), true)?;
            Ok(Attention { heads, q, k, v, o, o_bias })
        })
    }

    /// Its tensors by name.
    pub fn named_tensors(&self) -> NamedTensors {
        let tensors = [self.q, self.k, self.v, self.o, self.o_bias];
        ATTENTION_PARTS.into_iter().map(String::from).zip(tensors).collect()
    }

    /// Appends it to `x`.
    pub fn apply<S: BlockMath>(
        &self,
        graph: &mut Graph<'_, S>,
        params: &Parameters<'_, S::Elem>,
        x: Tokens,
    ) -> Result<Tokens> {
        let width = x.width();
        let [q, k, v] = match self.joint(params) {
            // One layer of three times the width, whose output has three parts.
            Some(joint) if x.n() <= TOKEN_LANES => {
                let all = graph.token_affine(&[params], &[x], joint, None, false)?;
                [0, 1, 2].map(|part| all.features(part * width, (part + 1) * width).unwrap_or(all))
            }
            _ => {
                let mut layer = |w: Tensor| graph.token_affine(&[params], &[x], w.slice(), None, false);
                [layer(self.q)?, layer(self.k)?, layer(self.v)?]
            }
        };
        let mixed = graph.causal_attention(q, k, v, self.heads)?;
        graph.token_affine(&[params], &[mixed], self.o.slice(), Some(self.o_bias.slice()), false)
    }

    /// The weights of queries, keys and values as one matrix, if they are contiguous.
    fn joint<E: Float>(&self, params: &Parameters<'_, E>) -> Option<Slice> {
        let [q, k, v] = [self.q, self.k, self.v].map(|w| w.slice().range());
        let one_run = q.end == k.start && k.end == v.start;
        if one_run { params.slice(q.start..v.end).ok() } else { None }
    }
}

/// One block: `x + attention(norm(x))`, and to that `x + W2 relu(W1 norm(x) + b1) + b2`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    norm1: LayerNorm,
    attention: Attention,
    norm2: LayerNorm,
    up: (Tensor, Tensor),
    down: (Tensor, Tensor),
}

impl Block {
    /// Appends its tensors, named `name.norm1...`, `name.attention...`, `name.norm2...`, `name.up...`, `name.down...`.
    pub fn new<E: Float>(params: &mut Parameters<'_, E>, shape: GptShape, name: Option<&str>) -> Result<Self> {
        let GptShape { width, heads, eps, .. } = shape;
        let inner = shape.expansion.checked_mul(width).ok_or(Error::IndexExhausted { limit: u32::MAX })?;
        params.all_or_nothing(|params| {
            let norm1 = LayerNorm::new(params, width, eps, part(name, "norm1").as_deref())?;
            let attention = Attention::new(params, width, heads, part(name, "attention").as_deref())?;
            let norm2 = LayerNorm::new(params, width, eps, part(name, "norm2").as_deref())?;
            let mut layer = |n_out: usize, n_in: usize, init, which: &str| {
                let of = |kind: &str| part(name, &format!("{which}.{kind}"));
                let weight = params.tensor(&[n_out, n_in], of("weight").as_deref(), init, true)?;
                Ok((weight, params.tensor(&[n_out], of("bias").as_deref(), Init::Constant(0.0), true)?))
            };
            let up = layer(inner, width, Init::He, "up")?;
            let down = layer(width, inner, Init::Glorot, "down")?;
            Ok(Block { norm1, attention, norm2, up, down })
        })
    }

    /// Its tensors by name.
    pub fn named_tensors(&self) -> NamedTensors {
        let layer = |(weight, bias)| vec![("weight".into(), weight), ("bias".into(), bias)];
        within("norm1", self.norm1.named_tensors())
            .chain(within("attention", self.attention.named_tensors()))
            .chain(within("norm2", self.norm2.named_tensors()))
            .chain(within("up", layer(self.up)))
            .chain(within("down", layer(self.down)))
            .collect()
    }

    /// Appends it to `x`.
    pub fn apply<S: BlockMath>(
        &self,
        graph: &mut Graph<'_, S>,
        params: &Parameters<'_, S::Elem>,
        x: Tokens,
    ) -> Result<Tokens> {
        let y = self.norm1.apply(graph, params, x)?;
        let y = self.attention.apply(graph, params, y)?;
        let x = graph.add_tokens(x, y)?;
        let y = self.norm2.apply(graph, params, x)?;
        let [(w1, b1), (w2, b2)] = [self.up, self.down].map(|(w, b)| (w.slice(), b.slice()));
        let y = graph.token_affine(&[params], &[y], w1, Some(b1), true)?;
        let y = graph.token_affine(&[params], &[y], w2, Some(b2), false)?;
        graph.add_tokens(x, y)
    }
}

/// Token and position embeddings, blocks, and a layer of logits for the token after each position.
///
/// Its tensors have the order: tokens (vocab x width), positions (context x width); for each block gain and bias of the
/// first norm, queries, keys, values, mixing weights and bias, gain and bias of the second norm, W1, b1, W2, b2; then
/// gain and bias of the final norm, if any; then weights (vocab x width) and biases of the logits.
///
/// ```
/// use burtorch_core::Parameters;
/// use burtorch_core::nn::{Gpt, GptShape};
/// let mut params = Parameters::<f32>::new(0);
/// let model = Gpt::new(&mut params, GptShape::default(), None).unwrap();
/// assert_eq!(model.n_parameters(), 46_289);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Gpt {
    shape: GptShape,
    tokens: Tensor,
    positions: Tensor,
    blocks: Vec<Block>,
    final_norm: Option<LayerNorm>,
    head: (Tensor, Tensor),
}

/// The standard deviation of initial embeddings.
const EMBEDDING_DEVIATION: f64 = 0.5;

impl Gpt {
    /// Appends the model's tensors, named `name.tokens`, `name.positions`, `name.blocks.0.norm1.weight`, ... if a name
    /// is given.
    pub fn new<E: Float>(params: &mut Parameters<'_, E>, shape: GptShape, name: Option<&str>) -> Result<Self> {
        let GptShape { vocab, context, layers, heads, width, expansion, .. } = shape;
        if [vocab, context, layers, heads, width, expansion].contains(&0) {
            return Err(Error::BadArgument {
                what: "the shape of a GPT",
                expected: "numbers of at least 1".into(),
                found: format!("{shape:?}"),
            });
        }
        let embedding = Init::Normal(0.0, EMBEDDING_DEVIATION);
        params.all_or_nothing(|params| {
            let tokens = params.tensor(&[vocab, width], part(name, "tokens").as_deref(), embedding, true)?;
            let positions = params.tensor(&[context, width], part(name, "positions").as_deref(), embedding, true)?;
            let mut blocks = Vec::new();
            for k in 0..layers {
                // One by one: limited parameters refuse a large model before its list takes memory.
                crate::memory::reserve_in(&mut blocks, 1, "the blocks of a GPT")?;
                blocks.push(Block::new(params, shape, part(name, &format!("blocks.{k}")).as_deref())?);
            }
            let final_norm = match shape.final_norm {
                true => Some(LayerNorm::new(params, width, shape.eps, part(name, "norm").as_deref())?),
                false => None,
            };
            let weight = params.tensor(&[vocab, width], part(name, "head.weight").as_deref(), Init::Glorot, true)?;
            let bias = params.tensor(&[vocab], part(name, "head.bias").as_deref(), Init::Constant(0.0), true)?;
            Ok(Gpt { shape, tokens, positions, blocks, final_norm, head: (weight, bias) })
        })
    }

    /// Its shape.
    pub fn shape(&self) -> GptShape {
        self.shape
    }

    /// The embeddings of symbols, `vocab x width`.
    pub fn tokens(&self) -> Tensor {
        self.tokens
    }

    /// The embeddings of positions, `context x width`.
    pub fn positions(&self) -> Tensor {
        self.positions
    }

    /// Its tensors by name.
    pub fn named_tensors(&self) -> NamedTensors {
        let mut all = vec![("tokens".into(), self.tokens), ("positions".into(), self.positions)];
        for (k, block) in self.blocks.iter().enumerate() {
            all.extend(within(&format!("blocks.{k}"), block.named_tensors()));
        }
        all.extend(self.final_norm.into_iter().flat_map(|norm| within("norm", norm.named_tensors())));
        all.extend([("head.weight".into(), self.head.0), ("head.bias".into(), self.head.1)]);
        all
    }

    /// The number of parameters; the tensors are contiguous.
    pub fn n_parameters(&self) -> usize {
        self.head.1.slice().range().end - self.tokens.slice().range().start
    }

    /// Refuses no tokens, more than the context, and unknown symbols.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() || tokens.len() > self.shape.context {
            return Err(Error::BadArgument {
                what: "the number of tokens of a sample",
                expected: format!("1 to {}", self.shape.context),
                found: tokens.len().to_string(),
            });
        }
        check_below("token", tokens, self.shape.vocab)
    }

    /// Appends the logits of the symbol after each of `tokens`. With lanes, those of lane 0 come first, then of lane 1.
    pub fn logits<S: BlockMath>(
        &self,
        graph: &mut Graph<'_, S>,
        params: &Parameters<'_, S::Elem>,
        tokens: &[u32],
    ) -> Result<Tokens> {
        let (table, positions) = (self.tokens.slice(), self.positions.slice());
        let mut x = graph.token_embedding(&[params], table, Some(positions), self.shape.width, tokens)?;
        for block in &self.blocks {
            x = block.apply(graph, params, x)?;
        }
        if let Some(norm) = self.final_norm {
            x = norm.apply(graph, params, x)?;
        }
        let (weight, bias) = self.head;
        graph.token_affine(&[params], &[x], weight.slice(), Some(bias.slice()), false)
    }
}

impl<S: BlockMath> Model<S> for Gpt {
    fn store(&self) -> u64 {
        self.tokens.slice().store()
    }

    fn fills_lanes_itself(&self) -> bool {
        true
    }

    /// A sample has 1 to `context` tokens; its label is the next token of each.
    fn check(&self, x: Input<'_, S::Elem>, y: Label<'_, S::Elem>) -> Result<()> {
        let (tokens, classes) = parts_of(x, y)?;
        self.check_tokens(tokens)?;
        check_len("the number of classes of a sample", tokens.len(), classes.len())?;
        check_below("class", classes, self.shape.vocab)
    }

    fn tensors(&self) -> Vec<std::ops::Range<u32>> {
        super::places(self.named_tensors())
    }

    fn loss(
        &self,
        graph: &mut Graph<'_, S>,
        params: &Parameters<'_, S::Elem>,
        x: Input<'_, S::Elem>,
        y: Label<'_, S::Elem>,
    ) -> Result<NodeId> {
        let (tokens, classes) = parts_of(x, y)?;
        let logits = self.logits(graph, params, tokens)?;
        graph.token_cross_entropy(logits, classes)
    }
}

fn parts_of<'a, E>(x: Input<'a, E>, y: Label<'a, E>) -> Result<(&'a [u32], &'a [u32])> {
    match (x, y) {
        (Input::Tokens(tokens), Label::Classes(classes)) => Ok((tokens, classes)),
        (Input::Numbers(_), _) => Err(wrong("the input of a GPT", "tokens", "numbers")),
        (_, _) => Err(wrong("the label of a GPT", "one class per token", "numbers")),
    }
}

fn wrong(what: &'static str, expected: &str, found: &str) -> Error {
    Error::BadArgument { what, expected: expected.into(), found: found.into() }
}

/// The name of a part of a tensor that may be unnamed.
fn part(name: Option<&str>, part: &str) -> Option<String> {
    name.map(|name| format!("{name}.{part}"))
}
