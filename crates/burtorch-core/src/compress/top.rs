//! The largest numbers of a vector.
//!
//! The simple algorithm sorts all magnitudes. Departures: 1. a sample of the vector tells a magnitude that a few more than k
//! numbers reach, and one pass at the speed of memory finds these, 32 at a time; 2. of them the k-th is found digit by digit,
//! with counts of 11 bits at a time. A sample that misleads costs a second pass over all numbers but zeros. 3. Short vectors are
//! compared as a whole with magnitudes that halve the range the k-th is in: some 18 passes over them, 8 numbers at a time.

use super::number::Number;
use crate::error::{Error, Result};
use crate::interrupt::{PIECE, ask_at};
use crate::kernels;
use crate::memory::reserve_in;
use crate::simd::REACH;

const WHAT: &str = "the largest numbers of a vector";

/// Numbers that are sampled.
const SAMPLE: usize = 4096;
/// Neighbours that are sampled together, in a line of the cache.
const NEIGHBOURS: usize = 8;
/// Bits of a digit.
const DIGIT: u32 = 11;

/// Numbers that are large enough to be looked at again, ascending by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    indices: Vec<u32>,
    magnitudes: Vec<u64>,
}

/// Writes the indices of the `k` numbers with the largest magnitudes, ascending; of equal ones those with the lowest indices.
/// `k` is at least 1 and at most the numbers there are. An error if one is NaN; infinities come first.
pub(super) fn largest<F: Number>(x: &[F], k: usize, candidates: &mut Candidates, out: &mut Vec<u32>) -> Result<()> {
    out.clear();
    reserve_in(out, k, WHAT)?;
    if x.len() < 4 * SAMPLE {
        of_few(x, k, out);
    } else {
        let (least, expected) = guess(x, k);
        candidates.collect(x, least, expected)?;
        if candidates.indices.len() < k && least > 1 {
            candidates.collect(x, 1, k)?;
        }
        if candidates.indices.len() < k {
            with_zeros(x, k - candidates.indices.len(), &candidates.indices, out);
        } else {
            candidates.largest::<F>(k, out)?;
        }
    }
    match out.iter().find(|&&i| x[i as usize].magnitude() > F::INFINITE) {
        Some(i) => Err(not_a_number(*i as usize)),
        None => Ok(()),
    }
}

/// The same of a short vector.
fn of_few<F: Number>(x: &[F], k: usize, out: &mut Vec<u32>) {
    // At least k numbers reach `low`, and fewer, `above`, reach `high`.
    let (mut low, mut high, mut above) = (0, F::INFINITE + 1, 0);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let found = kernels::count_reaching(x, F::of_bits(middle)).to_f64() as usize;
        if found >= k {
            low = middle;
        }
        if found <= k {
            (high, above) = (middle, found);
        }
    }
    if high > F::INFINITE {
        above = x.iter().filter(|x| x.magnitude() >= high).count();
    }
    let mut left = k.saturating_sub(above);
    for (i, x) in x.iter().enumerate() {
        let magnitude = x.magnitude();
        if magnitude >= high || magnitude == low && left > 0 {
            left -= usize::from(magnitude < high);
            out.push(i as u32);
        }
    }
    out.truncate(k);
}

/// The error for a NaN.
pub fn not_a_number(index: usize) -> Error {
    Error::BadArgument {
        what: "a vector to compress",
        expected: "of numbers".into(),
        found: format!("NaN at index {index}"),
    }
}

