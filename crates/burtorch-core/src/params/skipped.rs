//! Numbers without gradients in a sweep: frozen ones, or all outside a requested set.
//!
//! Promises: a query takes time in the logarithm of the number of ranges. Does not know kernels.

use std::ops::Range;

/// Ranges of skipped numbers, and the layout of the other gradients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Skipped<'a> {
    /// Ascending, disjoint.
    ranges: &'a [Range<u32>],
    /// For each range, and for the end, the distance of the gradients before it below their numbers. `None` if each
    /// gradient lies at the place of its number.
    shifts: Option<&'a [u32]>,
}

impl<'a> Skipped<'a> {
    /// Gradients that lie at the places of their numbers.
    #[inline(always)]
    pub(crate) const fn in_place(ranges: &'a [Range<u32>]) -> Self {
        Skipped { ranges, shifts: None }
    }

    /// A compact layout: `shifts` has one entry more than there are ranges. Gradients may also lie above their numbers,
    /// by the complement to 2^32.
    pub(crate) fn compact(ranges: &'a [Range<u32>], shifts: &'a [u32]) -> Self {
        debug_assert_eq!(ranges.len() + 1, shifts.len());
        Skipped { ranges, shifts: Some(shifts) }
    }

    /// Whether nothing is skipped.
    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether any gradient lies elsewhere than at the place of its number.
    pub(crate) fn moves(self) -> bool {
        self.shifts.is_some()
    }

    /// The first range that ends above `index`.
    fn after(self, index: usize) -> usize {
        self.ranges.partition_point(|r| r.end as usize <= index)
    }

    /// The skipped ranges that overlap a range.
    pub(crate) fn within(self, range: &Range<usize>) -> &'a [Range<u32>] {
        let rest = &self.ranges[self.after(range.start)..];
        &rest[..rest.partition_point(|r| (r.start as usize) < range.end)]
    }

    /// A number before which all numbers are skipped.
    #[inline(always)]
    pub(crate) fn first_left(self) -> u32 {
        self.ranges.first().filter(|r| r.start == 0).map_or(0, |r| r.end)
    }

    /// Whether no number of the range is skipped.
    #[inline(always)]
    pub(crate) fn leaves_all(self, range: Range<usize>) -> bool {
        self.ranges.is_empty() || self.ranges.get(self.after(range.start)).is_none_or(|r| range.end <= r.start as usize)
    }

    /// Whether some number of the range is not skipped.
    #[inline(always)]
    pub(crate) fn leaves_any(self, range: Range<usize>) -> bool {
        let covers = |r: &Range<u32>| r.start as usize <= range.start && range.end <= r.end as usize;
        self.ranges.is_empty() || !self.ranges.get(self.after(range.start)).is_some_and(covers)
    }

    /// The place of the gradient of a number; for a skipped one, that of the next number that is not skipped.
    #[inline(always)]
    pub(crate) fn place(self, index: usize) -> usize {
        let Some(shifts) = self.shifts else {
            return index;
        };
        let next = self.after(index);
        match self.ranges.get(next).filter(|r| r.start as usize <= index) {
            Some(r) => r.start as usize - shifts[next] as usize,
            None => (index as u32).wrapping_sub(shifts[next]) as usize,
        }
    }

    /// The unskipped parts of a range: the place of the first gradient, and the numbers of each.
    pub(crate) fn pieces(self, range: Range<usize>) -> Pieces<'a> {
        Pieces { skipped: self, next: self.after(range.start), at: range.start, end: range.end }
    }
}

/// See [`Skipped::pieces`].
pub(crate) struct Pieces<'a> {
    skipped: Skipped<'a>,
    /// The first range that ends above `at`.
    next: usize,
    at: usize,
    end: usize,
}

impl Iterator for Pieces<'_> {
    type Item = (usize, Range<usize>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.end {
            let (at, next) = (self.at, self.next);
            let (stop, go_on) = match self.skipped.ranges.get(next) {
                Some(r) => (self.end.min(r.start as usize), r.end as usize),
                None => (self.end, self.end),
            };
            self.at = go_on;
            self.next = next + 1;
            if at < stop {
                let shift = self.skipped.shifts.map_or(0, |shifts| shifts[next]);
                return Some(((at as u32).wrapping_sub(shift) as usize, at..stop));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with an array of flags.
    #[test]
    fn questions_are_answered_as_by_flags() {
        let mut state = 1u64;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % n) as usize
        };
        for _ in 0..300 {
            let n = 60;
            let is_skipped: Vec<bool> = (0..n).map(|_| draw(3) == 0).collect();
            let mut ranges: Vec<Range<u32>> = Vec::new();
            for k in (0..n as u32).filter(|&k| is_skipped[k as usize]) {
                match ranges.last_mut().filter(|r| r.end == k) {
                    Some(last) => last.end += 1,
                    None => ranges.push(k..k + 1),
                }
            }
            let mut shifts = vec![0];
            for r in &ranges {
                shifts.push(shifts[shifts.len() - 1] + r.len() as u32);
            }
            let rank = |k: usize| is_skipped[..k].iter().filter(|s| !**s).count();
            for skipped in [Skipped::in_place(&ranges), Skipped::compact(&ranges, &shifts)] {
                let place = |k: usize| if skipped.shifts.is_some() { rank(k) } else { k };
                let from = draw(n as u64);
                let range = from..from + 1 + draw((n - from) as u64);
                let flags = &is_skipped[range.clone()];
                assert_eq!(skipped.leaves_all(range.clone()), flags.iter().all(|s| !s));
                assert_eq!(skipped.leaves_any(range.clone()), flags.iter().any(|s| !s));
                if skipped.shifts.is_some() || !is_skipped[from] {
                    assert_eq!(skipped.place(from), place(from));
                }
                let found: Vec<(usize, usize)> =
                    skipped.pieces(range.clone()).flat_map(|(to, piece)| (to..).zip(piece)).collect();
                let wanted: Vec<_> = range.filter(|&k| !is_skipped[k]).map(|k| (place(k), k)).collect();
                assert_eq!(found, wanted);
            }
        }
    }
}
