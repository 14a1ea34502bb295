//! Sets of numbers with requested gradients, prepared for many calls.
//!
//! Promises: ranges are ascending, disjoint and not empty; a set fits its parameters as long as none are added,
//! frozen or unfrozen. Does not know sweeps.

use std::ops::Range;

use super::selection::join_touching;
use super::{Parameters, Skipped};
use crate::error::{Error, Result};
use crate::memory::{copied, list_for};
use crate::scalar::Float;

/// The largest gap between two requested numbers that a backward pass writing in place computes as well: a layer
/// processes whole rows, and each separate part of a row costs as much as many numbers.
const GAP: usize = 4096;

/// The number of parameters per skipped range from which a backward pass writes only the requested gradients.
const SPARSE: usize = 64;

/// The numbers of a `Parameters` whose gradients are requested.
///
/// ```
/// use burtorch_core::nn::{Activation, Input, Label, Mlp};
/// use burtorch_core::params::WantedSet;
/// use burtorch_core::{Batch, Oracle, Overrides, Parameters};
/// let mut params = Parameters::<f64>::new(0);
/// let model = Mlp::new(&mut params, &[2, 8, 1], true, Activation::Tanh, None).unwrap();
/// let batch = Batch::new(Input::Numbers(&[0.5, 1.0]), Label::Numbers(&[1.0]), 1).unwrap();
/// let mut oracle = Oracle::new();
/// let loss = oracle.gradient(&model, &mut params, batch, None).unwrap();
///
/// let wanted = WantedSet::of(&params, vec![3..5, 20..21]).unwrap();
/// let mut some = [0.0; 3];
/// let same = oracle.gradient_of_some(&model, &mut params, batch, None, (&wanted, &mut some), None).unwrap();
/// assert_eq!((same, some), (loss, [3, 4, 20].map(|k| params.grads()[k])));
/// ```
#[derive(Clone, Debug)]
pub struct WantedSet {
    store: u64,
    /// The number of parameters.
    n_all: usize,
    n: usize,
    ranges: Vec<Range<u32>>,
    /// The frozen ranges at creation.
    frozen: Vec<Range<u32>>,
    /// The numbers not requested, with their shifts.
    skipped: Vec<Range<u32>>,
    shifts: Vec<u32>,
    /// The numbers not requested or frozen.
    outside: Vec<Range<u32>>,
    /// The longer ranges of `outside`.
    coarse: Vec<Range<u32>>,
    /// Whether a backward pass writes to memory for these numbers only.
    is_sparse: bool,
}

impl WantedSet {
    /// The numbers of these ranges, each once. Costs a sort of the ranges, and memory for them.
    pub fn of<E: Float>(params: &Parameters<'_, E>, mut ranges: Vec<Range<u32>>) -> Result<Self> {
        let n_all = params.len();
        if let Some(range) = ranges.iter().find(|r| r.start > r.end || r.end as usize > n_all) {
            params.slice(range.start as usize..range.end as usize)?;
        }
        ranges.retain(|range| !range.is_empty());
        join_touching(&mut ranges);
        let what = "a set of parameters";
        let frozen = copied(params.frozen(), what)?;
        let mut skipped = list_for(ranges.len() + 1, what)?;
        let mut shifts = list_for(ranges.len() + 2, what)?;
        let (mut at, mut n) = (0, 0);
        shifts.push(0);
        for range in ranges.iter().cloned().chain(std::iter::once(n_all as u32..n_all as u32)) {
            if at < range.start {
                skipped.push(at..range.start);
                shifts.push(range.start - n);
            }
            (at, n) = (range.end, n + range.len() as u32);
        }
        let mut outside = list_for(skipped.len() + frozen.len(), what)?;
        outside.extend(skipped.iter().chain(&frozen).cloned());
        join_touching(&mut outside);
        let mut coarse = list_for(outside.len(), what)?;
        coarse.extend(outside.iter().filter(|range| range.len() >= GAP).cloned());
        let overlaps = |r: &Range<u32>| Skipped::in_place(&skipped).leaves_any(r.start as usize..r.end as usize);
        let is_sparse = skipped.len() * SPARSE <= n_all && !frozen.iter().any(overlaps);
        Ok(WantedSet {
            store: params.id(),
            n_all,
            n: n as usize,
            ranges,
            frozen,
            skipped,
            shifts,
            outside,
            coarse,
            is_sparse,
        })
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The numbers in ascending, disjoint ranges.
    pub fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// Refuses parameters that it was not made for.
    pub fn check<E: Float>(&self, params: &Parameters<'_, E>) -> Result<()> {
        if self.store != params.id() {
            return Err(Error::GraphMismatch { what: "the set of parameters" });
        }
        if self.n_all == params.len() && self.frozen == params.frozen() {
            return Ok(());
        }
        Err(Error::BadArgument {
            what: "a set of parameters",
            expected: "one that is prepared after the last change of tensors and of what is frozen".into(),
            found: format!("one of {} numbers with {} frozen ranges", self.n_all, self.frozen.len()),
        })
    }

    /// Refuses parameters that it was not made for, and room for other numbers than these or all.
    pub fn check_room<E: Float>(&self, params: &Parameters<'_, E>, room: &[E]) -> Result<()> {
        self.check(params)?;
        if room.len() == self.n_all || room.len() == self.n {
            return Ok(());
        }
        let op = "a gradient of some parameters (numbers and room)";
        Err(Error::LengthMismatch { op, left: self.n, right: room.len() })
    }

    /// The layout of a backward pass: memory for these numbers, or, with `whole`, for all parameters.
    pub(crate) fn skipped(&self, whole: bool) -> Skipped<'_> {
        if whole { Skipped::in_place(&self.coarse) } else { Skipped::compact(&self.skipped, &self.shifts) }
    }

    /// The ranges that a backward pass leaves unchanged when it adds to the gradients of parameters.
    pub(super) fn outside(&self) -> &[Range<u32>] {
        &self.outside
    }

    /// Whether a sweep may write to memory for these numbers only.
    pub(crate) fn is_sparse(&self) -> bool {
        self.is_sparse
    }

    /// Sets the gradients of frozen numbers to 0, in memory for all parameters.
    pub(crate) fn clear_frozen<E: Float>(&self, grads: &mut [E]) {
        for range in &self.frozen {
            grads[range.start as usize..range.end as usize].fill(E::lit(0.0));
        }
    }

    /// Copies the gradients of these numbers out of those of all parameters.
    pub fn pick<E: Float>(&self, all: &[E], out: &mut [E]) {
        let mut at = 0;
        for range in &self.ranges {
            let (to, from) = (&mut out[at..at + range.len()], &all[range.start as usize..range.end as usize]);
            match (&mut *to, from) {
                // A call costs more than copying a number.
                ([to], [from]) => *to = *from,
                _ => to.copy_from_slice(from),
            }
            at += range.len();
        }
    }
}
