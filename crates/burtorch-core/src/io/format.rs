//! The header of the checked container: 64 bytes with the kind, length and checksum of the payload.
//!
//! Layout, all numbers little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | magic |
//! | 8..10 | version of the format |
//! | 10..12 | kind: a graph, parameters ... |
//! | 12 | dtype: 0 none, 1 float32, 2 float64, 3 float16, 4 bfloat16, 5 float128 |
//! | 13 | contents: 1 values, 2 gradients, 3 both |
//! | 14..16 | lanes per scalar, 0 where there are no scalars |
//! | 16..32 | range: first index, number of entries |
//! | 32..40 | length of the payload in bytes |
//! | 40..48 | checksum of the payload |
//! | 48..56 | zero |
//! | 56..64 | checksum of bytes 0..56 |
//!
//! Checksums are CRC-64/XZ, which finds every error of a single bit and every burst of up to 64 bits; other damage passes
//! with probability 2^-64. They guard against accidents, not against forgery: readers also check all the data they read.

use crc::{CRC_64_XZ, Crc, Table};

use crate::error::{Error, Result};
use crate::interrupt::{self, BYTES, pieces_of};
use crate::scalar::DType;

/// How every file begins. The first byte is no text, the line end shows a transfer that changes line ends.
pub const MAGIC: [u8; 8] = *b"\x89btorch\n";
/// The newest readable version. A file is written in the oldest version that supports its content, so that earlier
/// versions of burtorch can read it if possible: 1, or 2 for graphs with blocks over tokens, or 3 for functions of
/// arrays.
pub const VERSION: u16 = 3;
/// Bytes before the payload.
pub const HEADER_BYTES: usize = 64;

static CHECKSUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_XZ);

/// The state of a checksum.
pub(super) type Digest = crc::Digest<'static, u64, Table<16>>;

/// A checksum of bytes that arrive in pieces.
pub(super) fn digest() -> Digest {
    CHECKSUM.digest()
}

/// The checksum of bytes. Interruptible.
pub(super) fn checksum(bytes: &[u8]) -> Result<u64> {
    let mut digest = digest();
    for piece in pieces_of(bytes.len(), BYTES) {
        digest.update(&bytes[piece]);
    }
    interrupt::check()?;
    Ok(digest.finalize())
}

/// The content of a file. A number never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    number: u16,
    name: &'static str,
}

impl Kind {
    /// A graph: structure, values, gradients if wanted.
    pub const GRAPH: Kind = Kind { number: 1, name: "a graph" };
    /// Numbers of a range of nodes, without structure.
    pub const RANGE: Kind = Kind { number: 2, name: "values of a range of nodes" };
    /// Parameters.
    pub const PARAMETERS: Kind = Kind { number: 3, name: "parameters" };
    /// A traced function.
    pub const PROGRAM: Kind = Kind { number: 4, name: "a traced function" };
    /// An optimiser's state.
    pub const OPTIMISER: Kind = Kind { number: 5, name: "the state of an optimiser" };
    /// The state of a source of training data.
    pub const DATA: Kind = Kind { number: 6, name: "the state of training data" };

    /// Several files of the same moment, by name.
    pub const BUNDLE: Kind = Kind { number: 7, name: "a training checkpoint" };

    const ALL: [Kind; 7] =
        [Self::GRAPH, Self::RANGE, Self::PARAMETERS, Self::PROGRAM, Self::OPTIMISER, Self::DATA, Self::BUNDLE];

    /// The number in the header.
    pub const fn number(self) -> u16 {
        self.number
    }

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        self.name
    }

    fn from_number(number: u16) -> Option<Kind> {
        Self::ALL.into_iter().find(|kind| kind.number == number)
    }
}

/// Which numbers of the entries a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Contents {
    /// Values only.
    #[default]
    Values,
    /// Gradients only.
    Gradients,
    /// Values, then gradients.
    Both,
}

impl Contents {
    /// The meaning of "values", "grads" or "both".
    pub fn from_name(name: &str) -> Option<Contents> {
        Some(match name {
            "values" => Contents::Values,
            "grads" => Contents::Gradients,
            "both" => Contents::Both,
            _ => return None,
        })
    }

    /// Whether values are among them.
    pub const fn has_values(self) -> bool {
        !matches!(self, Contents::Gradients)
    }

