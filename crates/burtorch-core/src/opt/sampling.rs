//! The samples, or clients, of a step, and the weights that make the mean of their gradients unbiased.
//!
//! Promises: a batch is a function of the seed and the round alone, so that a resumed run draws the same batches as an
//! uninterrupted one. Does not know gradients.

use crate::draw::{Draw, Purpose, Subset};
use crate::error::{Error, Result};
use crate::interrupt::{check, pieces};
use crate::memory;

use super::terms::Samples;

/// A rule that draws batches.
#[derive(Clone, Debug, PartialEq)]
pub enum Sampling {
    /// All samples.
    Full,
    /// This many distinct samples; every subset has the same probability.
    Nice(usize),
    /// This many samples, each drawn from all.
    WithReplacement(usize),
    /// Each sample independently with this probability; a batch may be empty.
    Independent(f64),
    /// This many samples, each drawn from all with probabilities proportional to the weights.
    Importance(usize, Vec<f64>),
    /// Consecutive batches of this size from a permutation drawn for each epoch; the last batch of an epoch may be
    /// smaller. Biased within an epoch.
    Reshuffle(usize),
    /// One of this many parts of consecutive samples, each with the same probability.
    Partition(usize),
}

/// Batches of `n` samples.
#[derive(Clone, Debug)]
pub struct Sampler {
    rule: Sampling,
    n: usize,
    /// Cumulative probabilities.
    cumulative: Vec<f64>,
    /// The sum of the importance weights.
    total: f64,
    subset: Subset,
    permutation: Vec<u32>,
    /// The permutation's seed, epoch and client.
    drawn: Option<(u64, u64, u64)>,
    indices: Vec<u32>,
    /// A batch drawn ahead, and its seed, round and client.
    next: Vec<u32>,
    next_of: Option<(u64, u64, u64)>,
    weights: Vec<f64>,
    scale: f64,
}

/// The largest batch that is drawn ahead.
const SMALL: usize = 64;

const WHAT: &str = "a batch";

fn bad<T>(what: &'static str, expected: String, found: impl ToString) -> Result<T> {
    Err(Error::BadArgument { what, expected, found: found.to_string() })
}

impl Sampler {
    /// The rule for `n` samples.
    pub fn new(rule: Sampling, n: usize) -> Result<Self> {
        let (mut cumulative, mut total) = (Vec::new(), 0.0);
        match &rule {
            Sampling::Nice(size) | Sampling::Reshuffle(size) if !(1..=n).contains(size) => {
                return bad("a batch's size", format!("from 1 to {n}, the number of samples"), size);
            }
            Sampling::WithReplacement(0) | Sampling::Importance(0, _) => {
                return bad("a batch's size", "at least 1".into(), 0);
            }
            Sampling::Partition(parts) if !(1..=n).contains(parts) => {
                return bad("parts", format!("from 1 to {n}, the number of samples"), parts);
            }
            Sampling::Independent(p) if !(*p > 0.0 && *p <= 1.0) => {
                return bad("a probability", "above 0 and at most 1".into(), p);
            }
            Sampling::Importance(_, weights) => {
                if weights.len() != n {
                    return bad("importance weights", format!("one for each of the {n} samples"), weights.len());
                }
                total = weights.iter().sum();
                if !(weights.iter().all(|&w| w > 0.0) && total.is_finite()) {
                    return bad("importance weights", "positive and finite".into(), "others");
                }
                memory::reserve_in(&mut cumulative, n, WHAT)?;
                cumulative.extend(weights.iter().scan(0.0, |so_far, w| {
                    *so_far += w / total;
                    Some(*so_far)
                }));
            }
            _ => {}
        }
        let size = match rule {
            Sampling::Nice(size)
            | Sampling::WithReplacement(size)
            | Sampling::Importance(size, _)
            | Sampling::Reshuffle(size) => size,
            _ => n,
        };
        let (indices, weights) = (memory::list_for(size, WHAT)?, memory::list_for(size, WHAT)?);
        let next = memory::list_for(if size <= SMALL { size } else { 0 }, WHAT)?;
        let subset = Subset::default();
        Ok(Sampler {
            rule,
            n,
            cumulative,
            total,
            subset,
            permutation: Vec::new(),
            drawn: None,
            indices,
            next,
            next_of: None,
            weights,
            scale: 0.0,
        })
    }

    /// The number of samples.
    pub fn n(&self) -> usize {
        self.n
    }

