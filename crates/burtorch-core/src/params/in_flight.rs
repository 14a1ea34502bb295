//! Gradients that are stored only until they are final: when each range is final, and its place until then.
//!
//! Promises: ranges in flight at the same time are disjoint; a final range makes space for others. Knows graphs only by
//! the descending order of a sweep.

use std::cmp::Reverse;
use std::ops::Range;

use super::{Gradients, Skipped};
use crate::error::{Error, Result};
use crate::memory::list_for;
use crate::scalar::Float;

/// A range of parameters whose gradient becomes final at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Emission {
    pub(crate) range: Range<u32>,
    /// The highest and the lowest node that read any of it; below 0 without a reader.
    pub(crate) readers: (i64, i64),
}

/// The ranges that nodes read, in the order in which they become final; each of the `n` numbers is in one of them, and
/// numbers without a reader come last. A reader of some of a tensor counts as a reader of all of it; numbers that one
/// node reads together are in one range. Tensors ascend.
pub(crate) fn emissions(mut reads: Vec<Emission>, tensors: &[Range<u32>], n: usize) -> Result<Vec<Emission>> {
    let what = "the order of gradients";
    for Emission { range, .. } in &mut reads {
        let first = tensors.partition_point(|tensor| tensor.end <= range.start);
        let end = tensors.partition_point(|tensor| tensor.start < range.end);
        if first < end {
            *range = range.start.min(tensors[first].start)..range.end.max(tensors[end - 1].end);
        }
    }
    reads.sort_unstable_by_key(|read| (read.range.start, read.range.end));
    let mut joined: Vec<Emission> = list_for(2 * reads.len() + 1, what)?;
    for Emission { range, readers } in reads {
        match joined.last_mut() {
            Some(last) if range.start < last.range.end => {
                last.range.end = last.range.end.max(range.end);
                last.readers = (last.readers.0.max(readers.0), last.readers.1.min(readers.1));
            }
            _ => joined.push(Emission { range, readers }),
        }
    }
    let (n_read, mut at) = (joined.len(), 0);
    for k in 0..=n_read {
        // The range appended here follows the ranges that were read.
        let next = if k < n_read { joined[k].range.clone() } else { n as u32..n as u32 };
        if at < next.start {
            let never = -1 - i64::from(n as u32 - at);
            joined.push(Emission { range: at..next.start, readers: (never, never) });
        }
        at = next.end;
    }
    joined.sort_unstable_by_key(|read| Reverse((read.readers.1, read.range.start)));
    Ok(joined)
}

/// Memory for gradients in flight.
#[derive(Debug)]
pub(crate) struct InFlight<E> {
    memory: Vec<E>,
    /// The starts of ranges, as empty ranges, and the offset of the gradients after each from their numbers.
    bounds: Vec<Range<u32>>,
    shifts: Vec<u32>,
}

impl<E: Float> InFlight<E> {
    pub(crate) const fn new() -> Self {
        InFlight { memory: Vec::new(), bounds: Vec::new(), shifts: Vec::new() }
    }

