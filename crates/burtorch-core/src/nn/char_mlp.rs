//! The character model of the paper: embeddings of the last tokens, one hidden layer, logits of the next token.

use super::{
    Activation, Input, Label, Linear, Model, NamedTensors, SHARED, check_below, check_label, check_len, loss_of, within,
};
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, Range, View};
use crate::kernels::BlockMath;
use crate::params::{Init, Parameters, Tensor};
use crate::scalar::Float;

/// The standard deviation of initial embeddings. With 1 the hidden layer starts so close to saturation that training is
/// chaotic: two runs that differ in the last bit diverge after some hundred steps. With 1/2 they stay together.
const EMBEDDING_DEVIATION: f64 = 0.5;

/// The sizes of a [`CharMlp`]. The default is the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CharMlpShape {
    /// Symbols.
    pub vocab: usize,
    /// How many symbols back it looks.
    pub context: usize,
    /// Numbers per symbol.
    pub embedding: usize,
    /// Width of the hidden layer.
    pub hidden: usize,
}

impl Default for CharMlpShape {
    fn default() -> Self {
        CharMlpShape { vocab: 27, context: 16, embedding: 64, hidden: 64 }
    }
}

/// `logits = W2 tanh(W1 [e_1, .., e_context] + b1) + b2`, with `e_k` the embedding of the k-th token of the context.
///
/// Its tensors have the order embedding, W1, b1, W2, b2. Embeddings are read as views: nothing is copied into the
/// graph, and only the rows used receive a gradient.
///
/// ```
/// use burtorch_core::Parameters;
/// use burtorch_core::nn::{CharMlp, CharMlpShape};
/// let mut params = Parameters::<f32>::new(0);
/// let model = CharMlp::new(&mut params, CharMlpShape::default(), None).unwrap();
/// assert_eq!(model.n_parameters(), 69_083);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CharMlp {
    shape: CharMlpShape,
    embedding: Tensor,
    hidden: Linear,
    output: Linear,
}

impl CharMlp {
    /// Appends the model's tensors, named `name.embedding`, `name.hidden.weight`, ... if a name is given.
    pub fn new<E: Float>(params: &mut Parameters<'_, E>, shape: CharMlpShape, name: Option<&str>) -> Result<Self> {
        let CharMlpShape { vocab, context, embedding, hidden } = shape;
        if [vocab, context, embedding, hidden].contains(&0) {
            return Err(Error::BadArgument {
                what: "the shape of a CharMLP",
                expected: "numbers of at least 1".into(),
                found: format!("{shape:?}"),
            });
        }
        let n_in = context.checked_mul(embedding).ok_or(Error::IndexExhausted { limit: u32::MAX })?;
        let named = |part: &str| name.map(|name| format!("{name}.{part}"));
        params.all_or_nothing(|params| {
            Ok(CharMlp {
                shape,
                embedding: params.tensor(
                    &[vocab, embedding],
                    named("embedding").as_deref(),
                    Init::Normal(0.0, EMBEDDING_DEVIATION),
                    true,
                )?,
                hidden: Linear::new(params, n_in, hidden, true, Activation::Tanh, named("hidden").as_deref())?,
                output: Linear::new(params, hidden, vocab, true, Activation::Identity, named("output").as_deref())?,
            })
        })
    }

    /// Its shape.
    pub fn shape(&self) -> CharMlpShape {
        self.shape
    }

    /// The embeddings, `vocab x embedding`.
    pub fn embedding(&self) -> Tensor {
        self.embedding
    }

    /// The hidden layer.
    pub fn hidden(&self) -> Linear {
        self.hidden
    }

    /// The layer of logits.
    pub fn output(&self) -> Linear {
        self.output
    }

    /// Its tensors by name.
    pub fn named_tensors(&self) -> NamedTensors {
        let layers = within("hidden", self.hidden.named_tensors()).chain(within("output", self.output.named_tensors()));
        std::iter::once(("embedding".into(), self.embedding)).chain(layers).collect()
    }

    /// How many parameters it has.
    pub fn n_parameters(&self) -> usize {
        self.embedding.slice().len() + self.hidden.n_parameters() + self.output.n_parameters()
    }

    /// Refuses a context of another length, or with unknown symbols.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        check_len("the number of symbols of a sample", self.shape.context, tokens.len())?;
        check_below("token", tokens, self.shape.vocab)
    }

    /// Appends the logits of the symbol after `tokens`; with lanes, `tokens` holds the context of lane 0, then of 1, ...
    pub fn logits<S: BlockMath>(
        &self,
        graph: &mut Graph<'_, S>,
        params: &Parameters<'_, S::Elem>,
        tokens: &[u32],
    ) -> Result<Range> {
        let context = self.shape.context;
        check_len("the number of symbols of a sample", context * S::LANES, tokens.len())?;
        check_below("token", tokens, self.shape.vocab)?;
        let hidden = if S::LANES == 1 {
            // Rows are read in place; lanes, which read different rows, need contiguous copies.
            let rows = tokens.iter().filter_map(|&token| self.embedding.row(token as usize).map(View::from));
            self.hidden.apply(graph, params, rows)?
        } else {
            let rows = graph.gather(params, self.embedding, tokens)?;
            self.hidden.apply(graph, params, std::iter::once(View::Nodes(rows)))?
        };
        self.output.apply(graph, params, std::iter::once(View::Nodes(hidden)))
    }
}

impl<S: BlockMath> Model<S> for CharMlp {
    fn store(&self) -> u64 {
        self.embedding.slice().store()
    }

    fn reads_once(&self) -> bool {
        true
    }

    fn asks_no_gradients(&self) -> bool {
        true
    }

    fn shares_products(&self) -> bool {
        self.hidden.weight().slice().len() >= SHARED
    }

    fn check(&self, x: Input<'_, S::Elem>, y: Label<'_, S::Elem>) -> Result<()> {
        self.check_tokens(tokens(x)?)?;
        check_label(y, self.shape.vocab)
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
        let logits = self.logits(graph, params, tokens(x)?)?;
        loss_of(graph, logits, y)
    }
}

fn tokens<E>(x: Input<'_, E>) -> Result<&[u32]> {
    match x {
        Input::Tokens(tokens) => Ok(tokens),
        Input::Numbers(_) => Err(Error::BadArgument {
            what: "the input of a CharMLP",
            expected: "tokens".into(),
            found: "numbers".into(),
        }),
    }
}
