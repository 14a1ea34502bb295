//! Dense layers with sizes known at compile time, as the paper's: a layer of other sizes does not compile.
//!
//! Promises: the same numbers as the layer with sizes known at run time, bit for bit: it is that layer, with its sizes in
//! the type. Does not know models.

use std::marker::PhantomData;

use super::{Activation, Linear as Dynamic};
use crate::error::Result;
use crate::graph::{Graph, Range, View};
use crate::kernels::BlockMath;
use crate::params::Parameters;
use crate::scalar::{Float, Scalar};

/// `activation(W x + b)` of `IN` numbers, giving `OUT`, on graphs of `S`.
///
/// ```
/// use burtorch_core::nn::{Activation, sized};
/// use burtorch_core::{Graph, Parameters};
/// let mut params = Parameters::<f64>::new(0);
/// let hidden = sized::Linear::<f64, 2, 8>::new(&mut params, true, Activation::Tanh, None).unwrap();
/// let output = sized::Linear::<f64, 8, 1>::new(&mut params, true, Activation::Identity, None).unwrap();
/// let mut graph = Graph::new();
/// let x = sized::Run::leaves(&mut graph, [0.5, -1.0]).unwrap();
/// let h = hidden.apply(&mut graph, &params, x).unwrap();
/// let y = output.apply(&mut graph, &params, h).unwrap();
/// assert_eq!(y.range().len(), 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Linear<S, const IN: usize, const OUT: usize> {
    layer: Dynamic,
    scalar: PhantomData<S>,
}

/// `N` contiguous nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<const N: usize>(Range);

impl<const N: usize> Run<N> {
    /// Leaves with these values.
    pub fn leaves<S: Scalar>(graph: &mut Graph<'_, S>, values: [S; N]) -> Result<Self> {
        graph.vector(&values).map(Run)
    }

    /// Constants with these values.
    pub fn constants<S: Scalar>(graph: &mut Graph<'_, S>, values: [S; N]) -> Result<Self> {
        graph.constants(&values).map(Run)
    }

    /// The nodes, if there are exactly `N`.
    pub fn of(range: Range) -> Option<Self> {
        (range.len() == N).then_some(Run(range))
    }

    /// The nodes.
    pub fn range(self) -> Range {
        self.0
    }
}

impl<S: Scalar, const IN: usize, const OUT: usize> Linear<S, IN, OUT> {
    /// Appends the layer's tensors, as [`Linear::new`](Dynamic::new) does.
    pub fn new(
        params: &mut Parameters<'_, S::Elem>,
        bias: bool,
        activation: Activation,
        name: Option<&str>,
    ) -> Result<Self>
    where
        S::Elem: Float,
    {
        const { assert!(IN > 0 && OUT > 0, "a layer has inputs and outputs") };
        let layer = Dynamic::new(params, IN, OUT, bias, activation, name)?;
        Ok(Linear { layer, scalar: PhantomData })
    }

    /// The same layer, with its sizes known at run time.
    pub fn dynamic(&self) -> Dynamic {
        self.layer
    }
}

impl<S: BlockMath, const IN: usize, const OUT: usize> Linear<S, IN, OUT> {
    /// Appends the layer and returns its outputs.
    pub fn apply(&self, graph: &mut Graph<'_, S>, params: &Parameters<'_, S::Elem>, x: Run<IN>) -> Result<Run<OUT>> {
        self.layer.apply(graph, params, std::iter::once(View::Nodes(x.0))).map(Run)
    }
}