    /// The rule.
    pub fn rule(&self) -> &Sampling {
        &self.rule
    }

    /// How many samples a batch has on average.
    pub fn expected_size(&self) -> f64 {
        let n = self.n as f64;
        match self.rule {
            Sampling::Full => n,
            Sampling::Nice(size)
            | Sampling::WithReplacement(size)
            | Sampling::Importance(size, _)
            | Sampling::Reshuffle(size) => size as f64,
            Sampling::Independent(p) => n * p,
            Sampling::Partition(parts) => n / parts as f64,
        }
    }

    /// The constants A and B of Tyurin et al. 2022: for the estimate g of a mean v of vectors v_i,
    /// `E |g - v|^2 <= A mean |v_i|^2/(n q_i) - B |v|^2`, with q_i the probabilities of `Importance`, otherwise 1/n. Only
    /// for rules that draw without bias and whose parts do not depend on the order of samples.
    pub fn constants(&self) -> Option<(f64, f64)> {
        let n = self.n as f64;
        match self.rule {
            Sampling::Full => Some((0.0, 0.0)),
            Sampling::Nice(_) if self.n == 1 => Some((0.0, 0.0)),
            Sampling::Nice(size) => {
                let a = (n - size as f64) / (size as f64 * (n - 1.0));
                Some((a, a))
            }
            Sampling::WithReplacement(size) | Sampling::Importance(size, _) => {
                Some((1.0 / size as f64, 1.0 / size as f64))
            }
            Sampling::Independent(p) => Some(((1.0 - p) / (n * p), 0.0)),
            Sampling::Reshuffle(_) | Sampling::Partition(_) => None,
        }
    }

    /// Draws the batch of a round for a client (0 without clients).
    pub fn draw(&mut self, seed: u64, round: u64, client: u64) -> Result<()> {
        if self.next_of.take() == Some((seed, round, client)) {
            std::mem::swap(&mut self.indices, &mut self.next);
        } else {
            self.list(seed, round, client)?;
        }
        self.weigh()
    }

    /// Draws a small batch before its round, so that its rows can be prefetched; returns no samples for a large one.
    /// The last batch does not change.
    pub(super) fn draw_ahead(&mut self, seed: u64, round: u64, client: u64) -> Result<&[u32]> {
        self.next_of = None;
        if self.indices.len() > SMALL || self.next.capacity() == 0 {
            return Ok(&[]);
        }
        std::mem::swap(&mut self.indices, &mut self.next);
        let listed = self.list(seed, round, client);
        std::mem::swap(&mut self.indices, &mut self.next);
        listed?;
        self.next_of = Some((seed, round, client));
        Ok(&self.next)
    }

    /// Sets `indices` to the batch of a round.
    fn list(&mut self, seed: u64, round: u64, client: u64) -> Result<()> {
        let mut draw = Draw::new(seed, round, client, Purpose::Sampling);
        self.indices.clear();
        match self.rule {
            Sampling::Full => {
                let indices = &mut self.indices;
                pieces(self.n).for_each(|piece| indices.extend(piece.map(|i| i as u32)));
            }
            Sampling::Nice(size) => self.indices.extend_from_slice(self.subset.draw(&mut draw, self.n, size)?),
            Sampling::WithReplacement(size) => {
                let (indices, n) = (&mut self.indices, self.n as u64);
                pieces(size).for_each(|piece| indices.extend(piece.map(|_| draw.below(n) as u32)));
            }
            Sampling::Independent(p) => {
                let indices = &mut self.indices;
                pieces(self.n).for_each(|piece| indices.extend(piece.map(|i| i as u32).filter(|_| draw.happens(p))));
            }
            Sampling::Importance(size, _) => {
                let last = self.n - 1;
                let cumulative = &self.cumulative;
                let one = |u: f64| cumulative.partition_point(|&so_far| so_far <= u).min(last) as u32;
                let indices = &mut self.indices;
                pieces(size).for_each(|piece| indices.extend(piece.map(|_| one(draw.uniform()))));
            }
            Sampling::Reshuffle(size) => self.reshuffle(seed, round, client, size)?,
            Sampling::Partition(parts) => {
                let part = draw.below(parts as u64) as usize;
                self.indices.extend((part * self.n / parts) as u32..((part + 1) * self.n / parts) as u32);
            }
        }
        check()
    }

