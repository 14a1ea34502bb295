//! Messages as bytes.
//!
//! A header of 12 bytes (version and dtype, support and encoding, levels, length, numbers sent), the unit, then the places,
//! then the numbers; little-endian, bits from the lowest, each part padded with zeros to a whole byte. A list of places
//! takes a bit for each coordinate, or the bits of an index for each sent number, whichever is fewer.

use super::message::{Message, Support, Values, WHAT, index_width};
use super::number::Number;
use crate::error::{Error, Result};
use crate::interrupt::ask_at;
use crate::memory::reserve_in;

const VERSION: u8 = 1;
const HEADER: usize = 12;

/// Writes bits to bytes, which have enough room.
struct Bits<'b> {
    out: &'b mut Vec<u8>,
    word: u128,
    n: u32,
}

impl Bits<'_> {
    fn put(&mut self, value: u64, width: u32) {
        self.word |= u128::from(value) << self.n;
        self.n += width;
        while self.n >= 8 {
            self.out.push(self.word as u8);
            self.word >>= 8;
            self.n -= 8;
        }
    }

    fn end(&mut self) {
        if self.n > 0 {
            self.out.push(self.word as u8);
            (self.word, self.n) = (0, 0);
        }
    }
}

/// Reads bits from bytes.
struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
    word: u128,
    n: u32,
}

impl Reader<'_> {
    fn take(&mut self, width: u32) -> u64 {
        if width == 0 {
            return 0;
        }
        while self.n < width {
            // The length has been checked.
            self.word |= u128::from(self.bytes.get(self.at).copied().unwrap_or(0)) << self.n;
            self.at += 1;
            self.n += 8;
        }
        let value = self.word as u64 & (u64::MAX >> (64 - width));
        self.word >>= width;
        self.n -= width;
        value
    }

    /// Whether the remaining bits of the byte are zero.
    fn end(&mut self) -> bool {
        let is_zero = self.word == 0;
        (self.word, self.n) = (0, 0);
        is_zero
    }
}

/// Bytes of the indices of `n_sent` numbers, and whether they are a bitmap.
fn places(support: Support, len: usize, n_sent: usize) -> (usize, bool) {
    match support {
        Support::None | Support::All => (0, false),
        Support::Block(_) => (4, false),
        Support::Drawn | Support::Chosen => {
            let list = (n_sent as u128 * u128::from(index_width(len))).div_ceil(8);
            let bitmap = len.div_ceil(8);
            if (bitmap as u128) < list { (bitmap, true) } else { (list as usize, false) }
        }
    }
}

/// The tags of support and encoding, and the levels.
fn tags(support: Support, values: Values) -> (u8, u16) {
    let place = match support {
        Support::None => 0,
        Support::All => 1,
        Support::Block(_) => 2,
        Support::Drawn => 3,
        Support::Chosen => 4,
    };
    let (encoding, levels) = match values {
        Values::Exact => (0, 0),
        Values::Natural => (1, 0),
        Values::Levels(levels) => (2, levels),
        Values::Powers(levels) => (3, levels),
        Values::Signs => (4, 0),
    };
    (place | encoding << 4, levels)
}

impl<F: Number> Message<F> {
    /// Bytes that [`Message::append_bytes`] appends.
    pub fn n_bytes(&self) -> usize {
        let numbers = (self.numbers.len() as u128 * u128::from(self.width())).div_ceil(8) as usize;
        HEADER + size_of::<F>() + places(self.support, self.len, self.numbers.len()).0 + numbers
    }

    /// Appends the message as bytes.
    pub fn append_bytes(&self, out: &mut Vec<u8>) -> Result<()> {
        reserve_in(out, self.n_bytes(), WHAT)?;
        let (tag, levels) = tags(self.support, self.values);
        out.extend_from_slice(&[VERSION << 4 | u8::from(F::BITS == 64), tag]);
        out.extend_from_slice(&levels.to_le_bytes());
        out.extend_from_slice(&(self.len as u32).to_le_bytes());
        out.extend_from_slice(&(self.numbers.len() as u32).to_le_bytes());
        let mut bits = Bits { out, word: 0, n: 0 };
        bits.put(self.unit.bits(), F::BITS);
        match self.support {
            Support::None | Support::All => {}
            Support::Block(start) => bits.put(start.into(), 32),
            Support::Drawn | Support::Chosen => self.put_places(&mut bits),
        }
        bits.end();
        let width = self.width();
        for (n, &number) in self.numbers.iter().enumerate() {
            ask_at(n)?;
            bits.put(self.code(number), width);
        }
        bits.end();
        Ok(())
    }

    fn put_places(&self, bits: &mut Bits<'_>) {
        let (n_bytes, is_bitmap) = places(self.support, self.len, self.indices.len());
        if is_bitmap {
            let start = bits.out.len();
            bits.out.resize(start + n_bytes, 0);
            for &i in &self.indices {
                bits.out[start + i as usize / 8] |= 1 << (i % 8);
            }
        } else {
            self.indices.iter().for_each(|&i| bits.put(i.into(), index_width(self.len)));
        }
    }

    /// The encoded bits of a number.
    fn code(&self, number: F) -> u64 {
        let sign = u64::from(number.is_negative());
        match self.values {
            Values::Exact => number.bits(),
            Values::Natural => number.bits() >> F::MANTISSA,
            Values::Signs => sign,
            Values::Levels(_) => F::of_bits(number.magnitude()).to_f64() as u64 * 2 + sign,
            Values::Powers(levels) => {
                let below_one = F::from_f64(1.0).magnitude().saturating_sub(number.magnitude()) >> F::MANTISSA;
                let level = u64::from(levels).saturating_sub(below_one);
                if number.magnitude() == 0 { sign } else { level * 2 + sign }
            }
        }
    }

