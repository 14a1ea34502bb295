//! The state of random numbers, optimisers and training data in the checkpoint format, so that training resumes bit for bit.
//!
//! Promises: a loaded state belongs to the same kind of optimiser, the same number of parameters, the same data.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::format::{Digest, Header, Kind, digest};
use super::numbers::Stored;
use super::sections::{Reader, Section, Writer};
use crate::error::Result;
use crate::interrupt::Work;
use crate::memory::refused;
use crate::scalar::Float;

/// Seed, stream and position of a random generator.
const RNG_BYTES: usize = 32 + 8 + 16;

/// The state of a random generator.
pub(crate) fn rng_to_bytes(rng: &ChaCha8Rng) -> [u8; RNG_BYTES] {
    let mut bytes = [0; RNG_BYTES];
    bytes[..32].copy_from_slice(&rng.get_seed());
    bytes[32..40].copy_from_slice(&rng.get_stream().to_le_bytes());
    bytes[40..].copy_from_slice(&rng.get_word_pos().to_le_bytes());
    bytes
}

/// The random generator with this state.
pub(crate) fn rng_from_section(section: Section<'_, u8>) -> Result<ChaCha8Rng> {
    let bytes: &[u8; RNG_BYTES] = section.bytes().try_into().map_err(|_| {
        section.refuse(0, format!("starts {} bytes of a generator, expected {RNG_BYTES}", section.len()))
    })?;
    let (mut seed, mut stream, mut position) = ([0; 32], [0; 8], [0; 16]);
    seed.copy_from_slice(&bytes[..32]);
    stream.copy_from_slice(&bytes[32..40]);
    position.copy_from_slice(&bytes[40..]);
    let position = u128::from_le_bytes(position);
    // The generator counts blocks of 16 words with 64 bits.
    if position >> 68 != 0 {
        return Err(section.refuse(40, "starts a position beyond the generator's last".into()));
    }
    let mut rng = ChaCha8Rng::from_seed(seed);
    rng.set_stream(u64::from_le_bytes(stream));
    rng.set_word_pos(position);
    Ok(rng)
}

/// The state of an optimiser: its name, its settings and counters, and columns of one number per parameter (or none,
/// before the first step).
#[derive(Clone, Debug, PartialEq)]
pub struct OptimiserState<E> {
    /// Which optimiser: "sgd" ...
    pub name: String,
    /// Rates and the like, in an order that the optimiser knows.
    pub settings: Vec<f64>,
    /// Whole numbers: steps taken, flags.
    pub counters: Vec<u64>,
    /// Velocities, moments ...
    pub columns: Vec<Vec<E>>,
}

impl<E: Float + Stored> OptimiserState<E> {
    /// The same for `n` parameters, of which those that were added after the last step have zeros, as before their first step.
    pub fn padded(mut self, n: usize) -> Result<Self> {
        for column in self.columns.iter_mut().filter(|column| (1..n).contains(&column.len())) {
            let more = n - column.len();
            column.try_reserve_exact(more).map_err(|_| refused::<E>(more, "the state of an optimiser"))?;
            column.resize(n, E::lit(0.0));
        }
        Ok(self)
    }

