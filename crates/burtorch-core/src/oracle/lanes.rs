//! Lane groups: the number of samples in one graph, and the passes over blocks of such groups.
//!
//! Promises: which widths are used depends on the number of samples and their type only, so that every CPU gives the
//! same bits; an incomplete group is padded with a sample of weight 0; memory is that of a block of at most
//! 64 samples.

use std::ops::Range;

use super::Interrupted;
use super::batch::{Batch, Padding};
use super::sampler::{Random, Sampler};
use super::sink::Sink;
use crate::backward::{Consume, Stream};
use crate::error::{Error, Result};
use crate::graph::{Deferred, Graph, InputSampler, MAX_GROUPS, NodeId};
use crate::kernels::{BlockMath, KernelFloat};
use crate::nn::Model;
use crate::params::{Parameters, Written};
use crate::scalar::{Float, RowMath, Scalar};
use crate::simd::{F32x4, F32x8, F32x16, F32x64, F64x2, F64x4, F64x8, F64x64};
use crate::sync;
use crate::sync::stop::{self, Watch};

/// A float that oracles compute with: alone, or in lanes of three widths.
pub trait LaneFloat: Float + KernelFloat + BlockMath {
    /// The narrowest lanes.
    type NarrowLanes: BlockMath<Elem = Self>;
    /// Twice as wide.
    type MiddleLanes: BlockMath<Elem = Self>;
    /// A register of AVX-512, two of AVX2.
    type WideLanes: BlockMath<Elem = Self>;
    /// A whole block where batches are large, so that weights are read once for all of it.
    type BlockLanes: BlockMath<Elem = Self>;
    /// Samples up to which one at a time is faster than lanes.
    const FEW: usize;
}

impl LaneFloat for f32 {
    type NarrowLanes = F32x4;
    type MiddleLanes = F32x8;
    type WideLanes = F32x16;
    type BlockLanes = F32x64;
    const FEW: usize = 4;
}

impl LaneFloat for f64 {
    type NarrowLanes = F64x2;
    type MiddleLanes = F64x4;
    type WideLanes = F64x8;
    type BlockLanes = F64x64;
    const FEW: usize = 2;
}

/// How many samples a node carries at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// As the number of samples and their type suggest, never the CPU: one at a time for a few, else the widest that can
    /// be filled by more than half; blocks of 64 at once.
    #[default]
    Auto,
    /// So many: 1, 4, 8 or 16 of f32, 1, 2, 4 or 8 of f64.
    Of(usize),
}

impl Lanes {
    /// Refuses a width that the type has not.
    pub fn check<E: LaneFloat>(self) -> Result<()> {
        let widths = [1, E::NarrowLanes::LANES, E::MiddleLanes::LANES, E::WideLanes::LANES];
        match self {
            Lanes::Of(n) if !widths.contains(&n) => Err(Error::BadArgument {
                what: "the number of lanes",
                expected: format!("\"auto\", {}, {}, {} or {}", widths[0], widths[1], widths[2], widths[3]),
                found: format!("{n}"),
            }),
            _ => Ok(()),
        }
    }

    /// Whether so many samples are computed in one graph, and swept at once.
    pub(super) fn are_at_once<E: LaneFloat>(self, n: usize, singly: bool) -> bool {
        match self.next::<E>(n, singly) {
            (1, _) => n == 1,
            (width, at_once) => n <= at_once && n <= BLOCK.max(width),
        }
    }

    /// The width for the next of `left` samples, and how many of them it takes; `singly` for a model that fills lanes itself.
    pub fn next<E: LaneFloat>(self, left: usize, singly: bool) -> (usize, usize) {
        let (middle, wide, block) = (E::MiddleLanes::LANES, E::WideLanes::LANES, E::BlockLanes::LANES);
        match self {
            Lanes::Of(n) => (n, left),
            Lanes::Auto if singly || left <= E::FEW => (1, left),
            Lanes::Auto if left <= middle => (middle, left),
            Lanes::Auto if left < wide => (wide, left),
            Lanes::Auto if left < block => (wide, left / wide * wide),
            Lanes::Auto => (block, left / block * block),
        }
    }
}

/// A model on every width of a float. An oracle also takes `&dyn LaneModel`, so that its code is not compiled for each model.
pub trait LaneModel<E: LaneFloat>:
    Model<E> + Model<E::NarrowLanes> + Model<E::MiddleLanes> + Model<E::WideLanes> + Model<E::BlockLanes>
{
}

