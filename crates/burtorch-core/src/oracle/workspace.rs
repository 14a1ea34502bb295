//! A workspace: graphs of every width, and the memory of their sweeps. One thread uses it at a time.
//!
//! Promises: memory is that of a block of at most 64 samples; after warm-up nothing is allocated.

use std::ops::Range;

use super::append;
use super::batch::Padding;
use super::lanes::{LaneFloat, LaneGraph, LaneModel, Lanes, Pass, sweep};
use super::sink::Sink;
use crate::error::Result;
use crate::graph::Graph;
use crate::nn::Model;
use crate::params::{Parameters, Written};
use crate::scalar::Scalar;
use crate::sync::stop;

#[derive(Debug)]
pub(super) struct Workspace<E: LaneFloat> {
    pub(super) single: Graph<'static, E>,
    pub(super) narrow: LaneGraph<E::NarrowLanes>,
    pub(super) middle: LaneGraph<E::MiddleLanes>,
    pub(super) wide: LaneGraph<E::WideLanes>,
    pub(super) block: LaneGraph<E::BlockLanes>,
    pub(super) padding: Padding<E>,
    written: Written<E>,
    /// Inputs of layers that are kept.
    pub(super) sampled: Vec<E>,
}

impl<E: LaneFloat> Default for Workspace<E> {
    fn default() -> Self {
        Workspace {
            single: Graph::new(),
            narrow: LaneGraph::default(),
            middle: LaneGraph::default(),
            wide: LaneGraph::default(),
            block: LaneGraph::default(),
            padding: Padding::new(),
            written: Written::new(),
            sampled: Vec::new(),
        }
    }
}

impl<E: LaneFloat> Workspace<E> {
    /// The gradient of `seed` times the sum of the losses of `samples`, which overwrites what is in the sink.
    pub(super) fn gradient<M: LaneModel<E> + ?Sized>(
        &mut self,
        lanes: Lanes,
        pass: &mut Pass<'_, '_, E, M>,
        sink: &mut Sink<'_, '_, E>,
        samples: Range<usize>,
        seed: E,
    ) -> Result<()> {
        sink.start(&mut self.written);
        let swept = stop::watching(pass.watch, || self.sweep(lanes, pass, sink, samples, seed));
        if swept.is_ok() || pass.keeps(&swept) {
            sink.finish(&mut self.written);
        }
        swept
    }

    /// As [`Workspace::gradient`] and a step of gradient descent, with values that move during the sweep: for `n` samples that
    /// fill at most one group of `width`, and a model each of whose parameters one node reads.
    pub(super) fn step<M: LaneModel<E> + ?Sized>(
        &mut self,
        pass: &mut Pass<'_, '_, E, M>,
        params: &mut Parameters<'_, E>,
        (width, n): (usize, usize),
        rates: (E, E),
    ) -> Result<()> {
        let Workspace { single, narrow, middle, wide, block, padding, .. } = self;
        if width > E::WideLanes::LANES {
            block.step(pass, padding, params, 0..n, rates)
        } else if width == E::WideLanes::LANES {
            wide.step(pass, padding, params, 0..n, rates)
        } else if width == E::MiddleLanes::LANES {
            middle.step(pass, padding, params, 0..n, rates)
        } else if width == E::NarrowLanes::LANES {
            narrow.step(pass, padding, params, 0..n, rates)
        } else {
            let loss = append(single, pass, params, 0)?;
            stop::before_sweep()?;
            stop::sweeping(pass.watch, || single.backward_with(loss, rates.0, &mut [params.stepped(rates.1)]))
        }
    }

    fn sweep<M: LaneModel<E> + ?Sized>(
        &mut self,
        lanes: Lanes,
        pass: &mut Pass<'_, '_, E, M>,
        sink: &mut Sink<'_, '_, E>,
        samples: Range<usize>,
        seed: E,
    ) -> Result<()> {
        let singly = <M as Model<E>>::fills_lanes_itself(pass.model);
        let Workspace { single, narrow, middle, wide, block, padding, written, sampled } = self;
        let mut at = samples.start;
        while at < samples.end {
            let (width, n) = lanes.next::<E>(samples.end - at, singly);
            let part = at..at + n;
            if width > E::WideLanes::LANES {
                block.gradients(pass, padding, sink, written, part, seed)?;
            } else if width == E::WideLanes::LANES {
                wide.gradients(pass, padding, sink, written, part, seed)?;
            } else if width == E::MiddleLanes::LANES {
                middle.gradients(pass, padding, sink, written, part, seed)?;
            } else if width == E::NarrowLanes::LANES {
                narrow.gradients(pass, padding, sink, written, part, seed)?;
            } else {
                for k in part {
                    let loss = append(single, pass, sink.params(), k)?;
                    stop::sweeping(pass.watch, || match pass.consumer.is_some() || pass.random.is_some() {
                        true => sweep((single, &[(loss, seed)], None, sampled), pass, sink, written, k..k + 1),
                        false => single.backward_with(loss, seed, &mut [sink.gradients(written)]),
                    })?;
                    pass.n_finished += 1;
                }
            }
            at += n;
        }
        Ok(())
    }
}
