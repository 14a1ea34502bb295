//! The sections of a graph's file without numbers of nodes: ops, operands, lists, parameters, labels.
//!
//! Promises: compiled once, not for each scalar type; every loaded index has been checked.

use super::format::Header;
use super::sections::{Reader, Section, Writer};
use crate::error::{Error, Result};
use crate::graph::{Check, Needs, PerSlot, Topology};
use crate::interrupt;
use crate::ops::{OP_INFO, Op};
use crate::scalar::DType;

/// Checks that a file contains scalars of this type.
#[optimize(size)]
pub(super) fn check_scalars(reader: &Reader<'_>, wanted: DType, lanes: usize) -> Result<Header> {
    let header = reader.header();
    if header.dtype == Some(wanted) && usize::from(header.lanes) == lanes {
        return Ok(header);
    }
    let found = header.dtype.map_or("no", |dtype| dtype.name());
    let (wanted, found_lanes) = (wanted.name(), header.lanes);
    Err(reader.refuse(format!("the file is of {found} numbers in {found_lanes} lanes, expected {wanted} in {lanes}")))
}

impl Topology<'_> {
    /// The operands of a node as stored; parts of blocks have none.
    fn stored_operands(self, node: usize) -> [u32; 2] {
        if self.ops[node] == Op::Part { [0, 0] } else { self.operands[node] }
    }

    /// For each slot, the number of parameters that the graph reads.
    fn extents(self, n_stores: usize) -> Result<PerSlot<u64>> {
        let mut extents = PerSlot::of(0, n_stores)?;
        for node in interrupt::pieces(self.ops.len()).flatten().map(|node| node as u32) {
            if self.op(node) != Op::Part {
                self.for_each_operand_of_any(node, &mut |run| {
                    if let Some((slot, start, len)) = run.parameters() {
                        extents[slot] = extents[slot].max(start as u64 + len as u64);
                    }
                });
            }
        }
        Ok(extents)
    }
}

/// Starts the file of a graph with its structure.
#[optimize(size)]
pub(super) fn write_structure(header: Header, topology: Topology<'_>, n_stores: usize) -> Result<Writer> {
    let structure = topology.structure(&mut OP_INFO.iter().map(|row| row.op))?;
    let mut writer = Writer::new(header)?;
    if structure.is_over_tokens() {
        writer.needs_version(2);
    }
    let names: Vec<&str> = structure.names.iter().map(|op| op.name()).collect();
    writer.text(*b"OPNM", &names.join("\n"))?;
    writer.section_of(*b"OPS ", topology.ops.iter().map(|&op| structure.place(op)))?;
    let operand = |k: usize| topology.stored_operands(k / 2)[k % 2];
    writer.section_of(*b"OPND", (0..2 * topology.ops.len()).map(operand))?;
    writer.section(*b"LIST", &structure.extra)?;
    writer.section(*b"STOR", &topology.extents(n_stores)?[..n_stores])?;
    Ok(writer)
}

/// Finishes the file with the labels.
#[optimize(size)]
pub(super) fn write_labels(mut writer: Writer, labels: &[(u32, &str)]) -> Result<Vec<u8>> {
    let labels = labels.iter();
    writer.section_of(*b"LNOD", labels.clone().map(|&(node, _)| node))?;
    writer.section_of(*b"LLEN", labels.clone().map(|(_, label)| label.len() as u32))?;
    writer.text(*b"LTXT", &labels.map(|&(_, label)| label).collect::<String>())?;
    writer.finish()
}

/// The structure of a graph in a file, in sections whose lengths agree.
pub(super) struct StructureFile<'a> {
    pub(super) n: usize,
    names: Vec<Op>,
    ops: Section<'a, u8>,
    operands: Section<'a, u32>,
    lists: Section<'a, u32>,
    extents: Section<'a, u64>,
}

/// The structure in a file after every index was checked.
pub(super) struct CheckedStructure {
    pub(super) ops: Vec<Op>,
    pub(super) extra: Vec<u32>,
    pub(super) needs: Needs,
}

/// Creates the check for a scalar type, from the ops and the operand lists of a graph.
type NewCheck<'a> = &'a dyn for<'c> Fn(&'c [Op], &'c mut [u32]) -> Result<Check<'c>>;

impl<'a> StructureFile<'a> {
    #[optimize(size)]
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self> {
        let header = reader.header();
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
        Ok(StructureFile {
            n,
            names,
            ops: reader.section_of(*b"OPS ", n)?,
            operands: reader.section_of(*b"OPND", 2 * n)?,
            lists: reader.section(*b"LIST")?,
            extents: reader.section(*b"STOR")?,
        })
    }