    /// Whether gradients are among them.
    pub const fn has_gradients(self) -> bool {
        !matches!(self, Contents::Values)
    }
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The content of the file.
    pub kind: Kind,
    /// The element type, if any.
    pub dtype: Option<DType>,
    /// Which numbers.
    pub contents: Contents,
    /// Lanes per scalar, 0 without scalars.
    pub lanes: u16,
    /// The first index of the range.
    pub first: u64,
    /// How many entries.
    pub count: u64,
}

impl Header {
    /// A header for `kind`, without element type and range.
    pub const fn new(kind: Kind) -> Self {
        Header { kind, dtype: None, contents: Contents::Values, lanes: 0, first: 0, count: 0 }
    }

    /// The header of a file in memory; does not check the payload.
    pub fn peek(bytes: &[u8]) -> Result<Header> {
        Self::decode(bytes).map(|(header, ..)| header)
    }

    /// The 64 bytes of the header for this payload, in this version of the format.
    pub(super) fn encode(&self, version: u16, payload: &[u8]) -> Result<[u8; HEADER_BYTES]> {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&version.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.kind.number.to_le_bytes());
        bytes[12] = dtype_number(self.dtype);
        bytes[13] = match self.contents {
            Contents::Values => 1,
            Contents::Gradients => 2,
            Contents::Both => 3,
        };
        bytes[14..16].copy_from_slice(&self.lanes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.count.to_le_bytes());
        bytes[32..40].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes[40..48].copy_from_slice(&checksum(payload)?.to_le_bytes());
        let own = CHECKSUM.checksum(&bytes[..56]);
        bytes[56..64].copy_from_slice(&own.to_le_bytes());
        Ok(bytes)
    }

    /// Reads a header, and the length and checksum of its payload.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Header, u64, u64)> {
        let bytes: &[u8; HEADER_BYTES] = match bytes.first_chunk() {
            Some(bytes) if bytes.starts_with(&MAGIC) => bytes,
            None if bytes.starts_with(&MAGIC) => {
                let found = bytes.len();
                return Err(malformed(found, format!("the header ends early, expected {HEADER_BYTES} bytes")));
            }
            _ => {
                return Err(malformed(0, "not a file in burtorch's checkpoint format: its first bytes differ".into()));
            }
        };
        let version = u16_at(bytes, 8);
        if version == 0 || version > VERSION {
            return Err(malformed(8, format!("version {version} of the format, this burtorch reads 1 to {VERSION}")));
        }
        let expected = u64_at(bytes, 56);
        if CHECKSUM.checksum(&bytes[..56]) != expected {
            return Err(malformed(56, "the header is damaged: its checksum does not agree".into()));
        }
        let kind = u16_at(bytes, 10);
        let kind = Kind::from_number(kind)
            .ok_or_else(|| malformed(10, format!("kind {kind} is unknown to this version of burtorch")))?;
        let dtype = match bytes[12] {
            0 => None,
            1 => Some(DType::Float32),
            2 => Some(DType::Float64),
            3 => Some(DType::Float16),
            4 => Some(DType::BFloat16),
            5 => Some(DType::Float128),
            n => return Err(malformed(12, format!("dtype {n} is unknown to this version of burtorch"))),
        };
        let contents = match bytes[13] {
            1 => Contents::Values,
            2 => Contents::Gradients,
            3 => Contents::Both,
            n => return Err(malformed(13, format!("contents {n}, expected 1, 2 or 3"))),
        };
        if u64_at(bytes, 48) != 0 {
            return Err(malformed(48, "reserved bytes are not zero".into()));
        }
        let (first, count) = (u64_at(bytes, 16), u64_at(bytes, 24));
        let header = Header { kind, dtype, contents, lanes: u16_at(bytes, 14), first, count };
        Ok((header, u64_at(bytes, 32), u64_at(bytes, 40)))
    }
}

const fn dtype_number(dtype: Option<DType>) -> u8 {
    match dtype {
        None => 0,
        Some(DType::Float32) => 1,
        Some(DType::Float64) => 2,
        Some(DType::Float16) => 3,
        Some(DType::BFloat16) => 4,
        Some(DType::Float128) => 5,
    }
}

fn u16_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// The error for unexpected bytes.
pub(crate) fn malformed(offset: usize, reason: String) -> Error {
    Error::Format { offset: offset as u64, reason }
}
