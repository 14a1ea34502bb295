//! The largest numbers of a vector.
//!
//! The simple algorithm sorts all magnitudes. Departures: 1. a sample of a long vector gives a magnitude that a few more than k
//! numbers reach, and one pass at the speed of memory finds these, 32 at a time; a misleading sample costs a second pass over
//! all nonzero numbers. 2. All numbers are compared with magnitudes that narrow the range of the k-th one, 8 numbers at a
//! time: in turn with one that about k reach if magnitudes are spread evenly, and with the middle of the range.

use super::number::Number;
use crate::error::{Error, Result};
use crate::interrupt::{PIECE, ask_at};
use crate::kernels;
use crate::memory::reserve_in;
use crate::simd::REACH;

const WHAT: &str = "the largest numbers of a vector";

/// Numbers that are sampled.
const SAMPLE: usize = 4096;
/// Chunks that are listed together.
const LISTED: usize = 16;
/// Neighbours that are sampled together, in a line of the cache.
const NEIGHBOURS: usize = 8;
/// Numbers that are large enough to be looked at again, ascending by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates<F> {
    indices: Vec<u32>,
    numbers: Vec<F>,
}

/// Writes the indices of the `k` numbers with the largest magnitudes, ascending; of equal ones those with the lowest indices.
/// `k` is at least 1 and at most the numbers there are. An error if one is NaN; infinities come first.
pub(super) fn largest<F: Number>(x: &[F], k: usize, candidates: &mut Candidates<F>, out: &mut Vec<u32>) -> Result<()> {
    out.clear();
    reserve_in(out, k, WHAT)?;
    if x.len() < 4 * SAMPLE {
        choose(x, k, F::INFINITE / 2, out)?;
        check(x, out)?;
    } else {
        let guess = Guess::new(x, k);
        candidates.collect(x, guess.least, guess.most)?;
        if candidates.indices.len() < k && guess.least > 1 {
            candidates.collect(x, 1, k)?;
        }
        if candidates.indices.len() < k {
            check(x, &candidates.indices)?;
            with_zeros(x, k - candidates.indices.len(), &candidates.indices, out);
        } else {
            choose(&candidates.numbers, k, guess.near, out)?;
            out.iter_mut().for_each(|i| *i = candidates.indices[*i as usize]);
            // Without infinities there is no NaN.
            if reaching(&candidates.numbers, F::INFINITE)? > 0 {
                check(x, out)?;
            }
        }
    }
    Ok(())
}

/// An error if one of these is NaN.
fn check<F: Number>(x: &[F], places: &[u32]) -> Result<()> {
    match places.iter().find(|&&i| x[i as usize].magnitude() > F::INFINITE) {
        Some(i) => Err(not_a_number(*i as usize)),
        None => Ok(()),
    }
}

/// How many numbers have at least this magnitude, which is above 0.
fn reaching<F: Number>(x: &[F], least: u64) -> Result<usize> {
    let counts = x.chunks(PIECE).enumerate().map(|(n, piece)| {
        ask_at(n * PIECE)?;
        Ok(kernels::count_reaching(piece, F::of_bits(least)).to_f64() as usize)
    });
    counts.sum()
}

/// Writes the places of the `k` with the largest magnitudes, of which about k reach `near`.
fn choose<F: Number>(x: &[F], k: usize, near: u64, out: &mut Vec<u32>) -> Result<()> {
    // At least k numbers reach `low`, and k or fewer `high`: so many do.
    let (mut low, mut high, mut at_low, mut at_high) = (0, F::INFINITE + 1, x.len(), 0);
    let (mut next, mut turn) = (near.clamp(1, F::INFINITE), 0);
    while high - low > 1 {
        let found = reaching(x, next)?;
        if found >= k {
            (low, at_low) = (next, found);
        }
        if found <= k {
            (high, at_high) = (next, found);
        }
        turn += 1;
        let share = if turn % 2 == 1 { (at_low - k) as f64 / (at_low - at_high).max(1) as f64 } else { 0.5 };
        next = (low + ((high - low) as f64 * share) as u64).clamp(low + 1, high.max(low + 2) - 1);
    }
    if high > F::INFINITE {
        at_high = x.iter().filter(|x| x.magnitude() >= high).count();
    }
    if at_high == k {
        return list_reaching(x, high, k, out);
    }
    let mut left = k.saturating_sub(at_high);
    for (i, x) in x.iter().enumerate() {
        let magnitude = x.magnitude();
        if magnitude >= high || magnitude == low && left > 0 {
            left -= usize::from(magnitude < high);
            out.push(i as u32);
        }
    }
    out.truncate(k);
    Ok(())
}

/// The error for a NaN.
pub fn not_a_number(index: usize) -> Error {
    Error::BadArgument {
        what: "a vector to compress",
        expected: "of numbers".into(),
        found: format!("NaN at index {index}"),
    }
}

/// What a sample of a long vector tells.
struct Guess {
    /// A magnitude that somewhat more than k numbers will reach, at least 1.
    least: u64,
    /// One that somewhat fewer than k will reach.
    near: u64,
    /// Hardly more numbers than these will reach `least`.
    most: usize,
}

impl Guess {
    fn new<F: Number>(x: &[F], k: usize) -> Guess {
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
            return Guess { least: 1, near: 1, most: x.len() };
        }
        let (top, &mut least, _) = sample.select_nth_unstable_by(rank, |a, b| b.cmp(a));
        let below = (expected - 4.0 * expected.sqrt() - 4.0).max(0.0) as usize;
        let (_, &mut near, _) = top.select_nth_unstable_by(below, |a, b| b.cmp(a));
        let most = above(rank as f64) / SAMPLE as f64 * x.len() as f64;
        Guess { least: least.max(1), near, most: most as usize }
    }
}

impl<F: Number> Candidates<F> {
    /// Lists the numbers of at least this magnitude, of which `expected` are likely enough.
    fn collect(&mut self, x: &[F], least: u64, expected: usize) -> Result<()> {
        list_reaching(x, least, expected, &mut self.indices)?;
        self.numbers.clear();
        reserve_in(&mut self.numbers, self.indices.len(), WHAT)?;
        self.numbers.extend(self.indices.iter().map(|&i| x[i as usize]));
        Ok(())
    }
}

/// Makes `out` the places of the numbers of at least this magnitude, of which `expected` are likely enough.
fn list_reaching<F: Number>(x: &[F], least: u64, expected: usize, out: &mut Vec<u32>) -> Result<()> {
    out.clear();
    let (chunks, rest) = x.as_chunks::<REACH>();
    reserve_in(out, (expected + LISTED * REACH).min(x.len()), WHAT)?;
    for (k, some) in chunks.chunks(LISTED).enumerate() {
        ask_at(k * LISTED * REACH)?;
        reserve_in(out, some.len() * REACH, WHAT)?;
        F::list(some, least, (k * LISTED * REACH) as u32, out);
    }
    reserve_in(out, rest.len(), WHAT)?;
    let last = rest.iter().zip(x.len() - rest.len()..).filter(|(x, _)| x.magnitude() >= least);
    out.extend(last.map(|(_, place)| place as u32));
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