    /// Checks that this is the structure of the given graph, number by number.
    #[optimize(size)]
    pub(super) fn check_equal(&self, topology: Topology<'_>, n_stores: usize) -> Result<()> {
        let n = topology.ops.len();
        if self.n != n {
            return Err(self.ops.refuse(0, format!("starts {} nodes, the graph has {n}", self.n)));
        }
        let structure = topology.structure(&mut self.names.iter().copied())?;
        for (k, (&op, stored)) in topology.ops.iter().zip(self.ops.iter()).enumerate() {
            interrupt::ask_at(k)?;
            if self.names.get(stored as usize) != Some(&op) {
                let found = self.names.get(stored as usize).map_or("unknown", |op| op.name());
                return Err(self.ops.refuse(k, format!("is {found}, the graph has {}", op.name())));
            }
        }
        for k in 0..n {
            interrupt::ask_at(k)?;
            let own = topology.stored_operands(k);
            let Some(side) = (0..2).find(|&side| self.operands.get(2 * k + side) != Some(own[side])) else { continue };
            let reason = format!("is of node {k}, whose operands in the graph are others");
            return Err(self.operands.refuse(2 * k + side, reason));
        }
        if structure.names != self.names || structure.extra.len() != self.lists.len() {
            return Err(self.lists.refuse(0, "starts operand lists that the graph has not".into()));
        }
        if let Some(k) = self.lists.iter().zip(&structure.extra).position(|(stored, &own)| stored != own) {
            return Err(self.lists.refuse(k, format!("differs from the graph's, {}", structure.extra[k])));
        }
        if self.extents.len() != n_stores {
            let found = self.extents.len();
            return Err(self.extents.refuse(0, format!("starts {found} Parameters, the graph reads {n_stores}")));
        }
        Ok(())
    }

    /// The operands of node `k`.
    pub(super) fn operands(&self, k: usize) -> [u32; 2] {
        [2 * k, 2 * k + 1].map(|at| self.operands.get(at).unwrap_or(0))
    }

    /// Checks every index, for a graph that reads parameters of these lengths. `new` creates the check.
    #[optimize(size)]
    pub(super) fn checked(&self, lengths: &[usize], new: NewCheck<'_>) -> Result<CheckedStructure> {
        let (ops, mut extra) = (self.ops_of_nodes()?, self.lists.to_vec()?);
        let mut check = new(&self.names, &mut extra)?;
        for (k, &op) in ops.iter().enumerate() {
            interrupt::ask_at(k)?;
            check
                .node(k as u32, op, self.operands(k))
                .map_err(|fault| self.operands.refuse(2 * k, format!("(node {k}) {fault}")))?;
        }
        let needs = check.finish().map_err(|fault| self.ops.refuse(ops.len().saturating_sub(1), fault))?;
        for (slot, (extent, &length)) in needs.extents.iter().zip(lengths).enumerate() {
            if self.extents.get(slot) != Some(*extent) {
                return Err(self.extents.refuse(slot, format!("is not {extent}, the parameters that nodes read")));
            }
            if *extent > length as u64 {
                return Err(Error::BadArgument {
                    what: "the parameters that the graph shall read",
                    expected: format!("in the order in which it names them, of number {slot} at least {extent}"),
                    found: length.to_string(),
                });
            }
        }
        Ok(CheckedStructure { ops, extra, needs })
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

    /// Refuses the wrong number of identities of parameters, and repeated identities.
    #[optimize(size)]
    pub(super) fn check_stores(&self, stores: &[u64]) -> Result<()> {
        let distinct = stores.iter().enumerate().all(|(k, id)| !stores[..k].contains(id));
        if stores.len() == self.extents.len() && distinct {
            return Ok(());
        }
        Err(Error::BadArgument {
            what: "the parameters that the graph shall read",
            expected: format!("{} different ones", self.extents.len()),
            found: format!("{}", stores.len()),
        })
    }
}

/// Labels in a file.
pub(super) struct LabelsFile<'a> {
    nodes: Section<'a, u32>,
    lengths: Section<'a, u32>,
    text: &'a str,
}

impl<'a> LabelsFile<'a> {
    /// The last sections of a graph's file.
    #[optimize(size)]
    pub(super) fn read(mut reader: Reader<'a>) -> Result<Self> {
        let nodes = reader.section::<u32>(*b"LNOD")?;
        let (lengths, text) = (reader.section_of(*b"LLEN", nodes.len())?, reader.text(*b"LTXT")?);
        reader.finish()?;
        Ok(LabelsFile { nodes, lengths, text })
    }

    /// The labels of a graph of `n` nodes.
    #[optimize(size)]
    pub(super) fn labels(&self, n: usize) -> Result<Vec<(u32, String)>> {
        let LabelsFile { nodes, lengths, text } = self;
        let mut text = *text;
        let mut labels: Vec<(u32, String)> = Vec::new();
        for (k, (node, length)) in nodes.iter().zip(lengths.iter()).enumerate() {
            if node as usize >= n || labels.last().is_some_and(|(last, _)| *last >= node) {
                return Err(nodes.refuse(k, format!("labels node {node}, expected ascending ones below {n}")));
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
