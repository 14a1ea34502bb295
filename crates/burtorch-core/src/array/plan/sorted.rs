//! Sorting and searching: rows of numbers, and integers.
//!
//! Promises: equal numbers stay in their order, -0 equals 0, and those that are no numbers come last; long rows ask whether to
//! end early. Does not know plans.

use super::math::ArrayFloat;
use crate::error::Result;
use crate::interrupt;

/// Numbers in order, and the integers that are in the same order.
pub(super) trait Ordered: Copy {
    fn place(self) -> i64;
}

impl Ordered for i64 {
    fn place(self) -> i64 {
        self
    }
}

impl<E: ArrayFloat> Ordered for E {
    #[inline(always)]
    fn place(self) -> i64 {
        let x = self.to_f64();
        // Negative numbers grow as their bits fall. The sum turns -0 to 0.
        let bits = (x + 0.0).to_bits() as i64;
        let place = bits ^ ((bits >> 63) as u64 >> 1) as i64;
        if x.is_nan() { i64::MAX } else { place }
    }
}

/// Parts of a row that are sorted without a question whether to end early have no more numbers.
const PART: usize = 1 << 15;

/// The indices that sort rows of `n`, with room for so many.
pub(super) fn arg_sort<T: Ordered>(n: usize, x: &[T], places: &mut Vec<u128>, to: &mut [i64]) -> Result<()> {
    let mut work = interrupt::Work::default();
    for (x, to) in x.chunks_exact(n.max(1)).zip(to.chunks_exact_mut(n.max(1))) {
        // One comparison without a branch decides by the number and then by the index.
        let place = |(x, k): (&T, u64)| u128::from((x.place() ^ i64::MIN) as u64) << 64 | u128::from(k);
        places.clear();
        places.extend(x.iter().zip(0..).map(place));
        sort_parts(places, &mut work)?;
        to.iter_mut().zip(&*places).for_each(|(to, &place)| *to = place as u64 as i64);
    }
    Ok(())
}

/// How many of a row of `n` sorted numbers come before each of `m` others, of equal ones all if `right`.
pub(super) fn search<T: Ordered>([n, m]: [usize; 2], right: bool, rows: &[T], x: &[T], to: &mut [i64]) -> Result<()> {
    let mut work = interrupt::Work::default();
    let others = x.chunks_exact(m.max(1)).zip(to.chunks_exact_mut(m.max(1)));
    for (k, (x, to)) in others.enumerate() {
        let row = &rows[k * n..(k + 1) * n];
        for (x, to) in x.chunks(PART).zip(to.chunks_mut(PART)) {
            work.add(x.len() * 8)?;
            for (x, to) in x.iter().zip(to) {
                let x = x.place();
                *to = row.partition_point(|y| y.place() < x || right && y.place() == x) as i64;
            }
        }
    }
    Ok(())
}

/// Sorts different numbers: what is long is parted at one of its numbers until all is short. The larger part waits, so that no
/// more than 64 do.
fn sort_parts(all: &mut [u128], work: &mut interrupt::Work) -> Result<()> {
    let (mut waiting, mut n_waiting) = ([(0, 0); usize::BITS as usize], 0);
    let (mut start, mut end) = (0, all.len());
    loop {
        let part = &mut all[start..end];
        let n = part.len();
        work.add(n)?;
        if n <= PART {
            part.sort_unstable();
            if n_waiting == 0 {
                return Ok(());
            }
            n_waiting -= 1;
            (start, end) = waiting[n_waiting];
            continue;
        }
        let mut samples: [u128; 9] = std::array::from_fn(|k| part[k * (n - 1) / 8]);
        samples.sort_unstable();
        let pivot = samples[4];
        let mut below = 0;
        for k in 0..n {
            interrupt::ask_at(k)?;
            if part[k] < pivot {
                part.swap(k, below);
                below += 1;
            }
        }
        if below < n / 16 || below > n - n / 16 {
            // Samples that say little of the rest, which those of the next part may do as well.
            below = n / 2;
            part.select_nth_unstable(below);
        }
        let middle = start + below;
        let is_left_larger = below > n / 2;
        waiting[n_waiting] = if is_left_larger { (start, middle) } else { (middle, end) };
        n_waiting += 1;
        (start, end) = if is_left_larger { (middle, end) } else { (start, middle) };
    }
}