    /// The number encoded by these bits; `None` if they are invalid.
    fn decoded(&self, code: u64) -> Option<F> {
        let sign = |x: f64| F::from_f64(if code & 1 == 1 { -x } else { x });
        let level = code >> 1;
        match self.values {
            Values::Exact => Some(F::of_bits(code)),
            Values::Natural => {
                let number = F::of_bits(code << F::MANTISSA);
                (number.magnitude() < F::INFINITE).then_some(number)
            }
            Values::Signs => Some(sign(1.0)),
            Values::Levels(levels) => (level <= levels.into()).then(|| sign(level as f64)),
            Values::Powers(levels) => (level <= levels.into())
                .then(|| sign(if level == 0 { 0.0 } else { 2f64.powi(level as i32 - i32::from(levels)) })),
        }
    }

    /// Reads a message, complete and without trailing bytes. Fails for bytes that encode no message, or one of the
    /// other number type; the message then represents an empty vector.
    pub fn read_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let read = self.try_read(bytes);
        if read.is_err() {
            self.clear();
            self.indices.clear();
        }
        read
    }

    fn try_read(&mut self, bytes: &[u8]) -> Result<()> {
        let refuse = |offset: usize, reason: &str| Error::Format { offset: offset as u64, reason: reason.into() };
        let is_wide = match bytes.first() {
            Some(version) if version >> 4 == VERSION && version % 16 < 2 => version % 16 == 1,
            _ => return Err(refuse(0, "no compressed vector of this version begins here")),
        };
        if is_wide != (F::BITS == 64) {
            let (found, expected) = if is_wide { ("float64", "float32") } else { ("float32", "float64") };
            return Err(refuse(0, &format!("a compressed vector of {found} instead of {expected}")));
        }
        if bytes.len() < HEADER + size_of::<F>() {
            return Err(refuse(bytes.len(), "a compressed vector ends within its header"));
        }
        let mut reader = Reader { bytes, at: 1, word: 0, n: 0 };
        let (place, encoding, levels) = (reader.take(4), reader.take(4), reader.take(16) as u16);
        let (len, n_sent) = (reader.take(32) as usize, reader.take(32) as usize);
        let unit = F::of_bits(reader.take(F::BITS));
        let support = match place {
            0 => Support::None,
            1 => Support::All,
            2 => Support::Block(bytes[reader.at..].first_chunk().map_or(0, |start| u32::from_le_bytes(*start))),
            3 => Support::Drawn,
            4 => Support::Chosen,
            _ => return Err(refuse(1, "a compressed vector with an unknown kind of positions")),
        };
        let values = match (encoding, levels) {
            (0, 0) => Values::Exact,
            (1, 0) => Values::Natural,
            (2, 1..) => Values::Levels(levels),
            (3, 1..=100) => Values::Powers(levels),
            (4, 0) => Values::Signs,
            _ => return Err(refuse(1, "a compressed vector with an unknown kind of numbers")),
        };
        let is_possible = match support {
            Support::None => n_sent == 0,
            Support::All => n_sent == len,
            Support::Block(start) => n_sent <= len && (start as usize) < len,
            Support::Drawn | Support::Chosen => n_sent <= len,
        };
        if !is_possible {
            return Err(refuse(4, "a compressed vector with more numbers than its length, or fewer"));
        }
        self.clear();
        (self.len, self.support, self.values, self.unit) = (len, support, values, unit);
        let (place_bytes, is_bitmap) = places(support, len, n_sent);
        let number_bytes = (n_sent as u128 * u128::from(self.width())).div_ceil(8);
        if bytes.len() as u128 != (reader.at + place_bytes) as u128 + number_bytes {
            return Err(refuse(bytes.len(), "a compressed vector is shorter or longer than its header says"));
        }
        self.read_places(&mut reader, n_sent, is_bitmap, place_bytes)?;
        reserve_in(&mut self.numbers, n_sent, WHAT)?;
        for n in 0..n_sent {
            ask_at(n)?;
            let number = self.decoded(reader.take(self.width()));
            self.numbers
                .push(number.ok_or_else(|| refuse(reader.at, "a number of a compressed vector is out of range"))?);
        }
        if reader.end() { Ok(()) } else { Err(refuse(reader.at, "a compressed vector has bits after its last number")) }
    }

    fn read_places(&mut self, reader: &mut Reader<'_>, n_sent: usize, is_bitmap: bool, n_bytes: usize) -> Result<()> {
        self.indices.clear();
        let start = reader.at;
        if matches!(self.support, Support::Drawn | Support::Chosen) {
            reserve_in(&mut self.indices, n_sent, WHAT)?;
            if is_bitmap {
                for (k, &byte) in reader.bytes[start..start + n_bytes].iter().enumerate() {
                    // Bounded by the room; an excess is detected below.
                    let ones = (0..8).filter(|bit| byte >> bit & 1 == 1).map(|bit| (8 * k + bit) as u32);
                    self.indices.extend(ones.take(n_sent + 1 - self.indices.len().min(n_sent + 1)));
                }
            } else {
                let width = index_width(self.len);
                self.indices.extend((0..n_sent).map(|_| reader.take(width) as u32));
            }
        }
        reader.at = start + n_bytes;
        let is_ascending = self.indices.windows(2).all(|pair| pair[0] < pair[1]);
        let is_listed = self.indices.len() == n_sent || !matches!(self.support, Support::Drawn | Support::Chosen);
        let is_below = self.indices.last().is_none_or(|&last| (last as usize) < self.len);
        if is_ascending && is_listed && is_below && (is_bitmap || reader.end()) {
            return Ok(());
        }
        let reason = "the positions of a compressed vector are not ascending and below its length".into();
        Err(Error::Format { offset: start as u64, reason })
    }
}
