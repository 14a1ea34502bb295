//! The raw form of the paper: exactly the numbers of some nodes, in little-endian bytes, and nothing else.
//!
//! Promises: seven doubles are 56 bytes; loading requires exactly the length that the nodes need, and changes nothing
//! otherwise. The reader must know the meaning of the bytes: there is no header and no checksum.

use std::path::Path;

use super::file::{Durability, read_exactly, save, write_over, wrong_length};
use super::format::Contents;
use super::map::map_exactly;
use super::numbers::Stored;
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, Range};
use crate::interrupt::{self, pieces};
use crate::scalar::Scalar;

/// Nodes whose numbers are saved or loaded, in this order.
#[derive(Clone, Copy, Debug)]
pub enum Nodes<'a> {
    /// Contiguous nodes.
    Run(Range),
    /// Any nodes.
    List(&'a [NodeId]),
}

impl Nodes<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Nodes::Run(range) => range.len(),
            Nodes::List(nodes) => nodes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How a raw file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Overwrites in place: fastest; a kill in between leaves a mixture.
    #[default]
    InPlace,
    /// Writes a second file that replaces the first.
    Whole(Durability),
}

impl<S: Scalar<Elem: Stored>> Graph<'_, S> {
    /// The nodes `first..=last`, as the paper counts: the last one is included.
    #[optimize(size)]
    pub fn nodes_between(&self, first: u32, last: u32) -> Result<Range> {
        if first <= last && (last as usize) < self.len() {
            return Ok(Range { start: first, len: last - first + 1 });
        }
        Err(Error::BadArgument {
            what: "a range of nodes (the last included)",
            expected: format!("first <= last < {}", self.len()),
            found: format!("{first} to {last}"),
        })
    }

    /// Bytes of the raw form of this many nodes.
    pub fn raw_bytes(&self, n_nodes: usize, contents: Contents) -> usize {
        let columns = if contents == Contents::Both { 2 } else { 1 };
        n_nodes.saturating_mul(columns * Self::RAW_SCALAR)
    }

    const RAW_SCALAR: usize = S::LANES * <S::Elem as Stored>::BYTES;

    /// Writes the raw form into `out`, which has exactly the length: all values, then all gradients.
    pub fn write_raw(&self, nodes: Nodes<'_>, contents: Contents, out: &mut [u8]) -> Result<()> {
        self.check_nodes(nodes)?;
        let need = self.raw_bytes(nodes.len(), contents);
        if out.len() != need {
            return Err(Error::BadArgument {
                what: "the buffer",
                expected: format!("of exactly {need} bytes"),
                found: format!("{} bytes", out.len()),
            });
        }
        let column = nodes.len() * Self::RAW_SCALAR;
        let (values, grads) = out.split_at_mut(if contents.has_values() { column } else { 0 });
        if contents.has_values() {
            match nodes {
                Nodes::Run(range) => put_scalars(self.values()[range.indices()].iter().copied(), values)?,
                Nodes::List(list) => put_scalars(list.iter().map(|node| self.values()[node.0 as usize]), values)?,
            }
        }
        if contents.has_gradients() {
            let grad = |node| self.grad(node).unwrap_or(S::lit(0.0));
            match nodes {
                Nodes::Run(range) => put_scalars(range.nodes().map(grad), grads)?,
                Nodes::List(list) => put_scalars(list.iter().map(|&node| grad(node)), grads)?,
            }
        }
        Ok(())
    }

    /// Overwrites values or gradients from the raw form, whose length must be exactly right. Nodes computed before keep
    /// their values.
    pub fn read_raw(&mut self, nodes: Nodes<'_>, contents: Contents, bytes: &[u8]) -> Result<()> {
        self.check_nodes(nodes)?;
        let need = self.raw_bytes(nodes.len(), contents);
        if bytes.len() != need {
            return Err(wrong_length(need, bytes.len()));
        }
        let column = nodes.len() * Self::RAW_SCALAR;
        let (values, grads) = bytes.split_at(if contents.has_values() { column } else { 0 });
        if contents.has_values() {
            match nodes {
                Nodes::Run(range) => {
                    let all = &mut self.values_mut()[range.indices()];
                    all.iter_mut().zip(get_scalars(values)).for_each(|(to, value)| *to = value);
                }
                Nodes::List(list) => list
                    .iter()
                    .zip(get_scalars(values))
                    .for_each(|(node, value)| self.values_mut()[node.0 as usize] = value),
            }
        }
        if contents.has_gradients() {
            for (k, grad) in get_scalars(grads).enumerate() {
                let node = match nodes {
                    Nodes::Run(range) => NodeId(range.start + k as u32),
                    Nodes::List(list) => list[k],
                };
                self.set_grad(node, grad)?;
            }
        }
        Ok(())
    }

    /// The raw form in memory.
    pub fn to_raw(&self, nodes: Nodes<'_>, contents: Contents) -> Result<Vec<u8>> {
        let n = self.raw_bytes(nodes.len(), contents);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { bytes: n, what: "raw numbers" })?;
        bytes.resize(n, 0);
        self.write_raw(nodes, contents, &mut bytes)?;
        Ok(bytes)
    }

    /// Saves the raw form to a file.
    #[optimize(size)]
    pub fn save_raw(&self, path: &Path, nodes: Nodes<'_>, contents: Contents, how: Overwrite) -> Result<()> {
        let bytes = self.to_raw(nodes, contents)?;
        match how {
            Overwrite::InPlace => write_over(path, &bytes),
            Overwrite::Whole(durability) => save(path, &bytes, durability),
        }
    }

    /// Loads the raw form from a file of exactly the right length.
    #[optimize(size)]
    pub fn load_raw(&mut self, path: &Path, nodes: Nodes<'_>, contents: Contents) -> Result<()> {
        let bytes = read_exactly(path, self.raw_bytes(nodes.len(), contents))?;
        self.read_raw(nodes, contents, &bytes)
    }

    /// As [`Graph::load_raw`], by a private memory map of the file, which no process may shorten meanwhile.
    #[optimize(size)]
    pub fn load_raw_mapped(&mut self, path: &Path, nodes: Nodes<'_>, contents: Contents) -> Result<()> {
        self.check_nodes(nodes)?;
        let bytes = map_exactly(path, self.raw_bytes(nodes.len(), contents))?;
        self.read_raw(nodes, contents, &bytes)
    }

    #[optimize(size)]
    fn check_nodes(&self, nodes: Nodes<'_>) -> Result<()> {
        match nodes {
            Nodes::Run(range) => self.check_range(range),
            Nodes::List(list) => list.iter().try_for_each(|&node| self.check_exists(node)),
        }
    }
}

