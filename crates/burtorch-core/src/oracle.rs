//! Gradient oracles: the loss of a batch and its gradient, sample by sample.
//!
//! Promises: memory is that of one sample, whatever the batch size; after warm-up no call allocates; samples are summed
//! in the order of the batch, so a batch has the same bits on every run; a batch is checked before anything is
//! written. Knows models only as [`Model`], nothing of optimisers.

use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId};
use crate::kernels::{KernelFloat, sgd_update};
use crate::nn::{Input, Label, Model};
use crate::params::{Parameters, Written};
use crate::scalar::Float;

/// How the losses of a batch become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Total {
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

/// Samples one after another: `n` equal parts of `x` and of `y`.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a, E> {
    x: Input<'a, E>,
    y: Label<'a, E>,
    n: usize,
}

impl<'a, E> Batch<'a, E> {
    /// `n` samples, at least one.
    pub fn new(x: Input<'a, E>, y: Label<'a, E>, n: usize) -> Result<Self> {
        if n == 0 {
            return Err(Error::EmptyReduction { op: "the loss" });
        }
        for (what, len) in [
            ("a batch (samples and numbers of its inputs)", x.len()),
            ("a batch (samples and numbers of its labels)", y.len()),
        ] {
            if len == 0 || len % n != 0 {
                return Err(Error::LengthMismatch { op: what, left: n, right: len });
            }
        }
        Ok(Batch { x, y, n })
    }

    /// How many samples.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Sample `k`, which is below the length.
    fn sample(&self, k: usize) -> (Input<'a, E>, Label<'a, E>) {
        let (n_x, n_y) = (self.x.len() / self.n, self.y.len() / self.n);
        (self.x.part(k * n_x..(k + 1) * n_x), self.y.part(k * n_y..(k + 1) * n_y))
    }
}

/// Asked between samples whether to stop.
pub type Interrupted<'a> = Option<&'a mut dyn FnMut() -> bool>;

/// Computes losses and gradients of batches, in a graph of its own that it rewinds after each sample.
///
/// ```
/// use burtorch_core::nn::{Activation, Input, Label, Mlp};
/// use burtorch_core::{Batch, Oracle, Parameters, Sgd};
/// let mut params = Parameters::<f64>::new(0);
/// let model = Mlp::new(&mut params, &[2, 8, 1], true, Activation::Tanh, None).unwrap();
/// let x = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0];
/// let y = [0.0, 1.0, 1.0, 0.0];
/// let batch = Batch::new(Input::Numbers(&x), Label::Numbers(&y), 4).unwrap();
/// let (mut oracle, mut sgd) = (Oracle::new(), Sgd::new(0.3).unwrap());
/// for _ in 0..2000 {
///     oracle.gradient(&model, &mut params, batch, None).unwrap();
///     sgd.step(&mut params).unwrap();
/// }
/// assert!(oracle.loss(&model, &params, batch, None).unwrap() < 1e-3);
/// ```
#[derive(Debug)]
pub struct Oracle<E: Float> {
    graph: Graph<'static, E>,
    written: Written,
    total: Total,
}

impl<E: Float> Default for Oracle<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Float> Oracle<E> {
    /// An oracle of the mean loss.
    pub fn new() -> Self {
        Self::with_total(Total::Mean)
    }

    /// An oracle of the mean or the sum of losses.
    pub fn with_total(total: Total) -> Self {
        Oracle { graph: Graph::new(), written: Written::new(), total }
    }

    /// Whether losses are averaged or summed.
    pub fn total(&self) -> Total {
        self.total
    }

