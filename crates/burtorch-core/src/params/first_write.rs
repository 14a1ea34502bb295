//! The gradients already written in a pass: the others have values of an earlier pass, and count as 0.
//!
//! Promises: a pass that records its writes, and finishes, leaves the same bits as one that sets all gradients to
//! zero and adds; no memory is allocated. Does not know tensors.

use std::ops::Range;

use crate::scalar::Float;

/// The largest number of separate ranges; beyond it, the gap between two neighbours is zeroed and closed.
const MAX_RANGES: usize = 64;

/// Ranges of gradients that have been written: ascending, with gaps between them.
#[derive(Debug)]
pub(crate) struct Written<E> {
    ranges: [(u32, u32); MAX_RANGES],
    n: usize,
    /// Workspace of a backward pass; see [`Gradients::stage`](super::Gradients::stage).
    pub(super) stage: Vec<E>,
}

impl<E: Float> Written<E> {
    pub(crate) const fn new() -> Self {
        Written { ranges: [(0, 0); MAX_RANGES], n: 0, stage: Vec::new() }
    }

    /// Starts a pass. Frozen gradients are zero already, and stay untouched.
    pub(crate) fn start(&mut self, frozen: &[Range<u32>], grads: &mut [E]) {
        self.n = 0;
        for range in frozen {
            self.claim(range.start as usize..range.end as usize, grads);
        }
    }

    /// Marks `range` as written. Returns `true` if none of it was: the caller overwrites all of it. Otherwise zeroes
    /// the parts not written, and the caller adds.
    pub(crate) fn claim(&mut self, range: Range<usize>, grads: &mut [E]) -> bool {
        let (from, to) = (range.start as u32, range.end as u32);
        let known = &self.ranges[..self.n];
        let first = known.partition_point(|r| r.1 < from);
        let end = first + known[first..].partition_point(|r| r.0 <= to);
        // Ranges first..end overlap or touch this one.
        let touching = &known[first..end];
        if touching.is_empty() {
            self.insert(first, (from, to), grads);
            return true;
        }
        // The usual case for all samples after the first.
        if let [only] = touching
            && only.0 <= from
            && to <= only.1
            && from < to
        {
            return false;
        }
        let fresh = touching.iter().all(|r| r.1 <= from || to <= r.0);
        if !fresh {
            let mut at = from;
            for &(start, stop) in touching {
                if at < start {
                    grads[at as usize..start.min(to) as usize].fill(E::lit(0.0));
                }
                at = at.max(stop);
            }
            if at < to {
                grads[at as usize..to as usize].fill(E::lit(0.0));
            }
        }
        let whole = (from.min(touching[0].0), to.max(touching[touching.len() - 1].1));
        self.ranges[first] = whole;
        self.ranges.copy_within(end..self.n, first + 1);
        self.n -= end - first - 1;
        fresh
    }

    /// Marks `range` as not written, so that it is overwritten again. Without room for another range it is zeroed and
    /// stays written.
    pub(crate) fn release(&mut self, range: Range<usize>, grads: &mut [E]) {
        let (from, to) = (range.start as u32, range.end as u32);
        let known = &self.ranges[..self.n];
        let first = known.partition_point(|r| r.1 <= from);
        let end = first + known[first..].partition_point(|r| r.0 < to);
        if first == end {
            return;
        }
        let left = [(known[first].0, from), (to, known[end - 1].1)];
        let left = left.iter().filter(|part| part.0 < part.1).copied();
        let n_left = left.clone().count();
        if self.n - (end - first) + n_left > MAX_RANGES {
            grads[range].fill(E::lit(0.0));
            return;
        }
        self.ranges.copy_within(end..self.n, first + n_left);
        left.zip(&mut self.ranges[first..]).for_each(|(part, to)| *to = part);
        self.n = self.n + n_left - (end - first);
    }

    fn insert(&mut self, at: usize, range: (u32, u32), grads: &mut [E]) {
        if self.n < MAX_RANGES {
            self.ranges.copy_within(at..self.n, at + 1);
            self.ranges[at] = range;
            self.n += 1;
        } else if at < self.n {
            grads[range.1 as usize..self.ranges[at].0 as usize].fill(E::lit(0.0));
            self.ranges[at].0 = range.0;
        } else {
            grads[self.ranges[at - 1].1 as usize..range.0 as usize].fill(E::lit(0.0));
            self.ranges[at - 1].1 = range.1;
        }
    }

    /// Zeroes the parts not written.
    pub(crate) fn finish(&mut self, grads: &mut [E]) {
        let mut at = 0;
        for &(start, stop) in &self.ranges[..self.n] {
            grads[at..start as usize].fill(E::lit(0.0));
            at = stop as usize;
        }
        grads[at..].fill(E::lit(0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with an array of flags, with more ranges than are kept separate.
    #[test]
    fn claims_have_the_result_of_zeroing_and_adding() {
        let mut state = 1u64;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let mut written = Written::new();
        for round in 0..200 {
            let n = 1000;
            let mut grads = vec![f64::NAN; n];
            let mut expected = vec![0.0; n];
            let frozen = [10..20, 500..503];
            frozen.iter().for_each(|r| grads[r.start as usize..r.end as usize].fill(0.0));
            written.start(&frozen, &mut grads);
            for _ in 0..round {
                let from = draw(n as u64) as usize;
                let to = (from + 1 + draw(12) as usize).min(n);
                let fresh = written.claim(from..to, &mut grads);
                for k in from..to {
                    grads[k] = if fresh { 1.0 } else { grads[k] + 1.0 };
                    expected[k] += 1.0;
                }
            }
            written.finish(&mut grads);
            assert_eq!(grads, expected);
        }
    }
}
