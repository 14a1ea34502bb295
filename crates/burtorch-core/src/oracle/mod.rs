//! Gradient oracles: the loss of a batch and its gradient, a few samples at a time.
//!
//! Promises: memory is that of a block of at most 64 samples, whatever the batch size; after warm-up no call allocates;
//! which samples are computed together depends on their number and type only, so a batch has the same bits on every run
//! and every CPU with fused multiply-add; a batch is checked before anything is written. Knows models only as
//! [`Model`]. Does not know optimisers.

mod batch;
mod cost;
mod lanes;
mod of_subset;
mod sink;
mod step;
mod stream;
mod team;
mod with_stop;
mod workspace;

mod memory;
mod random;
mod sampler;

pub use batch::Batch;
pub use cost::Cost;
pub use lanes::{LaneFloat, LaneModel, Lanes};
pub use memory::OracleMemory;
pub use stream::Emit;
pub use with_stop::{Finished, Until};

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId};
use crate::nn::Model;
use crate::params::{InFlight, Parameters};
use crate::scalar::{Float, Scalar};
use crate::sync::stop::{self, Watch};
use lanes::Pass;
use sink::Sink;
use team::{Chunks, Team};
use workspace::Workspace;

/// How the losses of a batch become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Total {
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

/// Asked between samples whether to stop.
pub type Interrupted<'a> = Option<&'a mut dyn FnMut() -> bool>;

/// Is told a sample's number, its loss, and the parameters with its gradient.
pub type Visit<'a, E> = dyn FnMut(usize, f64, &Parameters<'_, E>) -> Result<()> + 'a;

/// Computes losses and gradients of batches, in graphs of its own that it rewinds after each block of samples.
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
pub struct Oracle<E: LaneFloat> {
    workspace: Workspace<E>,
    team: Team<E>,
    total: Total,
    lanes: Lanes,
    skips_losses: bool,
    /// A gradient of all parameters, of which some are taken, or which is handed on.
    all: Vec<E>,
    in_flight: InFlight<E>,
    /// What its last prediction measured.
    costs: Option<cost::CostModel>,
}

/// Another point than the values of the parameters, and another place for the gradient than theirs.
#[derive(Debug)]
pub struct Overrides<'a, E> {
    /// As many numbers as there are parameters.
    pub at: Option<&'a [E]>,
    /// As many numbers as there are parameters.
    pub out: Option<&'a mut [E]>,
}

impl<E> Default for Overrides<'_, E> {
    fn default() -> Self {
        Overrides { at: None, out: None }
    }
}

impl<E: LaneFloat> Default for Oracle<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: LaneFloat> Oracle<E> {
    /// An oracle of the mean loss.
    pub fn new() -> Self {
        Self::with_total(Total::Mean)
    }

    /// An oracle of the mean or the sum of losses.
    pub fn with_total(total: Total) -> Self {
        Oracle {
            workspace: Workspace::default(),
            team: Team::default(),
            total,
            lanes: Lanes::Auto,
            skips_losses: false,
            all: Vec::new(),
            in_flight: InFlight::new(),
            costs: None,
        }
    }

    /// Computes the gradients of batches on this many threads, at least one: the same bits for any number. A batch of
    /// more than a chunk (64 samples, or 16 for models that go one sample at a time, the last of these in two halves) is
    /// divided into chunks, and each gradient adds those of the chunks in their order. Each thread takes the memory of a
    /// chunk and of one gradient of all parameters; two threads, that of one gradient more. Where dense layers are large
    /// ([`Model::shares_products`]) a batch is one chunk, and threads share each product of 64 samples and a layer.
    pub fn set_threads(&mut self, n: usize) -> Result<()> {
        if n == 0 {
            let (expected, found) = ("at least 1".to_string(), "0".to_string());
            return Err(Error::BadArgument { what: "the number of threads", expected, found });
        }
        self.team.n_threads = n;
        Ok(())
    }

    /// On how many threads gradients are computed.
    pub fn threads(&self) -> usize {
        self.team.n_threads
    }

    /// As [`Oracle::with_total`], with so many samples at once.
    pub fn with_lanes(total: Total, lanes: Lanes) -> Result<Self> {
        lanes.check::<E>()?;
        Ok(Oracle { lanes, ..Self::with_total(total) })
    }

    /// Whether losses are averaged or summed.
    pub fn total(&self) -> Total {
        self.total
    }