    /// The loss of the batch, as a 64-bit float. Its gradient **overwrites** that of `params`: the gradient of what the
    /// batch does not reach is 0. Each gradient adds samples in their order.
    ///
    /// A batch that the model does not take is refused before anything is written. When `interrupted`, or out of
    /// memory, the gradient is 0.
    pub fn gradient<M: Model<E>>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        check(model, params, batch)?;
        let swept = self.sweep_samples(model, params, batch, interrupted);
        if swept.is_ok() {
            self.written.finish(params.grads_mut());
        } else {
            params.zero_grad();
        }
        Ok(self.reduce(swept?, batch.len()))
    }

    /// The sum of the losses; gradients are written as far as [`Written`] knows.
    fn sweep_samples<M: Model<E>>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        mut interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        let seed = match self.total {
            Total::Mean => E::lit(1.0) / E::lit(batch.len() as f64),
            Total::Sum => E::lit(1.0),
        };
        let (_, grads, frozen) = params.split_for_sweep();
        self.written.start(frozen, grads);
        let mut sum = 0.0;
        for k in 0..batch.len() {
            let loss = self.append(model, params, batch, k, &mut interrupted)?;
            let gradients = params.gradients_anew(&mut self.written);
            self.graph.backward_with(loss, seed, &mut [gradients])?;
            sum += self.graph.value(loss)?.to_f64();
        }
        Ok(sum)
    }

    /// One step of plain gradient descent on the batch, `x -= lr g`; returns the loss before it.
    ///
    /// With one sample, and a model each of whose parameters one node reads, values change during the sweep and no
    /// gradient is stored: half the memory traffic, and the numbers of [`Oracle::gradient`] and
    /// [`Sgd::step`](crate::Sgd::step) within rounding (the same bits but for embeddings that the sample names twice).
    /// What is in the gradients afterwards is not specified.
    pub fn step<M: Model<E>>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        lr: f64,
        mut interrupted: Interrupted<'_>,
    ) -> Result<f64>
    where
        E: KernelFloat,
    {
        crate::optim::check_rate("the learning rate", lr)?;
        let lr = E::lit(lr);
        if batch.len() == 1 && model.reads_once() {
            check(model, params, batch)?;
            let loss = self.append(model, params, batch, 0, &mut interrupted)?;
            self.graph.backward_with(loss, E::lit(1.0), &mut [params.stepped(lr)])?;
            return Ok(self.graph.value(loss)?.to_f64());
        }
        let loss = self.gradient(model, params, batch, interrupted)?;
        params.for_each_trainable_mut(|_, x, g| sgd_update(lr, g, x));
        Ok(loss)
    }

    /// The loss of the batch without its gradient.
    pub fn loss<M: Model<E>>(
        &mut self,
        model: &M,
        params: &Parameters<'_, E>,
        batch: Batch<'_, E>,
        interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        let mut sum = 0.0;
        self.each_loss(model, params, batch, interrupted, |_, loss| {
            sum += loss.to_f64();
        })?;
        Ok(self.reduce(sum, batch.len()))
    }

    /// Writes the loss of each sample to `losses`, which holds as many.
    pub fn losses<M: Model<E>>(
        &mut self,
        model: &M,
        params: &Parameters<'_, E>,
        batch: Batch<'_, E>,
        losses: &mut [E],
        interrupted: Interrupted<'_>,
    ) -> Result<()> {
        if losses.len() != batch.len() {
            return Err(Error::LengthMismatch {
                op: "losses (samples and room)",
                left: batch.len(),
                right: losses.len(),
            });
        }
        self.each_loss(model, params, batch, interrupted, |k, loss| {
            losses[k] = loss;
        })
    }

    fn each_loss<M: Model<E>>(
        &mut self,
        model: &M,
        params: &Parameters<'_, E>,
        batch: Batch<'_, E>,
        mut interrupted: Interrupted<'_>,
        mut f: impl FnMut(usize, E),
    ) -> Result<()> {
        check(model, params, batch)?;
        for k in 0..batch.len() {
            let loss = self.append(model, params, batch, k, &mut interrupted)?;
            f(k, self.graph.value(loss)?);
        }
        Ok(())
    }

    /// Builds the loss of sample `k` where the one before it was.
    fn append<M: Model<E>>(
        &mut self,
        model: &M,
        params: &Parameters<'_, E>,
        batch: Batch<'_, E>,
        k: usize,
        interrupted: &mut Interrupted<'_>,
    ) -> Result<NodeId> {
        if let Some(interrupted) = interrupted
            && interrupted()
        {
            return Err(Error::Interrupted);
        }
        self.graph.clear()?;
        let (x, y) = batch.sample(k);
        model.loss(&mut self.graph, params, x, y)
    }

    fn reduce(&self, sum: f64, n: usize) -> f64 {
        match self.total {
            Total::Mean => sum / n as f64,
            Total::Sum => sum,
        }
    }
}

/// Refuses a batch, or parameters, that the model does not take.
fn check<E: Float, M: Model<E>>(model: &M, params: &Parameters<'_, E>, batch: Batch<'_, E>) -> Result<()> {
    if model.store() != params.id() {
        return Err(Error::MissingParameters);
    }
    for k in 0..batch.len() {
        let (x, y) = batch.sample(k);
        model.check(x, y)?;
    }
    Ok(())
}
