//! Dense layers one after another.

use super::{Activation, Input, Label, Linear, Model, NamedTensors, SHARED, check_label, check_len, loss_of, within};
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, Range, View};
use crate::kernels::BlockMath;
use crate::params::Parameters;
use crate::scalar::Float;

/// Consecutive dense layers: `activation` after each but the last.
///
/// The loss is softmax cross-entropy for classes and probabilities, the mean squared difference for numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlp {
    layers: Vec<Linear>,
    store: u64,
}

impl Mlp {
    /// Appends the tensors of `sizes.len() - 1` layers; `sizes` starts with the number of inputs. Layer k is named
    /// `name.k` if a name is given.
    pub fn new<E: Float>(
        params: &mut Parameters<'_, E>,
        sizes: &[usize],
        bias: bool,
        activation: Activation,
        name: Option<&str>,
    ) -> Result<Self> {
        if sizes.len() < 2 {
            return Err(Error::BadArgument {
                what: "the sizes of an MLP",
                expected: "at least two numbers: inputs, hidden widths, outputs".into(),
                found: format!("{sizes:?}"),
            });
        }
        let last = sizes.len() - 2;
        params.all_or_nothing(|params| {
            let mut layers = Vec::with_capacity(last + 1);
            for (k, pair) in sizes.windows(2).enumerate() {
                let activation = if k < last { activation } else { Activation::Identity };
                let name = name.map(|name| format!("{name}.{k}"));
                layers.push(Linear::new(params, pair[0], pair[1], bias, activation, name.as_deref())?);
            }
            Ok(Mlp { layers, store: params.id() })
        })
    }

    /// Consecutive layers, at least one, each with the outputs of the previous one as inputs.
    pub fn of_layers(layers: Vec<Linear>) -> Result<Self> {
        let Some(first) = layers.first() else {
            return Err(Error::EmptyReduction { op: "a model" });
        };
        let store = first.weight().slice().store();
        for pair in layers.windows(2) {
            check_len("the number of inputs of a layer", pair[0].n_out(), pair[1].n_in())?;
            if pair[1].weight().slice().store() != store {
                return Err(Error::GraphMismatch { what: "the layer" });
            }
        }
        Ok(Mlp { layers, store })
    }

    /// The layers, first to last.
    pub fn layers(&self) -> &[Linear] {
        &self.layers
    }

    /// How many numbers it takes.
    pub fn n_in(&self) -> usize {
        self.layers[0].n_in()
    }

    /// The number of outputs.
    pub fn n_out(&self) -> usize {
        self.layers[self.layers.len() - 1].n_out()
    }

    /// Its tensors by name.
    pub fn named_tensors(&self) -> NamedTensors {
        let layers = self.layers.iter().enumerate();
        layers.flat_map(|(k, layer)| within(&k.to_string(), layer.named_tensors()).collect::<Vec<_>>()).collect()
    }

    /// How many parameters it has.
    pub fn n_parameters(&self) -> usize {
        self.layers.iter().map(Linear::n_parameters).sum()
    }

    /// Appends the outputs for inputs `x`; with lanes, `x` holds the inputs of lane 0, then of 1, ...
    pub fn outputs<S: BlockMath>(
        &self,
        graph: &mut Graph<'_, S>,
        params: &Parameters<'_, S::Elem>,
        x: &[S::Elem],
    ) -> Result<Range> {
        check_len("the number of inputs of a sample", self.n_in() * S::LANES, x.len())?;
        let x = graph.constants_of_lanes(x)?;
        self.layers.iter().try_fold(x, |x, layer| layer.apply(graph, params, std::iter::once(View::Nodes(x))))
    }
}

impl<S: BlockMath> Model<S> for Mlp {
    fn store(&self) -> u64 {
        self.store
    }

    fn reads_once(&self) -> bool {
        // Custom models may share tensors between layers.
        let starts = |k: usize| self.layers[k].weight().slice();
        (1..self.layers.len()).all(|k| (0..k).all(|j| starts(j) != starts(k)))
    }

    fn shares_products(&self) -> bool {
        self.layers.iter().any(|layer| layer.weight().slice().len() >= SHARED)
    }

    fn check(&self, x: Input<'_, S::Elem>, y: Label<'_, S::Elem>) -> Result<()> {
        numbers(x)?;
        check_len("the number of inputs of a sample", self.n_in(), x.len())?;
        check_label(y, self.n_out())
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
        let outputs = self.outputs(graph, params, numbers(x)?)?;
        loss_of(graph, outputs, y)
    }
}

fn numbers<E>(x: Input<'_, E>) -> Result<&[E]> {
    match x {
        Input::Numbers(numbers) => Ok(numbers),
        Input::Tokens(_) => {
            Err(Error::BadArgument { what: "the input of an MLP", expected: "numbers".into(), found: "tokens".into() })
        }
    }
}
