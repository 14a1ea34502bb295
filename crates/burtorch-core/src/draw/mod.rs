//! Random numbers by counter: each is a function of a seed, a round, a client, a purpose and its place in the sequence.
//!
//! Promises: the order in which clients or threads draw changes nothing; integers and subsets are unbiased; no heap call
//! after warm-up. Does not know the purpose of a draw.

mod subset;

pub use subset::Subset;

use std::ops::Range;

use crate::error::{Error, Result};
use crate::interrupt::ask_at;

/// The purpose of a draw: draws with different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Purpose {
    /// The choices of a compressor.
    Compression = 1,
    /// The samples of a batch.
    Sampling = 2,
    /// The choices of a method, such as whether a round is a full one.
    Method = 3,
    /// Synthetic data.
    Data = 4,
    /// The division of data among clients.
    Division = 5,
    /// The duration of work on a virtual clock.
    Delay = 6,
    /// Whether a client's work is lost.
    Dropout = 7,
    /// The numbers that a backward pass keeps.
    Backward = 8,
}

/// A sequence of random numbers: Philox4x64-10 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy
/// as 1, 2, 3"), with the seed as key and (block, round, client, purpose) as counter; or given numbers. In rounds above
/// 0, words and uniform numbers equal those of NumPy's `Philox(key=seed, counter=[2**64 - 1, round - 1, client,
/// purpose])`.
///
/// ```
/// use burtorch_core::draw::{Draw, Purpose};
/// let mut draw = Draw::new(7, 0, 3, Purpose::Sampling);
/// let again = Draw::new(7, 0, 3, Purpose::Sampling).word();
/// assert_eq!(draw.word(), again);
/// assert!(draw.below(10) < 10 && draw.uniform() < 1.0);
/// assert_eq!(Draw::of(&[0.5])?.below(6), 3);
/// # Ok::<(), burtorch_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Draw<'a> {
    key: u64,
    /// The counter of the next block.
    counter: [u64; 4],
    block: [u64; 4],
    /// Words of the block already used.
    taken: usize,
    given: Option<Given<'a>>,
}

/// Given numbers, used instead of random ones.
#[derive(Clone, Copy, Debug)]
struct Given<'a> {
    left: &'a [f64],
    /// How many given numbers are missing.
    missing: usize,
}

/// Multipliers and key increments of Philox4x64.
const MULTIPLIERS: [u64; 2] = [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157];
const INCREMENTS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B];

/// The two halves of a product, upper half first.
#[inline]
const fn wide_product(a: u64, b: u64) -> (u64, u64) {
    let product = a as u128 * b as u128;
    ((product >> 64) as u64, product as u64)
}

/// Ten rounds of Philox4x64 for several counters, which the CPU processes in parallel.
#[inline]
fn philox<const N: usize>(mut key: [u64; 2], mut counters: [[u64; 4]; N]) -> [[u64; 4]; N] {
    for _ in 0..10 {
        for c in &mut counters {
            let (high0, low0) = wide_product(MULTIPLIERS[0], c[0]);
            let (high1, low1) = wide_product(MULTIPLIERS[1], c[2]);
            *c = [high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0];
        }
        key = [key[0].wrapping_add(INCREMENTS[0]), key[1].wrapping_add(INCREMENTS[1])];
    }
    counters
}

impl<'a> Draw<'a> {
    /// The sequence of a client in a round.
    pub const fn new(seed: u64, round: u64, client: u64, purpose: Purpose) -> Self {
        Draw { key: seed, counter: [0, round, client, purpose as u64], block: [0; 4], taken: 4, given: None }
    }

    /// A sequence that begins with these numbers, each at least 0 and below 1; [`Draw::check`] says whether they were enough.
    ///
    /// With `uniforms` at (i + 1/2)/n, for all i below n, the integers below n come out one by one: so all outcomes of a
    /// random choice can be listed.
    pub fn of(uniforms: &'a [f64]) -> Result<Self> {
        if let Some(wrong) = uniforms.iter().find(|u| !(0.0..1.0).contains(*u)) {
            return Err(Error::BadArgument {
                what: "a given draw",
                expected: "at least 0 and below 1".into(),
                found: format!("{wrong}"),
            });
        }
        Ok(Draw { given: Some(Given { left: uniforms, missing: 0 }), ..Draw::new(0, 0, 0, Purpose::Compression) })
    }

