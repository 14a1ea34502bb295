//! Prediction of the time for a gradient of some parameters.
//!
//! Promises: costs of a model's tensors are measured once for each shape of a batch; a prediction computes no gradient and
//! takes time in the number of ranges. Does not know kernels.
//!
//! The time is a sum: the loss; the sweep down to the lowest tensor with a wanted number; a cost for each number of a tensor,
//! and for each range within it; and for each range that is copied, if a set is too fine to be computed by itself.

use std::ops::Range;
use std::time::Instant;

use super::batch::Batch;
use super::lanes::{LaneFloat, LaneModel};
use super::{Interrupted, Oracle, check};
use crate::draw::{Draw, Purpose};
use crate::error::Result;
use crate::memory::list_for;
use crate::nn::Model;
use crate::params::{Parameters, WantedSet};

/// Seconds that a gradient of some parameters is predicted to take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// What a caller adds to the computation: a binding, which reads its arguments. 0 for a call from Rust.
    pub call: f64,
    /// The loss.
    pub loss: f64,
    /// Adjoints down to the lowest tensor that has a wanted number.
    pub sweep: f64,
    /// Gradients of the numbers that are computed.
    pub numbers: f64,
    /// What each range takes besides its numbers.
    pub ranges: f64,
}

impl Cost {
    /// All of it.
    pub fn seconds(&self) -> f64 {
        self.parts().iter().map(|(_, seconds)| seconds).sum()
    }

    /// The largest part.
    pub fn bound(&self) -> &'static str {
        self.parts().into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b)).map_or("loss", |(name, _)| name)
    }

    /// Each part with its name.
    pub fn parts(&self) -> [(&'static str, f64); 5] {
        let Cost { call, loss, sweep, numbers, ranges } = *self;
        [("call", call), ("loss", loss), ("sweep", sweep), ("numbers", numbers), ("ranges", ranges)]
    }
}

/// What was measured for batches of one shape.
#[derive(Clone, Debug)]
pub(super) struct CostModel {
    /// Samples, and numbers of the inputs and labels of one.
    shape: (usize, (usize, usize)),
    /// All parameters as they were.
    all: WantedSet,
    loss: f64,
    tensors: Vec<TensorCost>,
    /// For each range that is copied: a single number among others, and a number or several by chance.
    copied: [f64; 2],
}

/// Costs of a tensor.
#[derive(Clone, Debug)]
struct TensorCost {
    range: Range<usize>,
    /// Loss and sweep down to it.
    reach: f64,
    /// All of it, and what is taken with any part.
    whole: f64,
    part: f64,
    /// A range within it.
    piece: f64,
}

/// How long sets are measured, and how often in a row: a loop over one set is fast from its second time on.
const SECONDS: f64 = 0.4;
const ROUNDS: usize = 20;
const FEWEST_ROUNDS: usize = 2;
const IN_A_ROW: usize = 25;
const SECONDS_IN_A_ROW: f64 = 0.002;
/// Sets that do not depend on a tensor, and those of each tensor.
const GENERAL: usize = 5;
const OF_TENSOR: usize = 4;
const FINE_SET: usize = 3;

/// Numbers of a tensor of which some are measured one by one, from which on, and what share of them.
const FINE: usize = 1 << 10;
const SHARE: f64 = 1.0 / 128.0;

/// A set of one range.
fn one(range: Range<u32>) -> Vec<Range<u32>> {
    vec![range]
}

/// Each number of a range with this probability; the first one always, so that something is wanted.
fn scattered(range: Range<usize>, share: f64) -> Vec<Range<u32>> {
    let mut draw = Draw::new(1, 0, 0, Purpose::Sampling);
    let first = range.start;
    range.filter(|&k| draw.happens(share) || k == first).map(|k| k as u32..k as u32 + 1).collect()
}

