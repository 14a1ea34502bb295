//! The message of a compressor: coordinates, and a number for each.

use super::number::Number;
use super::top::Candidates;
use crate::draw::Subset;
use crate::error::{Error, Result};
use crate::memory::reserve_in;

/// Which coordinates a message holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Support {
    /// None: the message stands for zeros.
    #[default]
    None,
    /// All.
    All,
    /// Neighbouring ones from this place on, going on at 0 after the last.
    Block(u32),
    /// Those in the list, which follow from the draws.
    Drawn,
    /// Those in the list, which follow from the vector.
    Chosen,
}

/// How the numbers of a message are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Values {
    /// As they are.
    #[default]
    Exact,
    /// Zeros and powers of two: sign and exponent.
    Natural,
    /// Integers up to this one: sign and level.
    Levels(u16),
    /// Zeros and powers of two from 1 down, so many: sign and level.
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

    /// Numbers of the vector it stands for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it stands for a vector without numbers.
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

    /// The coordinates it holds and what they are.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (usize, F)> {
        self.numbers.iter().enumerate().map(|(k, &number)| (self.index(k), self.unit * number))
    }

    /// Writes the vector it stands for.
    pub fn write_to(&self, out: &mut [F]) -> Result<()> {
        self.check_len(out.len())?;
        out.fill(F::default());
        for (index, x) in self.entries() {
            out[index] = x;
        }
        Ok(())
    }

    /// Adds `scale` times the vector it stands for; costs as much as it holds numbers.
    pub fn add_to(&self, out: &mut [F], scale: F) -> Result<()> {
        self.check_len(out.len())?;
        for (index, x) in self.entries() {
            out[index] = out[index] + scale * x;
        }
        Ok(())
    }

    /// Replaces the numbers it holds, where they are sent as they are ([`super::Compressor::sends_numbers`]), by what `with`
    /// makes of their places and of them.
    pub(crate) fn replace(&mut self, with: impl Fn(usize, F) -> F) {
        for k in 0..self.numbers.len() {
            self.numbers[k] = with(self.index(k), self.unit * self.numbers[k]);
        }
    }

    /// Exchanges the memory for choosing coordinates with that of another message.
    pub(crate) fn swap_work(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.work, &mut other.work);
    }

    /// Bits by theory: what coordinates and numbers need, in the formula of docs/compression.md. Coordinates that follow from
    /// draws are free, since the receiver can repeat the draws.
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

    /// Begins the message of a vector of `len` numbers, with room for `n_sent` of them.
    pub(super) fn begin(&mut self, len: usize, support: Support, n_sent: usize) -> Result<()> {
        self.clear();
        reserve_in(&mut self.numbers, n_sent, WHAT)?;
        if !matches!(support, Support::Drawn | Support::Chosen) {
            self.indices.clear();
        }
        (self.len, self.support) = (len, support);
        Ok(())
    }

    /// Makes it stand for a vector without numbers. The list of indices is left to whom it is written by.
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

/// Bits of an index below `len`.
pub(super) fn index_width(len: usize) -> u32 {
    usize::BITS - len.saturating_sub(1).leading_zeros()
}
