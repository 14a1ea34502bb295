//! The message of a compressor: coordinates, and a number for each.

use super::number::Number;
use super::top::Candidates;
use crate::draw::Subset;
use crate::error::{Error, Result};
use crate::memory::reserve_in;

/// Which coordinates a message holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Support {
    /// No numbers: the message stands for zeros.
    #[default]
    None,
    /// All coordinates.
    All,
    /// Consecutive coordinates from this index on, wrapping to 0 at the end.
    Block(u32),
    /// The listed coordinates; the receiver derives them from the random draws.
    Drawn,
    /// The listed coordinates, which depend on the vector.
    Chosen,
}

/// How the numbers of a message are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Values {
    /// Full numbers.
    #[default]
    Exact,
    /// Zeros and powers of two: sign and exponent.
    Natural,
    /// Integers up to this one: sign and level.
    Levels(u16),
    /// Zeros and this many powers of two, from 1 down: sign and level.
    Powers(u16),
    /// 1 or -1: a sign.
    Signs,
}

/// A compressed vector. Its memory is used again by the next one.
///
/// Coordinate `index(k)` is `unit` times number `k`; the others are 0.
#[derive(Clone, Debug, Default)]
pub struct Message<F> {
    pub(super) len: usize,
    pub(super) support: Support,
    pub(super) indices: Vec<u32>,
    pub(super) values: Values,
    pub(super) unit: F,
    pub(super) numbers: Vec<F>,
    pub(super) work: Work<F>,
}

/// Memory for choosing coordinates.
#[derive(Clone, Debug, Default)]
pub(super) struct Work<F> {
    pub(super) subset: Subset,
    pub(super) order: Vec<u32>,
    pub(super) candidates: Candidates<F>,
}

impl<F: Number> PartialEq for Message<F> {
    /// Bit by bit: NaN equals itself.
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && (self.support, self.values, self.unit.bits()) == (other.support, other.values, other.unit.bits())
            && self.indices == other.indices
            && self.numbers.iter().map(|x| x.bits()).eq(other.numbers.iter().map(|x| x.bits()))
    }
}

pub(super) const WHAT: &str = "a compressed vector";

impl<F: Number> Message<F> {
    /// An empty message, of a vector without numbers.
    pub fn new() -> Self {
        let mut message = Message::default();
        message.clear();
        message
    }

    /// The length of the represented vector.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the represented vector is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Numbers it holds.
    pub fn n_sent(&self) -> usize {
        self.numbers.len()
    }

    /// Which coordinates it holds.
    pub fn support(&self) -> Support {
        self.support
    }

    /// How its numbers are encoded.
    pub fn encoding(&self) -> Values {
        self.values
    }

    /// The coordinate of number `k`, which is below [`Message::n_sent`].
    #[inline]
    pub fn index(&self, k: usize) -> usize {
        match self.support {
            Support::None | Support::All => k,
            Support::Block(start) => {
                let index = start as usize + k;
                if index < self.len { index } else { index - self.len }
            }
            Support::Drawn | Support::Chosen => self.indices[k] as usize,
        }
    }

    /// The sent coordinates and their numbers.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (usize, F)> {
        self.numbers.iter().enumerate().map(|(k, &number)| (self.index(k), self.unit * number))
    }

    /// Writes the represented vector.
    pub fn write_to(&self, out: &mut [F]) -> Result<()> {
        self.check_len(out.len())?;
        out.fill(F::default());
        for (index, x) in self.entries() {
            out[index] = x;
        }
        Ok(())
    }

    /// Adds `scale` times the represented vector; the cost is linear in the sent numbers.
    pub fn add_to(&self, out: &mut [F], scale: F) -> Result<()> {
        self.check_len(out.len())?;
        for (index, x) in self.entries() {
            out[index] = out[index] + scale * x;
        }
        Ok(())
    }

    /// Replaces the message's numbers, when they are sent unquantised ([`super::Compressor::sends_numbers`]), by
    /// `with(index, number)`.
    pub(crate) fn replace(&mut self, with: impl Fn(usize, F) -> F) {
        for k in 0..self.numbers.len() {
            self.numbers[k] = with(self.index(k), self.unit * self.numbers[k]);
        }
    }

    /// Swaps the memory for choosing coordinates with another message.
    pub(crate) fn swap_work(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.work, &mut other.work);
    }

    /// Theoretical bits for coordinates and numbers, by the formula of docs/compression.md. Coordinates that follow
    /// from draws are free, since the receiver can repeat the draws.
    pub fn bits(&self) -> f64 {
        let n = self.numbers.len() as f64;
        let places = match self.support {
            Support::Chosen => (n * f64::from(index_width(self.len))).min(self.len as f64),
            _ => 0.0,
        };
        let unit = if matches!(self.values, Values::Exact | Values::Natural) { 0.0 } else { f64::from(F::BITS) };
        places + if n == 0.0 { 0.0 } else { unit + n * f64::from(self.width()) }
    }

    /// Bits of an encoded number.
    pub(super) fn width(&self) -> u32 {
        match self.values {
            Values::Exact => F::BITS,
            Values::Natural => F::BITS - F::MANTISSA,
            Values::Levels(most) | Values::Powers(most) => 1 + (u16::BITS - most.leading_zeros()),
            Values::Signs => 1,
        }
    }

    /// Starts a message for a vector of length `len`, with room for `n_sent` numbers.
    pub(super) fn begin(&mut self, len: usize, support: Support, n_sent: usize) -> Result<()> {
        self.clear();
        reserve_in(&mut self.numbers, n_sent, WHAT)?;
        if !matches!(support, Support::Drawn | Support::Chosen) {
            self.indices.clear();
        }
        (self.len, self.support) = (len, support);
        Ok(())
    }

    /// Makes the message represent an empty vector. The caller fills the list of indices.
    pub(super) fn clear(&mut self) {
        (self.len, self.support, self.values) = (0, Support::None, Values::Exact);
        self.unit = F::from_f64(1.0);
        self.numbers.clear();
    }

    fn check_len(&self, have: usize) -> Result<()> {
        if have == self.len {
            return Ok(());
        }
        Err(Error::LengthMismatch { op: "decompress", left: self.len, right: have })
    }
}

/// Bits of an index less than `len`.
pub(super) fn index_width(len: usize) -> u32 {
    usize::BITS - len.saturating_sub(1).leading_zeros()
}