impl<E: LaneFloat> Oracle<E> {
    /// Predicts how long [`Oracle::gradient_of_some`] takes for a set, with memory for the numbers of the set, and batches of this shape.
    ///
    /// The first call for a shape measures the model's tensors, which takes some hundred gradients and at least 4 of each set that is
    /// measured, or half a second; others take time in the number of ranges. The gradients of `params` stay as they are.
    ///
    /// ```
    /// use burtorch_core::nn::{Activation, Input, Label, Mlp};
    /// use burtorch_core::params::WantedSet;
    /// use burtorch_core::{Batch, Oracle, Parameters};
    /// let mut params = Parameters::<f64>::new(0);
    /// let model = Mlp::new(&mut params, &[2, 64, 64, 1], true, Activation::Tanh, None).unwrap();
    /// let batch = Batch::new(Input::Numbers(&[0.5, 1.0]), Label::Numbers(&[1.0]), 1).unwrap();
    /// let mut oracle = Oracle::new();
    /// let [first, last] = [0..2, 4416..4417].map(|range| WantedSet::of(&params, vec![range]).unwrap());
    /// let low = oracle.cost(&model, &mut params, batch, &first, None).unwrap();
    /// let high = oracle.cost(&model, &mut params, batch, &last, None).unwrap();
    /// assert!(low.seconds() > 0.0 && low.loss == high.loss);
    /// ```
    pub fn cost<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        wanted: &WantedSet,
        interrupted: Interrupted<'_>,
    ) -> Result<Cost> {
        check(model, params, batch)?;
        wanted.check(params)?;
        let shape = (batch.len(), batch.widths());
        let costs = match self.costs.take() {
            Some(costs) if costs.shape == shape && costs.all.check(params).is_ok() => costs,
            _ => self.measured(model, params, batch, interrupted)?,
        };
        let cost = costs.predict(wanted);
        self.costs = Some(costs);
        Ok(cost)
    }

    fn measured<M: LaneModel<E> + ?Sized>(
        &mut self,
        model: &M,
        params: &mut Parameters<'_, E>,
        batch: Batch<'_, E>,
        mut interrupted: Interrupted<'_>,
    ) -> Result<CostModel> {
        let n = params.len();
        let mut tensors: Vec<_> = <M as Model<E>>::tensors(model);
        if tensors.is_empty() {
            tensors.push(0..n as u32);
        }
        // None stands for the loss alone.
        let mut sets = list_for(OF_TENSOR * tensors.len() + GENERAL, "the sets that are measured")?;
        let all = WantedSet::of(params, one(0..n as u32))?;
        sets.push(None);
        sets.push(Some(all.clone()));
        for share in [0.1, 0.5, SHARE] {
            sets.push(Some(WantedSet::of(params, scattered(0..n, share))?));
        }
        // From the last tensor down: sums over several measure what differences of single ones would not.
        tensors.reverse();
        for (k, range) in tensors.iter().enumerate() {
            let first = |range: &Range<u32>| range.start..range.start + 1;
            let so_far = &tensors[..=k];
            let fine = range.start as usize..range.end as usize;
            let fine = if fine.len() < FINE { one(range.clone()) } else { scattered(fine, SHARE) };
            for ranges in [one(first(range)), so_far.to_vec(), so_far.iter().map(first).collect(), fine] {
                sets.push(Some(WantedSet::of(params, ranges)?));
            }
        }
        let mut out = list_for(n, "a gradient")?;
        out.resize(n, E::lit(0.0));
        let mut seconds = vec![f64::INFINITY; sets.len()];
        let began = Instant::now();
        // In rounds, so that a time when the machine is busy is not that of one set.
        for round in 0..ROUNDS {
            // A round of a slow model is enough.
            let most = if round < FEWEST_ROUNDS { 4.0 * SECONDS } else { SECONDS };
            if round > 0 && began.elapsed().as_secs_f64() > most {
                break;
            }
            for (set, least) in sets.iter().zip(&mut seconds) {
                let first = Instant::now();
                for time in 0..IN_A_ROW {
                    if time > 1 && first.elapsed().as_secs_f64() > SECONDS_IN_A_ROW {
                        break;
                    }
                    let again: Interrupted<'_> = match &mut interrupted {
                        Some(interrupted) => Some(&mut **interrupted),
                        None => None,
                    };
                    let began = Instant::now();
                    match set {
                        Some(set) => {
                            let out = &mut out[..set.len()];
                            self.gradient_of_some(model, params, batch, None, (set, out), again)?;
                        }
                        None => {
                            self.loss(model, params, batch, again)?;
                        }
                    }
                    *least = began.elapsed().as_secs_f64().min(*least);
                }
            }
        }
        // More of a gradient takes no less; only noise, which lengthens a time, makes it look so.
        for k in (GENERAL + OF_TENSOR..seconds.len()).rev().filter(|k| (k - GENERAL) % OF_TENSOR != FINE_SET) {
            seconds[k - OF_TENSOR] = seconds[k - OF_TENSOR].min(seconds[k]);
        }
        let n_ranges = |k: usize| sets[k].as_ref().map_or(1, |set: &WantedSet| set.ranges().len()) as f64;
        let copy = |k: usize| (seconds[k] - seconds[1]).max(0.0) / n_ranges(k);
        let copied = [copy(2).min(copy(3)), copy(3)];
        let (mut reach, mut wholes, mut parts) = (seconds[0], 0.0, 0.0);
        let mut costs = list_for(tensors.len(), "the costs of tensors")?;
        for (k, range) in tensors.into_iter().enumerate() {
            let [single, so_far, firsts, fine] = [0, 1, 2, 3].map(|which| seconds[GENERAL + OF_TENSOR * k + which]);
            // What a part of this tensor takes is in the time to reach it; the parts of the others are beside it.
            reach = single.max(reach);
            let (whole, part) = ((so_far - reach).max(wholes) - wholes, (firsts - reach).max(parts) - parts);
            (wholes, parts) = (wholes + whole, parts + part);
            let (part, n_fine) = (part.min(whole), n_ranges(GENERAL + OF_TENSOR * k + FINE_SET));
            let computed = (whole - part) * n_fine / range.len() as f64;
            let piece = if n_fine > 1.0 { ((fine - reach - computed) / n_fine).max(0.0) } else { 0.0 };
            costs.push(TensorCost { range: range.start as usize..range.end as usize, reach, whole, part, piece });
        }
        costs.reverse();
        let shape = (batch.len(), batch.widths());
        let mut costs = CostModel { shape, all, loss: seconds[0], tensors: costs, copied };
        // Ranges of all tensors take what they took together, which is known better than differences of short times.
        if let Some(set) = &sets[GENERAL - 1] {
            let more = (seconds[GENERAL - 1] - costs.predict(set).seconds()) / n_ranges(GENERAL - 1);
            costs.tensors.iter_mut().for_each(|tensor| tensor.piece = (tensor.piece + more).max(0.0));
        }
        Ok(costs)
    }
}

