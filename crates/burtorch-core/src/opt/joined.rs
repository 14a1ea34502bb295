//! A sum whose terms are those of several sums, in order: for clients with their own problems.
//!
//! Promises: samples of one of the sums have the same bits as in a sum of all data, and the same count of calls. A regulariser
//! shared by all sums is that of the whole.

use std::sync::Arc;

use super::terms::{FiniteSum, Regulariser, Samples, Terms};
use crate::error::{Error, Result};
use crate::memory;
use crate::sync::Mutex;

/// The terms of all sums.
struct Joined {
    sums: Vec<Arc<FiniteSum>>,
    /// The first sample of each sum.
    starts: Vec<u32>,
    n: usize,
    /// Whether the sums have different regularisers; then they are added here.
    differ: bool,
    /// Reusable lists of samples in the numbering of their sums.
    room: Mutex<Vec<Vec<u32>>>,
}

const WHAT: &str = "a list of samples";

impl FiniteSum {
    /// Joins sums of the same d, in sequence. None of them may be a joined sum.
    pub fn joined(sums: Vec<Arc<FiniteSum>>) -> Result<Self> {
        let bad =
            |expected: &str, found: String| Error::BadArgument { what: "clients", expected: expected.into(), found };
        let Some(first) = sums.first().cloned() else { return Err(bad("at least one", "none".into())) };
        let mut starts = memory::list_for(sums.len(), WHAT)?;
        let mut n = 0usize;
        for (k, sum) in sums.iter().enumerate() {
            if sum.d() != first.d() {
                let expected = format!("with problems of the same d, which is {} of the first", first.d());
                return Err(bad(&expected, format!("{} of client {k}", sum.d())));
            }
            if sum.is_joined {
                return Err(bad("with a problem each", format!("a problem of many clients as that of client {k}")));
            }
            starts.push(u32::try_from(n).map_err(|_| bad("of fewer than 2^32 samples", "more".into()))?);
            n += sum.n();
        }
        let differ = sums.iter().any(|sum| sum.regulariser() != first.regulariser());
        let regulariser = if differ { Regulariser::default() } else { first.regulariser() };
        let terms = Joined { sums, starts, n, differ, room: Mutex::new(Vec::new()) };
        let mut whole = FiniteSum::new(Box::new(terms), regulariser)?;
        whole.is_joined = true;
        Ok(whole)
    }
}

impl Joined {
    /// Calls `with` for consecutive samples that belong to one sum, in its numbering.
    fn for_runs(
        &self,
        samples: Samples<'_>,
        with: &mut dyn FnMut(&FiniteSum, Samples<'_>) -> Result<()>,
    ) -> Result<()> {
        let lock = || self.room.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut own = lock().pop().unwrap_or_default();
        let done = self.for_runs_in(samples, &mut own, with);
        let mut room = lock();
        if memory::reserve_in(&mut *room, 1, WHAT).is_ok() {
            room.push(own);
        }
        done
    }

    fn for_runs_in(
        &self,
        samples: Samples<'_>,
        own: &mut Vec<u32>,
        with: &mut dyn FnMut(&FiniteSum, Samples<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut left = samples.indices;
        let mut at = 0;
        while let Some(&first) = left.first() {
            let k = self.starts.partition_point(|&start| start <= first) - 1;
            let (start, sum) = (self.starts[k], &self.sums[k]);
            let is_own = |&i: &u32| i >= start && ((i - start) as usize) < sum.n();
            let n = left.iter().position(|i| !is_own(i)).unwrap_or(left.len());
            own.clear();
            memory::reserve_in(own, n, WHAT)?;
            own.extend(left[..n].iter().map(|i| i - start));
            let weights = samples.weights.map(|weights| &weights[at..at + n]);
            // Equal weights become a factor, so that a Python function is called once for all samples.
            let run = match weights {
                Some([same, more @ ..]) if more.iter().all(|w| w == same) => {
                    Samples { indices: own, weights: None, scale: samples.scale * same }
                }
                _ => Samples { indices: own, weights, scale: samples.scale },
            };
            with(sum, run)?;
            (left, at) = (&left[n..], at + n);
        }
        Ok(())
    }
}

impl Terms for Joined {
    fn n(&self) -> usize {
        self.n
    }

    fn d(&self) -> usize {
        self.sums[0].d()
    }

    fn loss(&self, x: &[f64], samples: Samples<'_>, scratch: &mut Vec<f64>) -> Result<f64> {
        let mut total = 0.0;
        self.for_runs(samples, &mut |sum, run| {
            total += sum.terms.loss(x, run, scratch)?;
            if self.differ {
                total += run.total() * sum.regulariser().loss(x);
            }
            Ok(())
        })?;
        Ok(total)
    }

    fn grad(
        &self,
        x: &[f64],
        minus: Option<&[f64]>,
        samples: Samples<'_>,
        scratch: &mut Vec<f64>,
        out: &mut [f64],
    ) -> Result<()> {
        self.for_runs(samples, &mut |sum, run| {
            sum.terms.grad(x, minus, run, scratch, out)?;
            if self.differ {
                sum.regulariser().add_grad(x, minus, run.total(), out);
            }
            Ok(())
        })
    }
}