    /// How many samples are computed at once.
    pub fn lanes(&self) -> Lanes {
        self.lanes
    }

    /// From now on [`Oracle::gradient`] and its like leave out the losses of softmax cross-entropies and mean squares: what
    /// they return for a loss is NaN. Gradients have the same bits. `false` brings losses back.
    pub fn skip_losses(&mut self, skip: bool) {
        self.skips_losses = skip;
    }

    /// The loss of the batch, as a 64-bit float. Its gradient **overwrites** that of `params`: the gradient of what the
    /// batch does not reach is 0. Each gradient adds samples in one fixed order.
    ///
    /// A batch that the model does not take is refused before anything is written. When `interrupted`, or out of
    /// memory, the gradient is 0.
    pub fn gradient<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        let mut sum = 0.0;
        self.gradient_of(model, params, batch, interrupted, &mut |_, loss| sum += loss.to_f64())?;
        Ok(self.reduce(sum, batch.len()))
    }

    /// As [`Oracle::gradient`], with the loss of each sample in `losses`, which holds as many.
    pub fn gradient_and_losses<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        losses: &mut [E],
        interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        check_room(losses, batch)?;
        let mut sum = 0.0;
        self.gradient_of(model, params, batch, interrupted, &mut |k, loss| {
            losses[k] = loss;
            sum += loss.to_f64();
        })?;
        Ok(self.reduce(sum, batch.len()))
    }

    /// As [`Oracle::gradient`], at another point and into other memory than those of the parameters, which then stay as
    /// they are.
    pub fn gradient_elsewhere<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        elsewhere: Overrides<'_, E>,
        interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        check(model, params, batch)?;
        params.with_arrays(elsewhere.at, elsewhere.out, |params| self.gradient(model, params, batch, interrupted))?
    }

    /// The loss of each sample and its own gradient, one after the other: `visit` is told the sample's number and loss and
    /// finds the gradient among those of the parameters; what it fails with ends the pass. Costs one pass forward and one
    /// back for each sample, and the memory of one gradient.
    pub fn per_sample<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        mut interrupted: Interrupted<'_>,
        visit: &mut Visit<'_, E>,
    ) -> Result<()> {
        check(model, params, batch)?;
        let lanes = std::mem::replace(&mut self.lanes, Lanes::Of(1));
        let samples = (0..batch.len()).filter_map(|k| Some((k, batch.sample(k)?)));
        let each = |(k, sample)| {
            let again: Interrupted<'_> = match &mut interrupted {
                Some(interrupted) => Some(&mut **interrupted),
                None => None,
            };
            let loss = self.gradient(model, params, sample, again)?;
            visit(k, loss, params)
        };
        let result = catch_unwind(AssertUnwindSafe(|| samples.into_iter().try_for_each(each)));
        self.lanes = lanes;
        result.unwrap_or_else(|panic| {
            params.zero_grad();
            resume_unwind(panic)
        })
    }

    fn gradient_of<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        interrupted: Interrupted<'_>,
        each: &mut dyn FnMut(usize, E),
    ) -> Result<()> {
        self.gradient_watching(model, params, batch, interrupted, (each, None)).map(drop)
    }

    /// How many samples have been added: all, but where what is watched ends the pass and what there is is kept.
    fn gradient_watching<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        interrupted: Interrupted<'_>,
        (each, watch): (&mut dyn FnMut(usize, E), Option<&Watch>),
    ) -> Result<usize> {
        check(model, params, batch)?;
        let seed = self.seed(batch.len());
        let chunks = Chunks::of::<E, M>(model, self.lanes, batch.len());
        let skips_losses = self.skips_losses;
        let mut pass = Pass { skips_losses, watch, ..Pass::new(model, batch, interrupted, each, self.team.n_threads) };
        // Also where memory was refused and that unwinds.
        let swept = catch_unwind(AssertUnwindSafe(|| match chunks.is_one() {
            true => self.workspace.gradient(self.lanes, &mut pass, &mut Sink::Own(params), 0..batch.len(), seed),
            false => self.team.gradient(self.lanes, &mut pass, params, chunks, seed),
        }));
        if pass.is_to_be_kept(&swept) {
            return Ok(pass.n_finished);
        }
        if must_clear(&swept, watch) {
            params.zero_grad();
        }
        swept.unwrap_or_else(|panic| resume_unwind(panic)).map(|()| pass.n_finished)
    }

    /// The loss of the batch without its gradient.
    pub fn loss<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &Parameters<'_, E>,
        batch: Batch<'_, E>,
        interrupted: Interrupted<'_>,
    ) -> Result<f64> {
        let mut sum = 0.0;
        self.each_loss(model, params, batch, interrupted, &mut |_, loss| sum += loss.to_f64())?;
        Ok(self.reduce(sum, batch.len()))
    }

    /// Writes the loss of each sample to `losses`, which holds as many.
    pub fn losses<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &Parameters<'_, E>,
        batch: Batch<'_, E>,
        losses: &mut [E],
        interrupted: Interrupted<'_>,
    ) -> Result<()> {
        check_room(losses, batch)?;
        self.each_loss(model, params, batch, interrupted, &mut |k, loss| losses[k] = loss)
    }

    fn each_loss<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &Parameters<'_, E>,
        batch: Batch<'_, E>,
        interrupted: Interrupted<'_>,
        each: &mut dyn FnMut(usize, E),
    ) -> Result<()> {
        check(model, params, batch)?;
        let mut pass = Pass::new(model, batch, interrupted, each, self.team.n_threads);
        let Workspace { single, narrow, middle, wide, block, padding, .. } = &mut self.workspace;
        let singly = <M as Model<E>>::fills_lanes_itself(model);
        let mut at = 0;
        while at < batch.len() {
            let (width, n) = self.lanes.next::<E>(batch.len() - at, singly);
            let samples = at..at + n;
            if width > E::WideLanes::LANES {
                block.losses(&mut pass, padding, params, samples)?;
            } else if width == E::WideLanes::LANES {
                wide.losses(&mut pass, padding, params, samples)?;
            } else if width == E::MiddleLanes::LANES {
                middle.losses(&mut pass, padding, params, samples)?;
            } else if width == E::NarrowLanes::LANES {
                narrow.losses(&mut pass, padding, params, samples)?;
            } else {
                for k in samples {
                    append(single, &mut pass, params, k)?;
                }
            }
            at += n;
        }
        Ok(())
    }

    /// What each of `n` samples counts.
    fn seed(&self, n: usize) -> E {
        match self.total {
            Total::Mean => E::lit(1.0) / E::lit(n as f64),
            Total::Sum => E::lit(1.0),
        }
    }

    fn reduce(&self, sum: f64, n: usize) -> f64 {
        match self.total {
            Total::Mean => sum / n as f64,
            Total::Sum => sum,
        }
    }
}