impl<E: LaneFloat, M> LaneModel<E> for M where
    M: Model<E> + Model<E::NarrowLanes> + Model<E::MiddleLanes> + Model<E::WideLanes> + Model<E::BlockLanes>
{
}

/// Samples of a block, at most, where one graph carries lanes of them: activations of more leave the second-level cache.
const BLOCK: usize = 64;

/// A graph of lanes and what its sweep needs.
#[derive(Debug)]
pub(super) struct LaneGraph<S: BlockMath> {
    pub(super) graph: Graph<'static, S>,
    deferred: Deferred<S>,
    /// Inputs of layers that are kept.
    sampled: Vec<S>,
}

/// One pass over samples, the same for every width.
pub(super) struct Pass<'a, 'i, E, M: ?Sized> {
    pub(super) model: &'a M,
    pub(super) batch: Batch<'a, E>,
    pub(super) interrupted: Interrupted<'i>,
    /// Whether gradients are all that is wanted: losses are NaN then.
    pub(super) skips_losses: bool,
    /// Is told the number and the loss of each sample, in their order.
    pub(super) each: &'a mut dyn FnMut(usize, E),
    /// What ends it early, if anything does.
    pub(super) watch: Option<&'a Watch>,
    /// Takes the gradient, a range after the other, if somebody does.
    pub(super) consumer: Option<&'a mut Consume<'a, E>>,
    /// Threads that share the products of a block of lanes.
    pub(super) n_threads: usize,
    /// Samples whose gradients have been added.
    pub(super) n_finished: usize,
    /// What is kept at random, if anything is.
    pub(super) random: Option<Random<'a>>,
}

impl<'a, 'i, E, M: ?Sized> Pass<'a, 'i, E, M> {
    /// A pass without a stop, a consumer or sampling. Only an interruption ends it early.
    pub(super) fn new(
        model: &'a M,
        batch: Batch<'a, E>,
        interrupted: Interrupted<'i>,
        each: &'a mut dyn FnMut(usize, E),
        n_threads: usize,
    ) -> Self {
        Pass {
            model,
            batch,
            interrupted,
            skips_losses: false,
            each,
            watch: None,
            consumer: None,
            n_threads,
            n_finished: 0,
            random: None,
        }
    }

    /// Whether to keep what has been added when a pass ends with this.
    pub(super) fn keeps(&self, outcome: &Result<()>) -> bool {
        let is_kept = self.watch.is_some_and(|watch| !watch.ends_sweeps && watch.stop.is_set());
        is_kept && *outcome == Err(Error::Interrupted)
    }

    /// The same of a pass that may have panicked.
    pub(super) fn is_to_be_kept(&self, swept: &std::thread::Result<Result<()>>) -> bool {
        swept.as_ref().is_ok_and(|outcome| self.keeps(outcome))
    }
}

/// The losses of the groups of a block, and what each is to be multiplied with.
pub(super) struct Roots<S> {
    roots: [(NodeId, S); MAX_GROUPS],
    n: usize,
}

impl<S: BlockMath> Default for LaneGraph<S> {
    fn default() -> Self {
        LaneGraph { graph: Graph::new(), deferred: Deferred::new(), sampled: Vec::new() }
    }
}

impl<S: BlockMath> LaneGraph<S> {
    /// Adds the gradient of `seed` times the sum of the losses of `samples`.
    pub(super) fn gradients<M: Model<S> + ?Sized>(
        &mut self,
        pass: &mut Pass<'_, '_, S::Elem, M>,
        padding: &mut Padding<S::Elem>,
        sink: &mut Sink<'_, '_, S::Elem>,
        written: &mut Written<S::Elem>,
        samples: Range<usize>,
        seed: S::Elem,
    ) -> Result<()> {
        for block in Self::blocks(samples) {
            let roots = self.build(pass, padding, sink.params(), block.clone(), seed)?;
            let LaneGraph { graph, deferred, sampled } = self;
            let n = block.len();
            let roots = &roots.roots[..roots.n];
            stop::sweeping(pass.watch, || sweep((graph, roots, Some(deferred), sampled), pass, sink, written, block))?;
            pass.n_finished += n;
        }
        Ok(())
    }

