//! The largest numbers of a vector.
//!
//! The simple algorithm sorts all magnitudes. Departures: 1. a sample of the vector tells a magnitude that a few more than k
//! numbers reach, and one pass at the speed of memory finds these; 2. of them the k-th is found digit by digit, with counts of
//! 11 bits at a time. A sample that misleads costs a second pass over all numbers but zeros.

use super::number::Number;
use crate::error::{Error, Result};
use crate::interrupt::{PIECE, ask_at};
use crate::memory::reserve_in;

const WHAT: &str = "the largest numbers of a vector";

/// Numbers that are sampled.
const SAMPLE: usize = 2048;
/// Numbers that one test skips.
const CHUNK: usize = 32;
/// Bits of a digit.
const DIGIT: u32 = 11;

/// Writes the indices of the `k` numbers with the largest magnitudes, ascending; of equal ones those with the lowest indices.
/// `k` is at least 1 and at most the numbers there are. An error if one is NaN; infinities come first.
pub fn largest<F: Number>(x: &[F], k: usize, candidates: &mut Vec<u32>, out: &mut Vec<u32>) -> Result<()> {
    out.clear();
    reserve_in(out, k, WHAT)?;
    let least = guess(x, k);
    collect(x, least, candidates, 2 * k)?;
    if candidates.len() < k && least > 1 {
        collect(x, 1, candidates, k)?;
    }
    if candidates.len() < k {
        with_zeros(x, k - candidates.len(), candidates, out);
    } else {
        of_candidates(x, k, candidates, out)?;
    }
    match out.iter().find(|&&i| x[i as usize].magnitude() > F::INFINITE) {
        Some(i) => Err(not_a_number(*i as usize)),
        None => Ok(()),
    }
}

/// The error for a NaN.
pub fn not_a_number(index: usize) -> Error {
    Error::BadArgument {
        what: "a vector to compress",
        expected: "of numbers".into(),
        found: format!("NaN at index {index}"),
    }
}

/// A magnitude that somewhat more than `k` numbers will reach, at least 1.
fn guess<F: Number>(x: &[F], k: usize) -> u64 {
    if x.len() < 4 * SAMPLE {
        return 1;
    }
    let mut sample = [0; SAMPLE];
    for (j, magnitude) in sample.iter_mut().enumerate() {
        // The golden ratio spreads the places, so that no regular structure is met at the same places only.
        let place = (j as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        *magnitude = x[(u128::from(place) * x.len() as u128 >> 64) as usize].magnitude();
    }
    let expected = SAMPLE as f64 * k as f64 / x.len() as f64;
    let rank = (expected + 4.0 * expected.sqrt() + 8.0) as usize;
    if rank >= SAMPLE {
        return 1;
    }
    let (_, at_rank, _) = sample.select_nth_unstable_by(rank, |a, b| b.cmp(a));
    (*at_rank).max(1)
}

/// Lists the numbers of at least this magnitude; there will be about `expected`.
fn collect<F: Number>(x: &[F], least: u64, out: &mut Vec<u32>, expected: usize) -> Result<()> {
    out.clear();
    reserve_in(out, expected.min(x.len()), WHAT)?;
    for (c, chunk) in x.chunks(CHUNK).enumerate() {
        if (c * CHUNK).is_multiple_of(8 * PIECE) {
            ask_at(c * CHUNK)?;
        }
        if !F::any_reaches(chunk, least) {
            continue;
        }
        let (mut found, mut n) = ([0; CHUNK], 0);
        for (j, x) in chunk.iter().enumerate() {
            found[n % CHUNK] = (c * CHUNK + j) as u32;
            n += usize::from(x.magnitude() >= least);
        }
        reserve_in(out, n, WHAT)?;
        out.extend_from_slice(&found[..n]);
    }
    Ok(())
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

/// The `k` largest of the candidates.
fn of_candidates<F: Number>(x: &[F], k: usize, candidates: &[u32], out: &mut Vec<u32>) -> Result<()> {
    let magnitude = |i: u32| x[i as usize].magnitude();
    // The digits of the k-th magnitude that are known, which they are, and how many numbers to take that agree with them.
    let (mut prefix, mut known, mut left) = (0, 0, k);
    let mut shift = F::BITS - 1;
    while shift > 0 {
        let width = DIGIT.min(shift);
        shift -= width;
        let mut counts = [0usize; 1 << DIGIT];
        for (n, &i) in candidates.iter().enumerate() {
            ask_at(n)?;
            let m = magnitude(i);
            counts[(m >> shift) as usize % (1 << width)] += usize::from(m & known == prefix);
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
    // Those above all agree with more: take them, and the first of those that agree.
    for &i in candidates {
        let m = magnitude(i) & known;
        if m > prefix || m == prefix && left > 0 {
            left -= usize::from(m == prefix);
            out.push(i);
        }
    }
    Ok(())
}
