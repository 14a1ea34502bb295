//! Graphs in the checkpoint format: structure, values and optionally gradients; or the numbers of a range of nodes alone.
//!
//! Sections of a graph: `OPNM` names of the used ops, one per line; `OPS` the index of each node's op among them;
//! `OPND` two operands per node; `LIST` operand lists and block records; `STOR` how many numbers are read of each of the
//! parameters; `VALS` values; `LGRD` and `ADJS` gradients of leaves and adjoints of the last sweep; `LNOD`, `LLEN`, `LTXT`
//! labels. Of a range: `VALS`, `GRAD`.
//!
//! Promises: a file is loaded into a graph of equal structure, or creates a new one whose every index has been checked.
//! Parameters are not part of a graph: they have files of their own.

use std::path::Path;

use super::file::{Durability, read, save};
use super::format::{Contents, Header, Kind};
use super::numbers::Stored;
use super::raw::{Nodes, get_scalars};
use super::sections::{Reader, Section, Writer};
use super::structure::{CheckedStructure, LabelsFile, StructureFile, check_scalars, write_labels, write_structure};
use crate::error::{Error, Result};
use crate::graph::{Check, Graph, Parts, Range};
use crate::interrupt;
use crate::params::Parameters;
use crate::scalar::{Float, Scalar};

/// A graph from a file.
#[derive(Debug)]
pub struct Loaded<'m, S: Scalar> {
    /// The graph.
    pub graph: Graph<'m, S>,
}

impl<S: Scalar<Elem: Stored>> Graph<'_, S> {
    fn header(kind: Kind, contents: Contents, first: u64, count: usize) -> Header {
        let (dtype, lanes) = (Some(<S::Elem as Float>::DTYPE), S::LANES as u16);
        Header { kind, dtype, contents, lanes, first, count: count as u64 }
    }

    /// The checkpoint format in memory, with the labels. `contents` says which numbers besides the structure; values are always
    /// there.
    #[optimize(size)]
    pub fn to_bytes(&self, contents: Contents) -> Result<Vec<u8>> {
        let contents = if contents.has_gradients() { Contents::Both } else { Contents::Values };
        let header = Self::header(Kind::GRAPH, contents, 0, self.len());
        let mut writer = write_structure(header, self.topology(), self.stores().len())?;
        scalars(&mut writer, *b"VALS", self.values())?;
        if contents.has_gradients() {
            scalars(&mut writer, *b"LGRD", self.leaves.grads())?;
            scalars(&mut writer, *b"ADJS", self.adjoints())?;
        }
        #[cfg(feature = "labels")]
        let labels: Vec<(u32, &str)> = self.labels().map(|(node, label)| (node.index(), label)).collect();
        #[cfg(not(feature = "labels"))]
        let labels: [(u32, &str); 0] = [];
        write_labels(writer, &labels)
    }

    /// The numbers of a range of nodes in the checkpoint format, without structure.
    #[optimize(size)]
    pub fn range_to_bytes(&self, range: Range, contents: Contents) -> Result<Vec<u8>> {
        let header = Self::header(Kind::RANGE, contents, u64::from(range.start), range.len());
        let mut writer = Writer::new(header)?;
        for (tag, part) in [(*b"VALS", Contents::Values), (*b"GRAD", Contents::Gradients)] {
            if (part == Contents::Values && contents.has_values())
                || (part != Contents::Values && contents.has_gradients())
            {
                let raw = self.to_raw(Nodes::Run(range), part)?;
                numbers::<S>(&mut writer, tag, &raw)?;
            }
        }
        writer.finish()
    }

    /// Loads numbers from a checkpoint file: of a graph of equal structure, or of a range that this graph has.
    #[optimize(size)]
    pub fn load_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let reader = Reader::open_any(bytes)?;
        match reader.header().kind {
            Kind::RANGE => self.load_range(reader),
            _ => self.load_equal(Reader::open(bytes, Kind::GRAPH)?),
        }
    }

    #[optimize(size)]
    fn load_range(&mut self, mut reader: Reader<'_>) -> Result<()> {
        let header = check_scalars(&reader, <S::Elem as Float>::DTYPE, S::LANES)?;
        let range = u32::try_from(header.first).ok().zip(u32::try_from(header.count).ok());
        let range = range.map(|(start, len)| Range { start, len }).filter(|&range| self.check_range(range).is_ok());
        let Some(range) = range else {
            let (first, n) = (header.first, header.count);
            return Err(reader.refuse(format!("the file is of {n} nodes from {first}, the graph has {}", self.len())));
        };
        let n = range.len() * S::LANES;
        let values = header.contents.has_values().then(|| reader.section_of::<S::Elem>(*b"VALS", n)).transpose()?;
        let grads = header.contents.has_gradients().then(|| reader.section_of::<S::Elem>(*b"GRAD", n)).transpose()?;
        reader.finish()?;
        if let Some(values) = values {
            self.read_raw(Nodes::Run(range), Contents::Values, values.bytes())?;
        }
        match grads {
            Some(grads) => self.read_raw(Nodes::Run(range), Contents::Gradients, grads.bytes()),
            None => Ok(()),
        }
    }

    #[optimize(size)]
    fn load_equal(&mut self, reader: Reader<'_>) -> Result<()> {
        let file = GraphFile::<S>::read(reader)?;
        file.structure.check_equal(self.topology(), self.stores().len())?;
        if let Some((leaves, _)) = &file.gradients
            && leaves.len() != self.leaves.len() as usize * S::LANES
        {
            let (found, own) = (leaves.len(), self.leaves.len() as usize);
            return Err(leaves.refuse(0, format!("starts {found} of them, expected {own}")));
        }
        interrupt::check()?;
        // From here on nothing fails and nothing is interruptible.
        self.values_mut().iter_mut().zip(get_scalars(file.values.bytes())).for_each(|(to, value)| *to = value);
        if let Some((leaves, adjoints)) = file.gradients {
            self.restore_gradients(get_scalars(leaves.bytes()), get_scalars(adjoints.bytes()));
        }
        Ok(())
    }

    /// Saves the checkpoint format of the whole graph.
    #[optimize(size)]
    pub fn save(&self, path: &Path, contents: Contents) -> Result<()> {
        save(path, &self.to_bytes(contents)?, Durability::Durable)
    }

    /// Loads numbers as [`Graph::load_bytes`] does, from a file.
    #[optimize(size)]
    pub fn load(&mut self, path: &Path) -> Result<()> {
        self.load_bytes(&read(path)?)
    }
}

