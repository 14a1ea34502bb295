//! One dense layer: `activation(W x + b)`.

use super::NamedTensors;
use crate::error::{Error, Result};
use crate::graph::{Graph, Range, View};
use crate::kernels::BlockMath;
use crate::ops::Op;
use crate::params::{Init, Parameters, Tensor};
use crate::scalar::{Float, Scalar};

/// The activation applied to each output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// No activation.
    #[default]
    Identity,
    /// Hyperbolic tangent.
    Tanh,
    /// `max(x, 0)`.
    Relu,
    /// `1/(1 + e^-x)`.
    Sigmoid,
}

impl Activation {
    /// All of them.
    pub const ALL: [Activation; 4] = [Activation::Identity, Activation::Tanh, Activation::Relu, Activation::Sigmoid];

    /// The name as Python uses it.
    pub const fn name(self) -> &'static str {
        match self {
            Activation::Identity => "identity",
            Activation::Tanh => "tanh",
            Activation::Relu => "relu",
            Activation::Sigmoid => "sigmoid",
        }
    }

    /// The activation called `name`.
    pub fn from_name(name: &str) -> Result<Activation> {
        let found = Self::ALL.into_iter().find(|a| a.name() == name);
        found.ok_or_else(|| Error::BadArgument {
            what: "an activation",
            expected: "identity, tanh, relu or sigmoid".into(),
            found: name.into(),
        })
    }

    /// The op, if it does anything.
    pub const fn op(self) -> Option<Op> {
        match self {
            Activation::Identity => None,
            Activation::Tanh => Some(Op::Tanh),
            Activation::Relu => Some(Op::Relu),
            Activation::Sigmoid => Some(Op::Sigmoid),
        }
    }

    /// How the weights before it start, so that a signal keeps its size from layer to layer.
    pub const fn init(self) -> Init {
        match self {
            Activation::Relu => Init::He,
            _ => Init::Glorot,
        }
    }

    /// Appends it to `x`.
    pub fn apply<S: Scalar>(self, graph: &mut Graph<'_, S>, x: Range) -> Result<Range> {
        match self.op() {
            Some(op) => graph.map(op, x),
            None => Ok(x),
        }
    }
}

/// A dense layer over tensors of a `Parameters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    activation: Activation,
}

impl Linear {
    /// Appends the layer's tensors: the weights (`n_out x n_in`), then the biases, which start at 0. Named
    /// `name.weight` and `name.bias` if a name is given.
    pub fn new<E: Float>(
        params: &mut Parameters<'_, E>,
        n_in: usize,
        n_out: usize,
        bias: bool,
        activation: Activation,
        name: Option<&str>,
    ) -> Result<Self> {
        let named = |part: &str| name.map(|name| format!("{name}.{part}"));
        params.all_or_nothing(|params| {
            let weight = params.tensor(&[n_out, n_in], named("weight").as_deref(), activation.init(), true)?;
            let bias = match bias {
                true => Some(params.tensor(&[n_out], named("bias").as_deref(), Init::Constant(0.0), true)?),
                false => None,
            };
            Ok(Linear { weight, bias, activation })
        })
    }

    /// The weights, `n_out x n_in`.
    pub fn weight(&self) -> Tensor {
        self.weight
    }

    /// The biases, if it has any.
    pub fn bias(&self) -> Option<Tensor> {
        self.bias
    }

    /// The activation.
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// How many numbers it takes.
    pub fn n_in(&self) -> usize {
        self.weight.shape().dims()[1] as usize
    }

    /// The number of outputs.
    pub fn n_out(&self) -> usize {
        self.weight.shape().dims()[0] as usize
    }

    /// Its tensors by name.
    pub fn named_tensors(&self) -> NamedTensors {
        let bias = self.bias.map(|bias| ("bias".into(), bias));
        std::iter::once(("weight".into(), self.weight)).chain(bias).collect()
    }

    /// How many parameters it has.
    pub fn n_parameters(&self) -> usize {
        self.weight.slice().len() + self.bias.map_or(0, |b| b.slice().len())
    }

    /// Appends the layer on a concatenation of views and returns its outputs.
    pub fn apply<S: BlockMath>(
        &self,
        graph: &mut Graph<'_, S>,
        params: &Parameters<'_, S::Elem>,
        x: impl Iterator<Item = View> + Clone,
    ) -> Result<Range> {
        let bias = self.bias.map(|b| b.slice());
        let before = graph.affine_of(&[params], x, self.weight.slice(), bias)?;
        self.activation.apply(graph, before)
    }
}