    fn reshuffle(&mut self, seed: u64, round: u64, client: u64, size: usize) -> Result<()> {
        let rounds = self.n.div_ceil(size) as u64;
        let epoch = round / rounds;
        let wanted = Some((seed, epoch, client));
        if self.drawn != wanted {
            self.drawn = None;
            self.permutation.clear();
            memory::reserve_in(&mut self.permutation, self.n, WHAT)?;
            self.permutation.extend(0..self.n as u32);
            Draw::new(seed, epoch, client, Purpose::Sampling).permute(&mut self.permutation, self.n)?;
            self.drawn = wanted;
        }
        let start = (round % rounds) as usize * size;
        self.indices.extend_from_slice(&self.permutation[start..self.n.min(start + size)]);
        Ok(())
    }

    /// Uses the given batch, with the weights that the rule would give it.
    pub fn take(&mut self, indices: &[u32]) -> Result<()> {
        if let Some(&wrong) = indices.iter().find(|&&i| i as usize >= self.n) {
            return Err(Error::OutOfRange { what: "sample", found: wrong.into(), max: self.n as u64 - 1 });
        }
        let size = match self.rule {
            Sampling::Full => Some(self.n),
            Sampling::Nice(size) | Sampling::WithReplacement(size) | Sampling::Importance(size, _) => Some(size),
            _ => None,
        };
        if let Some(size) = size.filter(|&size| size != indices.len()) {
            return bad("a given batch", format!("of {size} samples"), indices.len());
        }
        self.indices.clear();
        memory::reserve_in(&mut self.indices, indices.len(), WHAT)?;
        self.indices.extend_from_slice(indices);
        self.weigh()
    }

    fn weigh(&mut self) -> Result<()> {
        let n = self.n as f64;
        self.weights.clear();
        self.scale = match self.rule {
            Sampling::Independent(p) => 1.0 / (n * p),
            Sampling::Partition(parts) => parts as f64 / n,
            _ => 1.0 / self.indices.len() as f64,
        };
        if let Sampling::Importance(_, weights) = &self.rule {
            for piece in pieces(self.indices.len()) {
                self.weights.extend(self.indices[piece].iter().map(|&i| self.total / (n * weights[i as usize])));
            }
        }
        check()
    }

    /// The batch drawn last.
    pub fn samples(&self) -> Samples<'_> {
        let weights = matches!(self.rule, Sampling::Importance(..)).then_some(&self.weights[..]);
        Samples { indices: &self.indices, weights, scale: self.scale }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_drawn_ahead_is_that_of_its_round() {
        let n = 40;
        let weights = (0..n).map(|i| 1.0 + i as f64).collect();
        for rule in [
            Sampling::Full,
            Sampling::Nice(1),
            Sampling::Nice(17),
            Sampling::WithReplacement(5),
            Sampling::Independent(0.2),
            Sampling::Importance(3, weights),
            Sampling::Reshuffle(7),
            Sampling::Partition(4),
        ] {
            let mut ahead = Sampler::new(rule.clone(), n).unwrap();
            let mut plain = ahead.clone();
            let batch = |sampler: &Sampler| {
                let Samples { indices, weights, scale } = sampler.samples();
                (indices.to_vec(), weights.map(<[f64]>::to_vec), scale)
            };
            // Consecutive, skipped and repeated rounds; the last entry is the one drawn ahead.
            for (seed, round, next) in
                [(1, 0, 1), (1, 1, 2), (1, 5, 6), (1, 6, 7), (2, 7, 8), (2, 7, 8), (2, 8, 3), (2, 9, 10)]
            {
                ahead.draw(seed, round, 0).unwrap();
                plain.draw(seed, round, 0).unwrap();
                assert_eq!(batch(&ahead), batch(&plain), "{rule:?}, round {round}");
                let drawn = ahead.draw_ahead(seed, next, 0).unwrap().to_vec();
                assert_eq!(batch(&ahead), batch(&plain), "{rule:?}, round {round}, beside the next one");
                let mut then = plain.clone();
                then.draw(seed, next, 0).unwrap();
                assert_eq!(drawn, then.samples().indices, "{rule:?}, ahead of round {next}");
            }
            ahead.take(&(0..plain.samples().indices.len() as u32).collect::<Vec<_>>()).unwrap();
            ahead.draw(2, 10, 0).unwrap();
            plain.draw(2, 10, 0).unwrap();
            assert_eq!(batch(&ahead), batch(&plain), "{rule:?}, after a batch that was given");
        }
    }
}