impl CostModel {
    fn predict(&self, wanted: &WantedSet) -> Cost {
        let ranges = || wanted.ranges().iter().map(|r| r.start as usize..r.end as usize);
        let mut cost = Cost { loss: self.loss, ..Cost::default() };
        if wanted.is_sparse() {
            self.add(ranges(), &mut cost);
            return cost;
        }
        let n_several = ranges().filter(|range| range.len() > 1).count() as f64;
        let n = ranges().count().max(1) as f64;
        // Whether the next range is a single number is hardest to foresee where half of them are.
        let [single, mixed] = self.copied;
        cost.ranges = n * (single + (mixed - single) * (2.0 * n_several / n).min(1.0));
        self.add(wanted.skipped(true).pieces(0..self.all.len()).map(|(_, piece)| piece), &mut cost);
        cost
    }

    /// Adds what computing these ranges, which ascend, takes.
    fn add(&self, ranges: impl Iterator<Item = Range<usize>>, cost: &mut Cost) {
        let mut reach = self.loss;
        let mut tensors = self.tensors.iter().peekable();
        // The last tensor of which some numbers were counted.
        let mut begun = usize::MAX;
        for range in ranges {
            while tensors.next_if(|tensor| tensor.range.end <= range.start).is_some() {}
            for tensor in tensors.clone().take_while(|tensor| tensor.range.start < range.end) {
                let of_it = range.start.max(tensor.range.start)..range.end.min(tensor.range.end);
                reach = reach.max(tensor.reach);
                if std::mem::replace(&mut begun, tensor.range.start) != tensor.range.start {
                    cost.numbers += tensor.part;
                }
                cost.numbers += (tensor.whole - tensor.part) * of_it.len() as f64 / tensor.range.len() as f64;
                if of_it != tensor.range {
                    cost.ranges += tensor.piece;
                }
            }
        }
        cost.sweep = reach - self.loss;
    }
}
