//! The largest numbers of a vector.
//!
//! The simple algorithm sorts all magnitudes. Departures: 1. a sample of a long vector gives a magnitude that a few more than k
//! numbers reach, and one pass at the speed of memory copies these, 32 at a time; a misleading sample costs a second pass over
//! all nonzero numbers. 2. Whole numbers are compared with magnitudes that narrow the range of the k-th one, 8 numbers at a
//! time: with one that about k reach if magnitudes are spread evenly, and each fourth time with the middle of the range.

use super::number::Number;
use crate::error::{Error, Result};
use crate::interrupt::{PIECE, ask_at};
use crate::kernels;
use crate::memory::reserve_in;
use crate::simd::{Places, REACH};

const WHAT: &str = "the largest numbers of a vector";

/// Size of the sample.
const SAMPLE: usize = 4096;
/// Chunks processed together.
const LISTED: usize = 16;
/// Neighbours sampled together: one cache line.
const NEIGHBOURS: usize = 8;
/// At most one chunk in this many holds a listed number; then the branch is predictable.
const FEW: usize = 2;

/// The largest number of candidates between two magnitudes that are examined one by one.
const BAND: usize = 512;

/// Numbers that may be among the largest, ascending by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates<F> {
    indices: Vec<u32>,
    numbers: Vec<F>,
}

/// Writes the `k` numbers with the largest magnitudes and their indices to `out`, ascending; ties go to the lowest
/// index. `k` is from 1 to the length. Fails if a number is NaN; infinities are the largest.
pub(super) fn largest<F: Number>(
    x: &[F],
    k: usize,
    candidates: &mut Candidates<F>,
    mut out: Chosen<'_, F>,
) -> Result<()> {
    out.clear();
    if x.len() < 4 * SAMPLE {
        choose(x, None, k, (0, F::INFINITE / 2), &mut out)?;
        return out.check();
    }
    let guess = Guess::new(x, k);
    let mut least = guess.least;
    candidates.collect(x, least, guess.most)?;
    if candidates.indices.len() < k && least > 1 {
        least = 1;
        candidates.collect(x, least, k)?;
    }
    let Candidates { indices, numbers } = candidates;
    if indices.len() < k {
        out.reserve(k)?;
        with_zeros(x, k - indices.len(), indices, out.indices);
        out.numbers.extend(out.indices.iter().map(|&i| x[i as usize]));
    } else {
        choose(numbers, Some(indices), k, (least, guess.near), &mut out)?;
    }
    out.check()
}

/// The destination of chosen numbers and their indices.
pub(super) struct Chosen<'a, F> {
    pub(super) indices: &'a mut Vec<u32>,
    pub(super) numbers: &'a mut Vec<F>,
}

impl<F: Number> Chosen<'_, F> {
    fn clear(&mut self) {
        self.indices.clear();
        self.numbers.clear();
    }

    fn reserve(&mut self, n: usize) -> Result<()> {
        reserve_in(self.indices, n, WHAT)?;
        reserve_in(self.numbers, n, WHAT)
    }

    fn push(&mut self, index: u32, number: F) {
        self.indices.push(index);
        self.numbers.push(number);
    }

    /// Fails if a number is NaN.
    fn check(&self) -> Result<()> {
        // Without infinities there is no NaN.
        if reaching(self.numbers, F::INFINITE)? == 0 {
            return Ok(());
        }
        let wrong = self.numbers.iter().zip(&*self.indices).find(|(x, _)| x.magnitude() > F::INFINITE);
        wrong.map_or(Ok(()), |(_, &index)| Err(not_a_number(index as usize)))
    }
}

/// The number of entries whose magnitude is at least `least`, which is above 0.
fn reaching<F: Number>(x: &[F], least: u64) -> Result<usize> {
    let counts = x.chunks(PIECE).enumerate().map(|(n, piece)| {
        ask_at(n * PIECE)?;
        Ok(kernels::count_reaching(piece, F::of_bits(least)).to_f64() as usize)
    });
    counts.sum()
}

/// Lists the `k` numbers with the largest magnitudes; all numbers reach `least`, and about k `near`. `places` holds their
/// indices, `None` for consecutive ones.
fn choose<F: Number>(
    x: &[F],
    places: Option<&[u32]>,
    k: usize,
    (least, near): (u64, u64),
    out: &mut Chosen<'_, F>,
) -> Result<()> {
    let (low, high, at_high) = narrowed(x, k, (least, near))?;
    if at_high == k {
        return list_reaching(x, places, high, k, out);
    }
    out.reserve(k)?;
    let mut left = k.saturating_sub(at_high);
    for (i, &number) in x.iter().enumerate() {
        let magnitude = number.magnitude();
        if magnitude >= high || magnitude == low && left > 0 {
            left -= usize::from(magnitude < high);
            out.push(places.map_or(i as u32, |places| places[i]), number);
        }
    }
    out.indices.truncate(k);
    out.numbers.truncate(k);
    Ok(())
}

