//! The payload of a checkpoint file: tagged sections of numbers or text, one after another in a fixed order.
//!
//! A section is a tag of four letters, the type of its numbers (one byte, then three zero bytes), how many (eight bytes),
//! and the numbers, padded with zeros to a multiple of eight. Promises: every length is compared with the remaining bytes
//! before anything is allocated; no bytes may remain at the end.

use super::format::{HEADER_BYTES, Header, Kind, checksum, malformed};
use super::numbers::{Stored, get_all, put_all, type_name};
use crate::error::{Error, Result};
use crate::interrupt::{self, BYTES, PIECE, pieces, pieces_of};

/// The name of a section.
pub type Tag = [u8; 4];

const SECTION_HEADER: usize = 16;

/// Builds a file in memory, section by section.
#[derive(Debug)]
pub struct Writer {
    header: Header,
    version: u16,
    bytes: Vec<u8>,
}

impl Writer {
    /// A file with this header and no sections yet.
    pub fn new(header: Header) -> Result<Self> {
        let mut writer = Writer { header, version: 1, bytes: Vec::new() };
        writer.extend(HEADER_BYTES)?;
        Ok(writer)
    }

    /// Requires at least this version of the format for reading.
    pub(crate) fn needs_version(&mut self, version: u16) {
        self.version = self.version.max(version);
    }

    /// Appends a section of numbers.
    pub fn section<T: Stored>(&mut self, tag: Tag, numbers: &[T]) -> Result<()> {
        self.section_of(tag, numbers.iter().copied())
    }

    /// Appends a section of numbers that come one at a time.
    pub fn section_of<T: Stored>(&mut self, tag: Tag, mut numbers: impl ExactSizeIterator<Item = T>) -> Result<()> {
        let n = numbers.len();
        let size = n.checked_mul(T::BYTES).ok_or(Error::OutOfMemory { bytes: usize::MAX, what: WHAT })?;
        let out = self.extend(SECTION_HEADER.saturating_add(size.next_multiple_of(8)))?;
        out[..4].copy_from_slice(&tag);
        out[4] = T::CODE;
        out[8..16].copy_from_slice(&(n as u64).to_le_bytes());
        let out = &mut out[SECTION_HEADER..SECTION_HEADER + size];
        if n <= PIECE {
            put_all(numbers, out);
            return Ok(());
        }
        for piece in pieces(n) {
            put_all(numbers.by_ref().take(piece.len()), &mut out[piece.start * T::BYTES..piece.end * T::BYTES]);
        }
        interrupt::check()
    }

    /// Appends a section of text.
    pub fn text(&mut self, tag: Tag, text: &str) -> Result<()> {
        self.section(tag, text.as_bytes())
    }

    /// The whole file.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        let (header, payload) = self.bytes.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&self.header.encode(self.version, payload)?);
        Ok(self.bytes)
    }

    /// Appends zeros, and returns them to be overwritten.
    fn extend(&mut self, n: usize) -> Result<&mut [u8]> {
        let at = self.bytes.len();
        self.bytes.try_reserve(n).map_err(|_| Error::OutOfMemory { bytes: n, what: WHAT })?;
        // The system provides new memory page by page, which takes as long as filling it; so the work is done in
        // interruptible pieces.
        for piece in pieces_of(n, BYTES) {
            self.bytes.resize(at + piece.end, 0);
        }
        interrupt::check()?;
        Ok(&mut self.bytes[at..])
    }
}

const WHAT: &str = "a file in memory";