impl<S: Scalar<Elem: Stored>> Loaded<'static, S> {
    /// A new graph from the checkpoint format. Where the graph read parameters, `params` are those it shall read, in the order
    /// in which the first one read them.
    #[optimize(size)]
    pub fn from_bytes(bytes: &[u8], params: &[&Parameters<'_, S::Elem>]) -> Result<Self> {
        Self::into_empty(Graph::new(), bytes, params)
    }

    /// As [`Loaded::from_bytes`], from a file.
    #[optimize(size)]
    pub fn from_file(path: &Path, params: &[&Parameters<'_, S::Elem>]) -> Result<Self> {
        Self::from_bytes(&read(path)?, params)
    }
}

impl<'m, S: Scalar<Elem: Stored>> Loaded<'m, S> {
    /// As [`Loaded::from_bytes`], into a graph that is still empty: a fixed one, or one in the caller's memory.
    #[optimize(size)]
    pub fn into_empty(graph: Graph<'m, S>, bytes: &[u8], params: &[&Parameters<'_, S::Elem>]) -> Result<Self> {
        if !graph.is_empty() {
            let (expected, found) = ("empty".into(), format!("{} nodes", graph.len()));
            return Err(Error::BadArgument { what: "the graph to load into", expected, found });
        }
        let file = GraphFile::<S>::read(Reader::open(bytes, Kind::GRAPH)?)?;
        let stores: Vec<u64> = params.iter().map(|p| p.id()).collect();
        file.structure.check_stores(&stores)?;
        let lengths: Vec<usize> = params.iter().map(|p| p.len()).collect();
        let CheckedStructure { ops, extra, needs } =
            file.structure.checked(&lengths, &|names, extra| Check::new::<S>(names, extra, stores.len()))?;
        let labels = file.labels.labels(file.structure.n)?;
        let parts = Parts { ops: &ops, extra: &extra, stores: &stores, needs };
        let values = get_scalars::<S>(file.values.bytes());
        let mut graph = graph.with_parts(parts, (0..file.structure.n).map(|k| file.structure.operands(k)), values)?;
        if let Some((leaves, adjoints)) = file.gradients {
            if leaves.len() != graph.leaves.len() as usize * S::LANES {
                return Err(leaves
                    .refuse(0, format!("starts {} numbers, of {} leaves", leaves.len(), graph.leaves.len() as usize)));
            }
            graph.restore_gradients(get_scalars(leaves.bytes()), get_scalars(adjoints.bytes()));
        }
        #[cfg(feature = "labels")]
        for (node, label) in &labels {
            graph.set_label(crate::NodeId(*node), label)?;
        }
        #[cfg(not(feature = "labels"))]
        drop(labels);
        Ok(Loaded { graph })
    }
}

/// Gradients of leaves, and adjoints by node.
type Gradients<'a, E> = (Section<'a, E>, Section<'a, E>);

/// The sections of a graph's file, whose lengths agree.
struct GraphFile<'a, S: Scalar<Elem: Stored>> {
    structure: StructureFile<'a>,
    values: Section<'a, S::Elem>,
    gradients: Option<Gradients<'a, S::Elem>>,
    labels: LabelsFile<'a>,
}

impl<'a, S: Scalar<Elem: Stored>> GraphFile<'a, S> {
    #[optimize(size)]
    fn read(mut reader: Reader<'a>) -> Result<Self> {
        let header = check_scalars(&reader, <S::Elem as Float>::DTYPE, S::LANES)?;
        let structure = StructureFile::read(&mut reader)?;
        let n = structure.n;
        let values = reader.section_of(*b"VALS", n * S::LANES)?;
        let gradients = match header.contents {
            Contents::Both => Some((reader.section(*b"LGRD")?, reader.section_of(*b"ADJS", n * S::LANES)?)),
            _ => None,
        };
        Ok(GraphFile { structure, values, gradients, labels: LabelsFile::read(reader)? })
    }
}

/// Appends scalars, lane by lane.
fn scalars<S: Scalar<Elem: Stored>>(writer: &mut Writer, tag: [u8; 4], scalars: &[S]) -> Result<()> {
    let lanes = |k: usize| scalars[k / S::LANES].lane(k % S::LANES);
    writer.section_of(tag, (0..scalars.len() * S::LANES).map(lanes))
}

/// Appends numbers given as bytes.
fn numbers<S: Scalar<Elem: Stored>>(writer: &mut Writer, tag: [u8; 4], raw: &[u8]) -> Result<()> {
    writer.section_of(tag, super::numbers::get_all::<S::Elem>(raw))
}
