//! One neuron, as scalar nodes: an inner product, a bias, an activation.

use super::Activation;
use crate::error::Result;
use crate::graph::{Graph, NodeId, Operands, View};
use crate::ops;
use crate::params::{Init, Parameters, Tensor};
use crate::scalar::{Float, Scalar};

/// `f(w x + b)`: the unit of a dense layer, one node per step of the formula.
///
/// ```
/// use burtorch_core::nn::{Activation, Neuron};
/// use burtorch_core::{Graph, Parameters};
/// let mut params = Parameters::<f64>::new(0);
/// let neuron = Neuron::new(&mut params, 2, true, Activation::Tanh).unwrap();
/// let mut graph = Graph::<f64>::new();
/// let x = graph.vector(&[1.0, -2.0]).unwrap();
/// let y = neuron.forward(&mut graph, &params, x.into()).unwrap();
/// graph.backward_with(y, 1.0, &mut [params.gradients()]).unwrap();
/// assert_eq!(params.grads().len(), 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neuron {
    weight: Tensor,
    bias: Option<Tensor>,
    activation: Activation,
}

impl Neuron {
    /// A neuron of `n_in` inputs, initialised for its activation; the bias starts at 0.
    pub fn new<E: Float>(
        params: &mut Parameters<'_, E>,
        n_in: usize,
        bias: bool,
        activation: Activation,
    ) -> Result<Self> {
        params.all_or_nothing(|params| {
            let weight = params.tensor(&[1, n_in], None, activation.init(), true)?;
            let bias = bias.then(|| params.tensor(&[1], None, Init::Constant(0.0), true)).transpose()?;
            Ok(Neuron { weight, bias, activation })
        })
    }

    /// Appends the output for `x`, which has one scalar per weight.
    pub fn forward<S: Scalar>(
        &self,
        graph: &mut Graph<'_, S>,
        params: &Parameters<'_, S::Elem>,
        x: Operands<'_>,
    ) -> Result<NodeId> {
        let before = graph.mark();
        let built = self.append(graph, params, x);
        if built.is_err() {
            graph.rewind(before)?;
        }
        built
    }

    fn append<S: Scalar>(
        &self,
        graph: &mut Graph<'_, S>,
        params: &Parameters<'_, S::Elem>,
        x: Operands<'_>,
    ) -> Result<NodeId> {
        let bias = self.bias.map(|bias| graph.parameter(params, bias.slice(), 0)).transpose()?;
        let weights = [View::from(self.weight.slice())];
        let y = graph.inner_product(x, Operands::Views(&weights), bias, &[params])?;
        match self.activation {
            Activation::Identity => Ok(y),
            Activation::Tanh => graph.unary::<ops::Tanh>(y),
            Activation::Relu => graph.unary::<ops::Relu>(y),
            Activation::Sigmoid => graph.unary::<ops::Sigmoid>(y),
        }
    }
}