/// Reads a file from memory, section by section.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    header: Header,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Checks that `bytes` are a complete file of `kind` without trailing bytes, and both checksums.
    pub fn open(bytes: &'a [u8], kind: Kind) -> Result<Self> {
        let reader = Self::open_any(bytes)?;
        match reader.header.kind {
            found if found == kind => Ok(reader),
            found => Err(malformed(10, format!("the file contains {}, expected {}", found.name(), kind.name()))),
        }
    }

    /// As [`Reader::open`], whatever the kind.
    pub fn open_any(bytes: &'a [u8]) -> Result<Self> {
        let (header, length, expected) = Header::decode(bytes)?;
        let payload = &bytes[HEADER_BYTES..];
        if payload.len() as u64 != length {
            let (offset, how) = if (payload.len() as u64) < length {
                (bytes.len(), "ends early")
            } else {
                (HEADER_BYTES + length as usize, "is too long")
            };
            return Err(malformed(
                offset,
                format!("the file {how}: {} bytes of payload, expected {length}", payload.len()),
            ));
        }
        if checksum(payload)? != expected {
            return Err(malformed(HEADER_BYTES, "the payload is damaged: its checksum does not agree".into()));
        }
        Ok(Reader { header, bytes, at: HEADER_BYTES })
    }

    /// The header of the file.
    pub fn header(&self) -> Header {
        self.header
    }

    /// The error for something in the header that does not fit.
    pub fn refuse(&self, reason: String) -> Error {
        malformed(0, reason)
    }

    /// Whether the next section has this tag.
    pub fn next_is(&self, tag: Tag) -> bool {
        self.bytes[self.at..].starts_with(&tag)
    }

    /// The next section, which has this tag and numbers of this type.
    pub fn section<T: Stored>(&mut self, tag: Tag) -> Result<Section<'a, T>> {
        let at = self.at;
        let rest = &self.bytes[at..];
        let name = tag.escape_ascii();
        let Some((head, body)) = rest.split_first_chunk::<SECTION_HEADER>() else {
            return Err(malformed(at, format!("section {name} is missing")));
        };
        if head[..4] != tag {
            return Err(malformed(at, format!("section {} where {name} was expected", head[..4].escape_ascii())));
        }
        if head[4] != T::CODE || head[5..8] != [0; 3] {
            return Err(malformed(at + 4, format!("section {name} of {}, expected {}", type_name(head[4]), T::NAME)));
        }
        let mut n = [0; 8];
        n.copy_from_slice(&head[8..16]);
        let n = u64::from_le_bytes(n);
        let size = usize::try_from(n).ok().and_then(|n| n.checked_mul(T::BYTES));
        let whole = size.and_then(|size| size.checked_next_multiple_of(8)).filter(|&whole| whole <= body.len());
        let (Some(size), Some(whole)) = (size, whole) else {
            return Err(malformed(at + 8, format!("section {name} of {n} numbers does not fit the file")));
        };
        if body[size..whole].iter().any(|&byte| byte != 0) {
            return Err(malformed(at + SECTION_HEADER + size, format!("section {name} is not filled up with zeros")));
        }
        self.at = at + SECTION_HEADER + whole;
        Ok(Section { bytes: &body[..size], at: at + SECTION_HEADER, tag, _numbers: std::marker::PhantomData })
    }

    /// The next section, which has this tag and `n` numbers of this type.
    pub fn section_of<T: Stored>(&mut self, tag: Tag, n: usize) -> Result<Section<'a, T>> {
        let at = self.at;
        let section = self.section(tag)?;
        if section.len() == n {
            return Ok(section);
        }
        let name = tag.escape_ascii();
        Err(malformed(at + 8, format!("section {name} of {} numbers, expected {n}", section.len())))
    }

    /// The next section, which is text.
    pub fn text(&mut self, tag: Tag) -> Result<&'a str> {
        let section = self.section::<u8>(tag)?;
        std::str::from_utf8(section.bytes).map_err(|error| section.refuse(error.valid_up_to(), "is not UTF-8".into()))
    }

    /// Checks that no bytes are left.
    pub fn finish(self) -> Result<()> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            n => Err(malformed(self.at, format!("{n} bytes more than expected"))),
        }
    }
}

/// Numbers of one type in a file.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a, T> {
    bytes: &'a [u8],
    at: usize,
    tag: Tag,
    _numbers: std::marker::PhantomData<T>,
}

impl<'a, T: Stored> Section<'a, T> {
    /// How many.
    pub fn len(&self) -> usize {
        self.bytes.len() / T::BYTES
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of the section.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number `k`, if it exists.
    #[inline]
    pub fn get(&self, k: usize) -> Option<T> {
        let from = k.checked_mul(T::BYTES)?;
        self.bytes.get(from..from.checked_add(T::BYTES)?).map(T::get)
    }

    /// All of them, in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + 'a {
        get_all(self.bytes)
    }

    /// A copy of all numbers.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut all = Vec::new();
        let bytes = self.bytes.len();
        all.try_reserve_exact(self.len()).map_err(|_| Error::OutOfMemory { bytes, what: "a section of a file" })?;
        all.extend(self.iter());
        Ok(all)
    }

    /// The error for an invalid number `k`: `reason` completes "number k of section TAG ...".
    pub fn refuse(&self, k: usize, reason: String) -> Error {
        malformed(self.at + k * T::BYTES, format!("number {k} of section {} {reason}", self.tag.escape_ascii()))
    }
}
