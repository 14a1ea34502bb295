//! Random subsets without replacement, each with the same probability.
//!
//! Floyd's algorithm (Bentley and Floyd 1987, "A sample of brilliance") tests k times whether an index was chosen before.
//! Differences: 1. in small subsets, each index is compared with all others, without a branch, and its place is the number of
//! lower ones; 2. dense subsets are marked in a bitmap of n bits, which also gives them in order, without a sort; a second bitmap
//! marks its used words; 3. sparse ones are in a table of at most 4k entries, so that neither time nor memory depends on n.

use super::Draw;
use crate::error::{Error, Result};
use crate::interrupt::{ask_at, check, pieces};
use crate::memory::reserve_in;

/// A subset of the first n indices, and the memory that is reused for the next one.
///
/// ```
/// use burtorch_core::draw::{Draw, Purpose, Subset};
/// let mut subset = Subset::default();
/// let chosen = subset.draw(&mut Draw::new(0, 0, 0, Purpose::Sampling), 1_000_000, 3)?;
/// assert!(chosen.len() == 3 && chosen.is_sorted());
/// # Ok::<(), burtorch_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Subset {
    chosen: Vec<u32>,
    /// One bit per index, and one summary bit per word: all 0 between draws.
    bitmap: Vec<u64>,
    summary: Vec<u64>,
    /// The words of the bitmap that were used.
    used: Vec<u32>,
    table: Vec<u32>,
}

/// An empty entry of the table.
const FREE: u32 = u32::MAX;

/// The bitmap is used up to this ratio of all indices to chosen ones: 16 words per index, which are cheaper to scan
/// than a table with a sort.
const DENSE: usize = 1024;

/// The largest number of indices handled as a short list.
const FEW: usize = 16;

const WHAT: &str = "a random subset";

/// Makes `list` hold `n` equal entries; reuses its memory if it is large enough.
fn refill<T: Copy>(list: &mut Vec<T>, entry: T, n: usize) -> Result<()> {
    list.clear();
    reserve_in(list, n, WHAT)?;
    list.resize(n, entry);
    Ok(())
}

/// Makes `list` at least `n` long, filled with zeros.
fn refill_if_short(list: &mut Vec<u64>, n: usize) -> Result<()> {
    if list.len() < n { refill(list, 0, n) } else { Ok(()) }
}

/// Appends `first` plus the position of each set bit, in ascending order. Up to eight are written without an
/// unpredictable branch, so the list needs room for eight extra.
#[inline]
fn append_ones(mut word: u64, first: u32, to: &mut Vec<u32>) {
    let (n, before) = (word.count_ones() as usize, to.len());
    for _ in 0..8 {
        to.push(first + (word.trailing_zeros() & 63));
        word &= word.wrapping_sub(1);
    }
    while word != 0 {
        to.push(first + word.trailing_zeros());
        word &= word - 1;
    }
    to.truncate(before + n);
}

impl Subset {
    /// The subset drawn last, ascending.
    pub fn chosen(&self) -> &[u32] {
        &self.chosen
    }

    /// Swaps the list drawn last with another, whose memory the next draw reuses.
    pub fn swap(&mut self, list: &mut Vec<u32>) {
        std::mem::swap(&mut self.chosen, list);
    }

    /// Draws `k` of the first `n` indices; they come ascending. Takes k draws, O(k) time and memory (and the time of a sort
    /// where k is below n/1024).
    pub fn draw(&mut self, draw: &mut Draw<'_>, n: usize, k: usize) -> Result<&[u32]> {
        if k > n || u32::try_from(n).is_err() {
            return Err(Error::BadArgument {
                what: "the size of a subset",
                expected: format!("at most {n}, and that below 2^32"),
                found: k.to_string(),
            });
        }
        self.chosen.clear();
        reserve_in(&mut self.chosen, k, WHAT)?;
        if k <= FEW {
            self.few(draw, n, k);
        } else if n / DENSE <= k {
            self.dense(draw, n, k)?
        } else {
            self.sparse(draw, n, k)?
        }
        Ok(&self.chosen)
    }

    fn few(&mut self, draw: &mut Draw<'_>, n: usize, k: usize) {
        let mut found = [FREE; FEW];
        draw.each_up_to(n - k..n, |j, at| {
            let was_chosen = found.iter().fold(false, |any, &index| any | (index == at as u32));
            found[j - (n - k)] = if was_chosen { j as u32 } else { at as u32 };
        });
        self.chosen.resize(k, 0);
        for &index in &found[..k] {
            let lower = found.iter().map(|&other| u32::from(other < index)).sum::<u32>();
            self.chosen[lower as usize] = index;
        }
    }

    fn dense(&mut self, draw: &mut Draw<'_>, n: usize, k: usize) -> Result<()> {
        refill_if_short(&mut self.bitmap, n.div_ceil(64))?;
        refill_if_short(&mut self.summary, n.div_ceil(64 * 64))?;
        self.used.clear();
        reserve_in(&mut self.used, k + 8, WHAT)?;
        let drawn = self.mark_and_read(draw, n, k);
        if drawn.is_err() {
            // The next draw needs bitmaps of zeros.
            self.bitmap.clear();
            self.summary.clear();
        }
        drawn
    }

    fn mark_and_read(&mut self, draw: &mut Draw<'_>, n: usize, k: usize) -> Result<()> {
        let Subset { bitmap, summary, used, chosen, .. } = self;
        for piece in pieces(k) {
            draw.each_up_to(n - k + piece.start..n - k + piece.end, |j, at| {
                let was_chosen = bitmap[at / 64] >> (at % 64) & 1 == 1;
                let at = if was_chosen { j } else { at };
                bitmap[at / 64] |= 1 << (at % 64);
                summary[at / (64 * 64)] |= 1 << (at / 64 % 64);
            });
        }
        check()?;
        // Words are cleared as they are read, so that the next draw visits only words that it sets.
        for (k, words) in summary.iter_mut().enumerate() {
            ask_at(64 * k)?;
            append_ones(std::mem::take(words), 64 * k as u32, used);
        }
        for (k, &word) in used.iter().enumerate() {
            ask_at(k)?;
            let mut ones = std::mem::take(&mut bitmap[word as usize]);
            while ones != 0 {
                chosen.push(64 * word + ones.trailing_zeros());
                ones &= ones - 1;
            }
        }
        Ok(())
    }

    fn sparse(&mut self, draw: &mut Draw<'_>, n: usize, k: usize) -> Result<()> {
        refill(&mut self.table, FREE, (2 * k).next_power_of_two())?;
        for j in n - k..n {
            ask_at(j - (n - k))?;
            let at = draw.below(j as u64 + 1) as u32;
            let at = if self.insert(at) { at } else { j as u32 };
            if at == j as u32 {
                self.insert(at);
            }
            self.chosen.push(at);
        }
        self.chosen.sort_unstable();
        Ok(())
    }

    /// Inserts an index; returns whether it was new.
    fn insert(&mut self, index: u32) -> bool {
        let mask = self.table.len() - 1;
        let mut place = (u64::from(index).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        loop {
            match self.table[place] {
                FREE => {
                    self.table[place] = index;
                    return true;
                }
                found if found == index => return false,
                _ => place = (place + 1) & mask,
            }
        }
    }
}