/// Finds two magnitudes: at least k numbers reach the lower, at most k the upper; unless exactly k reach both, all
/// numbers in between are equal. Also returns how many reach the upper. All reach `least`, about k `near`.
fn narrowed<F: Number>(x: &[F], k: usize, (least, near): (u64, u64)) -> Result<(u64, u64, usize)> {
    let (mut low, mut high, mut at_low, mut at_high) = (least.min(F::INFINITE), F::INFINITE + 1, x.len(), 0);
    let (mut next, mut turn) = (near.clamp(1, F::INFINITE), 0);
    while high - low > 1 {
        if high <= F::INFINITE && at_low - at_high <= BAND {
            return within(x, k, (low, high), at_high);
        }
        let found = reaching(x, next)?;
        if found >= k {
            (low, at_low) = (next, found);
        }
        if found <= k {
            (high, at_high) = (next, found);
        }
        let n = (at_low - at_high).max(1) as f64;
        // A little too far for the bound that is further off, so that both converge; sometimes the middle.
        let margin = if at_low - k > k - at_high { -n.sqrt() } else { n.sqrt() };
        let rank = (at_low - k) as f64 + margin;
        let share = if turn % 4 < 3 { (rank / n).clamp(0.0, 1.0) } else { 0.5 };
        turn += 1;
        next = (low + ((high - low) as f64 * share) as u64).clamp(low + 1, high.max(low + 2) - 1);
    }
    if high > F::INFINITE {
        at_high = x.iter().filter(|x| x.magnitude() >= high).count();
    }
    Ok((low, high, at_high))
}

/// The same when `at_high` numbers, at most k, reach the upper magnitude, and few lie between the two.
fn within<F: Number>(x: &[F], k: usize, (low, high): (u64, u64), at_high: usize) -> Result<(u64, u64, usize)> {
    if at_high == k {
        return Ok((low, high, k));
    }
    let mut between = [0; BAND];
    let mut n = 0;
    let mut put = |x: F| {
        between[n] = x.magnitude();
        n += 1;
    };
    let (chunks, rest) = x.as_chunks::<REACH>();
    for (c, chunk) in chunks.iter().enumerate() {
        ask_at(c * REACH)?;
        let mut found = F::reach(chunk, low) & !F::reach(chunk, high);
        while found != 0 {
            put(chunk[found.trailing_zeros() as usize]);
            found &= found - 1;
        }
    }
    rest.iter().filter(|x| (low..high).contains(&x.magnitude())).for_each(|&x| put(x));
    let between = &mut between[..n];
    let (larger, &mut least, _) = between.select_nth_unstable_by(k - at_high - 1, |a, b| b.cmp(a));
    let above = at_high + larger.iter().filter(|&&x| x > least).count();
    let reaching = at_high + between.iter().filter(|&&x| x >= least).count();
    Ok(if reaching == k { (least, least, k) } else { (least, least + 1, above) })
}

/// The error for a NaN.
pub fn not_a_number(index: usize) -> Error {
    Error::BadArgument {
        what: "a vector to compress",
        expected: "of numbers".into(),
        found: format!("NaN at index {index}"),
    }
}

/// Estimates from a sample of a long vector.
struct Guess {
    /// A magnitude that somewhat more than k numbers reach, at least 1.
    least: u64,
    /// A magnitude that somewhat fewer than k numbers reach.
    near: u64,
    /// An upper estimate of how many numbers reach `least`.
    most: usize,
}

impl Guess {
    fn new<F: Number>(x: &[F], k: usize) -> Guess {
        let mut sample = [0; SAMPLE];
        for (j, magnitudes) in sample.chunks_exact_mut(NEIGHBOURS).enumerate() {
            // The golden ratio spreads the sample, so that it does not align with a regular structure of the vector.
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
    /// Lists the numbers of at least this magnitude; `expected` is an estimate of their number.
    fn collect(&mut self, x: &[F], least: u64, expected: usize) -> Result<()> {
        let mut out = Chosen { indices: &mut self.indices, numbers: &mut self.numbers };
        out.clear();
        list_reaching(x, None, least, expected, &mut out)
    }
}

/// Appends the numbers of at least this magnitude; `expected` is an estimate of their number. `places` holds the
/// indices, `None` for consecutive numbers.
fn list_reaching<F: Number>(
    x: &[F],
    places: Option<&[u32]>,
    least: u64,
    expected: usize,
    out: &mut Chosen<'_, F>,
) -> Result<()> {
    let (chunks, rest) = x.as_chunks::<REACH>();
    out.reserve((expected + LISTED * REACH).min(x.len()))?;
    let few = expected * FEW < chunks.len();
    for (k, some) in chunks.chunks(LISTED).enumerate() {
        ask_at(k * LISTED * REACH)?;
        out.reserve(some.len() * REACH)?;
        let places = match places {
            Some(places) => Places::Listed(&places.as_chunks().0[k * LISTED..]),
            None => Places::From((k * LISTED * REACH) as u32),
        };
        F::list(some, least, (places, few), (out.indices, out.numbers));
    }
    out.reserve(rest.len())?;
    for (i, &number) in (x.len() - rest.len()..).zip(rest).filter(|(_, x)| x.magnitude() >= least) {
        out.push(places.map_or(i as u32, |places| places[i]), number);
    }
    Ok(())
}

/// All candidates, i.e. all nonzero numbers, and the first zeros.
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
