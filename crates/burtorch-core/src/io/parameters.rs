//! Parameters in the checkpoint format.
//!
//! Sections: `VALS` values; `GRAD` gradients (optional); `FROZ` frozen ranges, start and end; `TDIM` six numbers per named
//! tensor (first place, how many dimensions, four dimensions), by name; `TLEN`, `TTXT` their names; `RNGS` the state of the
//! generator for further random initial values.
//!
//! Promises: loading into parameters requires the same number and the same named tensors, and changes numbers only: frozen
//! ranges stay the same. New parameters get everything, so that later additions are the same as in the saved ones.

use std::ops::Range;
use std::path::Path;

use rand_chacha::ChaCha8Rng;

use super::file::{Durability, read, save};
use super::format::{Contents, Header, Kind};
use super::numbers::Stored;
use super::sections::{Reader, Section, Writer};
use super::state::{rng_from_section, rng_to_bytes};
use crate::error::Result;
use crate::params::{Parameters, Restored, Shape, Tensor};
use crate::scalar::Float;

/// Start, number of dimensions, four dimensions.
type Description = [u32; 6];

impl<E: Float + Stored> Parameters<'_, E> {
    /// The checkpoint format in memory: everything, the gradients if `contents` has them.
    pub fn to_bytes(&self, contents: Contents) -> Result<Vec<u8>> {
        let contents = if contents.has_gradients() { Contents::Both } else { Contents::Values };
        let header = Header { dtype: Some(E::DTYPE), contents, lanes: 1, ..Header::new(Kind::PARAMETERS) };
        let mut writer = Writer::new(Header { count: self.len() as u64, ..header })?;
        writer.section(*b"VALS", self.values())?;
        if contents.has_gradients() {
            writer.section(*b"GRAD", self.grads())?;
        }
        let frozen: Vec<[u32; 2]> = self.frozen().iter().map(|range| [range.start, range.end]).collect();
        writer.section(*b"FROZ", frozen.as_flattened())?;
        let tensors: Vec<Description> = self.names().map(|(_, tensor)| describe(tensor)).collect();
        writer.section(*b"TDIM", tensors.as_flattened())?;
        let names: Vec<&str> = self.names().map(|(name, _)| name).collect();
        writer.section_of(*b"TLEN", names.iter().map(|name| name.len() as u32))?;
        writer.text(*b"TTXT", &names.concat())?;
        writer.section(*b"RNGS", &rng_to_bytes(self.rng()))?;
        writer.finish()
    }

    /// Overwrites values, and gradients if the file has them, from the checkpoint format of parameters of the same
    /// number and with the same named tensors.
    pub fn load_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let file = File::<E>::read(bytes)?;
        if file.values.len() != self.len() {
            let found = file.values.len();
            return Err(file.values.refuse(0, format!("starts {found} values, these Parameters have {}", self.len())));
        }
        let own: Vec<(&str, Description)> = self.names().map(|(name, tensor)| (name, describe(tensor))).collect();
        let stored: Vec<(&str, Description)> = file.tensors.iter().map(|(name, d)| (name.as_str(), *d)).collect();
        if own != stored {
            let k = own.iter().zip(&stored).position(|(own, stored)| own != stored);
            let k = k.unwrap_or(own.len().min(stored.len()));
            let name =
                |all: &[(&str, Description)]| all.get(k).map_or("none".into(), |(name, d)| format!("{name:?} {d:?}"));
            let reason = format!("starts tensor {}, these Parameters have {}", name(&stored), name(&own));
            return Err(file.places.refuse(6 * k, reason));
        }
        self.values_mut().iter_mut().zip(file.values.iter()).for_each(|(to, value)| *to = value);
        self.restore_grads(file.grads);
        Ok(())
    }

    /// Restores the gradients of trainable numbers; those of frozen numbers are 0.
    fn restore_grads(&mut self, grads: Option<Section<'_, E>>) {
        let Some(grads) = grads else { return };
        let mut ranges = Vec::new();
        self.for_each_trainable(|range| ranges.push(range));
        let own = self.grads_mut();
        for k in ranges.into_iter().flatten() {
            own[k] = grads.get(k).unwrap_or(E::lit(0.0));
        }
    }

    /// Saves the checkpoint format.
    pub fn save(&self, path: &Path, contents: Contents) -> Result<()> {
        save(path, &self.to_bytes(contents)?, Durability::Durable)
    }

    /// Loads numbers as [`Parameters::load_bytes`] does, from a file.
    pub fn load(&mut self, path: &Path) -> Result<()> {
        self.load_bytes(&read(path)?)
    }
}