    /// Bytes reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.capacity() * size_of::<E>()
    }

    /// Assigns a place to each range: the lowest one that is free from its first contribution to its last.
    pub(crate) fn place(&mut self, emissions: &[Emission]) -> Result<()> {
        let what = "the places of gradients in flight";
        let mut order = list_for(emissions.len(), what)?;
        order.extend(emissions);
        order.sort_unstable_by_key(|emission| (Reverse(emission.readers.0), emission.range.start));
        // Places in use, in order, and the node at which each becomes free.
        let mut live: Vec<(Range<usize>, i64)> = list_for(emissions.len(), what)?;
        let mut places = list_for(emissions.len(), what)?;
        let mut n = 0;
        for emission in order {
            live.retain(|(_, until)| *until <= emission.readers.0);
            let len = emission.range.len();
            let mut at = 0;
            let gap = live.iter().position(|(place, _)| {
                let fits = at + len <= place.start;
                at = if fits { at } else { place.end };
                fits
            });
            live.insert(gap.unwrap_or(live.len()), (at..at + len, emission.readers.1));
            places.push((emission.range.start, (emission.range.start).wrapping_sub(at as u32)));
            n = n.max(at + len);
        }
        places.sort_unstable();
        self.bounds = list_for(places.len(), what)?;
        self.bounds.extend(places.iter().skip(1).map(|&(start, _)| start..start));
        self.shifts = list_for(places.len() + 1, what)?;
        self.shifts.extend(places.iter().map(|&(_, shift)| shift).chain(places.is_empty().then_some(0)));
        let more = n.saturating_sub(self.memory.len());
        let bytes = more * size_of::<E>();
        self.memory.try_reserve_exact(more).map_err(|_| Error::OutOfMemory { bytes, what: "gradients in flight" })?;
        self.memory.resize(n, E::lit(0.0));
        Ok(())
    }

    /// The memory, and the layout of the gradients.
    pub(crate) fn split(&mut self) -> (&mut [E], Skipped<'_>) {
        (&mut self.memory, Skipped::compact(&self.bounds, &self.shifts))
    }
}

impl<E: Float> Gradients<'_, E> {
    /// Passes a final range to `emit`, and releases its place for others.
    pub(crate) fn emit(&mut self, range: Range<usize>, emit: &mut dyn FnMut(Range<usize>, &mut [E]) -> bool) -> bool {
        self.prepare(range.clone());
        let places = self.places(range.clone());
        let goes_on = emit(range, &mut self.grads[places.clone()]);
        if self.skipped.moves()
            && let Some(written) = &mut self.written
        {
            written.release(places, self.grads);
        }
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random reads: each number occurs once, in ranges that become final in order, and ranges in flight at once are
    /// disjoint.
    #[test]
    fn ranges_in_flight_at_once_are_disjoint() {
        let mut state = 1u64;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for round in 0..200 {
            let n = 100;
            let mut reads = Vec::new();
            for node in 0..draw(12) as i64 {
                let start = draw(n) as u32;
                let range = start..start + 1 + draw((n - u64::from(start)).min(20)) as u32;
                reads.push(Emission { range, readers: (node, node) });
            }
            let tensors = if round % 2 == 0 { &[][..] } else { &[0..30, 30..31, 50..100][..] };
            let order = emissions(reads.clone(), tensors, n as usize).unwrap();
            let mut times = vec![0; n as usize];
            order.iter().for_each(|e| e.range.clone().for_each(|k| times[k as usize] += 1));
            assert_eq!(times, vec![1; n as usize]);
            assert!(order.is_sorted_by_key(|e| Reverse(e.readers.1)));
            for tensor in tensors {
                let is_read = reads.iter().any(|r| r.range.start < tensor.end && tensor.start < r.range.end);
                let is_whole = |e: &Emission| e.range.start <= tensor.start && tensor.end <= e.range.end;
                assert!(!is_read || order.iter().any(is_whole));
            }
            for read in &reads {
                let whole = order.iter().find(|e| e.range.start <= read.range.start && read.range.end <= e.range.end);
                let (high, low) = whole.expect("a range with all that a node reads").readers;
                assert!(low <= read.readers.1 && read.readers.0 <= high);
            }
            let mut in_flight = InFlight::<f64>::new();
            in_flight.place(&order).unwrap();
            let (memory, skipped) = in_flight.split();
            assert!(memory.len() <= n as usize);
            let place =
                |e: &Emission| skipped.place(e.range.start as usize)..skipped.place(e.range.end as usize - 1) + 1;
            for a in &order {
                assert_eq!(place(a).len(), a.range.len());
                assert!(place(a).end <= memory.len());
                for b in order.iter().filter(|b| b.range != a.range) {
                    let is_at_once = a.readers.1 <= b.readers.0 && b.readers.1 <= a.readers.0;
                    assert!(!is_at_once || place(a).end <= place(b).start || place(b).end <= place(a).start);
                }
            }
        }
    }
}