/// A magnitude that somewhat more than `k` numbers of a long vector will reach, at least 1, and a number that hardly more will be.
fn guess<F: Number>(x: &[F], k: usize) -> (u64, usize) {
    let mut sample = [0; SAMPLE];
    for (j, magnitudes) in sample.chunks_exact_mut(NEIGHBOURS).enumerate() {
        // The golden ratio spreads the places, so that no regular structure is met at the same places only.
        let place = (j as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let start = ((u128::from(place) * (x.len() - NEIGHBOURS) as u128) >> 64) as usize;
        magnitudes.iter_mut().zip(&x[start..]).for_each(|(magnitude, x)| *magnitude = x.magnitude());
    }
    let expected = SAMPLE as f64 * k as f64 / x.len() as f64;
    let above = |n: f64| n + 4.0 * n.sqrt() + 4.0;
    let rank = above(expected) as usize;
    if rank >= SAMPLE {
        return (1, x.len());
    }
    let (_, at_rank, _) = sample.select_nth_unstable_by(rank, |a, b| b.cmp(a));
    let most = above(rank as f64) / SAMPLE as f64 * x.len() as f64;
    ((*at_rank).max(1), most as usize)
}

impl Candidates {
    /// Lists the numbers of at least this magnitude, of which `expected` are likely enough.
    fn collect<F: Number>(&mut self, x: &[F], least: u64, expected: usize) -> Result<()> {
        self.indices.clear();
        self.magnitudes.clear();
        self.reserve(expected.min(x.len()) + REACH)?;
        let (chunks, rest) = x.as_chunks();
        for (c, chunk) in chunks.iter().enumerate() {
            ask_at(c)?;
            let mut found = F::reach(chunk, least);
            if found != 0 {
                self.reserve(REACH)?;
            }
            while found != 0 {
                let j = found.trailing_zeros() as usize;
                self.push(c * REACH + j, chunk[j]);
                found &= found - 1;
            }
        }
        self.reserve(REACH)?;
        for (j, &x) in rest.iter().enumerate().filter(|(_, x)| x.magnitude() >= least) {
            self.push(chunks.len() * REACH + j, x);
        }
        Ok(())
    }

    fn push<F: Number>(&mut self, index: usize, x: F) {
        self.indices.push(index as u32);
        self.magnitudes.push(x.magnitude());
    }

    fn reserve(&mut self, n: usize) -> Result<()> {
        reserve_in(&mut self.indices, n, WHAT)?;
        reserve_in(&mut self.magnitudes, n, WHAT)
    }

    /// The indices of the `k` largest.
    fn largest<F: Number>(&self, k: usize, out: &mut Vec<u32>) -> Result<()> {
        // The digits of the k-th magnitude that are known, which they are, and how many numbers to take that agree with them.
        let (mut prefix, mut known, mut left) = (0, 0, k);
        let mut shift = F::BITS - 1;
        while shift > 0 {
            let width = DIGIT.min(shift);
            shift -= width;
            let mut counts = [0usize; 1 << DIGIT];
            for (n, piece) in self.magnitudes.chunks(PIECE).enumerate() {
                ask_at(n * PIECE)?;
                for m in piece {
                    counts[(m >> shift) as usize % (1 << width)] += usize::from(m & known == prefix);
                }
            }
            let mut digit = (1 << width) - 1;
            while counts[digit] < left {
                left -= counts[digit];
                digit -= 1;
            }
            prefix |= (digit as u64) << shift;
            known |= ((1 << width) - 1) << shift;
            if counts[digit] == left {
                break;
            }
        }
        // Take those above, and the first of those that agree.
        for (&i, m) in self.indices.iter().zip(&self.magnitudes) {
            let m = m & known;
            if m > prefix || m == prefix && left > 0 {
                left -= usize::from(m == prefix);
                out.push(i);
            }
        }
        Ok(())
    }
}

/// All candidates, which are all numbers but zeros, and the first zeros.
fn with_zeros<F: Number>(x: &[F], n_zeros: usize, candidates: &[u32], out: &mut Vec<u32>) {
    let mut rest = candidates.iter().copied().peekable();
    let mut zeros = (0..x.len() as u32).filter(|&i| x[i as usize].magnitude() == 0).take(n_zeros).peekable();
    while let Some(&i) = match (rest.peek(), zeros.peek()) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    } {
        if rest.next_if_eq(&i).is_none() {
            zeros.next();
        }
        out.push(i);
    }
}