/// Whether the gradient of a pass that ended so is to be set to 0.
fn must_clear<P>(swept: &std::result::Result<Result<()>, P>, watch: Option<&Watch>) -> bool {
    match swept {
        Ok(Ok(())) => false,
        Ok(Err(Error::Interrupted)) => watch.is_none_or(|watch| !watch.leaves),
        _ => true,
    }
}

/// Builds the loss of sample `k` where the one before it was.
fn append<E: Float, M: Model<E> + ?Sized>(
    graph: &mut Graph<'static, E>,
    pass: &mut Pass<'_, '_, E, M>,
    params: &Parameters<'_, E>,
    k: usize,
) -> Result<NodeId> {
    if let Some(interrupted) = &mut pass.interrupted
        && interrupted()
    {
        return Err(Error::Interrupted);
    }
    graph.clear()?;
    graph.skip_losses(pass.skips_losses);
    let (x, y) = pass.batch.samples(k..k + 1);
    let loss = pass.model.loss(graph, params, x, y)?;
    stop::check()?;
    (pass.each)(k, graph.value(loss)?);
    Ok(loss)
}

/// Refuses a list of losses of another length than the batch.
fn check_room<E>(losses: &[E], batch: Batch<'_, E>) -> Result<()> {
    if losses.len() == batch.len() {
        return Ok(());
    }
    Err(Error::LengthMismatch { op: "losses (samples and room)", left: batch.len(), right: losses.len() })
}

/// Refuses a batch, or parameters, that the model does not take.
fn check<E: Float, M: Model<E> + ?Sized>(model: &M, params: &Parameters<'_, E>, batch: Batch<'_, E>) -> Result<()> {
    if model.store() != params.id() {
        return Err(Error::MissingParameters);
    }
    for k in 0..batch.len() {
        let (x, y) = batch.samples(k..k + 1);
        model.check(x, y)?;
    }
    Ok(())
}