    /// The checkpoint format.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let header = Header { dtype: Some(E::DTYPE), lanes: 1, ..Header::new(Kind::OPTIMISER) };
        let n = self.columns.first().map_or(0, Vec::len);
        let mut writer = Writer::new(Header { count: n as u64, ..header })?;
        writer.text(*b"NAME", &self.name)?;
        writer.section(*b"SETS", &self.settings)?;
        writer.section(*b"CNTS", &self.counters)?;
        for column in &self.columns {
            writer.section(*b"COLU", column)?;
        }
        writer.finish()
    }

    /// Reads the state of the optimiser called `name`, with these numbers of settings, counters and columns, for `n`
    /// parameters. Columns all have `n` numbers, or are all empty.
    pub fn from_bytes(bytes: &[u8], name: &str, counts: [usize; 3], n: usize) -> Result<Self> {
        let mut reader = Reader::open(bytes, Kind::OPTIMISER)?;
        let header = reader.header();
        if header.dtype != Some(E::DTYPE) {
            let found = header.dtype.map_or("no", |dtype| dtype.name());
            return Err(reader.refuse(format!("the file is of {found} numbers, expected {}", E::DTYPE.name())));
        }
        let found = reader.text(*b"NAME")?;
        if found != name {
            return Err(reader.refuse(format!("the file is of optimiser {found:?}, expected {name:?}")));
        }
        let settings = reader.section_of(*b"SETS", counts[0])?.to_vec()?;
        let counters = reader.section_of(*b"CNTS", counts[1])?.to_vec()?;
        let length = usize::try_from(header.count).ok().filter(|&length| length == 0 || length == n);
        let Some(length) = length else {
            return Err(reader.refuse(format!("the file is of {} parameters, expected {n}", header.count)));
        };
        let mut columns = Vec::new();
        for _ in 0..counts[2] {
            columns.push(reader.section_of(*b"COLU", length)?.to_vec()?);
        }
        reader.finish()?;
        Ok(OptimiserState { name: name.to_string(), settings, counters, columns })
    }
}

/// The state of a data source: its random generator, and a fingerprint of its data.
pub(crate) fn data_to_bytes(rng: &ChaCha8Rng, fingerprint: u64) -> Result<Vec<u8>> {
    let mut writer = Writer::new(Header::new(Kind::DATA))?;
    writer.section(*b"DATA", &[fingerprint])?;
    writer.section(*b"RNGS", &rng_to_bytes(rng))?;
    writer.finish()
}

/// The random generator of a source with the same data.
pub(crate) fn data_from_bytes(bytes: &[u8], fingerprint: u64) -> Result<ChaCha8Rng> {
    let mut reader = Reader::open(bytes, Kind::DATA)?;
    let data = reader.section_of::<u64>(*b"DATA", 1)?;
    if data.get(0) != Some(fingerprint) {
        return Err(data.refuse(0, "is the fingerprint of other data, or of another way to split them".into()));
    }
    let rng = rng_from_section(reader.section(*b"RNGS")?)?;
    reader.finish()?;
    Ok(rng)
}

/// A hash of lists of numbers, equal on every machine, computed incrementally.
pub(crate) struct Fingerprint(Digest);

impl Fingerprint {
    pub(crate) fn new() -> Self {
        Fingerprint(digest())
    }

    /// Adds a list: its length, then its numbers.
    pub(crate) fn list(mut self, mut numbers: impl ExactSizeIterator<Item = u32>) -> Self {
        self.0.update(&(numbers.len() as u64).to_le_bytes());
        let mut bytes = [0; 4096];
        let mut work = Work::default();
        loop {
            let mut n = 0;
            for (place, number) in bytes.chunks_exact_mut(4).zip(&mut numbers) {
                place.copy_from_slice(&number.to_le_bytes());
                n += 4;
            }
            // After an interrupt the result is not used.
            if n == 0 || work.add(n).is_err() {
                return self;
            }
            self.0.update(&bytes[..n]);
        }
    }

    pub(crate) fn finish(self) -> u64 {
        self.0.finalize()
    }
}

/// Named pieces as one checkpoint file, so that a checkpoint is of one moment.
pub fn bundle(pieces: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut writer = Writer::new(Header { count: pieces.len() as u64, ..Header::new(Kind::BUNDLE) })?;
    for (name, bytes) in pieces {
        writer.text(*b"NAME", name)?;
        writer.section(*b"DATA", bytes)?;
    }
    writer.finish()
}

/// The pieces of [`bundle`], in order.
pub fn unbundle(bytes: &[u8]) -> Result<Vec<(&str, &[u8])>> {
    let mut reader = Reader::open(bytes, Kind::BUNDLE)?;
    let mut pieces = Vec::new();
    while reader.next_is(*b"NAME") {
        let name = reader.text(*b"NAME")?;
        pieces.push((name, reader.section::<u8>(*b"DATA")?.bytes()));
    }
    if pieces.len() as u64 != reader.header().count {
        return Err(reader.refuse(format!("{} pieces, expected {}", pieces.len(), reader.header().count)));
    }
    reader.finish()?;
    Ok(pieces)
}