    /// Moves each value against its part of the gradient of `seed` times the sum of the losses of `samples`, which fill at
    /// most one group.
    pub(super) fn step<M: Model<S> + ?Sized>(
        &mut self,
        pass: &mut Pass<'_, '_, S::Elem, M>,
        padding: &mut Padding<S::Elem>,
        params: &mut Parameters<'_, S::Elem>,
        samples: Range<usize>,
        (seed, lr): (S::Elem, S::Elem),
    ) -> Result<()> {
        let roots = self.build(pass, padding, params, samples, seed)?;
        let (root, seeds) = roots.roots[0];
        stop::before_sweep()?;
        stop::sweeping(pass.watch, || self.graph.backward_with(root, seeds, &mut [params.stepped(lr)]))
    }

    /// The losses of `samples` only.
    pub(super) fn losses<M: Model<S> + ?Sized>(
        &mut self,
        pass: &mut Pass<'_, '_, S::Elem, M>,
        padding: &mut Padding<S::Elem>,
        params: &Parameters<'_, S::Elem>,
        samples: Range<usize>,
    ) -> Result<()> {
        for block in Self::blocks(samples) {
            self.build(pass, padding, params, block, S::Elem::lit(0.0))?;
        }
        Ok(())
    }

    /// Bytes that sweeps need besides the graph.
    pub(super) fn working_bytes(&self) -> usize {
        self.deferred.bytes() + self.sampled.capacity() * size_of::<S>()
    }

    fn blocks(samples: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let step = BLOCK.max(S::LANES);
        samples.clone().step_by(step).map(move |start| start..samples.end.min(start + step))
    }

    /// Builds the losses of a block where the one before it was, a group after the other.
    fn build<M: Model<S> + ?Sized>(
        &mut self,
        pass: &mut Pass<'_, '_, S::Elem, M>,
        padding: &mut Padding<S::Elem>,
        params: &Parameters<'_, S::Elem>,
        block: Range<usize>,
        seed: S::Elem,
    ) -> Result<Roots<S>> {
        self.graph.clear()?;
        self.graph.share_products(pass.n_threads.min(sync::n_cores()));
        self.graph.skip_losses(pass.skips_losses);
        self.graph.mark_later(pass.model.asks_no_gradients());
        let mut roots = Roots { roots: [(NodeId(0), S::lit(0.0)); MAX_GROUPS], n: 0 };
        for first in block.clone().step_by(S::LANES) {
            if let Some(interrupted) = &mut pass.interrupted
                && interrupted()
            {
                return Err(Error::Interrupted);
            }
            let group = first..block.end.min(first + S::LANES);
            let (x, y) = match group.len() == S::LANES {
                true => pass.batch.samples(group.clone()),
                false => padding.fill(&pass.batch, group.clone(), S::LANES)?,
            };
            let loss = pass.model.loss(&mut self.graph, params, x, y)?;
            stop::check()?;
            let found = self.graph.value(loss)?;
            let mut seeds = S::lit(0.0);
            for (lane, sample) in group.enumerate() {
                seeds = seeds.with_lane(lane, seed);
                (pass.each)(sample, found.lane(lane));
            }
            roots.roots[roots.n] = (loss, seeds);
            roots.n += 1;
        }
        Ok(roots)
    }
}

/// A graph, roots in it with their seeds, where weight gradients of several blocks wait, and memory for inputs that are kept.
type Sweep<'g, S> = (&'g mut Graph<'static, S>, &'g [(NodeId, S)], Option<&'g mut Deferred<S>>, &'g mut Vec<S>);

/// Adds the gradient of a block of samples: that of a batch's last block is handed on.
pub(super) fn sweep<S: BlockMath, M: Model<S> + ?Sized>(
    (graph, roots, deferred, sampled): Sweep<'_, S>,
    pass: &mut Pass<'_, '_, S::Elem, M>,
    sink: &mut Sink<'_, '_, S::Elem>,
    written: &mut Written<S::Elem>,
    samples: Range<usize>,
) -> Result<()> {
    if let Some(random) = &mut pass.random {
        let sampler: &mut dyn InputSampler<S> = &mut Sampler::new(random, roots, samples.start, sampled);
        graph.backward_many(roots, &mut [sink.gradients(written)], deferred, None, Some(sampler))?;
        return random.check();
    }
    match &mut pass.consumer {
        Some(consume) if samples.end == pass.batch.len() => {
            let order = graph.emissions(&pass.model.tensors(), sink.params().len())?;
            sink.place(&order)?;
            let stream = Stream { order: &order, consume: &mut **consume };
            graph.backward_many(roots, &mut [sink.gradients(written)], deferred, Some(stream), None)
        }
        _ => graph.backward_many(roots, &mut [sink.gradients(written)], deferred, None, None),
    }
}