/// Writes scalars lane by lane; `out` has exactly the right length. Interruptible.
#[inline]
pub(super) fn put_scalars<S: Scalar<Elem: Stored>>(mut scalars: impl Iterator<Item = S>, out: &mut [u8]) -> Result<()> {
    let size = <S::Elem as Stored>::BYTES;
    let scalar_size = S::LANES * size;
    for piece in pieces(out.len() / scalar_size) {
        let out = &mut out[piece.start * scalar_size..piece.end * scalar_size];
        for (bytes, scalar) in out.chunks_exact_mut(scalar_size).zip(&mut scalars) {
            for (lane, bytes) in bytes.chunks_exact_mut(size).enumerate() {
                scalar.lane(lane).put(bytes);
            }
        }
    }
    interrupt::check()
}

/// The scalars in bytes, whose length is a multiple of their size.
#[inline]
pub(super) fn get_scalars<S: Scalar<Elem: Stored>>(bytes: &[u8]) -> impl Iterator<Item = S> + '_ {
    let size = <S::Elem as Stored>::BYTES;
    bytes.chunks_exact(S::LANES * size).map(move |bytes| {
        let lanes = bytes.chunks_exact(size).map(<S::Elem as Stored>::get).enumerate();
        lanes.fold(S::lit(0.0), |scalar, (lane, elem)| scalar.with_lane(lane, elem))
    })
}
