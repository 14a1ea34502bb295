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
use crate::error::{Error, Result};
use crate::graph::{Check, Graph, Parts, PerSlot, Range};
use crate::interrupt;
use crate::ops::{OP_INFO, Op};
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
        let structure = self.topology().structure(&mut OP_INFO.iter().map(|row| row.op))?;
        let (ops, operands) = self.nodes_as_numbers();
        let mut writer = Writer::new(Self::header(Kind::GRAPH, contents, 0, self.len()))?;
        if structure.is_over_tokens() {
            writer.needs_version(2);
        }
        let names: Vec<&str> = structure.names.iter().map(|op| op.name()).collect();
        writer.text(*b"OPNM", &names.join("\n"))?;
        writer.section_of(*b"OPS ", ops.iter().map(|&op| structure.place(op)))?;
        let operand = |k: usize| operands(k / 2)[k % 2];
        writer.section_of(*b"OPND", (0..2 * self.len()).map(operand))?;
        writer.section(*b"LIST", &structure.extra)?;
        writer.section(*b"STOR", &self.extents()?[..self.stores().len()])?;
        scalars(&mut writer, *b"VALS", self.values())?;
        if contents.has_gradients() {
            scalars(&mut writer, *b"LGRD", self.leaves.grads())?;
            scalars(&mut writer, *b"ADJS", self.adjoints())?;
        }
        #[cfg(feature = "labels")]
        let labels: Vec<(u32, &str)> = self.labels().map(|(node, label)| (node.index(), label)).collect();
        #[cfg(not(feature = "labels"))]
        let labels: [(u32, &str); 0] = [];
        let labels = labels.iter();
        writer.section_of(*b"LNOD", labels.clone().map(|&(node, _)| node))?;
        writer.section_of(*b"LLEN", labels.clone().map(|(_, label)| label.len() as u32))?;
        writer.text(*b"LTXT", &labels.map(|&(_, label)| label).collect::<String>())?;
        writer.finish()
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
        let header = check_scalars::<S>(&reader)?;
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
        self.check_equal(&file)?;
        if let Some((leaves, _)) = &file.gradients
            && leaves.len() != self.leaves.len() as usize * S::LANES
        {
            let (found, own) = (leaves.len(), self.leaves.len() as usize);
            return Err(leaves.refuse(0, format!("starts {found} of them, expected {own}")));
        }
        interrupt::check()?;
        // From here on nothing fails, and nobody asks whether to end early.
        self.values_mut().iter_mut().zip(get_scalars(file.values.bytes())).for_each(|(to, value)| *to = value);
        if let Some((leaves, adjoints)) = file.gradients {
            self.restore_gradients(get_scalars(leaves.bytes()), get_scalars(adjoints.bytes()));
        }
        Ok(())
    }

    /// Whether a file has this graph's structure, number by number.
    #[optimize(size)]
    fn check_equal(&self, file: &GraphFile<'_, S>) -> Result<()> {
        if file.n != self.len() {
            return Err(file.ops.refuse(0, format!("starts {} nodes, the graph has {}", file.n, self.len())));
        }
        let structure = self.topology().structure(&mut file.names.iter().copied())?;
        let (ops, operands) = self.nodes_as_numbers();
        for (k, (&op, stored)) in ops.iter().zip(file.ops.iter()).enumerate() {
            interrupt::ask_at(k)?;
            if file.names.get(stored as usize) != Some(&op) {
                let found = file.names.get(stored as usize).map_or("unknown", |op| op.name());
                return Err(file.ops.refuse(k, format!("is {found}, the graph has {}", op.name())));
            }
        }
        for k in 0..self.len() {
            interrupt::ask_at(k)?;
            let stored = [2 * k, 2 * k + 1].map(|at| file.operands.get(at));
            let Some(side) = (0..2).find(|&side| stored[side] != Some(operands(k)[side])) else { continue };
            let reason = format!("is of node {k}, whose operands in the graph are others");
            return Err(file.operands.refuse(2 * k + side, reason));
        }
        if structure.names != file.names || structure.extra.len() != file.lists.len() {
            return Err(file.lists.refuse(0, "starts operand lists that the graph has not".into()));
        }
        if let Some(k) = file.lists.iter().zip(&structure.extra).position(|(stored, &own)| stored != own) {
            return Err(file.lists.refuse(k, format!("differs from the graph's, {}", structure.extra[k])));
        }
        if file.extents.len() != self.stores().len() {
            let (found, own) = (file.extents.len(), self.stores().len());
            return Err(file.extents.refuse(0, format!("starts {found} Parameters, the graph reads {own}")));
        }
        Ok(())
    }

    /// For each slot, how many numbers of the parameters the graph reads.
    fn extents(&self) -> Result<PerSlot<u64>> {
        let mut extents = PerSlot::of(0, self.stores().len())?;
        for node in interrupt::pieces(self.len()).flatten().map(|node| node as u32) {
            if self.columns.op(node) != Op::Part {
                self.for_each_operand(crate::NodeId(node), |run| {
                    if let Some((slot, start, len)) = run.parameters() {
                        extents[slot] = extents[slot].max(start as u64 + len as u64);
                    }
                });
            }
        }
        Ok(extents)
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
        let stores = file.stores(params)?;
        let (ops, mut extra) = (file.ops_of_nodes()?, file.lists.to_vec()?);
        let operands = |k: usize| [file.operands.get(2 * k).unwrap_or(0), file.operands.get(2 * k + 1).unwrap_or(0)];
        let mut check = Check::new::<S>(&file.names, &mut extra, stores.len())?;
        for (k, &op) in ops.iter().enumerate() {
            interrupt::ask_at(k)?;
            check
                .node(k as u32, op, operands(k))
                .map_err(|fault| file.operands.refuse(2 * k, format!("(node {k}) {fault}")))?;
        }
        let needs = check.finish().map_err(|fault| file.ops.refuse(ops.len().saturating_sub(1), fault))?;
        for (slot, (extent, params)) in needs.extents.iter().zip(params).enumerate() {
            if file.extents.get(slot) != Some(*extent) {
                return Err(file.extents.refuse(slot, format!("is not {extent}, the parameters that nodes read")));
            }
            if *extent > params.len() as u64 {
                return Err(Error::BadArgument {
                    what: "the parameters that the graph shall read",
                    expected: format!("in the order in which it names them, of number {slot} at least {extent}"),
                    found: params.len().to_string(),
                });
            }
        }
        let labels = file.labels()?;
        let parts = Parts { ops: &ops, extra: &extra, stores: &stores, needs };
        let values = get_scalars::<S>(file.values.bytes());
        let mut graph = graph.with_parts(parts, (0..file.n).map(operands), values)?;
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
    n: usize,
    names: Vec<Op>,
    ops: Section<'a, u8>,
    operands: Section<'a, u32>,
    lists: Section<'a, u32>,
    extents: Section<'a, u64>,
    values: Section<'a, S::Elem>,
    gradients: Option<Gradients<'a, S::Elem>>,
    labels: (Section<'a, u32>, Section<'a, u32>, &'a str),
}

impl<'a, S: Scalar<Elem: Stored>> GraphFile<'a, S> {
    #[optimize(size)]
    fn read(mut reader: Reader<'a>) -> Result<Self> {
        let header = check_scalars::<S>(&reader)?;
        let n = usize::try_from(header.count).ok().filter(|&n| n <= u32::MAX as usize && header.first == 0);
        let Some(n) = n else {
            return Err(reader.refuse(format!("the file is of {} nodes from {}", header.count, header.first)));
        };
        if !header.contents.has_values() {
            return Err(reader.refuse("the file is of a graph without values".into()));
        }
        let text = reader.text(*b"OPNM")?;
        let mut names = Vec::new();
        for name in text.lines() {
            let op = Op::from_name(name).filter(|op| !names.contains(op));
            names.push(
                op.ok_or_else(|| reader.refuse(format!("op {name:?} is unknown to this version, or there twice")))?,
            );
        }
        Ok(GraphFile {
            n,
            names,
            ops: reader.section_of(*b"OPS ", n)?,
            operands: reader.section_of(*b"OPND", 2 * n)?,
            lists: reader.section(*b"LIST")?,
            extents: reader.section(*b"STOR")?,
            values: reader.section_of(*b"VALS", n * S::LANES)?,
            gradients: match header.contents {
                Contents::Both => Some((reader.section(*b"LGRD")?, reader.section_of(*b"ADJS", n * S::LANES)?)),
                _ => None,
            },
            labels: {
                let nodes = reader.section::<u32>(*b"LNOD")?;
                let labels = (nodes, reader.section_of(*b"LLEN", nodes.len())?, reader.text(*b"LTXT")?);
                reader.finish()?;
                labels
            },
        })
    }

    /// The op of each node.
    #[optimize(size)]
    fn ops_of_nodes(&self) -> Result<Vec<Op>> {
        let mut ops = Vec::new();
        ops.try_reserve_exact(self.n).map_err(|_| Error::OutOfMemory { bytes: self.n, what: "opcodes" })?;
        for (k, stored) in self.ops.iter().enumerate() {
            interrupt::ask_at(k)?;
            let op = self.names.get(stored as usize);
            let op = op.ok_or_else(|| self.ops.refuse(k, format!("is op {stored} of {}", self.names.len())))?;
            ops.push(*op);
        }
        Ok(ops)
    }

    /// The identities of the parameters given, one for each slot.
    #[optimize(size)]
    fn stores(&self, params: &[&Parameters<'_, S::Elem>]) -> Result<Vec<u64>> {
        let stores: Vec<u64> = params.iter().map(|p| p.id()).collect();
        let distinct = stores.iter().enumerate().all(|(k, id)| !stores[..k].contains(id));
        if stores.len() == self.extents.len() && distinct {
            return Ok(stores);
        }
        Err(Error::BadArgument {
            what: "the parameters that the graph shall read",
            expected: format!("{} different ones", self.extents.len()),
            found: format!("{}", stores.len()),
        })
    }

    #[optimize(size)]
    fn labels(&self) -> Result<Vec<(u32, String)>> {
        let (nodes, lengths, mut text) = self.labels;
        let mut labels: Vec<(u32, String)> = Vec::new();
        for (k, (node, length)) in nodes.iter().zip(lengths.iter()).enumerate() {
            if node as usize >= self.n || labels.last().is_some_and(|(last, _)| *last >= node) {
                return Err(nodes.refuse(k, format!("labels node {node}, expected ascending ones below {}", self.n)));
            }
            let split = text.split_at_checked(length as usize);
            let (label, rest) = split.ok_or_else(|| lengths.refuse(k, "does not fit the text".into()))?;
            labels.push((node, label.to_string()));
            text = rest;
        }
        match text.len() {
            0 => Ok(labels),
            n => Err(lengths.refuse(lengths.len(), format!("is missing: {n} bytes of labels are left"))),
        }
    }
}

/// Appends scalars lane by lane.
fn scalars<S: Scalar<Elem: Stored>>(writer: &mut Writer, tag: [u8; 4], scalars: &[S]) -> Result<()> {
    let lanes = |k: usize| scalars[k / S::LANES].lane(k % S::LANES);
    writer.section_of(tag, (0..scalars.len() * S::LANES).map(lanes))
}

/// Appends numbers that are bytes already.
fn numbers<S: Scalar<Elem: Stored>>(writer: &mut Writer, tag: [u8; 4], raw: &[u8]) -> Result<()> {
    writer.section_of(tag, super::numbers::get_all::<S::Elem>(raw))
}

/// Whether a file holds scalars of this type.
#[optimize(size)]
fn check_scalars<S: Scalar<Elem: Stored>>(reader: &Reader<'_>) -> Result<Header> {
    let header = reader.header();
    let (wanted, lanes) = (<S::Elem as Float>::DTYPE, S::LANES);
    if header.dtype == Some(wanted) && usize::from(header.lanes) == lanes {
        return Ok(header);
    }
    let found = header.dtype.map_or("no", |dtype| dtype.name());
    let (wanted, found_lanes) = (wanted.name(), header.lanes);
    Err(reader.refuse(format!("the file is of {found} numbers in {found_lanes} lanes, expected {wanted} in {lanes}")))
}
