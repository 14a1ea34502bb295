//! Models: functions from one sample to a loss, built from block ops over tensors of a `Parameters`.
//!
//! Promises: a model stores places, never numbers, so it is small and does not know how it is trained; creating
//! one appends all of its tensors or none.

mod char_mlp;
mod gpt;
mod linear;
mod mlp;
mod neuron;
pub mod sized;

pub use char_mlp::{CharMlp, CharMlpShape};
pub use gpt::{Attention, Block, Gpt, GptShape, LayerNorm};
pub use linear::{Activation, Linear};
pub use mlp::Mlp;
pub use neuron::Neuron;

use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, Range};
use crate::kernels::BlockMath;
use crate::params::{Parameters, Tensor};
use crate::scalar::Scalar;

/// The tensors of a model with their names in it, in their order in the parameters.
pub type NamedTensors = Vec<(String, Tensor)>;

/// The `tensors` of a submodule called `part`.
fn within(part: &str, tensors: NamedTensors) -> impl Iterator<Item = (String, Tensor)> {
    tensors.into_iter().map(move |(name, tensor)| (format!("{part}.{name}"), tensor))
}

/// The input of a model: one sample, or several in sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input<'a, E> {
    /// Token ids.
    Tokens(&'a [u32]),
    /// Numbers.
    Numbers(&'a [E]),
}

/// The target of a model: for one sample, or for several in sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Label<'a, E> {
    /// Classes; a single one for a model with one output per sample.
    Classes(&'a [u32]),
    /// Probabilities, one per class.
    Probabilities(&'a [E]),
    /// Targets of a regression.
    Numbers(&'a [E]),
}

impl<'a, E> Input<'a, E> {
    /// How many tokens or numbers.
    pub fn len(&self) -> usize {
        match self {
            Input::Tokens(tokens) => tokens.len(),
            Input::Numbers(numbers) => numbers.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of `range`, which must be within bounds.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Input<'a, E> {
        match self {
            Input::Tokens(tokens) => Input::Tokens(&tokens[range]),
            Input::Numbers(numbers) => Input::Numbers(&numbers[range]),
        }
    }
}

impl<'a, E> Label<'a, E> {
    /// How many classes or numbers.
    pub fn len(&self) -> usize {
        match self {
            Label::Classes(classes) => classes.len(),
            Label::Probabilities(numbers) | Label::Numbers(numbers) => numbers.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of `range`, which must be within bounds.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Label<'a, E> {
        match self {
            Label::Classes(classes) => Label::Classes(&classes[range]),
            Label::Probabilities(numbers) => Label::Probabilities(&numbers[range]),
            Label::Numbers(numbers) => Label::Numbers(&numbers[range]),
        }
    }
}

/// Maps a sample to a loss.
///
/// With lanes, `x` and `y` hold one sample per lane, in sequence.
pub trait Model<S: Scalar>: Sync {
    /// The identity of the parameters that the model reads.
    fn store(&self) -> u64;

    /// Checks a sample, so that a batch is refused as a whole.
    fn check(&self, x: Input<'_, S::Elem>, y: Label<'_, S::Elem>) -> Result<()>;

    /// Whether a single sample already uses vectors well, e.g. with lanes along its tokens. Then an oracle puts samples
    /// in lanes only on request.
    fn fills_lanes_itself(&self) -> bool {
        false
    }

    /// Whether each parameter is read by one node only in the graph of a sample. Then a step on one sample may change
    /// values during the backward pass ([`Oracle::step`](crate::Oracle::step)).
    fn reads_once(&self) -> bool {
        false
    }

    /// Whether [`Model::loss`] reads no gradients of its graph: then an oracle need not reset them before.
    fn asks_no_gradients(&self) -> bool {
        false
    }

    /// The tensors that the model reads, ascending: gradients that are emitted during the backward pass are emitted
    /// tensor by tensor. If empty, they are emitted in ranges that nodes read together, which may depend on the sample.
    fn tensors(&self) -> Vec<std::ops::Range<u32>> {
        Vec::new()
    }

    /// Whether threads share the products of dense layers instead of the samples of a batch. With large layers this
    /// needs no gradient per thread, and small batches use all threads too.
    fn shares_products(&self) -> bool {
        false
    }

    /// Appends the loss of the sample to `graph`.
    fn loss(
        &self,
        graph: &mut Graph<'_, S>,
        params: &Parameters<'_, S::Elem>,
        x: Input<'_, S::Elem>,
        y: Label<'_, S::Elem>,
    ) -> Result<NodeId>;
}

/// The ranges of the tensors, ascending.
fn places(tensors: NamedTensors) -> Vec<std::ops::Range<u32>> {
    let place = |(_, tensor): (String, Tensor)| tensor.slice().start..tensor.slice().start + tensor.slice().len;
    let mut places: Vec<_> = tensors.into_iter().map(place).collect();
    places.sort_unstable_by_key(|place| place.start);
    places
}

/// Weights of a layer above which threads share its products.
const SHARED: usize = 1 << 18;

/// Refuses numbers that are not below `n`.
fn check_below(what: &'static str, found: &[u32], n: usize) -> Result<()> {
    // Checks several at a time, because numbers are almost always valid.
    if found.iter().fold(true, |fine, &x| fine & ((x as usize) < n)) {
        return Ok(());
    }
    match found.iter().find(|&&x| x as usize >= n) {
        Some(&x) => Err(Error::OutOfRange { what, found: u64::from(x), max: n as u64 - 1 }),
        None => Ok(()),
    }
}

/// Refuses a count other than `expected`.
fn check_len(what: &'static str, expected: usize, found: usize) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::BadArgument { what, expected: expected.to_string(), found: found.to_string() })
}

/// Refuses a label that does not fit `n` outputs.
fn check_label<E>(y: Label<'_, E>, n: usize) -> Result<()> {
    match y {
        Label::Classes(classes) => {
            check_len("the number of classes of a sample", 1, classes.len())?;
            check_below("class", classes, n)
        }
        Label::Probabilities(numbers) | Label::Numbers(numbers) => {
            check_len("the number of numbers of a label", n, numbers.len())
        }
    }
}

/// Appends the loss of `outputs`: cross-entropy with classes or probabilities, mean squared error with numbers.
fn loss_of<S: BlockMath>(graph: &mut Graph<'_, S>, outputs: Range, y: Label<'_, S::Elem>) -> Result<NodeId> {
    use crate::graph::CrossEntropyTarget;
    use crate::ops::{Op, Sub};
    match y {
        Label::Classes(classes) => graph.softmax_cross_entropy(outputs, CrossEntropyTarget::Classes(classes)),
        Label::Probabilities(numbers) => {
            let targets = graph.constants_of_lanes(numbers)?;
            graph.softmax_cross_entropy(outputs, CrossEntropyTarget::Probabilities(targets))
        }
        Label::Numbers(numbers) => {
            let targets = graph.constants_of_lanes(numbers)?;
            let first = NodeId::from_index(graph.len() as u32);
            for (y, t) in outputs.nodes().zip(targets.nodes()) {
                graph.binary::<Sub>(y, t)?;
            }
            let differences = Range::new(first, outputs.len() as u32);
            if graph.skips_losses() {
                return graph.mean_squares_without_value(differences);
            }
            graph.reduce(Op::MEAN_SQUARE, differences.into(), &[])
        }
    }
}
