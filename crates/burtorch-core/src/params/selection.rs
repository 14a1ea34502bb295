//! The numbers of a `Parameters` that an optimiser or a clip changes.
//!
//! Promises: ranges are ascending, disjoint and not empty, so each number is visited once, in the order of the flat arrays,
//! and has one place among the selected ones. Does not know the operation on them.

use std::ops::Range;

use super::{Parameters, Slice, for_each_gap, out_of_memory};
use crate::error::Result;
use crate::scalar::Float;

/// Numbers of a `Parameters`: all of them, or those of some slices.
///
/// ```
/// use burtorch_core::{Init, Parameters, optim::{Selection, Sgd}};
/// let mut params = Parameters::<f64>::new(0);
/// let body = params.tensor(&[2], None, Init::Constant(1.0), true).unwrap();
/// let head = params.tensor(&[1], None, Init::Constant(1.0), true).unwrap();
/// params.grads_mut().fill(2.0);
/// let numbers = Selection::of(&params, &[head.slice()]).unwrap();
/// Sgd::new(0.25).unwrap().step_of(&mut params, &numbers).unwrap();
/// assert_eq!(params.values(), &[1.0, 1.0, 0.5]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// `None` for all numbers, including later tensors.
    ranges: Option<Vec<Range<u32>>>,
}

impl Selection {
    /// All numbers, those of later tensors too.
    pub const ALL: Selection = Selection { ranges: None };

    /// The numbers of these slices, each once, however often the slices name it.
    pub fn of<E: Float>(params: &Parameters<'_, E>, slices: &[Slice]) -> Result<Self> {
        let mut ranges = Vec::new();
        ranges.try_reserve_exact(slices.len()).map_err(|_| out_of_memory::<Range<u32>>(slices.len()))?;
        for &slice in slices {
            params.check_slice(slice)?;
            if !slice.is_empty() {
                ranges.push(slice.start..slice.start + slice.len);
            }
        }
        join_touching(&mut ranges);
        Ok(Selection { ranges: Some(ranges) })
    }

    /// The selected ranges, ascending and apart from each other; `None` for all numbers.
    pub fn ranges(&self) -> Option<impl Iterator<Item = std::ops::Range<usize>>> {
        self.ranges.as_ref().map(|ranges| ranges.iter().map(|r| r.start as usize..r.end as usize))
    }

    /// How many numbers of `n` are selected.
    pub fn len_of(&self, n: usize) -> usize {
        self.ranges.as_ref().map_or(n, |ranges| ranges.iter().map(ExactSizeIterator::len).sum())
    }

    /// Calls `f` with each selected range outside the frozen ones: its places among the selected numbers, and its
    /// places in the flat arrays.
    pub(super) fn for_each_gap(&self, frozen: &[Range<u32>], n: usize, mut f: impl FnMut(Range<usize>, Range<usize>)) {
        let Some(ranges) = &self.ranges else {
            return for_each_gap(frozen, n, |range| f(range.clone(), range));
        };
        let mut before = 0;
        for range in ranges {
            let (start, end) = (range.start as usize, range.end as usize);
            // The part of the frozen ranges in this one, relative to its start.
            let first = frozen.partition_point(|r| r.end <= range.start);
            let inside = frozen[first..].iter().take_while(|r| r.start < range.end);
            let mut from = start;
            for r in inside {
                let until = (r.start as usize).max(start);
                if from < until {
                    f(before + from - start..before + until - start, from..until);
                }
                from = (r.end as usize).min(end);
            }
            if from < end {
                f(before + from - start..before + end - start, from..end);
            }
            before += end - start;
        }
    }
}

/// Sorts ranges and merges those that touch or overlap.
pub(super) fn join_touching(ranges: &mut Vec<Range<u32>>) {
    ranges.sort_unstable_by_key(|r| r.start);
    ranges.dedup_by(|next, last| {
        let touch = next.start <= last.end;
        if touch {
            last.end = last.end.max(next.end);
        }
        touch
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with an array of flags.
    #[test]
    fn gaps_are_the_selected_and_unfrozen_numbers() {
        let mut state = 1u64;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % n) as u32
        };
        for _ in 0..500 {
            let mut some = |count: u64| {
                let mut ranges = Vec::new();
                for _ in 0..draw(count) {
                    let at = draw(40);
                    ranges.push(at..at + 1 + draw(6));
                }
                join_touching(&mut ranges);
                ranges
            };
            let (selected, frozen) = (some(6), some(6));
            let within = |ranges: &[Range<u32>], k: u32| ranges.iter().any(|r| r.contains(&k));
            let numbers: Vec<u32> = (0..64).filter(|&k| within(&selected, k)).collect();
            let wanted: Vec<(usize, usize)> = numbers
                .iter()
                .enumerate()
                .filter(|&(_, &k)| !within(&frozen, k))
                .map(|(place, &k)| (place, k as usize))
                .collect();
            let mut found = Vec::new();
            let selection = Selection { ranges: Some(selected) };
            selection.for_each_gap(&frozen, 64, |places, range| {
                assert!(!range.is_empty());
                found.extend(places.zip(range));
            });
            assert_eq!(found, wanted);
            assert_eq!(selection.len_of(64), numbers.len());
        }
    }
}