impl<E: Float + Stored> Parameters<'static, E> {
    /// New parameters from the checkpoint format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let file = File::<E>::read(bytes)?;
        let n = file.values.len();
        let mut names = Vec::new();
        for (k, (name, description)) in file.tensors.into_iter().enumerate() {
            let [start, n_dims, dims @ ..] = description;
            let dims: Vec<usize> = dims.iter().take(n_dims as usize).map(|&d| d as usize).collect();
            let shape = Shape::new(&dims).ok().filter(|&shape| describe_as(start, shape) == description);
            let Some(shape) = shape.filter(|shape| start as usize + shape.n() <= n) else {
                return Err(file.places.refuse(6 * k, format!("starts a tensor that does not fit: {description:?}")));
            };
            names.push((name, start, shape));
        }
        let mut params = Parameters::new(0);
        params.restore(Restored { n, names, frozen: file.frozen, rng: file.rng })?;
        params.values_mut().iter_mut().zip(file.values.iter()).for_each(|(to, value)| *to = value);
        params.restore_grads(file.grads);
        Ok(params)
    }

    /// New parameters from a file.
    pub fn from_file(path: &Path) -> Result<Self> {
        Self::from_bytes(&read(path)?)
    }
}

fn describe(tensor: Tensor) -> Description {
    describe_as(tensor.slice().range().start as u32, tensor.shape())
}

fn describe_as(start: u32, shape: Shape) -> Description {
    let mut description = [start, shape.dims().len() as u32, 1, 1, 1, 1];
    description[2..].iter_mut().zip(shape.dims()).for_each(|(to, &dim)| *to = dim);
    description
}

/// The sections of a file of parameters, whose lengths agree.
struct File<'a, E> {
    values: Section<'a, E>,
    grads: Option<Section<'a, E>>,
    frozen: Vec<Range<u32>>,
    places: Section<'a, u32>,
    /// By ascending name.
    tensors: Vec<(String, Description)>,
    rng: ChaCha8Rng,
}

impl<'a, E: Float + Stored> File<'a, E> {
    fn read(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::open(bytes, Kind::PARAMETERS)?;
        let header = reader.header();
        if header.dtype != Some(E::DTYPE) || header.lanes != 1 {
            let found = header.dtype.map_or("no", |dtype| dtype.name());
            return Err(reader.refuse(format!("the file is of {found} numbers, expected {}", E::DTYPE.name())));
        }
        let n = usize::try_from(header.count).ok().filter(|&n| n <= u32::MAX as usize && header.first == 0);
        let Some(n) = n.filter(|_| header.contents.has_values()) else {
            return Err(reader.refuse(format!("the file is of {} numbers from {}", header.count, header.first)));
        };
        let values = reader.section_of(*b"VALS", n)?;
        let grads = header.contents.has_gradients().then(|| reader.section_of(*b"GRAD", n)).transpose()?;
        let frozen = frozen_ranges(reader.section(*b"FROZ")?, n)?;
        let places = reader.section::<u32>(*b"TDIM")?;
        let lengths = reader.section_of::<u32>(*b"TLEN", places.len() / 6)?;
        if !places.len().is_multiple_of(6) {
            return Err(places.refuse(places.len(), "is missing".into()));
        }
        let mut text = reader.text(*b"TTXT")?;
        let mut tensors: Vec<(String, Description)> = Vec::new();
        for (k, length) in lengths.iter().enumerate() {
            let split = text.split_at_checked(length as usize);
            let (name, rest) = split.ok_or_else(|| lengths.refuse(k, "does not fit the text of names".into()))?;
            if tensors.last().is_some_and(|(last, _)| last.as_str() >= name) {
                return Err(lengths.refuse(k, format!("is of name {name:?}, expected ascending names")));
            }
            let description = std::array::from_fn(|at| places.get(6 * k + at).unwrap_or(0));
            tensors.push((name.to_string(), description));
            text = rest;
        }
        if !text.is_empty() {
            return Err(lengths.refuse(lengths.len(), format!("is missing: {} bytes of names are left", text.len())));
        }
        let rng = rng_from_section(reader.section(*b"RNGS")?)?;
        reader.finish()?;
        Ok(File { values, grads, frozen, places, tensors, rng })
    }
}

/// The frozen ranges below `n`: ascending, disjoint, nonempty.
fn frozen_ranges(section: Section<'_, u32>, n: usize) -> Result<Vec<Range<u32>>> {
    let numbers = section.to_vec()?;
    let (pairs, rest) = numbers.as_chunks::<2>();
    let mut from = 0;
    for (k, &[start, end]) in pairs.iter().enumerate() {
        let apart = k == 0 || start > from;
        if !apart || start >= end || end as usize > n {
            return Err(section.refuse(2 * k, format!("starts a frozen range {start}..{end} out of order")));
        }
        from = end;
    }
    match rest {
        [] => Ok(pairs.iter().map(|&[start, end]| start..end).collect()),
        _ => Err(section.refuse(numbers.len(), "is missing".into())),
    }
}