    /// The sequence that all clients share, from its beginning; `None` if the numbers are given.
    pub fn shared(&self) -> Option<Draw<'a>> {
        let [_, round, _, purpose] = self.counter;
        let counter = [0, round, u64::MAX, purpose];
        self.given.is_none().then_some(Draw { counter, taken: 4, ..*self })
    }

    /// The sequence of one part of a sample, from its beginning. Given numbers are the same for all parts.
    pub fn part(&self, sample: u64, part: u32) -> Draw<'a> {
        let [_, round, client, purpose] = self.counter;
        let counter = [u64::from(part) << 32, round, client, purpose | (sample + 1) << 8];
        Draw { counter, taken: 4, ..*self }
    }

    /// An error if more numbers were drawn than were given.
    pub fn check(&self) -> Result<()> {
        match self.given {
            Some(Given { missing, .. }) if missing > 4 - self.taken => Err(Error::BadArgument {
                what: "the given draws",
                expected: "at least as many numbers as draws".into(),
                found: "too few".into(),
            }),
            _ => Ok(()),
        }
    }

    #[cold]
    fn refill_given(&mut self, given: Given<'a>) {
        let (now, left) = given.left.split_at(given.left.len().min(4));
        for (word, &u) in self.block.iter_mut().zip(now) {
            // In the middle of the interval of words for which `uniform` returns this number.
            *word = ((u * 2f64.powi(64)) as u64).saturating_add(1 << 10);
        }
        // Once a number is missing, no given number is left.
        self.given = Some(Given { left, missing: given.missing + 4 - now.len() });
    }

    /// The next 64 bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        if self.taken == 4 {
            self.refill();
        }
        self.taken += 1;
        self.block[self.taken - 1]
    }

    /// Not inlined, so that [`Draw::word`] can be.
    #[inline(never)]
    fn refill(&mut self) {
        [self.block] = philox([self.key, 0], [self.counter]);
        self.counter[0] = self.counter[0].wrapping_add(1);
        self.taken = 0;
        if let Some(given) = self.given {
            self.refill_given(given);
        }
    }

    /// A number in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.word() >> 11) as f64 * 2f64.powi(-53)
    }

    /// Whether an event of probability `p` happens.
    #[inline]
    pub fn happens(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// An integer below `n`, each with the same probability (Lemire 2019, "Fast random integer generation in an interval"); 0
    /// where `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        let (mut high, mut low) = wide_product(self.word(), n);
        if low < n {
            let least = n.wrapping_neg() % n;
            while low < least {
                (high, low) = wide_product(self.word(), n);
            }
        }
        high
    }

    /// Calls `with` for each n of a range with n and [`Draw::below`]`(n + 1)`, in order.
    #[inline]
    pub(crate) fn each_up_to(&mut self, range: Range<usize>, mut with: impl FnMut(usize, usize)) {
        let mut at = range.start;
        // Two blocks at a time, unless a draw may have to be repeated.
        while self.taken == 4 && self.given.is_none() && range.end - at >= 8 {
            let [first, mut second] = [self.counter; 2];
            second[0] = second[0].wrapping_add(1);
            let blocks = philox([self.key, 0], [first, second]);
            let words = blocks.as_flattened();
            let drawn: [_; 8] = std::array::from_fn(|k| wide_product(words[k], (at + k) as u64 + 1));
            if drawn.iter().enumerate().any(|(k, (_, low))| *low <= (at + k) as u64) {
                break;
            }
            self.counter[0] = self.counter[0].wrapping_add(2);
            drawn.iter().enumerate().for_each(|(k, (high, _))| with(at + k, *high as usize));
            at += 8;
        }
        (at..range.end).for_each(|n| with(n, self.below(n as u64 + 1) as usize));
    }

    /// A number of the standard normal distribution (Box and Muller 1958; one of the two is dropped).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Brings the first `n` entries of a random permutation of `entries` to the front (Fisher and Yates): the whole of it
    /// takes `entries.len() - 1` draws. An error if the work must end early, when only some are in place.
    pub fn permute<T>(&mut self, entries: &mut [T], n: usize) -> Result<()> {
        let len = entries.len();
        for k in 0..n.min(len.saturating_sub(1)) {
            ask_at(k)?;
            entries.swap(k, k + self.below((len - k) as u64) as usize);
        }
        Ok(())
    }
}
